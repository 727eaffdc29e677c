//! The queue pairs of a script: creation, states and connection.

use rdmacm::verbs::{
    AccessFlags, BufferedQueuePair, Mtu, QpState, QpType, QueuePair, QueuePairAttributes,
    QueuePairCaps, QueuePairInit, XrcTarget,
};

use super::words::number;
use super::{Run, at};

pub(super) const QKEY: u32 = 0x1357;
const PSN: u32 = 0x100;

/// A queue pair.
pub(super) enum Qp {
    WithQueues(QueuePair),
    Buffered(Box<BufferedQueuePair>),
    Target(XrcTarget),
}

impl Qp {
    pub(super) fn number(&self) -> u32 {
        match self {
            Self::WithQueues(qp) => qp.number(),
            Self::Buffered(queues) => queues.qp().number(),
            Self::Target(target) => target.number(),
        }
    }

    pub(super) fn qp_type(&self) -> QpType {
        match self {
            Self::WithQueues(qp) => qp.qp_type(),
            Self::Buffered(queues) => queues.qp().qp_type(),
            Self::Target(_) => QpType::IB_UVERBS_QPT_XRC_TGT,
        }
    }

    pub(super) fn modify(&self, attributes: QueuePairAttributes) {
        match self {
            Self::WithQueues(qp) => qp.modify(&attributes),
            Self::Buffered(queues) => queues.qp().modify(&attributes),
            Self::Target(target) => target.modify(&attributes),
        }
        .expect("modify");
    }

    pub(super) fn destroy(self) {
        match self {
            Self::WithQueues(qp) => qp.destroy().expect("destroy"),
            Self::Buffered(queues) => {
                let qp = queues.qp().clone();
                drop(queues);
                qp.destroy().expect("destroy");
            }
            Self::Target(target) => target.unregister().expect("destroy"),
        }
    }
}

impl Run {
    pub(super) fn try_qp(&mut self, qp_type: &str, cq: usize, caps: &[&str]) {
        let caps = capacities(caps);
        let init = QueuePairInit { caps, ..QueuePairInit::new(at(&self.cqs, cq)) };
        let line = match QueuePair::with_type(self.pd(), qp_type_of(qp_type), &init) {
            Ok(qp) => {
                qp.destroy().expect("destroy");
                "created".to_owned()
            }
            Err(error) => format!("refused {}", error.errno()),
        };
        self.print(&line);
    }

    pub(super) fn create_qp(&mut self, qp_type: &str, rest: &[&str]) {
        let &[send_cq, recv_cq, srq, ref caps @ .., signaled] = rest else {
            panic!("a queue pair has nine properties: {rest:?}");
        };
        let caps = capacities(caps);
        let send_cq = at(&self.cqs, number(send_cq));
        let init = QueuePairInit {
            recv_cq: at(&self.cqs, number(recv_cq)),
            srq: (srq != "-").then(|| at(&self.srqs, number(srq))),
            caps,
            signal_all: signaled == "all",
            ..QueuePairInit::new(send_cq)
        };
        let qp = QueuePair::with_type(self.pd(), qp_type_of(qp_type), &init).expect("qp");
        let caps = qp.caps();
        let line = format!(
            "qp {} {} {} {} {}",
            caps.max_send_wr,
            caps.max_recv_wr,
            caps.max_send_sge,
            caps.max_recv_sge,
            caps.max_inline_data
        );
        self.print(&line);
        self.qps.push(Some(Qp::WithQueues(qp)));
    }

    pub(super) fn connect(&self, qp: &Qp, peer: &Qp) {
        to_init(qp);
        let receive = QueuePairAttributes::to(QpState::IB_QPS_RTR)
            .address(self.address_of_device())
            .path_mtu(Mtu::IB_MTU_1024)
            .dest_qp_num(peer.number())
            .rq_psn(PSN);
        let send = QueuePairAttributes::to(QpState::IB_QPS_RTS).sq_psn(PSN);
        let (receive, send) = match qp.qp_type() {
            QpType::IB_UVERBS_QPT_RC => (
                receive.max_dest_rd_atomic(3).min_rnr_timer(12),
                send.timeout(14).retry_cnt(5).rnr_retry(6).max_rd_atomic(2),
            ),
            QpType::IB_UVERBS_QPT_XRC_INI => {
                (receive, send.timeout(14).retry_cnt(5).rnr_retry(6).max_rd_atomic(2))
            }
            QpType::IB_UVERBS_QPT_XRC_TGT => {
                (receive.max_dest_rd_atomic(3).min_rnr_timer(12), send.timeout(14))
            }
            _ => (receive, send),
        };
        qp.modify(receive);
        qp.modify(send);
    }

    pub(super) fn qp_of(&self, qp_num: u32) -> i64 {
        let has = |qp: &Option<Qp>| qp.as_ref().is_some_and(|qp| qp.number() == qp_num);
        self.qps.iter().position(has).map_or(-1, |at| i64::try_from(at).expect("a small number"))
    }
}

fn to_init(qp: &Qp) {
    let init = QueuePairAttributes::to(QpState::IB_QPS_INIT).pkey_index(0).port(1);
    let write = AccessFlags::IB_UVERBS_ACCESS_REMOTE_WRITE;
    let rest =
        AccessFlags::IB_UVERBS_ACCESS_REMOTE_READ | AccessFlags::IB_UVERBS_ACCESS_REMOTE_ATOMIC;
    let init = match qp.qp_type() {
        QpType::IB_UVERBS_QPT_UD => init.qkey(QKEY),
        QpType::IB_UVERBS_QPT_UC => init.access(write),
        _ => init.access(write | rest),
    };
    qp.modify(init);
}

pub(super) fn to_datagrams(qp: &Qp) {
    to_init(qp);
    qp.modify(QueuePairAttributes::to(QpState::IB_QPS_RTR));
    qp.modify(QueuePairAttributes::to(QpState::IB_QPS_RTS).sq_psn(PSN));
}

/// Reads the numbers of requests, the numbers of scatter/gather entries, and the length of inline data.
fn capacities(words: &[&str]) -> QueuePairCaps {
    let &[sends, receives, send_sge, recv_sge, inline] = words else {
        panic!("there are five capacities: {words:?}");
    };
    QueuePairCaps {
        max_send_wr: number(sends),
        max_recv_wr: number(receives),
        max_send_sge: number(send_sge),
        max_recv_sge: number(recv_sge),
        max_inline_data: number(inline),
        ..QueuePairCaps::default()
    }
}

fn qp_type_of(name: &str) -> QpType {
    match name {
        "rc" => QpType::IB_UVERBS_QPT_RC,
        "uc" => QpType::IB_UVERBS_QPT_UC,
        "initiator" => QpType::IB_UVERBS_QPT_XRC_INI,
        _ => QpType::IB_UVERBS_QPT_UD,
    }
}
