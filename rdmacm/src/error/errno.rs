//! Numbers of the system as text: errnos, and the codes of `getaddrinfo`.

use std::fmt;

use nix::errno::Errno;

/// An errno as `No such device (ENODEV)`.
pub(super) struct ErrnoText(pub(super) i32);

impl fmt::Display for ErrnoText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match Errno::from_raw(self.0) {
            Errno::UnknownErrno => write!(f, "errno {}", self.0),
            errno => write!(f, "{} ({errno:?})", errno.desc()),
        }
    }
}

/// An errno as `ENODEV`.
pub(super) struct ErrnoName(pub(super) i32);

impl fmt::Display for ErrnoName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", Errno::from_raw(self.0))
    }
}

/// An `EAI_*` code as `EAI_NONAME`.
pub(super) struct EaiName(pub(super) i32);

impl EaiName {
    /// Returns the errno that is closest to the code.
    pub(super) fn errno(&self) -> Errno {
        match self.0 {
            libc::EAI_AGAIN => Errno::EAGAIN,
            libc::EAI_MEMORY => Errno::ENOMEM,
            libc::EAI_FAMILY => Errno::EAFNOSUPPORT,
            libc::EAI_BADFLAGS | libc::EAI_SERVICE | libc::EAI_SOCKTYPE => Errno::EINVAL,
            _ => Errno::ENOENT,
        }
    }
}

impl fmt::Display for EaiName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self.0 {
            libc::EAI_AGAIN => "EAI_AGAIN",
            libc::EAI_BADFLAGS => "EAI_BADFLAGS",
            libc::EAI_FAIL => "EAI_FAIL",
            libc::EAI_FAMILY => "EAI_FAMILY",
            libc::EAI_MEMORY => "EAI_MEMORY",
            libc::EAI_NODATA => "EAI_NODATA",
            libc::EAI_NONAME => "EAI_NONAME",
            libc::EAI_SERVICE => "EAI_SERVICE",
            libc::EAI_SOCKTYPE => "EAI_SOCKTYPE",
            code => return write!(f, "getaddrinfo's code {code}"),
        };
        f.write_str(name)
    }
}
