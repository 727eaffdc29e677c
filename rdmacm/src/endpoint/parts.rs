//! What a connection is made of.

use std::collections::VecDeque;
use std::time::Duration;

use super::counters::Counters;
use super::keep_alive::KeepAlive;
use super::overrun::{Overrun, RESERVE};
use super::settings::Settings;
use super::trace::Trace;
use super::traffic::{Sent, Traffic};
use crate::cm::CmId;
use crate::device::{DriverId, Transport};
use crate::error::Result;
use crate::verbs::{
    Buffer, BufferQueues, CompletionChannel, CompletionQueue, ProtectionDomain, QpState,
    QueuePairAttributes, QueuePairInit, WcStatus,
};

/// The kernel's objects of a connection.
#[derive(Debug)]
pub(super) struct Parts {
    // First: it ends the connection, and holds the queue pair too.
    pub(super) id: CmId,
    pub(super) queues: BufferQueues,
    /// How long a call polls before it sleeps.
    pub(super) busy_poll: Duration,
}

/// How long a peer waits that has found no buffer, as a queue pair takes it: 0.64 ms.
const RNR_TIMER: u8 = 12;

impl Parts {
    /// Makes the kernel's objects for `id`, which has a device, and posts the receives.
    pub(super) fn new(id: CmId, settings: &Settings) -> Result<(Self, Traffic, CompletionChannel)> {
        settings.check()?;
        let context = id.context()?;
        let pd = ProtectionDomain::new(&context)?;
        let completions = CompletionChannel::new(&context)?;
        let is_iwarp = context.transport() == Transport::Iwarp;
        let reserve = if is_iwarp { RESERVE } else { 0 };
        let receives = settings.receive_buffers.saturating_add(reserve);
        // One each: who waits for a message is not to be woken by what was sent.
        let queue = |size| CompletionQueue::new(&context, size, Some(&completions));
        let (recv_cq, send_cq) = (queue(receives)?, queue(settings.sends())?);
        let init = QueuePairInit {
            caps: settings.caps(receives),
            send_cq: &send_cq,
            ..QueuePairInit::new(&recv_cq)
        };
        let mut queues = BufferQueues::new(id.create_qp(&pd, &init)?);
        let count = |number| usize::try_from(number).expect("32 bits fit");
        let sends = count(settings.send_buffers);
        let receives = count(receives);
        let (all, size) = (sends.saturating_add(receives), settings.buffer_size);
        let (mut free, keep_alive) = match settings.keep_alive {
            None => (Buffer::alloc(&pd, all, size)?, None),
            Some(every) => {
                let (free, one) = Buffer::alloc_and_one(&pd, all, size)?;
                (free, Some(KeepAlive::new(every, one)?))
            }
        };
        queues.reserve(all.saturating_add(usize::from(keep_alive.is_some())));
        for buffer in free.drain(sends..) {
            queues.receive(buffer)?;
        }
        free.shrink_to_fit();
        // Before anything can come: the descriptor of a connection tells of the first message too.
        recv_cq.request_notify(false)?;
        let traffic = Traffic {
            end: None,
            free,
            sends: (0..sends).map(|_| Sent::Unwanted).collect(),
            sending: 0,
            lost: None,
            receiving: receives,
            inbox: VecDeque::new(),
            overrun: is_iwarp.then(|| Overrun::new(receives)),
            keep_alive,
            counters: Counters::default(),
            trace: Trace::default(),
            ends_with_connection: is_iwarp,
            too_long: match context.device().driver() {
                Some(DriverId::RDMA_DRIVER_RXE) => WcStatus::IB_WC_LOC_QP_OP_ERR,
                _ => WcStatus::IB_WC_LOC_LEN_ERR,
            },
            // siw: TCP takes no more of it, or the stream was closed while the last of it was handed over. Nothing else
            // goes wrong like that with a buffer that is registered.
            overtaken: match context.device().driver() {
                Some(DriverId::RDMA_DRIVER_SIW) => WcStatus::IB_WC_LOC_QP_OP_ERR,
                _ => WcStatus::IB_WC_WR_FLUSH_ERR,
            },
            senders: None,
            is_broken: false,
            is_flushed: false,
            idle: Vec::new(),
        };
        let busy_poll = settings.busy_poll;
        Ok((Self { id, queues, busy_poll }, traffic, completions))
    }

    /// Has the queue pair of a socket for datagrams, of which nothing is posted, work again.
    pub(super) fn set_up_again(&self) -> Result<()> {
        let qp = self.queues.qp();
        qp.modify(&QueuePairAttributes::to(QpState::IB_QPS_RESET))?;
        qp.modify(&self.id.init_qp_attr(QpState::IB_QPS_INIT)?)?;
        qp.modify(&QueuePairAttributes::to(QpState::IB_QPS_RTR))?;
        qp.modify(&QueuePairAttributes::to(QpState::IB_QPS_RTS).sq_psn(0))
    }

    /// Whether the two sides have settled on reads and atomics of this side at all. rxe never comes to one of a
    /// queue pair that may have none outstanding; on iWARP the driver refuses it.
    pub(super) fn may_read(&self) -> Result<bool> {
        let qp = self.queues.qp();
        let is_for_the_driver = qp.pd().context().transport() == Transport::Iwarp;
        Ok(is_for_the_driver || qp.query()?.max_rd_atomic > 0)
    }

    /// Has the peer try again soon where a message of its finds no buffer: the connection manager
    /// says that it is to wait for 655 ms, the longest time there is.
    pub(super) fn hasten(&self) {
        let qp = self.queues.qp();
        if qp.pd().context().transport() != Transport::Iwarp {
            // Where that fails the connection has ended already, which is heard of otherwise.
            let _ = qp.modify(&QueuePairAttributes::default().min_rnr_timer(RNR_TIMER));
        }
    }
}
