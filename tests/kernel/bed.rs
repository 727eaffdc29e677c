//! What the test bed has promised, and a connection to begin with.

use std::net::SocketAddr;
use std::time::Duration;

use rdmacm::cm::{CmId, ConnParam, EventChannel, EventType, PortSpace};
use rdmacm::verbs::{
    CompletionChannel, CompletionQueue, ProtectionDomain, QueuePair, QueuePairCaps, QueuePairInit,
};

/// An address of rxe0.
pub(crate) fn rxe(port: u16) -> SocketAddr {
    ([10, 0, 0, 1], port).into()
}

/// Long enough for anything that a loaded machine does.
pub(crate) const LONG: Duration = Duration::from_secs(60);

/// One side of a connection, with what it takes to move data.
pub(crate) struct Side {
    pub(crate) id: CmId,
    pub(crate) qp: QueuePair,
    pub(crate) cq: CompletionQueue,
    pub(crate) pd: ProtectionDomain,
}

impl Side {
    /// Gives `id`, which has a device, a queue pair.
    pub(crate) fn new(id: CmId) -> Self {
        Self::with_caps(id, QueuePairCaps { max_inline_data: 64, ..QueuePairCaps::default() })
    }

    pub(crate) fn with_caps(id: CmId, caps: QueuePairCaps) -> Self {
        let context = id.context().expect("the id has a device");
        let pd = ProtectionDomain::new(&context).expect("protection domain");
        let channel = CompletionChannel::new(&context).expect("completion channel");
        let cq = CompletionQueue::new(&context, 64, Some(&channel)).expect("completion queue");
        let init = QueuePairInit { send_cq: &cq, recv_cq: &cq, caps, signal_all: false };
        let qp = id.create_qp(&pd, &init).expect("queue pair");
        Self { id, qp, cq, pd }
    }
}

/// A listener on a port of the kernel's choice of `address`.
pub(crate) fn listen(channel: &EventChannel, address: SocketAddr) -> (CmId, SocketAddr) {
    let listener = CmId::new(channel, PortSpace::Tcp).expect("id");
    listener.bind(address).expect("bind");
    listener.listen(0).expect("listen");
    let bound = listener.local_addr().expect("query").expect("a bound id has an address");
    (listener, bound)
}

/// An id that is ready to connect to `server`.
pub(crate) fn resolve(channel: &EventChannel, server: SocketAddr) -> CmId {
    let id = CmId::new(channel, PortSpace::Tcp).expect("id");
    id.resolve_addr(None, server, LONG).expect("resolve the address");
    channel.expect_event(EventType::AddrResolved).expect("address resolved");
    id.resolve_route(LONG).expect("resolve the route");
    channel.expect_event(EventType::RouteResolved).expect("route resolved");
    id
}

/// A connection within this process: client and server.
pub(crate) fn connect(channels: [&EventChannel; 2], address: SocketAddr) -> [Side; 2] {
    let [ours, theirs] = channels;
    let (listener, server) = listen(theirs, address);
    let client = Side::new(resolve(ours, server));
    client.id.connect(&ConnParam::default()).expect("connect");
    let mut request = theirs.expect_event(EventType::ConnectRequest).expect("request");
    let id = request.take_request().expect("a request brings an id");
    let peer = Side::new(id);
    peer.id.accept(&ConnParam::default()).expect("accept");
    ours.expect_event(EventType::Established).expect("the client is connected");
    theirs.expect_event(EventType::Established).expect("the server is connected");
    drop(request);
    listener.destroy().expect("destroy the listener");
    [client, peer]
}
