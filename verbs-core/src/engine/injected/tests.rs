use std::sync::Arc;

use super::*;
use crate::engine::drain_marker::QueueSide;
use crate::work::{WcOpcode, WcStatus};
use verbs_abi::{ib_uverbs_wc, ib_wc_flags};

const NUMBER: u32 = 17;

/// A wakeup request whose queue pair is destroyed.
#[derive(Debug)]
struct PastWakeup(u64);

impl PastWakeup {
    /// Returns the request and its completion.
    fn new() -> (Self, Completion) {
        let wr_id = u64::MAX;
        (Self(wr_id), flushed(wr_id))
    }
}

impl WakeupRequest for PastWakeup {
    fn completes_with(&self, completion: &Completion) -> bool {
        completion.wr_id() == self.0
    }

    fn raise_event(&self) {}

    fn destroy_qp(&self) {}

    fn is_destroyed(&self) -> bool {
        true
    }
}

fn flushed(wr_id: u64) -> Completion {
    let status = WcStatus::IB_WC_WR_FLUSH_ERR;
    let wr_id = wr_id.into();
    Completion(ib_uverbs_wc { wr_id, status, qp_num: NUMBER, ..ib_uverbs_wc::default() })
}

/// Polls places for `most` completions until a poll returns none; `None` is a marker.
fn polled(most: usize, ring: &[Option<u64>], added: &[Option<u64>]) -> Vec<u64> {
    let (mut injected, life) = (InjectedCompletions::default(), Arc::default());
    let mut completions = |wr_ids: &[Option<u64>]| -> VecDeque<_> {
        let completion = |wr_id: &Option<u64>| {
            flushed(wr_id.unwrap_or_else(|| {
                let marker = DrainMarker::new(NUMBER, QueueSide::Send, &life);
                injected.markers.push(marker.clone());
                marker.wr_id()
            }))
        };
        wr_ids.iter().map(completion).collect()
    };
    let mut ring = completions(ring);
    injected.flushed = completions(added);
    let mut poll = |into: &mut [Completion]| {
        let taken = into.iter_mut().zip(iter::from_fn(|| ring.pop_front()));
        Ok::<_, ()>(taken.map(|(place, completion)| *place = completion).count())
    };
    let mut all = Vec::new();
    loop {
        let mut into = vec![Completion::default(); most];
        let count = poll(&mut into).expect("polling should succeed");
        let count = injected.merge(&mut into, count, &mut poll).expect("polling should succeed");
        if count == 0 {
            assert!(injected.is_empty(), "nothing is left behind");
            return all;
        }
        all.extend(into[..count].iter().map(Completion::wr_id));
    }
}

#[test]
fn merge_returns_injected_completions_last() {
    for most in 1..5 {
        for ring in [
            [None, None, Some(1), Some(2)],
            [Some(1), None, None, Some(2)],
            [None, Some(1), None, Some(2)],
            [Some(1), Some(2), None, None],
        ] {
            let added = ring.map(|wr_id| wr_id.map(|wr_id| wr_id + 2));
            let polled = |ring, added| polled(most, ring, added);
            assert_eq!(polled(&ring, &added), [1, 2, 3, 4], "{most} of {ring:?}");
            assert_eq!(polled(&ring, &[]), [1, 2], "{most} of {ring:?}");
            assert_eq!(polled(&[], &ring), [1, 2], "{most} of {ring:?}");
        }
        assert_eq!(polled(most, &[None; 3], &[None; 3]), [0; 0]);
        assert_eq!(polled(most, &[None; 3], &[Some(5)]), [5]);
    }
}

#[test]
fn merge_error_loses_no_completion() {
    let mut into = [flushed(1), Completion::default()];
    let mut injected = InjectedCompletions::default();
    injected.flushed.push_back(flushed(2));
    assert_eq!(injected.merge(&mut into, 1, |_| Err(())), Ok(1));
    assert_eq!(injected.merge(&mut into, 0, |_| Err(())), Err(()));
    assert_eq!(injected.merge(&mut into, 0, |_| Ok::<_, ()>(0)), Ok(1));
    assert_eq!(into[0].wr_id(), 2);
}

#[test]
fn destroyed_wakeup_completion_is_hidden() {
    let (wakeup, completion) = PastWakeup::new();
    let mut injected =
        InjectedCompletions { wakeups: vec![Arc::new(wakeup)], ..InjectedCompletions::default() };
    let mut into = [flushed(1), completion];
    assert_eq!(injected.merge(&mut into, 2, |_| Ok::<_, ()>(0)), Ok(1));
    assert_eq!(into[0].wr_id(), 1);
    assert_eq!(injected.polled_wakeups.len(), 1, "the caller drops it");
    injected.polled_wakeups.clear();
    let (never_completed, _) = PastWakeup::new();
    injected.wakeups.push(Arc::new(never_completed));
    assert_eq!(injected.merge(&mut into, 0, |_| Ok::<_, ()>(0)), Ok(0));
    assert!(injected.is_empty(), "nothing more is on the queue");
}

#[test]
fn message_unbinds_invalidated_window() {
    let key = |rkey: u32, opcode, status| {
        let (ex, wc_flags) = (rkey.to_ne_bytes(), ib_wc_flags::IB_WC_WITH_INVALIDATE);
        Completion(ib_uverbs_wc { opcode, status, ex, wc_flags, ..ib_uverbs_wc::default() })
    };
    let mut into = [
        key(7, WcOpcode::IB_WC_RECV, WcStatus::IB_WC_SUCCESS),
        // The next two completions are no messages: a send, and a flushed receive.
        key(8, WcOpcode::IB_UVERBS_WC_SEND, WcStatus::IB_WC_SUCCESS),
        key(9, WcOpcode::IB_WC_RECV, WcStatus::IB_WC_WR_FLUSH_ERR),
    ];
    let mut injected =
        InjectedCompletions { bound_keys: vec![7, 8, 9], ..InjectedCompletions::default() };
    assert_eq!(injected.merge(&mut into, 3, |_| Ok::<_, ()>(0)), Ok(3));
    assert_eq!([7, 8, 9].map(|rkey| injected.unbind(rkey)), [false, true, true]);
    assert!(injected.is_empty());
}

/// Returns the numbers of the `markers` that are left after a poll that finds `ring`.
fn left(markers: &[&DrainMarker], ring: &[&DrainMarker]) -> Vec<u64> {
    let markers = markers.iter().copied().cloned().collect();
    let mut injected = InjectedCompletions { markers, ..InjectedCompletions::default() };
    let mut ring = ring.iter().map(|marker| flushed(marker.wr_id()));
    let poll = |into: &mut [Completion]| {
        let taken = into.iter_mut().zip(ring.by_ref());
        Ok::<_, ()>(taken.map(|(place, completion)| *place = completion).count())
    };
    let mut into = [Completion::default(); 4];
    assert_eq!(injected.merge(&mut into, 0, poll), Ok(0), "internal completions should be hidden");
    injected.markers.iter().map(DrainMarker::wr_id).collect()
}

#[test]
fn marker_without_completion_is_forgotten() {
    let [one, other] = [(); 2].map(|()| Arc::new(()));
    let [first, second] = [(); 2].map(|()| DrainMarker::new(NUMBER, QueueSide::Send, &one));
    let receive = DrainMarker::new(NUMBER, QueueSide::Receive, &one);
    let third = DrainMarker::new(NUMBER, QueueSide::Send, &other);
    let numbers = |markers: &[&DrainMarker]| -> Vec<_> {
        markers.iter().map(|marker| marker.wr_id()).collect()
    };
    assert_eq!(left(&[&first, &receive], &[]), numbers(&[&first, &receive]));
    // A later one of the same queue has completed.
    assert_eq!(left(&[&first, &receive, &second], &[&second]), numbers(&[&receive]));
    assert_eq!(left(&[&first, &second], &[&first]), numbers(&[&second]));
    // The queue pair is destroyed, and another one has its number.
    drop(one);
    assert_eq!(left(&[&first, &third, &receive], &[]), numbers(&[&third]));
    assert_eq!(left(&[&first, &receive], &[&first]), numbers(&[]));
}

/// A poll without room cannot find the completion of a marker, so the marker is still expected.
#[test]
fn poll_without_room_forgets_no_marker() {
    let marker = DrainMarker::new(NUMBER, QueueSide::Send, &Arc::default());
    assert!(marker.is_orphaned());
    let mut injected =
        InjectedCompletions { markers: vec![marker], ..InjectedCompletions::default() };
    let mut into = [flushed(1)];
    assert_eq!(injected.merge(&mut into, 1, |_| Ok::<_, ()>(0)), Ok(1));
    assert_eq!(injected.markers.len(), 1);
}

#[test]
fn each_part_makes_queue_nonempty() {
    let wakeup = || Arc::new(PastWakeup::new().0);
    let parts: [&dyn Fn(&mut InjectedCompletions); 5] = [
        &|injected| injected.flushed.push_back(flushed(1)),
        &|injected| injected.wakeups.push(wakeup()),
        &|injected| injected.polled_wakeups.push(wakeup()),
        &|injected| {
            injected.markers.push(DrainMarker::new(NUMBER, QueueSide::Send, &Arc::default()));
        },
        &|injected| injected.bound_keys.push(1),
    ];
    for add in parts {
        let mut injected = InjectedCompletions::default();
        assert!(injected.is_empty());
        add(&mut injected);
        assert!(!injected.is_empty());
    }
}
