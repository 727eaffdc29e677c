use super::*;

/// Returns a descriptor in the form of another machine.
fn descriptor() -> [u8; RemoteMemory::ENCODED_LEN] {
    let mut bytes = [0; RemoteMemory::ENCODED_LEN];
    (bytes[0], bytes[1]) = (1, 0b011);
    bytes[4..8].copy_from_slice(&[0, 0, 1, 2]);
    bytes[8..16].copy_from_slice(&[0, 0, 0x7f, 0, 0, 0, 0x10, 0]);
    bytes[16..24].copy_from_slice(&[0, 0, 0, 0, 0, 0, 0, 100]);
    bytes
}

#[test]
fn descriptor_is_read() {
    let remote = RemoteMemory::from_bytes(&descriptor()).expect("the descriptor is valid");
    assert_eq!((remote.len(), remote.access()), (100, RemoteAccess::READ | RemoteAccess::WRITE));
    assert!(!remote.is_empty());
    assert_eq!(<[u8; RemoteMemory::ENCODED_LEN]>::from(remote), descriptor());
    let part = |offset, length| remote.part("read", RemoteAccess::READ, offset, length);
    assert_eq!(
        part(0, 100).expect("the whole memory should be allowed"),
        (0x7f00_0000_1000, 0x102)
    );
    assert_eq!(
        part(100, 0).expect("the end of the memory should be allowed"),
        (0x7f00_0000_1064, 0x102)
    );
}

#[test]
fn access_beyond_range_or_grant_is_refused() {
    let remote = RemoteMemory::from_bytes(&descriptor()).expect("the descriptor is valid");
    for (offset, length) in [(0, 101), (100, 1), (u64::MAX, 1), (u64::MAX, 0), (1, usize::MAX)] {
        let error = remote.part("write", RemoteAccess::WRITE, offset, length);
        assert_eq!(
            error.expect_err("bytes outside of the memory should be refused").errno(),
            libc::EINVAL,
            "{offset}, {length}"
        );
    }
    let error =
        remote.part("change", RemoteAccess::ATOMIC, 0, 8).expect_err("the right should be missing");
    assert_eq!(error.errno(), libc::EACCES);
    assert!(error.to_string().contains("does not grant RemoteAccess::ATOMIC"), "{error}");
}

#[test]
fn unaligned_number_is_refused() {
    let remote =
        RemoteMemory::new(0x1000, 7, 16, RemoteAccess::all()).expect("the description is valid");
    remote
        .changing(8, AtomicOperation::FetchAdd { add: 1 })
        .expect("an aligned number should be allowed");
    let error = remote
        .changing(4, AtomicOperation::FetchAdd { add: 1 })
        .expect_err("an unaligned number should be refused");
    assert_eq!(error.errno(), libc::EINVAL);
    assert!(error.to_string().contains("the number at offset 4"), "{error}");
}

#[test]
fn memory_of_other_library_is_checked() {
    let remote =
        RemoteMemory::new(0x1000, 7, 16, RemoteAccess::all()).expect("the description is valid");
    assert_eq!((remote.addr(), remote.rkey(), remote.len()), (0x1000, 7, 16));
    assert_eq!(remote.part("change", RemoteAccess::ATOMIC, 8, 8).ok(), Some((0x1008, 7)));
    for (addr, length) in [(0, 0), (u64::MAX, 1), (1, u64::MAX)] {
        let error = RemoteMemory::new(addr, 7, length, RemoteAccess::READ)
            .expect_err("the memory should be refused");
        assert_eq!(error.errno(), libc::EINVAL);
    }
}

#[cfg(feature = "serde")]
#[test]
fn serialized_memory_is_checked() {
    let remote = RemoteMemory::from_bytes(&descriptor()).expect("the descriptor is valid");
    let text = serde_json::to_string(&remote).expect("serialize");
    assert_eq!(text, r#"{"addr":139637976731648,"rkey":258,"length":100,"access":3}"#);
    assert_eq!(serde_json::from_str::<RemoteMemory>(&text).expect("deserialize"), remote);
    for forged in [
        r#"{"addr":1,"rkey":258,"length":0,"access":3}"#,
        r#"{"addr":18446744073709551615,"rkey":258,"length":2,"access":3}"#,
        r#"{"addr":1,"rkey":258,"length":1,"access":8}"#,
    ] {
        serde_json::from_str::<RemoteMemory>(forged).expect_err(forged);
    }
}

#[test]
fn malformed_descriptor_is_refused() {
    let whole = descriptor();
    for length in 0..whole.len() {
        RemoteMemory::from_bytes(&whole[..length]).expect_err("the length should be refused");
    }
    RemoteMemory::from_bytes(&[&whole[..], &[0]].concat())
        .expect_err("the length should be refused");
    for (place, byte) in [(0, 0), (0, 2), (1, 8), (1, 0xff), (2, 1), (3, 1), (23, 0), (8, 0xff)] {
        let mut forged = whole;
        forged[place] = byte;
        if place == 8 {
            forged[9..24].fill(0xff);
        }
        let error =
            RemoteMemory::from_bytes(&forged).expect_err("a forged descriptor should be refused");
        let has_unknown_rights = error.to_string().contains("access rights 0x8 contain unknown");
        assert_eq!(has_unknown_rights, (place, byte) == (1, 8), "{error}");
    }
}
