//! Completion queues: a ring that the device writes, and the queue pairs whose requests complete there.
//!
//! A completion names its queue pair by a number. The thread that polls holds the list of queue pairs as it was, and takes the
//! new one when it meets a number that is not in it: so polling takes no lock while the list stays as it is, and never
//! allocates.
//!
//! When a queue pair is destroyed, or moved to RESET, the completions of that life that were not polled stay in the ring. The
//! position behind them is recorded, and polling drops them, but for those of requests that a shared receive queue had. rdma-core
//! drops these too, and with them the only sign that the memory of the request is free.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use nix::errno::Errno;
use verbs_abi::{ib_uverbs_resize_cq, ib_uverbs_wc, ib_wc_flags};

use super::geometry::{self, TOO_LARGE};
use super::memory::{CompletionRing, Entry, Record, Word, at};
use super::opcode::{CHANGE_KEY, completed_operation};
use super::registers::Registers;
use super::table::{KeyChange, SharedTable, Table, UserIndex};
use crate::driver::{
    Arm, CommandContext, CqControlOps, CqOps, CreateError, OnDestroyed, PollError,
};
use crate::lock::ignore_poison;
use crate::sync::AtomicU64;
use crate::sys::command::CommandError;
use crate::sys::mapping::Mapping;
use crate::sys::uverbs::UverbsFile;
use crate::work::{Completion, WcOpcode, WcStatus};

/// The bits of an index that the device sees. This process counts completions by numbers of 64 bits, which never wrap.
const INDEX: u32 = 0xff_ffff;

/// The bit that distinguishes the number of a shared receive queue from that of a queue pair.
const SHARED: u32 = 1 << 24;

/// Returns the index of the completion number `number`, as the device counts.
#[inline(always)]
#[expect(clippy::cast_possible_truncation, reason = "the upper half has no bits of an index")]
fn index(number: u64) -> u32 {
    number as u32
}

/// A life of a queue pair on a completion queue.
#[derive(Debug)]
pub(super) struct Life {
    /// The number by which completions name the queue pair.
    key: u32,
    table: Arc<Table>,
    /// The number of the completion that follows the last one of the life, or [`LIVES`](Self::LIVES).
    end: AtomicU64,
}

impl Life {
    /// The queue pair may still have completions.
    const LIVES: u64 = u64::MAX;

    #[inline(always)]
    fn end(&self) -> Option<u64> {
        let end = self.end.load(Ordering::Acquire);
        (end != Self::LIVES).then_some(end)
    }
}

/// A list of lives, sorted by number. Of those with one number, earlier ones come first.
type Lives = Arc<[Arc<Life>]>;

/// The state that changes with the queue pairs and the size of a completion queue.
#[derive(Debug)]
struct Changing {
    /// The ring that the device writes.
    ring: CompletionRing,
    /// The lives that may have completions, sorted by number. A change makes a new list.
    lives: Lives,
}

/// The part of a completion queue that its queue pairs, and threads that arm it, share with the thread that polls.
#[derive(Debug)]
pub(super) struct Shared {
    changing: Mutex<Changing>,
    record: Record,
    /// The word that armed the queue last. The thread that arms holds the lock, so that a later arming is not overwritten.
    armed: Mutex<Option<u32>>,
    /// Completions name queue pairs by the program's index.
    names_user_index: bool,
    /// The number of completions that were polled, of which the record has the lower bits.
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
        let changing = Mutex::new(Changing { ring, lives: Arc::from([]) });
        let (polled, armed) = (AtomicU64::new(0), Mutex::default());
        Arc::new(Self { changing, record, armed, names_user_index, polled, registers, number })
    }

    fn key(&self, table: &Table) -> u32 {
        if self.names_user_index { table.user_index.index } else { table.qp_num }
    }

    /// Begins a life of a queue pair.
    pub(super) fn add(&self, table: &Arc<Table>) {
        self.insert(self.key(table), Arc::clone(table));
    }

    fn insert(&self, key: u32, table: Arc<Table>) {
        let life = Life { key, table, end: AtomicU64::new(Life::LIVES) };
        let mut changing = ignore_poison(self.changing.lock());
        let mut next = self.unpolled(&changing.lives);
        let place = next.partition_point(|life| life.key <= key);
        next.insert(place, Arc::new(life));
        changing.lives = next.into();
    }

    /// Ends the life with `table`, which has no more completions than those that the device has written.
    pub(super) fn end(&self, table: &Arc<Table>) {
        let mut changing = ignore_poison(self.changing.lock());
        let end = self.written(&changing.ring);
        for life in changing.lives.iter().filter(|life| Arc::ptr_eq(&life.table, table)) {
            life.end.store(end, Ordering::Release);
        }
        changing.lives = self.unpolled(&changing.lives).into();
    }

    /// Begins the life of a shared receive queue in an XRC domain, which the device knows by `number`.
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

    /// Returns the lives whose completions have not all been polled.
    fn unpolled(&self, lives: &Lives) -> Vec<Arc<Life>> {
        let polled = self.polled.load(Ordering::Acquire);
        let is_unpolled = |life: &&Arc<Life>| life.end().is_none_or(|end| polled < end);
        lives.iter().filter(is_unpolled).cloned().collect()
    }
}

/// The life of a shared receive queue in an XRC domain, on its completion queue.
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

    /// Returns the word for a queue of which so many completions were polled, and so many events were read.
    pub(super) fn word(polled: u64, solicited_only: bool, events_read: u32) -> u32 {
        let solicited = if solicited_only { SOLICITED_ONLY } else { 0 };
        (events_read & 3) << SERIAL_SHIFT | solicited | index(polled) & INDEX
    }
}

impl CqControlOps for CqControl {
    /// Stores the index behind the polled completions, and a serial number: the device raises one event for each number.
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

/// The end of a completion queue that is polled.
#[derive(Debug)]
pub struct CqRing {
    /// The ring that the device writes.
    ring: CompletionRing,
    shared: Arc<Shared>,
    /// The number of the next completion.
    next: u64,
    known: Known,
}

/// The lives of a completion queue, as the thread that polls knows them.
#[derive(Debug)]
struct Known {
    /// The life that was found last.
    last: Option<Arc<Life>>,
    /// The shared list, as it was when it was taken.
    lives: Lives,
    /// The offset of the word in a completion by which a life is found.
    offset: usize,
}

impl Known {
    /// Returns the life that the completion `entry`, with the number `next`, belongs to, and whether the life has ended.
    #[inline(always)]
    fn find(
        &mut self,
        shared: &Shared,
        entry: Entry<'_>,
        next: u64,
    ) -> Result<(&Life, bool), &'static str> {
        let key = entry.u32(self.offset) & INDEX;
        let is_last =
            self.last.as_ref().is_some_and(|life| life.key == key && life.end().is_none());
        let has_ended = if is_last { false } else { self.search(shared, entry, key, next)? };
        let life = self.last.as_deref().ok_or(UNKNOWN_QP)?;
        Ok((life, has_ended))
    }

    /// Looks for the life with `key`, also in the list as it is now, and makes it the last one. Returns `true` if it has ended.
    #[cold]
    #[inline(never)]
    fn search(
        &mut self,
        shared: &Shared,
        entry: Entry<'_>,
        key: u32,
        next: u64,
    ) -> Result<bool, &'static str> {
        let number = entry.u32(at::USER_INDEX) & INDEX;
        for is_taken in [false, true] {
            if is_taken {
                self.lives = ignore_poison(shared.changing.lock()).lives.clone();
            }
            if let Some(has_ended) = self.search_list(key, next) {
                return Ok(has_ended);
            }
            // The queue pair may be an XRC target, which has no table. The word has the number of its queue then.
            if !shared.names_user_index {
                if let Some(has_ended) = self.search_list(SHARED | number, next) {
                    return Ok(has_ended);
                }
            }
        }
        Err(UNKNOWN_QP)
    }

    fn search_list(&mut self, key: u32, next: u64) -> Option<bool> {
        let first = self.lives.partition_point(|life| life.key < key);
        let same = self.lives[first..].iter().take_while(|life| life.key == key);
        let (life, has_ended) = same.into_iter().find_map(|life| match life.end() {
            None => Some((life, false)),
            Some(end) => (next < end).then_some((life, true)),
        })?;
        self.last = Some(Arc::clone(life));
        Some(has_ended)
    }
}

const UNKNOWN_QP: &str = "a completion names a queue pair that does not exist";
const UNKNOWN_REQUEST: &str = "a completion names a request that is not posted";
const UNKNOWN_OPCODE: &str = "a completion has an unknown opcode";

impl CqRing {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        let ring = ignore_poison(shared.changing.lock()).ring.clone();
        let offset = if shared.names_user_index { at::USER_INDEX } else { at::OPCODE_AND_QP };
        let known = Known { last: None, lives: Arc::from([]), offset };
        Self { ring, shared, next: 0, known }
    }

    /// Takes completions off the ring into `into`. Returns how many, or the reason why the first one is malformed.
    #[inline(always)]
    fn take(&mut self, into: &mut [Completion]) -> Result<usize, &'static str> {
        let Self { ring, shared, next, known } = self;
        let mut count = 0;
        while let Some(slot) = into.get_mut(count) {
            let entry = ring.entry(index(*next));
            let Some(opcode) = entry.opcode() else { break };
            let (life, has_ended) = match known.find(shared, entry, *next) {
                Ok(found) => found,
                // The entry stays: the next poll returns the error, if this one has completions.
                Err(reason) if count == 0 => return Err(reason),
                Err(_) => break,
            };
            if has_ended && !outlives(&life.table, opcode) {
                drop_completion(entry, &life.table, opcode);
            } else {
                match translate(entry, &life.table, opcode, slot) {
                    Ok(()) => count += 1,
                    Err(reason) if count == 0 => return Err(reason),
                    Err(_) => break,
                }
            }
            *next += 1;
        }
        // The device may write over the entries.
        shared.record.store(Word::First, index(*next) & INDEX);
        shared.polled.store(*next, Ordering::Release);
        Ok(count)
    }

    /// Moves the completions that were not polled to `ring`, which the device writes from now on.
    ///
    /// Their numbers grow by one, because the number of the entry that ends the old ring has passed.
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
        let has_end = |life: &&Arc<Life>| life.end().is_some();
        for life in changing.lives.iter().filter(has_end) {
            life.end.fetch_add(1, Ordering::AcqRel);
        }
        self.next += 1;
        // The next poll stores the new number in the record: a life has to be found first.
        self.known.last = None;
        self.shared.polled.store(self.next, Ordering::Release);
        changing.ring = ring.clone();
        self.ring = ring;
        Ok(())
    }
}

impl Drop for CqRing {
    /// Returns the entries of shared receive queues whose completions were not polled.
    fn drop(&mut self) {
        // A ring has at most one completion for each of its entries.
        for _ in 0..self.ring.entries() {
            let entry = self.ring.entry(index(self.next));
            let Some(opcode) = entry.opcode() else { break };
            if let Ok((life, _)) = self.known.find(&self.shared, entry, self.next) {
                drop_completion(entry, &life.table, opcode);
            }
            self.next += 1;
        }
    }
}

/// Opcodes of completions.
mod opcode {
    pub(super) const REQUEST: u8 = 0;
    pub(super) const WRITE_WITH_IMMEDIATE: u8 = 1;
    pub(super) const SEND: u8 = 2;
    pub(super) const SEND_WITH_IMMEDIATE: u8 = 3;
    pub(super) const SEND_WITH_INVALIDATE: u8 = 4;
    /// Not a completion: the device continues in another ring.
    pub(super) const RESIZED: u8 = 5;
    pub(super) const REQUEST_ERROR: u8 = 13;
    pub(super) const RECEIVE_ERROR: u8 = 14;
}

fn is_receive(opcode: u8) -> bool {
    matches!(
        opcode,
        opcode::WRITE_WITH_IMMEDIATE
            | opcode::SEND
            | opcode::SEND_WITH_IMMEDIATE
            | opcode::SEND_WITH_INVALIDATE
            | opcode::RECEIVE_ERROR
    )
}

/// Returns `true` if a completion of a life that has ended is returned nevertheless.
///
/// A request of a shared receive queue belongs to that queue, whose owner learns from nothing else that the request is done.
#[cold]
fn outlives(table: &Table, opcode: u8) -> bool {
    table.srq.is_some() && table.qp_num != Table::NO_QP && is_receive(opcode)
}

/// Drops a completion of a life that has ended. The entry of a shared receive queue is free again.
#[cold]
fn drop_completion(entry: Entry<'_>, table: &Table, opcode: u8) {
    if let (Some(srq), true) = (&table.srq, is_receive(opcode)) {
        let _ = srq.complete(entry.u16(at::COUNTER));
    }
}

/// Bit numbers and masks of the word with flags and the source queue pair.
mod flags {
    pub(super) const HAS_GRH: u32 = 3 << 28;
    pub(super) const SL_SHIFT: u32 = 24;
    pub(super) const SL: u32 = 15;
}

/// Translates the completion `entry` of a queue pair with `table` into `into`.
#[inline(always)]
fn translate(
    entry: Entry<'_>,
    table: &Table,
    opcode: u8,
    into: &mut Completion,
) -> Result<(), &'static str> {
    match opcode {
        opcode::REQUEST => sent(entry, table, into),
        opcode::SEND => received(entry, table, opcode, into),
        _ => translate_rest(entry, table, opcode, into),
    }
}

/// Translates the completions that are less frequent.
#[inline(never)]
fn translate_rest(
    entry: Entry<'_>,
    table: &Table,
    opcode: u8,
    into: &mut Completion,
) -> Result<(), &'static str> {
    match opcode {
        opcode::WRITE_WITH_IMMEDIATE
        | opcode::SEND_WITH_IMMEDIATE
        | opcode::SEND_WITH_INVALIDATE => received(entry, table, opcode, into),
        opcode::REQUEST_ERROR | opcode::RECEIVE_ERROR => failed(entry, table, opcode, into),
        _ => Err(UNKNOWN_OPCODE),
    }
}

#[inline(always)]
fn sent(entry: Entry<'_>, table: &Table, into: &mut Completion) -> Result<(), &'static str> {
    let (wr_id, operation) = complete_send(entry, table)?;
    let byte_len = match operation {
        WcOpcode::IB_UVERBS_WC_RDMA_READ => entry.u32(at::BYTES),
        WcOpcode::IB_UVERBS_WC_COMP_SWAP | WcOpcode::IB_UVERBS_WC_FETCH_ADD => 8,
        _ => 0,
    };
    into.0 = ib_uverbs_wc {
        wr_id: wr_id.into(),
        status: WcStatus::IB_WC_SUCCESS,
        opcode: operation,
        byte_len,
        qp_num: table.qp_num,
        ..ib_uverbs_wc::default()
    };
    Ok(())
}

/// Completes a send. Returns its identifier and its operation.
#[inline(always)]
fn complete_send(entry: Entry<'_>, table: &Table) -> Result<(u64, WcOpcode), &'static str> {
    let counter = entry.u16(at::COUNTER);
    let opcode = u32::from(entry.u8(at::OPCODE_AND_QP));
    let operation = match opcode {
        CHANGE_KEY => match table.key_change(counter) {
            KeyChange::Bind => WcOpcode::IB_UVERBS_WC_BIND_MW,
            KeyChange::Invalidation => WcOpcode::IB_UVERBS_WC_LOCAL_INV,
        },
        opcode => completed_operation(opcode),
    };
    let wr_id = table.complete_send(counter).ok_or(UNKNOWN_REQUEST)?;
    Ok((wr_id, operation))
}

/// Returns the number of the queue pair that has received. A shared receive queue in an XRC domain receives for all targets.
#[inline(always)]
fn receiver(entry: Entry<'_>, table: &Table) -> u32 {
    match table.qp_num {
        Table::NO_QP => entry.u32(at::OPCODE_AND_QP) & INDEX,
        number => number,
    }
}

/// Completes a receive of the queue pair, or of its shared receive queue.
#[inline(always)]
fn complete_receive(entry: Entry<'_>, table: &Table) -> Result<u64, &'static str> {
    let wr_id = match &table.srq {
        None => table.complete_receive(),
        Some(srq) => srq.complete(entry.u16(at::COUNTER)),
    };
    wr_id.ok_or(UNKNOWN_REQUEST)
}

#[inline(always)]
fn received(
    entry: Entry<'_>,
    table: &Table,
    opcode: u8,
    into: &mut Completion,
) -> Result<(), &'static str> {
    let wr_id = complete_receive(entry, table)?;
    let source = entry.u32(at::FLAGS_AND_SOURCE);
    let mut wc_flags = match source & flags::HAS_GRH {
        0 => ib_wc_flags::empty(),
        _ => ib_wc_flags::IB_WC_GRH,
    };
    let mut ex = [0; 4];
    match opcode {
        opcode::WRITE_WITH_IMMEDIATE | opcode::SEND_WITH_IMMEDIATE => {
            wc_flags |= ib_wc_flags::IB_WC_WITH_IMM;
            ex = entry.u32(at::IMMEDIATE).to_be_bytes();
        }
        opcode::SEND_WITH_INVALIDATE => {
            wc_flags |= ib_wc_flags::IB_WC_WITH_INVALIDATE;
            ex = entry.u32(at::IMMEDIATE).to_ne_bytes();
        }
        _ => {}
    }
    let operation = match opcode {
        opcode::WRITE_WITH_IMMEDIATE => WcOpcode::IB_WC_RECV_RDMA_WITH_IMM,
        _ => WcOpcode::IB_WC_RECV,
    };
    into.0 = ib_uverbs_wc {
        wr_id: wr_id.into(),
        status: WcStatus::IB_WC_SUCCESS,
        opcode: operation,
        byte_len: entry.u32(at::BYTES),
        ex,
        qp_num: receiver(entry, table),
        src_qp: source & INDEX,
        wc_flags,
        slid: entry.u16(at::SLID),
        sl: (source >> flags::SL_SHIFT & flags::SL) as u8,
        dlid_path_bits: entry.u8(at::PATH) & 0x7f,
        ..ib_uverbs_wc::default()
    };
    Ok(())
}

/// Translates the completion of a request that has failed.
#[cold]
fn failed(
    entry: Entry<'_>,
    table: &Table,
    opcode: u8,
    into: &mut Completion,
) -> Result<(), &'static str> {
    let (wr_id, operation) = match opcode {
        opcode::RECEIVE_ERROR => (complete_receive(entry, table)?, WcOpcode::IB_WC_RECV),
        _ => complete_send(entry, table)?,
    };
    into.0 = ib_uverbs_wc {
        wr_id: wr_id.into(),
        status: status(entry.u8(at::SYNDROME)),
        opcode: operation,
        vendor_err: entry.u8(at::VENDOR_ERROR).into(),
        qp_num: receiver(entry, table),
        ..ib_uverbs_wc::default()
    };
    Ok(())
}

/// Translates the reason of a failure.
fn status(syndrome: u8) -> WcStatus {
    match syndrome {
        0x01 => WcStatus::IB_WC_LOC_LEN_ERR,
        0x02 => WcStatus::IB_WC_LOC_QP_OP_ERR,
        0x04 => WcStatus::IB_WC_LOC_PROT_ERR,
        0x05 => WcStatus::IB_WC_WR_FLUSH_ERR,
        0x06 => WcStatus::IB_WC_MW_BIND_ERR,
        0x10 => WcStatus::IB_WC_BAD_RESP_ERR,
        0x11 => WcStatus::IB_WC_LOC_ACCESS_ERR,
        0x12 => WcStatus::IB_WC_REM_INV_REQ_ERR,
        0x13 => WcStatus::IB_WC_REM_ACCESS_ERR,
        0x14 => WcStatus::IB_WC_REM_OP_ERR,
        0x15 => WcStatus::IB_WC_RETRY_EXC_ERR,
        0x16 => WcStatus::IB_WC_RNR_RETRY_EXC_ERR,
        0x22 => WcStatus::IB_WC_REM_ABORT_ERR,
        _ => WcStatus::IB_WC_GENERAL_ERR,
    }
}

impl CqOps for CqRing {
    /// Finds that there is no completion. The record has the number of the next one since the poll that found a life last.
    #[inline(always)]
    fn try_poll(&mut self, _: &mut [Completion]) -> Option<usize> {
        self.known.last.as_ref()?;
        match self.ring.entry(index(self.next)).opcode() {
            None => Some(0),
            Some(_) => None,
        }
    }

    #[inline(always)]
    fn poll(&mut self, _: &UverbsFile, into: &mut [Completion]) -> Result<usize, PollError> {
        self.take(into).map_err(PollError::Malformed)
    }

    /// Gives the device a new ring, and moves the completions that were not polled there.
    ///
    /// The device writes the entry [`RESIZED`](opcode::RESIZED) behind the last completion in the old ring, and continues in the
    /// new one at the number that follows.
    fn resize(
        &mut self,
        cx: CommandContext<'_>,
        mut request: ib_uverbs_resize_cq,
        memory: &mut Option<Arc<Mapping>>,
    ) -> Result<u32, CreateError> {
        let entries = geometry::completions(request.cqe).ok_or(TOO_LARGE)?;
        if entries == self.ring.entries() {
            return Ok(entries - 1);
        }
        let shared = Arc::clone(&self.shared);
        let mut changing = ignore_poison(shared.changing.lock());
        let waiting = shared.written(&self.ring) - self.next;
        if waiting >= u64::from(entries) {
            return Err(TOO_LARGE);
        }
        request.cqe = entries - 1;
        let (ring, mapping, capacity) = self.ring.replace(cx, request, entries)?;
        *memory = Some(mapping);
        self.move_to(ring, &mut changing)?;
        Ok(capacity)
    }
}

#[cfg(test)]
mod tests;
