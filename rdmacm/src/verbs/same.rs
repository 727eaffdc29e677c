//! What makes two values equal that may be clones of each other: being the same object.

/// Implements `Eq` for a type whose clones share what is in the field, an `Arc`.
macro_rules! equal_if_same {
    ($type:ty, $shared:ident) => {
        impl PartialEq for $type {
            fn eq(&self, other: &Self) -> bool {
                std::sync::Arc::ptr_eq(&self.$shared, &other.$shared)
            }
        }

        impl Eq for $type {}
    };
}

pub(super) use equal_if_same;
