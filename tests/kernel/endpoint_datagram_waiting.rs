//! The safe tier: readiness and waiting threads of datagram sockets.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use rdmacm::ErrorKind;
use rdmacm::cm::{ConnParam, EventType, Membership};
use rdmacm::endpoint::{DatagramConfig, DatagramSocket};
use rdmacm_tests::wait_until;

use crate::datagram::{id as udp, resolve};
use crate::endpoint_datagrams::{
    address, becomes_readable, filled, found, is_readable, now, receives, resolve_peer, socket,
};
use crate::fixtures::{LONG, announce, asleep, assert_invalid, channel, ids, roce};

/// Checks that datagrams wake an event loop while another thread waits for an answer.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn loop_wakes_beside_blocked_resolve() {
    let (receiver, sender) = (socket(roce(0)), socket(roce(0)));
    let peer = found(&sender, &receiver);
    // This listener does not answer.
    let theirs = channel();
    let silent = udp(&theirs);
    silent.bind(roce(0)).expect("bind");
    silent.listen(0).expect("listen");
    let address = silent.local_addr().expect("query").expect("a bound id should have an address");
    let (tx, rx) = mpsc::channel();
    thread::scope(|scope| {
        let blocked = scope.spawn(|| {
            announce(&tx);
            receiver.start_resolve_peer(address)?.wait_timeout(LONG * 2)
        });
        let blocked_id = rx.recv().expect("the thread should begin");
        for round in 0..40_u8 {
            assert!(now(receiver.try_recv_from()).is_none());
            asleep(blocked_id);
            sender.post_send_to(filled(&sender, &[round]), &peer).expect("post");
            let (message, _) = loop {
                match now(receiver.try_recv_from()) {
                    Some(received) => break received,
                    None => becomes_readable(&[&receiver]),
                }
            };
            assert_eq!(*message, [round]);
        }
        assert!(!blocked.is_finished(), "the call should wait for an answer");
        silent.destroy().expect("destroy");
        let error =
            blocked.join().expect("thread should not panic").expect_err("peer should have left");
        assert!(matches!(error.kind(), ErrorKind::Unreachable(_)), "{error}");
    });
}

/// Sends in three threads, each by another call, and receives in two until the socket ends.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn many_threads_share_one_socket() {
    const EACH: u32 = 100;
    let config = DatagramConfig::new().receive_buffers(3 * EACH);
    let server = DatagramSocket::bind(roce(0), &config).expect("bind");
    let config = DatagramConfig::new().send_buffers(3);
    let client = DatagramSocket::bind(roce(0), &config).expect("bind");
    let count = AtomicU32::new(0);
    let mut received = thread::scope(|scope| {
        let receivers = [(); 2].map(|()| {
            scope.spawn(|| {
                let mut numbers = Vec::new();
                loop {
                    match server.recv_from_timeout(LONG) {
                        Ok((message, _)) => {
                            numbers.push(u32::from_ne_bytes(message[..].try_into().expect("4")));
                            count.fetch_add(1, Ordering::Relaxed);
                        }
                        Err(error) if *error.kind() == ErrorKind::Disconnected => return numbers,
                        Err(error) => panic!("{error}"),
                    }
                }
            })
        });
        let senders = [0, 1, 2].map(|which| {
            let (client, server) = (&client, &server);
            scope.spawn(move || {
                let peer = client
                    .start_resolve_peer(address(server))
                    .and_then(|resolution| resolution.wait_timeout(LONG))
                    .expect("resolve");
                for number in which * EACH..(which + 1) * EACH {
                    let buffer = filled(client, &number.to_ne_bytes());
                    if which == 0 {
                        drop(
                            client
                                .start_send_to(buffer, &peer)
                                .and_then(|send| send.wait_timeout(LONG))
                                .expect("send"),
                        );
                        continue;
                    }
                    client.post_send_to(buffer, &peer).expect("post");
                    if which == 1 {
                        client.flush_timeout(LONG).expect("flush");
                    }
                }
            })
        });
        senders.into_iter().for_each(|sender| sender.join().expect("sender should not panic"));
        wait_until("all datagrams have arrived", || count.load(Ordering::Relaxed) == 3 * EACH);
        server.abort();
        receivers.map(|receiver| receiver.join().expect("receiver should not panic")).concat()
    });
    received.sort_unstable();
    assert!(received.into_iter().eq(0..3 * EACH), "each number should arrive once");
}

/// Checks that the descriptor of a socket is readable whenever a call can make progress.
///
/// One thread uses both sockets, and sleeps if no call can make progress.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn descriptor_reports_progress() {
    let config = DatagramConfig::new().send_buffers(1);
    let bind = || DatagramSocket::bind(roce(0), &config).expect("bind");
    let (client, server) = (bind(), bind());
    // A request makes the descriptor readable, although no call on the server has been made.
    let mut resolution = resolve_peer(&client, &server);
    let peer = loop {
        if let Some(peer) = now(resolution.try_wait()) {
            break peer;
        }
        becomes_readable(&[&client, &server]);
        if is_readable(&server) {
            assert!(now(server.try_recv_from()).is_none());
        }
    };
    // A datagram makes the descriptor readable, even if another call has polled the datagram.
    client.post_send_to(filled(&client, b"first"), &peer).expect("post");
    becomes_readable(&[&server]);
    receives(&server, b"first");
    assert!(now(server.try_recv_from()).is_none());
    assert!(!is_readable(&server), "no call should be able to make progress");
    client.post_send_to(filled(&client, b"second"), &peer).expect("post");
    becomes_readable(&[&server]);
    let buffer = server.try_acquire_buffer().expect("a buffer should be free");
    assert!(now(server.try_acquire_buffer()).is_none(), "no second buffer should be free");
    becomes_readable(&[&server]);
    let (message, sender) = now(server.try_recv_from()).expect("a datagram should have arrived");
    assert_eq!(*message, *b"second");
    assert!(now(server.try_recv_from()).is_none());
    assert!(!is_readable(&server), "no call should be able to make progress");
    // A buffer that another thread drops makes the descriptor readable, and so does the buffer of a completed send.
    thread::scope(|scope| {
        scope.spawn(|| drop(buffer));
        let take = || loop {
            match now(server.try_acquire_buffer()) {
                Some(buffer) => return buffer,
                None => becomes_readable(&[&server]),
            }
        };
        server.post_send_to(take(), &sender).expect("post");
        drop(take());
    });
    server.try_flush().expect("all sends should have completed");
    // An answer makes the descriptor readable, even if another call has read the answer.
    let mut resolution = resolve_peer(&client, &server);
    assert!(now(resolution.try_wait()).is_none());
    loop {
        becomes_readable(&[&client, &server]);
        assert!(now(server.try_recv_from()).is_none());
        drop(now(client.try_recv_from()));
        if let Some(again) = now(resolution.try_wait()) {
            assert_eq!(again, peer);
            break;
        }
    }
}

/// Checks that an answer that another call has read makes the descriptor readable.
///
/// This holds even after another resolution has returned its own answer.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn descriptor_reports_each_of_several_answers() {
    let [client, first, second] = [(); 3].map(|()| socket(roce(0)));
    let mut resolution = resolve_peer(&client, &first);
    assert!(now(resolution.try_wait()).is_none());
    assert_eq!(found(&client, &second).qp_num(), second.qp_num());
    // The request arrives after the steps of the client. Then another call reads the answer.
    loop {
        assert!(now(client.try_recv_from()).is_none());
        if is_readable(&first) {
            break;
        }
        becomes_readable(&[&client, &first]);
    }
    assert!(now(first.try_recv_from()).is_none());
    becomes_readable(&[&client]);
    assert!(now(client.try_recv_from()).is_none());
    becomes_readable(&[&client]);
    let peer = now(resolution.try_wait()).expect("the answer should have arrived");
    assert_eq!(peer.qp_num(), first.qp_num());
    let error = resolution.try_wait().expect_err("the result should be returned once");
    assert_invalid(&error, &["remote operation", "returned already"]);
}

/// Checks that after a resolution is dropped, its answer does not make the descriptor readable.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn dropped_resolution_is_canceled() {
    let [client, server] = [(); 2].map(|()| socket(roce(0)));
    // The first resolution is dropped after its request was sent, and the second one before.
    for answered in [true, false] {
        let mut resolution = resolve_peer(&client, &server);
        assert!(now(resolution.try_wait()).is_none());
        if answered {
            assert!(now(client.try_recv_from()).is_none());
            while !is_readable(&server) {
                becomes_readable(&[&client, &server]);
                assert!(now(client.try_recv_from()).is_none());
            }
            assert!(now(server.try_recv_from()).is_none());
            for _ in 0..2 {
                becomes_readable(&[&client]);
                assert!(now(client.try_recv_from()).is_none());
            }
        }
        match answered {
            true => drop(resolution),
            false => {
                let late = resolution
                    .wait_timeout(Duration::ZERO)
                    .expect_err("no answer should have arrived");
                assert_eq!(*late.kind(), ErrorKind::TimedOut);
            }
        }
        if answered {
            assert!(!is_readable(&client), "the answer should be dropped");
        }
        assert!(now(client.try_recv_from()).is_none());
        assert!(!is_readable(&client), "no call should be able to make progress");
    }
    assert_eq!(found(&client, &server).qp_num(), server.qp_num());
}

/// Checks that a flood of requests does not delay calls that do not wait.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn request_flood_is_answered_in_batches() {
    const PEERS: u64 = 100;
    let server = socket(roce(0));
    let channel = channel();
    let before = ids();
    let ask = |_| {
        let id = udp(&channel);
        resolve(&channel, &id, address(&server));
        id.connect(&ConnParam::default()).expect("ask");
        id
    };
    let peers: Vec<_> = (0..PEERS).map(ask).collect();
    // Each attempt has an id on both sides. The server's id is destroyed after the answer.
    wait_until("all requests have arrived", || ids() == before + 2 * PEERS);
    assert!(now(server.try_recv_from()).is_none());
    let waiting = ids() - before - PEERS;
    assert!((1..PEERS).contains(&waiting), "{waiting} requests wait");
    while ids() > before + PEERS {
        becomes_readable(&[&server]);
        assert!(now(server.try_recv_from()).is_none());
    }
    for _ in &peers {
        channel.expect_event(EventType::Established).expect("an answer should arrive");
    }
}

/// Checks that a thread that is blocked in a call returns when another thread ends the socket.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn abort_wakes_blocked_calls() {
    let config = DatagramConfig::new().send_buffers(1);
    let bind = || DatagramSocket::bind(roce(0), &config).expect("bind");
    let (client, silent) = (bind(), bind());
    let buffer = client.acquire_buffer().expect("the only buffer should be free");
    let (tx, rx) = mpsc::channel();
    type Call = fn(&DatagramSocket, SocketAddr) -> rdmacm::Error;
    let calls: [Call; 4] = [
        |client, _| client.recv_from_timeout(LONG).expect_err("no datagram should arrive"),
        |client, _| client.acquire_buffer_timeout(LONG).expect_err("no buffer should be free"),
        |client, silent| {
            client
                .start_resolve_peer(silent)
                .and_then(|resolution| resolution.wait_timeout(LONG))
                .expect_err("no answer should arrive")
        },
        |client, silent| {
            let resolution = client.start_resolve_peer(silent).expect("the socket should start it");
            resolution.wait().expect_err("no answer should arrive")
        },
    ];
    thread::scope(|scope| {
        let sleepers = calls.map(|call| {
            let (tx, client, silent) = (tx.clone(), &client, address(&silent));
            scope.spawn(move || {
                announce(&tx);
                call(client, silent)
            })
        });
        (0..4).for_each(|_| asleep(rx.recv().expect("a thread should begin")));
        client.abort();
        for sleeper in sleepers {
            let error = sleeper.join().expect("the call should return");
            assert_eq!(*error.kind(), ErrorKind::Disconnected, "{error}");
        }
    });
    drop(buffer);
    for error in [
        client.try_recv_from().map(drop).expect_err("the socket should have ended"),
        client
            .start_resolve_peer(address(&silent))
            .map(drop)
            .expect_err("the socket should have ended"),
        client
            .start_join_multicast(([239, 1, 2, 3], 0), Membership::Full)
            .map(drop)
            .expect_err("the socket should have ended"),
    ] {
        assert_eq!(*error.kind(), ErrorKind::Disconnected, "{error}");
    }
}
