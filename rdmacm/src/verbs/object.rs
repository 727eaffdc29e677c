//! Kernel objects of a context, each destroyed once.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use nix::errno::Errno;
use verbs_abi::{
    AlignedU64, Command, ib_uverbs_close_xrcd, ib_uverbs_dealloc_mw, ib_uverbs_dealloc_pd,
    ib_uverbs_dereg_mr, ib_uverbs_destroy_ah, ib_uverbs_destroy_cq, ib_uverbs_destroy_qp,
    ib_uverbs_destroy_srq,
};

use super::context::Context;
use super::reporter::Reporter;
use crate::error::DestroyError;
use crate::sys::command::Refused;

/// The command that destroys the objects of one kind.
pub(super) trait Destroy: Command {
    /// The command for the object that has `handle`.
    fn of(handle: u32) -> Self;
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
}

impl Destroy for ib_uverbs_destroy_qp {
    fn of(qp_handle: u32) -> Self {
        Self { response: AlignedU64::default(), qp_handle, reserved: 0 }
    }
}

impl Destroy for ib_uverbs_destroy_srq {
    fn of(srq_handle: u32) -> Self {
        Self { response: AlignedU64::default(), srq_handle, reserved: 0 }
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
    command: PhantomData<fn() -> D>,
}

impl<D: Destroy> Object<D> {
    /// Takes the object that a command has just made in `context`.
    pub(super) fn new(context: &Context, handle: u32) -> Self {
        Self { context: context.clone(), handle, destroyed: false, command: PhantomData }
    }

    #[inline]
    pub(super) fn context(&self) -> &Context {
        &self.context
    }

    #[inline]
    pub(super) fn handle(&self) -> u32 {
        self.handle
    }

    /// Whether the object is this process's to destroy, and not that of the process which forked
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
            // What could keep it busy is gone: children hold their parents. A device that went
            // takes it along.
            let _ = self.destroy();
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

/// Destroys an object whose owners share it: the last one may, any other has EBUSY.
///
/// `object` finds it in what is built around it, and `owner` makes what comes back with an error.
pub(super) fn destroy_unshared<T, D: Destroy, O>(
    context: &Context,
    what: &str,
    shared: Arc<T>,
    object: fn(&mut T) -> &mut Object<D>,
    owner: fn(Arc<T>) -> O,
) -> Result<(T, D::Response), DestroyError<O>> {
    let refused = |shared, refused| {
        DestroyError::new(owner(shared), context.refused("destroy", what, refused))
    };
    let mut unshared =
        Arc::try_unwrap(shared).map_err(|shared| refused(shared, Refused::Os(Errno::EBUSY)))?;
    match object(&mut unshared).destroy() {
        Ok(response) => Ok((unshared, response)),
        Err(errno) => Err(refused(Arc::new(unshared), errno)),
    }
}

/// The same for an object that the kernel reports events of to `reporter`: not while this thread
/// holds one of them, and until as many asynchronous ones are acknowledged as `reported` finds in the
/// response.
pub(super) fn destroy_reporting<T, D: Destroy, O>(
    context: &Context,
    what: &str,
    shared: Arc<T>,
    reporter: fn(&T) -> &Reporter,
    object: fn(&mut T) -> &mut Object<D>,
    owner: fn(Arc<T>) -> O,
    reported: fn(&D::Response) -> u32,
) -> Result<(), DestroyError<O>> {
    if let Err(error) = reporter(&shared).check(|| what.to_owned()) {
        return Err(DestroyError::new(owner(shared), error));
    }
    let (destroyed, response) = destroy_unshared(context, what, shared, object, owner)?;
    reporter(&destroyed).wait(reported(&response));
    Ok(())
}
