//! Tests of completions that are removed from the ring when their queue pair is reset or destroyed.

use super::*;

/// Writes the completion of the send `wr_id` in block `block`.
fn complete_send(device: &mut Device, qp: &Table, block: u16, wr_id: u64) {
    qp.post_send(block.into(), block.into(), wr_id);
    device.complete(qp, opcode::REQUEST, &[(at::COUNTER, &block.to_be_bytes())]);
}

#[test]
fn removed_completions_leave_room_for_others() {
    for names_user_index in [true, false] {
        let mut device = Device::new(names_user_index);
        let (qp, other) = (device.qp(17, None), device.qp(18, None));
        complete_send(&mut device, &other, 0, 1);
        complete_send(&mut device, &qp, 0, 2);
        complete_send(&mut device, &other, 1, 3);
        complete_send(&mut device, &qp, 1, 4);
        let next = Arc::new(qp.emptied());
        device.shared.end(&qp);
        device.shared.add(&next);
        device.ring.sweep();
        assert_eq!(device.shared.record.load(Word::First), 2, "two entries are free");
        complete_send(&mut device, &next, 0, 5);
        complete_send(&mut device, &next, 1, 6);
        let polled = [(); 4].map(|()| device.polls().wr_id.get());
        assert_eq!(polled, [1, 3, 5, 6]);
        assert!(device.poll().expect("poll").is_none());
        assert_eq!(qp.sends_done(), 0, "the completions were not those of requests");
    }
}

#[test]
fn full_ring_of_ended_generation_is_emptied_each_time() {
    let mut device = Device::new(true);
    let mut qp = device.qp(17, None);
    for round in 1..20 {
        (0..4).for_each(|block| complete_send(&mut device, &qp, block, block.into()));
        let next = Arc::new(qp.emptied());
        device.shared.end(&qp);
        device.shared.add(&next);
        device.ring.sweep();
        assert_eq!(device.shared.record.load(Word::First), 4 * round);
        assert_eq!(ignore_poison(device.shared.changing.lock()).generations.len(), 1);
        qp = next;
    }
    complete_send(&mut device, &qp, 3, 9);
    assert_eq!(device.polls().wr_id.get(), 9);
}

#[test]
fn ring_without_ended_generation_is_unchanged() {
    let mut device = Device::new(true);
    let qp = device.qp(17, None);
    complete_send(&mut device, &qp, 0, 1);
    device.ring.sweep();
    assert_eq!(device.shared.record.load(Word::First), 0);
    assert_eq!(device.polls().wr_id.get(), 1);
}

/// Completions of a shared receive queue stay, and moved completions keep their generation.
#[test]
fn moved_completions_belong_to_their_generations() {
    let mut device = Device::new(true);
    let (srq, qp) = qp_with_shared_receives(&device);
    device.complete(&qp, opcode::SEND, &[]);
    complete_send(&mut device, &qp, 0, 1);
    let next = Arc::new(qp.emptied());
    device.shared.end(&qp);
    device.shared.add(&next);
    complete_send(&mut device, &next, 0, 2);
    device.ring.sweep();
    assert_eq!(device.shared.record.load(Word::First), 1, "the send is removed");
    // The receive of the second generation is in the entry behind.
    device.complete(&next, opcode::SEND, &[COUNTER_1]);
    device.shared.end(&next);
    device.ring.sweep();
    assert_eq!(device.shared.record.load(Word::First), 2, "the next send is removed, too");
    assert_eq!([(); 2].map(|()| device.polls().wr_id.get()), [5, 6]);
    assert!(device.poll().expect("poll").is_none());
    assert_eq!(srq.complete(2), Some(7), "the third receive is posted");
}
