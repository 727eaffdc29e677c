//! [`DatagramPeer`], the destination or the sender of datagrams.

use std::collections::HashMap;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::{Arc, OnceLock};

use verbs_abi::ib_uverbs_ah_attr;

use crate::cm::DatagramParam;
use crate::device::Gid;
#[cfg(doc)]
use crate::endpoint::{DatagramConfig, DatagramSocket, MulticastGroup};
use crate::error::{Error, Result};
use crate::verbs::{AddressHandle, Completion, DatagramSource, GRH_LENGTH, ProtectionDomain};

/// A destination of datagrams: another socket, or all members of a multicast group.
///
/// Created by [`DatagramSocket::start_resolve_peer`], [`DatagramSocket::recv_from`] and [`MulticastGroup::peer`], for
/// that socket. Two peers are equal if they have the same queue pair at the same address, however they were found. So a
/// program can compare the sender of a datagram with the peer that it expects. Cloning is cheap.
///
/// The address handle is created when the first datagram is sent. It keeps the protection domain of its socket and the
/// device open, also after the end of the socket.
///
/// # Examples
///
/// ```no_run
/// use rdmacm::endpoint::{DatagramPeer, DatagramSocket};
///
/// /// Returns the next datagram of `server`, and ignores those of others.
/// fn answer(socket: &DatagramSocket, server: &DatagramPeer) -> rdmacm::Result<Vec<u8>> {
///     loop {
///         let (message, sender) = socket.recv_from()?;
///         if sender == *server {
///             return Ok(message.to_vec());
///         }
///     }
/// }
/// ```
#[derive(Clone)]
pub struct DatagramPeer {
    inner: Arc<Inner>,
}

struct Inner {
    context: PeerContext,
    source: AddressSource,
    place: PeerKey,
    qkey: u32,
    handle: OnceLock<AddressHandle>,
}

/// The socket to which a peer belongs.
#[derive(Debug, Clone)]
pub(in crate::endpoint) struct PeerContext {
    pd: ProtectionDomain,
    socket_id: SocketId,
}

/// An identity of a socket, which no other socket has.
pub(in crate::endpoint) type SocketId = Arc<()>;

impl PeerContext {
    pub(in crate::endpoint) fn new(pd: &ProtectionDomain, socket_id: &SocketId) -> Self {
        Self { pd: pd.clone(), socket_id: Arc::clone(socket_id) }
    }
}

/// The source of a peer's address.
enum AddressSource {
    Resolved(ib_uverbs_ah_attr),
    /// The sender of a received datagram, and the port through which the datagram arrived.
    Sender(DatagramSource, u8),
}

/// The identity of a peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct PeerKey {
    gid: Option<Gid>,
    lid: u16,
    qp_num: u32,
}

impl DatagramPeer {
    /// Creates the peer that the connection manager has resolved.
    pub(in crate::endpoint) fn new(context: &PeerContext, param: &DatagramParam) -> Self {
        let address = &param.ah_attr;
        let gid = (address.is_global != 0).then_some(Gid(address.grh.dgid));
        let place = PeerKey { gid, lid: address.dlid, qp_num: param.qp_num };
        Self::at(context, AddressSource::Resolved(*address), place, param.qkey)
    }

    fn at(context: &PeerContext, source: AddressSource, place: PeerKey, qkey: u32) -> Self {
        let handle = OnceLock::new();
        Self { inner: Arc::new(Inner { context: context.clone(), source, place, qkey, handle }) }
    }

    /// Returns the GID of the peer's port or of the group, on RoCE an IP address.
    ///
    /// A peer on InfiniBand may have none.
    pub fn gid(&self) -> Option<Gid> {
        self.inner.place.gid
    }

    /// Returns the number of the peer's queue pair, which has 24 bits. A group has 0xffffff.
    pub fn qp_num(&self) -> u32 {
        self.inner.place.qp_num
    }

    /// Returns `true` if the address handle exists.
    pub(in crate::endpoint) fn is_ready(&self) -> bool {
        self.inner.handle.get().is_some()
    }

    /// Returns the Q_Key of the peer's queue pair.
    pub(in crate::endpoint) fn qkey(&self) -> u32 {
        self.inner.qkey
    }

    /// Returns the address handle of the peer, for the socket that has `socket_id`.
    pub(in crate::endpoint) fn address(
        &self,
        operation: &'static str,
        socket_id: &SocketId,
    ) -> Result<&AddressHandle> {
        let Inner { context: PeerContext { pd, socket_id: own_id }, source, handle, .. } =
            &*self.inner;
        if !Arc::ptr_eq(own_id, socket_id) {
            let subject = format!("a datagram to {self:?}");
            return Err(Error::invalid(operation, subject, "the peer is of another socket"));
        }
        Ok(match handle.get() {
            Some(address) => address,
            None => {
                let created = match source {
                    AddressSource::Resolved(attributes) => AddressHandle::new(pd, attributes),
                    AddressSource::Sender(source, port) => {
                        AddressHandle::for_source(pd, source, *port)
                    }
                }?;
                handle.get_or_init(|| created)
            }
        })
    }
}

impl PartialEq for DatagramPeer {
    fn eq(&self, other: &Self) -> bool {
        self.inner.place == other.inner.place
    }
}

impl Eq for DatagramPeer {}

impl Hash for DatagramPeer {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.inner.place.hash(state);
    }
}

impl fmt::Debug for DatagramPeer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let PeerKey { gid, lid, qp_num } = self.inner.place;
        match gid {
            Some(gid) => write!(f, "queue pair {qp_num:#x} at {}", std::net::Ipv6Addr::from(gid)),
            None => write!(f, "queue pair {qp_num:#x} at LID {lid:#x}"),
        }
    }
}

/// The sender of a datagram.
///
/// If the cache has removed another peer to add this one, the value contains the removed peer too. Dropping a peer may
/// destroy its address handle, which is a command, so the caller that takes the datagram drops it.
#[derive(Debug)]
pub(in crate::endpoint) struct Sender {
    pub(in crate::endpoint) peer: DatagramPeer,
    _forgotten: Option<DatagramPeer>,
}

/// A cache of the peers that have sent datagrams to a socket.
///
/// It has a limited number of peers.
pub(in crate::endpoint) struct PeerCache {
    context: PeerContext,
    port: u8,
    /// The address of the socket, from which it answers datagrams that were sent to a group.
    gid: Gid,
    qkey: u32,
    most: usize,
    known: HashMap<(PeerKey, Option<Gid>), CachedPeer>,
    /// Number of datagrams that have arrived.
    clock: u64,
}

struct CachedPeer {
    peer: DatagramPeer,
    /// The number of its last datagram.
    used: u64,
}

impl PeerCache {
    /// Creates an empty cache of at most `most` peers.
    pub(in crate::endpoint) fn new(
        context: PeerContext,
        port: u8,
        gid: Gid,
        qkey: u32,
        most: u32,
    ) -> Self {
        let most = usize::try_from(most).expect("32 bits fit");
        Self { context, port, gid, qkey, most, known: HashMap::new(), clock: 0 }
    }

    /// Returns the sender of the datagram of `completion`, or `None` if its header is malformed.
    ///
    /// Allocates if the sender is not cached. The cache then evicts the peer whose last datagram is the oldest.
    pub(in crate::endpoint) fn of(
        &mut self,
        completion: &Completion,
        header: &[u8; GRH_LENGTH],
    ) -> Option<Sender> {
        let mut source = DatagramSource::new(completion, header).ok()?;
        if source.is_to_group() {
            source = source.sent_to(self.gid);
        }
        let place = PeerKey { gid: source.gid(), lid: source.lid(), qp_num: source.qp_num() };
        let key = (place, source.destination());
        self.clock += 1;
        if let Some(known) = self.known.get_mut(&key) {
            known.used = self.clock;
            return Some(Sender { peer: known.peer.clone(), _forgotten: None });
        }
        let mut forgotten = None;
        if self.known.len() >= self.most {
            let oldest = self.known.iter().min_by_key(|(_, known)| known.used);
            if let Some(oldest) = oldest.map(|(key, _)| *key) {
                forgotten = self.known.remove(&oldest).map(|known| known.peer);
            }
        }
        let peer = DatagramPeer::at(
            &self.context,
            AddressSource::Sender(source, self.port),
            place,
            self.qkey,
        );
        self.known.insert(key, CachedPeer { peer: peer.clone(), used: self.clock });
        Some(Sender { peer, _forgotten: forgotten })
    }
}

impl fmt::Debug for PeerCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PeerCache").field("known", &self.known.len()).finish_non_exhaustive()
    }
}
