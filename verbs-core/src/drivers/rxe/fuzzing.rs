//! Rings of rxe over arbitrary memory.

use super::queue::{Queue, sges_len};
use super::{CqRing, RecvRing};
use crate::driver::RecvOps as _;
use crate::drivers::other_end::{OtherEnd, sge};
use crate::testing::Input;
use crate::work::{Completion, ReceiveRequest, Sge};
use verbs_abi::rxe::rxe_send_wqe;

/// Maps, posts and polls, while the other end stores arbitrary bytes.
pub fn ring(bytes: &[u8]) {
    let mut input = Input(bytes);
    let which = input.byte();
    let (mapping, other) = OtherEnd::new(&mut input);
    match which % 3 {
        0 => Queue::over(mapping, 0).map(|queue| poll(&mut CqRing { queue }, &other, &mut input)),
        1 => {
            let max_sge = u32::from(input.byte() & 31);
            Queue::over(mapping, sges_len(max_sge))
                .map(|queue| receive(&mut RecvRing { queue, max_sge }, &other, &mut input))
        }
        _ => {
            let least = usize::from(input.byte());
            Queue::over(mapping, least).map(|mut queue| send(&mut queue, least, &other, &mut input))
        }
    };
}

fn poll(ring: &mut CqRing, other: &OtherEnd, input: &mut Input<'_>) {
    while !input.is_empty() {
        let mut into = [Completion::default(); 7];
        let most = usize::from(input.byte()) % (into.len() + 1);
        if let Ok(count) = ring.queue.take(&mut into[..most], Completion) {
            assert!(count <= most && into[count..].iter().all(|c| *c == Completion::default()));
            other.check();
        }
        other.scribble(input);
    }
}

fn receive(ring: &mut RecvRing, other: &OtherEnd, input: &mut Input<'_>) {
    while !input.is_empty() {
        let scatter: Vec<Sge> = (0..input.byte() & 31).map(|_| sge(input)).collect();
        let request = ReceiveRequest { wr_id: 1, scatter: &scatter };
        // SAFETY: no device accesses the memory.
        let _ = unsafe { ring.store(&request) };
        other.check();
        other.scribble(input);
    }
}

fn send(queue: &mut Queue<rxe_send_wqe>, least: usize, other: &OtherEnd, input: &mut Input<'_>) {
    while !input.is_empty() {
        if let Ok(mut slot) = queue.free_slot() {
            let length = usize::from(input.byte()).min(least);
            slot.clear();
            slot.put(size_of::<rxe_send_wqe>() - 1, &0xff_u8);
            slot.append(&vec![0xff; length]);
            slot.publish();
            other.check();
        }
        other.scribble(input);
    }
}
