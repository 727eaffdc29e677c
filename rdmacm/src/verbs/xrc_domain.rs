//! XRC domains ([`XrcDomain`]), which processes share by a file.

use std::os::fd::{AsFd, AsRawFd};
use std::sync::{Arc, Mutex, Weak};

use nix::errno::Errno;
use nix::fcntl::OFlag;
use verbs_abi::{AlignedU64, ib_uverbs_close_xrcd, ib_uverbs_open_xrcd};

use super::context::Context;
use super::object::{self, Object};
use super::same::impl_ptr_eq;
use crate::error::{DestroyError, Error, ErrorKind, Result, hint};
use crate::lock::ignore_poison;
use crate::sys::per_process::PerProcess;

/// An XRC domain, which ties XRC shared receive queues to the target queue pairs that reach them.
///
/// A clone refers to the same domain. The domain lives as long as a clone of it, or a queue or
/// target in it.
#[doc(alias = "ibv_xrcd")]
#[doc(alias = "ibv_xrc_domain")]
#[derive(Debug, Clone)]
pub struct XrcDomain {
    object: Arc<Object<ib_uverbs_close_xrcd>>,
}

/// The domains that ids share: one for each context in use.
static SHARED: PerProcess<Mutex<Vec<Weak<Object<ib_uverbs_close_xrcd>>>>> = PerProcess::new();

/// Behavior of [`XrcDomain::open`] if the shared domain exists, and if it does not exist yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum XrcOpenMode {
    /// Joins the existing domain.
    Join,
    /// Joins the existing domain, or creates one.
    #[doc(alias = "O_CREAT")]
    JoinOrCreate,
    /// Creates a domain, which must not exist yet.
    #[doc(alias = "O_EXCL")]
    Create,
}

/// Value in place of the descriptor for a domain that is not shared.
const NO_FILE: u32 = u32::MAX;

const OPEN_DOMAIN: &str = "open";
const DOMAIN: &str = "an XRC domain";

/// Adds a hint to an error for the case that a limit is reached.
///
/// Valid only if no domain has to exist already. EAGAIN then means that a limit is reached.
fn with_limit_hint(error: Error) -> Error {
    error.with_hint(Errno::EAGAIN, hint::OBJECTS)
}

impl XrcDomain {
    /// Creates a domain that no other context can join.
    ///
    /// # Errors
    ///
    /// - EOPNOTSUPP if the device's driver does not support XRC.
    /// - ENOMEM if memory is short.
    /// - [`ErrorKind::DeviceRemoved`] if the device was removed.
    /// - [`ErrorKind::NotOwner`] if the process forked or changed its credentials.
    ///
    /// Kernel command: `IB_USER_VERBS_CMD_OPEN_XRCD`, without a file.
    #[doc(alias = "ibv_open_xrcd")]
    #[doc(alias = "ibv_open_xrc_domain")]
    pub fn new(context: &Context) -> Result<Self> {
        Self::with(context, NO_FILE, OFlag::empty()).map_err(with_limit_hint)
    }

    /// Returns the domain that the process's ids share.
    ///
    /// See [`CmId::default_xrc_domain`](crate::cm::CmId::default_xrc_domain).
    pub(crate) fn shared(context: &Context) -> Result<Self> {
        // Locked while the domain is created: two threads must not create two.
        let mut shared = ignore_poison(SHARED.lock());
        shared.retain(|object| object.strong_count() > 0);
        let is_of_context = |object: &Arc<Object<_>>| object.context() == context;
        if let Some(object) = shared.iter().filter_map(Weak::upgrade).find(is_of_context) {
            return Ok(Self { object });
        }
        let created = Self::new(context)?;
        shared.push(Arc::downgrade(&created.object));
        Ok(created)
    }

    /// Opens the domain that contexts of the device share by `file`.
    ///
    /// The file itself identifies the domain, not its name or descriptor. The domain exists until
    /// the last context closes it. The file may be closed at once.
    ///
    /// # Errors
    ///
    /// In addition to the errors of [`new`](Self::new):
    /// - EAGAIN if the domain does not exist and `sharing` does not permit
    ///   [creating](XrcOpenMode::JoinOrCreate) it.
    /// - EINVAL if the domain exists and `sharing` requires a [new one](XrcOpenMode::Create).
    /// - [`ErrorKind::InvalidInput`] with EBADF if `file` names no open file, for example
    ///   `AT_FDCWD`.
    ///
    /// Kernel command: `IB_USER_VERBS_CMD_OPEN_XRCD`.
    #[doc(alias = "ibv_open_xrcd")]
    #[doc(alias = "ibv_open_xrc_domain")]
    pub fn open(context: &Context, file: impl AsFd, sharing: XrcOpenMode) -> Result<Self> {
        let flags = match sharing {
            XrcOpenMode::Join => OFlag::empty(),
            XrcOpenMode::JoinOrCreate => OFlag::O_CREAT,
            XrcOpenMode::Create => OFlag::O_CREAT | OFlag::O_EXCL,
        };
        // `AT_FDCWD` is a negative descriptor.
        let Ok(fd) = u32::try_from(file.as_fd().as_raw_fd()) else {
            let reason = "the file descriptor is not open".into();
            let kind = ErrorKind::InvalidInput { errno: Errno::EBADF as i32, reason };
            return Err(Error::new(OPEN_DOMAIN, DOMAIN, kind));
        };
        let opened = Self::with(context, fd, flags);
        match sharing {
            XrcOpenMode::Join => opened,
            XrcOpenMode::JoinOrCreate | XrcOpenMode::Create => opened.map_err(with_limit_hint),
        }
    }

    fn with(context: &Context, fd: u32, flags: OFlag) -> Result<Self> {
        let oflags = u32::try_from(flags.bits()).expect("two low bits");
        let request = ib_uverbs_open_xrcd { response: AlignedU64::default(), fd, oflags };
        let response = context.command(OPEN_DOMAIN, DOMAIN, request)?;
        Ok(Self { object: Arc::new(Object::new(context, response.xrcd_handle)) })
    }

    /// Returns the context in which the domain was opened.
    pub fn context(&self) -> &Context {
        self.object.context()
    }

    pub(super) fn handle(&self) -> u32 {
        self.object.handle()
    }

    /// Closes the domain.
    ///
    /// # Errors
    ///
    /// Every error returns the domain.
    /// - EBUSY if clones of the domain exist, or queues or targets in it that this context created
    ///   or opened. A listener of [`CmId::create_ep`](crate::cm::CmId::create_ep) holds the domain
    ///   that it gives to its targets.
    /// - [`ErrorKind::NotOwner`] if the process forked or changed its credentials.
    ///
    /// Kernel command: `IB_USER_VERBS_CMD_CLOSE_XRCD`.
    #[doc(alias = "ibv_close_xrcd")]
    #[doc(alias = "ibv_close_xrc_domain")]
    pub fn close(self) -> Result<(), DestroyError<Self>> {
        let context = self.context().clone();
        // While `shared` looks for a domain, it holds each of them for a moment.
        let _no_search = context.file().is_owner().then(|| ignore_poison(SHARED.lock()));
        object::destroy(&context, |_| DOMAIN.to_owned(), self.object, |object| Self { object })
    }
}

impl_ptr_eq!(XrcDomain, object);
