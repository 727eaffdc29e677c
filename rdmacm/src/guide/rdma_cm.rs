//! RDMA CM, on one page.
//!
//! An RDMA device moves bytes between the memories of two machines without a system call for each
//! of them, and without a copy in between. A program tells it what to move by *work requests*, and
//! looks later at *completions*, which say what is done:
//!
//! - *Memory* that a device may touch is *registered* first: its pages stay where they are, and the
//!   device learns where that is. A *protection domain* holds what may be used together.
//! - A *queue pair* is one end of a connection: a queue of requests to send, and one of buffers to
//!   receive into. A message takes the receive that has waited longest; none waiting is the
//!   receiver's fault, and the sender waits.
//! - A *completion queue* is where the device says what it has done, or why it could not.
//! - What is *one-sided*, reading, writing and changing the peer's memory, takes no receive and no
//!   completion there: the peer's device does it alone.
//!
//! A queue pair does nothing until it knows the other one. Telling each the other's number, address
//! and limits is what the *connection manager* is for, RDMA CM. It does it as sockets do: one side
//! listens on an IP address and a port, the other one resolves an address and connects; requests are
//! accepted or rejected; either side disconnects. The port is one of the RDMA device's own, and has
//! nothing to do with TCP's, but on iWARP, where TCP is below.
//!
//! IP addresses are those of the network device that the RDMA device belongs to. 127.0.0.1 belongs to
//! none: both sides of a test on one machine use that machine's own address.
//!
//! | transport | what it runs over | devices here |
//! |---|---|---|
//! | RoCE | UDP, on Ethernet | `rxe`, in software on any network device |
//! | iWARP | TCP | `siw`, the same |
//! | InfiniBand | its own wires | connection manager only, untested |
//!
//! In this crate:
//!
//! - [`endpoint`](crate::endpoint) is connections and messages, with nothing to misuse. Begin there.
//! - [`cm`](crate::cm) is librdmacm: an id for each connection, calls that start something, and events
//!   that say how it went.
//! - [`verbs`](crate::verbs) is libibverbs: the objects above, one by one. Posting is `unsafe` there, as a
//!   request names memory by its address.
//! - [`device`](crate::device) lists devices, ports and links; [`addr`](crate::addr) finds addresses by
//!   name.
//!
//! Everything goes to the kernel as commands that are written to two device nodes; there is no library
//! of C, and no daemon.
