//! Equality of handles: two values are equal if they refer to the same object.

/// Implements `Eq` for a type whose clones share the `Arc` in a field.
macro_rules! impl_ptr_eq {
    ($type:ty, $shared:ident) => {
        impl PartialEq for $type {
            fn eq(&self, other: &Self) -> bool {
                std::sync::Arc::ptr_eq(&self.$shared, &other.$shared)
            }
        }

        impl Eq for $type {}
    };
}

pub(super) use impl_ptr_eq;
