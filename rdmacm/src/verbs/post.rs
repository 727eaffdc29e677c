//! Posting work requests.
//!
//! # Safety
//!
//! Posting a request gives its memory to the device, hence `unsafe`, with the contract at the
//! methods. Nothing else here is.
#![expect(unsafe_code, reason = "posting gives memory to the device")]

mod owned;
mod receive;
mod refusal;
mod send;
mod shared;

pub(super) use self::owned::OwnedRings;
pub use self::receive::ReceiveQueue;
pub use self::send::SendQueue;
pub use self::shared::SharedReceives;
