//! [`Incoming`], the request of a peer that wants to connect.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use super::connecting::Connecting;
use super::connection::Connection;
use super::deadline::{has_passed, within};
use super::kernel_objects::NewEndpoint;
use super::settings::Settings;
use super::trace::{RequestTrace, Trace};
use crate::cm::{CmId, ConnParam, EventChannel, RejectReason};
use crate::device::Device;
use crate::error::{Error, ErrorKind, Result};

/// A peer that wants to connect.
///
/// Dropping the request rejects it.
#[derive(Debug)]
pub struct Incoming {
    pub(super) id: CmId,
    pub(super) param: ConnParam,
    pub(super) trace: RequestTrace,
}

impl Incoming {
    /// The peer's address; `None` for one of InfiniBand.
    ///
    /// # Errors
    ///
    /// The errors of [`CmId::peer_addr`].
    pub fn peer_addr(&self) -> Result<Option<SocketAddr>> {
        self.id.peer_addr()
    }

    /// The local address that the peer has asked for; `None` for one of InfiniBand.
    ///
    /// # Errors
    ///
    /// The errors of [`CmId::local_addr`].
    pub fn local_addr(&self) -> Result<Option<SocketAddr>> {
        self.id.local_addr()
    }

    /// Returns the device that the request came over.
    ///
    /// # Errors
    ///
    /// The errors of [`CmId::context`].
    pub fn device(&self) -> Result<Device> {
        Ok(self.id.context()?.device().clone())
    }

    /// What the peer's program sent along. On InfiniBand and RoCE always 56 bytes, of which those
    /// that the peer did not fill are zero; on iWARP as many as were sent.
    pub fn private_data(&self) -> &[u8] {
        &self.param.private_data
    }

    /// What the peer proposes, from this side's point of view.
    pub fn param(&self) -> &ConnParam {
        &self.param
    }

    /// Accepts, with bytes for the peer's program (at most 196 on InfiniBand and RoCE, 251 on
    /// iWARP), and waits for at most `timeout` until the connection stands.
    ///
    /// The connection gets an event channel of its own ([`CmId::migrate`]) and its queue pair with
    /// receives posted; then [`CmId::accept`]. After an error nothing is left, and the peer is
    /// rejected if it was not accepted yet.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::TimedOut`]; what the peer comes to if it does not go on
    /// ([`ErrorKind::Unreachable`], [`ErrorKind::Disconnected`], ECONNREFUSED and others); EINVAL, on siw
    /// ECONNRESET, where it has given up before;
    /// [`ErrorKind::Invalid`] for private data that is too long, and for [`Settings`] without a
    /// buffer; EINVAL and ENOMEM for more than the device has.
    #[doc(alias = "rdma_accept")]
    pub fn accept(
        self,
        settings: &Settings,
        private_data: &[u8],
        timeout: Duration,
    ) -> Result<Connection> {
        self.start(settings, private_data, timeout)?.wait()
    }

    /// Accepts, and does not wait until the connection stands: for event loops. All but that is as
    /// with [`accept`](Self::accept).
    ///
    /// # Errors
    ///
    /// The errors of [`accept`](Self::accept) that come at once: what is invalid, what there is not, and
    /// EINVAL where the peer has given up before. The others come later, of the [`Connecting`].
    pub fn start(
        self,
        settings: &Settings,
        private_data: &[u8],
        timeout: Duration,
    ) -> Result<Connecting> {
        self.start_by(settings, private_data, within(timeout))
    }

    /// Accepts, and the connection is to stand at `until`.
    pub(super) fn start_by(
        self,
        settings: &Settings,
        private_data: &[u8],
        until: Option<Instant>,
    ) -> Result<Connecting> {
        let Self { id, param, trace } = self;
        let trace = trace.answered();
        let accepted = accept(id, settings, private_data, until);
        let (parts, channel) = accepted.inspect_err(|error| trace.failed(error))?;
        Connecting::accepted(parts, channel, param.private_data, until, trace)
    }

    /// Takes the id of the request, the proposal of the peer, and the trace of one that is answered.
    pub(super) fn into_parts(self) -> (CmId, ConnParam, Trace) {
        let Self { id, param, trace } = self;
        (id, param, trace.answered())
    }

    /// Rejects, with a reason and bytes for the peer's program (at most 148 on InfiniBand and RoCE,
    /// 251 on iWARP), which both go into the [error](ErrorKind::Rejected) of its connecting.
    ///
    /// The reason is [`RejectReason::CONSUMER_DEFINED`] or
    /// [`RejectReason::VENDOR_OPTION_NOT_SUPPORTED`]: others are the kernel's. On iWARP there are
    /// none, and the peer has an errno.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`] for another reason, and for private data that is too long; EINVAL
    /// where the peer has given up before. It is rejected in any case.
    #[doc(alias = "rdma_reject")]
    pub fn reject(self, reason: RejectReason, private_data: &[u8]) -> Result<()> {
        match reason {
            RejectReason::CONSUMER_DEFINED => self.id.reject(private_data),
            RejectReason::VENDOR_OPTION_NOT_SUPPORTED => self.id.reject_ece(private_data),
            _ => {
                let subject = format!("a request by {reason:?}");
                Err(Error::invalid("reject", subject, "that reason is the kernel's own"))
            }
        }
    }
}

/// Gives the request of `id` a channel of its own and what a connection has, and accepts it.
fn accept(
    id: CmId,
    settings: &Settings,
    private_data: &[u8],
    until: Option<Instant>,
) -> Result<(NewEndpoint, EventChannel)> {
    if has_passed(until) {
        let subject = format!("the request of id {}", id.token());
        return Err(Error::new("accept", subject, ErrorKind::TimedOut));
    }
    let channel = EventChannel::new()?;
    id.migrate(&channel)?;
    let endpoint = NewEndpoint::create(id, settings, true)?;
    endpoint.objects.id.accept(&settings.param(private_data))?;
    Ok((endpoint, channel))
}
