//! The one core of a connection: its state, and waiting until that is as somebody wants it.

use std::hint;
use std::mem;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use bitflags::bitflags;

use super::deadline::{has_passed, within};
use super::keep_alive::KeepAlive;
use super::parts::Parts;
use super::readiness::{Readiness, Ready};
use super::rendezvous::Rendezvous;
use super::spin::Spin;
use super::state::{Interest, State};
use super::tasks::{Tasks, Telling};
use super::trace::Trace;
use super::traffic::End;
use crate::cm::EventChannel;
use crate::error::{Error, ErrorKind, Result, Wait};
use crate::lock::unpoisoned;
use crate::sys::command::Refused;
use crate::sys::process::Process;
use crate::verbs::{Buffer, CompletionChannel, ProtectionDomain};

/// What the handles of a connection share, and its buffers and messages.
///
/// The descriptors are here, and stay open as long as it: a thread may sleep on them while another
/// one ends the connection.
#[derive(Debug)]
pub(super) struct Shared {
    process: Process,
    /// Held by who destroys the kernel's objects.
    ending: Mutex<()>,
    guarded: Mutex<Guarded>,
    changed: Condvar,
    /// Who waits without a thread.
    pub(super) tasks: Tasks,
    pub(super) channel: EventChannel,
    completions: CompletionChannel,
    pub(super) readiness: Arc<Readiness>,
    /// How errors name the connection.
    pub(super) name: String,
    /// Bytes of the longest message.
    pub(super) longest: usize,
}

/// What one thread at a time has.
#[derive(Debug)]
pub(super) struct Guarded {
    pub(super) state: State,
    /// A thread sleeps on the descriptors, and reads them when it wakes: no other does.
    asleep: bool,
    /// How many others wait for it, or for a change that another thread makes.
    waiting: usize,
    /// How many of all those wait for a buffer.
    wanting: usize,
    /// What somebody has tried in vain, who may sleep on the descriptor by now.
    missed: Missed,
    /// The bell rings.
    ringing: bool,
}

/// The state, while it is locked. Tasks that are to be told of a change are when it is unlocked:
/// what their wakers do is not known here, and may come back to the connection.
#[derive(Debug)]
pub(super) struct Locked<'a> {
    // First: it goes first.
    guarded: MutexGuard<'a, Guarded>,
    telling: Telling<'a>,
}

impl Deref for Locked<'_> {
    type Target = Guarded;

    fn deref(&self) -> &Guarded {
        &self.guarded
    }
}

impl DerefMut for Locked<'_> {
    fn deref_mut(&mut self) -> &mut Guarded {
        &mut self.guarded
    }
}

bitflags! {
    /// What calls that do not wait have not got.
    #[derive(Debug, Clone, Copy)]
    struct Missed: u8 {
        const BUFFER = 1;
        const MESSAGE = 1 << 1;
        const FLUSH = 1 << 2;
        const CLOSE = 1 << 3;
        const ANSWER = 1 << 4;
        const OUTCOME = 1 << 5;
    }
}

/// What somebody has found who looked for something.
enum Looked<T> {
    Found(T),
    /// Not that, but something had completed.
    Changed,
    Nothing,
}

/// What is waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Operation {
    Take,
    Send,
    Write,
    Read,
    Change,
    Receive,
    Flush,
    Close,
    Resolve,
    Join,
}

impl Operation {
    /// How errors name it.
    pub(super) const fn name(self) -> &'static str {
        self.wait().operation
    }

    /// What is said where it would wait, of whichever endpoint.
    const fn wait(self) -> &'static Wait {
        const fn of(operation: &'static str) -> Wait {
            Wait { operation, subject: "an endpoint" }
        }
        match self {
            Self::Take => const { &of("take a buffer of") },
            Self::Send => const { &of("send on") },
            Self::Write => const { &of("write over") },
            Self::Read => const { &of("read over") },
            Self::Change => const { &of("change a number over") },
            Self::Receive => const { &of("receive on") },
            Self::Flush => const { &of("flush") },
            Self::Close => const { &of("close") },
            Self::Resolve => const { &of("resolve a peer for") },
            Self::Join => const { &of("join a multicast group on") },
        }
    }

    fn interest(self) -> Interest {
        match self {
            Self::Receive => Interest::Messages,
            Self::Take | Self::Send | Self::Write | Self::Read | Self::Change | Self::Flush => {
                Interest::Sends
            }
            Self::Close | Self::Resolve | Self::Join => Interest::All,
        }
    }
}

/// How many times one call reads what there is, if it does not wait.
const READS: u32 = 4;

/// What nobody sees an error of.
const GIVE_BACK: &str = "give back to";

/// How long to wait.
#[derive(Debug, Clone, Copy)]
pub(super) enum Patience {
    /// Not at all.
    None,
    /// Not at all: a task is told when it is to try again.
    #[cfg(feature = "tokio")]
    Task,
    /// Until then, or without end.
    Until(Option<Instant>),
}

impl Patience {
    pub(super) const FOREVER: Self = Self::Until(None);

    pub(super) fn within(timeout: Duration) -> Self {
        Self::Until(within(timeout))
    }

    /// Whether it is that of a task.
    fn is_task(self) -> bool {
        !matches!(self, Self::None | Self::Until(_))
    }

    /// Whether a deadline has passed.
    fn is_over(self) -> bool {
        matches!(self, Self::Until(deadline) if has_passed(deadline))
    }
}

impl Missed {
    fn note(&mut self, operation: Operation, in_vain: bool, has_ended: bool) {
        match operation {
            Operation::Take => self.set(Self::BUFFER, in_vain),
            Operation::Receive => self.set(Self::MESSAGE, in_vain),
            Operation::Flush => self.set(Self::FLUSH, in_vain),
            Operation::Close => self.set(Self::CLOSE, in_vain),
            // Of which there may be several: while one is there that nobody waits for, it is told of.
            Operation::Resolve | Operation::Join if in_vain => *self |= Self::ANSWER,
            Operation::Resolve | Operation::Join if has_ended => *self -= Self::ANSWER,
            // Of which buffers, each of those says.
            Operation::Read | Operation::Change if in_vain => *self |= Self::OUTCOME,
            Operation::Resolve | Operation::Join | Operation::Read | Operation::Change => {}
            Operation::Send | Operation::Write => {}
        }
    }

    /// Whether something of it is to be had by now.
    fn is_there(self, state: &State) -> bool {
        let State { traffic, disconnected, rendezvous, .. } = state;
        let rendezvous = rendezvous.as_deref();
        let has_loss = || rendezvous.is_some_and(|rendezvous| rendezvous.groups.has_loss());
        let has_answer = || rendezvous.is_some_and(Rendezvous::has_answer);
        let has_ended = traffic.end.is_some();
        let is_closing = match traffic.end {
            None => traffic.is_sent(),
            Some(End::Here) => *disconnected,
            Some(_) => true,
        };
        let has_buffer = !(traffic.free.is_empty() || traffic.loses());
        let has = |what| self.intersects(what);
        has(Self::BUFFER) && (has_ended || has_buffer)
            || has(Self::MESSAGE) && (has_ended || !traffic.inbox.is_empty() || has_loss())
            || has(Self::FLUSH) && (has_ended || traffic.is_sent())
            || has(Self::CLOSE) && is_closing
            || has(Self::ANSWER) && (has_ended || has_answer())
            || has(Self::OUTCOME) && traffic.has_outcome()
    }

    /// What of it the descriptor does not tell of, as another call has polled what would have.
    fn unheard(self, state: &State) -> Option<Interest> {
        let sends = self.intersects(Self::BUFFER | Self::FLUSH | Self::CLOSE)
            || self.intersects(Self::OUTCOME) && state.traffic.wants_outcome();
        if self.intersects(Self::MESSAGE) && state.is_deaf(Interest::Messages) {
            return Some(if sends { Interest::All } else { Interest::Messages });
        }
        (sends && state.is_deaf(Interest::Sends)).then_some(Interest::Sends)
    }
}

impl Shared {
    pub(super) fn new(
        state: State,
        channel: EventChannel,
        completions: CompletionChannel,
        readiness: Arc<Readiness>,
        name: String,
        longest: usize,
    ) -> Result<Self> {
        completions.set_nonblocking(true)?;
        readiness.add_completions(&completions)?;
        if let Some(timer) = state.traffic.keep_alive.as_ref().and_then(KeepAlive::timer) {
            readiness.add_timer(timer)?;
        }
        let guarded = Guarded {
            state,
            asleep: false,
            waiting: 0,
            wanting: 0,
            missed: Missed::empty(),
            ringing: false,
        };
        Ok(Self {
            process: Process::current(),
            ending: Mutex::default(),
            guarded: Mutex::new(guarded),
            changed: Condvar::new(),
            tasks: Tasks::default(),
            channel,
            completions,
            readiness,
            name,
            longest,
        })
    }

    /// The same, which tells `trace` what becomes of it.
    pub(super) fn traced(mut self, trace: Trace) -> Self {
        unpoisoned(self.guarded.get_mut()).state.traffic.trace = trace;
        self
    }

    /// The state, for `operation`; not in a forked child, where the lock may be held for ever.
    #[inline(always)]
    pub(super) fn lock(&self, operation: &'static str) -> Result<Locked<'_>> {
        self.lock_named(|| operation)
    }

    /// The same, where the name is asked for only if it is refused.
    #[inline(always)]
    pub(super) fn lock_for(&self, operation: Operation) -> Result<Locked<'_>> {
        self.lock_named(|| operation.name())
    }

    #[inline(always)]
    fn lock_named(&self, name: impl FnOnce() -> &'static str) -> Result<Locked<'_>> {
        match self.process.check() {
            Ok(()) => Ok(self.lock_here()),
            Err(refused) => Err(self.refused(name(), refused)),
        }
    }

    #[cold]
    fn refused(&self, operation: &'static str, refused: Refused) -> Error {
        refused.during(operation, self.name.clone())
    }

    #[inline(always)]
    fn lock_here(&self) -> Locked<'_> {
        Locked { guarded: unpoisoned(self.guarded.lock()), telling: self.tasks.telling() }
    }

    /// The error of `operation` here.
    #[cold]
    pub(super) fn error(&self, operation: Operation, kind: ErrorKind) -> Error {
        Error::new(operation.name(), self.name.clone(), kind)
    }

    /// Waits until `done` finds the state as it wants it, or sees that it will not be so. Where the
    /// connection has ended, it is to find the one or the other.
    ///
    /// Polls, and where there is nothing, arms and polls again, and only then sleeps; of several
    /// threads one on the descriptors, and the others until that one, or who else polls, has
    /// changed something.
    #[inline]
    pub(super) fn until<T>(
        &self,
        operation: Operation,
        patience: Patience,
        done: impl FnMut(&mut State) -> Option<Result<T, End>>,
    ) -> Result<T> {
        self.until_from(self.lock_for(operation)?, operation, patience, done)
    }

    /// The same, which begins where the state is locked.
    #[inline]
    pub(super) fn until_from<T>(
        &self,
        mut guarded: Locked<'_>,
        operation: Operation,
        patience: Patience,
        mut done: impl FnMut(&mut State) -> Option<Result<T, End>>,
    ) -> Result<T> {
        guarded.telling.is_task = patience.is_task();
        let found = match self.look(&mut guarded, operation.interest(), patience, &mut done)? {
            Looked::Found(found) => {
                self.has_tried(&mut guarded, operation, patience, true);
                Some(found)
            }
            Looked::Changed | Looked::Nothing => {
                let mut found = None;
                self.wait_until(guarded, operation, patience, &mut |state| {
                    found = done(state);
                    found.is_some().then_some(())
                })?;
                found
            }
        };
        match found {
            Some(found) => found.map_err(|end| self.error(operation, end.kind())),
            None => Err(self.is_late(operation, patience)),
        }
    }

    /// The error of one who has no more patience.
    #[cold]
    fn is_late(&self, operation: Operation, patience: Patience) -> Error {
        match patience {
            Patience::Until(_) => self.error(operation, ErrorKind::TimedOut),
            // Without the name, which would have to be copied: this comes often.
            _ => Error::would_block(operation.wait()),
        }
    }

    /// What `done` finds in the state, and in what has completed by now.
    #[inline(always)]
    fn look<T>(
        &self,
        guarded: &mut Locked<'_>,
        interest: Interest,
        patience: Patience,
        mut done: impl FnMut(&mut State) -> Option<T>,
    ) -> Result<Looked<T>> {
        let mut looked = Looked::Nothing;
        loop {
            if let Some(found) = done(&mut guarded.state) {
                return Ok(Looked::Found(found));
            }
            // There may be something for others without end.
            let is_over = matches!(looked, Looked::Changed) && patience.is_over();
            if is_over || !guarded.state.poll(interest)? {
                return Ok(looked);
            }
            self.tell(guarded);
            looked = Looked::Changed;
        }
    }

    /// Waits until `done` says so, or there is no more patience: of one who has [looked](Self::look) in vain.
    fn wait_until<'a>(
        &'a self,
        mut guarded: Locked<'a>,
        operation: Operation,
        patience: Patience,
        done: &mut dyn FnMut(&mut State) -> Option<()>,
    ) -> Result<()> {
        let interest = operation.interest();
        let mut is_over = false;
        let mut armed = false;
        let mut has_heard = false;
        let mut at_end = false;
        let mut spin = Spin::default();
        let mut reads = 0;
        let is_done = loop {
            if self.polls_on(&guarded, &mut spin, patience) {
                if spin.looks() {
                    self.read_now(&mut guarded)?;
                }
                // Others may want to post meanwhile.
                drop(guarded);
                hint::spin_loop();
                guarded = self.lock_here();
            } else if guarded.state.is_untold() && guarded.state.is_deaf(interest) && !has_heard {
                // What is armed after that event was told of, it does not take away.
                has_heard = true;
                self.read_now(&mut guarded)?;
            } else if self.arm(&mut guarded, interest)? {
                armed = true;
                has_heard = false;
            } else {
                is_over = match patience {
                    // What else there is to read the descriptor still tells of, level-triggered.
                    Patience::None if armed && !guarded.state.is_untold() => true,
                    Patience::Until(deadline) => {
                        let wanting = usize::from(operation == Operation::Take);
                        guarded.wanting += wanting;
                        let slept;
                        (guarded, slept) = match guarded.asleep {
                            true => (self.wait(guarded, deadline), Ok(())),
                            false => self.sleep(guarded, deadline),
                        };
                        guarded.wanting -= wanting;
                        slept?;
                        patience.is_over()
                    }
                    // Nothing had completed of what the descriptor told of.
                    _ if at_end => true,
                    _ => {
                        reads += 1;
                        let ready = self.read_now(&mut guarded)?;
                        at_end = !ready.event;
                        at_end && !ready.completion || self.has_read(&mut guarded, reads)
                    }
                };
            }
            // What is over may be over for want of time to look: that is looked at once more.
            match self.look(&mut guarded, interest, patience, &mut *done)? {
                Looked::Found(()) => break true,
                Looked::Changed => {
                    at_end = false;
                    is_over |= patience.is_over();
                }
                Looked::Nothing => {}
            }
            if is_over {
                break false;
            }
        };
        self.has_tried(&mut guarded, operation, patience, is_done);
        Ok(())
    }

    /// Somebody has got what was wanted, or has not. Of what those who may not wait have tried in vain the descriptor tells,
    /// where it is to be had by now, and will tell: whoever has polled.
    #[inline(always)]
    fn has_tried(
        &self,
        guarded: &mut Locked<'_>,
        operation: Operation,
        patience: Patience,
        is_done: bool,
    ) {
        match patience {
            Patience::None => {
                let has_ended = guarded.state.traffic.end.is_some();
                guarded.missed.note(operation, !is_done, has_ended);
            }
            _ if guarded.missed.is_empty() => return,
            _ => {}
        }
        let mut rings = guarded.missed.is_there(&guarded.state);
        if let (false, Some(interest)) = (rings, guarded.missed.unheard(&guarded.state)) {
            rings = self.is_to_try_again(guarded, interest);
        }
        self.ring(guarded, rings);
    }

    /// Sees to it that the descriptor tells of what was tried in vain, which is of that interest; whether there is
    /// something of it by now, or may be.
    #[cold]
    fn is_to_try_again(&self, guarded: &mut Locked<'_>, interest: Interest) -> bool {
        let mut again = || -> Result<bool> {
            // What has been told of; and what has completed before it was armed.
            let polled = guarded.state.poll(interest)?;
            Ok(self.arm(guarded, interest)? && guarded.state.poll(interest)? || polled)
        };
        match again() {
            Ok(true) => self.tell(guarded),
            Ok(false) => {}
            // Who tries again is told.
            Err(_) => return true,
        }
        let Guarded { missed, state, .. } = &**guarded;
        missed.is_there(state) || missed.unheard(state).is_some()
    }

    /// [Arms](State::arm) what is not armed, and has others see to what was.
    fn arm(&self, guarded: &mut Locked<'_>, interest: Interest) -> Result<bool> {
        let is_asleep = guarded.asleep;
        if guarded.state.drops_events(is_asleep) {
            guarded.telling.is_task = false;
            guarded.telling.tell();
        }
        guarded.state.arm(interest, &self.completions, is_asleep)
    }

    /// Whether one who has found nothing polls once more instead of sleeping.
    #[inline]
    fn polls_on(&self, guarded: &Guarded, spin: &mut Spin, patience: Patience) -> bool {
        match (patience, &guarded.state.parts) {
            (Patience::Until(deadline), Some(parts)) => spin.goes_on(parts.busy_poll, deadline),
            _ => false,
        }
    }

    /// Reads what there is to read, without sleeping. What there was, of which the timer alone may be readable without end.
    fn read_now(&self, guarded: &mut Locked<'_>) -> Result<Ready> {
        if guarded.asleep {
            // What there is, the one that sleeps reads.
            return Ok(Ready::default());
        }
        let ready = self.readiness.now()?;
        self.read(guarded, ready)?;
        Ok(ready)
    }

    /// Whether that was enough, of what may come without end, for a call that does not wait: what is
    /// left makes the descriptor readable, and a task is told to go on.
    fn has_read(&self, guarded: &mut Locked<'_>, reads: u32) -> bool {
        let is_enough = reads == READS;
        if is_enough {
            guarded.telling.is_task = false;
            guarded.telling.tell();
        }
        is_enough
    }

    /// Sleeps on the descriptors, and reads what there is to read then.
    fn sleep<'a>(
        &'a self,
        mut guarded: Locked<'a>,
        deadline: Option<Instant>,
    ) -> (Locked<'a>, Result<()>) {
        self.ring(&mut guarded, false);
        guarded.asleep = true;
        drop(guarded);
        let ready = self.readiness.wait(deadline);
        let mut guarded = self.lock_here();
        guarded.asleep = false;
        self.ring(&mut guarded, false);
        // Another one is to sleep there, if this one has what it wanted.
        self.tell(&mut guarded);
        let read = ready.and_then(|ready| self.read(&mut guarded, ready));
        (guarded, read)
    }

    /// Waits until another thread has changed something.
    fn wait<'a>(&'a self, locked: Locked<'a>, deadline: Option<Instant>) -> Locked<'a> {
        if locked.telling.is_due() {
            // They are told first.
            drop(locked);
            return self.lock_here();
        }
        let Locked { mut guarded, telling } = locked;
        guarded.waiting += 1;
        let mut guarded = match deadline {
            None => unpoisoned(self.changed.wait(guarded)),
            Some(deadline) => {
                let rest = deadline.saturating_duration_since(Instant::now());
                unpoisoned(self.changed.wait_timeout(guarded, rest)).0
            }
        };
        guarded.waiting -= 1;
        Locked { guarded, telling }
    }

    fn read(&self, guarded: &mut Locked<'_>, ready: Ready) -> Result<()> {
        // What was armed is not any more: a task that sleeps sees to that, if this call does not.
        if ready.completion || ready.event {
            guarded.telling.tell();
        }
        if ready.completion {
            guarded.state.is_told();
        }
        if ready.gone {
            guarded.state.is_gone();
        }
        if ready.event {
            guarded.state.read_events(&self.channel)?;
        }
        if ready.timer && guarded.state.keep_alive()? {
            guarded.telling.tell();
        }
        Ok(())
    }

    /// Tells those that wait for a change.
    fn tell(&self, guarded: &mut Locked<'_>) {
        guarded.telling.tell();
        if guarded.waiting > 0 {
            self.changed.notify_all();
        }
    }

    /// Has the bell ring, or not. For a thread that sleeps and has not heard it yet it rings on.
    fn ring(&self, guarded: &mut Guarded, rings: bool) {
        if !rings && guarded.asleep {
            return;
        }
        if mem::replace(&mut guarded.ringing, rings) != rings {
            self.readiness.ring(rings);
        }
    }

    /// Tells everybody, also who sleeps on the descriptors, of a change that those do not tell of.
    pub(super) fn tell_all(&self, guarded: &mut Locked<'_>) {
        self.tell(guarded);
        self.ring(guarded, true);
    }

    /// A buffer for sending comes back unsent.
    pub(super) fn give_back(&self, memory: Buffer) {
        let Ok(mut guarded) = self.lock(GIVE_BACK) else { return };
        // After the end it goes when this returns and nothing is locked.
        if guarded.state.parts.is_some() {
            guarded.state.traffic.free.push(memory);
            match guarded.missed.intersects(Missed::BUFFER) || guarded.wanting > 0 {
                true => self.tell_all(&mut guarded),
                false => guarded.telling.tell(),
            }
        }
    }

    /// A buffer for receiving is to receive again.
    pub(super) fn receive(&self, memory: Buffer) {
        let Ok(mut guarded) = self.lock(GIVE_BACK) else { return };
        let State { parts, traffic, .. } = &mut guarded.state;
        if let (Some(parts), None) = (parts, traffic.end) {
            traffic.receive(&mut parts.queues, memory);
            if traffic.is_behind() && matches!(guarded.state.poll(Interest::Messages), Ok(true)) {
                self.tell(&mut guarded);
            }
        }
    }

    /// Nobody waits any more for the buffer of a message that was not sent in time.
    pub(super) fn give_up(&self, index: usize) {
        let Ok(mut guarded) = self.lock(GIVE_BACK) else { return };
        let done = guarded.state.traffic.sends[index].give_up();
        if !guarded.missed.is_empty() {
            // It may be the one that it rings for.
            let rings = guarded.missed.is_there(&guarded.state);
            self.ring(&mut guarded, rings);
        }
        drop(guarded);
        if let Some(memory) = done {
            self.give_back(memory);
        }
    }

    /// The protection domain, until this side ends the connection.
    pub(super) fn pd(&self) -> Result<ProtectionDomain> {
        const OPERATION: &str = "export memory over";
        let guarded = self.lock(OPERATION)?;
        match &guarded.state.parts {
            Some(parts) => Ok(parts.queues.qp().pd().clone()),
            None => Err(Error::new(OPERATION, self.name.clone(), ErrorKind::Disconnected)),
        }
    }

    /// Has `each` look for peers or groups, unless the socket has ended.
    pub(super) fn rendezvous<T>(
        &self,
        operation: Operation,
        each: impl FnOnce(&mut Rendezvous, &Parts) -> Result<T>,
    ) -> Result<T> {
        let mut guarded = self.lock_for(operation)?;
        let State { parts, traffic, rendezvous, .. } = &mut guarded.state;
        if parts.as_ref().is_some_and(|parts| parts.queues.qp().pd().context().is_gone()) {
            // The event that tells this socket may be on its way still.
            traffic.ended(End::Gone);
        }
        let (Some(parts), Some(rendezvous), None) = (parts, rendezvous, traffic.end) else {
            return Err(self.error(operation, traffic.end.unwrap_or(End::Here).kind()));
        };
        each(rendezvous, parts)
    }

    /// Tells the peer of the end, unless it is known, when all was sent that was posted.
    pub(super) fn finish(&self, patience: Patience) -> Result<()> {
        self.until(Operation::Close, patience, State::finish)??;
        self.has_finished()
    }

    /// Tells everybody here that the connection [ends](State::finish).
    pub(super) fn has_finished(&self) -> Result<()> {
        self.tell_all(&mut self.lock_for(Operation::Close)?);
        Ok(())
    }

    /// Ends the connection here and at once, for everybody. Destroying the kernel's objects takes
    /// its time, which only those wait for who end the connection.
    pub(super) fn abort(&self) {
        if self.process.check().is_err() {
            return;
        }
        let ending = unpoisoned(self.ending.lock());
        let mut locked = self.lock_here();
        let ended = locked.state.abort();
        self.tell_all(&mut locked);
        let Locked { guarded, telling } = locked;
        drop(guarded);
        drop(ended);
        drop(ending);
        // Last: what tasks' wakers do may come back here.
        drop(telling);
    }
}
