//! Kernel objects of a context, each destroyed once.

use std::fmt;
use std::marker::PhantomData;
use std::mem;
use std::sync::Arc;

use nix::errno::Errno;
use verbs_abi::{
    AlignedU64, Command, ib_uverbs_close_xrcd, ib_uverbs_dealloc_mw, ib_uverbs_dealloc_pd,
    ib_uverbs_dereg_mr, ib_uverbs_destroy_ah, ib_uverbs_destroy_cq, ib_uverbs_destroy_cq_resp,
    ib_uverbs_destroy_qp, ib_uverbs_destroy_qp_resp, ib_uverbs_destroy_srq,
    ib_uverbs_destroy_srq_resp,
};

use super::context::Context;
use super::reporter::{Reported, Reporter};
use crate::error::DestroyError;
use crate::sys::command::Refused;
use crate::sys::mapping::Mapping;

/// The command that destroys the objects of one kind.
pub(super) trait Destroy: Command {
    /// The command for the object that has `handle`.
    fn of(handle: u32) -> Self;

    /// How many events of the object the kernel has reported, where it reports some of the kind.
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

/// An object in the kernel, which `D` destroys: when asked, or where the value is dropped.
///
/// A field of what is built around it. Fields are dropped in their order: this one goes before
/// those that the kernel's object needs.
pub(super) struct Object<D: Destroy> {
    context: Context,
    handle: u32,
    destroyed: bool,
    /// Memory of this process that the device uses until the object is destroyed. Boxed: most drivers have none.
    memory: Option<Box<Mapping>>,
    command: PhantomData<fn() -> D>,
}

impl<D: Destroy> Object<D> {
    /// Takes the object that a command has just made in `context`.
    pub(super) fn new(context: &Context, handle: u32) -> Self {
        Self::with_memory(context, handle, None)
    }

    /// Takes an object that uses `memory` until it is destroyed.
    pub(super) fn with_memory(context: &Context, handle: u32, memory: Option<Mapping>) -> Self {
        let (context, memory) = (context.clone(), memory.map(Box::new));
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

    /// Returns `true` if the object is this process's to destroy, and not that of the process which forked
    /// it.
    pub(super) fn belongs_here(&self) -> bool {
        self.context.file().belongs_here()
    }

    pub(super) fn is_destroyed(&self) -> bool {
        self.destroyed
    }

    /// Destroys the object. Where the kernel refuses, it lives on.
    pub(super) fn destroy(&mut self) -> Result<D::Response, Refused> {
        let response = self.context.file().command(D::of(self.handle))?;
        self.destroyed = true;
        Ok(response)
    }
}

impl<D: Destroy> Drop for Object<D> {
    fn drop(&mut self) {
        if !self.destroyed && self.belongs_here() {
            // Nothing keeps the object busy: children hold their parents. A device that was removed
            // takes it along.
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

/// A kernel object with what is built around it, which owners share.
pub(super) trait Shared {
    /// The command that destroys the object.
    type Destroy: Destroy;

    /// The object, when it is to be destroyed.
    fn object(&mut self) -> &mut Object<Self::Destroy>;

    /// Its name in events, where the kernel reports some of it.
    fn reporter(&self) -> Option<&Reporter> {
        None
    }
}

impl<D: Destroy> Shared for Object<D> {
    type Destroy = D;

    fn object(&mut self) -> &mut Self {
        self
    }
}

/// Destroys an object, which the last of its owners may: any other has EBUSY. One that the kernel
/// reports events of not while this thread holds one of those, and waits until all are acknowledged.
///
/// `what` says what it is, and `owner` makes what comes back with an error.
pub(super) fn destroy<T: Shared, O>(
    context: &Context,
    what: impl Fn(&T) -> String,
    shared: Arc<T>,
    owner: fn(Arc<T>) -> O,
) -> Result<(), DestroyError<O>> {
    if let Some(reporter) = shared.reporter() {
        if let Err(error) = reporter.check(|| context.subject(&what(&shared))) {
            return Err(DestroyError::new(owner(shared), error));
        }
    }
    let refused = |shared: Arc<T>, refused| {
        let error = context.refused("destroy", &what(&shared), refused);
        DestroyError::new(owner(shared), error)
    };
    let mut unshared =
        Arc::try_unwrap(shared).map_err(|shared| refused(shared, Refused::Os(Errno::EBUSY)))?;
    let response = match unshared.object().destroy() {
        Ok(response) => response,
        Err(errno) => return Err(refused(Arc::new(unshared), errno)),
    };
    if let Some(reporter) = unshared.reporter() {
        reporter.wait(T::Destroy::reported(&response));
    }
    Ok(())
}
