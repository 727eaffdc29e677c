//! Hints: the part of an error message that proposes how the user can remove the cause.

/// The kernel does not answer. Loading `rdma_ucm` loads the other modules that every program needs.
pub(crate) const MODULES: &str = "load the kernel's RDMA modules: modprobe rdma_ucm";

/// The kernel does not answer, and sysfs, which could answer as well, is missing.
pub(crate) const MODULES_AND_SYSFS: &str = "load the kernel's RDMA modules (modprobe rdma_ucm), and mount sysfs if netlink is not allowed here";

/// A device node is missing.
pub(crate) const NODE: &str =
    "load the kernel's RDMA modules (modprobe rdma_ucm), or give the container the node";

/// The user may not pin memory (EPERM).
pub(crate) const LOCKED_MEMORY: &str = "raise RLIMIT_MEMLOCK (ulimit -l)";

/// The memory limit was exceeded, memory is short, or the device has no more objects of that type (ENOMEM).
pub(crate) const LOCKED_MEMORY_OR_OBJECTS: &str =
    "raise RLIMIT_MEMLOCK (ulimit -l), or destroy other objects of the device";

/// The process has reached its limit of descriptors (EMFILE).
pub(crate) const DESCRIPTORS: &str = "raise RLIMIT_NOFILE (ulimit -n)";

/// Memory of the device or of a queue cannot be mapped (ENOMEM).
pub(crate) const MAPPINGS: &str =
    "raise RLIMIT_AS (ulimit -v) or vm.max_map_count, or destroy other objects of the device";

/// Opening a device failed (EAGAIN).
///
/// The cgroup has its maximum of contexts of the device, or mlx5 is starting or stopping.
pub(crate) const CONTEXTS: &str =
    "raise hca_handle of the rdma cgroup (rdma.max), or try again when the device is ready";

/// The cgroup has reached its limit of objects of the device (EAGAIN).
pub(crate) const OBJECTS: &str = "raise hca_object of the rdma cgroup (rdma.max)";

/// No RDMA device has or reaches an address (ENODEV).
pub(crate) const NO_DEVICE: &str =
    "no RDMA device reaches the address: use the address of a network device with RDMA";

/// The kernel has no route to an address (ENETUNREACH).
pub(crate) const NO_ROUTE: &str = "add a route to the network of the address";

/// A port refuses connections (ECONNREFUSED).
pub(crate) const NO_LISTENER: &str =
    "check the port, that the server listens on it, and that no firewall rejects connections";

/// A queue has no entries, or more or larger ones than the device supports (EINVAL).
pub(crate) const CAPACITIES: &str = "use smaller capacities; Context::query_device and `rdmatools ibv_devinfo -v` show the limits of the device, except that of inline data";

/// Another program uses a port (EADDRINUSE).
pub(crate) const USED_PORT: &str = "choose another port, or stop the program that uses it";

/// No machine responds to address resolution.
pub(crate) const NO_MACHINE: &str = "check the address, and that its machine is running";

/// The server does not answer a request to connect.
pub(crate) const NOT_ACCEPTED: &str =
    "check that the server accepts its requests, and that its machine is running";

/// A server on iWARP sends or closes too early (EINVAL).
pub(crate) const EARLY_SERVER: &str =
    "on iWARP, a server must not send or close before it has received a message";

/// All send buffers are in use.
pub(crate) const SEND_BUFFERS: &str = "all send buffers are in flight, or the program holds them";

/// A message exceeds a send buffer.
pub(crate) const SEND_BUFFER_SIZE: &str = "raise `send_buffer_size`, and `receive_buffer_size` of the peer; a datagram has at most `mtu` bytes";

/// The peer's device refused an access.
pub(crate) const NOT_EXPORTED: &str = "the peer has revoked the memory, or never exported it";

/// The device reports no cause.
pub(crate) const UNREPORTED: &str = "the peer may have accessed memory that is not exported to it";

/// Closing took too long before the peer was disconnected.
pub(crate) const NOT_SENT: &str = "posted messages may not be sent";

/// Closing took too long after the peer was disconnected.
pub(crate) const NOT_ANSWERED: &str = "all posted messages are sent, and the peer has not answered";
