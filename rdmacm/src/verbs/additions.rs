//! What the library adds to a completion queue, and what it hides.

use std::collections::VecDeque;
use std::iter;

use super::Completion;
use super::bell::Bell;
use super::drain::Marker;

/// What the library adds to a queue, apart from the ring: who has that may be waiting for it.
#[derive(Debug, Default)]
pub(super) struct Additions {
    /// Completions of requests that the driver does not complete any more: they come after those
    /// that it did complete.
    pub(super) flushed: VecDeque<Completion>,
    /// What was rung for those, and has its completion in the ring still.
    pub(super) bells: Vec<Bell>,
    /// Those whose completions have yet to come. One may be lost, where the queue overruns.
    pub(super) markers: Vec<Marker>,
    /// Keys of bound memory windows, which messages may take back that complete here.
    pub(super) bound: Vec<u32>,
}

impl Additions {
    pub(super) fn is_empty(&self) -> bool {
        self.flushed.is_empty()
            && self.bells.is_empty()
            && self.markers.is_empty()
            && self.bound.is_empty()
    }

    /// A key is taken back; whether it was that of a bound window.
    pub(super) fn unbind(&mut self, rkey: u32) -> bool {
        let place = self.bound.iter().position(|bound| *bound == rkey);
        place.map(|place| self.bound.swap_remove(place)).is_some()
    }

    /// Takes what is nobody's out of the first `count` of `into`, which were on the ring, and fills
    /// up behind: from the ring by `poll` until that is empty, then from what is added. How many there
    /// are then.
    ///
    /// The ring first: what the driver completed before something was added may have come to it after
    /// it was read, or stand behind what is nobody's.
    pub(super) fn merge<E>(
        &mut self,
        into: &mut [Completion],
        count: usize,
        mut poll: impl FnMut(&mut [Completion]) -> Result<usize, E>,
    ) -> Result<usize, E> {
        let mut count = self.hide(into, count);
        while count < into.len() {
            let rest = &mut into[count..];
            // Found before the ring is looked at, which has all of theirs by now.
            let orphaned = |marker: &&Marker| marker.is_orphaned();
            let orphans: Vec<_> = self.markers.iter().filter(orphaned).cloned().collect();
            match poll(rest) {
                Ok(0) => {
                    // It completed nowhere else.
                    self.bells.retain(|bell| !bell.is_dismantled());
                    if self.flushed.is_empty() {
                        self.markers.retain(|marker| !orphans.contains(marker));
                    }
                    let flushed = iter::from_fn(|| self.flushed.pop_front());
                    let more =
                        rest.iter_mut().zip(flushed).map(|(place, flushed)| *place = flushed);
                    match more.count() {
                        0 => break,
                        more => count += self.hide(rest, more),
                    }
                }
                Ok(more) => count += self.hide(rest, more),
                // What was taken before is the caller's; the next poll fails again.
                Err(_) if count > 0 => break,
                Err(broken) => return Err(broken),
            }
        }
        Ok(count)
    }

    /// Takes what is nobody's out of the first `count` of `into`; how many are left. In their order: a
    /// marker makes those before it forgotten.
    fn hide(&mut self, into: &mut [Completion], count: usize) -> usize {
        let mut left = 0;
        for place in 0..count {
            let completion = &into[place];
            if let Some(rkey) = completion.invalidated_rkey().filter(|_| completion.is_success()) {
                self.unbind(rkey);
            }
            if !self.is_nobodys(completion) {
                into[left] = into[place];
                left += 1;
            }
        }
        left
    }

    /// Whether `completion` is that of a bell or a marker, which has served then.
    fn is_nobodys(&mut self, completion: &Completion) -> bool {
        if let Some(bell) = self.bells.iter().position(|bell| bell.made(completion)) {
            self.bells.swap_remove(bell);
            return true;
        }
        if let Some(marker) = self.markers.iter().position(|marker| marker.made(completion)) {
            let made = self.markers.swap_remove(marker);
            self.markers.retain(|marker| !marker.precedes(&made));
            return true;
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::verbs::drain::Side;
    use crate::verbs::{WcOpcode, WcStatus};
    use verbs_abi::{ib_uverbs_wc, ib_wc_flags};

    const NUMBER: u32 = 17;

    fn flushed(wr_id: u64) -> Completion {
        let status = WcStatus::IB_WC_WR_FLUSH_ERR;
        let wr_id = wr_id.into();
        Completion(ib_uverbs_wc { wr_id, status, qp_num: NUMBER, ..ib_uverbs_wc::default() })
    }

    /// Polls places for `most` completions until nothing comes; `None` is a marker.
    fn polled(most: usize, ring: &[Option<u64>], added: &[Option<u64>]) -> Vec<u64> {
        let (mut additions, life) = (Additions::default(), Arc::default());
        let mut completions = |wr_ids: &[Option<u64>]| -> VecDeque<_> {
            let completion = |wr_id: &Option<u64>| {
                flushed(wr_id.unwrap_or_else(|| {
                    let marker = Marker::new(NUMBER, Side::Send, &life);
                    additions.markers.push(marker.clone());
                    marker.wr_id()
                }))
            };
            wr_ids.iter().map(completion).collect()
        };
        let mut ring = completions(ring);
        additions.flushed = completions(added);
        let mut poll = |into: &mut [Completion]| {
            let taken = into.iter_mut().zip(iter::from_fn(|| ring.pop_front()));
            Ok::<_, ()>(taken.map(|(place, completion)| *place = completion).count())
        };
        let mut all = Vec::new();
        loop {
            let mut into = vec![Completion::default(); most];
            let count = poll(&mut into).expect("it is in order");
            let count = additions.merge(&mut into, count, &mut poll).expect("it is in order");
            if count == 0 {
                assert!(additions.is_empty(), "nothing is left behind");
                return all;
            }
            all.extend(into[..count].iter().map(Completion::wr_id));
        }
    }

    #[test]
    fn nothing_comes_only_where_nothing_is_left_and_what_is_added_comes_last() {
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
    fn an_error_takes_nothing_away() {
        let mut into = [flushed(1), Completion::default()];
        let mut additions = Additions::default();
        additions.flushed.push_back(flushed(2));
        assert_eq!(additions.merge(&mut into, 1, |_| Err(())), Ok(1));
        assert_eq!(additions.merge(&mut into, 0, |_| Err(())), Err(()));
        assert_eq!(additions.merge(&mut into, 0, |_| Ok::<_, ()>(0)), Ok(1));
        assert_eq!(into[0].wr_id(), 2);
    }

    #[test]
    fn what_a_dismantled_bell_has_made_is_nobodys() {
        let (bell, made) = Bell::of_the_past();
        let mut additions = Additions { bells: vec![bell], ..Additions::default() };
        let mut into = [flushed(1), made];
        assert_eq!(additions.merge(&mut into, 2, |_| Ok::<_, ()>(0)), Ok(1));
        assert_eq!(into[0].wr_id(), 1);
        let (never_rung, _) = Bell::of_the_past();
        additions.bells.push(never_rung);
        assert_eq!(additions.merge(&mut into, 0, |_| Ok::<_, ()>(0)), Ok(0));
        assert!(additions.is_empty(), "nothing more is on the queue");
    }

    #[test]
    fn a_message_unbinds_the_window_whose_key_it_takes_back() {
        let key = |rkey: u32, opcode, status| {
            let (ex, wc_flags) = (rkey.to_ne_bytes(), ib_wc_flags::IB_WC_WITH_INVALIDATE);
            Completion(ib_uverbs_wc { opcode, status, ex, wc_flags, ..ib_uverbs_wc::default() })
        };
        let mut into = [
            key(7, WcOpcode::IB_WC_RECV, WcStatus::IB_WC_SUCCESS),
            // Neither is a message.
            key(8, WcOpcode::IB_UVERBS_WC_SEND, WcStatus::IB_WC_SUCCESS),
            key(9, WcOpcode::IB_WC_RECV, WcStatus::IB_WC_WR_FLUSH_ERR),
        ];
        let mut additions = Additions { bound: vec![7, 8, 9], ..Additions::default() };
        assert_eq!(additions.merge(&mut into, 3, |_| Ok::<_, ()>(0)), Ok(3));
        assert_eq!([7, 8, 9].map(|rkey| additions.unbind(rkey)), [false, true, true]);
        assert!(additions.is_empty());
    }

    /// The numbers of those that are left of `markers` after a poll that finds `ring`.
    fn left(markers: &[&Marker], ring: &[&Marker]) -> Vec<u64> {
        let markers = markers.iter().copied().cloned().collect();
        let mut additions = Additions { markers, ..Additions::default() };
        let mut ring = ring.iter().map(|marker| flushed(marker.wr_id()));
        let poll = |into: &mut [Completion]| {
            let taken = into.iter_mut().zip(ring.by_ref());
            Ok::<_, ()>(taken.map(|(place, completion)| *place = completion).count())
        };
        let mut into = [Completion::default(); 4];
        assert_eq!(additions.merge(&mut into, 0, poll), Ok(0), "they are nobody's");
        additions.markers.iter().map(Marker::wr_id).collect()
    }

    #[test]
    fn a_marker_whose_completion_was_lost_is_forgotten() {
        let [one, other] = [(); 2].map(|()| Arc::new(()));
        let [first, second] = [(); 2].map(|()| Marker::new(NUMBER, Side::Send, &one));
        let receive = Marker::new(NUMBER, Side::Receive, &one);
        let third = Marker::new(NUMBER, Side::Send, &other);
        let numbers = |markers: &[&Marker]| -> Vec<_> {
            markers.iter().map(|marker| marker.wr_id()).collect()
        };
        assert_eq!(left(&[&first, &receive], &[]), numbers(&[&first, &receive]));
        // A later one of the same queue has completed.
        assert_eq!(left(&[&first, &receive, &second], &[&second]), numbers(&[&receive]));
        assert_eq!(left(&[&first, &second], &[&first]), numbers(&[&second]));
        // The queue pair is gone; another one has its number.
        drop(one);
        assert_eq!(left(&[&first, &third, &receive], &[]), numbers(&[&third]));
        assert_eq!(left(&[&first, &receive], &[&first]), numbers(&[]));
    }
}
