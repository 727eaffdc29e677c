//! Handling errors.
//!
//! An [`Error`](crate::Error) prints as one sentence that names the operation, its object and the cause: `cannot
//! resolve the address 10.0.0.9:7471 of id 3: No such device (ENODEV)`. It has the kernel's errno, or the closest one
//! ([`errno`](crate::Error::errno)). Ids are numbered within the process: `id 3.1` is the second id that uses number 3.
//! A program that handles errors differently branches on the [`kind`](crate::Error::kind):
//!
//! ```no_run
#![doc = include_str!("snippets/errors.rs")]
//! ```
//!
//! The constants of `Os(...)` are the constants of the crate `libc`. The status of `WorkRequestFailed` is a
//! [`WcStatus`](crate::verbs::WcStatus), such as `WcStatus::IB_WC_RETRY_EXC_ERR`. The status of `Unreachable` is an
//! [`UnreachableReason`](crate::error::UnreachableReason). Most variants have contents: match them as
//! `DeviceRemoved(_)` or `NameResolution { reason, .. }`.
//!
//! The errors of connections:
//!
//! | [`ErrorKind`](crate::ErrorKind) | cause | remedy |
//! |---|---|---|
//! | `Rejected(_)` | No program listens (RoCE, InfiniBand), or the server's program rejected the request. The error has the reason (on iWARP an errno) and the private data. | the port; a server that listens on it; the reason in the message |
//! | `Os(ECONNREFUSED)` | No program listens (iWARP). | the port, and a server that listens on it |
//! | `Os(EINVAL)` of connecting | iWARP: the server has sent or closed before it received a message. RoCE: this device cannot use the answer of the server. | a client that sends first; fewer `responder_resources` of the server |
//! | `Os(EINVAL)`, `Os(ECONNRESET)`, `Rejected(_)` of accepting | The client has ended its attempt. | Accept the next request. |
//! | `Unreachable(_)`, `TimedOut` of connecting | The peer does not answer. | a route, a firewall that lets UDP port 4791 pass, a server that accepts |
//! | `TimedOut` of a call on a connection | The timeout of the call has elapsed. The connection continues, except after `close`. | Call again, or close; after `close`, the hint in the message |
//! | `Os(EPERM)`, `Os(ENOMEM)`, `Os(EMFILE)`, `Os(EAGAIN)` | A limit is reached: locked memory, descriptors, or objects of the rdma cgroup. | the hint in the message |
//! | `PartiallyPosted { .. }` | In [`verbs`](crate::verbs) only: the last requests of a list are not posted. The error has their number. | Post them again. |
//! | `Os(ENODEV)` | No RDMA device has the address, or a kernel module is missing. | the hint in the message |
//! | `Disconnected` | This side has ended the connection; or the peer has, and the call is another one than `recv`, which returns `None`. On siw also: a message of this side found no buffer at the peer, was too long, or accessed memory that the peer has not exported. | Wait for a response before closing, to know which messages the peer has handled. |
//! | `ReceiveOverrun` | On iWARP messages of the peer may be lost, because this side had no buffer for them. On any device the program held too many messages of a member of a poll group. | more [buffers](crate::endpoint::ConnectionConfig::receive_buffers) (in a poll group [`max_held`](crate::endpoint::poll_group::PollGroupConfig::max_held)), or a peer that waits for responses |
//! | `WorkRequestFailed(status)` | A work request failed. A connection ends with it; a datagram socket does not. The status is the reason. | `IB_WC_RETRY_EXC_ERR`: the peer does not answer any more; `IB_WC_REM_ACCESS_ERR`: the key is not valid, or its rights or range do not cover the access; `IB_WC_WR_FLUSH_ERR` of a datagram socket: an earlier request failed, and the socket recovers, so send the datagram again; `IB_WC_LOC_LEN_ERR`, `IB_WC_REM_INV_REQ_ERR` and `IB_WC_REM_OP_ERR`: the message is longer than its receive buffer, or invalidates a key that cannot be invalidated; `IB_WC_RNR_RETRY_EXC_ERR`: the peer posts no receives |
//! | `PeerRequestFailed(_)` | The device refused an access of the peer to memory of this side, and an asynchronous event reported it (writes on siw; all accesses on mlx5 and on rxe of Linux 7.2). | the keys and ranges that the peer uses |
//! | `UnreportedCause` | An error that the device does not report ended the connection. | on rxe of Linux 6.12 and before: the peer has tried to access memory that is not exported to it |
//! | `MalformedResponse(_)` | The kernel or the device stored a completion that does not follow the ABI, which ended the connection. | Drop the connection, and report the message as an error of the driver. |
//! | `DeviceRemoved(_)` | The device was removed. | Drop all objects of the device; the process may continue. |
//! | `WouldBlock` | A call that does not wait would have to wait. | Wait until the descriptor of the object is readable, and try again. |
//! | `NameResolution { .. }` | The name of the server is not known. | the name, or the name server |
//! | `Unsupported(_)` | The device or the kernel lacks the operation, or a task has no runtime. | the reason in the message |
//! | `WouldDeadlock(_)` | In [`cm`](crate::cm) and [`verbs`](crate::verbs) only: the calling thread holds an object for which the call would wait. | Drop the object that the message names. |
//! | `NotOwner(_)` | The process has forked, or changed its credentials. | Open the object again in the process that uses it, after any change of credentials. |
//! | `InvalidInput { .. }` | The library refused the call before it sent a command. | the reason in the message |
//!
//! After an error that has ended the connection, the calls on the connection keep failing. There are two exceptions:
//! messages that had arrived before are received first, and `flush` and `close` succeed if all posted requests were
//! completed: messages, writes, reads and atomics. No cleanup is needed: drop the connection.
//!
//! # Pitfalls
//!
//! - **Dead peers.** No error reports that the machine of an idle peer failed or that its wire was cut, because no
//!   packet is missing. A message that is sent then fails after some seconds. To detect such a failure without sending,
//!   configure [keep-alive](crate::endpoint::ConnectionConfig::keep_alive_interval), and have a call such as `recv` wait, or
//!   an event loop call `try_recv`: the checks run in these calls.
//! - **Lost messages on iWARP.** TCP confirms only that a message was transmitted, not that the message found a buffer
//!   that is long enough. The send completes, and `flush` succeeds. A later call of the sender may fail with
//!   `Disconnected`, without the cause. Only the receiver can detect that loss.
//!
//! # See also
//!
//! - [Running services](super::services) describes when another attempt to connect may succeed.
//! - [Running in containers](super::containers) lists the permissions whose absence causes errors.
//! - [`ErrorKind`](crate::ErrorKind) has all kinds of errors.
