//! The interface of drivers, and the tools that they share.
//!
//! A [`Driver`] implements the queues of one device: the command that creates a queue, and the user side of the queue.
//! The code above does not depend on the driver. The differences between drivers are in their [`Capabilities`].
//!
//! | A device may | The driver's part |
//! |---|---|
//! | have its queues in memory of this process | [`CreatedQp::memory`], mapped before the command, freed after DESTROY |
//! | keep a table of identifiers that posts write and polls read | [`Driver::QpData`] and the rings share it |
//! | name the queue pair of a completion by number only | [`Driver::create_qp`] gets the [`CqControls`], where it registers the number |
//! | need a structure for an address | [`AddressVector`](crate::work::AddressVector) holds any plain structure |
//! | leave completions of a queue pair that was reset or destroyed | [`Driver::on_reset`], [`Driver::on_destroyed`] |
//! | need the number of events that were read when it is armed | [`Arm::events_read`] |
//! | read a doorbell that is rung during a step to RESET | `queue_generation`, for drivers in this crate, makes the step wait for the thread that rings |
//! | have doorbell pages with locks of their own | the driver holds them, and its rings share them |
//!
//! # Safety
//!
//! Rings are memory that the kernel or a device shares and may change at any time. Indices are read and written as
//! atomics, elements are copied by raw pointers, and no reference to an element is created. No value that is read from
//! a ring is trusted to be in range.

mod boxed;
mod capabilities;
pub mod checks;
pub mod commands;
mod context;
pub mod dma;
mod error;
mod external;
mod interface;
pub(crate) mod queue_generation;
pub(crate) mod short_copy;

pub use self::capabilities::{Capabilities, FlushMode};
pub use self::context::{CommandContext, Doorbell};
pub use self::error::{CreateError, PollError, PostError, Posted, SizeError};
pub use self::external::External;
pub use self::interface::{
    Arm, BuiltIn, CqControlOps, CqControls, CqOps, CreateSrq, CreatedCq, CreatedQp, CreatedSrq,
    DeviceInfo, Driver, OnDestroyed, Opened, OrphanedRequests, RecvOps, SendOps,
};
