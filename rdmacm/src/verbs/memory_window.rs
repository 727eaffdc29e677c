//! Memory windows.

use std::fmt;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use verbs_abi::{
    AlignedU64, ib_mw_type, ib_uverbs_alloc_mw, ib_uverbs_alloc_mw_resp, ib_uverbs_dealloc_mw,
};

use super::completion::CompletionQueue;
use super::memory::MemoryRegion;
use super::moment::Moment;
use super::object::{self, Object, Shared};
use super::pd::ProtectionDomain;
use super::queue_pair::QueuePair;
use super::registration::Registration;
use super::same::equal_if_same;
use super::{AccessFlags, QpType};
use crate::driver::PostError;
#[cfg(doc)]
use crate::error::ErrorKind;
use crate::error::{DestroyError, Result};
use crate::lock::unpoisoned;
use crate::work::{SendFlags, SendOperation, WindowBinding};

/// A key of its own for a part of a region, that is given to peers and taken back by work requests:
/// faster than registering memory.
///
/// A clone is the same window. What it allows it is given by [`QueuePair::bind_window`]. One of
/// type 1 is bound anew as often as one likes, by any queue pair of its protection domain, and to
/// nothing by a part without bytes. One of type 2 belongs to the queue pair that has bound it, whose
/// peer alone may use it, and is bound again only after it was invalidated, by a
/// [`SendOperation::LocalInvalidate`] here or a [`SendOperation::SendWithInvalidate`] of the peer's.
///
/// On rxe a window does not limit its peers to the part: through it they reach the whole region, with
/// the rights of the window (Linux 6.1 and 6.12 at least). What they must not reach is there to be in
/// another region.
///
/// On rxe a second invalidation stops the machine, as does one before the first bind: its kernel
/// crashes (Linux 6.1 and 6.12 at least). The library refuses what it knows of here, but not what
/// arrives: give no window of type 2 to a peer that is not trusted, and agree on which side takes it
/// back. A window of type 2 is there made after the queue pairs that bind it, and the library refuses
/// the bind of an older one: as a process ends the kernel destroys what is newer first, and would wait
/// a minute for the window and then use the queue pair that is gone.
///
/// A window keeps what the kernel could not take back before it. A region that is dropped while
/// windows are bound to it stays registered. The kernel is asked again, and says so in its log where
/// it is too early, whenever a window that was ever bound to the region goes, or a bind of one is
/// posted. One of type 2 holds the queue pairs that it was ever bound by, since a bind that fails
/// leaves it with the one before.
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
    /// Before the kernel made it.
    begun: Moment,
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

impl Drop for Inner {
    fn drop(&mut self) {
        if !self.object.belongs_here() {
            return;
        }
        if !self.object.is_destroyed() {
            // First: it may be what keeps the kernel from taking the regions back.
            let _ = self.object.destroy();
        }
        let rkey = *self.rkey.get_mut();
        let Bound { regions, qps } = unpoisoned(self.bound.get_mut());
        for region in regions {
            region.reap();
        }
        for qp in qps {
            qp.recv_cq().engine().forget_window(rkey);
        }
    }
}

/// A request that binds a memory window to a part of a memory region: for
/// [`QueuePair::bind_window`].
///
/// Peers reach the part by the window's key, which the bind changes. On rxe they reach the whole
/// region by that key, as [`MemoryWindow`] says.
#[doc(alias = "ibv_mw_bind")]
#[doc(alias = "ibv_mw_bind_info")]
#[derive(Debug, Clone, Copy)]
pub struct BindRequest<'a> {
    /// Comes back in the completion.
    pub wr_id: u64,
    /// The window, of the protection domain of the queue pair.
    pub window: &'a MemoryWindow,
    /// The region, of the protection domain of the queue pair, with the access flag
    /// `IB_UVERBS_ACCESS_MW_BIND`.
    pub region: &'a MemoryRegion,
    /// The offset of the part in the region, in bytes.
    pub offset: usize,
    /// The length of the part in bytes. A window of type 1 allows nothing after a bind to no bytes.
    pub length: usize,
    /// The access that peers get: `IB_UVERBS_ACCESS_REMOTE_*`.
    pub access: AccessFlags,
    /// How the request is carried out.
    pub flags: SendFlags,
}

impl<'a> BindRequest<'a> {
    /// Checks that `qp` can carry out the request: the kernel finds out only when it does, and ends the
    /// queue pair.
    pub(super) fn check(&self, qp: &QueuePair) -> Result<(), &'static str> {
        let Self { window, region, .. } = *self;
        if qp.qp_type() == QpType::IB_UVERBS_QPT_UD {
            return Err("it is for datagrams, which need a destination");
        }
        if window.pd() != qp.pd() {
            return Err("the memory window is of another protection domain");
        }
        if window.is_too_old_for(qp) {
            return Err("the memory window is older, and has to be made after it");
        }
        if region.pd() != qp.pd() {
            return Err("the memory region is of another protection domain");
        }
        if !SendFlags::all().contains(self.flags) {
            return Err("flags that are not known");
        }
        if self.length == 0 && window.mw_type() == ib_mw_type::IB_MW_TYPE_2 {
            return Err("a window of type 2 is bound to something, and invalidated");
        }
        match self.offset.checked_add(self.length) {
            Some(end) if end <= region.len() => Ok(()),
            _ => Err("the part is not within the memory region"),
        }
    }

    /// Locks the window, before the request is stored.
    pub(super) fn begin(&self) -> Binding<'a> {
        Binding { request: *self, bound: unpoisoned(self.window.inner.bound.lock()) }
    }
}

/// Returns `true` if the library has to know which windows are bound by `qp`, those of type 2.
fn keeps_keys(qp: &QueuePair) -> bool {
    // Of unreliable connections rxe invalidates nothing, and says so.
    qp.qp_type() != QpType::IB_UVERBS_QPT_UC
        && qp.pd().context().driver_capabilities().mw_type2_can_crash_kernel
}

/// The right to take a key back: nobody else does meanwhile.
pub(super) struct Invalidation<'a> {
    /// Knew the key as that of a bound window, and knows it again if the request is not posted.
    cq: &'a CompletionQueue,
    rkey: u32,
    posted: bool,
}

impl<'a> Invalidation<'a> {
    /// The invalidation that a request to `qp` is, before it is stored; `None` if it is none that the
    /// library keeps track of.
    #[inline]
    pub(super) fn of(
        qp: &'a QueuePair,
        operation: &SendOperation<'_>,
    ) -> Result<Option<Self>, PostError> {
        match *operation {
            SendOperation::LocalInvalidate { rkey } if keeps_keys(qp) => {
                Self::new(qp.recv_cq(), rkey).map(Some)
            }
            _ => Ok(None),
        }
    }

    fn new(cq: &'a CompletionQueue, rkey: u32) -> Result<Self, PostError> {
        match cq.engine().unbind_key(rkey) {
            true => Ok(Self { cq, rkey, posted: false }),
            false => {
                let reason =
                    "no memory window of type 2 was bound here with this key, or it was taken back";
                Err(PostError::Invalid(reason))
            }
        }
    }

    /// The request was posted.
    pub(super) fn posted(mut self) {
        self.posted = true;
    }
}

impl Drop for Invalidation<'_> {
    fn drop(&mut self) {
        if !self.posted {
            self.cq.engine().bind_key(self.rkey);
        }
    }
}

/// The right to bind a window: nobody else gives it another key meanwhile.
pub(super) struct Binding<'a> {
    request: BindRequest<'a>,
    bound: MutexGuard<'a, Bound>,
}

impl Binding<'_> {
    /// The numbers that the queue element holds.
    pub(super) fn binding(&self) -> WindowBinding {
        let BindRequest { window, region, offset, length, access, .. } = self.request;
        let number = |bytes| u64::try_from(bytes).expect("a usize has at most 64 bits");
        WindowBinding {
            rkey: window.rkey(),
            new_rkey: window.next_rkey(),
            lkey: region.lkey(),
            access,
            addr: region.addr() + number(offset),
            length: number(length),
        }
    }

    /// The bind was posted to `qp`.
    pub(super) fn posted(mut self, qp: &QueuePair) {
        let Bound { regions, qps } = &mut *self.bound;
        regions.retain(|region| !region.reap());
        let BindRequest { window, region, .. } = self.request;
        let registration = region.registration();
        if !regions.iter().any(|region| Arc::ptr_eq(region, registration)) {
            regions.push(registration.clone());
        }
        let is_known = |known: &QueuePair| Arc::ptr_eq(&known.inner, &qp.inner);
        let rkey = window.next_rkey();
        if window.mw_type() == ib_mw_type::IB_MW_TYPE_2 {
            if !qps.iter().any(is_known) {
                qps.push(qp.clone());
            }
            if keeps_keys(qp) {
                qp.recv_cq().engine().bind_key(rkey);
            }
        }
        window.inner.rkey.store(rkey, Ordering::Relaxed);
    }
}

impl MemoryWindow {
    /// Returns the object, which is destroyed when it is dropped, if this is its last handle.
    pub(super) fn into_last(self) -> Option<Box<dyn fmt::Debug + Send + Sync>> {
        Arc::into_inner(self.inner).map(|inner| Box::new(inner) as _)
    }

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
        let begun = Moment::now();
        let ib_uverbs_alloc_mw_resp { mw_handle, rkey } =
            pd.context().command("allocate", "a memory window", request)?;
        let inner = Inner {
            object: Object::new(pd.context(), mw_handle),
            pd: pd.clone(),
            mw_type,
            rkey: AtomicU32::new(rkey),
            begun,
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
    #[doc(alias = "ibv_inc_rkey")]
    pub fn rkey(&self) -> u32 {
        self.inner.rkey.load(Ordering::Relaxed)
    }

    /// The key that the next bind gives it: another one in the 8 bits that are free to choose.
    fn next_rkey(&self) -> u32 {
        let rkey = self.rkey();
        rkey & !0xff | rkey.wrapping_add(1) & 0xff
    }

    /// Returns `true` if the kernel may destroy `qp` before the window as the process ends, and does not survive
    /// that.
    pub(super) fn is_too_old_for(&self, qp: &QueuePair) -> bool {
        self.mw_type() == ib_mw_type::IB_MW_TYPE_2
            && self.inner.begun < qp.inner.made
            && qp.pd().context().driver_capabilities().mw_type2_can_crash_kernel
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
        let what = |_: &Inner| "a memory window".to_owned();
        object::destroy(&context, what, self.inner, |inner| Self { inner })
    }
}

impl Shared for Inner {
    type Destroy = ib_uverbs_dealloc_mw;

    fn object(&mut self) -> &mut Object<ib_uverbs_dealloc_mw> {
        &mut self.object
    }
}

equal_if_same!(MemoryWindow, inner);
