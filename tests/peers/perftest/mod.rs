//! Programs of C's perftest against a partner on this library, which implements their exchange of parameters.
//!
//! Each test compares the memory of both sides. The memory of C's program is read by its process id, at the addresses
//! of the exchange.

mod exchange;
mod partner;

use exchange::Report;
use partner::{MESSAGES, Partner, Role, Test, fill, pattern};
use rdmacm::verbs::SendOperation;
use rdmacm_tests::Ended;

/// Makes two tests of each body, which takes the role of the partner.
macro_rules! both_ways {
    ($($body:ident)*) => {$(
        mod $body {
            use super::partner::Role;

            #[test]
            #[ignore = "needs the test bed: cargo xtask test"]
            fn ours_serves_c() {
                super::$body(Role::Server);
            }

            #[test]
            #[ignore = "needs the test bed: cargo xtask test"]
            fn c_serves_ours() {
                super::$body(Role::Client);
            }
        }
    )*};
}

both_ways! {
    send_lat
    write_bw
    read_lat
    atomic_lat
}

/// Lengths of messages: one that libmlx5 sends as inline data, and one of three packets.
const SIZES: [usize; 2] = [64, 3000];

fn send_lat(role: Role) {
    for size in SIZES {
        let test = Test { program: "ib_send_lat", size, handshakes: 1 };
        let mut partner = Partner::start(role, &test);
        let mut buffer = partner.buffers.pop().expect("a buffer should be left");
        for buffer in std::mem::take(&mut partner.buffers) {
            partner.queues.post_recv(buffer).expect("post a receive");
        }
        partner.handshake();
        let expected = partner.source(size);
        for number in 0..MESSAGES {
            if role == Role::Server {
                assert!(partner.receive() == expected, "message {number} of {size} bytes");
            }
            buffer.copy_from_slice(&pattern(number, size));
            buffer = partner.send(buffer, size, SendOperation::Send);
            if role == Role::Client {
                assert!(partner.receive() == expected, "message {number} of {size} bytes");
            }
        }
        partner.await_end();
        assert!(partner.target(size) == pattern(MESSAGES - 1, size), "last of {size} bytes");
        assert_eq!(partner.queues.outstanding(), 0, "C's program sends as many messages");
        assert_latencies(&partner.end(), size);
    }
}

fn write_bw(role: Role) {
    for size in SIZES {
        let test = Test { program: "ib_write_bw", size, handshakes: 1 };
        let mut partner = Partner::start(role, &test);
        let (cycle, stride) = (partner.agreed.cycle, partner.agreed.cache_line);
        // Small writes go to consecutive cache lines, from memory at the offset that they go to.
        let offset = |number| if size > cycle / 2 { 0 } else { number * stride };
        let parts = (0..MESSAGES).map(|number| offset(number)..offset(number) + size);
        match role {
            Role::Server => {
                let mut expected = fill();
                partner.handshake();
                let source = partner.source(expected.len());
                parts.for_each(|part| expected[part.clone()].copy_from_slice(&source[part]));
                assert!(partner.bytes() == expected, "{size} bytes");
            }
            Role::Client => {
                let mut expected = partner.target(cycle);
                let mut buffer = partner.buffers.pop().expect("a buffer should be left");
                for (number, part) in parts.enumerate() {
                    buffer.copy_from_slice(&pattern(number, size));
                    let remote_addr = partner.theirs.vaddr + part.start as u64;
                    let operation = SendOperation::Write { remote_addr, rkey: partner.theirs.rkey };
                    buffer = partner.send(buffer, size, operation);
                    expected[part].copy_from_slice(&buffer);
                }
                assert!(partner.target(cycle) == expected, "{size} bytes");
                partner.handshake();
            }
        }
        let (size, iterations) = (size as u64, MESSAGES as u64);
        let (peak, average, message_rate) = (2.5, 1.25, 0.5);
        let theirs = partner.report(&Report { size, iterations, peak, average, message_rate });
        if role == Role::Server {
            assert_eq!(theirs, (size, iterations));
        }
        partner.await_end();
        let results = results(&partner.end(), test.size).expect("a line of results");
        match role {
            // C prints two decimals, so the rates of a slow machine are zero: only their number is checked.
            Role::Server => assert_eq!(results.len(), 3, "{results:?}"),
            Role::Client => assert_eq!(results, [peak, average, message_rate]),
        }
    }
}

fn read_lat(role: Role) {
    for size in SIZES {
        let test = Test { program: "ib_read_lat", size, handshakes: 2 };
        let mut partner = Partner::start(role, &test);
        if role == Role::Client {
            let (remote_addr, rkey) = (partner.theirs.vaddr, partner.theirs.rkey);
            let expected = partner.target(size);
            let mut buffer = partner.buffers.pop().expect("a buffer should be left");
            for number in 0..MESSAGES {
                buffer.copy_from_slice(&pattern(number, size));
                buffer = partner.send(buffer, size, SendOperation::Read { remote_addr, rkey });
                assert!(*buffer == expected, "read {number} of {size} bytes");
            }
        }
        partner.await_end();
        if role == Role::Server {
            assert!(partner.source(size) == fill()[..size], "{size} bytes");
        }
        assert_client_latencies(role, &partner.end(), size);
    }
}

fn atomic_lat(role: Role) {
    let size = size_of::<u64>();
    let test = Test { program: "ib_atomic_lat", size, handshakes: 2 };
    let mut partner = Partner::start(role, &test);
    let number = |bytes: &[u8]| {
        u64::from_ne_bytes(bytes[..size].try_into().expect("the slice should have 8 bytes"))
    };
    if role == Role::Client {
        let (remote_addr, rkey) = (partner.theirs.vaddr, partner.theirs.rkey);
        let mut buffer = partner.buffers.pop().expect("a buffer should be left");
        let mut value = number(&partner.target(size));
        for add in 1..=MESSAGES as u64 {
            let operation = SendOperation::FetchAdd { remote_addr, rkey, add };
            buffer = partner.send(buffer, size, operation);
            assert_eq!(number(&buffer), value);
            value = value.wrapping_add(add);
        }
        assert_eq!(number(&partner.target(size)), value);
        // The second exchange finds another value than it compares with.
        let compare = value;
        for (swap, expected) in [(!compare, !compare), (compare, !compare)] {
            let operation = SendOperation::CompareSwap { remote_addr, rkey, compare, swap };
            buffer = partner.send(buffer, size, operation);
            assert_eq!(number(&buffer), value);
            value = expected;
            assert_eq!(number(&partner.target(size)), value);
        }
    }
    partner.await_end();
    if role == Role::Server {
        let value = number(&fill()).wrapping_add(MESSAGES as u64);
        assert_eq!(number(&partner.bytes()), value);
        assert_eq!(
            number(&partner.source(size)),
            value.wrapping_sub(1),
            "the source should have the value before the last addition"
        );
        assert!(
            partner.bytes()[size..] == fill()[size..],
            "bytes behind the number should be unchanged"
        );
    }
    assert_client_latencies(role, &partner.end(), size);
}

/// Checks the results of a test that only the client prints.
#[track_caller]
fn assert_client_latencies(role: Role, ended: &Ended, size: usize) {
    match role {
        Role::Server => assert_latencies(ended, size),
        Role::Client => assert_eq!(results(ended, size), None, "{:?}", ended.stdout),
    }
}

/// Checks the order of minimum, maximum, median and mean.
#[track_caller]
fn assert_latencies(ended: &Ended, size: usize) {
    let results = results(ended, size).expect("a line of results");
    let [min, max, median, mean, _deviation, _p99, _p999] = results[..] else {
        panic!("{results:?}")
    };
    assert!(0.0 < min && min <= median && median <= max, "{results:?}");
    assert!(min <= mean && mean <= max, "{results:?}");
}

/// Returns the numbers in the line that begins with the numbers of bytes and messages.
#[track_caller]
fn results(ended: &Ended, size: usize) -> Option<Vec<f64>> {
    let begin = [size.to_string(), MESSAGES.to_string()];
    let words = |line: &String| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    let line = ended.stdout.iter().map(words).find(|words| words.starts_with(&begin))?;
    Some(line[2..].iter().map(|word| word.parse().expect("a number")).collect())
}
