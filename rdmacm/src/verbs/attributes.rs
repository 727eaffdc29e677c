//! Queue pair attributes ([`QueuePairAttributes`]), and the commands that carry them.

use std::ops::Deref;

use verbs_abi::{
    AlignedU64, ib_mig_state, ib_mtu, ib_qp_attr_mask as Mask, ib_uverbs_ah_attr,
    ib_uverbs_modify_qp, ib_uverbs_qp_attr, ib_uverbs_qp_dest, ib_uverbs_query_qp,
};

#[cfg(doc)]
use super::QueuePair;
use super::{AccessFlags, QpState};
use crate::engine::QpChange;

/// A set of queue pair attributes to change with [`QueuePair::modify`].
///
/// Each method sets one attribute and selects it in the mask. The attributes that a state
/// transition requires depend on the type of the queue pair. The connection manager supplies all of
/// them for the queue pairs of its ids.
///
/// # Examples
///
/// This function connects a queue pair without the connection manager. `number` is the peer's queue
/// pair number.
///
/// ```no_run
/// # use rdmacm::verbs::{AccessFlags, Mtu, QpState, QueuePair, QueuePairAttributes};
/// # fn connect(
/// #     qp: &QueuePair, number: u32, address: rdmacm::verbs_abi::ib_uverbs_ah_attr,
/// # ) -> rdmacm::Result<()> {
/// let init = QueuePairAttributes::to(QpState::IB_QPS_INIT);
/// qp.modify(&init.pkey_index(0).port(1).access(AccessFlags::empty()))?;
/// let receive = QueuePairAttributes::to(QpState::IB_QPS_RTR).address(address).dest_qp_num(number);
/// let receive = receive.path_mtu(Mtu::IB_MTU_1024).rq_psn(0);
/// qp.modify(&receive.max_dest_rd_atomic(1).min_rnr_timer(12))?;
/// let send = QueuePairAttributes::to(QpState::IB_QPS_RTS).sq_psn(0).max_rd_atomic(1);
/// qp.modify(&send.timeout(14).retry_cnt(7).rnr_retry(7))
/// # }
/// ```
#[doc(alias = "ibv_qp_attr")]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[must_use = "attributes take effect only in `QueuePair::modify`"]
pub struct QueuePairAttributes {
    attributes: ib_uverbs_qp_attr,
    /// Maximum send rate in kbit/s, for which the connection manager's attributes have no field.
    rate_limit: Option<u32>,
}

impl QueuePairAttributes {
    /// Returns attributes that change the state to `state`.
    #[doc(alias = "IBV_QP_STATE")]
    pub fn to(state: QpState) -> Self {
        Self::default().with(Mask::IB_QP_STATE, |with| with.qp_state = state.0.into())
    }

    /// Sets the required current state.
    ///
    /// The change is refused if the queue pair is in another state.
    #[doc(alias = "IBV_QP_CUR_STATE")]
    pub fn from_state(self, state: QpState) -> Self {
        self.with(Mask::IB_QP_CUR_STATE, |with| with.cur_qp_state = state.0.into())
    }

    /// Enables or disables the asynchronous event for a drained send queue, on the way to SQD.
    #[doc(alias = "IBV_QP_EN_SQD_ASYNC_NOTIFY")]
    pub fn en_sqd_async_notify(self, notify: bool) -> Self {
        let notify = u8::from(notify);
        self.with(Mask::IB_QP_EN_SQD_ASYNC_NOTIFY, |with| with.en_sqd_async_notify = notify)
    }

    /// Sets the operations that the peer may perform.
    #[doc(alias = "IBV_QP_ACCESS_FLAGS")]
    pub fn access(self, access: AccessFlags) -> Self {
        self.with(Mask::IB_QP_ACCESS_FLAGS, |with| with.qp_access_flags = access.bits())
    }

    /// Sets the index of the partition key in the port's table.
    #[doc(alias = "IBV_QP_PKEY_INDEX")]
    pub fn pkey_index(self, index: u16) -> Self {
        self.with(Mask::IB_QP_PKEY_INDEX, |with| with.pkey_index = index)
    }

    /// Sets the port of the device, counted from 1.
    #[doc(alias = "IBV_QP_PORT")]
    pub fn port(self, port: u8) -> Self {
        self.with(Mask::IB_QP_PORT, |with| with.port_num = port)
    }

    /// Sets the Q_Key that datagrams to the queue pair must carry.
    #[doc(alias = "IBV_QP_QKEY")]
    pub fn qkey(self, qkey: u32) -> Self {
        self.with(Mask::IB_QP_QKEY, |with| with.qkey = qkey)
    }

    /// Sets the peer's address.
    #[doc(alias = "IBV_QP_AV")]
    pub fn address(self, address: ib_uverbs_ah_attr) -> Self {
        self.with(Mask::IB_QP_AV, |with| with.ah_attr = address)
    }

    /// Sets the maximum payload of a packet on the path.
    #[doc(alias = "IBV_QP_PATH_MTU")]
    pub fn path_mtu(self, mtu: ib_mtu) -> Self {
        self.with(Mask::IB_QP_PATH_MTU, |with| with.path_mtu = mtu.0.into())
    }

    /// Sets the time after which an unacknowledged packet is repeated, as an exponent.
    ///
    /// `exponent` is 0 to 31. The time is 4.096 µs times two to the power of `exponent`; 0 means an
    /// infinite time.
    #[doc(alias = "IBV_QP_TIMEOUT")]
    pub fn timeout(self, exponent: u8) -> Self {
        self.with(Mask::IB_QP_TIMEOUT, |with| with.timeout = exponent)
    }

    /// Sets the number of times that a packet without an answer is repeated, 0 to 7.
    #[doc(alias = "IBV_QP_RETRY_CNT")]
    pub fn retry_cnt(self, count: u8) -> Self {
        self.with(Mask::IB_QP_RETRY_CNT, |with| with.retry_cnt = count)
    }

    /// Sets the number of times that a message is repeated if the peer has no receive posted, 0 to
    /// 6.
    ///
    /// 7 means no limit.
    #[doc(alias = "IBV_QP_RNR_RETRY")]
    pub fn rnr_retry(self, count: u8) -> Self {
        self.with(Mask::IB_QP_RNR_RETRY, |with| with.rnr_retry = count)
    }

    /// Sets the first packet sequence number to expect, which has 24 bits.
    ///
    /// It must be the peer's [`sq_psn`](Self::sq_psn).
    #[doc(alias = "IBV_QP_RQ_PSN")]
    pub fn rq_psn(self, number: u32) -> Self {
        self.with(Mask::IB_QP_RQ_PSN, |with| with.rq_psn = number)
    }

    /// Sets the first packet sequence number to send, which has 24 bits.
    #[doc(alias = "IBV_QP_SQ_PSN")]
    pub fn sq_psn(self, number: u32) -> Self {
        self.with(Mask::IB_QP_SQ_PSN, |with| with.sq_psn = number)
    }

    /// Sets the number of RDMA reads and atomics that the queue pair may have outstanding.
    #[doc(alias = "IBV_QP_MAX_QP_RD_ATOMIC")]
    pub fn max_rd_atomic(self, depth: u8) -> Self {
        self.with(Mask::IB_QP_MAX_QP_RD_ATOMIC, |with| with.max_rd_atomic = depth)
    }

    /// Sets the number of RDMA reads and atomics that the peer may have outstanding here.
    #[doc(alias = "IBV_QP_MAX_DEST_RD_ATOMIC")]
    pub fn max_dest_rd_atomic(self, depth: u8) -> Self {
        self.with(Mask::IB_QP_MAX_DEST_RD_ATOMIC, |with| with.max_dest_rd_atomic = depth)
    }

    /// Sets the time that a peer waits after it found no receive posted.
    ///
    /// `timer` is 0 to 31 and has the encoding of the InfiniBand specification. For example, 1
    /// means 0.01 ms, 12 means 0.64 ms, 18 means 5.12 ms, 31 means 491.52 ms, and 0 means 655.36
    /// ms.
    #[doc(alias = "IBV_QP_MIN_RNR_TIMER")]
    pub fn min_rnr_timer(self, timer: u8) -> Self {
        self.with(Mask::IB_QP_MIN_RNR_TIMER, |with| with.min_rnr_timer = timer)
    }

    /// Sets the number of the peer's queue pair, which has 24 bits.
    #[doc(alias = "IBV_QP_DEST_QPN")]
    pub fn dest_qp_num(self, number: u32) -> Self {
        self.with(Mask::IB_QP_DEST_QPN, |with| with.dest_qp_num = number)
    }

    /// Sets an alternate path to the peer.
    ///
    /// The path consists of an address, the index of a partition key and a
    /// [`timeout`](Self::timeout). Its port is the port of the address.
    #[doc(alias = "IBV_QP_ALT_PATH")]
    pub fn alternate(self, address: ib_uverbs_ah_attr, pkey_index: u16, timeout: u8) -> Self {
        self.with(Mask::IB_QP_ALT_PATH, |with| {
            with.alt_ah_attr = address;
            with.alt_port_num = address.port_num;
            with.alt_pkey_index = pkey_index;
            with.alt_timeout = timeout;
        })
    }

    /// Sets the migration state of the alternate path.
    #[doc(alias = "IBV_QP_PATH_MIG_STATE")]
    pub fn path_mig_state(self, state: ib_mig_state) -> Self {
        self.with(Mask::IB_QP_PATH_MIG_STATE, |with| with.path_mig_state = state.0.into())
    }

    /// Sets the maximum send rate in kbit/s; 0 means no limit.
    ///
    /// # Driver notes
    ///
    /// Only drivers that pace packets support this attribute. rxe and siw do not.
    #[doc(alias = "IBV_QP_RATE_LIMIT")]
    #[doc(alias = "ibv_modify_qp_rate_limit")]
    pub fn rate_limit(mut self, kbit_per_second: u32) -> Self {
        self.rate_limit = Some(kbit_per_second);
        self
    }

    /// Returns the new state, or `None` if the state does not change.
    pub(super) fn step(&self) -> Option<QpState> {
        let steps = self.qp_attr_mask & Mask::IB_QP_STATE.bits() != 0;
        steps.then(|| QpState(byte(self.qp_state)))
    }

    /// Returns the depths of this side and of the peer, as far as they are set.
    pub(super) fn depths(&self) -> [Option<u8>; 2] {
        let mask = Mask::from_bits_retain(self.attributes.qp_attr_mask);
        [
            (Mask::IB_QP_MAX_QP_RD_ATOMIC, self.attributes.max_rd_atomic),
            (Mask::IB_QP_MAX_DEST_RD_ATOMIC, self.attributes.max_dest_rd_atomic),
        ]
        .map(|(flag, depth)| mask.contains(flag).then_some(depth))
    }

    fn with(mut self, mask: Mask, set: impl FnOnce(&mut ib_uverbs_qp_attr)) -> Self {
        self.attributes.qp_attr_mask |= mask.bits();
        set(&mut self.attributes);
        self
    }
}

impl Deref for QueuePairAttributes {
    type Target = ib_uverbs_qp_attr;

    /// Returns the attributes in the connection manager's format, which has no field for a rate
    /// limit.
    fn deref(&self) -> &ib_uverbs_qp_attr {
        &self.attributes
    }
}

impl From<ib_uverbs_qp_attr> for QueuePairAttributes {
    /// Converts attributes that the connection manager reported.
    ///
    /// Four bits of the mask are cleared. The connection manager of old kernels sets them for RoCE,
    /// and only kernel callers may use them.
    fn from(mut attributes: ib_uverbs_qp_attr) -> Self {
        attributes.qp_attr_mask &= !ROCE_ATTRIBUTES;
        Self { attributes, rate_limit: None }
    }
}

/// The attributes that the plain MODIFY_QP and QUERY_QP support: up to `IB_QP_DEST_QPN`.
const PLAIN_ATTRIBUTES: u32 = (Mask::IB_QP_DEST_QPN.bits() << 1) - 1;

/// `IB_QP_SMAC`, `IB_QP_ALT_SMAC`, `IB_QP_VID` and `IB_QP_ALT_VID` of kernels before Linux 4.4.
const ROCE_ATTRIBUTES: u32 = 0xf << 21;

/// Returns the change of the attributes of the queue pair with `handle`.
pub(super) fn change(handle: u32, attributes: &QueuePairAttributes) -> QpChange {
    QpChange { base: modification(handle, attributes), rate_limit: attributes.rate_limit }
}

/// Returns the command that changes the queue pair with `handle`.
pub(super) fn modification(handle: u32, attributes: &ib_uverbs_qp_attr) -> ib_uverbs_modify_qp {
    let state = QpState(byte(attributes.qp_state));
    let mask = Mask::from_bits_retain(attributes.qp_attr_mask);
    ib_uverbs_modify_qp {
        dest: destination(&attributes.ah_attr),
        alt_dest: destination(&attributes.alt_ah_attr),
        qp_handle: handle,
        attr_mask: mask,
        qkey: attributes.qkey,
        rq_psn: attributes.rq_psn,
        sq_psn: attributes.sq_psn,
        dest_qp_num: attributes.dest_qp_num,
        qp_access_flags: AccessFlags::from_bits_retain(attributes.qp_access_flags),
        pkey_index: attributes.pkey_index,
        alt_pkey_index: attributes.alt_pkey_index,
        qp_state: state,
        cur_qp_state: QpState(byte(attributes.cur_qp_state)),
        path_mtu: ib_mtu(byte(attributes.path_mtu)),
        path_mig_state: ib_mig_state(byte(attributes.path_mig_state)),
        en_sqd_async_notify: attributes.en_sqd_async_notify,
        max_rd_atomic: attributes.max_rd_atomic,
        max_dest_rd_atomic: attributes.max_dest_rd_atomic,
        min_rnr_timer: attributes.min_rnr_timer,
        port_num: attributes.port_num,
        timeout: attributes.timeout,
        retry_cnt: attributes.retry_cnt,
        rnr_retry: attributes.rnr_retry,
        alt_port_num: attributes.alt_port_num,
        alt_timeout: attributes.alt_timeout,
        reserved: [0; 2],
    }
}

/// Returns the command that queries all attributes of the queue pair with `handle`.
pub(super) fn query(handle: u32) -> ib_uverbs_query_qp {
    ib_uverbs_query_qp {
        response: AlignedU64::default(),
        qp_handle: handle,
        attr_mask: Mask::from_bits_retain(PLAIN_ATTRIBUTES),
    }
}

/// Converts an attribute that the connection manager reports in 32 bits and MODIFY_QP takes in 8.
fn byte(attribute: u32) -> u8 {
    u8::try_from(attribute).unwrap_or(u8::MAX)
}

/// Converts an address to the format of MODIFY_QP.
fn destination(address: &ib_uverbs_ah_attr) -> ib_uverbs_qp_dest {
    ib_uverbs_qp_dest {
        dgid: address.grh.dgid,
        flow_label: address.grh.flow_label,
        dlid: address.dlid,
        reserved: 0,
        sgid_index: address.grh.sgid_index,
        hop_limit: address.grh.hop_limit,
        traffic_class: address.grh.traffic_class,
        sl: address.sl,
        src_path_bits: address.src_path_bits,
        static_rate: address.static_rate,
        is_global: address.is_global,
        port_num: address.port_num,
    }
}

#[cfg(test)]
mod tests;
