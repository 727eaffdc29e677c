//! Peers who speak nonsense: the safe tier says so of each, and goes on with the next.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::Duration;

use nix::sys::socket::setsockopt;
use nix::sys::socket::sockopt::ReuseAddr;
use rdmacm::ErrorKind;
use rdmacm::cm::{CmId, ConnParam, EventChannel, EventType};
use rdmacm::endpoint::{Connector, Listener, Settings};
use rdmacm::verbs::{SendFlags, SendOperation};
use rdmacm_tests::siw::has_left_bytes_lying;
use rdmacm_tests::wait_until;

use crate::bed::{LONG, Side, channel, listen, request, resolve, rxe, siw};
use crate::dice::Dice;
use crate::endpoint_connect::objects_at;
use crate::endpoint_messages::{filled, receives};
use crate::io::Shape;

const ROUNDS: usize = 30;
/// How long somebody who says nothing is listened to.
const SHORT: Duration = Duration::from_millis(20);

/// Bytes that mean nothing, as many as fit.
fn bytes(dice: &mut Dice) -> Vec<u8> {
    let length = dice.roll(57);
    (0..length).map(|_| u8::try_from(dice.roll(256)).expect("a byte")).collect()
}

/// The number of a queue pair that there is not.
fn number(dice: &mut Dice) -> u32 {
    u32::try_from(dice.roll(1 << 24)).expect("24 bits")
}

/// Who sends without being sure that it arrives gives up soon.
fn settings() -> Settings {
    Settings { retry_count: 1, rnr_retry_count: 1, ..Settings::default() }
}

/// A client of `server` that does one of the things which nobody should do.
fn speak(channel: &EventChannel, server: &Listener, dice: &mut Dice) {
    let server = server.local_addr().expect("an IP address");
    let client = resolve(channel, server);
    let param = ConnParam { private_data: bytes(dice), ..ConnParam::default() };
    match dice.roll(5) {
        // A queue pair that is not there; an answer is not confirmed.
        0 => client.connect(&ConnParam { qp_num: number(dice), ..param }).expect("ask"),
        // One that is gone when the answer comes.
        1 => {
            let side = Side::new(client, Shape::default());
            side.id.connect(&param).expect("ask");
        }
        what => {
            let side = Side::new(client, Shape::default());
            side.id.connect(&param).expect("ask");
            channel.expect_event(EventType::Established).expect("connected");
            match what {
                // Ends at once.
                2 => side.id.disconnect().expect("disconnect"),
                // Writes where there is nothing.
                3 => {
                    let remote_addr = u64::from(number(dice)) << 20;
                    let write = SendOperation::Write { remote_addr, rkey: number(dice) };
                    side.io.post(1, write, 0..64, SendFlags::SIGNALED).expect("post");
                    assert!(!side.io.next().is_success(), "it was written");
                }
                // Says nothing, and goes.
                _ => thread::sleep(SHORT),
            }
        }
    }
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn clients_who_do_leave_a_listener_to_the_others() {
    let before = objects_at(rxe(0));
    let channel = channel();
    let mut dice = Dice(0x9e37_79b9_7f4a_7c15);
    let listener = Listener::bind(rxe(0)).expect("listen");
    let mut stood = 0;
    for round in 0..ROUNDS {
        thread::scope(|scope| {
            let serves = scope.spawn(|| {
                let incoming = listener.incoming_timeout(LONG).expect("a request");
                let connection = incoming.accept(&settings(), b"", LONG)?;
                let heard = connection.recv_timeout(SHORT);
                assert!(!matches!(heard, Ok(Some(_))), "round {round}: {heard:?}");
                Ok::<_, rdmacm::Error>(())
            });
            speak(&channel, &listener, &mut dice);
            // What is about the last one is of no interest to the next.
            while channel.get_event_timeout(Duration::ZERO).expect("look").is_some() {}
            stood += usize::from(serves.join().expect("it goes on").is_ok());
        });
        if round % 5 == 0 {
            serves_another(&listener);
        }
    }
    assert!((1..ROUNDS).contains(&stood), "{stood} of {ROUNDS} connections stood");
    drop((listener, channel));
    assert_eq!(objects_at(rxe(0)), before);
}

/// That `listener` has a connection with somebody who speaks.
fn serves_another(listener: &Listener) {
    let server = listener.local_addr().expect("an IP address");
    thread::scope(|scope| {
        let client = scope.spawn(move || {
            let client = Connector::new().timeout(LONG).connect(server).expect("connect");
            client
                .start_send(filled(&client, b"sense"))
                .and_then(|send| send.wait_timeout(LONG))
                .expect("send");
            // siw may leave the first message lying until more comes: who closed now would lose it. See `CmId::accept`.
            receives(&client, b"heard");
            client.close(LONG).expect("close");
        });
        let incoming = listener.incoming_timeout(LONG).expect("a request");
        let served = incoming.accept(&settings(), b"", LONG).expect("accept");
        receives(&served, b"sense");
        served.post(filled(&served, b"heard")).expect("post");
        assert!(served.recv_timeout(LONG).expect("receive").is_none(), "it has ended");
        drop(served);
        client.join().expect("it is content");
    });
}

/// Answers `request` in one of the ways in which nobody should. What is returned stays until the client is done.
fn answer(request: CmId, channel: &EventChannel, dice: &mut Dice) -> Option<Side> {
    let param = ConnParam { private_data: bytes(dice), ..ConnParam::default() };
    match dice.roll(4) {
        0 => request.reject(&param.private_data).expect("reject"),
        1 => drop(request),
        // A queue pair that is not there.
        2 => {
            request.accept(&ConnParam { qp_num: number(dice), ..param }).expect("accept");
            thread::sleep(SHORT);
        }
        // One that ends at once, or hears of nothing.
        _ => {
            let side = Side::new(request, Shape::default());
            side.id.accept(&param).expect("accept");
            channel.expect_event(EventType::Established).expect("connected");
            if dice.roll(2) == 0 {
                side.id.disconnect().expect("disconnect");
            }
            return Some(side);
        }
    }
    None
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn servers_who_do_are_told_of() {
    let before = objects_at(rxe(0));
    let channel = channel();
    let mut dice = Dice(0x2545_f491_4f6c_dd1d);
    let (listener, server) = listen(&channel, rxe(0));
    for round in 0..ROUNDS {
        thread::scope(|scope| {
            let client = scope.spawn(move || {
                let connector = Connector::new().ack_timeout(8).settings(settings()).timeout(LONG);
                let client = connector.connect(server)?;
                client
                    .start_send(filled(&client, b"hello"))
                    .and_then(|send| send.wait_timeout(LONG))?;
                client.close(LONG)
            });
            let _side = answer(request(&channel), &channel, &mut dice);
            let error = client.join().expect("it comes back").expect_err("nobody has listened");
            let is_told = matches!(
                error.kind(),
                ErrorKind::Rejected(_)
                    | ErrorKind::Disconnected
                    | ErrorKind::Failed(_)
                    | ErrorKind::Os(libc::EINVAL)
                    | ErrorKind::Remedy { errno: libc::EINVAL, .. }
            );
            assert!(is_told, "round {round}: {error}");
            while channel.get_event_timeout(Duration::ZERO).expect("look").is_some() {}
        });
    }
    drop((listener, channel));
    assert_eq!(objects_at(rxe(0)), before);
}

/// What asks for a connection of iWARP: `struct mpa_rr` of `drivers/infiniband/sw/siw/iwarp.h`, of revision 1, and
/// private data.
fn mpa_request(private_data: &[u8]) -> Vec<u8> {
    let length = u16::try_from(private_data.len()).expect("it is short").to_be_bytes();
    [b"MPA ID Req Frame", &[0, 1][..], &length, private_data].concat()
}

/// Connects by TCP, and does not keep the port afterwards from ids which the kernel gives it to.
fn by_tcp(server: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(server).expect("connect");
    setsockopt(&stream, ReuseAddr, &true).expect("share the port");
    stream
}

/// None of them goes before siw has taken the connection, which would be the end of the listener: until then the
/// listener's endpoint is that of the socket too, and is freed with it while it is still in a list.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn who_comes_by_tcp_and_is_no_device_leaves_a_listener_on_siw_to_the_others() {
    let before = objects_at(siw(0));
    let mut dice = Dice(0xda94_2042_e4dd_58b5);
    let listener = Listener::bind(siw(0)).expect("listen");
    let server = listener.local_addr().expect("an IP address");
    let (mut silent, mut accepted) = (Vec::new(), 0);
    for round in 0..ROUNDS {
        let mut stream = by_tcp(server);
        let private_data = bytes(&mut dice);
        let request = mpa_request(&private_data);
        let mut say = |bytes: &[u8]| stream.write_all(bytes).expect("say it");
        match dice.roll(5) {
            0 => say(&bytes(&mut dice).repeat(20)),
            1 => say(&request[..dice.roll(request.len())]),
            // What is asked for more than there can be.
            2 => say(&[&request[..18], &[0xff; 600]].concat()),
            what => {
                say(&request);
                let incoming = listener.incoming_timeout(LONG).expect("a request");
                assert_eq!(incoming.private_data(), private_data, "round {round}");
                if what == 3 {
                    drop(stream);
                    let gone = incoming.accept(&settings(), b"", LONG);
                    let heard = gone.and_then(|connection| connection.recv_timeout(LONG));
                    assert!(!matches!(heard, Ok(Some(_))), "round {round}: {heard:?}");
                } else {
                    let connection = incoming.accept(&settings(), b"", LONG).expect("accept");
                    say(&bytes(&mut dice).repeat(20));
                    drop(stream);
                    let heard = connection.recv_timeout(LONG);
                    assert!(!matches!(heard, Ok(Some(_))), "round {round}: {heard:?}");
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
    wait_until("the kernel has nothing left of it", || objects_at(siw(0)) == before);
}

/// As it does in a race with a peer that connects and sends at once: siw reads when something arrives, and what arrived
/// before it was to read is not read until more arrives.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn siw_leaves_lying_what_comes_while_it_accepts() {
    const TRIES: usize = 3;
    let listener = Listener::bind(siw(0)).expect("listen");
    // The work that read the request may be late, and look once more when the connection stands.
    let seen = (0..TRIES).any(|_| leaves_lying(&listener));
    assert!(seen, "it has read all");
}

/// Returns `true` if siw leaves what comes before `listener` accepts, until more comes.
fn leaves_lying(listener: &Listener) -> bool {
    const HEADER: usize = 20;
    let server = listener.local_addr().expect("an IP address");
    let mut stream = by_tcp(server);
    stream.set_read_timeout(Some(LONG)).expect("set a limit");
    stream.write_all(&mpa_request(b"")).expect("ask");
    let incoming = listener.incoming_timeout(LONG).expect("a request");
    stream.write_all(&[0xff; 100]).expect("say more");
    wait_until("it lies there", has_left_bytes_lying);
    let connection = incoming.accept(&settings(), b"", LONG).expect("accept");
    stream.read_exact(&mut [0; HEADER]).expect("the answer");
    let nothing = connection.recv_timeout(SHORT);
    if !has_left_bytes_lying() {
        return false;
    }
    let error = nothing.expect_err("nothing has been read");
    assert!(matches!(error.kind(), ErrorKind::TimedOut), "{error}");
    stream.write_all(&[0xff]).expect("say more");
    let end = connection.recv_timeout(LONG).expect("an end in good order");
    assert!(end.is_none(), "{end:?} was no message");
    wait_until("nothing lies there", || !has_left_bytes_lying());
    true
}
