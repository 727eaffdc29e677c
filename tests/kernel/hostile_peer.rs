//! Peers that violate the protocol.
//!
//! The safe tier reports each of them, and continues with the next one.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::Duration;

use nix::sys::socket::setsockopt;
use nix::sys::socket::sockopt::ReuseAddr;
use rdmacm::ErrorKind;
use rdmacm::cm::{CmId, ConnParam, EventChannel, EventType};
use rdmacm::endpoint::{ConnectionConfig, Connector, Listener};
use rdmacm::verbs::{SendFlags, SendOperation};
use rdmacm_tests::siw::has_unread_bytes;
use rdmacm_tests::wait_until;

use crate::endpoint_connect::objects_at;
use crate::endpoint_messages::{filled, receives};
use crate::fixtures::{LONG, Side, channel, listen, request, resolve, roce, siw};
use crate::io::Shape;
use crate::rng::Rng;

const ROUNDS: usize = 30;
/// The time for which a test waits for a silent peer.
const SHORT: Duration = Duration::from_millis(20);

/// Returns random private data of random length.
fn bytes(rng: &mut Rng) -> Vec<u8> {
    let length = rng.roll(57);
    (0..length).map(|_| u8::try_from(rng.roll(256)).expect("a byte")).collect()
}

/// Returns the number of a queue pair that does not exist.
fn number(rng: &mut Rng) -> u32 {
    u32::try_from(rng.roll(1 << 24)).expect("the number should have 24 bits")
}

/// Returns a config with few retries, because sends may not arrive.
fn config() -> ConnectionConfig {
    ConnectionConfig::new().retry_count(1).rnr_retry_count(1)
}

/// Acts as a client of `server` that violates the protocol in one way.
fn act_as_hostile_client(channel: &EventChannel, server: &Listener, rng: &mut Rng) {
    let server = server.local_addr().expect("an IP address");
    let client = resolve(channel, server);
    // The listener may end the connection before a write arrives. rxe takes the default of seven retries for endless ones,
    // and would never complete the write.
    let param = ConnParam { private_data: bytes(rng), retry_count: 1, ..ConnParam::default() };
    match rng.roll(5) {
        // The queue pair does not exist, and the client does not confirm the answer.
        0 => client.connect(&ConnParam { qp_num: number(rng), ..param }).expect("ask"),
        // This client has left before the answer arrives.
        1 => {
            let side = Side::new(client, Shape::default());
            side.id.connect(&param).expect("ask");
        }
        what => {
            let side = Side::new(client, Shape::default());
            side.id.connect(&param).expect("ask");
            channel
                .expect_event(EventType::Established)
                .expect("the connection should be established");
            match what {
                // This client ends the connection at once.
                2 => side.id.disconnect().expect("disconnect"),
                // This write has no valid address or key.
                3 => {
                    let remote_addr = u64::from(number(rng)) << 20;
                    let write = SendOperation::Write { remote_addr, rkey: number(rng) };
                    side.io.post(1, write, 0..64, SendFlags::SIGNALED).expect("post");
                    assert!(!side.io.next().is_success(), "the write should fail");
                }
                // The client sends nothing, and disconnects when it is dropped.
                _ => thread::sleep(SHORT),
            }
        }
    }
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn hostile_clients_leave_listener_usable() {
    let before = objects_at(roce(0));
    let channel = channel();
    let mut rng = Rng(0x9e37_79b9_7f4a_7c15);
    let listener = Listener::bind(roce(0)).expect("listen");
    let mut established = 0;
    for round in 0..ROUNDS {
        thread::scope(|scope| {
            let serves = scope.spawn(|| {
                let incoming = listener.accept_timeout(LONG).expect("a request");
                let connection = incoming.accept(&config(), b"", LONG)?;
                let received = connection.recv_timeout(SHORT);
                assert!(!matches!(received, Ok(Some(_))), "round {round}: {received:?}");
                Ok::<_, rdmacm::Error>(())
            });
            act_as_hostile_client(&channel, &listener, &mut rng);
            // Events about the last client do not affect the next one.
            while channel.get_event_timeout(Duration::ZERO).expect("look").is_some() {}
            established += usize::from(serves.join().expect("thread should not panic").is_ok());
        });
        if round % 5 == 0 {
            serves_another(&listener);
        }
    }
    assert!(
        (1..ROUNDS).contains(&established),
        "some of {ROUNDS} connections should be established, but not all: {established}"
    );
    drop((listener, channel));
    assert_eq!(objects_at(roce(0)), before);
}

/// Checks that `listener` accepts a connection from a correct client.
fn serves_another(listener: &Listener) {
    let server = listener.local_addr().expect("an IP address");
    thread::scope(|scope| {
        let client = scope.spawn(move || {
            let client = Connector::new().total_timeout(LONG).connect(server).expect("connect");
            client
                .start_send(filled(&client, b"sense"))
                .and_then(|send| send.wait_timeout(LONG))
                .expect("send");
            // siw may leave the first message unread until another one arrives, and a close would lose it: see
            // `CmId::accept`.
            receives(&client, b"heard");
            client.close(LONG).expect("close");
        });
        let incoming = listener.accept_timeout(LONG).expect("a request");
        let served = incoming.accept(&config(), b"", LONG).expect("accept");
        receives(&served, b"sense");
        served.post_send(filled(&served, b"heard")).expect("post");
        assert!(
            served.recv_timeout(LONG).expect("receive").is_none(),
            "the client should end the connection"
        );
        drop(served);
        client.join().expect("client should not panic");
    });
}

/// Answers `request` in one of several wrong ways. The client needs the returned side until its end.
fn answer(request: CmId, channel: &EventChannel, rng: &mut Rng) -> Option<Side> {
    // This side posts no receive. With the default of `ConnParam` the client would repeat its message forever.
    let (private_data, rnr_retry_count) = (bytes(rng), 1);
    let param = ConnParam { private_data, rnr_retry_count, ..ConnParam::default() };
    match rng.roll(4) {
        0 => request.reject(&param.private_data).expect("reject"),
        1 => drop(request),
        // The queue pair does not exist.
        2 => {
            request.accept(&ConnParam { qp_num: number(rng), ..param }).expect("accept");
            thread::sleep(SHORT);
        }
        // This side ends the connection at once, or reads no further events.
        _ => {
            let side = Side::new(request, Shape::default());
            side.id.accept(&param).expect("accept");
            channel
                .expect_event(EventType::Established)
                .expect("the connection should be established");
            if rng.roll(2) == 0 {
                side.id.disconnect().expect("disconnect");
            }
            return Some(side);
        }
    }
    None
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn hostile_servers_are_reported() {
    let before = objects_at(roce(0));
    let channel = channel();
    let mut rng = Rng(0x2545_f491_4f6c_dd1d);
    let (listener, server) = listen(&channel, roce(0));
    for round in 0..ROUNDS {
        thread::scope(|scope| {
            let client = scope.spawn(move || {
                let connector =
                    Connector::new().ack_timeout(8).config(config()).total_timeout(LONG);
                let client = connector.connect(server)?;
                client
                    .start_send(filled(&client, b"hello"))
                    .and_then(|send| send.wait_timeout(LONG))?;
                client.close(LONG)
            });
            let _side = answer(request(&channel), &channel, &mut rng);
            let error = client
                .join()
                .expect("thread should not panic")
                .expect_err("no program should listen");
            let is_expected = matches!(
                error.kind(),
                ErrorKind::Rejected(_)
                    | ErrorKind::Disconnected
                    | ErrorKind::WorkRequestFailed(_)
                    | ErrorKind::Os(libc::EINVAL)
            );
            assert!(is_expected, "round {round}: {error}");
            while channel.get_event_timeout(Duration::ZERO).expect("look").is_some() {}
        });
    }
    drop((listener, channel));
    assert_eq!(objects_at(roce(0)), before);
}

/// Returns the bytes of an iWARP connection request.
///
/// The layout is `struct mpa_rr` of `drivers/infiniband/sw/siw/iwarp.h`, revision 1, with private data.
fn mpa_request(private_data: &[u8]) -> Vec<u8> {
    let length =
        u16::try_from(private_data.len()).expect("the private data should be short").to_be_bytes();
    [b"MPA ID Req Frame", &[0, 1][..], &length, private_data].concat()
}

/// Connects by TCP. The kernel may give the same port to an id afterwards.
fn by_tcp(server: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(server).expect("connect");
    setsockopt(&stream, ReuseAddr, &true).expect("share the port");
    stream
}

/// Checks that hostile TCP clients leave the listener usable.
///
/// No client leaves before siw has taken its connection, because that would end the listener. Until then, siw frees the
/// endpoint of the listener with the socket of the client while the endpoint is in a list.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn hostile_tcp_clients_leave_siw_listener_usable() {
    let before = objects_at(siw(0));
    let mut rng = Rng(0xda94_2042_e4dd_58b5);
    let listener = Listener::bind(siw(0)).expect("listen");
    let server = listener.local_addr().expect("an IP address");
    let (mut silent, mut accepted) = (Vec::new(), 0);
    for round in 0..ROUNDS {
        let mut stream = by_tcp(server);
        let private_data = bytes(&mut rng);
        let request = mpa_request(&private_data);
        let mut send = |bytes: &[u8]| stream.write_all(bytes).expect("send the bytes");
        match rng.roll(5) {
            0 => send(&bytes(&mut rng).repeat(20)),
            1 => send(&request[..rng.roll(request.len())]),
            // The request declares more private data than the maximum.
            2 => send(&[&request[..18], &[0xff; 600]].concat()),
            what => {
                send(&request);
                let incoming = listener.accept_timeout(LONG).expect("a request");
                assert_eq!(incoming.private_data(), private_data, "round {round}");
                if what == 3 {
                    drop(stream);
                    let gone = incoming.accept(&config(), b"", LONG);
                    let received = gone.and_then(|connection| connection.recv_timeout(LONG));
                    assert!(!matches!(received, Ok(Some(_))), "round {round}: {received:?}");
                } else {
                    let connection = incoming.accept(&config(), b"", LONG).expect("accept");
                    send(&bytes(&mut rng).repeat(20));
                    drop(stream);
                    let received = connection.recv_timeout(LONG);
                    assert!(!matches!(received, Ok(Some(_))), "round {round}: {received:?}");
                    accepted += 1;
                }
                continue;
            }
        }
        silent.push(stream);
        if round % 5 == 0 {
            serves_another(&listener);
        }
    }
    serves_another(&listener);
    assert!(accepted > 0 && silent.len() > 3, "{accepted} accepted, {} silent", silent.len());
    drop((listener, silent));
    wait_until("the kernel has released all objects", || objects_at(siw(0)) == before);
}

/// Checks that siw may leave a message unread if the peer connects and sends at once.
///
/// siw reads when bytes arrive. Bytes that arrive before siw can read stay unread until more bytes arrive.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn siw_delays_message_received_during_accept() {
    const TRIES: usize = 3;
    let listener = Listener::bind(siw(0)).expect("listen");
    // The work item of the kernel that has read the request may run late, and read again when the connection is
    // established.
    let seen = (0..TRIES).any(|_| message_stays_unread(&listener));
    assert!(seen, "siw should leave a message unread");
}

/// Returns `true` if siw leaves a message before the accept unread until another one arrives.
fn message_stays_unread(listener: &Listener) -> bool {
    const HEADER: usize = 20;
    let server = listener.local_addr().expect("an IP address");
    let mut stream = by_tcp(server);
    stream.set_read_timeout(Some(LONG)).expect("set a limit");
    stream.write_all(&mpa_request(b"")).expect("ask");
    let incoming = listener.accept_timeout(LONG).expect("a request");
    stream.write_all(&[0xff; 100]).expect("send more bytes");
    wait_until("siw has unread bytes", has_unread_bytes);
    let connection = incoming.accept(&config(), b"", LONG).expect("accept");
    stream.read_exact(&mut [0; HEADER]).expect("the answer");
    let nothing = connection.recv_timeout(SHORT);
    if !has_unread_bytes() {
        return false;
    }
    let error = nothing.expect_err("nothing should have been read");
    assert!(matches!(error.kind(), ErrorKind::TimedOut), "{error}");
    stream.write_all(&[0xff]).expect("send more bytes");
    let end = connection.recv_timeout(LONG).expect("the connection should end without an error");
    assert!(end.is_none(), "{end:?} should be the end");
    wait_until("siw has no unread bytes", || !has_unread_bytes());
    true
}
