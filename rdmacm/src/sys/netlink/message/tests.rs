use super::super::fake::{done, message};
use super::*;

/// xorshift64*: the same bytes in every run.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.next() >> 33).unwrap() % bound
    }

    fn byte(&mut self) -> u8 {
        self.next().to_be_bytes()[0]
    }
}

fn attribute_bytes(kind: u16, value: &[u8]) -> Vec<u8> {
    let length = u16::try_from(ATTRIBUTE_HEADER + value.len()).unwrap();
    let mut bytes = [&length.to_ne_bytes(), &kind.to_ne_bytes(), value].concat();
    bytes.resize(bytes.len().next_multiple_of(4), 0xee);
    bytes
}

fn sample() -> Vec<u8> {
    let inner = [attribute_bytes(17, b"qp\0"), attribute_bytes(18, &[7; 8])].concat();
    let nest = attribute_bytes(15 | 0x8000, &attribute_bytes(16, &inner));
    let payload = [attribute_bytes(1, &[1, 0, 0, 0]), attribute_bytes(2, b"rxe0\0"), nest];
    [message(0x1409, 1, &payload.concat()), message(0x1409, 1, &[]), done(1, 0)].concat()
}

#[test]
fn any_bytes_are_read_without_panic() {
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    for _ in 0..20_000 {
        let length = random.below(200);
        let mut bytes: Vec<u8> = (0..length).map(|_| random.byte()).collect();
        walk(&bytes);
        // Lengths that are plausible let more of the rest be reached.
        for position in (0..length.saturating_sub(4)).step_by(4) {
            if random.below(2) == 0 {
                let plausible = u32::try_from(random.below(64)).unwrap();
                bytes[position..position + 4].copy_from_slice(&plausible.to_ne_bytes());
            }
        }
        walk(&bytes);
    }
}

#[test]
fn damaged_answer_is_read_without_panic() {
    let mut random = Random(1);
    let sample = sample();
    assert_eq!(walk(&sample), 3);
    for length in 0..sample.len() {
        walk(&sample[..length]);
    }
    for _ in 0..50_000 {
        let mut bytes = sample.clone();
        for _ in 0..=random.below(4) {
            let position = random.below(bytes.len());
            bytes[position] = random.byte();
        }
        walk(&bytes);
    }
}

#[test]
fn attributes_of_every_type_are_read() {
    let sample = sample();
    let first = messages(&sample).next().unwrap().unwrap();
    let Ok(Some(Body::Answer(answer))) = first.body() else { panic!("{first:?}") };
    assert_eq!(answer.u32(1), Some(u32::from_ne_bytes([1, 0, 0, 0])));
    assert_eq!(answer.string(2).as_deref(), Some("rxe0"));
    let entry = answer.nests(15).next().unwrap().nests(16).next().unwrap();
    assert_eq!(entry.string(17).as_deref(), Some("qp"));
    assert_eq!(entry.u64(18), Some(0x0707_0707_0707_0707));
    assert_eq!((answer.u8(1), answer.u64(1), answer.u32(99)), (None, None, None));
}

#[test]
fn wrong_lengths_are_malformed() {
    for bytes in [vec![0; 3], vec![0; 15], vec![0; 16], vec![0xff; 16], vec![0xff; 400]] {
        let all: Vec<_> = messages(&bytes).collect();
        assert!(matches!(all[..], [Err(Failure::Malformed(_))]), "{bytes:?}");
    }
    for length in [0u16, 1, 3, 9, 0xffff] {
        let attribute = [&length.to_ne_bytes()[..], &[1, 0, 0, 0, 0, 0]].concat();
        assert!(Attributes::parse(&attribute).is_err(), "{length}");
    }
    assert!(Attributes::parse(&[4, 0]).is_err());
}

#[test]
fn last_record_may_lack_padding() {
    let padded = attribute_bytes(2, b"x\0");
    for bytes in [&padded[..], &padded[..6]] {
        assert_eq!(Attributes::parse(bytes).unwrap().string(2).as_deref(), Some("x"));
    }
}

#[test]
fn string_ends_at_nul_or_with_attribute() {
    for (value, text) in
        [(&b"v0\0junk"[..], "v0"), (b"v0", "v0"), (b"", ""), (b"\xff\0", "\u{fffd}")]
    {
        let bytes = attribute_bytes(51, value);
        assert_eq!(Attributes::parse(&bytes).unwrap().string(51).as_deref(), Some(text));
    }
}

#[test]
fn control_messages_are_no_answers() {
    let body = |kind| {
        let message = Message { sequence: 1, kind, payload: &[] };
        message.body().map(|body| body.is_some())
    };
    assert_eq!(body(NLMSG_NOOP), Ok(false));
    for unknown in [0, 4, NLMSG_MIN_TYPE - 1] {
        assert!(matches!(body(unknown), Err(Failure::Malformed(_))), "{unknown}");
    }
    assert_eq!(body(NLMSG_MIN_TYPE), Ok(true));
}
