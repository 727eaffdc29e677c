//! librdmacm and the verbs under it in pure Rust, straight on the kernel's ABI.

mod acks;
mod addr;
pub mod cm;
pub mod device;
mod error;
mod provider;
mod registry;
mod sys;
mod transition;
pub mod verbs;

pub use error::{DestroyError, Error, ErrorKind, Result, WrongProcess};
pub use registry::Token;
