//! What a user can do where the kernel's side is missing.

/// Where the kernel does not answer. This module loads all others that every program needs.
pub(crate) const MODULES: &str = "load the kernel's RDMA modules: modprobe rdma_ucm";

/// The same where sysfs, which could answer, is missing too.
pub(crate) const MODULES_AND_SYSFS: &str = "load the kernel's RDMA modules (modprobe rdma_ucm), and mount sysfs if netlink is not allowed here";

/// Where a device node is missing.
pub(crate) const NODE: &str =
    "load the kernel's RDMA modules (modprobe rdma_ucm), or give the container the node";

/// Where the user may pin no memory: EPERM.
pub(crate) const LOCKED_MEMORY: &str = "see the limit of locked memory: ulimit -l, RLIMIT_MEMLOCK";

/// Where it would be too much, memory itself is short, or there are as many regions as siw has: ENOMEM.
pub(crate) const LOCKED_MEMORY_OR_REGIONS: &str =
    "see the limit of locked memory (ulimit -l, RLIMIT_MEMLOCK), or the device has no more regions";

/// Where the process has as many descriptors as it may: EMFILE.
pub(crate) const DESCRIPTORS: &str = "see the limit of open descriptors: ulimit -n, RLIMIT_NOFILE";

/// Where its cgroup has as many contexts of the device as it may, or mlx5 is on its way up or down: EAGAIN
/// of what opens a device.
pub(crate) const CONTEXTS: &str =
    "see the limit of the rdma cgroup (hca_handle in rdma.max), or the device is not ready";

/// Where its cgroup has as many objects of the device as it may: EAGAIN of what makes one.
pub(crate) const OBJECTS: &str = "see the limit of the rdma cgroup: hca_object in rdma.max";
