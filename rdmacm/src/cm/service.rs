//! The commands of Linux 6.18: events of the program, and services of the subnet administrator.

use nix::errno::Errno;
use ucma_abi::{
    Command, RDMA_USER_CM_IB_SERVICE_NAME_SIZE, rdma_cm_event_type, rdma_ucm_ib_service,
    rdma_ucm_ib_service_flags, rdma_ucm_query_ib_service, rdma_ucm_resolve_ib_service,
    rdma_ucm_write_cm_event,
};
use verbs_abi::{AlignedU64, ib_user_service_rec};

use super::id::CmId;
#[cfg(doc)]
use super::lookup::getaddrinfo;
use super::names;
use super::parse::EventType;
use super::record::Inner;
use super::resolution::Resolution;
use crate::addr::port_space::PortSpace;
use crate::addr::{self, AddrInfo, AddrInfoFlags, AddrInfoHints, IbAddress};
use crate::device::Gid;
use crate::error::{Error, ErrorKind, Result};
use crate::sys::command::CommandError;

impl CmId {
    /// Writes a `User` event with `status` and `argument` into the channel of the id.
    ///
    /// The event wakes the threads that wait for the channel.
    ///
    /// # Errors
    ///
    /// - [`ErrorKind::Unsupported`] on an older kernel.
    /// - EINVAL for a request that is not accepted yet, because it has no events.
    /// - [`ErrorKind::NotOwner`] if the process forked or changed its credentials.
    ///
    /// Kernel command: `RDMA_USER_CM_CMD_WRITE_CM_EVENT` (Linux 6.18).
    #[doc(alias = "rdma_write_cm_event")]
    #[doc(alias = "RDMA_CM_EVENT_USER")]
    pub fn write_event(&self, status: i32, argument: u64) -> Result<()> {
        let event = rdma_cm_event_type::RDMA_CM_EVENT_USER;
        self.inner.write_event("write an event of", event, status, argument)
    }

    /// Starts to look up a node and a service, like [`getaddrinfo`], and reports the outcome by an event.
    ///
    /// `AddrinfoResolved` or `AddrinfoError` follows. After `AddrinfoResolved`,
    /// [`query_addrinfo`](Self::query_addrinfo) returns the result. The id can be used for another lookup only after
    /// that call.
    ///
    /// With [`AddrInfoFlags::SA`] the kernel asks the subnet administrator for the service, by its id (a number) or its
    /// name. The id must be bound to an InfiniBand port. Otherwise the call itself runs the host's `getaddrinfo`, which
    /// may take long, and then writes the event.
    ///
    /// # Errors
    ///
    /// In addition to the errors of [`getaddrinfo`]:
    ///
    /// - [`ErrorKind::Unsupported`] on an older kernel, and for a lookup of a node at the subnet administrator.
    /// - EBUSY while the result of another lookup is not queried.
    /// - EINVAL for SA on an id that is not bound to a device.
    /// - EOPNOTSUPP for SA if the port has no subnet administrator.
    ///
    /// Kernel command: `RDMA_USER_CM_CMD_RESOLVE_IB_SERVICE` (Linux 6.18) with SA, otherwise
    /// `RDMA_USER_CM_CMD_WRITE_CM_EVENT` (Linux 6.18).
    #[doc(alias = "rdma_resolve_addrinfo")]
    pub fn resolve_addrinfo(
        &self,
        node: Option<&str>,
        service: Option<&str>,
        hints: Option<&AddrInfoHints>,
    ) -> Result<()> {
        const OPERATION: &str = "resolve the address information for";
        let flags = hints.map(|hints| hints.flags).unwrap_or_default();
        let by_administrator = flags.contains(AddrInfoFlags::SA);
        let start = match by_administrator {
            true => Resolution::Pending,
            false => Resolution::Answered(names::resolve(node, service, hints)?),
        };
        self.inner.start_and_wait(EventType::AddrinfoResolved, || {
            self.inner.begin_resolution(OPERATION, start)?;
            let started = match by_administrator {
                true => self.inner.resolve_ib_service(OPERATION, node, service, flags),
                false => {
                    let event = rdma_cm_event_type::RDMA_CM_EVENT_INTERNAL;
                    let meaning = rdma_cm_event_type::RDMA_CM_EVENT_ADDRINFO_RESOLVED.0;
                    self.inner.write_event(OPERATION, event, 0, meaning.into())
                }
            };
            if started.is_err() {
                self.inner.state().resolution = Resolution::None;
            }
            started
        })
    }

    /// Returns the results of [`resolve_addrinfo`](Self::resolve_addrinfo), once.
    ///
    /// The call sends no command: the kernel was queried when the event arrived.
    ///
    /// # Errors
    ///
    /// - ENOENT if no lookup has finished, or if its result was returned already.
    #[doc(alias = "rdma_query_addrinfo")]
    pub fn query_addrinfo(&self) -> Result<Vec<AddrInfo>> {
        const OPERATION: &str = "query the address information of";
        self.inner.check_process(OPERATION)?;
        let mut state = self.inner.state();
        match std::mem::take(&mut state.resolution) {
            Resolution::Answered(found) => Ok(found),
            other => {
                state.resolution = other;
                let subject = self.inner.to_string();
                Err(Error::os(OPERATION, subject, Errno::ENOENT))
            }
        }
    }

    /// Returns the service records that [`resolve_addrinfo`](Self::resolve_addrinfo) requested, up to 64.
    ///
    /// # Errors
    ///
    /// - [`ErrorKind::Unsupported`] on an older kernel.
    /// - ENODATA if no service was resolved.
    ///
    /// Kernel command: `RDMA_USER_CM_CMD_QUERY` (IB_SERVICE, Linux 6.18).
    #[doc(alias = "RDMA_USER_CM_QUERY_IB_SERVICE")]
    pub fn ib_services(&self) -> Result<Vec<ib_user_service_rec>> {
        self.inner.ib_services()
    }
}

impl Inner {
    /// Reads the services with which the subnet administrator has answered.
    ///
    /// Returns the event type and status that the caller of the channel gets.
    pub(super) fn read_services(&self) -> (EventType, i32) {
        match self.ib_services() {
            Ok(services) if !services.is_empty() => {
                let found = services.iter().map(service_info).collect();
                self.state().resolution = Resolution::Answered(found);
                (EventType::AddrinfoResolved, 0)
            }
            empty => {
                self.state().resolution = Resolution::None;
                let errno = empty.map_or_else(|error| error.errno(), |_| Errno::ENOENT as i32);
                (EventType::AddrinfoError, -errno)
            }
        }
    }

    fn begin_resolution(&self, operation: &'static str, start: Resolution) -> Result<()> {
        self.check_process(operation)?;
        let mut state = self.state();
        if !matches!(state.resolution, Resolution::None) {
            return Err(Error::os(operation, self.to_string(), Errno::EBUSY));
        }
        state.resolution = start;
        Ok(())
    }

    fn resolve_ib_service(
        &self,
        operation: &'static str,
        node: Option<&str>,
        service: Option<&str>,
        flags: AddrInfoFlags,
    ) -> Result<()> {
        let subject = || self.to_string();
        check_administrator(operation, subject, node, flags)?;
        let ibs = service.and_then(wanted_service);
        let Some(ibs) = ibs else {
            let reason = "the service must be an id or a name of 1 to 63 bytes";
            return Err(Error::invalid(operation, subject(), reason));
        };
        let request = rdma_ucm_resolve_ib_service { id: self.handle, reserved: 0, ibs };
        self.command_of_6_18(operation, request)
    }

    fn write_event(
        &self,
        operation: &'static str,
        event: rdma_cm_event_type,
        status: i32,
        argument: u64,
    ) -> Result<()> {
        // The header declares the field as unsigned, but a status is signed.
        let status = u32::from_ne_bytes(status.to_ne_bytes());
        let request = rdma_ucm_write_cm_event::new(self.handle, event, status, argument);
        self.command_of_6_18(operation, request)
    }

    fn ib_services(&self) -> Result<Vec<ib_user_service_rec>> {
        const OPERATION: &str = "query the services of";
        let request = rdma_ucm_query_ib_service::new(self.handle);
        let answer = self.send(request).map_err(|refused| match refused {
            // The kernel does not know this query.
            CommandError::Os(Errno::ENOSYS) => {
                too_old("RDMA_USER_CM_QUERY_IB_SERVICE", OPERATION, self.to_string())
            }
            refused => Self::refused(OPERATION, self.to_string(), refused),
        });
        Ok(answer?.services().to_vec())
    }

    /// Sends a command that was added in Linux 6.18.
    fn command_of_6_18<C: Command>(
        &self,
        operation: &'static str,
        request: C,
    ) -> Result<C::Response> {
        self.send(request).map_err(|refused| match refused {
            CommandError::Os(Errno::EINVAL) if !self.has_commands_of_6_18() => {
                too_old(C::NAME, operation, self.to_string())
            }
            refused => Self::refused(operation, self.to_string(), refused),
        })
    }

    /// Returns `true` if the kernel knows the commands of Linux 6.18.
    ///
    /// The kernel answers EINVAL to an unknown command, and ENOENT to a known one for an unknown id.
    fn has_commands_of_6_18(&self) -> bool {
        let event = rdma_cm_event_type::RDMA_CM_EVENT_USER;
        let unknown = rdma_ucm_write_cm_event::new(u32::MAX, event, 0, 0);
        self.send(unknown) == Err(CommandError::Os(Errno::ENOENT))
    }
}

fn too_old(command: &str, operation: &'static str, subject: String) -> Error {
    let kind = ErrorKind::Unsupported(format!("{command} needs Linux 6.18").into());
    Error::new(operation, subject, kind)
}

/// Refuses lookups that the subnet administrator does not support.
pub(super) fn check_administrator(
    operation: &'static str,
    subject: impl FnOnce() -> String,
    node: Option<&str>,
    flags: AddrInfoFlags,
) -> Result<()> {
    let unsupported = match (node, flags.contains(AddrInfoFlags::DNS)) {
        (Some(_), _) => "the subnet administrator looks up services, not nodes",
        (None, true) => "the flags SA and DNS exclude each other",
        (None, false) => return Ok(()),
    };
    Err(Error::new(operation, subject(), ErrorKind::Unsupported(unsupported.into())))
}

/// Parses the id or the name of a service.
///
/// A number (decimal, octal after 0, hexadecimal after 0x) is an id. Any other text is a name, which must fit into the
/// field.
fn wanted_service(text: &str) -> Option<rdma_ucm_ib_service> {
    let number = match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(digits) => u64::from_str_radix(digits, 16),
        None if text.starts_with('0') => u64::from_str_radix(text, 8),
        None => text.parse(),
    };
    let mut service = rdma_ucm_ib_service {
        service_id: AlignedU64::default(),
        service_name: [0; RDMA_USER_CM_IB_SERVICE_NAME_SIZE],
        flags: rdma_ucm_ib_service_flags::RDMA_USER_CM_IB_SERVICE_FLAG_ID,
        reserved: 0,
    };
    let plain = text.starts_with(|first: char| first.is_ascii_digit());
    match number {
        Ok(id) if plain => service.service_id = id.into(),
        _ => {
            let fits = 1..RDMA_USER_CM_IB_SERVICE_NAME_SIZE;
            if !fits.contains(&text.len()) || text.contains('\0') {
                return None;
            }
            service.flags = rdma_ucm_ib_service_flags::RDMA_USER_CM_IB_SERVICE_FLAG_NAME;
            service.service_name[..text.len()].copy_from_slice(text.as_bytes());
        }
    }
    Some(service)
}

/// Returns the address of a service, and the parameters to reach it.
pub(super) fn service_info(record: &ib_user_service_rec) -> AddrInfo {
    let mut peer = IbAddress::new(Gid(record.gid), PortSpace::Ib, 0);
    peer.pkey = record.pkey.get();
    peer.service_id = record.id.get();
    peer.service_id_mask = u64::MAX;
    let mut info = AddrInfo::new(PortSpace::Ib.qp_types()[0], Some(PortSpace::Ib));
    info.flags = AddrInfoFlags::SA;
    info.family = Some(addr::AddressFamily::Ib);
    info.dst_addr = Some(peer.into());
    info
}

#[cfg(test)]
mod tests;
