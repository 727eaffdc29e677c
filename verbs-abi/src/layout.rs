//! The layout table: the memory layout of every structure of the two ABI crates, as data.
//!
//! [`abi_structs!`](crate::abi_structs) declares a structure together with the offset of each field and the size and
//! alignment of the whole. The macro generates the Rust type, assertions at compile time, and rows of this table. The
//! tests compare these rows with the kernel's headers.

/// A structure as the kernel's header lays it out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Struct {
    /// Name, as in the header; chosen by this crate if `member` is set.
    pub name: &'static str,
    /// The enclosing structure and the member, for a structure without a name in the header.
    pub member: Option<(&'static str, &'static str)>,
    /// Header that defines it, as it is included: `rdma/rdma_user_cm.h`.
    pub header: &'static str,
    /// Size in bytes.
    pub size: usize,
    /// Alignment in bytes.
    pub align: usize,
    /// Alignment in bytes on 32-bit x86.
    ///
    /// It is less than `align` if the header has a bare `__u64` or a pointer inside.
    ///
    /// Sizes and offsets never differ, so the Rust type keeps the one alignment.
    pub align_i386: usize,
    /// Linux version that first had the structure, if a kernel of the test bed lacks it.
    pub since: Option<&'static str>,
    /// The fields, in order, without gaps: padding is a separate field.
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
    /// The name of the field in the header, if it differs from `name`.
    pub place: Place,
    /// Linux version that first had the field, if a kernel of the test bed lacks it.
    pub since: Option<&'static str>,
}

/// The representation of a [`Field`] in a header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// A member of the same name.
    Member,
    /// A member designator of another spelling: a member of a union, or of a structure in the structure.
    Named(&'static str),
    /// Padding that the compiler adds and that Rust must name: no member of the header.
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
    /// Linux version that first had it, if a kernel of the test bed lacks it.
    pub since: Option<&'static str>,
}

/// Returns a name without the `r#` that a keyword of Rust has.
#[doc(hidden)]
pub const fn plain(name: &'static str) -> &'static str {
    let [b'r', b'#', plain @ ..] = name.as_bytes() else { return name };
    match core::str::from_utf8(plain) {
        Ok(plain) => plain,
        Err(_) => panic!("the rest of a name after ASCII is text"),
    }
}

/// Declares structures of the kernel's ABI.
///
/// The macro generates the type, its layout assertions and its rows of the layout table.
///
/// The alignment is imposed on the type, because the kernel's structure may end in a flexible array. Such an array is
/// not declared here, but affects the alignment.
///
/// ```
/// verbs_abi::abi_structs! {
///     table: EXAMPLE, header: "rdma/example.h";
///
///     /// A request.
///     #[derive(zerocopy::IntoBytes, zerocopy::Immutable)]
///     pub struct example_request: size 16, align 8 {
///         /// Address of the response.
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
        $(#[member($outer:literal, $member:literal)])?
        $vis:vis struct $name:ident: size $size:literal, align $align:literal $(, i386 $i386:literal)? {
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
            #[repr(C, align($align))]
            $vis struct $name {
                $(
                    $(#[doc = $field_doc])*
                    $vis $field: $type,
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
                member: $crate::abi_structs!(@member $($outer, $member)?),
                header: $header,
                size: size_of::<$name>(),
                align: align_of::<$name>(),
                align_i386: $crate::abi_structs!(@i386 $align $($i386)?),
                since: $crate::abi_structs!(@since $($since)?),
                fields: &[$(
                    $crate::layout::Field {
                        name: $crate::layout::plain(stringify!($field)),
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
    (@i386 $align:literal) => { $align };
    (@i386 $align:literal $i386:literal) => { $i386 };
    (@since) => { None };
    (@since $since:literal) => { Some($since) };
    (@member) => { None };
    (@member $outer:literal, $member:literal) => { Some(($outer, $member)) };
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

/// Declares an open enumeration of the kernel's ABI.
///
/// The macro generates a newtype that holds any value, its named values and their rows of the layout table.
///
/// Values that are only in internal headers of the kernel follow after `kernel`. An enumeration without other values
/// has no table.
///
/// ```
/// verbs_abi::abi_enum! {
///     table: EXAMPLE, header: "rdma/example.h";
///
///     /// An event.
///     pub struct example_event: u32 {
///         /// It began.
///         EXAMPLE_EVENT_BEGAN = 0;
///         /// It ended.
///         #[since("6.18")]
///         EXAMPLE_EVENT_ENDED = 1;
///     } kernel {
///         /// It was aborted.
///         EXAMPLE_ABORTED = 128;
///     }
/// }
/// assert_eq!(example_event(1), example_event::EXAMPLE_EVENT_ENDED);
/// assert_eq!(example_event(1).name(), Some("EXAMPLE_EVENT_ENDED"));
/// assert_eq!(example_event(128).to_string(), "EXAMPLE_ABORTED");
/// assert_eq!(example_event(9).name(), None);
/// assert_eq!(example_event(9).to_string(), "example_event(9)");
/// assert_eq!(EXAMPLE.len(), 2);
/// ```
#[macro_export]
macro_rules! abi_enum {
    (table: $table:ident, header: $header:literal;
        $(#[doc = $doc:literal])*
        $vis:vis struct $name:ident: $repr:ty {
            $(
                $(#[doc = $value_doc:literal])*
                $(#[since($since:literal)])?
                $value_name:ident = $value:literal;
            )*
        }
        $(kernel {
            $(
                $(#[doc = $kernel_doc:literal])*
                $kernel_name:ident = $kernel_value:literal;
            )*
        })?
    ) => {
        $crate::abi_enum! {
            $(#[doc = $doc])*
            $vis struct $name: $repr {
                $(
                    $(#[doc = $value_doc])*
                    $value_name = $value;
                )*
                $($(
                    $(#[doc = $kernel_doc])*
                    $kernel_name = $kernel_value;
                )*)?
            }
        }

        #[doc = concat!("Values of [`", stringify!($name), "`] in `", $header, "`.")]
        pub const $table: &[$crate::layout::Constant] = &[$(
            $crate::layout::Constant {
                name: stringify!($value_name),
                header: $header,
                value: $value as u64,
                since: $crate::abi_structs!(@since $($since)?),
            },
        )*];
    };
    (
        $(#[doc = $doc:literal])*
        $vis:vis struct $name:ident: $repr:ty {
            $(
                $(#[doc = $value_doc:literal])*
                $value_name:ident = $value:literal;
            )*
        }
    ) => {
        $(#[doc = $doc])*
        #[derive(
            Clone,
            Copy,
            Default,
            PartialEq,
            Eq,
            Hash,
            zerocopy::FromBytes,
            zerocopy::IntoBytes,
            zerocopy::Immutable,
            zerocopy::KnownLayout,
        )]
        #[repr(transparent)]
        $vis struct $name($vis $repr);

        impl $name {
            $(
                $(#[doc = $value_doc])*
                $vis const $value_name: Self = Self($value);
            )*

            /// Returns the kernel's name of the value, if this crate knows the value.
            pub const fn name(self) -> Option<&'static str> {
                match self.0 {
                    $($value => Some(stringify!($value_name)),)*
                    _ => None,
                }
            }
        }

        impl core::fmt::Display for $name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                match self.name() {
                    Some(name) => f.pad(name),
                    None => write!(f, "{}({})", stringify!($name), self.0),
                }
            }
        }

        impl core::fmt::Debug for $name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                core::fmt::Display::fmt(self, f)
            }
        }
    };
}

/// Declares flags of the kernel's ABI.
///
/// The macro generates a `bitflags` newtype that keeps unknown bits, and the rows of the layout table. Flags that are
/// in no public header have no table.
///
/// ```
/// verbs_abi::abi_flags! {
///     table: EXAMPLE, header: "rdma/example.h";
///
///     /// Access rights.
///     pub struct example_access: u32 {
///         /// Reading.
///         EXAMPLE_READ = 1 << 0;
///         /// Writing.
///         #[since("6.18")]
///         EXAMPLE_WRITE = 1 << 1;
///     }
/// }
/// let access = example_access::from_bits_retain(0x8000_0002);
/// assert!(access.contains(example_access::EXAMPLE_WRITE));
/// assert_eq!((access | example_access::EXAMPLE_READ).bits(), 0x8000_0003);
/// assert_eq!(EXAMPLE[1].value, 2);
/// ```
#[macro_export]
macro_rules! abi_flags {
    (table: $table:ident, header: $header:literal;
        $(#[doc = $doc:literal])*
        $vis:vis struct $name:ident: $repr:ty {
            $(
                $(#[doc = $flag_doc:literal])*
                $(#[since($since:literal)])?
                $flag:ident = $value:expr;
            )*
        }
    ) => {
        $crate::abi_flags! {
            $(#[doc = $doc])*
            $vis struct $name: $repr {
                $(
                    $(#[doc = $flag_doc])*
                    $flag = $value;
                )*
            }
        }

        #[doc = concat!("Flags of [`", stringify!($name), "`] in `", $header, "`.")]
        pub const $table: &[$crate::layout::Constant] = &[$(
            $crate::layout::Constant {
                name: stringify!($flag),
                header: $header,
                value: $name::$flag.bits() as u64,
                since: $crate::abi_structs!(@since $($since)?),
            },
        )*];
    };
    (
        $(#[doc = $doc:literal])*
        $vis:vis struct $name:ident: $repr:ty {
            $(
                $(#[doc = $flag_doc:literal])*
                $flag:ident = $value:expr;
            )*
        }
    ) => {
        $(#[doc = $doc])*
        #[derive(
            Debug,
            Clone,
            Copy,
            Default,
            PartialEq,
            Eq,
            Hash,
            zerocopy::FromBytes,
            zerocopy::IntoBytes,
            zerocopy::Immutable,
            zerocopy::KnownLayout,
        )]
        #[repr(transparent)]
        $vis struct $name($repr);

        bitflags::bitflags! {
            impl $name: $repr {
                $(
                    $(#[doc = $flag_doc])*
                    const $flag = $value;
                )*
                // A newer kernel may set any other bit.
                const _ = !0;
            }
        }
    };
}
