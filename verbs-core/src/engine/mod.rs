//! The engine: kernel objects without owners, and without locks around their rings.
//!
//! An object here is its part of the kernel's state; its rings are separate values, which a caller passes as `&mut`. So
//! each layer above decides how threads share a ring: one puts a lock around it, another one whose rings have one owner
//! does not.

mod cq;
mod device_context;
mod drain_marker;
mod injected;
mod qp;
mod qp_change;
mod srq;

pub use self::cq::{Cq, NewCq};
pub use self::device_context::DeviceContext;
pub use self::drain_marker::{DrainMarker, QueueSide};
pub use self::injected::WakeupRequest;
pub use self::qp::{NewQp, Qp, QpOwner};
pub use self::qp_change::QpChange;
pub use self::srq::{NewSrq, Srq};
