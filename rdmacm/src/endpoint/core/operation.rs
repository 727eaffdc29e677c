//! The operations of an endpoint, their names in errors, and the completions on which they depend.

use crate::error::Wait;

/// An operation that a caller may have to wait for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::endpoint) enum Operation {
    AcquireBuffer,
    Send,
    Write,
    Read,
    Atomic,
    Export,
    Receive,
    Flush,
    Close,
    Resolve,
    Join,
}

/// The work queues whose completions a caller waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::endpoint) enum Interest {
    /// Completions of receives.
    Messages,
    /// Completions of sends.
    Sends,
    /// Completions of both queues, and CM events.
    All,
}

/// An operation that a caller waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::endpoint) struct Awaited {
    pub(in crate::endpoint) operation: Operation,
    /// The slot of a request, or the number of a resolution or joining.
    ///
    /// It distinguishes operations with the same name.
    ///
    /// `None` if each result concerns the caller, or if the result may not belong to the caller.
    pub(in crate::endpoint) target: Option<u64>,
}

impl Awaited {
    /// Returns the request of `operation` in slot `index`.
    pub(in crate::endpoint) fn request(operation: Operation, index: usize) -> Self {
        Self::one(operation, u64::try_from(index).expect("an index has at most 64 bits"))
    }

    /// Returns the operation with the number `target` among those with the same name.
    pub(in crate::endpoint) fn one(operation: Operation, target: u64) -> Self {
        Self { operation, target: Some(target) }
    }
}

impl From<Operation> for Awaited {
    fn from(operation: Operation) -> Self {
        Self { operation, target: None }
    }
}

impl Operation {
    /// Returns the name of the operation in errors.
    pub(in crate::endpoint) const fn name(self) -> &'static str {
        self.wait().operation
    }

    /// Returns the operation and its object, for [`Error::would_block`](crate::Error::would_block).
    ///
    /// The values are static, so creating the error allocates nothing.
    pub(in crate::endpoint) const fn wait(self) -> &'static Wait {
        const fn of(operation: &'static str) -> Wait {
            Wait { operation, subject: "an endpoint" }
        }
        match self {
            Self::AcquireBuffer => const { &of("take a buffer of") },
            Self::Send => const { &of("send on") },
            Self::Write => const { &of("write over") },
            Self::Read => const { &of("read over") },
            Self::Atomic => const { &of("change a number over") },
            Self::Export => const { &of("export memory over") },
            Self::Receive => const { &of("receive on") },
            Self::Flush => const { &of("flush") },
            Self::Close => const { &of("close") },
            Self::Resolve => const { &of("resolve a peer for") },
            Self::Join => const { &of("join a multicast group on") },
        }
    }

    /// Returns the completions on which the operation depends.
    pub(in crate::endpoint) const fn interest(self) -> Interest {
        match self {
            Self::Receive => Interest::Messages,
            Self::AcquireBuffer
            | Self::Send
            | Self::Write
            | Self::Read
            | Self::Atomic
            | Self::Export
            | Self::Flush => Interest::Sends,
            Self::Close | Self::Resolve | Self::Join => Interest::All,
        }
    }
}
