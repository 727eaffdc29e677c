//! Running in containers, and the permissions that a program needs.
//!
//! A program needs only the following:
//!
//! - Access to `/dev/infiniband/rdma_cm`, and to `/dev/infiniband/uverbsN` of its device. Most systems create them with
//!   mode 0666.
//! - An IP address in its network namespace. The address must belong to the network device of the RDMA device, or to
//!   another network device on top of that device.
//! - Memory that it may pin: the limit RLIMIT_MEMLOCK (`ulimit -l`), or CAP_IPC_LOCK. EPERM means that the limit is
//!   zero, ENOMEM that it is too low.
//!
//! It needs no library, no daemon, no `/sys` and no configuration: a static binary runs in an empty file system. With
//! Docker or Podman, the following command passes the first device and the addresses of the host to a container:
//!
//! ```text
//! docker run --network host --ulimit memlock=-1 \
//!     --device /dev/infiniband/rdma_cm --device /dev/infiniband/uverbs0 IMAGE
//! ```
//!
//! The library finds devices with RDMA netlink, or with `/sys` if a sandbox has no netlink. Either may be missing. The
//! host must load the kernel modules, because a container cannot.
//!
//! # Credentials
//!
//! The kernel accepts commands on an event channel only from the credentials that opened it. A program that drops
//! privileges must do so before it opens a channel or a connection. Otherwise its calls fail with
//! [`NotOwner`](crate::ErrorKind::NotOwner).
//!
//! # Forks
//!
//! A child cannot use the channels, ids, connections and memory of its parent. Each call in the child that needs the
//! kernel fails with [`NotOwner`](crate::ErrorKind::NotOwner), and drops do nothing. The child can open new objects
//! like any other program. A server cannot pass a connection to a child process; use threads or tasks instead.
//!
//! Since Linux 5.12, a fork does not affect the parent. Before that, the device and the parent may use different copies
//! of registered memory after a fork: see [`MemoryRegion`](crate::verbs::MemoryRegion#forking). This includes the
//! buffers of [`endpoint`](crate::endpoint). The memory of queues is not affected on any kernel.
//!
//! # See also
//!
//! - [Handling errors](super::errors) describes the errors that name missing permissions.
//! - [Running services](super::services) describes how servers stop.
