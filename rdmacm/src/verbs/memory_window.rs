//! Memory windows ([`MemoryWindow`]).

use std::fmt;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use verbs_abi::{
    AlignedU64, ib_mw_type, ib_uverbs_alloc_mw, ib_uverbs_alloc_mw_resp, ib_uverbs_dealloc_mw,
};

use super::completion::CompletionQueue;
use super::creation_order::CreationOrder;
use super::memory::MemoryRegion;
use super::object::{self, Object, Shared};
use super::pd::ProtectionDomain;
use super::queue_pair::QueuePair;
use super::registration::Registration;
use super::same::impl_ptr_eq;
use super::{AccessFlags, QpType};
use crate::driver::PostError;
#[cfg(doc)]
use crate::error::ErrorKind;
use crate::error::{DestroyError, Result};
use crate::lock::ignore_poison;
use crate::work::{SendFlags, SendOperation, WindowBinding};

/// A memory window: a separate remote key for a part of a memory region.
///
/// Work requests grant and revoke the key, which is faster than registering memory. A clone refers
/// to the same window. [`QueuePair::bind_window`] sets the access that the window grants.
/// - A window of type 1 can be bound again any number of times, by any queue pair of its protection
///   domain. A bind to a part without bytes unbinds it.
/// - A window of type 2 belongs to the queue pair that has bound it. Only the peer of that queue
///   pair may use it. It can be bound again only after it was invalidated, by a local
///   [`SendOperation::LocalInvalidate`] or the peer's [`SendOperation::SendWithInvalidate`].
///
/// # Lifetime of regions and queue pairs
///
/// A region that is dropped while windows are bound to it stays registered. The library retries the
/// deregistration when any window that was ever bound to the region is dropped. It also retries
/// when a bind of such a window is posted. If the retry is too early, the kernel logs a message. A
/// window of type 2 holds every queue pair that has ever bound it, because a failed bind leaves it
/// bound by the previous queue pair.
///
/// # Failed binds
///
/// A failed bind leaves the kernel with the previous key, which the window no longer has. No
/// further bind of the window succeeds, so drop it. Also drop a window with two binds that were
/// posted to different queue pairs without waiting for the first. The device may perform these
/// binds in the other order.
///
/// # Driver notes
///
/// - On rxe (at least on Linux 6.1 and 6.12), a window does not restrict peers to its part. They
///   can access the whole region with the access rights of the window. Put memory that they must
///   not access into another region.
/// - On rxe (at least on Linux 6.1 and 6.12), a second invalidation crashes the kernel, as does an
///   invalidation before the first bind. The library refuses local invalidations that would do so,
///   but cannot refuse incoming ones. Do not grant windows of type 2 to untrusted peers, and agree
///   on the side that invalidates them.
/// - On rxe, create a window of type 2 after the queue pairs that bind it; the library refuses the
///   bind of an older one. At process exit, the kernel destroys newer objects first. It would wait
///   a minute for the window and then use the queue pair after destroying it.
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
    /// Key of the bind that was posted last.
    rkey: AtomicU32,
    /// Taken before the kernel created the window.
    creation_began: CreationOrder,
    bound: Mutex<Bound>,
}

/// The regions and queue pairs to which the window may be bound.
///
/// The library is not notified which bind was the last successful one.
#[derive(Debug, Default)]
struct Bound {
    regions: Vec<Arc<Registration>>,
    // When rxe destroys a queue pair, it waits for the window for at most a minute.
    qps: Vec<QueuePair>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        if !self.object.is_owner() {
            return;
        }
        if !self.object.is_destroyed() {
            // First: the kernel may refuse to deregister the regions while the window exists.
            let _ = self.object.destroy();
        }
        let rkey = *self.rkey.get_mut();
        let Bound { regions, qps } = ignore_poison(self.bound.get_mut());
        for region in regions {
            region.reap();
        }
        for qp in qps {
            qp.recv_cq().engine().forget_window(rkey);
        }
    }
}

/// A request that binds a memory window to a part of a memory region.
///
/// Post it with [`QueuePair::bind_window`]. Peers access the part with the key of the window, which
/// the bind changes.
///
/// # Driver notes
///
/// On rxe, peers can access the whole region with that key. See [`MemoryWindow`].
#[doc(alias = "ibv_mw_bind")]
#[doc(alias = "ibv_mw_bind_info")]
#[derive(Debug, Clone, Copy)]
pub struct BindRequest<'a> {
    /// Identifier, which the completion returns.
    pub wr_id: u64,
    /// The window, in the protection domain of the queue pair.
    pub window: &'a MemoryWindow,
    /// The region, in the protection domain of the queue pair.
    ///
    /// It must be registered with `IB_UVERBS_ACCESS_MW_BIND`.
    pub region: &'a MemoryRegion,
    /// Offset of the part in the region, in bytes.
    pub offset: usize,
    /// Length of the part in bytes.
    ///
    /// After a bind to no bytes, a window of type 1 grants no access.
    pub length: usize,
    /// Access rights of peers: `IB_UVERBS_ACCESS_REMOTE_*`.
    pub access: AccessFlags,
    /// Flags of the work request.
    pub flags: SendFlags,
}

impl<'a> BindRequest<'a> {
    /// Returns an error if `qp` cannot perform the request.
    ///
    /// The kernel detects such requests only when it processes them, and then moves the queue pair
    /// to ERR.
    pub(super) fn check(&self, qp: &QueuePair) -> Result<(), &'static str> {
        let Self { window, region, .. } = *self;
        if qp.qp_type() == QpType::IB_UVERBS_QPT_UD {
            return Err("queue pairs of type UD cannot bind memory windows");
        }
        if window.pd() != qp.pd() {
            return Err("the memory window belongs to another protection domain");
        }
        if window.is_too_old_for(qp) {
            return Err(
                "the memory window was created before the queue pair; create it afterwards",
            );
        }
        if region.pd() != qp.pd() {
            return Err("the memory region belongs to another protection domain");
        }
        if !SendFlags::all().contains(self.flags) {
            return Err("unknown send flags");
        }
        if self.length == 0 && window.mw_type() == ib_mw_type::IB_MW_TYPE_2 {
            return Err(
                "a bind of a type 2 window needs at least one byte; invalidate its key to end the access",
            );
        }
        match self.offset.checked_add(self.length) {
            Some(end) if end <= region.len() => Ok(()),
            _ => Err("the part is not within the memory region"),
        }
    }

    /// Locks the window before the request is stored.
    pub(super) fn begin(&self) -> Binding<'a> {
        Binding { request: *self, bound: ignore_poison(self.window.inner.bound.lock()) }
    }
}

/// Returns `true` if the library must track which windows of type 2 are bound by `qp`.
fn keeps_keys(qp: &QueuePair) -> bool {
    // On unreliable connections, rxe invalidates nothing and reports that.
    qp.qp_type() != QpType::IB_UVERBS_QPT_UC
        && qp.pd().context().driver_capabilities().mw_type2_can_crash_kernel
}

/// The exclusive right to invalidate a key.
pub(super) struct Invalidation<'a> {
    /// Queue that tracked the key as that of a bound window.
    ///
    /// It tracks the key again if the request is not posted.
    cq: &'a CompletionQueue,
    rkey: u32,
    posted: bool,
}

impl<'a> Invalidation<'a> {
    /// Returns the invalidation in a request to `qp`, before the request is stored.
    ///
    /// Returns `None` if the request contains no invalidation that the library tracks.
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
                let reason = "the queue pair has bound no window of type 2 with this key, or the key was already invalidated";
                Err(PostError::Invalid(reason))
            }
        }
    }

    /// Marks the request as posted.
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

/// The exclusive right to bind a window: no other thread changes its key in the meantime.
pub(super) struct Binding<'a> {
    request: BindRequest<'a>,
    bound: MutexGuard<'a, Bound>,
}

impl Binding<'_> {
    /// Returns the fields of the queue element.
    pub(super) fn binding(&self) -> WindowBinding {
        let BindRequest { window, region, offset, length, access, .. } = self.request;
        let number = |bytes| u64::try_from(bytes).expect("a usize has at most 64 bits");
        WindowBinding {
            mw_type: window.mw_type(),
            rkey: window.rkey(),
            new_rkey: window.next_rkey(),
            lkey: region.lkey(),
            access,
            addr: region.addr() + number(offset),
            length: number(length),
        }
    }

    /// Records that the bind was posted to `qp`.
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
    /// Returns the kernel object if this is its last handle.
    ///
    /// Dropping the returned value destroys the object.
    pub(super) fn into_last(self) -> Option<Box<dyn fmt::Debug + Send + Sync>> {
        Arc::into_inner(self.inner).map(|inner| Box::new(inner) as _)
    }

    /// Creates a window that does not grant any access yet.
    ///
    /// # Errors
    ///
    /// - EOPNOTSUPP if the device has no memory windows (siw).
    /// - EINVAL if the type does not exist.
    /// - ENOMEM if memory is short.
    /// - [`ErrorKind::DeviceRemoved`] if the device was removed.
    /// - [`ErrorKind::NotOwner`] if the process forked or changed its credentials.
    ///
    /// Kernel command: `IB_USER_VERBS_CMD_ALLOC_MW`.
    #[doc(alias = "ibv_alloc_mw")]
    pub fn new(pd: &ProtectionDomain, mw_type: ib_mw_type) -> Result<Self> {
        let request = ib_uverbs_alloc_mw {
            response: AlignedU64::default(),
            pd_handle: pd.handle(),
            mw_type,
            reserved: [0; 3],
        };
        let creation_began = CreationOrder::now();
        let ib_uverbs_alloc_mw_resp { mw_handle, rkey } =
            pd.context().command("allocate", "a memory window", request)?;
        let inner = Inner {
            object: Object::new(pd.context(), mw_handle),
            pd: pd.clone(),
            mw_type,
            rkey: AtomicU32::new(rkey),
            creation_began,
            bound: Mutex::default(),
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Returns the protection domain.
    pub fn pd(&self) -> &ProtectionDomain {
        &self.inner.pd
    }

    /// Returns the type of the window.
    pub fn mw_type(&self) -> ib_mw_type {
        self.inner.mw_type
    }

    /// Returns the key by which peers name the window, as set by the bind that was posted last.
    #[doc(alias = "ibv_inc_rkey")]
    pub fn rkey(&self) -> u32 {
        self.inner.rkey.load(Ordering::Relaxed)
    }

    /// Returns the key that the next bind sets, which differs in the 8 bits that are free to
    /// choose.
    fn next_rkey(&self) -> u32 {
        let rkey = self.rkey();
        rkey & !0xff | rkey.wrapping_add(1) & 0xff
    }

    /// Returns `true` if the kernel may crash because it destroys `qp` before the window at process
    /// exit.
    pub(super) fn is_too_old_for(&self, qp: &QueuePair) -> bool {
        self.mw_type() == ib_mw_type::IB_MW_TYPE_2
            && self.inner.creation_began < qp.inner.created
            && qp.pd().context().driver_capabilities().mw_type2_can_crash_kernel
    }

    /// Destroys the window and revokes its key.
    ///
    /// # Errors
    ///
    /// Every error returns the window.
    /// - EBUSY if clones of the window exist.
    /// - [`ErrorKind::NotOwner`] if the process forked or changed its credentials.
    ///
    /// Kernel command: `IB_USER_VERBS_CMD_DEALLOC_MW`.
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

impl_ptr_eq!(MemoryWindow, inner);
