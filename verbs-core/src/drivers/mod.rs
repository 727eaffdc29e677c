//! The built-in drivers: mlx5, rxe, siw, and devices whose queues are in the kernel.
//!
//! A driver is a module here that implements [`Driver`](crate::driver::Driver) and
//! [`BuiltIn`](crate::driver::BuiltIn), and a line in [`any`]. It is chosen once, when a device is
//! opened, from the kernel's driver and the version of its ABI.
//!
//! | Driver | Queues | System calls on the data path |
//! |---|---|---|
//! | `Rxe` | rings shared with the kernel | send doorbell, arming |
//! | `Siw` | rings shared with the kernel | send doorbell, only if the kernel may be idle |
//! | `Mlx5` | rings shared with the device | none |
//! | `Generic` | in the kernel | posting, polling, arming |
//! | `Unknown` | none | connection manager only |
//!
//! A driver of another crate is an [`External`](crate::driver::External), which the other crate passes to
//! [`DeviceContext::new`](crate::engine::DeviceContext::new).

pub mod any;
#[cfg(any(fuzzing, feature = "null"))]
#[doc(hidden)]
pub mod forged;
mod generic;
mod mlx5;
#[cfg(any(test, feature = "null"))]
pub mod null;
#[cfg(fuzzing)]
mod other_end;
pub mod rxe;
pub mod siw;
mod unknown;

#[cfg(fuzzing)]
pub use mlx5::fuzzing as mlx5_fuzzing;
