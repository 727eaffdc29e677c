//! Requests of ucma for scenarios, and the parsing of the answers.

use std::mem::offset_of;
use std::net::IpAddr;

use nix::libc::{AF_INET, AF_INET6};
use ucma_abi::*;
use zerocopy::IntoBytes;

use super::super::bench::{Bench, u32_at, u64_at};
use super::super::check::CheckError;
use super::super::kernel::Outcome::Done;
use super::super::kernel::{Call, File, Target};

/// Length of the header in bytes.
const HEADER: usize = size_of::<rdma_ucm_cmd_hdr>();

/// Number of a nonexistent queue pair.
pub(super) const UNUSED_QPN: u32 = 0x1234;

/// Offset of the address of the response in most requests.
pub(super) const RESPONSE_AT_START: Option<usize> = Some(0);

/// Creates a write of a command's number and body.
pub(super) fn write(number: u32, body: &[u8], address: Option<usize>, room: usize) -> Call {
    let mut bytes = number.to_ne_bytes().to_vec();
    bytes.extend(u16::try_from(body.len()).expect("requests should be short").to_ne_bytes());
    bytes.extend(u16::try_from(room).expect("responses should be short").to_ne_bytes());
    bytes.extend(body);
    let call = Call::write(bytes);
    match address {
        Some(offset) => call.pointing(HEADER + offset, Target::Response),
        None => call,
    }
}

/// Creates a call of a request of the ABI crate, whose response address is at its start.
pub(super) fn from_command<C: Command>(request: &C) -> Call {
    let room = size_of::<C::Response>();
    let address = (room > 0).then_some(0);
    write(C::NUMBER, request.as_bytes(), address, room)
}

/// Makes the address of the response invalid.
pub(super) fn with_invalid_response(mut call: Call) -> Call {
    call.pointers.iter_mut().for_each(|(_, target)| *target = Target::Nowhere);
    call
}

pub(super) fn create(ps: u16, uid: u64) -> Call {
    let request = rdma_ucm_create_id {
        uid: uid.into(),
        response: 0.into(),
        ps,
        qp_type: 2,
        reserved: [0; 5],
    };
    let address = Some(offset_of!(rdma_ucm_create_id, response));
    write(RDMA_USER_CM_CMD_CREATE_ID, request.as_bytes(), address, 4)
}

pub(super) fn destroy(id: u32) -> Call {
    from_command(&rdma_ucm_destroy_id { response: 0.into(), id, reserved: 0 })
}

pub(super) fn migrate(id: u32, fd: u32) -> Call {
    from_command(&rdma_ucm_migrate_id { response: 0.into(), id, fd })
}

pub(super) fn get_event() -> Call {
    from_command(&rdma_ucm_get_event { response: 0.into() })
}

pub(super) fn query_addr(id: u32) -> Call {
    from_command(&rdma_ucm_query_addr::new(id))
}

/// Returns a socket address in its slot, and its length.
fn slot(address: &[u8]) -> ([u8; 128], u16) {
    let mut slot = [0; 128];
    slot[..address.len()].copy_from_slice(address);
    (slot, u16::try_from(address.len()).expect("socket addresses should be short"))
}

pub(super) fn bind(id: u32, address: &[u8]) -> Call {
    let (addr, addr_size) = slot(address);
    from_command(&rdma_ucm_bind { id, addr_size, reserved: 0, addr })
}

pub(super) fn resolve_addr(id: u32, address: &[u8]) -> Call {
    let (dst_addr, dst_size) = slot(address);
    let (src_addr, src_size) = slot(&[]);
    from_command(&rdma_ucm_resolve_addr {
        id,
        timeout_ms: 10_000,
        src_size,
        dst_size,
        reserved: 0,
        src_addr,
        dst_addr,
    })
}

pub(super) fn resolve_route(id: u32, timeout_ms: u32) -> Call {
    from_command(&rdma_ucm_resolve_route { id, timeout_ms })
}

pub(super) fn listen(id: u32, backlog: u32) -> Call {
    from_command(&rdma_ucm_listen { id, backlog })
}

pub(super) fn reject(id: u32, private_data: &[u8], length: u8) -> Call {
    let mut request = rdma_ucm_reject {
        id,
        private_data_len: length,
        reason: 0,
        reserved: [0; 2],
        private_data: [0; 256],
    };
    request.private_data[..private_data.len()].copy_from_slice(private_data);
    from_command(&request)
}

/// Returns parameters of CONNECT and ACCEPT with this length of private data.
fn parameters(qp_num: u32, private_data: u8) -> rdma_ucm_conn_param {
    rdma_ucm_conn_param {
        qp_num,
        qkey: 0,
        private_data: [7; 256],
        private_data_len: private_data,
        srq: 0,
        responder_resources: 0,
        initiator_depth: 0,
        flow_control: 0,
        retry_count: 7,
        rnr_retry_count: 7,
        valid: 1,
    }
}

/// Creates a CONNECT with this queue pair number and this length of private data.
pub(super) fn connect(id: u32, qp_num: u32, private_data: u8) -> Call {
    let conn_param = parameters(qp_num, private_data);
    from_command(&rdma_ucm_connect { conn_param, id, reserved: 0, ece: rdma_ucm_ece::default() })
}

/// Creates an ACCEPT.
///
/// With `qp_num` it accepts a request, and assigns the uid to the new id; without, it accepts a response, and keeps the
/// uid.
pub(super) fn accept(id: u32, uid: u64, qp_num: Option<u32>) -> Call {
    let valid = u8::from(qp_num.is_some());
    let conn_param = rdma_ucm_conn_param { valid, ..parameters(qp_num.unwrap_or(0), 0) };
    let ece = rdma_ucm_ece::default();
    from_command(&rdma_ucm_accept { uid: uid.into(), conn_param, id, reserved: 0, ece })
}

pub(super) fn disconnect(id: u32) -> Call {
    from_command(&rdma_ucm_disconnect { id })
}

pub(super) fn notify(id: u32, event: u32) -> Call {
    from_command(&rdma_ucm_notify { id, event })
}

pub(super) fn init_qp_attr(id: u32, qp_state: u32) -> Call {
    from_command(&rdma_ucm_init_qp_attr { response: 0.into(), id, qp_state })
}

/// Returns a socket address of IPv4 or IPv6 in the slot of the older commands.
fn old_slot(address: &[u8]) -> [u8; 28] {
    let mut slot = [0; 28];
    slot[..address.len()].copy_from_slice(address);
    slot
}

pub(super) fn bind_ip(id: u32, address: &[u8]) -> Call {
    from_command(&rdma_ucm_bind_ip { response: 0.into(), addr: old_slot(address), id })
}

pub(super) fn resolve_ip(id: u32, address: &[u8]) -> Call {
    let (src_addr, dst_addr) = (old_slot(&[]), old_slot(address));
    from_command(&rdma_ucm_resolve_ip { src_addr, dst_addr, id, timeout_ms: 10_000 })
}

pub(super) fn join_ip(id: u32, uid: u64, group: &[u8]) -> Call {
    let addr = old_slot(group);
    from_command(&rdma_ucm_join_ip_mcast { response: 0.into(), uid: uid.into(), addr, id })
}

/// Creates a SET_OPTION with this value and this length, which may differ from the value's.
pub(super) fn set_option(id: u32, level: u32, optname: u32, value: &[u8], optlen: u32) -> Call {
    let request = rdma_ucm_set_option { optval: 0.into(), id, level, optname, optlen };
    let call = from_command(&request).pointing(HEADER, Target::Data);
    Call { data: value.to_vec(), ..call }
}

pub(super) fn join(id: u32, uid: u64, group: &[u8]) -> Call {
    let (addr, addr_size) = slot(group);
    from_command(&rdma_ucm_join_mcast {
        response: 0.into(),
        uid: uid.into(),
        id,
        addr_size,
        join_flags: RDMA_MC_JOIN_FLAG_FULLMEMBER,
        addr,
    })
}

pub(super) fn leave(group: u32) -> Call {
    let request = rdma_ucm_destroy_id { response: 0.into(), id: group, reserved: 0 };
    write(RDMA_USER_CM_CMD_LEAVE_MCAST, request.as_bytes(), RESPONSE_AT_START, 4)
}

/// Returns a socket address with port 0.
pub(in super::super) fn sockaddr(ip: IpAddr) -> Vec<u8> {
    let mut bytes = Vec::new();
    match ip {
        IpAddr::V4(ip) => {
            bytes.extend(u16::try_from(AF_INET).expect("AF_INET should be 2").to_ne_bytes());
            bytes.extend([0; 2]);
            bytes.extend(ip.octets());
            bytes.resize(16, 0);
        }
        IpAddr::V6(ip) => {
            bytes.extend(u16::try_from(AF_INET6).expect("AF_INET6 should be 10").to_ne_bytes());
            bytes.extend([0; 6]);
            bytes.extend(ip.octets());
            bytes.resize(28, 0);
        }
    }
    bytes
}

/// Returns `address` with the port of `bound`.
pub(super) fn with_port_of(address: &[u8], bound: &Addresses) -> Vec<u8> {
    let mut address = address.to_vec();
    address[2..4].copy_from_slice(&bound.source[2..4]);
    address
}

/// The answer of QUERY for addresses.
#[derive(Debug)]
pub(super) struct Addresses {
    pub(super) node_guid: u64,
    pub(super) port_num: u8,
    pub(super) source: Vec<u8>,
}

/// The answer of GET_EVENT.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Event {
    pub(super) uid: u64,
    pub(super) id: u32,
    pub(super) event: rdma_cm_event_type,
    pub(super) status: u32,
}

/// Common steps of scenarios.
impl Bench<'_> {
    pub(super) fn create(&mut self, channel: File, ps: u16, uid: u64) -> Result<u32, CheckError> {
        Ok(u32_at(&self.expect("CREATE_ID", channel, &create(ps, uid), Done(4))?, 0))
    }

    /// Destroys an id, and returns the number of its received events.
    pub(super) fn destroy(&mut self, channel: File, id: u32) -> Result<u32, CheckError> {
        Ok(u32_at(&self.expect("DESTROY_ID", channel, &destroy(id), Done(4))?, 0))
    }

    pub(super) fn addresses(&mut self, channel: File, id: u32) -> Result<Addresses, CheckError> {
        let size = size_of::<rdma_ucm_query_addr_resp>();
        let answer = self.expect("QUERY", channel, &query_addr(id), Done(size))?;
        let source = offset_of!(rdma_ucm_query_addr_resp, src_addr);
        Ok(Addresses {
            node_guid: u64_at(&answer, offset_of!(rdma_ucm_query_addr_resp, node_guid)),
            port_num: answer[offset_of!(rdma_ucm_query_addr_resp, port_num)],
            source: answer[source..source + 28].to_vec(),
        })
    }

    /// Waits for an event and receives it. Returns the parsed event, and all of its bytes.
    pub(super) fn event(&mut self, channel: File) -> Result<(Event, Vec<u8>), CheckError> {
        self.wait("GET_EVENT", channel)?;
        let size = size_of::<rdma_ucm_event_resp>();
        let answer = self.expect("GET_EVENT", channel, &get_event(), Done(size))?;
        let event = Event {
            uid: u64_at(&answer, offset_of!(rdma_ucm_event_resp, uid)),
            id: u32_at(&answer, offset_of!(rdma_ucm_event_resp, id)),
            event: rdma_cm_event_type(u32_at(&answer, offset_of!(rdma_ucm_event_resp, event))),
            status: u32_at(&answer, offset_of!(rdma_ucm_event_resp, status)),
        };
        Ok((event, answer))
    }
}
