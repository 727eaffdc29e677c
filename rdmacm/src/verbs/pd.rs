//! Protection domains ([`ProtectionDomain`]).

use std::sync::{Arc, Mutex, Weak};

use verbs_abi::ib_uverbs_dealloc_pd;

use super::context::Context;
use super::object::{self, Object, Shared};
use super::same::impl_ptr_eq;
use crate::driver::Driver as _;
use crate::error::{DestroyError, Result};
use crate::lock::ignore_poison;
use crate::sys::per_process::PerProcess;
use crate::work::PdNumber;

/// A protection domain, which ties memory regions to the queue pairs that may use them.
///
/// A clone refers to the same protection domain.
#[doc(alias = "ibv_pd")]
#[derive(Debug, Clone)]
pub struct ProtectionDomain {
    object: Arc<PdObject>,
}

/// The protection domains that ids share: one for each context in use.
static SHARED: PerProcess<Mutex<Vec<Weak<PdObject>>>> = PerProcess::new();

/// A kernel object and its number, which is unique in this process.
#[derive(Debug)]
struct PdObject {
    object: Object<ib_uverbs_dealloc_pd>,
    number: PdNumber,
}

impl Shared for PdObject {
    type Destroy = ib_uverbs_dealloc_pd;

    fn object(&mut self) -> &mut Object<ib_uverbs_dealloc_pd> {
        &mut self.object
    }
}

impl ProtectionDomain {
    /// Creates a protection domain.
    ///
    /// # Errors
    ///
    /// - ENOMEM if the device has no more protection domains.
    /// - [`ErrorKind::DeviceRemoved`](crate::ErrorKind::DeviceRemoved) if the device was removed.
    /// - [`ErrorKind::NotOwner`](crate::ErrorKind::NotOwner) if the process forked or changed its
    ///   credentials.
    ///
    /// Kernel command: `IB_USER_VERBS_CMD_ALLOC_PD`.
    #[doc(alias = "ibv_alloc_pd")]
    pub fn new(context: &Context) -> Result<Self> {
        let engine = context.engine();
        let response = engine.driver().create_pd(engine.commands());
        let response = response.map_err(|refused| {
            context.creation_error("allocate", "a protection domain", refused)
        })?;
        let object = Object::new(context, response.pd_handle);
        Ok(Self { object: Arc::new(PdObject { object, number: PdNumber::next() }) })
    }

    /// Returns the protection domain that the process's ids share.
    ///
    /// See [`CmId::default_pd`](crate::cm::CmId::default_pd).
    pub(crate) fn shared(context: &Context) -> Result<Self> {
        // Locked while the protection domain is created: two threads must not create two.
        let mut shared = ignore_poison(SHARED.lock());
        shared.retain(|object| object.strong_count() > 0);
        let is_of_context = |object: &Arc<PdObject>| object.object.context() == context;
        if let Some(object) = shared.iter().filter_map(Weak::upgrade).find(is_of_context) {
            return Ok(Self { object });
        }
        let created = Self::new(context)?;
        shared.push(Arc::downgrade(&created.object));
        Ok(created)
    }

    /// Returns the context in which the protection domain was created.
    pub fn context(&self) -> &Context {
        self.object.object.context()
    }

    pub(crate) fn handle(&self) -> u32 {
        self.object.object.handle()
    }

    /// Returns the number by which work requests name the protection domain.
    pub(super) fn number(&self) -> PdNumber {
        self.object.number
    }

    /// Destroys the protection domain.
    ///
    /// # Errors
    ///
    /// Every error returns the protection domain.
    /// - EBUSY if clones of the protection domain or objects created in it exist. One of these is a
    ///   dropped memory region that a [memory window](super::MemoryWindow) still needs.
    /// - [`ErrorKind::NotOwner`](crate::ErrorKind::NotOwner) if the process forked or changed its
    ///   credentials.
    ///
    /// # Driver notes
    ///
    /// On siw, the library flushes requests of queue pairs itself. The call fails with EBUSY while
    /// a completion queue holds flushed requests of a queue pair of this domain, until the queue
    /// has been polled after these requests.
    ///
    /// Kernel command: `IB_USER_VERBS_CMD_DEALLOC_PD`.
    #[doc(alias = "ibv_dealloc_pd")]
    pub fn destroy(self) -> Result<(), DestroyError<Self>> {
        let context = self.context().clone();
        // While `shared` looks for a protection domain, it holds each of them for a moment.
        let _no_search = context.file().is_owner().then(|| ignore_poison(SHARED.lock()));
        let what = |_: &PdObject| "a protection domain".to_owned();
        object::destroy(&context, what, self.object, |object| Self { object })
    }
}

impl_ptr_eq!(ProtectionDomain, object);
