//! Errors.
//!
//! An [`Error`](crate::Error) is one sentence that says what was tried, on what, and why it failed, with the kernel's
//! errno at its end: `cannot resolve the address 10.0.0.9:7471 of id 3: No such device (ENODEV)`. A program
//! that has to decide something looks at its [`kind`](crate::Error::kind):
//!
//! ```no_run
#![doc = include_str!("snippets/errors.rs")]
//! ```
//!
//! What connections fail with:
//!
//! | [`ErrorKind`](crate::ErrorKind) | what happened | what helps |
//! |---|---|---|
//! | `Rejected` | nobody listens (RoCE, InfiniBand), or the server's program does not want you: the reason and its private data are inside | |
//! | `Os(ECONNREFUSED)` | the same on iWARP | |
//! | `Unreachable`, `TimedOut` | no answer | a route, a firewall that lets UDP 4791 through, a server that accepts |
//! | `Os(ENODEV)`, `Remedy` | no RDMA device has the address, or a module is missing | what the message says |
//! | `Disconnected` | the connection has ended in good order, or this side has ended it; on siw also where a message of this side found no buffer there, or was too long | an answer that says what has arrived |
//! | `Overrun` | iWARP: messages of the peer may be lost, for which there was no buffer here | more [buffers](crate::endpoint::Settings::receive_buffers), or a peer that waits for answers |
//! | `Failed` | a request failed, and the connection with it: the status says how | `IB_WC_RETRY_EXC_ERR`: the peer is gone; `IB_WC_REM_ACCESS_ERR`: it has revoked memory, or never exported it |
//! | `DeviceGone` | the device was removed | drop what is on it; the process may go on |
//! | `WouldBlock` | a call that does not wait | its descriptor |
//! | `WrongProcess` | after a fork, or a change of credentials | open it there |
//! | `Invalid` | refused here, before the kernel was asked | what the message says |
//!
//! After `Failed`, `Overrun` and `Disconnected` all calls on the connection fail alike, but for messages that had
//! arrived before: they are received first. Nothing need be cleaned up: drop the connection.
//!
//! # What nobody hears of
//!
//! The death of an idle peer, if its machine dies or the wire is cut: no packet is missing. What is sent then fails
//! after some seconds; to hear of it without sending, have the connection
//! [kept alive](crate::endpoint::Settings::keep_alive).
//!
//! On iWARP, where TCP says that something was sent: whether it found a buffer. Only the receiver hears of that.
