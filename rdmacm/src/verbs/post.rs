//! Posting of work requests.
//!
//! # Safety
//!
//! Posting a request gives its memory to the device. The methods that post are therefore `unsafe`
//! and state the contract. All other methods of this module are safe.
#![expect(unsafe_code, reason = "posting gives memory to the device")]

mod owned;
mod receive;
mod refusal;
mod send;
mod shared;

pub(super) use self::owned::OwnedRings;
pub use self::receive::ReceiveQueueGuard;
pub use self::send::SendQueueGuard;
pub use self::shared::SharedReceiveQueueGuard;
