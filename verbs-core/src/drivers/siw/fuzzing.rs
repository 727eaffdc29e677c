//! Rings of siw over arbitrary memory.

use super::completion::{translate_completion, translate_success};
use super::queue::Ring;
use super::send::SendRing;
use super::{CqRing, RecvRing};
use crate::driver::{CqOps as _, RecvOps as _};
use crate::drivers::other_end::{OtherEnd, sge};
use crate::testing::Input;
use crate::work::{
    Completion, Payload, ReceiveRequest, SendFlags, SendOperation, SendRequest, Sge,
};

/// Maps, posts, polls and takes back, while the other end stores arbitrary bytes.
pub fn ring(bytes: &[u8]) {
    let mut input = Input(bytes);
    let which = input.byte();
    let (mapping, other) = OtherEnd::new(&mut input);
    let elements = input.value::<u16>().into();
    match which % 3 {
        0 => {
            Ring::over(mapping, elements).map(|ring| poll(&mut CqRing { ring }, &other, &mut input))
        }
        1 => Ring::over(mapping, elements).map(|ring| {
            let mut ring = RecvRing { ring: Some(ring), max_sge: 6 };
            receive(&mut ring, &other, &mut input);
        }),
        _ => Ring::over(mapping, elements).map(|ring| {
            let mut ring = SendRing::new(ring, 6, 80, which & 0x80 != 0);
            ring.connected = true;
            send(&mut ring, &other, &mut input);
        }),
    };
}

fn poll(ring: &mut CqRing, other: &OtherEnd, input: &mut Input<'_>) {
    let arming = ring.ring.arming();
    while !input.is_empty() {
        let mut into = [Completion::default(); 7];
        let choice = input.byte();
        let most = usize::from(choice) % (into.len() + 1);
        let count = polled(ring, &mut into[..most], choice & 0x40 != 0);
        assert!(count <= most && into[count..].iter().all(|c| *c == Completion::default()));
        if let Some(arming) = arming.as_ref().filter(|_| choice & 0x80 != 0) {
            arming.arm_next();
            assert!(arming.is_set());
        }
        other.check();
        other.scribble(input);
    }
}

/// Polls, on the fast path if `fast` and if that is possible.
fn polled(ring: &mut CqRing, into: &mut [Completion], fast: bool) -> usize {
    let polled = if fast { ring.try_poll(into) } else { None };
    let translate = |element: &_| translate_success(element).map(Completion);
    let translate_any = |element: &_| Completion(translate_completion(element));
    polled.unwrap_or_else(|| ring.ring.take(into, translate, translate_any))
}

fn receive(ring: &mut RecvRing, other: &OtherEnd, input: &mut Input<'_>) {
    let orphans = ring.orphans().expect("there is a ring");
    let elements = ring.ring.as_ref().map(Ring::capacity).expect("there is a ring");
    while !input.is_empty() {
        let choice = input.byte();
        let scatter: Vec<Sge> = (0..choice & 7).map(|_| sge(input)).collect();
        // SAFETY: no device accesses the memory.
        let _ = unsafe { ring.store(&ReceiveRequest { wr_id: 1, scatter: &scatter }) };
        if choice & 0x80 != 0 {
            assert!(orphans.take().len() as u64 <= u64::from(elements));
        }
        other.check();
        other.scribble(input);
    }
}

fn send(ring: &mut SendRing, other: &OtherEnd, input: &mut Input<'_>) {
    let orphans = ring.ring.orphans();
    while !input.is_empty() {
        let choice = input.byte();
        let flags = SendFlags::from_bits_truncate(input.value());
        let operation = match choice & 3 {
            0 => SendOperation::Send,
            1 => SendOperation::Read { remote_addr: 2, rkey: 3 },
            2 => SendOperation::SendWithInvalidate { rkey: 4 },
            _ => SendOperation::SendWithImm { imm_data: 5 },
        };
        let sges: Vec<Sge> = (0..choice >> 2 & 7).map(|_| sge(input)).collect();
        let inline = [0xff; 81];
        let payload = match choice & 0x20 {
            0 => Payload::Gather(&sges),
            _ => Payload::Inline(&inline[..usize::from(input.byte()).min(inline.len())]),
        };
        // SAFETY: no device accesses the memory.
        let _ = unsafe { ring.put(&SendRequest { wr_id: 1, operation, payload, flags }) };
        if choice & 0x40 != 0 {
            ring.ring.take_back();
        }
        if choice & 0x80 != 0 {
            assert!(orphans.take_all().len() as u64 <= u64::from(ring.ring.capacity()));
        }
        other.check();
        other.scribble(input);
    }
}
