//! Whom datagrams go to, and who has sent them.

use std::collections::HashMap;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::{Arc, OnceLock};

use verbs_abi::ib_uverbs_ah_attr;

#[cfg(doc)]
use super::{DatagramSettings, DatagramSocket, Group};
use crate::cm::DatagramParam;
use crate::device::Gid;
use crate::error::{Error, Result};
use crate::verbs::{AddressHandle, Completion, DatagramSource, GRH_LENGTH, ProtectionDomain};

/// Whom datagrams go to: another socket, or all that are in a multicast group.
///
/// Of [`DatagramSocket::resolve_peer`], [`DatagramSocket::recv_from`] and [`Group::peer`], and good for
/// sending on that socket. Two are equal that are the same queue pair at the same address, however
/// they were found, so that a received datagram can be told to be from whom it should be. A clone
/// is cheap and the same; any thread may have one.
///
/// The address handle that sending takes is made when the first datagram is sent. It keeps the
/// protection domain of its socket and the device open, also when the socket is gone.
#[derive(Clone)]
pub struct Peer {
    inner: Arc<Inner>,
}

struct Inner {
    home: Home,
    way: Way,
    place: Place,
    qkey: u32,
    handle: OnceLock<AddressHandle>,
}

/// The socket that a peer is good for.
#[derive(Debug, Clone)]
pub(super) struct Home {
    pd: ProtectionDomain,
    mark: Mark,
}

/// What no other socket has.
pub(super) type Mark = Arc<()>;

impl Home {
    pub(super) fn new(pd: &ProtectionDomain, mark: &Mark) -> Self {
        Self { pd: pd.clone(), mark: Arc::clone(mark) }
    }
}

/// How a peer is reached.
enum Way {
    To(ib_uverbs_ah_attr),
    /// Back to where a datagram came from, through that port.
    Back(DatagramSource, u8),
}

/// What a peer is known by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Place {
    gid: Option<Gid>,
    lid: u16,
    qp_num: u32,
}

impl Peer {
    /// Whom the connection manager has found.
    pub(super) fn new(home: &Home, param: &DatagramParam) -> Self {
        let address = &param.ah_attr;
        let gid = (address.is_global != 0).then_some(Gid(address.grh.dgid));
        let place = Place { gid, lid: address.dlid, qp_num: param.qp_num };
        Self::at(home, Way::To(*address), place, param.qkey)
    }

    fn at(home: &Home, way: Way, place: Place, qkey: u32) -> Self {
        let handle = OnceLock::new();
        Self { inner: Arc::new(Inner { home: home.clone(), way, place, qkey, handle }) }
    }

    /// The GID of the peer's port, or of the group: on RoCE an IP address. A peer on InfiniBand need
    /// not have one.
    pub fn gid(&self) -> Option<Gid> {
        self.inner.place.gid
    }

    /// The number of the peer's queue pair, 24 bits; 0xffffff of a group.
    pub fn qp_num(&self) -> u32 {
        self.inner.place.qp_num
    }

    /// Returns `true` if the address handle is there.
    pub(super) fn is_ready(&self) -> bool {
        self.inner.handle.get().is_some()
    }

    /// The Q_Key of the peer's queue pair.
    pub(super) fn qkey(&self) -> u32 {
        self.inner.qkey
    }

    /// Returns the address handle of the peer, for the socket that has `mark`.
    pub(super) fn address(&self, operation: &'static str, mark: &Mark) -> Result<&AddressHandle> {
        let Inner { home: Home { pd, mark: home }, way, handle, .. } = &*self.inner;
        if !Arc::ptr_eq(home, mark) {
            let subject = format!("a datagram to {self:?}");
            return Err(Error::invalid(operation, subject, "the peer is of another socket"));
        }
        Ok(match handle.get() {
            Some(address) => address,
            None => {
                let made = match way {
                    Way::To(attributes) => AddressHandle::new(pd, attributes),
                    Way::Back(source, port) => AddressHandle::for_source(pd, source, *port),
                }?;
                handle.get_or_init(|| made)
            }
        })
    }
}

impl PartialEq for Peer {
    fn eq(&self, other: &Self) -> bool {
        self.inner.place == other.inner.place
    }
}

impl Eq for Peer {}

impl Hash for Peer {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.inner.place.hash(state);
    }
}

impl fmt::Debug for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Place { gid, lid, qp_num } = self.inner.place;
        match gid {
            Some(gid) => write!(f, "queue pair {qp_num:#x} at {}", std::net::Ipv6Addr::from(gid)),
            None => write!(f, "queue pair {qp_num:#x} at LID {lid:#x}"),
        }
    }
}

/// The sender of a datagram.
///
/// If another peer was forgotten for it, that one goes with it: dropping a peer may destroy its address handle, which is a
/// command, and is left to the caller that takes the datagram.
#[derive(Debug)]
pub(super) struct Sender {
    pub(super) peer: Peer,
    _forgotten: Option<Peer>,
}

/// Those that have sent datagrams to a socket: so many of them as are remembered.
pub(super) struct Senders {
    home: Home,
    port: u8,
    /// The socket's own address, from where it answers what came to a group.
    gid: Gid,
    qkey: u32,
    most: usize,
    known: HashMap<(Place, Option<Gid>), Known>,
    /// How many datagrams have come.
    clock: u64,
}

struct Known {
    peer: Peer,
    /// When it sent the last one.
    used: u64,
}

impl Senders {
    pub(super) fn new(home: Home, port: u8, gid: Gid, qkey: u32, most: u32) -> Self {
        let most = usize::try_from(most).expect("32 bits fit");
        Self { home, port, gid, qkey, most, known: HashMap::new(), clock: 0 }
    }

    /// Who has sent the datagram that `completion` is about; nobody, where its header is none.
    ///
    /// Allocates where it is none of those that are remembered; the one that has been silent for
    /// longest is forgotten then.
    pub(super) fn of(
        &mut self,
        completion: &Completion,
        header: &[u8; GRH_LENGTH],
    ) -> Option<Sender> {
        let mut source = DatagramSource::new(completion, header).ok()?;
        if source.is_to_group() {
            source = source.sent_to(self.gid);
        }
        let place = Place { gid: source.gid(), lid: source.lid(), qp_num: source.qp_num() };
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
        let peer = Peer::at(&self.home, Way::Back(source, self.port), place, self.qkey);
        self.known.insert(key, Known { peer: peer.clone(), used: self.clock });
        Some(Sender { peer, _forgotten: forgotten })
    }
}

impl fmt::Debug for Senders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Senders").field("known", &self.known.len()).finish_non_exhaustive()
    }
}
