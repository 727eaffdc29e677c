//! Address handles ([`AddressHandle`]): destinations of datagrams.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use verbs_abi::{AlignedU64, ib_uverbs_ah_attr, ib_uverbs_create_ah, ib_uverbs_destroy_ah};

use super::Completion;
use super::global_route::{DatagramSource, GRH_LENGTH};
use super::object::{self, Object, Shared};
use super::pd::ProtectionDomain;
use super::same::impl_ptr_eq;
use crate::driver::Driver as _;
#[cfg(doc)]
use crate::error::ErrorKind;
use crate::error::{DestroyError, Result};
use crate::work::AddressVector;

/// An address handle: the device's representation of a datagram receiver or a multicast group.
///
/// A clone refers to the same address handle. The address handle must live until the sends to the
/// address have completed. Otherwise the queue pair fails.
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

/// Dereferences to the address vector, which a [`Destination`](super::Destination) takes.
impl Deref for AddressHandle {
    type Target = AddressVector;

    fn deref(&self) -> &AddressVector {
        &self.inner.vector
    }
}

impl AddressHandle {
    /// Returns the kernel object if this is its last handle.
    ///
    /// Dropping the returned value destroys the object.
    pub(super) fn into_last(self) -> Option<Box<dyn fmt::Debug + Send + Sync>> {
        Arc::into_inner(self.inner).map(|inner| Box::new(inner) as _)
    }

    /// Creates an address handle.
    ///
    /// [`DatagramParam`](crate::cm::DatagramParam) of an event contains the address of a peer or of
    /// a multicast group.
    ///
    /// # Errors
    ///
    /// - EINVAL if the device cannot reach the address (on RoCE, an address without a global
    ///   route).
    /// - ENOMEM if memory is short.
    /// - [`ErrorKind::Unsupported`] if the data path of the device's driver is not known, or has no
    ///   datagrams.
    /// - [`ErrorKind::DeviceRemoved`] if the device was removed.
    /// - [`ErrorKind::NotOwner`] if the process forked or changed its credentials.
    ///
    /// Kernel command: `IB_USER_VERBS_CMD_CREATE_AH`.
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

    /// Creates an address handle for a reply to a received datagram.
    ///
    /// `completion` is the completion of the datagram, which was received on `port`. `header` is
    /// the beginning of its memory. The function looks up the local address in the GID table of the
    /// port ([`Context::gids`](super::Context::gids)). Send the reply to the queue pair
    /// [`src_qp`](Completion::src_qp).
    ///
    /// # Errors
    ///
    /// In addition to the errors of [`Context::gids`](super::Context::gids) and [`new`](Self::new):
    /// - [`ErrorKind::InvalidInput`] if the datagram was sent to a multicast group, or if the
    ///   protocol of its header is not known.
    /// - [`ErrorKind::Os`] with ENOENT if the port no longer has the address to which the datagram
    ///   was sent.
    ///
    /// Kernel command: `IB_USER_VERBS_CMD_CREATE_AH`.
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

    /// Creates an address handle for a reply to `source`, which was received on `port`.
    ///
    /// See [`for_reply`](Self::for_reply) for details.
    ///
    /// # Errors
    ///
    /// The errors of [`for_reply`](Self::for_reply).
    ///
    /// Kernel command: `IB_USER_VERBS_CMD_CREATE_AH`.
    pub fn for_source(pd: &ProtectionDomain, source: &DatagramSource, port: u8) -> Result<Self> {
        Self::new(pd, &source.address(pd.context(), port)?)
    }

    /// Returns the protection domain.
    pub fn pd(&self) -> &ProtectionDomain {
        &self.inner.pd
    }

    /// Destroys the address handle.
    ///
    /// # Errors
    ///
    /// Every error returns the address handle.
    /// - EBUSY if clones of the address handle exist.
    /// - [`ErrorKind::NotOwner`] if the process forked or changed its credentials.
    ///
    /// Kernel command: `IB_USER_VERBS_CMD_DESTROY_AH`.
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

impl_ptr_eq!(AddressHandle, inner);
