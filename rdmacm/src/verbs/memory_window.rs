//! Memory windows.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use verbs_abi::{
    AlignedU64, ib_mw_type, ib_uverbs_alloc_mw, ib_uverbs_alloc_mw_resp, ib_uverbs_dealloc_mw,
};

#[cfg(doc)]
use super::SendOperation;
use super::memory::MemoryRegion;
use super::object::{Object, destroy_unshared};
use super::pd::ProtectionDomain;
use super::queue_pair::QueuePair;
use super::registration::Registration;
#[cfg(doc)]
use crate::error::ErrorKind;
use crate::error::{DestroyError, Result};
use crate::lock::unpoisoned;

/// A key of its own for a part of a region, that is given to peers and taken back by work requests:
/// faster than registering memory.
///
/// A clone is the same window. What it allows it is given by a [`SendOperation::BindWindow`]. One of
/// type 1 is bound anew as often as one likes, by any queue pair of its protection domain, and to
/// nothing by a part without bytes. One of type 2 belongs to the queue pair that has bound it, whose
/// peer alone may use it, and is bound again only after it was invalidated, by a
/// [`SendOperation::LocalInvalidate`] here or a [`SendOperation::SendWithInvalidate`] of the peer's.
///
/// A window keeps what the kernel could not take back before it. A region that is dropped while the
/// window is bound to it stays registered, and is deregistered with the window, or with a bind that
/// is posted after it was bound to something else. One of type 2 holds the queue pairs that it was
/// ever bound by, since a bind that fails leaves it with the one before.
///
/// A bind that fails also leaves the kernel with the key of before, which the window does not know
/// any more: no further bind of it succeeds, and it is to be dropped. So is one of two that are
/// posted to different queue pairs without waiting for the first, which may be carried out in the
/// other order.
#[doc(alias = "ibv_mw")]
#[derive(Debug, Clone)]
pub struct MemoryWindow {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    object: Object<ib_uverbs_dealloc_mw>,
    pd: ProtectionDomain,
    mw_type: ib_mw_type,
    /// That of the bind which was posted last.
    rkey: AtomicU32,
    // Behind the object: they go after it.
    bound: Mutex<Bound>,
}

/// What a window may be bound to and by: of which bind it was the last that succeeded, the library
/// is not told.
#[derive(Debug, Default)]
struct Bound {
    regions: Vec<Arc<Registration>>,
    // rxe waits a minute for the window when it destroys the queue pair, and gives up on it then.
    qps: Vec<QueuePair>,
}

/// The right to bind a window: nobody else gives it another key meanwhile.
pub(super) struct Binding<'a> {
    window: &'a MemoryWindow,
    region: &'a MemoryRegion,
    bound: MutexGuard<'a, Bound>,
}

impl Binding<'_> {
    /// The bind was posted to `qp`.
    pub(super) fn posted(mut self, qp: &QueuePair) {
        let Bound { regions, qps } = &mut *self.bound;
        regions.retain(|region| !region.reap());
        let registration = self.region.registration();
        if !regions.iter().any(|region| Arc::ptr_eq(region, registration)) {
            regions.push(registration.clone());
        }
        let is_known = |known: &QueuePair| Arc::ptr_eq(&known.inner, &qp.inner);
        if self.window.mw_type() == ib_mw_type::IB_MW_TYPE_2 && !qps.iter().any(is_known) {
            qps.push(qp.clone());
        }
        self.window.inner.rkey.store(self.window.next_rkey(), Ordering::Relaxed);
    }
}

impl MemoryWindow {
    /// Makes a window that allows nothing yet. `IB_USER_VERBS_CMD_ALLOC_MW`.
    ///
    /// # Errors
    ///
    /// EOPNOTSUPP where the device has no windows (siw), EINVAL for a type that is none, ENOMEM;
    /// [`ErrorKind::WrongProcess`].
    #[doc(alias = "ibv_alloc_mw")]
    pub fn new(pd: &ProtectionDomain, mw_type: ib_mw_type) -> Result<Self> {
        let request = ib_uverbs_alloc_mw {
            response: AlignedU64::default(),
            pd_handle: pd.handle(),
            mw_type,
            reserved: [0; 3],
        };
        let ib_uverbs_alloc_mw_resp { mw_handle, rkey } =
            pd.context().command("allocate", "a memory window", request)?;
        let inner = Inner {
            object: Object::new(pd.context(), mw_handle),
            pd: pd.clone(),
            mw_type,
            rkey: AtomicU32::new(rkey),
            bound: Mutex::default(),
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// The protection domain.
    pub fn pd(&self) -> &ProtectionDomain {
        &self.inner.pd
    }

    /// Its type.
    pub fn mw_type(&self) -> ib_mw_type {
        self.inner.mw_type
    }

    /// The key that peers name the window by: that which the bind posted last gives it.
    pub fn rkey(&self) -> u32 {
        self.inner.rkey.load(Ordering::Relaxed)
    }

    /// The key that the next bind gives it: another one in the 8 bits that are free to choose.
    #[doc(alias = "ibv_inc_rkey")]
    pub(crate) fn next_rkey(&self) -> u32 {
        let rkey = self.rkey();
        rkey & !0xff | rkey.wrapping_add(1) & 0xff
    }

    /// Before a bind to `region` is stored.
    pub(super) fn binding<'a>(&'a self, region: &'a MemoryRegion) -> Binding<'a> {
        Binding { window: self, region, bound: unpoisoned(self.inner.bound.lock()) }
    }

    /// Destroys the window, and takes its key from the peers. `IB_USER_VERBS_CMD_DEALLOC_MW`.
    ///
    /// # Errors
    ///
    /// EBUSY while clones of it live; [`ErrorKind::WrongProcess`]. The window comes back with the
    /// error.
    #[doc(alias = "ibv_dealloc_mw")]
    pub fn destroy(self) -> Result<(), DestroyError<Self>> {
        let context = self.pd().context().clone();
        let owner = |inner| Self { inner };
        let what = "a memory window";
        destroy_unshared(&context, what, self.inner, |inner| &mut inner.object, owner)?;
        Ok(())
    }
}

impl PartialEq for MemoryWindow {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }
}

impl Eq for MemoryWindow {}
