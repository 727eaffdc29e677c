//! Connecting, accepting, rejecting, disconnecting, and the queue pair that goes with it.

use std::mem;

use nix::errno::Errno;
use ucma_abi::{
    RDMA_MAX_PRIVATE_DATA, ib_cm_rej_reason, rdma_ucm_accept, rdma_ucm_conn_param,
    rdma_ucm_connect, rdma_ucm_disconnect, rdma_ucm_ece, rdma_ucm_init_qp_attr, rdma_ucm_reject,
};
use verbs_abi::{AlignedU64, ib_uverbs_qp_attr};
use zerocopy::FromZeros;

use super::ece::Ece;
use super::id::CmId;
use super::param::ConnParam;
use super::parse::EventType;
use super::record::Inner;
use super::service_type::ServiceType;
use super::transition::{self, Step};
use crate::addr::AddressFamily;
use crate::device::Transport;
#[cfg(doc)]
use crate::error::RejectReason;
use crate::error::{Error, ErrorKind, Result};
#[cfg(doc)]
use crate::verbs::Context;
use crate::verbs::{
    Depths, ProtectionDomain, QpState, QueuePair, QueuePairAttributes, QueuePairInit,
};

/// The meaning of EINVAL for attributes that the kernel does not know.
const OUT_OF_STATE: &str =
    "its connection is not in a state that has them: the peer may have given up";

/// No enhanced connection establishment.
const NO_ECE: rdma_ucm_ece = rdma_ucm_ece { vendor_id: 0, attr_mod: 0 };

/// The highest number of a queue pair.
const MAX_QP_NUM: u32 = 0xff_ffff;

/// Bytes that the kernel puts before the private data of a request for an IP address.
const IP_HEADER: usize = 36;

/// A message that carries private data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Message {
    Request,
    Reply,
    Reject,
}

/// How many bytes of private data `message` has room for: the field of the InfiniBand management
/// datagram less the header that the kernel puts into a request for IP addresses
/// (`include/rdma/ib_cm.h`, `cma_user_data_offset`); on iWARP what fits into the byte that counts
/// it, less the four bytes that siw adds.
fn private_data_limit(
    message: Message,
    service: ServiceType,
    transport: Transport,
    peer_is_ib: bool,
) -> usize {
    let header = if peer_is_ib { 0 } else { IP_HEADER };
    match (transport, service, message) {
        (Transport::Iwarp, _, _) => 251,
        (_, ServiceType::Connected, Message::Request) => 92 - header,
        (_, ServiceType::Connected, Message::Reply) => 196,
        (_, ServiceType::Connected, Message::Reject) => 148,
        (_, ServiceType::Datagram, Message::Request) => 216 - header,
        (_, ServiceType::Datagram, Message::Reply | Message::Reject) => 136,
    }
}

impl CmId {
    /// Makes the id's queue pair, of the id's [type](Self::qp_type), and brings it to INIT, so that
    /// receives can be posted before the connection stands; a queue pair for datagrams to RTS, ready
    /// to send.
    ///
    /// `IB_USER_VERBS_CMD_CREATE_QP`, `RDMA_USER_CM_CMD_INIT_QP_ATTR`,
    /// `IB_USER_VERBS_CMD_MODIFY_QP`. The id brings its queue pair to the states that
    /// go with the connection by itself. The id holds the queue pair as long as it lives, or until
    /// [`destroy_qp`](Self::destroy_qp); the kernel's object goes when the last holder lets go. It
    /// receives from the id's [shared receive queue](Self::create_srq) if there is one and `init`
    /// names no other.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`] where the id has no device yet, has a queue pair already, `pd` was
    /// not made in the id's [`context`](Self::context), or the id's queue pairs are XRC targets, which are
    /// no id's own: see [`XrcTarget`](crate::verbs::XrcTarget); those of [`QueuePair::new`].
    #[doc(alias = "rdma_create_qp")]
    #[doc(alias = "rdma_create_qp_ex")]
    pub fn create_qp(&self, pd: &ProtectionDomain, init: &QueuePairInit<'_>) -> Result<QueuePair> {
        const OPERATION: &str = "create the queue pair of";
        let subject = || self.inner.to_string();
        if *pd.context() != self.context()? {
            let reason = "the protection domain is of another context than CmId::context";
            return Err(Error::invalid(OPERATION, subject(), reason));
        }
        // Held throughout: of two threads only one makes the id's queue pair.
        let mut state = self.inner.state();
        if state.qp.is_some() {
            return Err(Error::invalid(OPERATION, subject(), "it has one already"));
        }
        let srq = init.srq.or(state.srq.as_ref());
        let init = QueuePairInit { srq, ..*init };
        let qp = QueuePair::with_type(pd, self.inner.qp_type, &init)?;
        self.inner.carry_out(transition::created(self.inner.service()), &qp)?;
        state.qp = Some(qp.clone());
        Ok(qp)
    }

    /// The queue pair that [`create_qp`](Self::create_qp) made.
    pub fn qp(&self) -> Option<QueuePair> {
        if self.inner.process.is_current() { self.inner.state().qp.clone() } else { None }
    }

    /// Lets go of the id's queue pair, which is destroyed unless the program, or a memory window of
    /// type 2 that was bound by it, holds it too: then it stays, in the state that it is in, until the
    /// last of those goes. It is detached from the multicast groups of the id; the id is in them still.
    #[doc(alias = "rdma_destroy_qp")]
    pub fn destroy_qp(&self) {
        self.inner.let_go_of_qp();
    }

    /// Asks the peer at the resolved address to connect; on an id for datagrams, where to send them.
    ///
    /// `RDMA_USER_CM_CMD_CONNECT`. `Established`, `Rejected`, `Unreachable` or `ConnectError`
    /// follows; `ConnectResponse` in place of `Established` on an id without a queue pair of
    /// its own, see [`establish`](Self::establish).
    ///
    /// On iWARP the kernel brings the queue pair to RTS by itself, and `Established` follows in
    /// either case. The command itself takes as long as TCP takes to connect: minutes where nobody
    /// answers, in which neither a deadline nor [`destroy`](Self::destroy) from another thread ends
    /// it. Of the two sides the one that connects must be the first to send.
    ///
    /// On an id for datagrams the request is a service resolution (SIDR): `Established` brings
    /// [where to send](super::Event::datagram), and `Unreachable` has an `ib_cm_sidr_status` (1
    /// where nobody listens, 2 where the peer's program rejected) or -ETIMEDOUT. Only the private
    /// data of `param` counts, and nobody knows of a connection afterwards.
    ///
    /// # Errors
    ///
    /// EINVAL before the route is resolved; [`ErrorKind::Invalid`] for private data longer than 56
    /// bytes (180 on an id for datagrams, 36 more where the peer's address is of InfiniBand, 251 on
    /// iWARP), for depths above the device's, and for no queue pair at all where a connection is to
    /// be; [`ErrorKind::Unsupported`] for datagrams on iWARP, and for depths of
    /// [`ConnParam::MAX`] of a connection on a device that [cannot be opened](Context::open). On
    /// iWARP those of TCP: ECONNREFUSED where nobody listens, ETIMEDOUT, EHOSTUNREACH.
    #[doc(alias = "rdma_connect")]
    pub fn connect(&self, param: &ConnParam) -> Result<()> {
        const OPERATION: &str = "connect";
        let device = self.inner.device()?;
        let limits = device.depth_limits(OPERATION, self.inner.service(), param)?;
        let qp = self.qp();
        let param = &self.inner.with_header(param);
        let transport = device.transport();
        self.inner.check(OPERATION, param, Message::Request, transport, limits, qp.as_ref())?;
        let request = rdma_ucm_connect {
            conn_param: encode(param, settled(param, limits), qp.as_ref()),
            id: self.inner.handle,
            reserved: 0,
            ece: if qp.is_none() { self.inner.state().local_ece.into() } else { NO_ECE },
        };
        let start = || {
            self.inner.command(OPERATION, || self.inner.with_peer(), request)?;
            self.inner.state().named_qp = request.conn_param.qp_num;
            Ok(())
        };
        self.inner.complete(EventType::Established, start)
    }

    /// Accepts the request that brought this id.
    ///
    /// `RDMA_USER_CM_CMD_ACCEPT`, after the id's queue pair was brought to RTS (INIT_QP_ATTR three
    /// times and MODIFY_QP twice; on iWARP the last step is the kernel's, in ACCEPT). `Established`
    /// follows; `Disconnected`, `Unreachable` or `ConnectError` where the peer does not go on.
    ///
    /// Depths of [`ConnParam::MAX`] become what the request asks for, within what the device can.
    /// Others are held to what the device can, and the initiator depth to what the request offers,
    /// as `rdma_accept(3)` wants it: the peer's queue pair would have to hold more reads than the
    /// peer has set aside. (The C library lets that pass.) Responder resources beyond the request
    /// are an offer, which that page allows today and an older one did not: on InfiniBand and RoCE
    /// the peer's queue pair takes them for its initiator depth, and if its device cannot, the peer
    /// has `ConnectError`. On iWARP a request may say nothing of depths, and the device settles them
    /// with the peer: siw goes no deeper than a request that does.
    ///
    /// On an id for datagrams the answer tells the peer the number and the Q_Key of the id's queue
    /// pair, or of the one that `param` names; its state does not change, no event follows here, and
    /// the id may be dropped as soon as its queue pair is of no more use.
    ///
    /// siw (of Linux 6.1 and 6.12 at least) answers the peer before it listens to the socket itself,
    /// and does not look for what has come in between: a message that the peer sends at once may lie
    /// there until more comes from the peer, if only the end of the connection. A peer that waits for
    /// an answer to its first message should not do so without end, but send something more after a
    /// while: an RDMA write without bytes is enough, and changes nothing. (That this side sends first
    /// is no way out: see [`connect`](Self::connect).)
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`] for private data longer than 196 bytes (136 on an id for datagrams,
    /// 251 on iWARP), for depths above the device's, for an initiator depth above the request's
    /// (not on iWARP), and for no queue pair at all; EINVAL in the wrong state. Where the queue
    /// pair cannot be brought to RTS, nothing was said to the peer: [`reject`](Self::reject) it, or
    /// drop the id. [`ErrorKind::Invalid`] on an id that no request brought, or that is accepted
    /// already. Where the command itself is refused the queue pair is in ERR, and the kernel has
    /// rejected the peer if there was one to reject. [`ErrorKind::Unsupported`] as for
    /// [`connect`](Self::connect).
    #[doc(alias = "rdma_accept")]
    pub fn accept(&self, param: &ConnParam) -> Result<()> {
        const OPERATION: &str = "accept";
        let device = self.inner.device()?;
        let limits = device.depth_limits(OPERATION, self.inner.service(), param)?;
        let (asked, qp, ece) = {
            let state = self.inner.state();
            let vendor_id = state.remote_ece.vendor_id;
            let ece = Ece { vendor_id, options: state.local_ece.options };
            (state.asked, state.qp.clone(), ece)
        };
        let transport = device.transport();
        self.inner.check(OPERATION, param, Message::Reply, transport, limits, qp.as_ref())?;
        self.inner.check_offer(OPERATION, param, asked, transport)?;
        let depths = settled(param, limits.within(asked.unwrap_or_default()));
        let request = rdma_ucm_accept {
            uid: self.inner.token.get().into(),
            conn_param: encode(param, depths, qp.as_ref()),
            id: self.inner.handle,
            reserved: 0,
            ece: if qp.is_none() { ece.into() } else { NO_ECE },
        };
        let say = || {
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
            let carried_out = match &qp {
                Some(qp) if connected => self.inner.carry_out(&steps, qp),
                _ => Ok(()),
            };
            carried_out.and_then(|()| say()).inspect_err(|_| self.inner.state().acceptable = true)
        };
        if connected { self.inner.complete(EventType::Established, start) } else { start() }
    }

    /// Rejects the request that brought this id, with bytes for the peer's program.
    ///
    /// `RDMA_USER_CM_CMD_REJECT`. The peer gets `Rejected` with [`RejectReason::CONSUMER_DEFINED`]
    /// (on iWARP with an errno) and the private data; a peer that asked where to send datagrams gets
    /// `Unreachable` with status 2 and the private data. No event follows here; the id is of no more
    /// use.
    ///
    /// # Errors
    ///
    /// EINVAL in the wrong state; [`ErrorKind::Invalid`] for private data longer than 148 bytes
    /// (136 on an id for datagrams, 251 on iWARP).
    #[doc(alias = "rdma_reject")]
    pub fn reject(&self, private_data: &[u8]) -> Result<()> {
        // The program's own reason, which Linux before 5.8 takes all rejections for.
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
    /// The queue pair goes to ERR, which completes what is posted with a flush error and on iWARP closes
    /// the connection; then `RDMA_USER_CM_CMD_DISCONNECT`, but for a connection that was closed so: the
    /// command would find nothing to do. `Disconnected` follows on both sides, `TimewaitExit` may
    /// follow much later. Each side calls this: the one that was told by `Disconnected` too. That
    /// flushes its queue pair and answers the peer, which hears `Disconnected` only then, or when
    /// it has waited in vain for more than a minute (with status -ETIMEDOUT).
    ///
    /// Where no connection is established the kernel has nothing to end: after `Rejected`, on a request
    /// that was not accepted, once more after `Disconnected`, while connecting. The call has success
    /// all the same, the queue pair is in ERR, and no `Disconnected` follows; what the attempt to
    /// connect comes to still does (`ConnectError`, `Rejected`, `Unreachable`).
    ///
    /// On iWARP the command takes until the peer answers or the driver gives up (siw about 10 s)
    /// where it has not answered [`connect`](Self::connect) yet.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`] where the id has no device, or is for datagrams; EINVAL where nobody
    /// has tried to connect, its queue pair being in ERR then.
    #[doc(alias = "rdma_disconnect")]
    pub fn disconnect(&self) -> Result<()> {
        self.inner.check_service("disconnect")?;
        self.inner.device()?;
        self.inner.complete(EventType::Disconnected, || {
            if let Some(qp) = self.qp() {
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

    /// Confirms the connection on an id without a queue pair of its own, after `ConnectResponse`
    /// and after the program has brought the queue pair that it named to RTS with
    /// [`init_qp_attr`](Self::init_qp_attr).
    ///
    /// `RDMA_USER_CM_CMD_ACCEPT` without parameters. On the peer `Established` follows; here the
    /// connection stands when the call returns.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`] where the id has a queue pair of its own, which the library looks
    /// after, or is for datagrams; EINVAL in the wrong state.
    #[doc(alias = "rdma_establish")]
    pub fn establish(&self) -> Result<()> {
        self.inner.check_service("establish")?;
        if self.qp().is_some() {
            let reason = "the id has a queue pair of its own, and is confirmed by the library";
            return Err(Error::invalid("establish", self.inner.to_string(), reason));
        }
        self.inner.confirm()
    }

    /// Returns the attributes, as far as the connection manager knows them, with which a queue pair goes to
    /// `state`: for [`QueuePair::modify`] of a queue pair that is not the id's own.
    ///
    /// `RDMA_USER_CM_CMD_INIT_QP_ATTR`.
    ///
    /// # Errors
    ///
    /// EINVAL where the id has no device, or does not know them yet.
    #[doc(alias = "rdma_init_qp_attr")]
    pub fn init_qp_attr(&self, state: QpState) -> Result<QueuePairAttributes> {
        self.inner.init_qp_attr(state).map(QueuePairAttributes::from)
    }
}

impl Inner {
    /// That there is a request to accept, which nobody else accepts from now on.
    fn take_acceptance(&self, operation: &'static str) -> Result<()> {
        self.check_process(operation)?;
        // The kernel would refuse only after the queue pair of a connection that stands was touched.
        if mem::take(&mut self.state().acceptable) {
            return Ok(());
        }
        let reason = "no request brought it, or it is accepted already";
        Err(Error::invalid(operation, self.to_string(), reason))
    }

    /// Tells the peer that accepted that the queue pair is ready.
    pub(super) fn confirm(&self) -> Result<()> {
        const OPERATION: &str = "confirm the connection of";
        self.check_process(OPERATION)?;
        // Without parameters (`valid` is 0) the command means "ready to use".
        let request = rdma_ucm_accept {
            uid: AlignedU64::default(),
            conn_param: rdma_ucm_conn_param::new_zeroed(),
            id: self.handle,
            reserved: 0,
            ece: NO_ECE,
        };
        // Held throughout: another thread may read at once that the peer has disconnected.
        let mut state = self.state();
        self.command(OPERATION, || self.to_string(), request)?;
        state.established = true;
        Ok(())
    }

    /// Moves the id's queue pair, if there is one, to ERR. If that fails, nothing else can be done.
    fn fail_qp(&self) {
        let qp = self.state().qp.clone();
        if let Some(qp) = qp {
            let _ = self.flush(&qp);
        }
    }

    /// Moves `qp` to ERR, unless it is in ERR for good.
    pub(super) fn flush(&self, qp: &QueuePair) -> Result<()> {
        if qp.has_ended() { Ok(()) } else { self.carry_out(&transition::ended(), qp) }
    }

    /// Returns `true` if the connection stands, and ends when `qp` goes to ERR: then the driver itself tells the
    /// kernel's connection manager, and DISCONNECT, which asks the driver to close what is closed already, adds
    /// nothing to that.
    fn is_closed_by(&self, qp: &QueuePair) -> bool {
        let state = self.state();
        let is_its_own = state.established && state.named_qp == qp.number();
        is_its_own && qp.ends_with_connection() && !qp.has_ended()
    }

    /// Takes `qp` through `steps`.
    pub(super) fn carry_out(&self, steps: &[Step], qp: &QueuePair) -> Result<()> {
        transition::carry_out(steps, qp, |state| self.init_qp_attr(state))
    }

    /// Returns the attributes, as far as the connection manager knows them, with which a queue pair goes to
    /// `state`.
    fn init_qp_attr(&self, state: QpState) -> Result<ib_uverbs_qp_attr> {
        let request = rdma_ucm_init_qp_attr {
            response: AlignedU64::default(),
            id: self.handle,
            qp_state: u32::from(state.0),
        };
        let answered =
            self.command("ask for the queue pair attributes of", || self.to_string(), request);
        answered.map_err(|error| error.with_remedy(Errno::EINVAL, OUT_OF_STATE))
    }

    /// That the id is for connections, as `operation` is.
    fn check_service(&self, operation: &'static str) -> Result<()> {
        match self.service() {
            ServiceType::Connected => Ok(()),
            ServiceType::Datagram => {
                let reason = "it is for datagrams, which have no connection";
                Err(Error::invalid(operation, self.to_string(), reason))
            }
        }
    }

    /// `param` with what goes before the program's private data.
    fn with_header(&self, param: &ConnParam) -> ConnParam {
        let mut param = param.clone();
        param.private_data.splice(..0, self.state().connect_header.iter().copied());
        param
    }

    /// Checks `param` before the kernel is asked.
    fn check(
        &self,
        operation: &'static str,
        param: &ConnParam,
        message: Message,
        transport: Transport,
        limits: Depths,
        qp: Option<&QueuePair>,
    ) -> Result<()> {
        let invalid = |reason: String| Err(Error::invalid(operation, self.to_string(), reason));
        let connected = self.service() == ServiceType::Connected;
        if !connected && transport == Transport::Iwarp {
            // The kernel would go on to connect by TCP.
            let kind = ErrorKind::Unsupported("datagrams on iWARP".into());
            return Err(Error::new(operation, self.to_string(), kind));
        }
        self.check_private_data(operation, &param.private_data, message, transport)?;
        for (name, wanted, most) in [
            ("responder resources", param.responder_resources, limits.responder_resources),
            ("initiator depth", param.initiator_depth, limits.initiator_depth),
        ] {
            if connected && wanted != ConnParam::MAX && wanted > most {
                return invalid(format!("{name} of {wanted} where the device has {most}"));
            }
        }
        // Who asks where to send need not have a queue pair yet.
        let needs_qp = connected || message == Message::Reply;
        match (qp, param.qp_num) {
            (None, 0) if needs_qp => {
                invalid("there is no queue pair: create one, or name one by its number".into())
            }
            (None, number) if number > MAX_QP_NUM => {
                invalid(format!("{number:#x} is no number of a queue pair"))
            }
            _ => Ok(()),
        }
    }

    /// That an answer goes no deeper into the peer than the request that brought the id `offers`.
    fn check_offer(
        &self,
        operation: &'static str,
        param: &ConnParam,
        offers: Option<Depths>,
        transport: Transport,
    ) -> Result<()> {
        // On iWARP the first version of MPA has no room for depths.
        let offers = offers.filter(|_| transport != Transport::Iwarp);
        match (param.initiator_depth, offers.map(|offers| offers.initiator_depth)) {
            (ConnParam::MAX, _) | (_, None) => Ok(()),
            (wanted, Some(offered)) if wanted <= offered => Ok(()),
            (wanted, Some(offered)) => {
                let reason =
                    format!("initiator depth of {wanted} where the request offers {offered}");
                Err(Error::invalid(operation, self.to_string(), reason))
            }
        }
    }

    fn check_private_data(
        &self,
        operation: &'static str,
        private_data: &[u8],
        message: Message,
        transport: Transport,
    ) -> Result<()> {
        let peer_is_ib = self.state().peer.is_some_and(|peer| peer.family() == AddressFamily::Ib);
        let limit = private_data_limit(message, self.service(), transport, peer_is_ib);
        if private_data.len() <= limit {
            return Ok(());
        }
        let reason =
            format!("{} bytes of private data where {limit} are the most", private_data.len());
        Err(Error::invalid(operation, self.to_string(), reason))
    }
}

/// Returns the depths of `param`, with `most` in place of [`ConnParam::MAX`].
fn settled(param: &ConnParam, most: Depths) -> Depths {
    let pick = |wanted, most| if wanted == ConnParam::MAX { most } else { wanted };
    Depths {
        responder_resources: pick(param.responder_resources, most.responder_resources),
        initiator_depth: pick(param.initiator_depth, most.initiator_depth),
    }
}

/// `param` for the kernel, with the depths that were settled on and the id's own queue pair.
fn encode(param: &ConnParam, depths: Depths, qp: Option<&QueuePair>) -> rdma_ucm_conn_param {
    let (private_data, private_data_len) = private_data_field(&param.private_data);
    rdma_ucm_conn_param {
        qp_num: qp.map_or(param.qp_num, QueuePair::number),
        qkey: 0,
        private_data,
        private_data_len,
        srq: u8::from(qp.map_or(param.srq, |qp| qp.srq().is_some())),
        responder_resources: depths.responder_resources,
        initiator_depth: depths.initiator_depth,
        flow_control: param.flow_control,
        retry_count: param.retry_count,
        rnr_retry_count: param.rnr_retry_count,
        valid: 1,
    }
}

/// Private data that was checked to fit, in the field of a command.
fn private_data_field(data: &[u8]) -> ([u8; RDMA_MAX_PRIVATE_DATA], u8) {
    let mut field = [0; RDMA_MAX_PRIVATE_DATA];
    field[..data.len()].copy_from_slice(data);
    (field, u8::try_from(data.len()).expect("no limit is above 251"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn private_data_fits_its_message() {
        let limits = |service, transport, peer_is_ib| {
            [Message::Request, Message::Reply, Message::Reject]
                .map(|message| private_data_limit(message, service, transport, peer_is_ib))
        };
        let (connected, datagram) = (ServiceType::Connected, ServiceType::Datagram);
        assert_eq!(limits(connected, Transport::InfiniBand, false), [56, 196, 148]);
        assert_eq!(limits(connected, Transport::InfiniBand, true), [92, 196, 148]);
        assert_eq!(limits(datagram, Transport::InfiniBand, false), [180, 136, 136]);
        assert_eq!(limits(datagram, Transport::InfiniBand, true), [216, 136, 136]);
        assert_eq!(limits(connected, Transport::Iwarp, false), [251; 3]);
    }
}
