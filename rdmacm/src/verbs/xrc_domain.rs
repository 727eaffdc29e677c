//! XRC domains, which processes share by a file.

use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;

use nix::errno::Errno;
use nix::fcntl::OFlag;
use verbs_abi::{AlignedU64, ib_uverbs_close_xrcd, ib_uverbs_open_xrcd};

use super::context::Context;
use super::object::{self, Object};
use super::same::equal_if_same;
use crate::error::{DestroyError, Error, ErrorKind, Result, hint};

/// What ties XRC shared receive queues to the target queue pairs whose messages reach them.
///
/// A clone is the same domain. It lives while a clone of it, a queue or a target in it does.
#[doc(alias = "ibv_xrcd")]
#[doc(alias = "ibv_xrc_domain")]
#[derive(Debug, Clone)]
pub struct XrcDomain {
    object: Arc<Object<ib_uverbs_close_xrcd>>,
}

/// What [`XrcDomain::open`] does where processes share a domain already, and where none do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum XrcDomainSharing {
    /// Takes part in the domain that there is.
    Join,
    /// The same, or makes one.
    #[doc(alias = "O_CREAT")]
    JoinOrCreate,
    /// Makes one, which must not be there yet.
    #[doc(alias = "O_EXCL")]
    Create,
}

/// In place of the descriptor, of a domain that is not shared.
const NO_FILE: u32 = u32::MAX;

const OPEN_DOMAIN: &str = "open";
const DOMAIN: &str = "an XRC domain";

/// The same error of what needs no domain to be there: EAGAIN is then the word of a limit.
fn limited(error: Error) -> Error {
    error.with_remedy(Errno::EAGAIN, hint::OBJECTS)
}

impl XrcDomain {
    /// Makes a domain that no other context takes part in. `IB_USER_VERBS_CMD_OPEN_XRCD` without a
    /// file.
    ///
    /// # Errors
    ///
    /// EOPNOTSUPP where the device's driver has no XRC; ENOMEM; [`ErrorKind::DeviceGone`],
    /// [`ErrorKind::WrongProcess`].
    #[doc(alias = "ibv_open_xrcd")]
    #[doc(alias = "ibv_open_xrc_domain")]
    pub fn new(context: &Context) -> Result<Self> {
        Self::with(context, NO_FILE, OFlag::empty()).map_err(limited)
    }

    /// Opens the domain that contexts of the device share by `file`: by the file itself, not its name or
    /// descriptor. It lasts until the last of them closes it; the file may be closed at once.
    ///
    /// `IB_USER_VERBS_CMD_OPEN_XRCD`.
    ///
    /// # Errors
    ///
    /// EAGAIN where there is none and it is not to be [created](XrcDomainSharing::JoinOrCreate), EINVAL where
    /// there is one and a [new one](XrcDomainSharing::Create) is wanted; [`ErrorKind::Invalid`] with EBADF if
    /// `file` names no open file, as `AT_FDCWD` does; those of [`new`](Self::new).
    #[doc(alias = "ibv_open_xrcd")]
    #[doc(alias = "ibv_open_xrc_domain")]
    pub fn open(context: &Context, file: impl AsFd, sharing: XrcDomainSharing) -> Result<Self> {
        let flags = match sharing {
            XrcDomainSharing::Join => OFlag::empty(),
            XrcDomainSharing::JoinOrCreate => OFlag::O_CREAT,
            XrcDomainSharing::Create => OFlag::O_CREAT | OFlag::O_EXCL,
        };
        // `AT_FDCWD` is a descriptor that is negative.
        let Ok(fd) = u32::try_from(file.as_fd().as_raw_fd()) else {
            let reason = "the descriptor names no open file".into();
            let kind = ErrorKind::Invalid { errno: Errno::EBADF as i32, reason };
            return Err(Error::new(OPEN_DOMAIN, DOMAIN, kind));
        };
        let opened = Self::with(context, fd, flags);
        match sharing {
            XrcDomainSharing::Join => opened,
            XrcDomainSharing::JoinOrCreate | XrcDomainSharing::Create => opened.map_err(limited),
        }
    }

    fn with(context: &Context, fd: u32, flags: OFlag) -> Result<Self> {
        let oflags = u32::try_from(flags.bits()).expect("two low bits");
        let request = ib_uverbs_open_xrcd { response: AlignedU64::default(), fd, oflags };
        let response = context.command(OPEN_DOMAIN, DOMAIN, request)?;
        Ok(Self { object: Arc::new(Object::new(context, response.xrcd_handle)) })
    }

    /// The context that it was opened in.
    pub fn context(&self) -> &Context {
        self.object.context()
    }

    pub(super) fn handle(&self) -> u32 {
        self.object.handle()
    }

    /// Leaves the domain. `IB_USER_VERBS_CMD_CLOSE_XRCD`.
    ///
    /// # Errors
    ///
    /// EBUSY while clones of it, or queues or targets in it that this context made or opened, live;
    /// [`ErrorKind::WrongProcess`]. The domain comes back with the error.
    #[doc(alias = "ibv_close_xrcd")]
    #[doc(alias = "ibv_close_xrc_domain")]
    pub fn close(self) -> Result<(), DestroyError<Self>> {
        let context = self.context().clone();
        object::destroy(&context, |_| DOMAIN.to_owned(), self.object, |object| Self { object })
    }
}

equal_if_same!(XrcDomain, object);
