//! The length of a page of memory.

use std::num::NonZeroUsize;

/// The length of a page, or less.
pub(super) const PAGE: NonZeroUsize = NonZeroUsize::new(4096).expect("4096 is not zero");
