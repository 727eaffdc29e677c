//! Queue pairs.

use std::mem;
use std::sync::{Arc, Mutex};

use verbs_abi::{ib_uverbs_destroy_qp, ib_uverbs_ex_create_qp, ib_uverbs_query_qp_resp};

use super::address_handle::AddressHandle;
use super::attributes::{self, QueuePairAttributes, query};
use super::buffer::Buffer;
use super::completion::CompletionQueue;
use super::context::Context;
use super::error_text::QUEUE_PAIR;
use super::membership::{Group, detach};
use super::moment::Moment;
use super::object::{self, Object, Shared};
use super::pd::ProtectionDomain;
use super::reporter::Reporter;
use super::same::equal_if_same;
use super::srq::SharedReceiveQueue;
use super::{QpCreateFlags, QpState, QpType, WcOpcode};
use crate::concurrent::HandoffMutex;
use crate::driver::CqControls;
use crate::drivers::any::{AnyDriver, AnyRecvRing, AnySendRing};
use crate::engine::{NewQp, Qp, QpOwner, QueueSide};
#[cfg(doc)]
use crate::error::ErrorKind;
use crate::error::{DestroyError, Error, Result};
use crate::lock::unpoisoned;
use crate::non_exhaustive::NonExhaustive;
use crate::registry::Token;

const MODIFY: &str = "modify";

/// The reason of an error for the receive queue of a queue pair that receives from a shared one.
const SHARES: &str = "it has no receive queue of its own, but a shared one";

/// The reason of an error for the receive queue of an XRC initiator.
const INITIATES: &str = "an XRC initiator only sends";

/// What a queue pair holds.
///
/// Made from its default: see [Parameters](crate#parameters).
#[doc(alias = "ibv_qp_cap")]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueuePairCaps {
    /// Send requests that are posted and not yet completed.
    pub max_send_wr: u32,
    /// The same of receive requests.
    pub max_recv_wr: u32,
    /// Pieces of memory in a send request.
    pub max_send_sge: u32,
    /// Pieces of memory in a receive request.
    pub max_recv_sge: u32,
    /// Bytes that a send request carries in itself.
    pub max_inline_data: u32,
    #[doc(hidden)]
    pub non_exhaustive: NonExhaustive,
}

impl Default for QueuePairCaps {
    /// Sixteen requests each way, of one piece each, nothing inline.
    fn default() -> Self {
        Self {
            max_send_wr: 16,
            max_recv_wr: 16,
            max_send_sge: 1,
            max_recv_sge: 1,
            max_inline_data: 0,
            non_exhaustive: NonExhaustive::default(),
        }
    }
}

/// What a new queue pair is to be.
///
/// Made from [`new`](Self::new), as others are from their default: see [Parameters](crate#parameters).
#[doc(alias = "ibv_qp_init_attr")]
#[doc(alias = "ibv_qp_init_attr_ex")]
#[derive(Debug, Clone, Copy)]
pub struct QueuePairInit<'a> {
    /// Where its sends complete.
    pub send_cq: &'a CompletionQueue,
    /// Where its receives complete.
    pub recv_cq: &'a CompletionQueue,
    /// Where its receives come from, if it is to have no receive queue of its own: what `caps` says
    /// of that does not count then. rxe looks their memory up in the queue pair's protection domain, siw
    /// in the shared queue's, so that both had better have the same.
    pub srq: Option<&'a SharedReceiveQueue>,
    /// What it must hold, at least.
    pub caps: QueuePairCaps,
    /// Every send makes a completion, whether it asks for one or not.
    pub signal_all: bool,
    /// What the driver is to do beyond that; rxe and siw offer nothing.
    pub create_flags: QpCreateFlags,
    #[doc(hidden)]
    pub non_exhaustive: NonExhaustive,
}

impl<'a> QueuePairInit<'a> {
    /// A queue pair that holds [what is held by default](QueuePairCaps::default), has a receive queue of its own,
    /// and completes on `cq`, sends where they ask for it: to name what is to be otherwise.
    pub fn new(cq: &'a CompletionQueue) -> Self {
        Self {
            send_cq: cq,
            recv_cq: cq,
            srq: None,
            caps: QueuePairCaps::default(),
            signal_all: false,
            create_flags: QpCreateFlags::empty(),
            non_exhaustive: NonExhaustive::default(),
        }
    }
}

/// A queue pair: two queues of requests, and a place in the network.
///
/// A clone is the same queue pair. It lives while a clone of it, the id that it belongs to, or a
/// [memory window](super::MemoryWindow) of type 2 that a bind was posted for here does.
#[doc(alias = "ibv_qp")]
#[derive(Debug, Clone)]
pub struct QueuePair {
    pub(super) inner: Arc<Inner>,
}

#[derive(Debug)]
pub(super) struct Inner {
    pub(super) object: Object<ib_uverbs_destroy_qp>,
    /// Behind the object: ends when the kernel's queue pair is gone.
    pub(super) life: Arc<()>,
    /// After the kernel had made it.
    pub(super) made: Moment,
    reporter: Reporter,
    pd: ProtectionDomain,
    pub(super) send_cq: CompletionQueue,
    pub(super) recv_cq: CompletionQueue,
    srq: Option<SharedReceiveQueue>,
    pub(super) qp: Qp,
    caps: QueuePairCaps,
    pub(super) send: HandoffMutex<AnySendRing>,
    pub(super) receive: HandoffMutex<AnyRecvRing>,
    /// The multicast groups that it is attached to: the kernel refuses to destroy it before it is
    /// detached.
    pub(super) groups: Mutex<Vec<Group>>,
    /// Behind the object: what the device may use as long as the kernel's queue pair is there.
    pub(super) kept: Mutex<Option<Box<Kept>>>,
}

/// What belongs to requests that nobody waits for.
#[derive(Debug, Default)]
pub(super) struct Kept {
    pub(super) buffers: Vec<Buffer>,
    pub(super) addresses: Vec<AddressHandle>,
}

impl QueuePair {
    /// Makes a reliable connected queue pair, in the state RESET. `IB_USER_VERBS_CMD_CREATE_QP`; with
    /// [flags](QueuePairInit::create_flags) `IB_USER_VERBS_EX_CMD_CREATE_QP` (Linux 4.4).
    ///
    /// [`CmId::create_qp`](crate::cm::CmId::create_qp) makes one that goes with an id.
    ///
    /// # Errors
    ///
    /// EINVAL for capabilities above the device's, ENOMEM; EOPNOTSUPP for flags that the driver does not
    /// offer, EINVAL for those that are not for this command; [`ErrorKind::Unsupported`] where the
    /// data path of the device's driver is not known; [`ErrorKind::Invalid`] where the
    /// completion queues or the shared receive queue are of another context.
    #[doc(alias = "ibv_create_qp")]
    #[doc(alias = "ibv_create_qp_ex")]
    pub fn new(pd: &ProtectionDomain, init: &QueuePairInit<'_>) -> Result<Self> {
        Self::with_type(pd, QpType::IB_UVERBS_QPT_RC, init)
    }

    /// The same for a queue pair of another type.
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new), and EOPNOTSUPP or EINVAL for a type that the device does not have;
    /// [`ErrorKind::Invalid`] for an XRC target, which is an [`XrcTarget`](super::XrcTarget), an
    /// XRC initiator with a shared receive queue, and a shared receive queue of an XRC domain.
    pub fn with_type(
        pd: &ProtectionDomain,
        qp_type: QpType,
        init: &QueuePairInit<'_>,
    ) -> Result<Self> {
        const OPERATION: &str = "create";
        const WHAT: &str = QUEUE_PAIR;
        let context = pd.context();
        context.check_process(OPERATION, || WHAT.to_owned())?;
        for cq in [init.send_cq, init.recv_cq] {
            if cq.context() != context {
                let reason = "a completion queue is of another context";
                return Err(Error::invalid(OPERATION, WHAT, reason));
            }
        }
        if init.srq.is_some_and(|srq| srq.context() != context) {
            let reason = "the shared receive queue is of another context";
            return Err(Error::invalid(OPERATION, WHAT, reason));
        }
        match (qp_type, init.srq) {
            (QpType::IB_UVERBS_QPT_XRC_TGT, _) => {
                let reason = "a target has no queues, and is made in an XRC domain";
                return Err(Error::invalid(OPERATION, WHAT, reason));
            }
            (QpType::IB_UVERBS_QPT_XRC_INI, Some(_)) => {
                let reason = "an XRC initiator only sends, and has no shared receive queue";
                return Err(Error::invalid(OPERATION, WHAT, reason));
            }
            (_, Some(srq)) if srq.number().is_some() => {
                let reason = "the shared receive queue is in an XRC domain, for targets only";
                return Err(Error::invalid(OPERATION, WHAT, reason));
            }
            _ => {}
        }
        let reporter = Reporter::new();
        let (max_recv_wr, max_recv_sge) = match init.srq {
            None => (init.caps.max_recv_wr, init.caps.max_recv_sge),
            Some(_) => (0, 0),
        };
        let request = ib_uverbs_ex_create_qp {
            user_handle: reporter.user_handle(),
            pd_handle: pd.handle(),
            send_cq_handle: init.send_cq.handle(),
            recv_cq_handle: init.recv_cq.handle(),
            srq_handle: init.srq.map_or(0, SharedReceiveQueue::handle),
            max_send_wr: init.caps.max_send_wr,
            max_recv_wr,
            max_send_sge: init.caps.max_send_sge,
            max_recv_sge,
            max_inline_data: init.caps.max_inline_data,
            sq_sig_all: u8::from(init.signal_all),
            qp_type,
            is_srq: u8::from(init.srq.is_some()),
            create_flags: init.create_flags,
            ..ib_uverbs_ex_create_qp::default()
        };
        let (send_cq, recv_cq) = (init.send_cq.engine(), init.recv_cq.engine());
        let cqs = CqControls { send: send_cq.control(), recv: recv_cq.control() };
        let created = Qp::create(context.engine(), pd.number(), request, cqs);
        let NewQp { qp, response, send, recv, memory } =
            created.map_err(|error| context.not_created(QUEUE_PAIR, error))?;
        let receive = recv.unwrap_or(AnyRecvRing::Absent(match qp_type {
            QpType::IB_UVERBS_QPT_XRC_INI => INITIATES,
            _ => SHARES,
        }));
        let inner = Inner {
            object: Object::with_memory(context, response.qp_handle, memory),
            life: Arc::default(),
            made: Moment::now(),
            reporter,
            pd: pd.clone(),
            send_cq: init.send_cq.clone(),
            recv_cq: init.recv_cq.clone(),
            srq: init.srq.cloned(),
            qp,
            caps: QueuePairCaps {
                max_send_wr: response.max_send_wr,
                max_recv_wr: response.max_recv_wr,
                max_send_sge: response.max_send_sge,
                max_recv_sge: response.max_recv_sge,
                max_inline_data: response.max_inline_data,
                non_exhaustive: NonExhaustive::default(),
            },
            send: HandoffMutex::new(send),
            receive: HandoffMutex::new(receive),
            groups: Mutex::default(),
            kept: Mutex::default(),
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// What names this queue pair in [asynchronous events](super::AsyncElement).
    pub fn token(&self) -> Token {
        self.inner.reporter.token()
    }

    /// The queue pair's number, 24 bits.
    pub fn number(&self) -> u32 {
        self.inner.qp.number()
    }

    /// Its type.
    #[inline]
    pub fn qp_type(&self) -> QpType {
        self.inner.qp.qp_type()
    }

    /// What it holds: what was asked for, or more, as the kernel says.
    pub fn caps(&self) -> QueuePairCaps {
        self.inner.caps
    }

    /// The protection domain.
    pub fn pd(&self) -> &ProtectionDomain {
        &self.inner.pd
    }

    /// Where its sends complete.
    pub fn send_cq(&self) -> &CompletionQueue {
        &self.inner.send_cq
    }

    /// Where its receives complete.
    pub fn recv_cq(&self) -> &CompletionQueue {
        &self.inner.recv_cq
    }

    /// The shared receive queue that its receives come from, if it has none of its own.
    pub fn srq(&self) -> Option<&SharedReceiveQueue> {
        self.inner.srq.as_ref()
    }

    /// Changes the attributes that the mask in `attributes` names: what [`QueuePairAttributes`] makes,
    /// or [`CmId::init_qp_attr`](crate::cm::CmId::init_qp_attr) reports.
    ///
    /// `IB_USER_VERBS_CMD_MODIFY_QP`; with a [rate limit](QueuePairAttributes::rate_limit)
    /// `IB_USER_VERBS_EX_CMD_MODIFY_QP` (Linux 4.10). It waits for no thread that posts or polls.
    ///
    /// A send of an unreliable queue pair that fails leaves it in `IB_QPS_SQE` on devices that keep to the
    /// specification: what is posted to the send queue is flushed, and receives go on, until it is
    /// taken to `IB_QPS_RTS`. [`query`](Self::query) tells.
    ///
    /// On siw, change nothing but the state while requests are under way: the kernel hands some of
    /// them to a thread of its own, which drops the work for good where it finds a change under way.
    ///
    /// # Errors
    ///
    /// EINVAL for a state that does not follow on the present one, and for attributes that are
    /// missing or out of range; [`ErrorKind::Unsupported`] for those that the driver does not have.
    #[doc(alias = "ibv_modify_qp")]
    pub fn modify(&self, attributes: &QueuePairAttributes) -> Result<()> {
        let fails = attributes.step() == Some(QpState::IB_QPS_ERR);
        // First: a lock that another thread held while the process forked stays locked in the child.
        if fails {
            // Of a device that is gone, too: what is posted must complete.
            self.context().check_process(MODIFY, || self.subject())?;
        } else {
            self.context().check_usable(MODIFY, || self.subject())?;
        }
        let engine = self.context().engine();
        let command =
            || attributes::modify(self.context().file(), self.inner.object.handle(), attributes);
        let modified = self.inner.qp.modify(engine, &*self.inner, attributes.step(), command);
        modified.map_err(|refused| {
            let what = match attributes.step() {
                Some(state) => format!("{} to {state}", self.subject()),
                None => self.subject(),
            };
            self.context().refused_or_unsupported(MODIFY, &what, "this change", refused)
        })
    }

    /// The queue pair's state and attributes, as the kernel has them.
    ///
    /// `IB_USER_VERBS_CMD_QUERY_QP`.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::DeviceGone`], [`ErrorKind::WrongProcess`].
    #[doc(alias = "ibv_query_qp")]
    pub fn query(&self) -> Result<ib_uverbs_query_qp_resp> {
        let request = query(self.inner.object.handle());
        self.context().command("query", &self.subject(), request)
    }

    /// Destroys the queue pair and waits until its asynchronous events are acknowledged.
    /// `IB_USER_VERBS_CMD_DESTROY_QP`.
    ///
    /// What is posted makes no more completions, and the device lets go of its memory.
    ///
    /// # Errors
    ///
    /// EBUSY while clones of it live: the id that it belongs to holds one
    /// ([`CmId::destroy_qp`](crate::cm::CmId::destroy_qp)), and so does each
    /// [memory window](super::MemoryWindow) of type 2 that a bind was posted for here; or while it is
    /// attached to a multicast group; [`ErrorKind::WouldDeadlock`] where an event that this thread received is still out;
    /// [`ErrorKind::WrongProcess`]. The queue pair comes back with the error.
    #[doc(alias = "ibv_destroy_qp")]
    pub fn destroy(self) -> Result<(), DestroyError<Self>> {
        let context = self.context().clone();
        object::destroy(&context, Inner::subject, self.inner, |inner| Self { inner })
    }

    #[inline]
    pub(super) fn context(&self) -> &Context {
        self.inner.object.context()
    }

    pub(super) fn subject(&self) -> String {
        self.inner.subject()
    }

    /// Whether it and its connection end together: the kernel moves it to ERR by itself as the connection
    /// ends, and ends the connection as it goes there.
    pub(crate) fn ends_with_connection(&self) -> bool {
        self.context().driver_capabilities().qp_follows_connection
    }

    /// Returns `true` if the queue pair is in ERR and never leaves it.
    pub(crate) fn has_ended(&self) -> bool {
        self.inner.qp.has_ended(self.context().engine())
    }

    /// The queue pair without its rings and its owners.
    #[inline]
    pub(super) fn engine(&self) -> &Qp {
        &self.inner.qp
    }

    #[inline]
    pub(super) fn state(&self) -> QpState {
        self.inner.qp.state()
    }
}

impl QpOwner for Inner {
    fn cqs(&self) -> CqControls<'_, AnyDriver> {
        let (send, recv) = (self.send_cq.engine(), self.recv_cq.engine());
        CqControls { send: send.control(), recv: recv.control() }
    }

    fn complete_orphans(&self, side: QueueSide, wr_ids: &[u64]) {
        let (cq, opcode) = match side {
            QueueSide::Send => (&self.send_cq, WcOpcode::IB_UVERBS_WC_SEND),
            QueueSide::Receive => (&self.recv_cq, WcOpcode::IB_WC_RECV),
        };
        cq.complete_orphans(&self.pd, self.qp.number(), opcode, wr_ids);
    }

    fn can_complete_orphan(&self, side: QueueSide) -> bool {
        let cq = match side {
            QueueSide::Send => &self.send_cq,
            QueueSide::Receive => &self.recv_cq,
        };
        cq.engine().can_inject()
    }
}

impl Inner {
    fn subject(&self) -> String {
        format!("queue pair {}", self.qp.number())
    }
}

impl Shared for Inner {
    type Destroy = ib_uverbs_destroy_qp;

    fn object(&mut self) -> &mut Object<ib_uverbs_destroy_qp> {
        &mut self.object
    }

    fn reporter(&self) -> Option<&Reporter> {
        Some(&self.reporter)
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        let groups = unpoisoned(self.groups.get_mut());
        if self.object.belongs_here() {
            for group in groups.drain(..) {
                // Where that fails the kernel keeps the queue pair until the context closes.
                let request = detach(self.object.handle(), group);
                let _ = self.object.context().file().command(request);
            }
            if !self.object.is_destroyed() {
                let _ = self.object.destroy();
            }
            if self.object.is_destroyed() {
                self.qp.on_destroyed(self.object.context().engine(), self.cqs());
            } else {
                // The device may use them as long as the kernel has the queue pair.
                mem::forget(mem::take(unpoisoned(self.kept.get_mut())));
            }
        }
    }
}

equal_if_same!(QueuePair, inner);
