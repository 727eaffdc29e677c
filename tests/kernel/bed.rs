//! What the test bed has promised, and a connection to begin with.

use std::env;
use std::fs;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::thread;
use std::time::Duration;

use nix::unistd::{Pid, gettid};
use rdmacm::cm::{CmId, ConnParam, EventChannel, EventType, PortSpace};
use rdmacm::device::{self, Device, Resources};
use rdmacm::{Error, ErrorKind};

use crate::io::{Io, Shape};

/// An address of rxe0.
pub(crate) fn rxe(port: u16) -> SocketAddr {
    ([10, 0, 0, 1], port).into()
}

/// The other address of rxe0.
pub(crate) fn rxe_v6(port: u16) -> SocketAddr {
    ([0xfd00, 0, 0, 0, 0, 0, 0, 1], port).into()
}

/// An address of siw0.
pub(crate) fn siw(port: u16) -> SocketAddr {
    ([10, 0, 0, 2], port).into()
}

/// The other address of siw0.
pub(crate) fn siw_v6(port: u16) -> SocketAddr {
    ([0xfd00, 0, 0, 0, 0, 0, 0, 2], port).into()
}

/// What the test bed has promised under the name of an environment variable.
pub(crate) fn promised(name: &str) -> String {
    env::var(name).unwrap_or_else(|_| panic!("{name} is not set: run this with cargo xtask test"))
}

/// Long enough for anything that a loaded machine does.
pub(crate) const LONG: Duration = Duration::from_secs(60);

/// A device by its name.
pub(crate) fn device(name: &str) -> Device {
    let devices = device::list().expect("list the devices");
    devices.into_iter().find(|device| device.name() == name).expect("the device is there")
}

/// How many objects there are on rxe0.
pub(crate) fn objects() -> Resources {
    device("rxe0").resources().expect("count the objects")
}

/// How many ids are bound to rxe0.
pub(crate) fn ids() -> u64 {
    objects().count("cm_id").expect("ids are counted")
}

/// An event channel.
pub(crate) fn channel() -> EventChannel {
    EventChannel::new().expect("open an event channel")
}

/// An id of the TCP port space.
pub(crate) fn id(channel: &EventChannel) -> CmId {
    CmId::new(channel, PortSpace::Tcp).expect("create an id")
}

/// A listener on a port of the kernel's choice of `address`: on siw another one where TCP has the first.
pub(crate) fn listen(channel: &EventChannel, address: SocketAddr) -> (CmId, SocketAddr) {
    let listens = || {
        let listener = id(channel);
        listener.bind(address).expect("bind");
        listener.listen(0).map(|()| listener)
    };
    let is_taken = |tried: &Result<CmId, Error>| {
        let refused = tried.as_ref().err().map(Error::errno);
        refused == Some(libc::EADDRINUSE) && address.port() == 0
    };
    let mut tries = (0..17).map(|_| listens());
    let tried = tries.find(|tried| !is_taken(tried)).expect("a port that TCP does not have");
    let listener = tried.expect("listen");
    let bound = listener.local_addr().expect("query").expect("a bound id has an address");
    (listener, bound)
}

/// An id that is ready to connect to `server`.
pub(crate) fn resolve(channel: &EventChannel, server: SocketAddr) -> CmId {
    let id = id(channel);
    id.resolve_addr(None, server, LONG).expect("resolve the address");
    channel.expect_event(EventType::AddrResolved).expect("address resolved");
    id.resolve_route(LONG).expect("resolve the route");
    channel.expect_event(EventType::RouteResolved).expect("route resolved");
    id
}

/// An id that has asked `server` to connect, and its queue pair.
pub(crate) fn ask(channel: &EventChannel, server: SocketAddr, param: &ConnParam) -> Side {
    let side = Side::new(resolve(channel, server), Shape::default());
    side.id.connect(param).expect("connect");
    side
}

/// The id that the next request on `channel` brings.
pub(crate) fn request(channel: &EventChannel) -> CmId {
    let mut event = channel.expect_event(EventType::ConnectRequest).expect("a request");
    event.take_request().expect("a request brings an id")
}

/// One side of a connection.
#[derive(Debug)]
pub(crate) struct Side {
    pub(crate) id: CmId,
    pub(crate) io: Io,
}

impl Side {
    /// Gives `id`, which has a device, what it takes to move data.
    pub(crate) fn new(id: CmId, shape: Shape) -> Self {
        let io = Io::new(&id, shape);
        Self { id, io }
    }
}

/// A connection within this process, each side with a channel of its own.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) client: Side,
    pub(crate) server: Side,
    pub(crate) client_channel: EventChannel,
    pub(crate) server_channel: EventChannel,
}

impl Connection {
    /// Connects to rxe0 over IPv4.
    pub(crate) fn new(shape: Shape) -> Self {
        Self::to(rxe(0), shape, &ConnParam::default())
    }

    /// Connects to `address`, both sides with the same parameters.
    pub(crate) fn to(address: SocketAddr, shape: Shape, param: &ConnParam) -> Self {
        let (client_channel, server_channel) = (channel(), channel());
        let (client, server) = connect([&client_channel, &server_channel], address, shape, param);
        Self { client, server, client_channel, server_channel }
    }

    /// Ends the connection, and everything about it.
    pub(crate) fn close(self) {
        self.client.id.disconnect().expect("disconnect");
        self.server_channel.expect_event(EventType::Disconnected).expect("the server hears of it");
        // The client hears when the server answers.
        self.server.id.disconnect().expect("disconnect");
        self.client_channel.expect_event(EventType::Disconnected).expect("the client hears of it");
        self.client.id.destroy().expect("destroy");
        self.server.id.destroy().expect("destroy");
    }
}

/// A client and a server, connected, by two channels or one.
pub(crate) fn connect(
    channels: [&EventChannel; 2],
    address: SocketAddr,
    shape: Shape,
    param: &ConnParam,
) -> (Side, Side) {
    let [ours, theirs] = channels;
    let (listener, server) = listen(theirs, address);
    let client = Side::new(resolve(ours, server), shape);
    client.id.connect(param).expect("connect");
    let server = Side::new(request(theirs), shape);
    server.id.accept(param).expect("accept");
    ours.expect_event(EventType::Established).expect("the client is connected");
    theirs.expect_event(EventType::Established).expect("the server is connected");
    listener.destroy().expect("destroy the listener");
    (client, server)
}

/// That `error` was found before the kernel was asked, and says each of `parts`.
#[track_caller]
pub(crate) fn assert_invalid(error: &Error, parts: &[&str]) {
    assert!(matches!(error.kind(), ErrorKind::Invalid { .. }), "{error:?}");
    let text = error.to_string();
    for part in parts {
        assert!(text.contains(part), "{part:?} is not in {text:?}");
    }
}

/// Says who the thread is, which will sleep next.
pub(crate) fn announce(says: &Sender<Pid>) {
    says.send(gettid()).expect("the test listens");
}

/// Waits until a thread of this process sleeps.
pub(crate) fn asleep(thread: Pid) {
    until_in(thread, 'S');
}

/// Waits until a thread of this process waits for something of the kernel's that no signal ends.
pub(crate) fn stuck(thread: Pid) {
    until_in(thread, 'D');
}

fn until_in(thread: Pid, state: char) {
    let is_in = || {
        let stat = fs::read_to_string(format!("/proc/self/task/{thread}/stat")).expect("it runs");
        stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with(state))
    };
    while !is_in() {
        thread::yield_now();
    }
}

/// Sets the flag when it goes, by a panic too: who waits for the flag must not wait for ever.
pub(crate) struct Ending<'a>(pub(crate) &'a AtomicBool);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}
