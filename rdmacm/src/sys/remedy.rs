//! What a user can do where the kernel's side is missing.

/// Where the kernel does not answer. This module loads all others that every program needs.
pub(crate) const MODULES: &str = "load the kernel's RDMA modules: modprobe rdma_ucm";

/// The same where sysfs, which could answer, is missing too.
pub(crate) const MODULES_AND_SYSFS: &str = "load the kernel's RDMA modules (modprobe rdma_ucm), and mount sysfs if netlink is not allowed here";

/// Where a device node is missing.
pub(crate) const NODE: &str =
    "load the kernel's RDMA modules (modprobe rdma_ucm), or give the container the node";

/// Where memory cannot be registered: EPERM where the limit is zero, ENOMEM where it is too low (or
/// where memory itself is short).
pub(crate) const LOCKED_MEMORY: &str = "see the limit of locked memory: ulimit -l, RLIMIT_MEMLOCK";
