//! Errors.
//!
//! An [`Error`](crate::Error) is one sentence that says what was tried, on what, and why it failed, with the errno where
//! the kernel gave one: `cannot resolve the address 10.0.0.9:7471 of id 3: No such device (ENODEV)`; each has
//! one for who asks ([`errno`](crate::Error::errno)). Ids are numbered in their process: `id 3.1` is the second one that
//! has the place of the third. A program that has to decide something looks at the [`kind`](crate::Error::kind):
//!
//! ```no_run
#![doc = include_str!("snippets/errors.rs")]
//! ```
//!
//! Errors of connections:
//!
//! | [`ErrorKind`](crate::ErrorKind) | what happened | what helps |
//! |---|---|---|
//! | `Rejected` | nobody listens (RoCE, InfiniBand), or the server's program does not want you: the reason (on iWARP an errno) and its private data are inside | |
//! | `Os(ECONNREFUSED)` | nobody listens (iWARP) | |
//! | `Unreachable`, `TimedOut` | no answer | a route, a firewall that lets UDP 4791 through, a server that accepts |
//! | `Os(ENODEV)`, `Remedy` | no RDMA device has the address, or a module is missing | what the message says |
//! | `Disconnected` | the connection has ended in good order, or this side has ended it; on siw also where a message of this side found no buffer there, or was too long, and where it, or the peer, has reached for memory that is not given | an answer that says what has arrived |
//! | `Overrun` | iWARP: messages of the peer may be lost, for which there was no buffer here | more [buffers](crate::endpoint::Settings::receive_buffers), or a peer that waits for answers |
//! | `Failed` | a request failed, and the connection with it: the status says how | `IB_WC_RETRY_EXC_ERR`: the peer is gone; `IB_WC_REM_ACCESS_ERR`: it has revoked memory, or never exported it |
//! | `UnreportedCause` | an error that the device does not tell ended the connection | on rxe: the peer has tried to access memory that is not exported to it |
//! | `DeviceGone` | the device was removed | drop what is on it; the process may go on |
//! | `WouldBlock` | a call that does not wait | its descriptor |
//! | `WrongProcess` | after a fork, or a change of credentials | open it there |
//! | `Invalid` | refused here, before the kernel was asked | what the message says |
//!
//! After `Failed`, `Overrun` and `Disconnected` the calls on the connection fail alike, but for messages that had
//! arrived before: they are received first; and `flush` and `close` are well where all was sent. Nothing need be cleaned
//! up: drop the connection.
//!
//! # What nobody hears of
//!
//! The death of an idle peer, if its machine dies or the wire is cut: no packet is missing. What is sent then fails
//! after some seconds; to hear of it without sending, have the connection
//! [kept alive](crate::endpoint::Settings::keep_alive).
//!
//! On iWARP, where TCP says that something was sent: whether it found a buffer. Only the receiver hears of that.
