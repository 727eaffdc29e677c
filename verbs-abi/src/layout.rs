//! The layout table: what every structure of the two ABI crates looks like in memory, as data.
//!
//! [`abi_structs!`](crate::abi_structs) declares a structure together with the offset of each field and the size and
//! alignment of the whole. From that one declaration come the Rust type, assertions at compile time, and rows of this
//! table, which the tests compare with the kernel's own headers.

/// A structure as the kernel's header lays it out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Struct {
    /// Name, as in the header.
    pub name: &'static str,
    /// Header that defines it, as it is included: `rdma/rdma_user_cm.h`.
    pub header: &'static str,
    /// Size in bytes.
    pub size: usize,
    /// Alignment in bytes.
    pub align: usize,
    /// Linux version that first had the structure, where a kernel of the test bed lacks it.
    pub since: Option<&'static str>,
    /// Its fields, in order, without gaps: padding is a field of its own.
    pub fields: &'static [Field],
}

/// A field of a [`Struct`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Field {
    /// Name, as in the header (a Rust keyword loses its `r#`).
    pub name: &'static str,
    /// Offset in bytes from the start of the structure.
    pub offset: usize,
    /// Size in bytes.
    pub size: usize,
    /// The Rust type, as written.
    pub rust_type: &'static str,
    /// How the header knows the field, where it differs from `name`.
    pub place: Place,
    /// Linux version that first had the field, where a kernel of the test bed lacks it.
    pub since: Option<&'static str>,
}

/// How a header spells a [`Field`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// A member of the same name.
    Member,
    /// A member designator of another spelling: a member of a union, or a name that Rust reserves.
    Named(&'static str),
    /// No member at all: padding that the compiler adds and that Rust must name.
    Padding,
}

/// A constant as the kernel's header defines it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Constant {
    /// Name, as in the header.
    pub name: &'static str,
    /// Header that defines it.
    pub header: &'static str,
    /// Value, widened.
    pub value: u64,
    /// Linux version that first had it, where a kernel of the test bed lacks it.
    pub since: Option<&'static str>,
}

/// Declares structures of the kernel's ABI: the type, its layout assertions and its rows of the layout table.
///
/// ```
/// verbs_abi::abi_structs! {
///     table: EXAMPLE, header: "rdma/example.h";
///
///     /// A request.
///     #[derive(zerocopy::IntoBytes, zerocopy::Immutable)]
///     pub struct example_request: size 16, align 8 {
///         /// Where the answer goes.
///         0 => response: verbs_abi::AlignedU64,
///         /// Handle.
///         8 => handle: u32,
///         /// Came later.
///         #[since("6.18")]
///         12 => extra: u16,
///         /// The compiler's padding.
///         #[place(Padding)]
///         14 => reserved: [u8; 2],
///     }
/// }
/// assert_eq!(EXAMPLE[0].fields[2].since, Some("6.18"));
/// ```
#[macro_export]
macro_rules! abi_structs {
    (table: $table:ident, header: $header:literal; $(
        $(#[doc = $doc:literal])*
        #[derive($($derive:path),* $(,)?)]
        $(#[since($since:literal)])?
        pub struct $name:ident: size $size:literal, align $align:literal {
            $(
                $(#[doc = $field_doc:literal])*
                $(#[since($field_since:literal)])?
                $(#[place($($place:tt)+)])?
                $offset:literal => $field:ident: $type:ty,
            )*
        }
    )*) => {
        $(
            $(#[doc = $doc])*
            #[derive(Debug, Clone, Copy, $($derive),*)]
            #[repr(C)]
            pub struct $name {
                $(
                    $(#[doc = $field_doc])*
                    pub $field: $type,
                )*
            }

            const _: () = {
                assert!(size_of::<$name>() == $size, concat!(stringify!($name), ": size"));
                assert!(align_of::<$name>() == $align, concat!(stringify!($name), ": alignment"));
                $(assert!(
                    core::mem::offset_of!($name, $field) == $offset,
                    concat!(stringify!($name), ".", stringify!($field), ": offset"),
                );)*
            };
        )*

        #[doc = concat!("Layout of the structures of `", $header, "` in this module.")]
        pub const $table: &[$crate::layout::Struct] = &[$(
            $crate::layout::Struct {
                name: stringify!($name),
                header: $header,
                size: size_of::<$name>(),
                align: align_of::<$name>(),
                since: $crate::abi_structs!(@since $($since)?),
                fields: &[$(
                    $crate::layout::Field {
                        name: stringify!($field),
                        offset: core::mem::offset_of!($name, $field),
                        size: size_of::<$type>(),
                        rust_type: stringify!($type),
                        place: $crate::abi_structs!(@place $($($place)+)?),
                        since: $crate::abi_structs!(@since $($field_since)?),
                    },
                )*],
            },
        )*];
    };
    (@since) => { None };
    (@since $since:literal) => { Some($since) };
    (@place) => { $crate::layout::Place::Member };
    (@place Padding) => { $crate::layout::Place::Padding };
    (@place $name:literal) => { $crate::layout::Place::Named($name) };
}

/// Declares constants of the kernel's ABI and their rows of the layout table.
///
/// ```
/// verbs_abi::abi_constants! {
///     table: EXAMPLE, header: "rdma/example.h";
///
///     /// A command.
///     EXAMPLE_CMD_CREATE: u32 = 0;
///     /// A command that came later.
///     #[since("6.18")]
///     EXAMPLE_CMD_NEW: u32 = 24;
/// }
/// assert_eq!(EXAMPLE_CMD_NEW, 24);
/// ```
#[macro_export]
macro_rules! abi_constants {
    (table: $table:ident, header: $header:literal; $(
        $(#[doc = $doc:literal])*
        $(#[since($since:literal)])?
        $name:ident: $type:ty = $value:expr;
    )*) => {
        $(
            $(#[doc = $doc])*
            pub const $name: $type = $value;
        )*

        #[doc = concat!("Constants of `", $header, "` in this module.")]
        pub const $table: &[$crate::layout::Constant] = &[$(
            $crate::layout::Constant {
                name: stringify!($name),
                header: $header,
                value: $name as u64,
                since: $crate::abi_structs!(@since $($since)?),
            },
        )*];
    };
}
