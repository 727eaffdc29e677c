//! The C library's `getaddrinfo`, which implements the host's configuration of name lookup.
//!
//! # Safety
//!
//! The strings and hints of a call live until the call returns. [`List`] owns the list that the call returns. It frees
//! the list once, and returns no reference into it.
#![expect(unsafe_code, reason = "calls getaddrinfo and reads the list that it makes")]

use std::ffi::{CStr, c_int};
use std::{mem, ptr, slice};

use nix::errno::Errno;

/// The hints of a lookup, in the terms of `struct addrinfo`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LookupHints {
    pub(crate) flags: c_int,
    pub(crate) family: c_int,
    pub(crate) socktype: c_int,
    pub(crate) protocol: c_int,
}

/// One result of a lookup.
#[derive(Debug)]
pub(crate) struct LookupResult {
    pub(crate) socktype: c_int,
    pub(crate) protocol: c_int,
    /// The socket address, as bytes.
    pub(crate) address: Vec<u8>,
    /// The canonical name; only the first result has one, if it was requested.
    pub(crate) canonname: Option<String>,
}

/// The reason why a lookup found nothing.
#[derive(Debug)]
pub(crate) enum Failure {
    /// `EAI_SYSTEM`, by its errno.
    Os(Errno),
    /// An `EAI_*` code, and the C library's text for it.
    Eai(c_int, String),
}

/// Looks a node and a service up.
pub(crate) fn getaddrinfo(
    node: Option<&CStr>,
    service: Option<&CStr>,
    wanted: Option<LookupHints>,
) -> Result<Vec<LookupResult>, Failure> {
    // SAFETY: all-zero bytes are an `addrinfo`: integers, and pointers that are null.
    let mut hints: libc::addrinfo = unsafe { mem::zeroed() };
    if let Some(wanted) = wanted {
        hints.ai_flags = wanted.flags;
        hints.ai_family = wanted.family;
        hints.ai_socktype = wanted.socktype;
        hints.ai_protocol = wanted.protocol;
    }
    let hints = if wanted.is_some() { ptr::from_ref(&hints) } else { ptr::null() };
    let mut list = List(ptr::null_mut());
    let node = node.map_or(ptr::null(), CStr::as_ptr);
    let service = service.map_or(ptr::null(), CStr::as_ptr);
    // SAFETY: both strings are null or end in a zero byte. The hints are null or a live local whose pointers are null.
    // The result is stored into a live pointer.
    match unsafe { libc::getaddrinfo(node, service, hints, &raw mut list.0) } {
        0 => Ok(list.found()),
        libc::EAI_SYSTEM => Err(Failure::Os(Errno::last())),
        code => Err(Failure::Eai(code, eai_text(code))),
    }
}

/// Returns the C library's text for an `EAI_*` code.
fn eai_text(code: c_int) -> String {
    // SAFETY: the function accepts any number.
    let text = unsafe { libc::gai_strerror(code) };
    // SAFETY: it is a string of the C library: never null, with a zero byte at its end. No thread changes or frees it
    // while it is copied.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_string_lossy().into_owned()
}

/// The list that a call returned; null if it returned none.
struct List(*mut libc::addrinfo);

impl List {
    fn found(&self) -> Vec<LookupResult> {
        let mut found = Vec::new();
        let mut next = self.0;
        // SAFETY: `next` is null or an element of the list, which lives as long as `self`.
        while let Some(entry) = unsafe { next.as_ref() } {
            let length = usize::try_from(entry.ai_addrlen).expect("addresses are short");
            let address = match entry.ai_addr.is_null() {
                true => Vec::new(),
                // SAFETY: the pointer is that of the entry's address, one allocation whose first `length` bytes
                // getaddrinfo has written. Bytes need no alignment, and an address is far shorter than `isize::MAX`. No
                // thread writes to the list while it lives.
                false => unsafe { slice::from_raw_parts(entry.ai_addr.cast(), length) }.to_vec(),
            };
            let canonname = (!entry.ai_canonname.is_null()).then(|| {
                // SAFETY: the pointer is not null, and points to a string in the list with a zero byte at its end. No
                // thread writes to the list while it lives.
                let name = unsafe { CStr::from_ptr(entry.ai_canonname) };
                name.to_string_lossy().into_owned()
            });
            let (socktype, protocol) = (entry.ai_socktype, entry.ai_protocol);
            found.push(LookupResult { socktype, protocol, address, canonname });
            next = entry.ai_next;
        }
        found
    }
}

impl Drop for List {
    fn drop(&mut self) {
        if !self.0.is_null() {
            // SAFETY: the list came from `getaddrinfo` and is freed nowhere else.
            unsafe { libc::freeaddrinfo(self.0) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failure_has_text_of_c_library() {
        let numeric = LookupHints {
            flags: libc::AI_NUMERICHOST,
            family: libc::AF_UNSPEC,
            socktype: 0,
            protocol: 0,
        };
        let found = getaddrinfo(Some(c"no number"), None, Some(numeric));
        let Err(Failure::Eai(code, text)) = found else { panic!("{found:?}") };
        assert_eq!(code, libc::EAI_NONAME);
        assert!(text.contains("not known") || text.contains("does not resolve"), "{text}");
    }
}
