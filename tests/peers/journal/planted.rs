//! Tests that the comparison detects a change of any byte or field of an entry, except of bytes that the device ignores.

use std::fmt::Write as _;
use std::ops::Range;
use std::panic::catch_unwind;

use super::comparison::compare;
use super::entry::{Entry, check_copies, read};

/// Lines that create queue pairs, and a region with key 0x207 at 0x10000.
///
/// Queue pair 16 is of a connection, 17 for datagrams, and 19 of an XRC initiator.
const OBJECTS: &str = "alloc_pd pdn=1 inlen=0 outlen=4\n\
    reg_mr pdn=1 key=519 start=65536 length=4096 iova=65536 access=0xf\n\
    cq cqn=2 cqe=15 vector=0 flags=0\n\
    srq srqn=3 pdn=1 receives=7 sge=1 limit=0\n\
    qp qpn=16 type=2 pdn=1 send_cqn=2 recv_cqn=2 srqn=0\n\
    qp qpn=17 type=4 pdn=1 send_cqn=2 recv_cqn=2 srqn=3\n\
    qp qpn=19 type=9 pdn=1 send_cqn=2 recv_cqn=2 srqn=0\n";

/// Bytes of segments, in the byte order of the device.
mod segment {
    pub(super) fn ctrl(opcode: u8, qp: u8, units: u8, immediate: [u8; 4]) -> Vec<u8> {
        let [a, b, c, d] = immediate;
        vec![0, 0, 5, opcode, 0, 0, qp, units, 0, 0, 0, 8, a, b, c, d]
    }

    pub(super) const KEY: [u8; 4] = [0, 0, 2, 7];
    pub(super) const DATA: [u8; 16] = [0, 0, 0, 9, 0, 0, 2, 7, 0, 0, 0, 0, 0, 1, 0, 0x40];
    pub(super) const REMOTE: [u8; 16] = [0, 0, 0, 0, 0, 1, 0, 0x80, 0, 0, 2, 7, 0, 0, 0, 0];
    pub(super) const ATOMIC: [u8; 16] = [1, 2, 3, 4, 5, 6, 7, 8, 9, 8, 7, 6, 5, 4, 3, 2];
    /// Five bytes of inline data, and seven bytes of padding.
    pub(super) const INLINE: [u8; 16] = [0x80, 0, 0, 5, 1, 2, 3, 4, 5, 7, 7, 7, 7, 7, 7, 7];
    pub(super) const END: [u8; 16] = [0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    pub(super) const LINK: [u8; 16] = [0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];

    pub(super) const XRC: [u8; 16] = [0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];

    /// Returns the control segment and the key segment of a change of key 0x301, for queue pair 16.
    pub(super) fn key_change(flags: u8) -> Vec<u8> {
        let mut segments = vec![0; 48 + 64];
        segments[0] = flags;
        segments[8..16].copy_from_slice(&[0, 0, 0, 0, 0, 1, 0x20, 0x40]);
        let key = &mut segments[48..];
        key[2] = 0x1c;
        key[4..8].copy_from_slice(&[0, 0, 16, 1]);
        key[16..24].copy_from_slice(&[0, 0, 0, 0, 0, 1, 0, 0x40]);
        key[31] = 64;
        segments
    }

    pub(super) fn address() -> Vec<u8> {
        let mut address = vec![0, 0, 0x13, 0x57, 0, 0, 0, 0, 0x80, 0, 0, 16, 0x0a, 0, 0xc1, 0x23];
        address.extend([0, 0, 0, 0, 2, 0, 0, 0, 0, 3, 0x28, 64, 0, 0x11, 0x23, 0x45]);
        address.extend([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, 3]);
        address
    }
}

fn entries(line: &str) -> Vec<Entry> {
    read(&format!("{OBJECTS}{line}\ndropped count=0"))
}

fn line(head: &str, bytes: &[u8]) -> String {
    let mut line = format!("{head} bytes=");
    bytes.iter().for_each(|byte| write!(line, "{byte:02x}").expect("a string"));
    line
}

/// Checks that a change of each bit of `bytes` is detected, except of bytes that are `ignored`.
#[track_caller]
fn notices(head: &str, bytes: &[u8], ignored: &[Range<usize>]) {
    let original = entries(&line(head, bytes));
    assert!(compare(&original, &original).is_ok());
    for (at, bit) in (0..bytes.len()).flat_map(|at| (0..8).map(move |bit| (at, bit))) {
        let mut changed = bytes.to_vec();
        changed[at] ^= 1 << bit;
        let is_ignored = ignored.iter().any(|range| range.contains(&at));
        let result = compare(&original, &entries(&line(head, &changed)));
        assert_eq!(result.is_ok(), is_ignored, "{head}: bit {bit} of byte {at}: {result:?}");
    }
}

#[test]
fn changed_send_segments_are_noticed() {
    use segment::{ATOMIC, DATA, INLINE, KEY, REMOTE, ctrl};
    let send = "send qpn=16 index=5";
    notices(send, &[ctrl(0x0a, 16, 2, [0; 4]), DATA.to_vec()].concat(), &[]);
    notices(send, &[ctrl(0x0b, 16, 2, [1, 2, 3, 4]), DATA.to_vec()].concat(), &[]);
    notices(send, &[ctrl(0x01, 16, 2, KEY), DATA.to_vec()].concat(), &[]);
    let gathered = [&ctrl(0x08, 16, 4, [0; 4])[..], &REMOTE, &DATA, &DATA].concat();
    notices(send, &gathered, &[]);
    let swap = [&ctrl(0x11, 16, 4, [0; 4])[..], &REMOTE, &ATOMIC, &DATA].concat();
    notices(send, &swap, &[]);
    // The device ignores the compare operand of an addition.
    let add = [&ctrl(0x12, 16, 4, [0; 4])[..], &REMOTE, &ATOMIC, &DATA].concat();
    notices(send, &add, std::slice::from_ref(&(40..48)));
    // The padding of inline data is ignored.
    let inline = [&ctrl(0x0a, 16, 2, [0; 4])[..], &INLINE].concat();
    notices(send, &inline, std::slice::from_ref(&(25..32)));
    let datagram = [ctrl(0x0a, 17, 5, [0; 4]), segment::address(), DATA.to_vec()].concat();
    notices("send qpn=17 index=5", &datagram, &[]);
}

#[test]
fn changed_remote_and_xrc_segments_are_noticed() {
    use segment::{ATOMIC, DATA, REMOTE, XRC, ctrl};
    // The opcodes are those of a write with immediate data and of a read.
    for opcode in [0x09, 0x10] {
        let bytes = [&ctrl(opcode, 16, 3, [1, 2, 3, 4])[..], &REMOTE, &DATA].concat();
        notices("send qpn=16 index=5", &bytes, &[]);
    }
    let initiator = "send qpn=19 index=5";
    notices(initiator, &[&ctrl(0x0a, 19, 3, [0; 4])[..], &XRC, &DATA].concat(), &[]);
    notices(initiator, &[&ctrl(0x08, 19, 4, [0; 4])[..], &XRC, &REMOTE, &DATA].concat(), &[]);
    let swap = [&ctrl(0x11, 19, 5, [0; 4])[..], &XRC, &REMOTE, &ATOMIC, &DATA].concat();
    notices(initiator, &swap, &[]);
}

#[test]
fn changed_key_segments_are_noticed() {
    use segment::{DATA, ctrl, key_change};
    let send = "alloc_mw pdn=1 type=2 key=768\nsend qpn=16 index=5";
    let key = [0, 0, 3, 1];
    // The first change is a bind, whose translation fills a block, and the second one an invalidation.
    let bind = [&ctrl(0x25, 16, 12, key)[..], &key_change(0xa0), &DATA, &[0; 48]].concat();
    notices(send, &bind, &[]);
    notices(send, &[&ctrl(0x25, 16, 8, key)[..], &key_change(0x88)].concat(), &[]);
}

#[test]
fn changed_copies_are_noticed() {
    use segment::{DATA, ctrl};
    let entry = [ctrl(0x0a, 16, 2, [0; 4]), DATA.to_vec()].concat();
    let checked = |copy: &[u8]| {
        let ring = line("ring qpn=16 index=5 register=12 buffer=0", copy);
        catch_unwind(|| check_copies(&format!("{ring}\n{}", line("send qpn=16 index=5", &entry))))
    };
    // Zeros at the end of a copy are absent, and bytes after the entry are ignored.
    let longer = [&entry[..], &[7; 32]].concat();
    for copy in [&entry[..], &longer, &entry[..8]] {
        assert!(checked(copy).is_ok(), "{copy:?}");
    }
    for at in 8..entry.len() {
        let mut copy = entry.clone();
        copy[at] ^= 1;
        assert!(checked(&copy).is_err(), "byte {at}");
    }
}

#[test]
fn changed_receive_segments_are_noticed() {
    use segment::{DATA, END, LINK};
    let receive = "receive qpn=16 index=5";
    notices(receive, &[DATA, DATA].concat(), &[]);
    // A segment with other bytes does not end the list, so the device reads further.
    notices(receive, &[DATA, END].concat(), &[]);
    notices(receive, &[DATA, END, DATA].concat(), std::slice::from_ref(&(32..48)));
    notices("srq_receive srqn=3 qpn=17 index=5 posted=6", &[LINK, DATA].concat(), &[]);
}

#[test]
fn changed_rings_are_noticed() {
    use segment::{DATA, ctrl};
    let ring = "ring qpn=16 index=5 register=12 buffer=0";
    notices(ring, &ctrl(0x0a, 16, 2, [0; 4])[..8], &[]);
    let mut copied = [ctrl(0x0a, 16, 2, [0; 4]), DATA.to_vec()].concat();
    copied.resize(64, 7);
    notices(ring, &copied, std::slice::from_ref(&(32..64)));
    // This copy is one block too long.
    let original = entries(&line(ring, &copied));
    copied.resize(128, 7);
    assert!(compare(&original, &entries(&line(ring, &copied))).is_err());
    notices("cq_arm cqn=2 word=16777223", &[1, 0, 0, 7, 0, 0, 0, 2], &[]);
}

#[test]
fn changed_driver_data_is_noticed() {
    let pattern = |length: u8| (1..=length).collect::<Vec<_>>();
    notices("alloc_ucontext inlen=32 outlen=72", &pattern(32), &[]);
    notices("modify_qp_data inlen=16 outlen=16", &pattern(16), &[]);
    // Only the alignment of an address is compared, which is in its lowest 12 or 6 bits.
    let addresses = [0, 0, 1, 1, 1, 1, 1, 1, 0, 1, 1, 1, 1, 1, 1, 1];
    let ignored = [2..8, 9..16];
    for (kind, length, count) in
        [("create_cq", 32, 2), ("create_qp", 56, 2), ("create_srq", 32, 2), ("resize_cq", 16, 1)]
    {
        let mut bytes = pattern(length);
        bytes[..8 * count].copy_from_slice(&addresses[..8 * count]);
        let ignored = &ignored[..count];
        let noticed = |at: usize, bit: u32| {
            let mut changed = bytes.clone();
            changed[at] ^= 1 << bit;
            let original = entries(&line(kind, &bytes));
            compare(&original, &entries(&line(kind, &changed))).is_err()
        };
        for at in (0..bytes.len()).filter(|at| !ignored.iter().any(|range| range.contains(at))) {
            // The upper bits of these bytes are not part of the alignment.
            let bits = match at {
                1 => 4,
                8 if count == 2 => 6,
                _ => 8,
            };
            (0..bits).for_each(|bit| assert!(noticed(at, bit), "{kind}: bit {bit} of byte {at}"));
        }
    }
}

#[test]
fn changed_fields_are_noticed() {
    let lines = "mmap command=0 index=3 length=4096 shared=1 read=0 write=1\n\
        modify_qp qpn=16 mask=0x1 inlen=0 state=1 port=1 dest=17\n\
        qp_record qpn=16 receives=1 sends=2\n\
        cq_index cqn=2 index=7\n\
        cq_arm cqn=2 word=7\n\
        create_ah inlen=0 outlen=16 flow=1\n\
        reg_mr pdn=1 key=775 start=131072 length=4096 iova=131072 access=0xf\n\
        destroy_qp qpn=16";
    let original = entries(lines);
    let words: Vec<(usize, &str)> =
        lines.split_whitespace().enumerate().filter(|(_, word)| word.contains('=')).collect();
    for (place, _) in words {
        let mut at = 0;
        let mut change = |word: &str| {
            at += 1;
            match word.split_once('=') {
                Some((name, "16")) if at == place + 1 => format!("{name}=17"),
                Some((name, "7")) if at == place + 1 => format!("{name}=8"),
                Some((name, _)) if at == place + 1 => format!("{name}=99"),
                _ => word.to_owned(),
            }
        };
        let changed: Vec<String> = lines
            .lines()
            .map(|line| line.split_whitespace().map(&mut change).collect::<Vec<_>>().join(" "))
            .collect();
        let changed = entries(&changed.join("\n"));
        // A key is shown as its region, whatever its value is.
        let is_key = lines.split_whitespace().nth(place) == Some("key=775");
        assert_eq!(compare(&original, &changed).is_ok(), is_key, "word {place}");
    }
    let mut fewer = original.clone();
    fewer.pop();
    assert!(compare(&original, &fewer).is_err() && compare(&fewer, &original).is_err());
}

#[test]
fn numbers_and_addresses_are_relative() {
    let moved = "alloc_pd pdn=11 inlen=0 outlen=4\n\
        reg_mr pdn=11 key=775 start=131072 length=4096 iova=131072 access=0xf\n\
        cq cqn=12 cqe=15 vector=0 flags=0\n\
        srq srqn=13 pdn=11 receives=7 sge=1 limit=0\n\
        qp qpn=26 type=2 pdn=11 send_cqn=12 recv_cqn=12 srqn=0\n\
        qp qpn=27 type=4 pdn=11 send_cqn=12 recv_cqn=12 srqn=13\n\
        qp qpn=29 type=9 pdn=11 send_cqn=12 recv_cqn=12 srqn=0\n";
    let send = |qpn: u8, data: [u8; 16]| {
        let bytes = [&segment::ctrl(0x0a, qpn, 2, [0; 4])[..], &data].concat();
        line(&format!("send qpn={qpn} index=5"), &bytes)
    };
    let mut data = segment::DATA;
    data[6..8].copy_from_slice(&[3, 7]);
    data[13] = 2;
    let moved = read(&format!("{moved}{}\ndropped count=0", send(26, data)));
    assert_eq!(compare(&entries(&send(16, segment::DATA)), &moved), Ok([].into()));
}

#[test]
fn consumer_index_after_reset_is_compared() {
    let reset = "modify_qp qpn=16 mask=0x1 inlen=0 state=0\nqp_record qpn=16 receives=0 sends=0";
    let (index, event) = ("cq_index cqn=2 index=7", "destroy_ah");
    let result = |c: String, ours: String| compare(&entries(&c), &entries(&ours)).is_ok();
    assert!(result(format!("{reset}\n{index}\n{event}"), format!("{reset}\n{index}\n{event}")));
    assert!(!result(format!("{reset}\n{index}\n{event}"), format!("{reset}\n{event}")));
    assert!(!result(format!("{reset}\n{index}\n{event}"), format!("{reset}\n{event}\n{index}")));
}

#[test]
fn receive_capacities_may_differ_with_srq() {
    let qp = |srqn, receives| {
        entries(&format!(
            "qp qpn=18 type=2 pdn=1 send_cqn=2 recv_cqn=2 srqn={srqn} receives={receives}"
        ))
    };
    assert!(compare(&qp(3, 16), &qp(3, 0)).is_ok());
    assert!(compare(&qp(3, 16), &qp(3, 1)).is_err());
    assert!(compare(&qp(0, 16), &qp(0, 0)).is_err());
}

#[test]
fn user_index_must_be_free() {
    let create = |qpn, index: u8| {
        let mut bytes = [0; 56];
        bytes[32] = index;
        let qp = format!("qp qpn={qpn} type=2 pdn=1 send_cqn=2 recv_cqn=2 srqn=0");
        format!("{}\n{qp}", line("create_qp inlen=56 outlen=40", &bytes))
    };
    let two = |first, second| entries(&format!("{}\n{}", create(20, first), create(21, second)));
    assert!(compare(&two(0, 1), &two(5, 3)).is_ok());
    assert!(compare(&two(0, 1), &two(5, 5)).is_err());
}
