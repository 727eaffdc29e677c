//! Protection domains.

use std::sync::{Arc, Mutex, Weak};

use verbs_abi::{AlignedU64, ib_uverbs_alloc_pd, ib_uverbs_dealloc_pd};

use super::context::Context;
use super::object::{self, Object, Shared};
use super::same::equal_if_same;
use crate::error::{DestroyError, Result};
use crate::lock::unpoisoned;
use crate::sys::per_process::PerProcess;
use crate::work::PdNumber;

/// What ties memory regions to the queue pairs that may use them.
#[doc(alias = "ibv_pd")]
#[derive(Debug, Clone)]
pub struct ProtectionDomain {
    object: Arc<PdObject>,
}

/// The protection domains that ids share, one for each context that is in use.
static SHARED: PerProcess<Mutex<Vec<Weak<PdObject>>>> = PerProcess::new();

/// A kernel object, and the number that tells it from all others of this process.
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
    /// Makes a protection domain. `IB_USER_VERBS_CMD_ALLOC_PD`.
    ///
    /// # Errors
    ///
    /// ENOMEM where the device has no more;
    /// [`ErrorKind::WrongProcess`](crate::ErrorKind::WrongProcess).
    #[doc(alias = "ibv_alloc_pd")]
    pub fn new(context: &Context) -> Result<Self> {
        let request = ib_uverbs_alloc_pd { response: AlignedU64::default() };
        let response = context.command("allocate", "a protection domain", request)?;
        let object = Object::new(context, response.pd_handle);
        Ok(Self { object: Arc::new(PdObject { object, number: PdNumber::next() }) })
    }

    /// The one that the process's ids share, see [`CmId::default_pd`](crate::cm::CmId::default_pd).
    pub(crate) fn shared(context: &Context) -> Result<Self> {
        // Locked while the protection domain is created: two threads must not create two.
        let mut shared = unpoisoned(SHARED.lock());
        shared.retain(|object| object.strong_count() > 0);
        let is_of_context = |object: &Arc<PdObject>| object.object.context() == context;
        if let Some(object) = shared.iter().filter_map(Weak::upgrade).find(is_of_context) {
            return Ok(Self { object });
        }
        let created = Self::new(context)?;
        shared.push(Arc::downgrade(&created.object));
        Ok(created)
    }

    /// The context that it was made in.
    pub fn context(&self) -> &Context {
        self.object.object.context()
    }

    pub(crate) fn handle(&self) -> u32 {
        self.object.object.handle()
    }

    /// The number that work requests name the protection domain by.
    pub(super) fn number(&self) -> PdNumber {
        self.object.number
    }

    /// Destroys the protection domain. `IB_USER_VERBS_CMD_DEALLOC_PD`.
    ///
    /// # Errors
    ///
    /// EBUSY while clones of it or objects made in it live, among them a region that was dropped but
    /// that a [memory window](super::MemoryWindow) needs; on siw also while a completion queue has, of
    /// a queue pair of this domain, requests that the library has flushed, and until it was polled
    /// after them. [`ErrorKind::WrongProcess`](crate::ErrorKind::WrongProcess). The protection domain
    /// comes back with the error.
    #[doc(alias = "ibv_dealloc_pd")]
    pub fn destroy(self) -> Result<(), DestroyError<Self>> {
        let context = self.context().clone();
        let what = |_: &PdObject| "a protection domain".to_owned();
        object::destroy(&context, what, self.object, |object| Self { object })
    }
}

equal_if_same!(ProtectionDomain, object);
