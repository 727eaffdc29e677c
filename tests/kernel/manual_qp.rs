//! Queue pairs of the RoCE device whose states the test changes without the connection manager.

use std::net::{Ipv4Addr, Ipv6Addr};

use rdmacm::verbs::{
    AccessFlags, Mtu, QpState, QpType, QueuePair, QueuePairAttributes as Attributes,
};
use rdmacm::verbs_abi::ib_uverbs_ah_attr;

use crate::fixtures::{channel, device, id, roce, roce_ip, roce_name};
use crate::io::{Io, Shape};

/// The access that peers have.
pub(crate) const ACCESS: AccessFlags = AccessFlags::IB_UVERBS_ACCESS_REMOTE_WRITE
    .union(AccessFlags::IB_UVERBS_ACCESS_REMOTE_READ)
    .union(AccessFlags::IB_UVERBS_ACCESS_REMOTE_ATOMIC);

/// The Q_Key of every queue pair for datagrams.
pub(crate) const QKEY: u32 = 0x1357;

/// Returns a queue pair in the state RESET, with the objects for moving data.
pub(crate) fn io(qp_type: QpType, shape: Shape) -> Io {
    let channel = channel();
    let id = id(&channel);
    id.bind(roce(0)).expect("bind");
    Io::with(&id, shape, |pd, init| QueuePair::with_type(pd, qp_type, init))
}

/// Returns the number of the first packet that a queue pair sends.
pub(crate) fn first_packet(qp: &QueuePair) -> u32 {
    0x10_0000 + qp.number()
}

pub(crate) fn modify(qp: &QueuePair, attributes: Attributes) {
    qp.modify(&attributes).expect("modify");
}

/// Returns the address of the RoCE device itself.
pub(crate) fn address() -> ib_uverbs_ah_attr {
    let port = device(roce_name()).port(1).expect("a port");
    let dgid = roce_ip().parse::<Ipv4Addr>().expect("an address").to_ipv6_mapped();
    let mut gids = port.gids().expect("GIDs");
    let gid = gids
        .find(|entry| Ipv6Addr::from(entry.gid) == dgid)
        .expect("the port should have the address");
    let mut address = ib_uverbs_ah_attr { is_global: 1, port_num: 1, ..Default::default() };
    address.grh.dgid = dgid.octets();
    address.grh.sgid_index = u8::try_from(gid.index).expect("the index should fit");
    address.grh.hop_limit = 64;
    address
}

/// Moves `qp` to RTS, with `peer` on the other side.
pub(crate) fn connect(qp: &QueuePair, peer: &QueuePair) {
    let reliable = qp.qp_type() == QpType::IB_UVERBS_QPT_RC;
    let init = Attributes::to(QpState::IB_QPS_INIT);
    modify(qp, init.pkey_index(0).port(1).access(ACCESS));
    let receive = Attributes::to(QpState::IB_QPS_RTR)
        .address(address())
        .path_mtu(Mtu::IB_MTU_1024)
        .dest_qp_num(peer.number())
        .rq_psn(first_packet(peer));
    let reliably = |receive: Attributes| receive.max_dest_rd_atomic(3).min_rnr_timer(12);
    modify(qp, if reliable { reliably(receive) } else { receive });
    let send = Attributes::to(QpState::IB_QPS_RTS).sq_psn(first_packet(qp));
    let reliably = |send: Attributes| send.timeout(14).retry_cnt(5).rnr_retry(6);
    modify(qp, if reliable { reliably(send).max_rd_atomic(2) } else { send });
}

/// Returns two queue pairs of connections that are connected to each other.
pub(crate) fn connected(qp_type: QpType, shape: Shape) -> [Io; 2] {
    let [one, other] = [io(qp_type, shape), io(qp_type, shape)];
    connect(one.qp(), other.qp());
    connect(other.qp(), one.qp());
    [one, other]
}

/// Returns a queue pair for datagrams, in the state RTS.
pub(crate) fn datagrams(shape: Shape) -> Io {
    let io = io(QpType::IB_UVERBS_QPT_UD, shape);
    let init = Attributes::to(QpState::IB_QPS_INIT);
    modify(io.qp(), init.pkey_index(0).port(1).qkey(QKEY));
    modify(io.qp(), Attributes::to(QpState::IB_QPS_RTR));
    modify(io.qp(), Attributes::to(QpState::IB_QPS_RTS).sq_psn(0));
    io
}
