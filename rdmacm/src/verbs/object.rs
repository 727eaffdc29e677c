//! Kernel objects of a context ([`Object`]), each destroyed once.

use std::fmt;
use std::marker::PhantomData;
use std::mem;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use verbs_abi::{
    AlignedU64, Command, ib_uverbs_close_xrcd, ib_uverbs_dealloc_mw, ib_uverbs_dealloc_pd,
    ib_uverbs_dereg_mr, ib_uverbs_destroy_ah, ib_uverbs_destroy_cq, ib_uverbs_destroy_cq_resp,
    ib_uverbs_destroy_qp, ib_uverbs_destroy_qp_resp, ib_uverbs_destroy_srq,
    ib_uverbs_destroy_srq_resp,
};

use super::context::Context;
use super::event_source::{EventSource, Reported};
use crate::error::DestroyError;
use crate::sys::command::CommandError;
use crate::sys::mapping::Mapping;

/// Time limit of the wait until the kernel has destroyed an object with its device.
///
/// It is about a thousand times the usual duration.
const END_LIMIT: Duration = Duration::from_secs(10);
/// Interval at which the command is repeated during that wait.
const END_INTERVAL: Duration = Duration::from_millis(1);

/// The command that destroys objects of one kind.
pub(super) trait Destroy: Command {
    /// Returns the command for the object with `handle`.
    fn of(handle: u32) -> Self;

    /// Returns the number of events of the object that the kernel has raised, or zeros for other
    /// objects.
    fn reported(_: &Self::Response) -> Reported {
        Reported::default()
    }
}

impl Destroy for ib_uverbs_dealloc_pd {
    fn of(pd_handle: u32) -> Self {
        Self { pd_handle }
    }
}

impl Destroy for ib_uverbs_dealloc_mw {
    fn of(mw_handle: u32) -> Self {
        Self { mw_handle }
    }
}

impl Destroy for ib_uverbs_close_xrcd {
    fn of(xrcd_handle: u32) -> Self {
        Self { xrcd_handle }
    }
}

impl Destroy for ib_uverbs_dereg_mr {
    fn of(mr_handle: u32) -> Self {
        Self { mr_handle }
    }
}

impl Destroy for ib_uverbs_destroy_ah {
    fn of(ah_handle: u32) -> Self {
        Self { ah_handle }
    }
}

impl Destroy for ib_uverbs_destroy_cq {
    fn of(cq_handle: u32) -> Self {
        Self { response: AlignedU64::default(), cq_handle, reserved: 0 }
    }

    fn reported(response: &ib_uverbs_destroy_cq_resp) -> Reported {
        Reported {
            asynchronous: response.async_events_reported,
            completions: response.comp_events_reported,
        }
    }
}

impl Destroy for ib_uverbs_destroy_qp {
    fn of(qp_handle: u32) -> Self {
        Self { response: AlignedU64::default(), qp_handle, reserved: 0 }
    }

    fn reported(response: &ib_uverbs_destroy_qp_resp) -> Reported {
        Reported { asynchronous: response.events_reported, completions: 0 }
    }
}

impl Destroy for ib_uverbs_destroy_srq {
    fn of(srq_handle: u32) -> Self {
        Self { response: AlignedU64::default(), srq_handle, reserved: 0 }
    }

    fn reported(response: &ib_uverbs_destroy_srq_resp) -> Reported {
        Reported { asynchronous: response.events_reported, completions: 0 }
    }
}

/// A kernel object that `D` destroys, on request or when the value is dropped.
///
/// The value is a field of the type that wraps the object. Fields are dropped in declaration order,
/// so it must be declared before the fields that the kernel object needs.
pub(super) struct Object<D: Destroy> {
    context: Context,
    handle: u32,
    destroyed: bool,
    /// Memory of this process that the device uses until the object is destroyed.
    memory: Option<Arc<Mapping>>,
    command: PhantomData<fn() -> D>,
}

impl<D: Destroy> Object<D> {
    /// Wraps an object that a command has just created in `context`.
    pub(super) fn new(context: &Context, handle: u32) -> Self {
        Self::with_memory(context, handle, None)
    }

    /// Wraps an object that uses `memory` until it is destroyed.
    pub(super) fn with_memory(
        context: &Context,
        handle: u32,
        memory: Option<Arc<Mapping>>,
    ) -> Self {
        let context = context.clone();
        Self { context, handle, destroyed: false, memory, command: PhantomData }
    }

    #[inline]
    pub(super) fn context(&self) -> &Context {
        &self.context
    }

    #[inline]
    pub(super) fn handle(&self) -> u32 {
        self.handle
    }

    /// Returns `true` if this process may destroy the object, `false` in a forked child.
    pub(super) fn is_owner(&self) -> bool {
        self.context.file().is_owner()
    }

    pub(super) fn is_destroyed(&self) -> bool {
        self.destroyed
    }

    /// Destroys the object.
    ///
    /// If the kernel refuses, the object continues to exist.
    pub(super) fn destroy(&mut self) -> Result<D::Response, CommandError> {
        let response = self.context.file().command(D::of(self.handle))?;
        self.destroyed = true;
        Ok(response)
    }
}

impl<D: Destroy> Drop for Object<D> {
    fn drop(&mut self) {
        if !self.destroyed && self.is_owner() {
            // No object is busy here, because children hold their parents. Removing a device
            // destroys its objects.
            if self.destroy().is_err() {
                // The device may still use the memory.
                mem::forget(self.memory.take());
            }
        }
    }
}

impl<D: Destroy> fmt::Debug for Object<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Object")
            .field("device", &self.context.device().name())
            .field("handle", &self.handle)
            .finish_non_exhaustive()
    }
}

/// A kernel object together with its wrapper, which several handles share.
pub(super) trait Shared {
    /// The command that destroys the object.
    type Destroy: Destroy;

    /// Returns the kernel object in order to destroy it.
    fn object(&mut self) -> &mut Object<Self::Destroy>;

    /// Returns `true` if the kernel is about to destroy the object with its device, and refuses until then.
    fn is_ending(&self) -> bool {
        false
    }

    /// Returns the source of the object's events, if the kernel raises events for it.
    fn event_source(&self) -> Option<&EventSource> {
        None
    }
}

impl<D: Destroy> Shared for Object<D> {
    type Destroy = D;

    fn object(&mut self) -> &mut Self {
        self
    }
}

/// Destroys an object through its last handle.
///
/// Fails with EBUSY if other handles exist. If the kernel raises events for the object, the call
/// fails while this thread holds one of them. Otherwise it waits until all are acknowledged.
///
/// `what` returns the name of the object, and `owner` builds the handle that an error returns.
pub(super) fn destroy<T: Shared, O>(
    context: &Context,
    what: impl Fn(&T) -> String,
    shared: Arc<T>,
    owner: fn(Arc<T>) -> O,
) -> Result<(), DestroyError<O>> {
    if let Some(event_source) = shared.event_source() {
        if let Err(error) = event_source.check(|| context.subject(&what(&shared))) {
            return Err(DestroyError::new(owner(shared), error));
        }
    }
    let refused = |shared: Arc<T>, refused| {
        let error = context.refused("destroy", &what(&shared), refused);
        DestroyError::new(owner(shared), error)
    };
    let mut unshared = Arc::try_unwrap(shared)
        .map_err(|shared| refused(shared, CommandError::Os(Errno::EBUSY)))?;
    let start = Instant::now();
    let response = loop {
        match unshared.object().destroy() {
            Ok(response) => break response,
            Err(CommandError::Os(Errno::EBUSY))
                if unshared.is_ending() && start.elapsed() < END_LIMIT =>
            {
                thread::sleep(END_INTERVAL);
            }
            Err(errno) => return Err(refused(Arc::new(unshared), errno)),
        }
    };
    if let Some(event_source) = unshared.event_source() {
        event_source.wait(T::Destroy::reported(&response));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
