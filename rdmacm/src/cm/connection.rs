//! Connecting, accepting, rejecting and disconnecting, and the id's queue pair.

use std::mem;

use nix::errno::Errno;
use ucma_abi::{
    ib_cm_rej_reason, rdma_ucm_accept, rdma_ucm_conn_param, rdma_ucm_connect, rdma_ucm_disconnect,
    rdma_ucm_ece, rdma_ucm_init_qp_attr, rdma_ucm_reject,
};
use verbs_abi::{AlignedU64, ib_uverbs_qp_attr};
use zerocopy::FromZeros;

use super::id::CmId;
use super::outgoing::{Message, effective_depths, encode, private_data_field};
use super::own_qp::OwnQp;
use super::param::ConnParam;
use super::parse::EventType;
use super::record::{Inner, State};
use super::service_type::ServiceType;
use super::transition::{self, Step};
#[cfg(doc)]
use crate::error::ErrorKind;
#[cfg(doc)]
use crate::error::RejectReason;
use crate::error::{Error, Result, hint};
#[cfg(doc)]
use crate::verbs::Context;
use crate::verbs::{
    ProtectionDomain, QpState, QpType, QueuePair, QueuePairAttributes, QueuePairInit,
};

/// The hint for an EINVAL that concerns attributes the kernel does not have.
const OUT_OF_STATE: &str =
    "the connection is in a state without these attributes: the peer may have ended the attempt";

/// The operation of an error of [`CmId::accept`].
pub(crate) const ACCEPT: &str = "accept";

/// The operation of an error about the connection manager's attributes of a queue pair.
pub(crate) const ASK_FOR_ATTRIBUTES: &str = "ask for the queue pair attributes of";

/// Reason in errors about creating a queue pair with queues.
pub(super) const IS_TARGET: &str = "the id is for XRC targets; call CmId::create_xrc_target";

impl CmId {
    /// Creates the id's queue pair, of the id's [type](Self::qp_type).
    ///
    /// A queue pair for connections is brought to INIT, so that receives can be posted before the
    /// connection is established. A queue pair for datagrams is brought to RTS, ready to send. The
    /// id then moves its queue pair to each state that the connection needs.
    ///
    /// The id holds the queue pair until [`destroy_qp`](Self::destroy_qp) or its own end. The
    /// kernel object is destroyed when the last handle is dropped. The queue pair receives from the
    /// id's [shared receive queue](Self::create_srq), if there is one and `init` names no other.
    ///
    /// If the device has options of enhanced connection establishment ([`QueuePair::ece`]), the id
    /// negotiates them with the peer when it connects or accepts.
    ///
    /// # Errors
    ///
    /// In addition to the errors of [`QueuePair::new`]:
    ///
    /// - [`ErrorKind::InvalidInput`] if the id has no device yet or already has a queue pair.
    /// - [`ErrorKind::InvalidInput`] if `pd` was not created in the id's
    ///   [`context`](Self::context).
    /// - [`ErrorKind::InvalidInput`] if the id's queue pairs are XRC targets: see
    ///   [`create_xrc_target`](Self::create_xrc_target).
    ///
    /// Kernel commands: `IB_USER_VERBS_CMD_CREATE_QP`, `RDMA_USER_CM_CMD_INIT_QP_ATTR`,
    /// `IB_USER_VERBS_CMD_MODIFY_QP`.
    #[doc(alias = "rdma_create_qp")]
    #[doc(alias = "rdma_create_qp_ex")]
    pub fn create_qp(&self, pd: &ProtectionDomain, init: &QueuePairInit<'_>) -> Result<QueuePair> {
        const OPERATION: &str = "create the queue pair of";
        let invalid =
            |reason: &'static str| Err(Error::invalid(OPERATION, self.inner.to_string(), reason));
        if *pd.context() != self.context()? {
            return invalid("the protection domain is of another context than CmId::context");
        }
        if self.inner.is_for_targets() {
            return invalid(IS_TARGET);
        }
        self.inner.create_own_qp(OPERATION, |state| {
            let srq = init.srq.or(state.srq.as_ref());
            let init = QueuePairInit { srq, ..*init };
            let qp = QueuePair::with_type(pd, self.inner.qp_type, &init)?;
            Ok((OwnQp::Queues(qp.clone()), qp))
        })
    }

    /// Returns the queue pair that [`create_qp`](Self::create_qp) created.
    ///
    /// For an XRC target, see [`xrc_target`](Self::xrc_target).
    pub fn qp(&self) -> Option<QueuePair> {
        if self.inner.process.is_current() { self.inner.queue_pair() } else { None }
    }

    /// Drops the id's handle of its queue pair or XRC target, which destroys it if no other handle
    /// exists.
    ///
    /// The program may hold other handles, and so may a type 2 memory window that was bound on the
    /// queue pair. The queue pair then keeps its state until the last of them is dropped. It is
    /// detached from the multicast groups of the id; the id stays a member.
    #[doc(alias = "rdma_destroy_qp")]
    pub fn destroy_qp(&self) {
        self.inner.release_qp();
    }

    /// Requests a connection to the peer at the resolved address.
    ///
    /// `Established`, `Rejected`, `Unreachable` or `ConnectError` follows. On an id without a queue
    /// pair of its own, `ConnectResponse` follows in place of `Established`: see
    /// [`establish`](Self::establish).
    ///
    /// On iWARP the kernel itself brings the queue pair to RTS, and `Established` follows in either
    /// case. The command returns when TCP is connected, which takes minutes if the peer does not
    /// answer. Neither a deadline nor [`destroy`](Self::destroy) on another thread ends it. The
    /// side that connects must be the first to send.
    ///
    /// On an id for datagrams the request asks the peer for the address of its datagram service
    /// (SIDR). `Established` carries [the destination](super::Event::datagram). `Unreachable` has
    /// the status -ETIMEDOUT or an `ib_cm_sidr_status`: 1 if the peer has no listener, 2 if the
    /// peer's program rejected the request. Of `param` only the private data is used. Neither side
    /// keeps a connection afterwards.
    ///
    /// # Errors
    ///
    /// - EINVAL if the route is not resolved yet.
    /// - [`ErrorKind::InvalidInput`] if the private data is longer than 56 bytes (180 on an id for
    ///   datagrams, 251 on iWARP). If the peer has an InfiniBand address, the limits are 92 and
    ///   216 bytes.
    /// - [`ErrorKind::InvalidInput`] if a depth exceeds the limit of the device.
    /// - [`ErrorKind::InvalidInput`] if the id is for connections, has no queue pair, and
    ///   [`ConnParam::qp_num`] is 0.
    /// - [`ErrorKind::InvalidInput`] if the id is for XRC targets, which only accept connections.
    /// - [`ErrorKind::Unsupported`] if the id is for datagrams and the device is iWARP.
    /// - [`ErrorKind::Unsupported`] if a depth of a connection is [`ConnParam::DEVICE_MAX`] and the
    ///   device [cannot be opened](Context::open).
    /// - On iWARP, the errors of TCP: ECONNREFUSED if the peer has no listener, ETIMEDOUT,
    ///   EHOSTUNREACH.
    ///
    /// Kernel command: `RDMA_USER_CM_CMD_CONNECT`.
    #[doc(alias = "rdma_connect")]
    pub fn connect(&self, param: &ConnParam) -> Result<()> {
        const OPERATION: &str = "connect";
        let device = self.inner.device()?;
        if self.inner.is_for_targets() {
            let reason = "an XRC target only accepts connections; connect an id for XRC_INI";
            return Err(Error::invalid(OPERATION, self.inner.to_string(), reason));
        }
        let limits = device.depth_limits(OPERATION, self.inner.service(), param)?;
        let qp = self.inner.state().qp.clone();
        let param = &self.inner.with_header(param);
        let transport = device.transport();
        self.inner.check(OPERATION, param, Message::Request, transport, limits, qp.as_ref())?;
        let request = rdma_ucm_connect {
            conn_param: encode(param, effective_depths(param, limits), qp.as_ref()),
            id: self.inner.handle,
            reserved: 0,
            ece: self.inner.state().local_ece.into(),
        };
        let start = || {
            let sent = self.inner.command(OPERATION, || self.inner.with_peer(), request);
            // On iWARP, the command waits for TCP.
            sent.map_err(|error| error.with_hint(Errno::ECONNREFUSED, hint::NO_LISTENER))?;
            self.inner.state().named_qp = request.conn_param.qp_num;
            Ok(())
        };
        self.inner.start_and_wait(EventType::Established, start)
    }

    /// Accepts the connection request that created this id.
    ///
    /// The id's queue pair is brought to RTS first. `Established` follows, or `Disconnected`, `Unreachable` or
    /// `ConnectError` if the peer does not continue.
    ///
    /// A depth of [`ConnParam::DEVICE_MAX`] becomes the depth that the request asks for, limited by
    /// the device. Other depths must be within the limits of the device. The initiator depth must
    /// also be within the offer of the request, as `rdma_accept(3)` requires. Otherwise the peer's
    /// queue pair would have to serve more reads than the peer has set aside. The C library does
    /// not check this.
    ///
    /// Responder resources beyond the request are an offer; today's `rdma_accept(3)` allows it, an
    /// older one did not. On InfiniBand and RoCE the peer's queue pair takes them as its initiator
    /// depth. If the peer's device cannot do that, the peer gets `ConnectError`. On iWARP a request
    /// may carry no depths, and the device negotiates them with the peer.
    ///
    /// On an id for datagrams the answer carries the number and the Q_Key of the id's queue pair,
    /// or of the queue pair that `param` names. The state of the queue pair does not change, and no
    /// event follows on this side. The program may drop the id as soon as it no longer needs the
    /// queue pair.
    ///
    /// # Errors
    ///
    /// - [`ErrorKind::InvalidInput`] if no request created the id, or if it is accepted already.
    /// - [`ErrorKind::InvalidInput`] if the private data is longer than 196 bytes (136 on an id for
    ///   datagrams, 251 on iWARP).
    /// - [`ErrorKind::InvalidInput`] if a depth exceeds the limit of the device, or (not on iWARP)
    ///   if the initiator depth exceeds the offer of the request.
    /// - [`ErrorKind::InvalidInput`] if the id has no queue pair and [`ConnParam::qp_num`] is 0.
    /// - [`ErrorKind::Unsupported`] as for [`connect`](Self::connect).
    /// - EINVAL if the id is in the wrong state.
    ///
    /// If the queue pair cannot be brought to RTS, nothing was sent to the peer:
    /// [`reject`](Self::reject) it, or drop the id. If the kernel refuses the command itself, the
    /// queue pair is in ERR. The kernel has then rejected the peer if there was a peer to reject.
    ///
    /// # Driver notes
    ///
    /// siw negotiates no depth beyond those of a request that carries depths.
    ///
    /// siw (Linux 6.1 and 6.12 at least) answers the peer before it watches the socket, and does
    /// not check for data that arrived in between. A message that the peer sends at once may stay
    /// unprocessed until more data arrives from the peer, or until the connection ends. A peer that
    /// waits for the answer to its first message should therefore use a deadline, and then send
    /// more. An RDMA write without bytes is enough and changes nothing. This side cannot send first
    /// instead: see [`connect`](Self::connect).
    ///
    /// Kernel command: `RDMA_USER_CM_CMD_ACCEPT`, after `RDMA_USER_CM_CMD_INIT_QP_ATTR` (three
    /// times) and `IB_USER_VERBS_CMD_MODIFY_QP` (twice). On iWARP the kernel does the last step in
    /// ACCEPT.
    #[doc(alias = "rdma_accept")]
    pub fn accept(&self, param: &ConnParam) -> Result<()> {
        const OPERATION: &str = ACCEPT;
        let device = self.inner.device()?;
        let limits = device.depth_limits(OPERATION, self.inner.service(), param)?;
        let (requested_depths, qp, ece) = {
            let state = self.inner.state();
            (state.requested_depths, state.qp.clone(), state.answer_ece())
        };
        let transport = device.transport();
        self.inner.check(OPERATION, param, Message::Reply, transport, limits, qp.as_ref())?;
        self.inner.check_offer(OPERATION, param, requested_depths, transport)?;
        let depths = effective_depths(param, limits.within(requested_depths.unwrap_or_default()));
        let request = rdma_ucm_accept {
            uid: self.inner.token.get().into(),
            conn_param: encode(param, depths, qp.as_ref()),
            id: self.inner.handle,
            reserved: 0,
            ece: ece.into(),
        };
        let send_accept = || {
            let accepted = self.inner.command(OPERATION, || self.inner.to_string(), request);
            match accepted {
                Ok(()) => self.inner.state().named_qp = request.conn_param.qp_num,
                Err(_) => self.inner.fail_qp(),
            }
            accepted
        };
        let connected = self.inner.service() == ServiceType::Connected;
        let steps = transition::connected(Some(depths));
        let start = || {
            self.inner.take_acceptance(OPERATION)?;
            let modified = match &qp {
                Some(qp) if connected => self.inner.apply_steps(&steps, qp),
                _ => Ok(()),
            };
            modified
                .and_then(|()| send_accept())
                .inspect_err(|_| self.inner.state().acceptable = true)
        };
        if connected { self.inner.start_and_wait(EventType::Established, start) } else { start() }
    }

    /// Rejects the connection request that created this id.
    ///
    /// `private_data` is for the peer's program. The peer gets `Rejected` with the private data and
    /// [`RejectReason::CONSUMER_DEFINED`] (on iWARP with an errno). A peer that requested the
    /// address of a datagram service gets `Unreachable` with status 2 and the private data.
    ///
    /// No event follows on this side. The id cannot be used any more.
    ///
    /// # Errors
    ///
    /// - EINVAL if the id is in the wrong state.
    /// - [`ErrorKind::InvalidInput`] if the private data is longer than 148 bytes (136 on an id for
    ///   datagrams, 251 on iWARP).
    ///
    /// Kernel command: `RDMA_USER_CM_CMD_REJECT`.
    #[doc(alias = "rdma_reject")]
    pub fn reject(&self, private_data: &[u8]) -> Result<()> {
        // 0 means "consumer defined". Linux before 5.8 treats every rejection so.
        self.reject_because(ib_cm_rej_reason(0), private_data)
    }

    pub(super) fn reject_because(
        &self,
        reason: ib_cm_rej_reason,
        private_data: &[u8],
    ) -> Result<()> {
        const OPERATION: &str = "reject";
        let transport = self.inner.device()?.transport();
        self.inner.check_private_data(OPERATION, private_data, Message::Reject, transport)?;
        let (private_data, private_data_len) = private_data_field(private_data);
        let request = rdma_ucm_reject {
            id: self.inner.handle,
            private_data_len,
            reason: u8::try_from(reason.0).expect("0 and 35 fit"),
            reserved: [0; 2],
            private_data,
        };
        self.inner.command(OPERATION, || self.inner.to_string(), request)
    }

    /// Ends the connection.
    ///
    /// The queue pair moves to ERR, which completes posted work requests with a flush error. On
    /// iWARP this also closes the connection.
    ///
    /// `Disconnected` follows on both sides; `TimewaitExit` may follow much later. Each side calls
    /// this, also the side that received `Disconnected`: the call flushes its queue pair and
    /// answers the peer. The peer gets `Disconnected` only then, or with status -ETIMEDOUT after
    /// more than a minute without an answer.
    ///
    /// If no connection is established, the kernel has nothing to end. Examples are an id after
    /// `Rejected`, a request that was not accepted, a second call after `Disconnected`, and an id
    /// that is still connecting. The call then succeeds, the queue pair is in ERR, and no
    /// `Disconnected` follows. The result of a connection attempt still follows (`ConnectError`,
    /// `Rejected`, `Unreachable`).
    ///
    /// # Errors
    ///
    /// - [`ErrorKind::InvalidInput`] if the id has no device, or is for datagrams.
    /// - EINVAL if no connection was attempted; the queue pair is in ERR then.
    ///
    /// # Driver notes
    ///
    /// On iWARP, if the peer has not answered [`connect`](Self::connect) yet, the command takes
    /// until the peer answers or the driver gives up (siw after about 10 s).
    ///
    /// Kernel command: `RDMA_USER_CM_CMD_DISCONNECT`. It is omitted if the flush closed the
    /// connection, because the command would do nothing.
    #[doc(alias = "rdma_disconnect")]
    pub fn disconnect(&self) -> Result<()> {
        self.inner.check_service("disconnect")?;
        self.inner.device()?;
        self.inner.start_and_wait(EventType::Disconnected, || {
            let qp = self.inner.state().qp.clone();
            if let Some(qp) = qp {
                let closes = self.inner.is_closed_by(&qp);
                self.inner.flush(&qp)?;
                if closes {
                    return Ok(());
                }
            }
            let request = rdma_ucm_disconnect { id: self.inner.handle };
            self.inner.command("disconnect", || self.inner.to_string(), request)
        })
    }

    /// Confirms the connection of an id without a queue pair of its own.
    ///
    /// Call this after `ConnectResponse`, when the program has brought the queue pair that it named
    /// to RTS with [`init_qp_attr`](Self::init_qp_attr). The connection is established when the
    /// call returns. `Established` follows on the peer, no event on this side.
    ///
    /// # Errors
    ///
    /// - [`ErrorKind::InvalidInput`] if the id has a queue pair of its own, which the library
    ///   manages, or is for datagrams.
    /// - EINVAL if the id is in the wrong state.
    ///
    /// Kernel command: `RDMA_USER_CM_CMD_ACCEPT` without parameters.
    #[doc(alias = "rdma_establish")]
    pub fn establish(&self) -> Result<()> {
        self.inner.check_service("establish")?;
        self.inner.check_process("establish")?;
        if self.inner.state().qp.is_some() {
            let reason =
                "the library confirms the connection, because the id has a queue pair of its own";
            return Err(Error::invalid("establish", self.inner.to_string(), reason));
        }
        self.inner.confirm()
    }

    /// Returns the attributes with which a queue pair goes to `state`.
    ///
    /// Only the attributes that the connection manager knows are set. They are for
    /// [`QueuePair::modify`] of a queue pair that is not the id's own.
    ///
    /// # Errors
    ///
    /// - EINVAL if the id has no device, or does not know the attributes yet.
    ///
    /// Kernel command: `RDMA_USER_CM_CMD_INIT_QP_ATTR`.
    #[doc(alias = "rdma_init_qp_attr")]
    pub fn init_qp_attr(&self, state: QpState) -> Result<QueuePairAttributes> {
        self.inner.init_qp_attr(state).map(QueuePairAttributes::from)
    }
}

impl Inner {
    /// Returns `true` if the id's queue pairs are XRC targets.
    pub(super) fn is_for_targets(&self) -> bool {
        self.qp_type == QpType::IB_UVERBS_QPT_XRC_TGT
    }

    /// Makes the queue pair that `create` returns the id's own, in its first state.
    ///
    /// Returns the second value of `create`.
    pub(super) fn create_own_qp<T>(
        &self,
        operation: &'static str,
        create: impl FnOnce(&State) -> Result<(OwnQp, T)>,
    ) -> Result<T> {
        // Held throughout, so that only one of two threads creates the id's queue pair.
        let mut state = self.state();
        if state.qp.is_some() {
            return Err(Error::invalid(
                operation,
                self.to_string(),
                "the id already has a queue pair",
            ));
        }
        let (qp, created) = create(&state)?;
        state.offer_ece(&qp)?;
        self.apply_steps(transition::created(self.service()), &qp)?;
        state.record_ece(&qp);
        state.qp = Some(qp);
        Ok(created)
    }

    /// Checks that there is a request to accept, and claims it for this caller.
    fn take_acceptance(&self, operation: &'static str) -> Result<()> {
        self.check_process(operation)?;
        // The kernel would refuse only after the queue pair of an established connection was
        // modified.
        if mem::take(&mut self.state().acceptable) {
            return Ok(());
        }
        let reason = "no request created the id, or the id was accepted already";
        Err(Error::invalid(operation, self.to_string(), reason))
    }

    /// Notifies the peer, which has accepted, that the queue pair is ready.
    pub(super) fn confirm(&self) -> Result<()> {
        const OPERATION: &str = "confirm the connection of";
        self.check_process(OPERATION)?;
        // Without parameters (`valid` is 0) the command means "ready to use".
        let request = rdma_ucm_accept {
            uid: AlignedU64::default(),
            conn_param: rdma_ucm_conn_param::new_zeroed(),
            id: self.handle,
            reserved: 0,
            ece: rdma_ucm_ece::default(),
        };
        // Held throughout: another thread may read at once that the peer has disconnected.
        let mut state = self.state();
        self.command(OPERATION, || self.to_string(), request)?;
        state.established = true;
        Ok(())
    }

    /// Moves the id's queue pair, if there is one, to ERR.
    ///
    /// A failure is ignored, because no other action remains.
    fn fail_qp(&self) {
        let qp = self.state().qp.clone();
        if let Some(qp) = qp {
            let _ = self.flush(&qp);
        }
    }

    /// Moves `qp` to ERR, unless it is in ERR and cannot leave it.
    pub(super) fn flush(&self, qp: &OwnQp) -> Result<()> {
        if qp.has_ended() { Ok(()) } else { self.apply_steps(&transition::ended(), qp) }
    }

    /// Returns `true` if the connection is established and ends when `qp` moves to ERR.
    ///
    /// In that case the driver itself notifies the kernel's connection manager. DISCONNECT would
    /// only ask the driver to close a closed connection.
    fn is_closed_by(&self, qp: &OwnQp) -> bool {
        let state = self.state();
        let is_its_own = state.established && state.named_qp == qp.number();
        is_its_own && qp.ends_with_connection() && !qp.has_ended()
    }

    /// Takes `qp` through `steps`.
    pub(super) fn apply_steps(&self, steps: &[Step], qp: &OwnQp) -> Result<()> {
        transition::apply_steps(steps, qp, |state| self.init_qp_attr(state))
    }

    /// Returns the connection manager's attributes for moving a queue pair to `state`.
    fn init_qp_attr(&self, state: QpState) -> Result<ib_uverbs_qp_attr> {
        let request = rdma_ucm_init_qp_attr {
            response: AlignedU64::default(),
            id: self.handle,
            qp_state: u32::from(state.0),
        };
        let answered = self.command(ASK_FOR_ATTRIBUTES, || self.to_string(), request);
        answered.map_err(|error| error.with_hint(Errno::EINVAL, OUT_OF_STATE))
    }

    /// Checks that the id is for connections, as `operation` is.
    fn check_service(&self, operation: &'static str) -> Result<()> {
        match self.service() {
            ServiceType::Connected => Ok(()),
            ServiceType::Datagram => {
                let reason = "the id is for datagrams, which have no connection";
                Err(Error::invalid(operation, self.to_string(), reason))
            }
        }
    }
}
