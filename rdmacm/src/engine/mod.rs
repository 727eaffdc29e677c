//! The engine: kernel objects without owners and locks.

mod device_context;

pub(crate) use self::device_context::DeviceContext;
