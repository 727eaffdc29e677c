//! Values promised by the test bed, and connections for tests.

use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::thread;
use std::time::Duration;

use nix::sys::utsname::uname;
use nix::unistd::{Pid, gettid};
use rdmacm::cm::{CmId, ConnParam, EventChannel, EventType, PortSpace};
use rdmacm::device::{self, Device, ResourceCounts};
use rdmacm::{Error, ErrorKind, UnreachableReason};
pub(crate) use rdmacm_tests::promised;
use rdmacm_tests::roce::roce_ip_v6;
pub(crate) use rdmacm_tests::roce::{is_card, roce_ends, roce_ip, roce_name};
use ucma_abi::ib_cm_sidr_status;

use crate::io::{Io, Shape};

/// Returns the network device of the RoCE device.
pub(crate) fn roce_end() -> &'static str {
    let [end, _] = roce_ends();
    end
}

/// Returns an address of the RoCE device.
pub(crate) fn roce(port: u16) -> SocketAddr {
    (roce_ip().parse::<IpAddr>().expect("an address"), port).into()
}

/// Returns the other address of the RoCE device.
pub(crate) fn roce_v6(port: u16) -> SocketAddr {
    (roce_ip_v6().parse::<IpAddr>().expect("an address"), port).into()
}

/// Returns an address of siw0.
pub(crate) fn siw(port: u16) -> SocketAddr {
    ([10, 0, 0, 2], port).into()
}

/// Returns the other address of siw0.
pub(crate) fn siw_v6(port: u16) -> SocketAddr {
    ([0xfd00, 0, 0, 0, 0, 0, 0, 2], port).into()
}

/// Returns the major and minor version of the kernel.
pub(crate) fn kernel_version() -> (u32, u32) {
    let name = uname().expect("ask the kernel for its name");
    let release = name.release().to_str().expect("a text");
    let mut numbers =
        release.split(['.', '-']).map(|number| number.parse().expect("a number of the version"));
    (numbers.next().expect("a major version"), numbers.next().expect("a minor version"))
}

/// The answer of a peer that has no listener for datagrams on the port.
pub(crate) const NO_LISTENER: UnreachableReason =
    UnreachableReason::Refused(ib_cm_sidr_status::IB_SIDR_UNSUPPORTED);

/// The answer of a peer whose program rejects the request.
pub(crate) const REJECTED: UnreachableReason =
    UnreachableReason::Refused(ib_cm_sidr_status::IB_SIDR_REJECT);

/// The documented default number of send buffers of `ConnectionConfig` and `DatagramConfig`.
pub(crate) const DEFAULT_SEND_BUFFERS: u32 = 16;

/// A time limit that suffices for any call on a loaded machine.
pub(crate) const LONG: Duration = Duration::from_secs(60);

/// Returns a device by its name.
pub(crate) fn device(name: &str) -> Device {
    let devices = device::list().expect("list the devices");
    devices.into_iter().find(|device| device.name() == name).expect("the device should exist")
}

/// Returns the object counts of rxe0.
pub(crate) fn objects() -> ResourceCounts {
    device(roce_name()).resources().expect("count the objects")
}

/// Returns the number of ids that are bound to rxe0.
pub(crate) fn ids() -> u64 {
    objects().count("cm_id").expect("the device should count ids")
}

/// Returns an event channel.
pub(crate) fn channel() -> EventChannel {
    EventChannel::new().expect("open an event channel")
}

/// Returns an id of the TCP port space.
pub(crate) fn id(channel: &EventChannel) -> CmId {
    CmId::new(channel, PortSpace::Tcp).expect("create an id")
}

/// Returns a listener at `address`, on a port that the kernel selects.
///
/// On siw the listener takes another port if TCP uses the first one.
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
    let tried = tries.find(|tried| !is_taken(tried)).expect("a port should be free");
    let listener = tried.expect("listen");
    let bound = listener.local_addr().expect("query").expect("a bound id should have an address");
    (listener, bound)
}

/// Returns an id that is ready to connect to `server`.
pub(crate) fn resolve(channel: &EventChannel, server: SocketAddr) -> CmId {
    let id = id(channel);
    id.resolve_addr(None, server, LONG).expect("resolve the address");
    channel.expect_event(EventType::AddrResolved).expect("the address should be resolved");
    id.resolve_route(LONG).expect("resolve the route");
    channel.expect_event(EventType::RouteResolved).expect("the route should be resolved");
    id
}

/// Returns an id that has sent a request to `server`, and its queue pair.
pub(crate) fn ask(channel: &EventChannel, server: SocketAddr, param: &ConnParam) -> Side {
    let side = Side::new(resolve(channel, server), Shape::default());
    side.id.connect(param).expect("connect");
    side
}

/// Returns the id of the next request on `channel`.
pub(crate) fn request(channel: &EventChannel) -> CmId {
    let mut event = channel.expect_event(EventType::ConnectRequest).expect("a request");
    event.take_request().expect("a request should have an id")
}

/// One side of a connection.
#[derive(Debug)]
pub(crate) struct Side {
    pub(crate) id: CmId,
    pub(crate) io: Io,
}

impl Side {
    /// Creates the objects of `id` that move data. The id must have a device.
    pub(crate) fn new(id: CmId, shape: Shape) -> Self {
        let io = Io::new(&id, shape);
        Self { id, io }
    }
}

/// A connection within this process. Each side has its own channel.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) client: Side,
    pub(crate) server: Side,
    pub(crate) client_channel: EventChannel,
    pub(crate) server_channel: EventChannel,
}

impl Connection {
    /// Connects to the RoCE device over IPv4.
    pub(crate) fn new(shape: Shape) -> Self {
        Self::to(roce(0), shape, &ConnParam::default())
    }

    /// Connects to `address`. Both sides have the same parameters.
    pub(crate) fn to(address: SocketAddr, shape: Shape, param: &ConnParam) -> Self {
        let (client_channel, server_channel) = (channel(), channel());
        let (client, server) = connect([&client_channel, &server_channel], address, shape, param);
        Self { client, server, client_channel, server_channel }
    }

    /// Ends the connection, and destroys all its objects.
    pub(crate) fn close(self) {
        self.client.id.disconnect().expect("disconnect");
        self.server_channel
            .expect_event(EventType::Disconnected)
            .expect("server should get the event");
        // The client gets an event after the answer of the server.
        self.server.id.disconnect().expect("disconnect");
        self.client_channel
            .expect_event(EventType::Disconnected)
            .expect("client should get the event");
        self.client.id.destroy().expect("destroy");
        self.server.id.destroy().expect("destroy");
    }
}

/// Connects a client and a server, over one or two channels.
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
    ours.expect_event(EventType::Established).expect("the client should be connected");
    theirs.expect_event(EventType::Established).expect("the server should be connected");
    listener.destroy().expect("destroy the listener");
    (client, server)
}

/// Asserts that `error` was found before any command, and that its text has each of `parts`.
#[track_caller]
pub(crate) fn assert_invalid(error: &Error, parts: &[&str]) {
    assert!(matches!(error.kind(), ErrorKind::InvalidInput { .. }), "{error:?}");
    let text = error.to_string();
    for part in parts {
        assert!(text.contains(part), "{part:?} is not in {text:?}");
    }
}

/// Sends the id of this thread, which will wait next.
pub(crate) fn announce(test: &Sender<Pid>) {
    test.send(gettid()).expect("the test should receive");
}

/// Waits until a thread of this process sleeps.
pub(crate) fn asleep(thread: Pid) {
    until_in(thread, 'S');
}

/// Waits until a thread of this process waits in the kernel, uninterruptibly.
pub(crate) fn stuck(thread: Pid) {
    until_in(thread, 'D');
}

fn until_in(thread: Pid, state: char) {
    let is_in = || {
        let stat = fs::read_to_string(format!("/proc/self/task/{thread}/stat"))
            .expect("the thread should exist");
        stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with(state))
    };
    while !is_in() {
        thread::yield_now();
    }
}

/// A guard that sets the flag when it is dropped, even by a panic.
///
/// Otherwise a thread that waits for the flag would wait forever.
pub(crate) struct Ending<'a>(pub(crate) &'a AtomicBool);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}
