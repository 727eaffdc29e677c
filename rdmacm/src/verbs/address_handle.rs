//! Address handles: where datagrams go.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use verbs_abi::{AlignedU64, ib_uverbs_ah_attr, ib_uverbs_create_ah, ib_uverbs_destroy_ah};

use super::Completion;
use super::global_route::{DatagramSource, GRH_LENGTH};
use super::object::{self, Object, Shared};
use super::pd::ProtectionDomain;
use super::same::equal_if_same;
use crate::driver::Driver as _;
#[cfg(doc)]
use crate::error::ErrorKind;
use crate::error::{DestroyError, Result};
use crate::work::AddressVector;

/// The address of a datagram's receiver, or of a multicast group, as the device knows it.
///
/// A clone is the same address handle. It must live until the sends to it have completed: the queue
/// pair fails otherwise.
#[doc(alias = "ibv_ah")]
#[derive(Debug, Clone)]
pub struct AddressHandle {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    object: Object<ib_uverbs_destroy_ah>,
    pd: ProtectionDomain,
    vector: AddressVector,
}

/// The address vector, which is what a [`Destination`](super::Destination) takes.
impl Deref for AddressHandle {
    type Target = AddressVector;

    fn deref(&self) -> &AddressVector {
        &self.inner.vector
    }
}

impl AddressHandle {
    /// Returns the object, which is destroyed when it is dropped, if this is its last handle.
    pub(super) fn into_last(self) -> Option<Box<dyn fmt::Debug + Send + Sync>> {
        Arc::into_inner(self.inner).map(|inner| Box::new(inner) as _)
    }

    /// Makes an address handle. `IB_USER_VERBS_CMD_CREATE_AH`.
    ///
    /// The address of a peer or of a multicast group is in an event's
    /// [`DatagramParam`](crate::cm::DatagramParam).
    ///
    /// # Errors
    ///
    /// EINVAL for an address that the device does not reach (on RoCE, one without a global route),
    /// ENOMEM; [`ErrorKind::Unsupported`] where the data path of the device's driver is not known,
    /// or has no datagrams.
    #[doc(alias = "ibv_create_ah")]
    pub fn new(pd: &ProtectionDomain, attributes: &ib_uverbs_ah_attr) -> Result<Self> {
        let context = pd.context();
        let request = ib_uverbs_create_ah {
            response: AlignedU64::default(),
            user_handle: AlignedU64::default(),
            pd_handle: pd.handle(),
            reserved: 0,
            attr: *attributes,
        };
        let created = context.driver().create_ah(context.commands(), pd.number(), request);
        let (response, vector) =
            created.map_err(|error| context.not_created("an address handle", error))?;
        let object = Object::new(context, response.ah_handle);
        Ok(Self { inner: Arc::new(Inner { object, pd: pd.clone(), vector }) })
    }

    /// Makes an address handle for a reply to the datagram that `completion` says was received on
    /// `port`, with `header` at the beginning of its memory.
    ///
    /// `IB_USER_VERBS_CMD_CREATE_AH`, after looking the local address up in the port's GID table
    /// ([`Context::gids`](super::Context::gids)). The reply goes to [`src_qp`](Completion::src_qp).
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`] where the datagram came to a multicast group or its header is none of
    /// a protocol that is known; [`ErrorKind::Os`] with ENOENT where the port no longer has the
    /// address that it came to; those of [`Context::gids`](super::Context::gids) and [`new`](Self::new).
    #[doc(alias = "ibv_create_ah_from_wc")]
    #[doc(alias = "ibv_init_ah_from_wc")]
    pub fn for_reply(
        pd: &ProtectionDomain,
        completion: &Completion,
        header: &[u8; GRH_LENGTH],
        port: u8,
    ) -> Result<Self> {
        Self::for_source(pd, &DatagramSource::new(completion, header)?, port)
    }

    /// The same for a reply to `source`.
    ///
    /// # Errors
    ///
    /// The errors of [`for_reply`](Self::for_reply).
    pub fn for_source(pd: &ProtectionDomain, source: &DatagramSource, port: u8) -> Result<Self> {
        Self::new(pd, &source.address(pd.context(), port)?)
    }

    /// The protection domain.
    pub fn pd(&self) -> &ProtectionDomain {
        &self.inner.pd
    }

    /// Destroys the address handle. `IB_USER_VERBS_CMD_DESTROY_AH`.
    ///
    /// # Errors
    ///
    /// EBUSY while clones of it live; [`ErrorKind::WrongProcess`]. The address handle comes back
    /// with the error.
    #[doc(alias = "ibv_destroy_ah")]
    pub fn destroy(self) -> Result<(), DestroyError<Self>> {
        let context = self.pd().context().clone();
        let what = |_: &Inner| "an address handle".to_owned();
        object::destroy(&context, what, self.inner, |inner| Self { inner })
    }
}

impl Shared for Inner {
    type Destroy = ib_uverbs_destroy_ah;

    fn object(&mut self) -> &mut Object<ib_uverbs_destroy_ah> {
        &mut self.object
    }
}

equal_if_same!(AddressHandle, inner);
