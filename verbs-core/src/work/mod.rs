//! Work: the requests that are posted to queues, and the completions that are polled.
//!
//! These types are plain data and hold no kernel object. Drivers read them, and a caller that has
//! no handles of a layer above can make them.

mod address;
mod completion;
mod request;

pub use self::address::PdNumber;
pub use self::address::{AddressVector, Destination};
pub use self::completion::Completion;
pub use self::request::WindowBinding;
pub use self::request::{
    FlushPlacement, Payload, ReceiveRequest, SendFlags, SendOperation, SendRequest, Sge,
};
pub use verbs_abi::{
    ib_qp_state as QpState, ib_uverbs_access_flags as AccessFlags, ib_uverbs_qp_type as QpType,
    ib_uverbs_wc_opcode as WcOpcode, ib_wc_status as WcStatus,
};
