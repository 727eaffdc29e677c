//! [`RunningCommand`], a command that is issued while the state is unlocked.

use std::mem;

use super::{AfterUnlock, Shared, SharedStateGuard};
use crate::lock::ignore_poison;

/// A command that runs while the state is unlocked. An abort waits until this is dropped.
#[derive(Debug)]
#[must_use = "a command is over when this is dropped"]
pub(in crate::endpoint) struct RunningCommand<'a> {
    shared: &'a Shared,
    is_over: bool,
    /// Actions of the guard that was unlocked, which wait until the command is over.
    after: AfterUnlock<'a>,
}

impl<'a> SharedStateGuard<'a> {
    /// Unlocks the state for a command.
    ///
    /// The caller issues the command before it [finishes](RunningCommand::finish) it. Until then this thread wakes no
    /// waiter.
    ///
    /// Before this call, the caller takes shared ownership of the kernel objects that the command uses. It drops them
    /// before it finishes the command.
    pub(in crate::endpoint) fn begin_command(mut self) -> RunningCommand<'a> {
        self.guard.running_commands += 1;
        self.wakes_no_waiter = true;
        let after = mem::take(&mut self.after);
        RunningCommand { shared: self.shared, is_over: false, after }
    }
}

impl<'a> RunningCommand<'a> {
    /// Locks the state again after the command.
    pub(in crate::endpoint) fn finish(mut self) -> SharedStateGuard<'a> {
        self.is_over = true;
        let mut guarded = self.shared.lock_here();
        guarded.end_command();
        guarded.after = mem::take(&mut self.after);
        guarded
    }
}

impl Drop for RunningCommand<'_> {
    fn drop(&mut self) {
        if !self.is_over {
            self.shared.lock_here().end_command();
        }
    }
}

impl SharedStateGuard<'_> {
    fn end_command(&mut self) {
        self.guard.running_commands -= 1;
        // Notifying is a system call even if no thread waits, and each message that a thread sleeps for has a command.
        if self.guard.running_commands == 0 && self.guard.waits_for_commands {
            self.shared.commands_done.notify_all();
        }
    }
}

impl Shared {
    /// Waits until no command runs that was begun before.
    pub(in crate::endpoint) fn wait_for_commands(&self) {
        let mut guard = ignore_poison(self.locked.lock());
        while guard.running_commands > 0 {
            guard.waits_for_commands = true;
            guard = ignore_poison(self.commands_done.wait(guard));
        }
    }
}
