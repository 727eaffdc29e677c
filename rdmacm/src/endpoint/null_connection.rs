//! A connection on the null driver, without a kernel: for unit tests and benchmarks.

use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use crate::cm::forged::channel_on;
use crate::cm::{CmId, PortSpace};
use crate::endpoint::connection::handle::Connection;
use crate::endpoint::core::{Core, Messages, Protocol};
use crate::endpoint::shared::Shared;
use crate::endpoint::shared::kernel_objects::{KernelObjects, NewEndpoint};
use crate::endpoint::shared::readiness::Readiness;
use crate::endpoint::shared::state::State;
use crate::error::Result;
use crate::verbs::{
    BufferedQueuePair, CompletionChannel, CompletionQueue, Context, ProtectionDomain, QpState,
    QueuePair, QueuePairAttributes, QueuePairCaps, QueuePairInit, RegisteredBuffer, WcStatus,
};

/// A connection to itself.
///
/// The device copies no bytes. When the doorbell rings, it completes a send, and also the next receive of the same
/// queue pair with the length of the message. So the connection receives its own messages.
#[derive(Debug)]
pub(super) struct Loopback {
    pub(super) connection: Connection,
    /// The end of the kernel of the event channel.
    #[cfg_attr(not(test), expect(dead_code, reason = "only kept open, outside of tests"))]
    kernel: UnixStream,
    /// The end of the kernel of the completion channel.
    #[cfg_attr(not(test), expect(dead_code, reason = "only kept open, outside of tests"))]
    events: UnixStream,
    #[cfg_attr(not(test), expect(dead_code, reason = "names the queue in events of tests"))]
    recv_cq: CompletionQueue,
}

impl Loopback {
    /// Creates a connection on `context` with `sends` and `receives` buffers of `length` bytes.
    ///
    /// # Panics
    ///
    /// Panics if the process has no descriptors left.
    pub(super) fn new(context: &Context, sends: u32, receives: u32, length: usize) -> Result<Self> {
        let pd = ProtectionDomain::new(context)?;
        let (completions, device) = CompletionChannel::on_socket(context);
        completions.set_nonblocking(true)?;
        let cq = |capacity| CompletionQueue::new(context, capacity, Some(&completions));
        let (recv_cq, send_cq) = (cq(receives)?, cq(sends)?);
        let caps =
            QueuePairCaps { max_send_wr: sends, max_recv_wr: receives, ..QueuePairCaps::default() };
        let init = QueuePairInit { caps, send_cq: &send_cq, ..QueuePairInit::new(&recv_cq) };
        let qp = QueuePair::new(&pd, &init)?;
        qp.modify(&QueuePairAttributes::to(QpState::IB_QPS_RTS))?;
        let mut queues = BufferedQueuePair::new(qp)?;
        queues.defer_commands();
        let [sends, receives] =
            [sends, receives].map(|count| usize::try_from(count).expect("32 bits fit"));
        let groups = [(sends, length), (receives, length)];
        let mut free = RegisteredBuffer::alloc_groups(&pd, groups, 0)?;
        queues.reserve(free.len());
        for buffer in free.drain(sends..) {
            queues.post_recv(buffer)?;
        }
        // The core assumes that the queue of a new endpoint is armed.
        recv_cq.request_notify(false)?;
        let (commands, kernel) = UnixStream::pair().expect("the sockets should be created");
        let channel = channel_on(commands.into());
        channel.set_nonblocking(true)?;
        let id = CmId::new(&channel, PortSpace::Tcp)?;
        let too_long = WcStatus::IB_WC_LOC_LEN_ERR;
        let messages = Messages::new(false, receives, too_long, too_long, None);
        let objects = KernelObjects {
            id: Arc::new(id),
            queues,
            completions,
            senders: None,
            send_buffer_size: length,
            busy_poll: Duration::ZERO,
        };
        let core = Core::new(free, receives, Protocol::Messages(messages));
        let state = State::new(NewEndpoint { objects, core, timer: None }, None);
        let readiness = Arc::new(Readiness::new(&channel)?);
        let name = "the connection to itself".to_owned();
        let shared = Shared::new(state, channel, readiness, name, length)?;
        let addresses: [Option<SocketAddr>; 2] = [None, None];
        let connection = Connection::of(Arc::new(shared), addresses, Box::default(), None);
        Ok(Self { connection, kernel, events: device, recv_cq })
    }
}

impl Connection {
    /// Creates a connection to itself on the null driver, which needs no kernel.
    ///
    /// Tests use it, and so do benchmarks of the library's own overhead. The connection has `sends` and `receives`
    /// buffers of `length` bytes, and receives its own messages. No data is transferred.
    ///
    /// The second value imitates the kernel. The caller keeps it as long as the connection.
    ///
    /// # Errors
    ///
    /// The errors of the objects of a connection.
    ///
    /// # Panics
    ///
    /// Panics if the process has no descriptors left.
    pub fn null(sends: u32, receives: u32, length: usize) -> Result<(Self, impl Sized)> {
        let own = Loopback::new(&Context::null(), sends, receives, length)?;
        Ok((own.connection.clone(), own))
    }
}

#[cfg(test)]
mod tests;
