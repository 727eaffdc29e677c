//! Two hosts on one wire, which is cut and plugged in again.
//!
//! The tests run in one guest, and [`remote_guest`] runs in the other one.

mod remote_guest;

use std::io::{BufRead, BufReader, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rdmacm::cm::{CmId, ConnParam, EventChannel, EventType, PortSpace};
use rdmacm::device::link;
use rdmacm::endpoint::tokio::Connection;
use rdmacm::endpoint::{self, ConnectionConfig, Connector};
use rdmacm::verbs::{Completion, QpState, SendFlags, SendOperation, WcStatus};
use rdmacm::{ErrorKind, UnreachableReason};
use rdmacm_tests::rxe::counter;
use rdmacm_tests::wait_until;

use crate::endpoint_tokio_peer::{CALLS, IDLE, SILENCE, Waiters, end_by, wait_in_every_call};
use crate::executor::{in_time, tokios};
use crate::fixtures::{LONG, Side, channel, id, resolve};
use crate::io::Shape;
use crate::netdev::{ip, run, wait_until_usable};

/// The device on the wire.
const DEVICE: &str = "rxe9";
/// The addresses of the two ends, on the wire and on another one that is never cut.
const WIRE: [&str; 2] = ["10.9.0.1", "10.9.0.2"];
const CONTROL: [&str; 2] = ["10.10.0.1", "10.10.0.2"];
/// The port on which the far end accepts connections and commands.
const SERVER_PORT: u16 = 7471;
const CONTROL_PORT: u16 = 7000;

/// Configures this guest as the end `end` of both wires.
fn plug_in(end: usize) {
    static DONE: OnceLock<()> = OnceLock::new();
    DONE.get_or_init(|| {
        run("modprobe", &["virtio_net"]);
        for (netdev, addresses) in [("eth0", WIRE), ("eth1", CONTROL)] {
            let path = format!("/sys/class/net/{netdev}");
            wait_until("there is a wire", || Path::new(&path).exists());
            ip(&["address", "add", &format!("{}/24", addresses[end]), "dev", netdev]);
            ip(&["link", "set", netdev, "up"]);
        }
        link::add(DEVICE, link::LinkType::Rxe, "eth0").expect("add the link");
        wait_until_usable(DEVICE, WIRE[end].parse().expect("an address"));
    });
}

/// Returns the number of packets that the network of this guest has refused to take from rxe.
fn unsent_packets() -> u64 {
    counter(DEVICE, "send_err").expect("a counter")
}

fn socket(address: &str, port: u16) -> SocketAddr {
    SocketAddr::new(address.parse::<IpAddr>().expect("an address"), port)
}

/// The connection that carries commands to the other guest.
struct RemoteGuest(BufReader<TcpStream>);

impl RemoteGuest {
    /// Waits until the other guest has started, which may take several attempts, and plugs the wire in.
    fn find() -> Self {
        plug_in(0);
        let address = socket(CONTROL[1], CONTROL_PORT);
        let deadline = Instant::now() + Duration::from_secs(240);
        let stream = loop {
            match TcpStream::connect_timeout(&address, Duration::from_secs(1)) {
                Ok(stream) => break stream,
                Err(error) => {
                    assert!(Instant::now() < deadline, "the other guest should start: {error}")
                }
            }
        };
        let mut remote = Self(BufReader::new(stream));
        remote.plug();
        remote
    }

    fn send(&mut self, command: &str) {
        writeln!(self.0.get_mut(), "{command}").expect("send to the other guest");
    }

    fn command(&mut self, command: &str) {
        self.send(command);
        let mut answer = String::new();
        self.0.read_line(&mut answer).expect("the other guest should answer");
        assert_eq!(answer, "done\n");
    }

    /// Makes both guests drop the frames that they receive from the wire.
    fn cut(&mut self) {
        self.command("cut");
        remote_guest::cut(true);
    }

    fn plug(&mut self) {
        remote_guest::cut(false);
        self.command("plug");
    }

    /// Makes the other guest stop without notice. The other guest then starts again.
    fn crash(mut self) {
        self.send("crash");
    }
}

/// A connection to the other guest, and a part of its memory.
struct RemoteConnection {
    side: Side,
    channel: EventChannel,
    theirs: u64,
    rkey: u32,
}

/// The parts of this side's memory that are written to the other guest and read back.
const OUT: std::ops::Range<usize> = 0..1024;
const BACK: std::ops::Range<usize> = 2048..3072;

impl RemoteConnection {
    fn begin() -> Self {
        let channel = channel();
        let id = resolve(&channel, socket(WIRE[1], SERVER_PORT));
        let side = Side::new(id, Shape::default());
        // With the maximum of 7, rxe repeats a request forever.
        let param = ConnParam { retry_count: 2, ..ConnParam::default() };
        side.id.connect(&param).expect("connect");
        let event = channel
            .expect_event(EventType::Established)
            .expect("the connection should be established");
        let data = event.private_data();
        let theirs =
            u64::from_be_bytes(data[..8].try_into().expect("the slice should have 8 bytes"));
        let rkey =
            u32::from_be_bytes(data[8..12].try_into().expect("the slice should have 4 bytes"));
        drop(event);
        Self { side, channel, theirs, rkey }
    }

    fn write(&self) {
        let write = SendOperation::Write { remote_addr: self.theirs, rkey: self.rkey };
        self.side.io.post(1, write, OUT, SendFlags::SIGNALED).expect("post a write");
    }

    /// Writes bytes to the other guest, and reads them back.
    fn exchanges_data(&mut self, round: u32) {
        let bytes: Vec<u8> = round.to_le_bytes().into_iter().cycle().take(OUT.len()).collect();
        self.side.io.fill(OUT.start, &bytes);
        self.write();
        let read = SendOperation::Read { remote_addr: self.theirs, rkey: self.rkey };
        self.side.io.post(2, read, BACK, SendFlags::SIGNALED).expect("post a read");
        self.side.io.done(1);
        self.side.io.done(2);
        assert_eq!(self.side.io.bytes(BACK), bytes);
    }

    /// Ends a connection whose other end does not answer.
    fn ends_alone(self) {
        let Self { side, channel, .. } = self;
        side.id.disconnect().expect("disconnect");
        let event = channel.get_event().expect("an event");
        assert_eq!(event.event_type(), EventType::Disconnected);
        drop(event);
        side.id.destroy().expect("destroy");
    }

    fn ends(self) {
        self.side.id.disconnect().expect("disconnect");
        self.channel.expect_event(EventType::Disconnected).expect("the id should be disconnected");
        self.side.id.destroy().expect("destroy");
    }

    /// Asserts that no event and no completion has arrived.
    fn is_silent(&self) {
        self.channel.set_nonblocking(true).expect("make the channel non-blocking");
        let error = self.channel.get_event().expect_err("no event should have arrived");
        assert!(matches!(error.kind(), ErrorKind::WouldBlock), "{error:?}");
        self.channel.set_nonblocking(false).expect("block again");
        assert_eq!(self.side.io.qp().query().expect("query").qp_state, QpState::IB_QPS_RTS);
    }
}

/// Checks that requests fail that are posted while the wire is cut, and so do later requests.
fn fails(connection: &RemoteConnection) {
    connection.write();
    connection.write();
    let status = [connection.side.io.next(), connection.side.io.next()].map(|done| done.status());
    assert_eq!(status, [WcStatus::IB_WC_RETRY_EXC_ERR, WcStatus::IB_WC_WR_FLUSH_ERR]);
    assert_eq!(connection.side.io.qp().query().expect("query").qp_state, QpState::IB_QPS_ERR);
}

/// Returns the config for connections of the safe tier.
fn connector(keep_alive: Option<Duration>) -> Connector {
    Connector::new().config(ConnectionConfig::new().retry_count(2).keep_alive_interval(keep_alive))
}

/// Connects a connection of the safe tier.
fn safely(keep_alive: Option<Duration>) -> endpoint::Connection {
    let connector = connector(keep_alive).resolve_addr_timeout(LONG);
    connector.connect(socket(WIRE[1], SERVER_PORT)).expect("connect")
}

/// Starts tasks that wait on connections to the far end, in every call.
///
/// The tasks on idle connections probe the far end.
async fn tasks() -> [Waiters; 2] {
    let begin = async |calls: &[_], keep_alive: Option<Duration>| {
        let connector = connector(keep_alive).resolve_addr_timeout(LONG);
        let mut connections = Vec::new();
        for _ in calls {
            let connected = Connection::connect(&connector, socket(WIRE[1], SERVER_PORT)).await;
            connections.push(connected.expect("connect"));
        }
        wait_in_every_call(calls, connections, keep_alive.is_none()).await
    };
    [begin(&CALLS, None).await, begin(IDLE, Some(Duration::from_millis(100))).await]
}

/// Checks a task's connection attempt to a peer that does not answer.
async fn task_resolution_fails() {
    let connected = Connection::connect(&connector(None), socket(WIRE[1], SERVER_PORT)).await;
    let error = connected.expect_err("no peer should answer");
    // If the kernel has no entry for the hardware address of the far end, it resolves this address first.
    assert!([libc::ETIMEDOUT, libc::EHOSTUNREACH].contains(&error.errno()), "{error}");
}

/// Checks a connection request to a peer that does not answer.
fn is_unreachable(id: CmId, channel: &EventChannel) {
    let side = Side::new(id, Shape::default());
    side.id.connect(&ConnParam::default()).expect("connect");
    let error = channel.expect_event(EventType::Established).expect_err("no peer should answer");
    assert!(matches!(error.kind(), ErrorKind::Unreachable(UnreachableReason::Os(libc::ETIMEDOUT))));
    assert_eq!(error.errno(), libc::ETIMEDOUT);
    side.id.destroy().expect("destroy");
}

/// Checks that resolving an unused address ends at its deadline.
fn is_not_resolved() {
    let channel = channel();
    let id = id(&channel);
    let unused = socket("10.9.0.77", SERVER_PORT);
    id.resolve_addr(None, unused, Duration::from_secs(1)).expect("ask");
    let error = channel.expect_event(EventType::AddrResolved).expect_err("no peer should answer");
    assert!([libc::ETIMEDOUT, libc::EHOSTUNREACH].contains(&error.errno()), "{error:?}");
    id.destroy().expect("destroy");
}

/// Checks that calls with a time limit end if no peer answers.
///
/// The calls are on a connection, and on an id that is ready to connect.
fn ends_in_time(connection: RemoteConnection, connecting_id: CmId) {
    const SHORT: Duration = Duration::from_millis(100);
    let is_over = |result: rdmacm::Result<()>, id: &CmId, awaited| {
        let error = result.expect_err("no peer should answer");
        assert!(matches!(error.kind(), ErrorKind::TimedOut), "{error:?}");
        // The operation is still pending in the kernel.
        assert_eq!(id.pending_event(), Some(awaited));
    };
    let RemoteConnection { side, channel, .. } = connection;
    assert!(channel.get_event_timeout(SHORT).expect("wait").is_none());
    let mut none = [Completion::default()];
    assert_eq!(side.io.cq().wait_timeout(&mut none, SHORT).expect("wait"), 0);
    side.id.migrate_to_sync().expect("migrate");
    let finder = CmId::new_sync(PortSpace::Tcp).expect("create an id");
    let connecting = Side::new(connecting_id, Shape::default());
    for id in [&side.id, &connecting.id, &finder] {
        id.set_timeout(Some(SHORT));
    }
    is_over(side.id.disconnect(), &side.id, EventType::Disconnected);
    is_over(connecting.id.connect(&ConnParam::default()), &connecting.id, EventType::Established);
    // The kernel gets more time.
    let unused = socket("10.9.0.78", SERVER_PORT);
    is_over(finder.resolve_addr(None, unused, LONG), &finder, EventType::AddrResolved);
    for id in [side.id, connecting.id, finder] {
        id.destroy().expect("destroy");
    }
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn cut_wire_fails_sends_and_works_once_replugged() {
    let mut remote = RemoteGuest::find();
    let (mut idle, mut busy) = (RemoteConnection::begin(), RemoteConnection::begin());
    idle.exchanges_data(1);
    busy.exchanges_data(2);
    let limited = RemoteConnection::begin();
    let ours = channel();
    let [connecting_id, synchronous] =
        [(); 2].map(|()| resolve(&ours, socket(WIRE[1], SERVER_PORT)));
    synchronous.migrate_to_sync().expect("migrate");
    let [watched, unwatched] = [Some(Duration::from_millis(100)), None].map(safely);
    remote.cut();
    thread::scope(|scope| {
        // Each call takes long, so all calls are made at the same time.
        scope.spawn(|| is_unreachable(connecting_id, &ours));
        scope.spawn(is_not_resolved);
        scope.spawn(|| ends_in_time(limited, synchronous));
        scope.spawn(|| {
            fails(&busy);
            busy.ends_alone();
        });
        scope.spawn(|| {
            let error = watched.recv_timeout(LONG).expect_err("the far end should not answer");
            let failed = ErrorKind::WorkRequestFailed(WcStatus::IB_WC_RETRY_EXC_ERR);
            assert_eq!(*error.kind(), failed, "{error}");
        });
    });
    idle.is_silent();
    let error = unwatched.try_recv().expect_err("no message should come");
    assert_eq!(*error.kind(), ErrorKind::WouldBlock, "{error}");
    remote.plug();
    idle.exchanges_data(3);
    idle.ends();
    let mut again = RemoteConnection::begin();
    again.exchanges_data(4);
    again.ends();
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn lost_host_can_be_abandoned_and_reconnected() {
    let remote = RemoteGuest::find();
    let connection = RemoteConnection::begin();
    let rounds = AtomicU32::new(0);
    thread::scope(|scope| {
        scope.spawn(|| {
            loop {
                connection.write();
                let done = connection.side.io.next();
                if done.status() != WcStatus::IB_WC_SUCCESS {
                    assert_eq!(done.status(), WcStatus::IB_WC_RETRY_EXC_ERR);
                    return;
                }
                rounds.fetch_add(1, Ordering::SeqCst);
            }
        });
        wait_until("the connection transfers messages", || rounds.load(Ordering::SeqCst) > 10);
        remote.crash();
    });
    connection.ends_alone();
    let remote = RemoteGuest::find();
    let mut again = RemoteConnection::begin();
    again.exchanges_data(1);
    again.ends();
    drop(remote);
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn cut_wire_ends_every_task_call() {
    let mut remote = RemoteGuest::find();
    let waiting = tokios().map(|runtime| (runtime.block_on(tasks()), runtime));
    let before = unsent_packets();
    // rxe flushes a queue pair without a cause if the network refuses its packet (`rxe_requester`).
    let is_silence = move |kind: &ErrorKind| {
        *kind == SILENCE || *kind == ErrorKind::UnreportedCause && unsent_packets() > before
    };
    remote.cut();
    thread::scope(|scope| {
        for ([busy, idle], runtime) in waiting {
            scope.spawn(move || {
                let asking = runtime.spawn(task_resolution_fails());
                runtime.block_on(async {
                    end_by(busy, is_silence).await;
                    end_by(idle, is_silence).await;
                    in_time(asking).await.expect("the task should not panic");
                });
            });
        }
    });
    remote.plug();
}
