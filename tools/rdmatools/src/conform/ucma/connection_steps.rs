//! Steps that checks of ids with a device share: from creating ids to requests and rejections.

use nix::libc::{EAGAIN, ECONNRESET};
use ucma_abi::RDMA_PS_TCP;
use ucma_abi::rdma_cm_event_type as Type;

use super::super::bench::{Bench, check_equal};
use super::super::check::{CheckError, Driver};
use super::super::kernel::File;
use super::super::kernel::Outcome::{Done, Errno};
use super::request::{self, Event, UNUSED_QPN, with_port_of};

pub(super) type Steps = Result<(), CheckError>;

/// A value that no other id has.
pub(super) const UID: u64 = 0x0123_4567_89ab_cdef;

impl Bench<'_> {
    /// Returns `true` if connections of the device use iWARP.
    ///
    /// Other devices, including those of RoCE, use InfiniBand's protocol.
    pub(super) fn is_iwarp(&self) -> Result<bool, CheckError> {
        match self.machine.driver {
            // The steps over iWARP differ; a card may have InfiniBand ports, whose steps are those of Ethernet ones.
            Driver::Rxe | Driver::Mlx5 => Ok(false),
            Driver::Siw => Ok(true),
            Driver::Other => {
                Err(CheckError::Skip("the transport of this device is not known".into()))
            }
        }
    }

    /// Skips the check if the transport has no datagrams.
    pub(super) fn has_datagrams(&self) -> Steps {
        if self.is_iwarp()? {
            return Err(CheckError::Skip("iWARP has no datagrams".into()));
        }
        Ok(())
    }

    /// Returns a queue pair number for CONNECT.
    ///
    /// iWARP's connection manager needs an existing queue pair, InfiniBand's accepts an unused number.
    pub(super) fn qp_number_for_connect(&mut self) -> Result<u32, CheckError> {
        if self.is_iwarp()? { self.qp_number() } else { Ok(UNUSED_QPN) }
    }

    /// Checks that the client with uid 2 is rejected. Returns the bytes of the event.
    pub(super) fn expect_rejected(
        &mut self,
        active: File,
        client: u32,
    ) -> Result<Vec<u8>, CheckError> {
        let (seen, bytes) = self.event(active)?;
        // The status is InfiniBand's reason "consumer defined", or a negative errno.
        let status =
            if self.is_iwarp()? { 0_u32.wrapping_sub(ECONNRESET.unsigned_abs()) } else { 28 };
        let event = Type::RDMA_CM_EVENT_REJECTED;
        check_equal("the event", seen, Event { uid: 2, id: client, event, status })?;
        Ok(bytes)
    }

    pub(super) fn expect_no_event(&mut self, channel: File) -> Steps {
        let call = request::get_event();
        self.expect("GET_EVENT", channel, &call, Errno(EAGAIN)).map(drop)
    }

    /// Creates an id that resolves an address: its event is not received.
    pub(super) fn create_resolving(
        &mut self,
        channel: File,
        ps: u16,
        uid: u64,
        to: &[u8],
    ) -> Result<u32, CheckError> {
        let id = self.create(channel, ps, uid)?;
        self.expect("RESOLVE_ADDR", channel, &request::resolve_addr(id, to), Done(0))?;
        Ok(id)
    }

    /// Receives an event that must have these properties.
    pub(super) fn expect_event(&mut self, channel: File, uid: u64, id: u32, event: Type) -> Steps {
        let (seen, _) = self.event(channel)?;
        check_equal("the event", seen, Event { uid, id, event, status: 0 })
    }

    /// Creates an id that is ready to connect to `to`.
    pub(super) fn create_resolved(
        &mut self,
        channel: File,
        ps: u16,
        uid: u64,
        to: &[u8],
    ) -> Result<u32, CheckError> {
        let id = self.create_resolving(channel, ps, uid, to)?;
        self.expect_event(channel, uid, id, Type::RDMA_CM_EVENT_ADDR_RESOLVED)?;
        self.expect("RESOLVE_ROUTE", channel, &request::resolve_route(id, 10_000), Done(0))?;
        self.expect_event(channel, uid, id, Type::RDMA_CM_EVENT_ROUTE_RESOLVED)?;
        Ok(id)
    }

    /// Creates a listener on a port chosen by the kernel, and returns its address.
    pub(super) fn listener(
        &mut self,
        channel: File,
        ps: u16,
        backlog: u32,
    ) -> Result<(u32, Vec<u8>), CheckError> {
        let address = self.address()?;
        let id = self.create(channel, ps, UID)?;
        self.expect("BIND", channel, &request::bind(id, &address), Done(0))?;
        self.expect("LISTEN", channel, &request::listen(id, backlog), Done(0))?;
        let bound = self.addresses(channel, id)?;
        check_equal("the port of the device", bound.port_num, 1)?;
        Ok((id, with_port_of(&address, &bound)))
    }

    /// Creates a listener and a client whose request is pending.
    ///
    /// The listener is on the passive channel, the client on the active one.
    pub(super) fn pending_request(
        &mut self,
        passive: File,
        active: File,
    ) -> Result<(u32, u32), CheckError> {
        let qp_num = self.qp_number_for_connect()?;
        self.request_with_qp(passive, active, qp_num)
    }

    /// Creates a listener and a pending request for this queue pair.
    pub(super) fn request_with_qp(
        &mut self,
        passive: File,
        active: File,
        qp_num: u32,
    ) -> Result<(u32, u32), CheckError> {
        let (listener, to) = self.listener(passive, RDMA_PS_TCP, 8)?;
        let client = self.create_resolved(active, RDMA_PS_TCP, 2, &to)?;
        self.expect("CONNECT", active, &request::connect(client, qp_num, 56), Done(0))?;
        self.wait("the request", passive)?;
        Ok((listener, client))
    }
}

/// Receives the pending request with this length of private data. Returns the new id.
pub(super) fn take_request(
    bench: &mut Bench<'_>,
    passive: File,
    listener: u32,
    private_data: u8,
) -> Result<u32, CheckError> {
    let (event, bytes) = bench.event(passive)?;
    check_equal("the uid", event.uid, UID)?;
    check_equal("the event", event.event, Type::RDMA_CM_EVENT_CONNECT_REQUEST)?;
    check_equal("whether the new handle equals the listener's", event.id == listener, false)?;
    // The parameters contain the private data and its length.
    let length = usize::from(private_data);
    check_equal("the private data", &bytes[28..28 + length], &vec![7; length][..])?;
    check_equal("its length", bytes[20 + 264], private_data)?;
    Ok(event.id)
}
