//! The kernel objects of an endpoint, and the work queues that its core uses.

use std::sync::Arc;
use std::time::Duration;

use super::datagram_peer::{PeerCache, Sender};
use super::timer::Timer;
use crate::cm::CmId;
use crate::device::Transport;
use crate::endpoint::connection_config::ConnectionConfig;
use crate::endpoint::core::{
    ArmAction, Core, Datagrams, Messages, NotPosted, Outgoing, Protocol, Queue, QueueIo,
    RESERVED_RECEIVES, RecoveryAction, STALE_EVENTS, Slot,
};
use crate::error::Result;
use crate::verbs::{
    BufferedQueuePair, Completion, CompletionChannel, CompletionQueue, PostBufferError, QpState,
    QueuePair, QueuePairAttributes, QueuePairInit, RegisteredBuffer,
};

/// The kernel objects of an endpoint.
#[derive(Debug)]
pub(in crate::endpoint) struct KernelObjects {
    // Declared first: dropping the id ends the connection, and the id holds the queue pair too. Threads that issue
    // commands on the id while the state is unlocked share it, and an abort waits for those threads: see `Shared`.
    pub(in crate::endpoint) id: Arc<CmId>,
    pub(in crate::endpoint) queues: BufferedQueuePair,
    pub(in crate::endpoint) completions: CompletionChannel,
    /// The senders of datagrams.
    pub(in crate::endpoint) senders: Option<Box<PeerCache>>,
    /// The length of each buffer for sending in bytes.
    pub(in crate::endpoint) send_buffer_size: usize,
    /// The time for which a call polls before it sleeps.
    pub(in crate::endpoint) busy_poll: Duration,
}

/// A new endpoint, whose receives are posted.
#[derive(Debug)]
pub(in crate::endpoint) struct NewEndpoint {
    pub(in crate::endpoint) objects: KernelObjects,
    pub(in crate::endpoint) core: Core<RegisteredBuffer, Sender>,
    /// The timer of its keep-alive writes.
    pub(in crate::endpoint) timer: Option<Timer>,
}

/// The encoded wait of a peer whose message has found no buffer: 0.64 ms.
const RNR_TIMER: u8 = 12;

impl NewEndpoint {
    /// Creates the kernel objects for `id`, which has a device, and posts the receives.
    pub(in crate::endpoint) fn create(
        id: CmId,
        config: &ConnectionConfig,
        is_connection: bool,
    ) -> Result<Self> {
        config.check()?;
        let context = id.context()?;
        let pd = config.pd(&context)?;
        let completions = CompletionChannel::new(&context)?;
        completions.set_nonblocking(true)?;
        let is_iwarp = context.transport() == Transport::Iwarp;
        let reserved = if is_iwarp { RESERVED_RECEIVES } else { 0 };
        let receives = config.receive_buffers.saturating_add(reserved);
        // Each direction has a queue, so that completions of sends do not wake a caller that waits for a message.
        let queue = |size| CompletionQueue::new(&context, size, Some(&completions));
        let (recv_cq, send_cq) = (queue(receives)?, queue(config.sends())?);
        let init = QueuePairInit {
            caps: config.caps(receives),
            send_cq: &send_cq,
            ..QueuePairInit::new(&recv_cq)
        };
        let mut queues = BufferedQueuePair::new(id.create_qp(&pd, &init)?)?;
        queues.defer_commands();
        let count = |number| usize::try_from(number).expect("32 bits fit");
        let sends = count(config.send_buffers);
        let receives = count(receives);
        let groups = [(sends, config.send_buffer_size), (receives, config.receive_buffer_size)];
        // The region has one more small buffer for keep-alive writes, which would need a separate page otherwise.
        let mut free = RegisteredBuffer::alloc_groups(
            &pd,
            groups,
            config.keep_alive_interval.is_some().into(),
        )?;
        queues.reserve(free.len());
        let (keep_alive, timer) = match config.keep_alive_interval {
            None => (None, None),
            Some(interval) => {
                (free.pop(), Some(Timer::new(interval, "the keep-alive timer of a connection")?))
            }
        };
        for buffer in free.drain(sends..) {
            queues.post_recv(buffer)?;
        }
        free.shrink_to_fit();
        // Armed before any message can arrive: the descriptor of a connection reports the first one too.
        recv_cq.request_notify(false)?;
        let capabilities = *context.driver_capabilities();
        let protocol = match is_connection {
            true => Protocol::Messages(Messages::new(
                is_iwarp,
                receives,
                capabilities.oversize_status,
                capabilities.disconnect_status,
                keep_alive,
            )),
            false => Protocol::Datagrams(Datagrams::default()),
        };
        let mut core = Core::new(free, receives, protocol);
        core.read_events_first(capabilities.raises_event_per_read);
        let objects = KernelObjects {
            id: Arc::new(id),
            queues,
            completions,
            senders: None,
            send_buffer_size: config.send_buffer_size,
            busy_poll: config.busy_poll,
        };
        Ok(Self { objects, core, timer })
    }
}

/// The numbers of reads and atomics that may be outstanding.
#[derive(Debug, Clone, Copy)]
pub(in crate::endpoint) struct Depths {
    /// Maximum number of reads and atomics of this side in flight.
    pub(in crate::endpoint) initiator: u8,
    /// Maximum number of reads and atomics of the peer in flight.
    pub(in crate::endpoint) responder: u8,
}

impl KernelObjects {
    /// Returns the negotiated depths, or `None` on iWARP, because siw does not report them.
    pub(in crate::endpoint) fn depths(&self) -> Option<Depths> {
        let qp = self.queues.qp();
        let [initiator, responder] = qp.depths();
        let is_known = qp.pd().context().transport() != Transport::Iwarp;
        is_known.then_some(Depths { initiator, responder })
    }

    /// Makes the peer try again soon when one of its messages finds no buffer.
    pub(in crate::endpoint) fn set_min_rnr_timer(&self) {
        set_min_rnr_timer(self.queues.qp());
    }
}

/// Sets a short wait of the peer of `qp` after a message that finds no buffer.
///
/// The connection manager sets 655 ms, the longest possible wait.
pub(in crate::endpoint) fn set_min_rnr_timer(qp: &QueuePair) {
    if qp.pd().context().transport() != Transport::Iwarp {
        // If that fails, the connection has already ended, and another call reports its end.
        let _ = qp.modify(&QueuePairAttributes::default().min_rnr_timer(RNR_TIMER));
    }
}

/// The commands of an [`ArmAction`], with shares of the objects that they are for.
#[derive(Debug)]
pub(in crate::endpoint) enum ArmCommands {
    DiscardEvents(CompletionChannel),
    Arm([Option<CompletionQueue>; 2]),
}

impl ArmCommands {
    pub(in crate::endpoint) fn new(action: ArmAction, objects: &KernelObjects) -> Self {
        let qp = objects.queues.qp();
        match action {
            ArmAction::DiscardEvents => Self::DiscardEvents(objects.completions.clone()),
            ArmAction::Arm { receives, sends } => Self::Arm([
                receives.then(|| qp.recv_cq().clone()),
                sends.then(|| qp.send_cq().clone()),
            ]),
        }
    }

    /// Issues the commands. The shares are dropped.
    pub(in crate::endpoint) fn issue(self) -> Result<()> {
        match self {
            Self::DiscardEvents(channel) => channel.drop_events::<STALE_EVENTS>(),
            Self::Arm(queues) => {
                queues.into_iter().flatten().try_for_each(|queue| queue.request_notify(false))
            }
        }
    }
}

/// The commands of a [`RecoveryAction`], with shares of the objects that they are for.
#[derive(Debug)]
pub(in crate::endpoint) struct RecoveryCommands {
    action: RecoveryAction,
    qp: QueuePair,
    id: Arc<CmId>,
}

impl RecoveryCommands {
    pub(in crate::endpoint) fn new(action: RecoveryAction, objects: &KernelObjects) -> Self {
        Self { action, qp: objects.queues.qp().clone(), id: Arc::clone(&objects.id) }
    }

    /// Issues the commands. The shares are dropped.
    pub(in crate::endpoint) fn issue(self) -> Result<()> {
        let Self { action, qp, id } = self;
        match action {
            RecoveryAction::SetToError => qp.modify(&QueuePairAttributes::to(QpState::IB_QPS_ERR)),
            RecoveryAction::ResetToRts => {
                qp.modify(&QueuePairAttributes::to(QpState::IB_QPS_RESET))?;
                qp.modify(&id.init_qp_attr(QpState::IB_QPS_INIT)?)?;
                qp.modify(&QueuePairAttributes::to(QpState::IB_QPS_RTR))?;
                qp.modify(&QueuePairAttributes::to(QpState::IB_QPS_RTS).sq_psn(0))
            }
        }
    }
}

impl Slot for RegisteredBuffer {
    fn index(&self) -> usize {
        self.index()
    }

    fn bytes(&mut self) -> &mut [u8] {
        self
    }
}

impl From<PostBufferError> for NotPosted<RegisteredBuffer> {
    fn from(refused: PostBufferError) -> Self {
        Self { buffer: refused.buffer, error: refused.error }
    }
}

impl QueueIo for KernelObjects {
    type Buffer = RegisteredBuffer;
    type Sender = Sender;

    #[inline(always)]
    fn post_send(
        &mut self,
        buffer: RegisteredBuffer,
        length: usize,
        outgoing: Outgoing<'_>,
    ) -> Result<(), NotPosted<RegisteredBuffer>> {
        let posted = match outgoing {
            Outgoing::Operation(operation) => self.queues.post_send(buffer, length, operation),
            Outgoing::Datagram { address, qp_num, qkey, imm_data } => {
                self.queues.post_send_to(buffer, length, address, qp_num, qkey, imm_data)
            }
            Outgoing::Bind(request) => self.queues.bind_window(buffer, request),
        };
        Ok(posted?)
    }

    #[inline(always)]
    fn post_recv(&mut self, buffer: RegisteredBuffer) -> Result<(), NotPosted<RegisteredBuffer>> {
        Ok(self.queues.post_recv(buffer)?)
    }

    #[inline(always)]
    fn poll(
        &mut self,
        queue: Queue,
        mut each: impl FnMut(RegisteredBuffer, Option<Sender>, &Completion),
    ) -> Result<usize> {
        let Self { queues, senders, .. } = self;
        match queue {
            Queue::Receive => queues.poll_recv(|buffer, completion| {
                let sender = match senders {
                    Some(senders) if completion.is_success() => {
                        buffer.first_chunk().and_then(|header| senders.of(completion, header))
                    }
                    _ => None,
                };
                each(buffer, sender, completion);
            }),
            Queue::Send => queues.poll_send(|buffer, completion| each(buffer, None, completion)),
        }
    }

    fn outstanding(&self) -> usize {
        self.queues.outstanding()
    }
}
