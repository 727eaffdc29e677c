//! Hints: the part of an error message with a proposal, or with a further fact about the cause.

use verbs_abi::ib_wc_status;

use super::kind::ErrorKind;

/// The kernel does not answer. Loading `rdma_ucm` loads the other modules that every program needs.
pub(crate) const MODULES: &str = "load the kernel's RDMA modules: modprobe rdma_ucm";

/// The kernel does not answer, and sysfs, which could answer as well, is missing.
pub(crate) const MODULES_AND_SYSFS: &str = "load the kernel's RDMA modules (modprobe rdma_ucm), and mount sysfs if netlink is not allowed here";

/// A device node is missing.
pub(crate) const NODE: &str =
    "load the kernel's RDMA modules (modprobe rdma_ucm), or give the container the node";

/// The user may not pin memory (EPERM).
pub(crate) const LOCKED_MEMORY: &str = "raise RLIMIT_MEMLOCK (ulimit -l)";

/// The memory limit was exceeded, memory is short, or the device has no further objects (ENOMEM).
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
pub(crate) const CAPACITIES: &str = "choose capacities between 1 and the limits of the device, which Context::query_device and `rdmatools devinfo -v` show (except for inline data)";

/// The driver does not have a type or a flag of a queue (EOPNOTSUPP).
pub(crate) const QUEUE_TYPE: &str =
    "the device's driver does not offer this type or flag of a queue (iWARP has no datagrams)";

/// Another program uses a port (EADDRINUSE).
pub(crate) const USED_PORT: &str = "choose another port, or stop the program that uses it";

/// No machine responds to address resolution.
pub(crate) const NO_MACHINE: &str = "check the address, and that its machine is running";

/// The server does not answer a request to connect.
pub(crate) const NOT_ACCEPTED: &str = "check that the server accepts requests, that the machine is running, and that no firewall drops the packets (RoCE: UDP port 4791)";

/// The deadline for all steps of connecting has passed before the last step.
pub(crate) const TOTAL_TIMEOUT: &str = "raise `total_timeout`";

/// The connection manager of the server's machine knows no listener (RoCE, InfiniBand).
pub(crate) const NO_PROGRAM: &str = "check the port, and that the server listens on the port";

/// A server on iWARP sends or closes too early (EINVAL).
pub(crate) const EARLY_SERVER: &str = "have the client send the first message (iWARP)";

/// A request to connect cannot be accepted any more (EINVAL, on iWARP ECONNRESET).
pub(crate) const CLIENT_GONE: &str = "the client may have ended its attempt to connect";

/// The client does not confirm an accepted connection.
pub(crate) const CLIENT_SILENT: &str =
    "check that the client still runs and that no firewall drops the packets, or raise the timeout";

/// No send buffer has become free in time.
pub(crate) const SEND_BUFFERS: &str = "check that the peer receives; otherwise raise `send_buffers`, or drop buffers that the program holds";

/// A message exceeds a send buffer of a connection.
pub(crate) const SEND_BUFFER_SIZE: &str =
    "raise `send_buffer_size`; a message must also fit into the peer's `receive_buffer_size`";

/// A datagram exceeds a send buffer.
pub(crate) const DATAGRAM_SIZE: &str = "send at most `mtu` bytes";

/// The peer's device refused an access.
pub(crate) const REFUSED_ACCESS: &str =
    "the key is not valid, or its rights or range do not cover the access";

/// The device reports no cause.
pub(crate) const UNREPORTED: &str = "the peer may have sent a request that this device refused, for example an access to memory that is not exported";

/// Messages have arrived faster than the program has dropped them.
pub(crate) const OVERRUN: &str =
    "raise `receive_buffers` (in a poll group also `max_held`), or let the peer wait for responses";

/// A flush or a close fails after the end, because a request was not completed before it.
pub(crate) const NOT_COMPLETED: &str = "a posted request was not completed";

/// The timeout of a close has elapsed before the peer was disconnected.
pub(crate) const NOT_SENT: &str = "not all posted requests were completed";

/// The timeout of a close has elapsed after the peer was disconnected.
pub(crate) const NOT_CONFIRMED: &str =
    "all posted requests were completed, but the peer has not confirmed the end";

/// This side has ended an endpoint, possibly after the peer.
pub(crate) const ENDED_LOCALLY: &str = "this side has closed or aborted the connection or socket";

/// The peer or the network has ended a connection.
pub(crate) const ENDED_BY_PEER: &str = "the peer has ended the connection (on iWARP also: TCP has failed, or a device has refused a request)";

/// Returns the hint for a connection that has failed with an error of `kind`, if there is one.
pub(crate) fn of_failure(kind: &ErrorKind) -> Option<&'static str> {
    match kind {
        ErrorKind::WorkRequestFailed(ib_wc_status::IB_WC_REM_ACCESS_ERR) => Some(REFUSED_ACCESS),
        ErrorKind::UnreportedCause => Some(UNREPORTED),
        ErrorKind::ReceiveOverrun => Some(OVERRUN),
        _ => None,
    }
}
