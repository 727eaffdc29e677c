//! Registrations of memory, which outlive their regions if memory windows need them.

use std::mem;
use std::sync::{Arc, Mutex, MutexGuard};

use verbs_abi::ib_uverbs_dereg_mr;

use super::object::Object;
use super::pd::ProtectionDomain;
use crate::lock::ignore_poison;
use crate::sys::command::CommandError;
use crate::sys::mapping::Mapping;

/// The kernel object of a memory region, and the memory under it unless the program owns the memory.
///
/// Held by the region and by the windows that were bound to it. While one of these windows is
/// bound, the kernel does not deregister the region.
#[derive(Debug)]
pub(super) struct Registration {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    object: Object<ib_uverbs_dereg_mr>,
    // Declared after `object`, which needs it.
    pd: ProtectionDomain,
    memory: Option<Arc<Mapping>>,
    /// `true` if the region was dropped.
    abandoned: bool,
}

impl Registration {
    /// Wraps a registration that a command has just created in `pd`.
    pub(super) fn new(pd: &ProtectionDomain, mr_handle: u32, memory: Option<Arc<Mapping>>) -> Self {
        let object = Object::new(pd.context(), mr_handle);
        let state = State { object, pd: pd.clone(), memory, abandoned: false };
        Self { state: Mutex::new(state) }
    }

    pub(super) fn handle(&self) -> u32 {
        self.state().object.handle()
    }

    /// Returns `true` if the registration holds the memory under it.
    pub(super) fn has_memory(&self) -> bool {
        self.state().memory.is_some()
    }

    /// Records that the kernel has moved the registration to `pd`.
    pub(super) fn moved(&self, pd: &ProtectionDomain) {
        self.state().pd = pd.clone();
    }

    /// Drops the previous memory, which the kernel no longer uses.
    pub(super) fn unmap(&self) {
        self.state().memory = None;
    }

    /// Deregisters the memory and then drops it.
    pub(super) fn release(&self) -> Result<(), CommandError> {
        self.state().release()
    }

    /// Deregisters the memory of a dropped region, now or when the windows permit it.
    pub(super) fn abandon(&self) {
        let mut state = self.state();
        state.abandoned = true;
        let _ = state.release();
    }

    /// Deregisters the memory if its region was dropped.
    ///
    /// Returns `true` if the registration has ended.
    pub(super) fn reap(&self) -> bool {
        let mut state = self.state();
        state.abandoned && state.release().is_ok()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        ignore_poison(self.state.lock())
    }
}

impl State {
    fn release(&mut self) -> Result<(), CommandError> {
        if !self.object.is_destroyed() {
            self.object.destroy()?;
            self.memory = None;
        }
        Ok(())
    }
}

impl Drop for State {
    fn drop(&mut self) {
        if self.object.is_owner() && self.release().is_err() {
            if let Some(memory) = self.memory.take() {
                // The device may still write to the memory.
                mem::forget(memory);
            }
        }
    }
}
