//! The engine: kernel objects without owners, and without locks around their rings.
//!
//! Each object holds a kernel handle and its state. Its rings are separate values, which the caller passes as `&mut`.
//! The layer above decides whether a lock guards a ring, or whether the ring has one owner.

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
