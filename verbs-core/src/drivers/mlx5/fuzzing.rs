//! Completion queues over arbitrary memory, and arbitrary facts about a device.

use std::sync::Arc;

use nix::errno::Errno;
use verbs_abi::mlx5::mlx5_ib_alloc_ucontext_resp;

use super::completion::{CqRing, Shared};
use super::context::{Choices, facts};
use super::geometry::{self, BLOCK, Limits, ReceiveSize, SendSize};
use super::memory::{CompletionRing, Links, QueueMemory};
use super::registers::{Page, RegisterFacts, Registers};
use super::table::{SharedTable, Table, UserIndex, UserIndices};
use crate::driver::{CqOps as _, CreateError};
use crate::drivers::other_end::OtherEnd;
use crate::sys::mapping::Mapping;
use crate::sys::uverbs::UverbsFile;
use crate::testing::Input;
use crate::work::{Completion, QpType};

/// The number of queue pairs of a completion queue.
const QPS: usize = 4;

/// Blocks and receives of a queue pair, and entries of a shared receive queue.
const ENTRIES: u32 = 8;

/// Polls while the device stores arbitrary bytes, and queue pairs are created and destroyed.
pub fn completions(bytes: &[u8]) {
    let mut input = Input(bytes);
    let which = input.byte();
    let (mapping, other) = OtherEnd::new(&mut input);
    let shift = if which & 1 == 0 { 6 } else { 7 };
    let names_user_index = which & 2 != 0;
    let Some(log) = (mapping.len() >> shift).checked_ilog2() else { return };
    let record = QueueMemory::new([64]).expect("memory").record;
    let ring = CompletionRing::new(Arc::new(mapping), 1 << log, shift);
    let shared = Shared::new(ring, record, names_user_index, Registers::absent(), 9);
    let mut ring = CqRing::new(Arc::clone(&shared));
    let receives = QueueMemory::new([ENTRIES as usize * 32]).expect("memory");
    let [list] = &receives.rings;
    let srq = Arc::new(SharedTable::new(Links::of(list, 5), ENTRIES, ENTRIES));
    let (file, indices) = (UverbsFile::silent(), UserIndices::new());
    let mut qps: [Option<Arc<Table>>; QPS] = Default::default();
    let mut posted = 0_u32;
    while !input.is_empty() {
        let what = input.byte();
        let place = usize::from(what >> 4) % QPS;
        match (what % 6, &qps[place]) {
            (0, Some(table)) => {
                shared.end(table);
                qps[place] = None;
                if what & 8 != 0 {
                    ring.sweep();
                }
            }
            (0, None) => {
                let index = if names_user_index { indices.take() } else { Some(UserIndex::NONE) };
                let srq = (what & 8 != 0).then(|| Arc::clone(&srq));
                let number = u32::from(input.byte());
                let index = Arc::new(index.expect("few are in use"));
                let table = Arc::new(Table::new(number, ENTRIES, ENTRIES, srq, index));
                shared.add(&table);
                qps[place] = Some(table);
            }
            (1, Some(table)) => {
                table.post_send(u32::from(input.byte()), posted, 1);
                posted = posted.wrapping_add(1);
            }
            (2, Some(table)) => {
                table.post_receive(posted, 2);
                posted = posted.wrapping_add(1);
            }
            (3, _) => srq.post(u16::from(input.byte()), 3),
            (4, _) => {
                let mut into = [Completion::default(); 5];
                let most = usize::from(input.byte()) % (into.len() + 1);
                if let Ok(count) = ring.poll(&file, &mut into[..most]) {
                    let rest = &into[count..];
                    assert!(count <= most && rest.iter().all(|c| *c == Completion::default()));
                }
                other.check();
            }
            _ => other.scribble(&mut input),
        }
    }
}

/// Computes sizes of queues and places of registers from arbitrary facts about a device.
pub fn context(bytes: &[u8]) {
    let mut input = Input(bytes);
    let choices = Choices {
        registers: 16,
        dedicated: u32::from(input.byte()),
        copies_nothing: input.byte() & 1 != 0,
        copies_inline_only: false,
        completion_shift: 6,
    };
    let response: mlx5_ib_alloc_ucontext_resp = input.value();
    // The process need not have room for more.
    let page =
        |_, length| if length > 1 << 16 { Err(Errno::ENOMEM) } else { Mapping::guarded(length) };
    let (number, length): (u32, u16) = (input.value(), input.value());
    let allocate = |_| {
        let mapping = Mapping::guarded(length.into()).map_err(CreateError::Map)?;
        Ok(Page { mapping: Arc::new(mapping), number })
    };
    let map = |facts: RegisterFacts| match facts.total {
        0 => Registers::dynamic(facts, allocate),
        _ => Registers::map_static(facts, page).map(Some).map_err(CreateError::Map),
    };
    let Ok(Some(facts)) = facts(choices, &response, map) else { return };
    let memory = QueueMemory::new([4096]).expect("memory");
    let [ring] = &memory.rings;
    while !input.is_empty() {
        match input.byte() % 3 {
            0 => sizes(&facts.limits, &mut input),
            1 => drop(geometry::completions(input.value()).ok()),
            _ => {
                let Ok(chosen) = facts.registers.choose(allocate) else { continue };
                let Ok(mut register) = facts.registers.take(chosen, input.value()) else {
                    continue;
                };
                for _ in 0..3 {
                    let start = usize::from(input.byte()) * BLOCK as usize;
                    let units = u32::from(input.byte() & 63);
                    register.ring(ring, start, units, input.byte() & 1 != 0);
                }
            }
        }
    }
}

/// Checks that queues are no larger than the limits.
fn sizes(limits: &Limits, input: &mut Input<'_>) {
    assert_eq!(*limits, limits.clamped());
    let (requests, max_sge): (u32, u32) = (input.value(), input.value());
    let qp_type = QpType(input.byte() % 12);
    let max_inline = input.value();
    if let Ok(size) = SendSize::new(limits, qp_type, requests, max_sge, max_inline) {
        assert!(size.blocks <= limits.send_blocks && size.requests >= requests);
        assert!(
            size.requests == 0 || size.blocks.is_power_of_two() && size.blocks >= size.requests
        );
        assert!(size.requests == 0 || size.max_inline >= max_inline, "{size:?}");
    }
    if let Ok(size) = ReceiveSize::new(limits, requests, max_sge) {
        assert!(size.entries >= requests && size.max_sge >= max_sge.min(requests), "{size:?}");
        assert!(size.bytes() >= size.entries as usize * size.max_sge as usize * 16);
    }
    if let Ok((size, listed)) = ReceiveSize::shared(limits, requests, max_sge) {
        assert!(size.entries >= listed && listed > requests && size.max_sge >= max_sge, "{size:?}");
    }
}
