//! The runtime of a caller that passes none.

use std::sync::Arc;

use super::runtime::Runtime;
#[cfg(feature = "smol")]
use super::runtime::smol::SmolRuntime;
#[cfg(feature = "tokio")]
use super::runtime::tokio::TokioRuntime;
use crate::error::{Error, ErrorKind, Result};

/// Returns the Tokio runtime of the caller's context, or otherwise smol's.
///
/// It considers only runtimes whose features are enabled.
pub(super) fn default_runtime() -> Result<Arc<dyn Runtime>> {
    #[cfg(feature = "tokio")]
    if ::tokio::runtime::Handle::try_current().is_ok() {
        return Ok(Arc::new(TokioRuntime));
    }
    any_executor().ok_or_else(|| {
        Error::new("find", "a runtime for tasks", ErrorKind::Unsupported(NONE.into()))
    })
}

/// Returns the runtime for executors without one.
fn any_executor() -> Option<Arc<dyn Runtime>> {
    #[cfg(feature = "smol")]
    return Some(Arc::new(SmolRuntime));
    #[cfg(not(feature = "smol"))]
    None
}

const NONE: &str = "the caller is not in the context of a Tokio runtime; call this in one (feature `tokio`), enable the \
                    feature `smol`, or pass a `Runtime`";
