//! Members of the kernel's unions.
//!
//! Reading a Rust union is unsafe, so a union is bytes here, as large as its largest member.

/// Converts members of a union into its bytes; the bytes beyond the member are zero.
macro_rules! union_members {
    ([u8; $size:literal]: $($member:ty),*;) => {$(
        impl From<$member> for [u8; $size] {
            fn from(member: $member) -> Self {
                let mut bytes = [0; $size];
                bytes[..size_of::<$member>()].copy_from_slice(zerocopy::IntoBytes::as_bytes(&member));
                bytes
            }
        }
    )*};
}
pub(crate) use union_members;
