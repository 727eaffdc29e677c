//! The engine: kernel objects without owners, and without locks around their rings.
//!
//! An object here is its part of the kernel's state; its rings are values of their own, which a caller passes as `&mut`. So
//! each layer above decides how threads share a ring: [`verbs`](crate::verbs) puts a lock around it, and a layer whose rings
//! have one owner puts none.

mod cq;
mod device_context;
mod drain_marker;
mod injected;
mod qp;
mod srq;

pub(crate) use self::cq::{Cq, NewCq};
pub(crate) use self::device_context::DeviceContext;
pub(crate) use self::drain_marker::{DrainMarker, QueueSide};
pub(crate) use self::injected::WakeupRequest;
pub(crate) use self::qp::{NewQp, Qp, QpOwner};
pub(crate) use self::srq::{NewSrq, Srq};
