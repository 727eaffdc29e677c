//! The state of a service lookup that an id has started ([`Resolution`]).

#[cfg(doc)]
use super::id::CmId;
use crate::addr::AddrInfo;

/// The progress of [`CmId::resolve_addrinfo`].
#[derive(Debug, Default)]
pub(super) enum Resolution {
    /// No lookup has started.
    #[default]
    None,
    /// The lookup is in progress at the subnet administrator.
    Pending,
    /// The answer is known. Its event may not have been read yet.
    Answered(Vec<AddrInfo>),
}
