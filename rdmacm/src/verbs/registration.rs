//! Registrations of memory, which end later than their regions where memory windows need them.

use std::mem;
use std::sync::{Arc, Mutex, MutexGuard};

use verbs_abi::ib_uverbs_dereg_mr;

use super::object::Object;
use super::pd::ProtectionDomain;
use crate::lock::unpoisoned;
use crate::sys::command::Refused;
use crate::sys::mapping::Mapping;

/// What the kernel knows of a region, and the memory under it where that is not the program's.
///
/// Held by the region, and by the windows that it was bound to: while one is, the kernel does not
/// take it back.
#[derive(Debug)]
pub(super) struct Registration {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    object: Object<ib_uverbs_dereg_mr>,
    // Behind the object, which needs it.
    pd: ProtectionDomain,
    memory: Option<Arc<Mapping>>,
    /// The region was dropped.
    abandoned: bool,
}

impl Registration {
    /// Takes what a command has just registered in `pd`.
    pub(super) fn new(pd: &ProtectionDomain, mr_handle: u32, memory: Option<Arc<Mapping>>) -> Self {
        let object = Object::new(pd.context(), mr_handle);
        let state = State { object, pd: pd.clone(), memory, abandoned: false };
        Self { state: Mutex::new(state) }
    }

    pub(super) fn handle(&self) -> u32 {
        self.state().object.handle()
    }

    /// Returns `true` if it holds the memory under it.
    pub(super) fn has_memory(&self) -> bool {
        self.state().memory.is_some()
    }

    /// The kernel has moved it to `pd`.
    pub(super) fn moved(&self, pd: &ProtectionDomain) {
        self.state().pd = pd.clone();
    }

    /// The kernel has let go of the memory that was there before.
    pub(super) fn unmap(&self) {
        self.state().memory = None;
    }

    /// Deregisters it, and then lets go of its memory.
    pub(super) fn release(&self) -> Result<(), Refused> {
        self.state().release()
    }

    /// The region goes: deregisters it, now or when the windows allow it.
    pub(super) fn abandon(&self) {
        let mut state = self.state();
        state.abandoned = true;
        let _ = state.release();
    }

    /// Deregisters it if the region went before. Whether it is there no more.
    pub(super) fn reap(&self) -> bool {
        let mut state = self.state();
        state.abandoned && state.release().is_ok()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        unpoisoned(self.state.lock())
    }
}

impl State {
    fn release(&mut self) -> Result<(), Refused> {
        if !self.object.is_destroyed() {
            self.object.destroy()?;
            self.memory = None;
        }
        Ok(())
    }
}

impl Drop for State {
    fn drop(&mut self) {
        if self.object.belongs_here() && self.release().is_err() {
            if let Some(memory) = self.memory.take() {
                // The device may still write to it.
                mem::forget(memory);
            }
        }
    }
}
