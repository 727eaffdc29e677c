//! Endpoints: synchronous ids created in one call, and queue pairs with default objects.

use std::time::Duration;

use super::connection::IS_TARGET;
use super::endpoint_qp::EndpointQpInit;
use super::id::CmId;
use crate::addr::{AddrInfo, AddrInfoFlags};
#[cfg(doc)]
use crate::error::ErrorKind;
use crate::error::{Error, Result};
use crate::non_exhaustive::NonExhaustive;
use crate::verbs::{
    CompletionChannel, CompletionQueue, ProtectionDomain, QpType, QueuePair, QueuePairInit,
    SharedReceiveQueue,
};

/// The time that the kernel has for resolving an address, and again for a route.
const RESOLUTION: Duration = Duration::from_secs(2);

impl CmId {
    /// Creates a synchronous id from a result of [`getaddrinfo`](super::lookup::getaddrinfo).
    ///
    /// If `info` has [`AddrInfoFlags::PASSIVE`], the id is bound to the source address, ready for
    /// [`listen`](Self::listen) and [`get_request`](Self::get_request). `get_request` then creates
    /// the queue pair, or the XRC target, of each new id as `qp` describes.
    ///
    /// Otherwise the id is resolved ([`resolve_addr`](Self::resolve_addr), then
    /// [`resolve_route`](Self::resolve_route) or [`set_ib_path`](Self::set_ib_path)), with two
    /// seconds for each step. If `qp` is given, the id's queue pair is created. The id is then
    /// ready for [`connect`](Self::connect), which puts `info.connect` before the program's private
    /// data.
    ///
    /// The counterpart of `rdma_destroy_ep` is [`destroy`](Self::destroy).
    ///
    /// # Errors
    ///
    /// In addition to the errors of the calls above and of [`create_qp`](Self::create_qp):
    ///
    /// - [`ErrorKind::InvalidInput`] if `info` lacks the address.
    #[doc(alias = "rdma_create_ep")]
    pub fn create_ep(info: &AddrInfo, qp: Option<&EndpointQpInit>) -> Result<Self> {
        let missing = |what: &'static str| Error::invalid("create", "an endpoint", what);
        let id = Self::new_sync_with_qp_type(info.port_space, info.qp_type)?;
        if info.flags.contains(AddrInfoFlags::PASSIVE) {
            id.bind(
                info.src_addr.ok_or_else(|| {
                    missing("there is no address to bind to: `src_addr` is `None`")
                })?,
            )?;
            id.inner.state().request_qp = qp.cloned().map(Box::new);
            return Ok(id);
        }
        let peer = info
            .dst_addr
            .ok_or_else(|| missing("there is no address to resolve: `dst_addr` is `None`"))?;
        id.resolve_addr(info.src_addr, peer, RESOLUTION)?;
        if info.route.is_empty() {
            id.resolve_route(RESOLUTION)?;
        } else {
            id.set_ib_path(&info.route)?;
        }
        if let Some(qp) = qp {
            id.create_endpoint_qp(qp)?;
        }
        id.inner.state().connect_header = info.connect.as_slice().into();
        Ok(id)
    }

    /// Creates the id's queue pair and the objects that `qp` leaves out.
    ///
    /// Otherwise the call behaves like [`create_qp`](Self::create_qp). The objects are available as
    /// [`QueuePair::pd`], [`QueuePair::send_cq`] and [`QueuePair::recv_cq`]. For an XRC initiator,
    /// the completion queue of sends is also the completion queue of receives.
    ///
    /// # Errors
    ///
    /// In addition to the errors of [`create_qp`](Self::create_qp) and of creating the other objects:
    ///
    /// - [`ErrorKind::InvalidInput`] if `qp` has an XRC domain, because only a target is in a domain.
    #[doc(alias = "rdma_create_qp")]
    #[doc(alias = "rdma_create_qp_ex")]
    pub fn create_ep_qp(&self, qp: &EndpointQpInit) -> Result<QueuePair> {
        const OPERATION: &str = "create the queue pair of";
        self.inner.check_process(OPERATION)?;
        let invalid =
            |reason: &'static str| Err(Error::invalid(OPERATION, self.inner.to_string(), reason));
        if self.inner.is_for_targets() {
            return invalid(IS_TARGET);
        }
        if qp.xrc_domain.is_some() {
            return invalid("only an XRC target is in an XRC domain");
        }
        let pd = qp.pd.clone().map_or_else(|| self.default_pd(), Ok)?;
        let queue = |given: &Option<CompletionQueue>, capacity: u32| match given {
            Some(given) => Ok(given.clone()),
            // A completion queue has a capacity of at least one.
            None => CompletionQueue::new(
                pd.context(),
                capacity.max(1),
                Some(&CompletionChannel::new(pd.context())?),
            ),
        };
        let send_cq = queue(&qp.send_cq, qp.caps.max_send_wr)?;
        let srq = qp.srq.clone().or_else(|| self.srq());
        let receives = srq.as_ref().map_or(qp.caps.max_recv_wr, |srq| srq.attributes().max_wr);
        let recv_cq = match &qp.recv_cq {
            None if self.qp_type() == QpType::IB_UVERBS_QPT_XRC_INI => send_cq.clone(),
            given => queue(given, receives)?,
        };
        let init = QueuePairInit {
            send_cq: &send_cq,
            recv_cq: &recv_cq,
            srq: srq.as_ref(),
            caps: qp.caps,
            signal_all: qp.signal_all,
            create_flags: qp.create_flags,
            non_exhaustive: NonExhaustive::default(),
        };
        self.create_qp(&pd, &init)
    }

    /// Creates the queue pair or the XRC target of an endpoint.
    pub(super) fn create_endpoint_qp(&self, qp: &EndpointQpInit) -> Result<()> {
        if self.inner.is_for_targets() {
            let domain = qp.xrc_domain.as_ref();
            let domain = domain.or_else(|| qp.srq.as_ref().and_then(SharedReceiveQueue::domain));
            self.create_xrc_target(domain).map(drop)
        } else {
            self.create_ep_qp(qp).map(drop)
        }
    }

    /// Returns the protection domain that the process's ids of a device share.
    ///
    /// The first call creates it. It is destroyed when its last handle is dropped.
    ///
    /// # Errors
    ///
    /// In addition to the errors of [`ProtectionDomain::new`]:
    ///
    /// - [`ErrorKind::InvalidInput`] if the id has no device yet.
    ///
    /// Kernel command: `IB_USER_VERBS_CMD_ALLOC_PD`.
    #[doc(alias = "rdma_create_qp")]
    pub fn default_pd(&self) -> Result<ProtectionDomain> {
        ProtectionDomain::shared(&self.context()?)
    }
}
