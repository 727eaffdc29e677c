//! The RDMA connection manager on one page.
//!
//! An RDMA device moves bytes between the memories of two machines, without a system call for each transfer and without
//! a copy. A program posts *work requests*, which describe the transfers, and later reads *completions*, which report
//! their results:
//!
//! - *Memory* that a device accesses is *registered* first. Its pages are pinned, and the device gets their addresses.
//!   A *protection domain* groups objects that may be used together.
//! - A *queue pair* is one end of a connection. It has a send queue and a receive queue of work requests; a receive
//!   request provides a buffer. A message uses the receive request that was posted first. If there is none, the sender
//!   waits, or on iWARP the connection ends.
//! - A *completion queue* holds the completions, each with a status.
//! - *One-sided* operations read, write and change the memory of the peer. They need no receive request and create no
//!   completion there: the peer's device performs them alone.
//!
//! A queue pair cannot transfer data before it knows its counterpart. The *connection manager*, RDMA CM, exchanges the
//! numbers, addresses and limits of both queue pairs. It works like sockets: one side listens on an IP address and a
//! port, and the other side resolves the address and connects. Requests are accepted or rejected, and either side
//! disconnects. The port numbers are separate from those of TCP, except on iWARP, which uses TCP.
//!
//! The IP addresses are those of the network device that belongs to the RDMA device. No RDMA device has 127.0.0.1: to
//! test on one machine, both sides use an address of that machine. A program that listens on 127.0.0.1 listens on all
//! addresses.
//!
//! | transport | protocol | devices |
//! |---|---|---|
//! | RoCE | UDP, on Ethernet | `rxe`, in software on any network device; `mlx5` (ConnectX-4 and later, BlueField), tested on an emulated card only |
//! | iWARP | TCP | `siw`, in software on any network device |
//! | InfiniBand | InfiniBand links | `mlx5`, untested; the connection manager on other devices, with data on hfi1 and qib, all untested |
//!
//! The modules of this crate:
//!
//! - [`endpoint`](crate::endpoint) has connections and messages, without `unsafe`. Begin with this module.
//! - [`cm`](crate::cm) is librdmacm: an id for each connection, calls that start an operation, and events that report
//!   the outcome.
//! - [`verbs`](crate::verbs) is libibverbs: the objects above, one by one. Posting is `unsafe` there, because a request
//!   refers to memory by its address.
//! - [`device`](crate::device) lists devices, ports and links. [`addr`](crate::addr) finds addresses by name.
//!
//! The library writes all commands to two device nodes of the kernel. It needs no C library for RDMA and no daemon.
//!
//! # See also
//!
//! - [Opening a first connection](super::first_connection) has a complete program.
//! - [Using memory](super::memory) describes buffers, messages and their owners.
//! - [From librdmacm](super::from_librdmacm) has every function of the C library.
