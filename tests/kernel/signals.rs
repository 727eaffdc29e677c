//! Signals in waiting threads: a handled signal ends no wait that the program would only repeat.

use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::mpsc::{self, Sender};
use std::thread;
use std::time::Duration;

use nix::sys::pthread::{Pthread, pthread_kill, pthread_self};
use nix::sys::signal::Signal;
use nix::sys::socket::{self, AddressFamily, Backlog, SockFlag, SockType, SockaddrStorage};
use nix::unistd::{Pid, gettid};
use rdmacm::ErrorKind;
use rdmacm::cm::{CmId, EventType, PortSpace};
use rdmacm::endpoint::{ConnectionConfig, Connector, DatagramConfig, DatagramSocket, Listener};
use rdmacm::verbs::{Completion, Context};
use rdmacm_tests::wait_until;

use crate::child::let_sigusr1_interrupt;
use crate::endpoint_close::with_low_peer;
use crate::endpoint_datagrams;
use crate::endpoint_messages::filled;
use crate::endpoint_peer::CALLS;
use crate::fixtures::{Connection, LONG, asleep, channel, device, id, roce, roce_name, siw};
use crate::io::Shape;

/// The number and the handle of a thread.
type Thread = (Pid, Pthread);

fn announce(tx: &Sender<Thread>) {
    tx.send((gettid(), pthread_self())).expect("the test should listen");
}

/// Sends signals to a waiting thread. Each one is sent after the thread has handled the one before and waits again.
fn interrupt_repeatedly((number, thread): Thread) {
    let is_pending = || {
        let status = fs::read_to_string(format!("/proc/self/task/{number}/status"));
        !status.expect("the thread should exist").contains("SigPnd:\t0000000000000000")
    };
    for _ in 0..20 {
        asleep(number);
        pthread_kill(thread, Signal::SIGUSR1).expect("signal");
        while is_pending() {
            thread::yield_now();
        }
    }
    asleep(number);
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn signals_end_no_endpoint_call() {
    let_sigusr1_interrupt();
    let (connections, peers): (Vec<_>, Vec<_>) = CALLS.iter().map(|_| with_low_peer(None)).unzip();
    thread::scope(|scope| {
        let mut waiters = Vec::new();
        for ((name, call), connection) in CALLS.iter().zip(&connections) {
            connection.post_send(filled(connection, b"without receive")).expect("post");
            let (tx, rx) = mpsc::channel();
            let waiter = scope.spawn(move || call(connection, &mut || announce(&tx)));
            interrupt_repeatedly(rx.recv().expect("the thread should begin"));
            assert!(!waiter.is_finished(), "{name}");
            waiters.push(waiter);
        }
        drop(peers);
        for waiter in waiters {
            if let Err(error) = waiter.join().expect("thread should not panic") {
                assert_ne!(error.errno(), libc::EINTR, "{error}");
            }
        }
    });
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn signals_end_no_datagram_call() {
    let_sigusr1_interrupt();
    let config = DatagramConfig::new().send_buffers(1);
    let client = DatagramSocket::bind(roce(0), &config).expect("bind");
    let silent = endpoint_datagrams::socket(roce(0));
    let address = endpoint_datagrams::address(&silent);
    let buffer = client.acquire_buffer().expect("the only buffer should be free");
    let calls: [(&str, &(dyn Fn() -> rdmacm::Result<()> + Sync)); 3] = [
        ("recv_from", &|| client.recv_from_timeout(LONG).map(drop)),
        ("buffer", &|| client.acquire_buffer_timeout(LONG).map(drop)),
        ("resolve", &|| {
            client
                .start_resolve_peer(address)
                .and_then(|resolution| resolution.wait_timeout(LONG))
                .map(drop)
        }),
    ];
    thread::scope(|scope| {
        let waiters = calls.map(|(name, call)| {
            let (tx, rx) = mpsc::channel();
            let waiter = scope.spawn(move || {
                announce(&tx);
                call().expect_err("the socket should end")
            });
            interrupt_repeatedly(rx.recv().expect("the thread should begin"));
            assert!(!waiter.is_finished(), "{name}");
            waiter
        });
        client.abort();
        for waiter in waiters {
            let error = waiter.join().expect("thread should not panic");
            assert_eq!(*error.kind(), ErrorKind::Disconnected, "{error}");
        }
    });
    drop(buffer);
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn signals_end_neither_accept_nor_connect() {
    let_sigusr1_interrupt();
    let listener = Listener::bind(roce(0)).expect("listen");
    let server = listener.local_addr().expect("an IP address");
    let (tx, rx) = mpsc::channel();
    let also_says = tx.clone();
    thread::scope(|scope| {
        let listens = scope.spawn(|| {
            announce(&tx);
            listener.accept_timeout(LONG).expect("a request")
        });
        interrupt_repeatedly(rx.recv().expect("the thread should begin"));
        let connects = scope.spawn(move || {
            announce(&also_says);
            Connector::new().total_timeout(LONG).connect(server).expect("connect")
        });
        let client = rx.recv().expect("the thread should begin");
        let incoming = listens.join().expect("thread should not panic");
        interrupt_repeatedly(client);
        let accepted = incoming.accept(&ConnectionConfig::default(), &[], LONG).expect("accept");
        drop((connects.join().expect("thread should not panic"), accepted));
    });
}

/// A TCP port of siw0 that accepts no connection, because its backlog is full.
struct FullBacklog {
    address: SocketAddr,
    _listener: OwnedFd,
    _fillers: Vec<TcpStream>,
}

impl FullBacklog {
    fn new(port: u16) -> Self {
        let (family, flags) = (AddressFamily::Inet, SockFlag::SOCK_CLOEXEC);
        let listener = socket::socket(family, SockType::Stream, flags, None).expect("socket");
        let address = siw(port);
        socket::bind(listener.as_raw_fd(), &SockaddrStorage::from(address)).expect("bind");
        socket::listen(&listener, Backlog::new(0).expect("a backlog")).expect("listen");
        let fill = |_| TcpStream::connect_timeout(&address, Duration::from_secs(2));
        let fillers: Vec<_> = (0..3).map(fill).collect();
        assert!(fillers.last().is_some_and(Result::is_err), "the backlog should be full");
        let fillers = fillers.into_iter().flatten().collect();
        Self { address, _listener: listener, _fillers: fillers }
    }

    /// Waits until the kernel has sent a connection request to the port.
    fn wait_for_request(&self) {
        const SYN_SENT: &str = "02";
        let remote = format!("0200000A:{:04X}", self.address.port());
        wait_until("TCP has sent a request", || {
            let table = fs::read_to_string("/proc/net/tcp").expect("the kernel's TCP connections");
            table.lines().any(|line| {
                let fields: Vec<&str> = line.split_whitespace().collect();
                fields.get(2..4) == Some(&[remote.as_str(), SYN_SENT])
            })
        });
    }
}

/// Interrupts the CONNECT command, which waits for TCP on iWARP, by signals.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn siw_signals_do_not_end_connect() {
    let_sigusr1_interrupt();
    let silent = FullBacklog::new(7211);
    let server = silent.address;
    let (tx, rx) = mpsc::channel();
    thread::scope(|scope| {
        let connects = scope.spawn(move || {
            announce(&tx);
            Connector::new()
                .total_timeout(LONG)
                .connect(server)
                .expect_err("no RDMA server should listen")
        });
        let thread = rx.recv().expect("the thread should begin");
        silent.wait_for_request();
        interrupt_repeatedly(thread);
        assert!(!connects.is_finished(), "the call should wait for the server");
        drop(silent);
        let error = connects.join().expect("thread should not panic");
        assert_eq!(error.errno(), libc::ECONNREFUSED, "{error}");
    });
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn siw_signals_keep_connect_deadline() {
    let_sigusr1_interrupt();
    let silent = FullBacklog::new(7212);
    let server = silent.address;
    let timeout = Duration::from_secs(3);
    let (tx, rx) = mpsc::channel();
    thread::scope(|scope| {
        let connects = scope.spawn(move || {
            announce(&tx);
            Connector::new()
                .total_timeout(timeout)
                .connect(server)
                .expect_err("no server should answer")
        });
        let (_, thread) = rx.recv().expect("the thread should begin");
        silent.wait_for_request();
        wait_until("connecting has ended", || {
            pthread_kill(thread, Signal::SIGUSR1).expect("signal");
            connects.is_finished()
        });
        let error = connects.join().expect("thread should not panic");
        assert_eq!(*error.kind(), ErrorKind::TimedOut, "{error}");
    });
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn signals_end_no_destroy() {
    let_sigusr1_interrupt();
    let channel = channel();
    let id = id(&channel);
    id.resolve_addr(None, roce(7471), LONG).expect("resolve the address");
    let event =
        channel.expect_event(EventType::AddrResolved).expect("the address should be resolved");
    let (tx, rx) = mpsc::channel();
    thread::scope(|scope| {
        let destroys = scope.spawn(move || {
            announce(&tx);
            id.destroy().expect("destroy");
        });
        interrupt_repeatedly(rx.recv().expect("the thread should begin"));
        assert!(!destroys.is_finished(), "the call should wait for the event");
        drop(event);
        destroys.join().expect("thread should not panic");
    });
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn signals_interrupt_low_level_waits() {
    let_sigusr1_interrupt();
    let listener = CmId::new_sync(PortSpace::Tcp).expect("create an id");
    listener.bind(roce(0)).expect("bind");
    listener.listen(0).expect("listen");
    let context = Context::open(&device(roce_name())).expect("open");
    let asynchronous = context.async_events();
    let connection = Connection::new(Shape::default());
    let (cq, completions) = (connection.server.io.cq(), connection.server.io.channel());
    let calls: [&(dyn Fn() -> rdmacm::Result<()> + Sync); 5] = [
        &|| listener.get_request().map(drop),
        &|| asynchronous.get_event().map(drop),
        &|| asynchronous.get_event_timeout(LONG).map(drop),
        &|| completions.get_event_timeout(LONG).map(drop),
        &|| cq.wait_timeout(&mut [Completion::default()], LONG).map(drop),
    ];
    for call in calls {
        let (tx, rx) = mpsc::channel();
        thread::scope(|scope| {
            let waiter = scope.spawn(move || {
                announce(&tx);
                call().expect_err("a signal should interrupt the call")
            });
            let (_, thread) = rx.recv().expect("the thread should begin");
            while !waiter.is_finished() {
                pthread_kill(thread, Signal::SIGUSR1).expect("signal");
                thread::yield_now();
            }
            let error = waiter.join().expect("thread should not panic");
            assert_eq!(error.errno(), libc::EINTR, "{error}");
        });
    }
    connection.close();
}
