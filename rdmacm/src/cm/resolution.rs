//! [`Resolution`]: the state of a lookup of services that an id has started.

#[cfg(doc)]
use super::id::CmId;
use crate::addr::AddrInfo;

/// The progress of [`CmId::resolve_addrinfo`].
#[derive(Debug, Default)]
pub(super) enum Resolution {
    /// No lookup has started.
    #[default]
    None,
    /// The subnet administrator was asked.
    Asked,
    /// The answer is known. Its event may not have been read yet.
    Answered(Vec<AddrInfo>),
}
