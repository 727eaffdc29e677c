//! Full send queues of requests in pieces, of which only some ask for a completion: every byte, and every byte around it.

use std::iter;
use std::net::SocketAddr;
use std::ops::Range;

use rdmacm::cm::ConnParam;
use rdmacm::verbs::{QueuePairCaps, SendFlags, SendOperation};

use crate::bed::{Connection, rxe, siw};
use crate::io::Shape;
use crate::transfer::pattern;

/// Requests at a time, pieces of one, bytes of a piece.
const DEPTH: usize = 8;
const PIECES: usize = 4;
const PIECE: usize = 41;
/// What belongs to one request, and begins with a byte that does not.
const SLOT: usize = 256;
const GUARD: u8 = 0xee;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Movement {
    Send,
    Write,
    Read,
}

/// Where the pieces of request `number` lie: apart from each other.
fn apart(number: usize, pieces: usize) -> Vec<Range<usize>> {
    let start = |piece: usize| number * SLOT + 1 + piece * (PIECE + 13);
    (0..pieces).map(|piece| start(piece)..start(piece) + PIECE).collect()
}

/// The same in one.
fn together(number: usize, pieces: usize) -> Vec<Range<usize>> {
    let start = number * SLOT + 1;
    iter::once(start..start + pieces * PIECE).collect()
}

fn sweep(address: SocketAddr, most_to_read: usize) {
    let caps = QueuePairCaps {
        max_send_wr: DEPTH.try_into().expect("few"),
        max_recv_wr: DEPTH.try_into().expect("few"),
        max_send_sge: PIECES.try_into().expect("few"),
        max_recv_sge: PIECES.try_into().expect("few"),
        max_inline_data: 0,
    };
    let shape = Shape { caps, memory: DEPTH * SLOT, ..Shape::default() };
    let param = ConnParam { responder_resources: 4, initiator_depth: 4, ..ConnParam::default() };
    let mut connection = Connection::to(address, shape, &param);
    for pieces in 1..=PIECES {
        for every in [1, 3, DEPTH] {
            round(&mut connection, Movement::Send, pieces, every);
            round(&mut connection, Movement::Write, pieces, every);
            if pieces <= most_to_read {
                round(&mut connection, Movement::Read, pieces, every);
            }
        }
    }
    connection.close();
}

/// Fills the client's send queue and waits for it; every so many requests one is signalled, and the last.
fn round(connection: &mut Connection, movement: Movement, pieces: usize, every: usize) {
    let what = format!("{movement:?} of {pieces} pieces, one signalled of {every}");
    let (client, server) = (&mut connection.client.io, &mut connection.server.io);
    let bytes = pattern(pieces * 10 + every, DEPTH * SLOT);
    let (source, sink) = match movement {
        Movement::Read => (&mut *server, &mut *client),
        Movement::Send | Movement::Write => (&mut *client, &mut *server),
    };
    source.fill(0, &bytes);
    sink.fill(0, &[GUARD; DEPTH * SLOT]);
    let mut expected = vec![GUARD; DEPTH * SLOT];
    for number in 0..DEPTH {
        let (here, there) = (apart(number, pieces), together(number, pieces));
        let offset = there[0].start as u64;
        let (operation, from, to) = match movement {
            Movement::Send => {
                server.receive_into(number as u64, &here).expect("post a receive");
                (SendOperation::Send, here.clone(), here.clone())
            }
            Movement::Write => (server.written_at(offset), here.clone(), there),
            Movement::Read => (server.read_at(offset), there, here.clone()),
        };
        let mut moved = from.into_iter().flat_map(|part| bytes[part].to_vec());
        for place in to.into_iter().flatten() {
            expected[place] = moved.next().expect("as many bytes");
        }
        let signalled = (number + 1) % every == 0 || number + 1 == DEPTH;
        let flags = if signalled { SendFlags::SIGNALED } else { SendFlags::empty() };
        client.post_parts(number as u64, operation, &here, flags).expect("post");
    }
    for number in 0..DEPTH {
        if movement == Movement::Send {
            let received = server.done(number as u64);
            assert_eq!(received.byte_len() as usize, pieces * PIECE, "{what}");
        }
        if (number + 1) % every == 0 || number + 1 == DEPTH {
            client.done(number as u64);
        }
    }
    assert!(client.polled().is_none() && server.polled().is_none(), "{what}: one too many");
    let sink = if movement == Movement::Read { client } else { server };
    let found = sink.bytes(0..DEPTH * SLOT);
    let differs = found.iter().zip(&expected).position(|(found, expected)| found != expected);
    assert_eq!(differs, None, "{what}");
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn full_queues_in_pieces() {
    sweep(rxe(0), PIECES);
}

/// siw reads into one piece.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn full_queues_in_pieces_on_siw() {
    sweep(siw(0), 1);
}
