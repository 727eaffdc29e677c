//! Containers and permissions.
//!
//! A program needs, and nothing else:
//!
//! - `/dev/infiniband/rdma_cm` and `/dev/infiniband/uverbsN`, of the device that it uses, open to its user (most
//!   systems have mode 0666);
//! - an IP address, in its own network namespace, of a network device that the RDMA device belongs to, or of one
//!   that lies on top of that;
//! - memory that it may pin: the limit RLIMIT_MEMLOCK (`ulimit -l`), or CAP_IPC_LOCK. EPERM says that it is zero,
//!   ENOMEM that it is too low.
//!
//! No library, no daemon, no `/sys`, no configuration: a static binary in an empty file system does. With Docker or
//! Podman that is, for the first device and the host's addresses:
//!
//! ```text
//! docker run --network host --ulimit memlock=-1 \
//!     --device /dev/infiniband/rdma_cm --device /dev/infiniband/uverbs0 IMAGE
//! ```
//!
//! Devices are found by RDMA netlink, and where a sandbox has no netlink, by `/sys`; either may be missing.
//! Modules are loaded by the host: a container cannot.
//!
//! # Credentials
//!
//! The kernel takes commands on an open file only from the credentials that opened it, so that a program which drops
//! privileges has to do it before it opens a channel or a connection: afterwards these are
//! [`WrongProcess`](crate::ErrorKind::WrongProcess).
//!
//! # Forks
//!
//! A child has no use of its parent's channels, ids, connections and memory: every call fails there with
//! [`WrongProcess`](crate::ErrorKind::WrongProcess), drops do nothing, and the parent is not disturbed. A child that
//! opens its own is like any other program. A server cannot hand a connection to a child: use threads or tasks.
