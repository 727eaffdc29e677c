//! Objects that posted requests use: they are held until the requests complete.

use std::collections::VecDeque;
use std::fmt::Debug;

use super::address_handle::AddressHandle;
use super::memory_window::MemoryWindow;

/// An object that a request uses, and that is held until the request has completed.
#[derive(Debug)]
pub(super) enum Companion {
    Address(AddressHandle),
    Window { _held: MemoryWindow },
}

impl Companion {
    /// Returns the object itself if this is its last handle.
    fn into_last(self) -> Option<Released> {
        match self {
            Self::Address(address) => address.into_last(),
            Self::Window { _held } => _held.into_last(),
        }
    }
}

/// A kernel object whose last handle is dropped with this value.
pub(crate) type Released = Box<dyn Debug + Send + Sync>;

/// The objects that posted requests use.
#[derive(Debug)]
pub(super) struct Companions {
    /// Objects with the identifiers of their requests, in ascending order.
    pub(super) in_use: VecDeque<(u64, Companion)>,
    /// `None` if objects are destroyed by the poll that finds them unused.
    pub(super) released: Option<Vec<Released>>,
}

impl Companions {
    pub(super) fn with_capacity(room: usize) -> Self {
        Self { in_use: VecDeque::with_capacity(room), released: None }
    }

    /// Releases the object of request `wr_id`, if it uses one, and the objects of earlier requests.
    ///
    /// Sends complete in the order in which they were posted.
    #[inline(never)]
    pub(super) fn release(&mut self, wr_id: u64) {
        let found = self.in_use.binary_search_by_key(&wr_id, |(id, _)| *id);
        let unused = self.in_use.drain(..found.map_or(0, |place| place + 1));
        match &mut self.released {
            Some(released) => {
                released.extend(unused.filter_map(|(_, companion)| companion.into_last()));
            }
            None => drop(unused),
        }
    }
}
