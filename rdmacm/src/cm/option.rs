//! Options of an id, set with SET_OPTION.

use nix::errno::Errno;
use ucma_abi::{
    RDMA_OPTION_IB, RDMA_OPTION_IB_PATH, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT,
    RDMA_OPTION_ID_AFONLY, RDMA_OPTION_ID_REUSEADDR, RDMA_OPTION_ID_TOS, rdma_ucm_set_option,
};
use verbs_abi::{AlignedU64, ib_path_rec_data};
use zerocopy::IntoBytes;

use super::id::CmId;
use super::parse::EventType;
use super::record::Inner;
use super::route::PathRecord;
#[cfg(doc)]
use super::route::Route;
use crate::error::{Error, ErrorKind, Result};
use crate::sys::command::CommandError;
use crate::verbs::QpType;

/// Maximum ACK timeout: five bits.
const MAX_ACK_TIMEOUT: u8 = 31;

impl CmId {
    /// Sets the type of service.
    ///
    /// The active side sets it before the route is resolved; later it has no effect. Its meaning depends on the
    /// transport:
    ///
    /// - On RoCE it is the traffic class of the packets in both directions, and determines the service level by the
    ///   mapping of the system.
    /// - On InfiniBand it is the class of service of the requested path.
    /// - On iWARP it is the TOS of TCP, if the driver supports that (siw does not).
    ///
    /// # Errors
    ///
    /// - [`ErrorKind::DeviceRemoved`] if the device was removed.
    /// - [`ErrorKind::NotOwner`] if the process forked or changed its credentials.
    ///
    /// Kernel command: `RDMA_USER_CM_CMD_SET_OPTION` with `RDMA_OPTION_ID_TOS`.
    #[doc(alias = "rdma_set_option")]
    #[doc(alias = "RDMA_OPTION_ID_TOS")]
    pub fn set_tos(&self, tos: u8) -> Result<()> {
        self.set_option("set the type of service of", ID_TOS, &[tos])
    }

    /// Lets other ids bind to the address of this id, if all set this option and none listens.
    ///
    /// Set the option before binding. An id that listens has the address exclusively.
    ///
    /// # Errors
    ///
    /// - EINVAL on an id that listens, and for `false` on a bound id.
    ///
    /// Kernel command: `RDMA_USER_CM_CMD_SET_OPTION` with `RDMA_OPTION_ID_REUSEADDR`.
    #[doc(alias = "rdma_set_option")]
    #[doc(alias = "RDMA_OPTION_ID_REUSEADDR")]
    pub fn set_reuseaddr(&self, reuse: bool) -> Result<()> {
        self.set_option("set the reuse of the address of", ID_REUSEADDR, &int(reuse))
    }

    /// Restricts an id that is bound to the wildcard address of IPv6 to IPv6.
    ///
    /// `IPV6_V6ONLY` does this to a socket. The default is the sysctl `net.ipv6.bindv6only`. Set the option before
    /// binding.
    ///
    /// # Errors
    ///
    /// - EINVAL on an id that is past binding.
    ///
    /// Kernel command: `RDMA_USER_CM_CMD_SET_OPTION` with `RDMA_OPTION_ID_AFONLY`.
    #[doc(alias = "rdma_set_option")]
    #[doc(alias = "RDMA_OPTION_ID_AFONLY")]
    pub fn set_afonly(&self, only: bool) -> Result<()> {
        self.set_option("restrict to one address family", ID_AFONLY, &int(only))
    }

    /// Sets how long the queue pair waits for an acknowledgment.
    ///
    /// The time is 4.096 us times two to the power of `timeout`, which is 0 to 31; 0 means unlimited. Set the option
    /// before [`connect`](Self::connect) or [`accept`](Self::accept). It applies to this side only. On RoCE it
    /// determines the packet lifetime of a route that is resolved later.
    ///
    /// # Errors
    ///
    /// - [`ErrorKind::InvalidInput`] for a timeout of more than five bits, and if the id's queue pairs are neither RC
    ///   nor XRC_INI.
    /// - [`ErrorKind::Unsupported`] before Linux 5.1.
    ///
    /// Kernel command: `RDMA_USER_CM_CMD_SET_OPTION` with `RDMA_OPTION_ID_ACK_TIMEOUT` (Linux 5.1).
    #[doc(alias = "rdma_set_option")]
    #[doc(alias = "RDMA_OPTION_ID_ACK_TIMEOUT")]
    pub fn set_ack_timeout(&self, timeout: u8) -> Result<()> {
        const OPERATION: &str = "set the ACK timeout of";
        let invalid = |reason| Err(Error::invalid(OPERATION, self.inner.to_string(), reason));
        if timeout > MAX_ACK_TIMEOUT {
            return invalid(format!(
                "ack_timeout {timeout} exceeds the maximum of {MAX_ACK_TIMEOUT}"
            ));
        }
        let qp_type = self.qp_type();
        if !matches!(qp_type, QpType::IB_UVERBS_QPT_RC | QpType::IB_UVERBS_QPT_XRC_INI) {
            return invalid(format!("queue pairs of type {qp_type} have no ACK timeout"));
        }
        self.set_option(OPERATION, ID_ACK_TIMEOUT, &[timeout])
    }

    /// Sets the path of the id; this replaces [`resolve_route`](Self::resolve_route).
    ///
    /// `RouteResolved` follows. The kernel uses the first path whose flags are [`PathRecord::FLAGS`]. A [`PathRecord`],
    /// for example one of [`Route::paths`], converts into such a path. On RoCE the kernel adds the link-layer
    /// addresses.
    ///
    /// # Errors
    ///
    /// - [`ErrorKind::InvalidInput`] if no path has the flags.
    /// - EINVAL before `AddrResolved` and after `RouteResolved`.
    ///
    /// Kernel command: `RDMA_USER_CM_CMD_SET_OPTION` with `RDMA_OPTION_IB_PATH`.
    #[doc(alias = "rdma_set_option")]
    #[doc(alias = "RDMA_OPTION_IB_PATH")]
    #[doc(alias = "ibv_path_data")]
    pub fn set_ib_path(&self, paths: &[ib_path_rec_data]) -> Result<()> {
        const OPERATION: &str = "set the path of";
        if !paths.iter().any(|path| path.flags == PathRecord::FLAGS) {
            let reason = "no path has the flags `PathRecord::FLAGS`";
            return Err(Error::invalid(OPERATION, self.inner.to_string(), reason));
        }
        let set = || self.set_option(OPERATION, IB_PATH, paths.as_bytes());
        self.inner.start_and_wait(EventType::RouteResolved, set)
    }

    fn set_option(&self, operation: &'static str, option: Name, value: &[u8]) -> Result<()> {
        let request = rdma_ucm_set_option {
            optval: AlignedU64::default(),
            id: self.inner.handle,
            level: option.level,
            optname: option.name,
            optlen: 0,
        };
        let set = self.inner.run(|file| file.set_option(request, value));
        set.map_err(|refused| self.inner.option_refused(operation, refused))
    }
}

impl Inner {
    /// Returns the error of setting an option for `operation`.
    fn option_refused(&self, operation: &'static str, refused: CommandError) -> Error {
        match refused {
            // The kernel does not know the option. All other options are older than the oldest supported kernel.
            CommandError::Os(Errno::ENOSYS) => {
                let kind = ErrorKind::Unsupported("the ACK timeout needs Linux 5.1".into());
                Error::new(operation, self.to_string(), kind)
            }
            refused => Self::refused(operation, self.to_string(), refused),
        }
    }
}

/// The level and the name of an option.
#[derive(Debug, Clone, Copy)]
struct Name {
    level: u32,
    name: u32,
}

const ID_TOS: Name = Name { level: RDMA_OPTION_ID, name: RDMA_OPTION_ID_TOS };
const ID_REUSEADDR: Name = Name { level: RDMA_OPTION_ID, name: RDMA_OPTION_ID_REUSEADDR };
const ID_AFONLY: Name = Name { level: RDMA_OPTION_ID, name: RDMA_OPTION_ID_AFONLY };
const ID_ACK_TIMEOUT: Name = Name { level: RDMA_OPTION_ID, name: RDMA_OPTION_ID_ACK_TIMEOUT };
const IB_PATH: Name = Name { level: RDMA_OPTION_IB, name: RDMA_OPTION_IB_PATH };

/// Converts a flag into a C `int`.
fn int(value: bool) -> [u8; 4] {
    i32::from(value).to_ne_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cm::PortSpace;
    use crate::cm::id::tests::{fake_channel, fake_id};

    #[test]
    fn unknown_option_is_unsupported() {
        let (channel, _kernel) = fake_channel();
        let id = fake_id(&channel, PortSpace::Tcp);
        let refused = |errno| id.option_refused("set", CommandError::Os(errno));
        let unknown = refused(Errno::ENOSYS);
        assert!(matches!(unknown.kind(), ErrorKind::Unsupported(_)), "{unknown}");
        assert!(unknown.to_string().ends_with("needs Linux 5.1"), "{unknown}");
        assert!(matches!(refused(Errno::ENXIO).kind(), ErrorKind::DeviceRemoved(_)));
        assert_eq!(refused(Errno::EINVAL).errno(), libc::EINVAL);
    }
}
