//! Actions that the core leaves to its caller, and changes that concern waiters.

use bitflags::bitflags;

bitflags! {
    /// Actions that the caller of the core carries out.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub(in crate::endpoint) struct Effects: u8 {
        /// The endpoint has ended, or the reason of its end has become known: report it.
        const REPORT_END = 1;
        /// The keep-alive writes are over: stop their timer.
        const STOP_TIMER = 1 << 1;
    }
}

bitflags! {
    /// Changes since the waiters were last woken, for waiters that need more than the state.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub(in crate::endpoint) struct Changes: u8 {
        /// A request has completed for which a caller waits.
        const COMPLETED = 1;
        /// A peer has answered, or a multicast group was joined, or neither will happen.
        const ANSWER = 1 << 1;
        /// The endpoint has ended, or the reason of its end has become known.
        const END = 1 << 2;
    }
}
