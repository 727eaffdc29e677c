//! Completion queues: a ring that the device writes, and the queue pairs whose requests complete there.
//!
//! A completion names its queue pair by a number. The polling thread keeps a copy of the list of queue pairs, and takes
//! the current list when a completion has a number that the copy lacks. So polling takes no lock while the list is
//! unchanged, and never allocates.
//!
//! A generation of a queue pair begins with its creation or a step to RESET, and ends with the next such step or its
//! destruction. The driver then records the position behind the completions of the generation that were not polled. If
//! no thread polls, these completions are [removed](CqOps::sweep) at once, as rdma-core does, so that the device has
//! room for others. Otherwise polling drops them. Completions of a shared receive queue stay, because each is the only
//! sign that the memory of its request is free. rdma-core removes these, too.

mod translation;

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use nix::errno::Errno;
use verbs_abi::ib_uverbs_resize_cq;

use self::translation::{INDEX, drop_completion, opcode, outlives, translate, translate_frequent};
use super::geometry;
use super::memory::{CompletionRing, Entry, Record, Word, at};
use super::registers::Registers;
use super::table::{SharedTable, Table, UserIndex};
use crate::driver::{
    Arm, CommandContext, CqControlOps, CqOps, CreateError, OnDestroyed, PollError, SizeError,
};
use crate::lock::ignore_poison;
use crate::sync::AtomicU64;
use crate::sys::command::CommandError;
use crate::sys::mapping::Mapping;
use crate::sys::process::Process;
use crate::sys::uverbs::UverbsFile;
use crate::work::Completion;

/// The bit that distinguishes the number of a shared receive queue from that of a queue pair.
const SHARED: u32 = 1 << 24;

/// Returns the index of the completion number `number`, as the device counts.
#[inline(always)]
#[expect(clippy::cast_possible_truncation, reason = "the upper half has no bits of an index")]
fn index(number: u64) -> u32 {
    number as u32
}

/// A generation of a queue pair on a completion queue.
#[derive(Debug)]
pub(super) struct Generation {
    /// The number by which completions name the queue pair.
    key: u32,
    table: Arc<Table>,
    /// The number of the completion that follows the last one of the generation, or [`NO_END`](Self::NO_END).
    end: AtomicU64,
}

impl Generation {
    /// The queue pair may still have completions.
    const NO_END: u64 = u64::MAX;

    /// A number that no completion has: their numbers have 25 bits.
    const NO_KEY: u32 = u32::MAX;

    /// Creates a generation without a queue pair, to which no completion belongs.
    fn none() -> Arc<Self> {
        let table = Table::new(Table::NO_QP, 0, 0, None, Arc::new(UserIndex::NONE));
        let end = AtomicU64::new(Self::NO_END);
        Arc::new(Self { key: Self::NO_KEY, table: Arc::new(table), end })
    }

    #[inline(always)]
    fn end(&self) -> Option<u64> {
        let end = self.end.load(Ordering::Acquire);
        (end != Self::NO_END).then_some(end)
    }

    /// Ends the generation before the completion number `end`, unless it has ended.
    fn end_at(&self, end: u64) {
        let (success, failure) = (Ordering::AcqRel, Ordering::Acquire);
        let _ = self.end.compare_exchange(Self::NO_END, end, success, failure);
    }
}

/// A list of generations, sorted by number. Generations with one number are in the order of their creation.
type Generations = Arc<[Arc<Generation>]>;

/// The state that changes with the queue pairs and the size of a completion queue.
#[derive(Debug)]
struct Changing {
    /// The ring that the device writes.
    ring: CompletionRing,
    /// The generations that may have completions, sorted by number. A change creates a new list.
    generations: Generations,
}

/// The part of a completion queue that the polling thread shares with queue pairs and arming threads.
#[derive(Debug)]
pub(super) struct Shared {
    changing: Mutex<Changing>,
    record: Record,
    /// The word that armed the queue last. The thread that arms holds the lock, so that a later arming is not
    /// overwritten.
    armed: Mutex<Option<u32>>,
    /// `true` if completions name queue pairs by the program's index.
    names_user_index: bool,
    /// The number of completions that were polled. The doorbell record has its lower bits.
    polled: AtomicU64,
    registers: Arc<Registers>,
    /// The device's number of the queue.
    number: u32,
}

impl Shared {
    /// Creates the shared part of the queue that the device knows by `number`.
    pub(super) fn new(
        ring: CompletionRing,
        record: Record,
        names_user_index: bool,
        registers: Arc<Registers>,
        number: u32,
    ) -> Arc<Self> {
        let changing = Mutex::new(Changing { ring, generations: Arc::from([]) });
        let (polled, armed) = (AtomicU64::new(0), Mutex::default());
        Arc::new(Self { changing, record, armed, names_user_index, polled, registers, number })
    }

    fn key(&self, table: &Table) -> u32 {
        if self.names_user_index { table.user_index.index } else { table.qp_num }
    }

    /// Begins a generation of a queue pair.
    pub(super) fn add(&self, table: &Arc<Table>) {
        self.insert(self.key(table), Arc::clone(table));
    }

    fn insert(&self, key: u32, table: Arc<Table>) {
        let generation = Generation { key, table, end: AtomicU64::new(Generation::NO_END) };
        let mut changing = ignore_poison(self.changing.lock());
        // The kernel may reuse a number before the thread that destroyed its queue pair ends the generation.
        let is_current =
            |generation: &&Arc<Generation>| generation.key == key && generation.end().is_none();
        if let Some(earlier) = changing.generations.iter().find(is_current) {
            earlier.end_at(self.written(&changing.ring));
        }
        let mut next = self.unpolled(&changing.generations);
        let place = next.partition_point(|generation| generation.key <= key);
        next.insert(place, Arc::new(generation));
        changing.generations = next.into();
    }

    /// Ends the generation with `table`, whose completions the device has all written.
    pub(super) fn end(&self, table: &Arc<Table>) {
        let mut changing = ignore_poison(self.changing.lock());
        let end = self.written(&changing.ring);
        for generation in
            changing.generations.iter().filter(|generation| Arc::ptr_eq(&generation.table, table))
        {
            generation.end_at(end);
        }
        changing.generations = self.unpolled(&changing.generations).into();
    }

    /// Begins the generation of the shared receive queue `number` in an XRC domain.
    pub(super) fn add_shared(
        self: &Arc<Self>,
        number: u32,
        table: &Arc<SharedTable>,
        user_index: Arc<UserIndex>,
    ) -> SharedLife {
        let key = match self.names_user_index {
            true => user_index.index,
            false => SHARED | number,
        };
        let table = Arc::new(Table::of_shared(Arc::clone(table), user_index));
        self.insert(key, Arc::clone(&table));
        SharedLife { cq: Arc::clone(self), table }
    }

    /// Returns the number of completions that the device has written into `ring`, the one that it writes.
    fn written(&self, ring: &CompletionRing) -> u64 {
        let mut written = self.polled.load(Ordering::Acquire);
        loop {
            while ring.entry(index(written)).opcode().is_some() {
                written += 1;
            }
            // If a thread has polled meanwhile, the device may have written over an entry, which seemed unwritten then.
            let polled = self.polled.load(Ordering::Acquire);
            if polled <= written {
                return written;
            }
            written = polled;
        }
    }

    /// Returns the generations whose completions have not all been polled.
    fn unpolled(&self, generations: &Generations) -> Vec<Arc<Generation>> {
        let polled = self.polled.load(Ordering::Acquire);
        let is_unpolled =
            |generation: &&Arc<Generation>| generation.end().is_none_or(|end| polled < end);
        generations.iter().filter(is_unpolled).cloned().collect()
    }
}

/// The generation of a shared receive queue in an XRC domain, on its completion queue.
#[derive(Debug)]
pub(super) struct SharedLife {
    cq: Arc<Shared>,
    table: Arc<Table>,
}

impl OnDestroyed for SharedLife {
    fn on_destroyed(&self) {
        self.cq.end(&self.table);
    }
}

/// The shared part of a completion queue, as the engine has it.
#[derive(Debug)]
pub struct CqControl(pub(super) Arc<Shared>);

/// Bits of the word that arms a completion queue.
mod arm {
    use super::{INDEX, index};

    const SERIAL_SHIFT: u32 = 28;
    const SOLICITED_ONLY: u32 = 1 << 24;

    /// Returns the word for arming after `last`: a queue that is armed for all completions stays so.
    pub(super) fn after(last: Option<u32>, word: u32) -> u32 {
        let is_same_event = |last: u32| last >> SERIAL_SHIFT == word >> SERIAL_SHIFT;
        match last.filter(|last| is_same_event(*last)) {
            Some(last) if last & SOLICITED_ONLY == 0 => word & !SOLICITED_ONLY,
            _ => word,
        }
    }

    /// Returns the word for a queue after `polled` polled completions and `events_read` read events.
    pub(super) fn word(polled: u64, solicited_only: bool, events_read: u32) -> u32 {
        let solicited = if solicited_only { SOLICITED_ONLY } else { 0 };
        (events_read & 3) << SERIAL_SHIFT | solicited | index(polled) & INDEX
    }
}

impl CqControlOps for CqControl {
    /// Stores the index behind the polled completions, and a serial number: the device raises one event for each
    /// number.
    fn arm(&self, cx: CommandContext<'_>, arm: &Arm<'_>) -> Result<(), CommandError> {
        cx.check()?;
        let Shared { record, polled, armed, registers, number, .. } = &*self.0;
        let mut armed = ignore_poison(armed.lock());
        let events_read = arm.events_read.load(Ordering::Acquire);
        let word = arm::word(polled.load(Ordering::Acquire), arm.solicited_only, events_read);
        let word = arm::after(*armed, word);
        *armed = Some(word);
        record.store(Word::Second, word);
        registers.arm((u64::from(word) << 32 | u64::from(*number)).to_be());
        Ok(())
    }
}

/// The polling side of a completion queue.
#[derive(Debug)]
pub struct CqRing {
    /// The ring that the device writes.
    ring: CompletionRing,
    shared: Arc<Shared>,
    /// The number of the next completion.
    next: u64,
    known: Known,
    /// The process that has created the ring.
    process: Process,
}

/// The generations of a completion queue, as the thread that polls knows them.
#[derive(Debug)]
struct Known {
    /// The generation that was found last, or [`Generation::none`].
    last: Arc<Generation>,
    /// The shared list, as it was when it was taken.
    generations: Generations,
    /// The offset of the word in a completion by which a generation is found.
    offset: usize,
}

impl Known {
    /// Returns the generation of `entry`, completion number `next`, and `true` if it has ended.
    #[inline(always)]
    fn find(
        &mut self,
        shared: &Shared,
        entry: Entry<'_>,
        next: u64,
    ) -> Result<(&Generation, bool), &'static str> {
        let is_last = self.last_generation(entry).is_some();
        let has_ended = if is_last { false } else { self.search(shared, entry, next)? };
        Ok((&self.last, has_ended))
    }

    /// Returns the number by which the completion `entry` names a generation.
    #[inline(always)]
    fn key(&self, entry: Entry<'_>) -> u32 {
        entry.u32(self.offset) & INDEX
    }

    /// Returns the generation that was found last, if it has not ended and `entry` belongs to it.
    #[inline(always)]
    fn last_generation(&self, entry: Entry<'_>) -> Option<&Generation> {
        let is_last = self.last.key == self.key(entry) && self.last.end().is_none();
        is_last.then_some(&self.last)
    }

    /// Finds the generation of `entry`, if necessary in the current list, and makes it the last one.
    ///
    /// Returns `true` if the generation has ended.
    #[cold]
    #[inline(never)]
    fn search(
        &mut self,
        shared: &Shared,
        entry: Entry<'_>,
        next: u64,
    ) -> Result<bool, &'static str> {
        for is_taken in [false, true] {
            if is_taken {
                self.generations = ignore_poison(shared.changing.lock()).generations.clone();
            }
            if let Some(has_ended) = self.search_known(shared, entry, next) {
                return Ok(has_ended);
            }
        }
        Err(UNKNOWN_QP)
    }

    /// Finds the generation of `entry` like [`search`](Self::search), in the list that is known.
    fn search_known(&mut self, shared: &Shared, entry: Entry<'_>, next: u64) -> Option<bool> {
        let number = entry.u32(at::USER_INDEX) & INDEX;
        self.search_list(self.key(entry), next).or_else(|| {
            // The queue pair may be an XRC target, which has no table. The word then has the number of its queue.
            if shared.names_user_index { None } else { self.search_list(SHARED | number, next) }
        })
    }

    fn search_list(&mut self, key: u32, next: u64) -> Option<bool> {
        let first = self.generations.partition_point(|generation| generation.key < key);
        let mut same =
            self.generations[first..].iter().take_while(|generation| generation.key == key);
        let (generation, has_ended) = same.find_map(|generation| match generation.end() {
            None => Some((generation, false)),
            Some(end) => (next < end).then_some((generation, true)),
        })?;
        self.last = Arc::clone(generation);
        Some(has_ended)
    }

    /// Forgets the generation that was found last.
    fn forget(&mut self) {
        self.last = Generation::none();
    }

    /// Returns `true` if no generation was found since the last call of [`forget`](Self::forget).
    #[inline(always)]
    fn has_none(&self) -> bool {
        self.last.key == Generation::NO_KEY
    }
}

const UNKNOWN_QP: &str = "a completion names a queue pair that does not exist";

impl CqRing {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        let ring = ignore_poison(shared.changing.lock()).ring.clone();
        let offset = if shared.names_user_index { at::USER_INDEX } else { at::OPCODE_AND_QP };
        let known = Known { last: Generation::none(), generations: Arc::from([]), offset };
        Self { ring, shared, next: 0, known, process: Process::current() }
    }

    /// Takes completions off the ring into `into`.
    ///
    /// Returns their number, or the reason why the first one, which is taken too, is malformed.
    #[inline(always)]
    fn take(&mut self, into: &mut [Completion]) -> Result<usize, &'static str> {
        let Self { ring, shared, next, known, .. } = self;
        let mut count = 0;
        while let Some(slot) = into.get_mut(count) {
            let entry = ring.entry(index(*next));
            let Some(opcode) = entry.opcode() else { break };
            let taken = match known.find(shared, entry, *next) {
                Ok((generation, true)) if !outlives(&generation.table, opcode) => {
                    drop_completion(entry, &generation.table, opcode);
                    Ok(0)
                }
                Ok((generation, _)) => {
                    translate(entry, &generation.table, opcode, slot).map(|()| 1)
                }
                Err(reason) => Err(reason),
            };
            match taken {
                Ok(taken) => count += taken,
                Err(reason) if count == 0 => return Err(self.step_over(reason)),
                // This poll returns the completions before it, and the next one the error.
                Err(_) => break,
            }
            *next += 1;
        }
        self.release();
        Ok(count)
    }

    /// Skips a malformed completion, so that it is reported once and later completions are returned.
    #[cold]
    fn step_over(&mut self, reason: &'static str) -> &'static str {
        self.next += 1;
        self.release();
        reason
    }

    /// Lets the device write over the entries that were polled.
    #[inline(always)]
    fn release(&self) {
        // A thread that ends a generation counts from the polled entries on. So it must know their number before the
        // device writes over these entries.
        self.shared.polled.store(self.next, Ordering::Release);
        self.shared.record.store(Word::First, index(self.next) & INDEX);
    }

    /// Takes the next completion, of `opcode`, if it is frequent and its generation was found last.
    #[inline(always)]
    fn take_frequent(&mut self, opcode: u8, into: &mut Completion) -> Option<usize> {
        let entry = self.ring.entry(index(self.next));
        let table = &self.known.last_generation(entry)?.table;
        translate_frequent(entry, table, opcode, into)?;
        self.next += 1;
        self.release();
        Some(1)
    }

    /// Returns the numbers of the unpolled completions before `written` that polling would drop.
    ///
    /// The list of generations must be the current one.
    fn dropped(&mut self, written: u64) -> Vec<u64> {
        let Self { ring, shared, known, next, .. } = self;
        let mut is_dropped = |number: &u64| {
            let entry = ring.entry(index(*number));
            let Some(opcode) = entry.opcode() else { return false };
            let has_ended = known.search_known(shared, entry, *number) == Some(true);
            let is_dropped = has_ended && !outlives(&known.last.table, opcode);
            if is_dropped {
                drop_completion(entry, &known.last.table, opcode);
            }
            is_dropped
        };
        (*next..written).filter(|number| is_dropped(number)).collect()
    }

    /// Moves the completions that were not polled to `ring`, which the device writes from now on.
    ///
    /// Their numbers grow by one, because the entry that ends the old ring has a number too.
    fn move_to(
        &mut self,
        ring: CompletionRing,
        changing: &mut Changing,
    ) -> Result<(), CreateError> {
        let mut number = self.next;
        loop {
            match self.ring.entry(index(number)).opcode() {
                Some(opcode::RESIZED) => break,
                // The device has executed the command, and so written the entry.
                None => return Err(CreateError::Map(Errno::EPROTO)),
                Some(_) if number - self.next >= u64::from(ring.entries()) => {
                    return Err(CreateError::Map(Errno::EOVERFLOW));
                }
                Some(_) => ring.take_over(index(number + 1), &self.ring, index(number)),
            }
            number += 1;
        }
        let has_end = |generation: &&Arc<Generation>| generation.end().is_some();
        for generation in changing.generations.iter().filter(has_end) {
            generation.end.fetch_add(1, Ordering::AcqRel);
        }
        self.next += 1;
        // The next poll takes the slow path, which stores the new number in the record.
        self.known.forget();
        self.shared.polled.store(self.next, Ordering::Release);
        changing.ring = ring.clone();
        self.ring = ring;
        Ok(())
    }
}

impl Drop for CqRing {
    /// Returns the entries of shared receive queues whose completions were not polled.
    fn drop(&mut self) {
        // In a forked child, a lock may never be released: the thread that held it exists only in the parent.
        if !self.process.is_current() {
            return;
        }
        // A ring has at most one completion for each of its entries.
        for _ in 0..self.ring.entries() {
            let entry = self.ring.entry(index(self.next));
            let Some(opcode) = entry.opcode() else { break };
            if let Ok((generation, _)) = self.known.find(&self.shared, entry, self.next) {
                drop_completion(entry, &generation.table, opcode);
            }
            self.next += 1;
        }
    }
}

impl CqOps for CqRing {
    /// Returns 0 if the ring is known to be empty, and `None` otherwise.
    ///
    /// An empty ring needs no store: the poll that found the last generation has stored the number of the next
    /// completion.
    #[inline(always)]
    fn try_poll(&mut self, _: &mut [Completion]) -> Option<usize> {
        let is_empty =
            !self.known.has_none() && self.ring.entry(index(self.next)).opcode().is_none();
        is_empty.then_some(0)
    }

    /// Takes a frequent completion, if there is room for one only.
    #[inline(always)]
    fn try_take(&mut self, into: &mut [Completion]) -> Option<usize> {
        let [slot] = into else { return None };
        let opcode = self.ring.entry(index(self.next)).opcode()?;
        self.take_frequent(opcode, slot)
    }

    #[inline(always)]
    fn poll(&mut self, _: &UverbsFile, into: &mut [Completion]) -> Result<usize, PollError> {
        self.take(into).map_err(PollError::Malformed)
    }

    /// Moves the remaining completions behind the removed ones, and then skips the removed ones.
    fn sweep(&mut self) {
        let shared = Arc::clone(&self.shared);
        let mut changing = ignore_poison(shared.changing.lock());
        let has_ended = |generation: &Arc<Generation>| generation.end().is_some();
        if !changing.generations.iter().any(has_ended) {
            return;
        }
        self.known.generations = Arc::clone(&changing.generations);
        let written = shared.written(&self.ring);
        let dropped = self.dropped(written);
        // The last entry moves first, so that each entry moves to a place that is free.
        let mut following = dropped.iter().rev().peekable();
        let mut distance = 0;
        for number in (self.next..written).rev() {
            if following.next_if_eq(&&number).is_some() {
                distance += 1;
            } else if distance > 0 {
                self.ring.take_over(index(number + distance), &self.ring, index(number));
            }
        }
        // An entry moves by one place for each dropped entry behind it, and so does the end of a generation.
        for generation in changing.generations.iter() {
            if let Some(end) = generation.end() {
                let moved = dropped.iter().filter(|number| **number >= end).count();
                generation.end.fetch_add(moved as u64, Ordering::AcqRel);
            }
        }
        self.next += distance;
        self.known.forget();
        self.release();
        changing.generations = shared.unpolled(&changing.generations).into();
    }

    /// Gives the device a new ring, and moves the completions that were not polled there.
    ///
    /// The device writes the entry [`RESIZED`](opcode::RESIZED) behind the last completion in the old ring, and
    /// continues in the new one at the number that follows.
    fn resize(
        &mut self,
        cx: CommandContext<'_>,
        mut request: ib_uverbs_resize_cq,
        memory: &mut Option<Arc<Mapping>>,
    ) -> Result<u32, CreateError> {
        let entries = geometry::completions(request.cqe)?;
        if entries == self.ring.entries() {
            return Ok(entries - 1);
        }
        let shared = Arc::clone(&self.shared);
        let mut changing = ignore_poison(shared.changing.lock());
        let waiting = shared.written(&self.ring) - self.next;
        // A queue holds fewer than 2^32 completions.
        let waiting = u32::try_from(waiting).unwrap_or(u32::MAX);
        SizeError::check("completions that were not polled", waiting, entries - 1)?;
        request.cqe = entries - 1;
        let (ring, mapping, capacity) = self.ring.replace(cx, request, entries)?;
        *memory = Some(mapping);
        self.move_to(ring, &mut changing)?;
        Ok(capacity)
    }
}

#[cfg(test)]
mod tests;
