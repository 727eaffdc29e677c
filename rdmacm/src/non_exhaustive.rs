//! Room for fields that structs of parameters do not have yet.

use std::fmt;

/// The hidden last field of a public struct that programs fill and that may grow.
///
/// Programs must not name the field, so their struct expressions end with the default. They still compile when a field
/// is added. `#[non_exhaustive]` would forbid the expressions altogether.
///
/// ```
/// use rdmacm::verbs::SharedReceiveQueueAttributes;
///
/// let default = SharedReceiveQueueAttributes::default();
/// SharedReceiveQueueAttributes { max_wr: 4, max_sge: 1, limit: 2, ..default };
/// ```
///
/// ```compile_fail,E0063
/// use rdmacm::verbs::SharedReceiveQueueAttributes;
///
/// SharedReceiveQueueAttributes { max_wr: 4, max_sge: 1, limit: 2 };
/// ```
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct NonExhaustive(());

impl fmt::Debug for NonExhaustive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("..")
    }
}
