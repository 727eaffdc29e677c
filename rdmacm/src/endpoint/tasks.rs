//! Tasks that wait for a change of a connection, as threads do on its condition variable.

#[cfg(feature = "tokio")]
use std::sync::atomic::{AtomicUsize, Ordering};

#[cfg(feature = "tokio")]
use tokio::sync::{Notify, futures::Notified};

/// The tasks that wait for a change; without a runtime there are none.
#[derive(Debug, Default)]
pub(super) struct Tasks {
    #[cfg(feature = "tokio")]
    changed: Notify,
    /// How many there are. Changed without the lock of the state, which orders it all the same: who
    /// changes the state has locked it, and a task that is not counted by then locks it later, and
    /// finds the change.
    #[cfg(feature = "tokio")]
    waiting: AtomicUsize,
}

/// What is to be told to the tasks: they are when it is dropped.
#[derive(Debug)]
pub(super) struct Telling<'a> {
    tasks: &'a Tasks,
    is_due: bool,
    /// It is a task that changes the state, and waits for nobody to tell it.
    pub(super) is_task: bool,
}

impl Tasks {
    pub(super) fn telling(&self) -> Telling<'_> {
        Telling { tasks: self, is_due: false, is_task: false }
    }

    fn tell(&self, is_task: bool) {
        #[cfg(feature = "tokio")]
        if self.waiting.load(Ordering::Relaxed) > usize::from(is_task) {
            self.changed.notify_waiters();
        }
        #[cfg(not(feature = "tokio"))]
        let _ = is_task;
    }
}

impl Telling<'_> {
    /// There is something to tell.
    pub(super) fn tell(&mut self) {
        self.is_due = true;
    }

    pub(super) fn is_due(&self) -> bool {
        self.is_due
    }
}

impl Drop for Telling<'_> {
    fn drop(&mut self) {
        if self.is_due {
            self.tasks.tell(self.is_task);
        }
    }
}

/// A task that waits.
#[cfg(feature = "tokio")]
#[derive(Debug)]
pub(super) struct Waiting<'a> {
    tasks: &'a Tasks,
}

#[cfg(feature = "tokio")]
impl Tasks {
    /// Another task waits, until it is dropped.
    pub(super) fn enter(&self) -> Waiting<'_> {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        Waiting { tasks: self }
    }
}

#[cfg(feature = "tokio")]
impl<'a> Waiting<'a> {
    /// What is ready after the next change, of those that are made from now on.
    pub(super) fn changed(&self) -> Notified<'a> {
        self.tasks.changed.notified()
    }
}

#[cfg(feature = "tokio")]
impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.tasks.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}
