//! The kernel objects of an endpoint, and the work queues that its core uses.

use std::sync::Arc;
use std::time::Duration;

use super::core::{
    ArmAction, Core, Datagrams, Messages, NotPosted, Outgoing, Protocol, Queue, QueueIo,
    RESERVED_RECEIVES, RecoveryAction, STALE_EVENTS, Slot,
};
use super::peer::{Sender, Senders};
use super::settings::Settings;
use super::timer::Timer;
use crate::cm::CmId;
use crate::device::Transport;
use crate::error::Result;
use crate::lock;
use crate::verbs::{
    Buffer, BufferQueues, BufferRefused, Completion, CompletionChannel, CompletionQueue, QpState,
    QueuePair, QueuePairAttributes, QueuePairInit,
};

/// The kernel objects of an endpoint.
#[derive(Debug)]
pub(super) struct KernelObjects {
    // Declared first: dropping the id ends the connection, and the id holds the queue pair too. Threads that issue commands
    // on it while the state is unlocked share it, and an abort waits for them: see `Shared`.
    pub(super) id: Arc<CmId>,
    pub(super) queues: BufferQueues,
    pub(super) completions: CompletionChannel,
    /// The senders of datagrams.
    pub(super) senders: Option<Box<Senders>>,
    /// The length of each buffer for sending in bytes.
    pub(super) send_buffer_size: usize,
    /// The time for which a call polls before it sleeps.
    pub(super) busy_poll: Duration,
}

/// A new endpoint, whose receives are posted.
#[derive(Debug)]
pub(super) struct NewEndpoint {
    pub(super) objects: KernelObjects,
    pub(super) core: Core<Buffer, Sender>,
    /// The timer of its keep-alive writes.
    pub(super) timer: Option<Timer>,
}

/// The time for which a peer waits whose message has found no buffer, as a queue pair takes it: 0.64 ms.
const RNR_TIMER: u8 = 12;

impl NewEndpoint {
    /// Creates the kernel objects for `id`, which has a device, and posts the receives.
    pub(super) fn create(id: CmId, settings: &Settings, is_connection: bool) -> Result<Self> {
        settings.check()?;
        let context = id.context()?;
        let pd = settings.pd(&context)?;
        let completions = CompletionChannel::new(&context)?;
        completions.set_nonblocking(true)?;
        let is_iwarp = context.transport() == Transport::Iwarp;
        let reserved = if is_iwarp { RESERVED_RECEIVES } else { 0 };
        let receives = settings.receive_buffers.saturating_add(reserved);
        // One for each direction: a caller that waits for a message is not to be woken by completions of sends.
        let queue = |size| CompletionQueue::new(&context, size, Some(&completions));
        let (recv_cq, send_cq) = (queue(receives)?, queue(settings.sends())?);
        let init = QueuePairInit {
            caps: settings.caps(receives),
            send_cq: &send_cq,
            ..QueuePairInit::new(&recv_cq)
        };
        let mut queues = BufferQueues::new(id.create_qp(&pd, &init)?)?;
        queues.defer_destruction();
        let count = |number| usize::try_from(number).expect("32 bits fit");
        let sends = count(settings.send_buffers);
        let receives = count(receives);
        let groups = [(sends, settings.send_buffer_size), (receives, settings.receive_buffer_size)];
        // One small buffer more for keep-alive writes, in the same region, as they would cost a page otherwise.
        let mut free = Buffer::alloc_groups(&pd, groups, settings.keep_alive.is_some().into())?;
        queues.reserve(free.len());
        let (keep_alive, timer) = match settings.keep_alive {
            None => (None, None),
            Some(interval) => (free.pop(), Some(Timer::new(interval)?)),
        };
        for buffer in free.drain(sends..) {
            queues.receive(buffer)?;
        }
        free.shrink_to_fit();
        // Armed before any message can come: the descriptor of a connection reports the first one too.
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
        let core = Core::new(free, receives, protocol);
        let objects = KernelObjects {
            id: Arc::new(id),
            queues,
            completions,
            senders: None,
            send_buffer_size: settings.send_buffer_size,
            busy_poll: settings.busy_poll,
        };
        Ok(Self { objects, core, timer })
    }
}

impl KernelObjects {
    /// Returns `true` if both sides have agreed on reads and atomics of this side. rxe never executes one on a queue pair
    /// that may have none outstanding; on iWARP the driver refuses it.
    pub(super) fn allows_reads(&self) -> Result<bool> {
        let qp = self.queues.qp();
        let driver_checks = qp.pd().context().transport() == Transport::Iwarp;
        Ok(driver_checks || qp.query()?.max_rd_atomic > 0)
    }

    /// Makes the peer try again soon when a message of it finds no buffer.
    pub(super) fn set_min_rnr_timer(&self) {
        set_min_rnr_timer(self.queues.qp());
    }
}

/// Makes the peer of `qp` try again soon when a message of it finds no buffer: the connection manager sets 655 ms, the
/// longest time there is.
pub(super) fn set_min_rnr_timer(qp: &QueuePair) {
    if qp.pd().context().transport() != Transport::Iwarp {
        // If that fails, the connection has ended already, which is reported otherwise.
        let _ = qp.modify(&QueuePairAttributes::default().min_rnr_timer(RNR_TIMER));
    }
}

/// The commands of an [`ArmAction`], with shares of the objects that they are for.
#[derive(Debug)]
pub(super) enum ArmCommands {
    DiscardEvents(CompletionChannel),
    Arm([Option<CompletionQueue>; 2]),
}

impl ArmCommands {
    pub(super) fn new(action: ArmAction, objects: &KernelObjects) -> Self {
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
    pub(super) fn issue(self) -> Result<()> {
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
pub(super) struct RecoveryCommands {
    action: RecoveryAction,
    qp: QueuePair,
    id: Arc<CmId>,
}

impl RecoveryCommands {
    pub(super) fn new(action: RecoveryAction, objects: &KernelObjects) -> Self {
        Self { action, qp: objects.queues.qp().clone(), id: Arc::clone(&objects.id) }
    }

    /// Issues the commands. The shares are dropped.
    pub(super) fn issue(self) -> Result<()> {
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

impl Slot for Buffer {
    fn index(&self) -> usize {
        self.index()
    }

    fn bytes(&mut self) -> &mut [u8] {
        self
    }
}

impl From<BufferRefused> for NotPosted<Buffer> {
    fn from(refused: BufferRefused) -> Self {
        Self { buffer: refused.buffer, error: refused.error }
    }
}

impl QueueIo for KernelObjects {
    type Buffer = Buffer;
    type Sender = Sender;

    #[inline(always)]
    fn post_send(
        &mut self,
        buffer: Buffer,
        length: usize,
        outgoing: Outgoing<'_>,
    ) -> Result<(), NotPosted<Buffer>> {
        // As below.
        let posted = lock::with_commands(|| match outgoing {
            Outgoing::Operation(operation) => self.queues.send(buffer, length, operation),
            Outgoing::Datagram { address, qp_num, qkey, imm_data } => {
                self.queues.send_to(buffer, length, address, qp_num, qkey, imm_data)
            }
            Outgoing::Bind(request) => self.queues.bind_window(buffer, request),
        });
        Ok(posted?)
    }

    #[inline(always)]
    fn post_recv(&mut self, buffer: Buffer) -> Result<(), NotPosted<Buffer>> {
        // A queue pair may be in ERR already. There the doorbell of rxe is a MODIFY_QP, and siw's requests are flushed here.
        Ok(lock::with_commands(|| self.queues.receive(buffer))?)
    }

    #[inline(always)]
    fn poll(
        &mut self,
        queue: Queue,
        mut each: impl FnMut(Buffer, Option<Sender>, &Completion),
    ) -> Result<usize> {
        let Self { queues, senders, .. } = self;
        match queue {
            Queue::Receive => queues.poll_received(|buffer, completion| {
                let sender = match senders {
                    Some(senders) if completion.is_success() => {
                        buffer.first_chunk().and_then(|header| senders.of(completion, header))
                    }
                    _ => None,
                };
                each(buffer, sender, completion);
            }),
            Queue::Send => queues.poll_sent(|buffer, completion| each(buffer, None, completion)),
        }
    }

    fn outstanding(&self) -> usize {
        self.queues.outstanding()
    }
}
