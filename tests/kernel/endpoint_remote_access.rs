//! The safe tier: accesses to memory that the device refuses.

use std::net::SocketAddr;

use rdmacm::endpoint::{
    Connection, ConnectionConfig, Connector, DmaMemory, Listener, RemoteAccess, RemoteMemory,
};
use rdmacm::verbs::{AsyncEventType, WcStatus};
use rdmacm::{ErrorKind, Result};

use crate::endpoint_connect::pair;
use crate::endpoint_messages::filled;
use crate::endpoint_remote::{BOTH, begun, sent};
use crate::fixtures::{LONG, assert_invalid, is_card, kernel_version, roce, siw};

/// An access of a peer to 8 bytes of memory at an offset.
type Access = fn(&Connection, &RemoteMemory, u64) -> Result<()>;

/// The value of each number in the memory before an access.
const HELD: u64 = 0x0707_0707_0707_0707;

/// Each access, and the right that it needs.
const ACCESSES: [(RemoteAccess, Access); 4] = [
    (RemoteAccess::READ, |peer, at, offset| {
        peer.start_read(filled(peer, &[0; 8]), at, offset)
            .and_then(|read| read.wait_timeout(LONG))
            .map(drop)
    }),
    (RemoteAccess::WRITE, |peer, at, offset| {
        peer.start_write(filled(peer, &[1; 8]), at, offset)
            .and_then(|write| write.wait_timeout(LONG))
            .map(drop)
    }),
    (RemoteAccess::ATOMIC, |peer, at, offset| {
        peer.start_compare_swap(filled(peer, b""), at, offset, HELD, 1)
            .and_then(|swap| swap.wait_timeout(LONG))
            .map(drop)
    }),
    (RemoteAccess::ATOMIC, |peer, at, offset| {
        peer.start_fetch_add(filled(peer, b""), at, offset, 1)
            .and_then(|add| add.wait_timeout(LONG))
            .map(drop)
    }),
];

/// Returns memory in which each number is [`HELD`].
fn held() -> DmaMemory {
    let mut memory = DmaMemory::new(64).expect("memory");
    memory.write(0, &[7; 64]).expect("the range should be within the memory");
    memory
}

/// The first kernel that is known to report each refused access on rxe. Linux 6.12 does not report them.
const RXE_REPORTS_SINCE: (u32, u32) = (7, 2);

/// Asserts that the device of `server` refuses an `access` of `client`, which ends the connection.
///
/// siw reports the access if `siw_reports`.
#[track_caller]
fn assert_refused(
    [client, server]: &[Connection; 2],
    memory: &DmaMemory,
    access: impl FnOnce(&Connection) -> Result<()>,
    is_write: bool,
    siw_reports: bool,
) {
    let is_iwarp = server.local_addr().is_some_and(|local| local.ip() == siw(0).ip());
    match access(client) {
        // On iWARP a write completes when TCP has accepted it.
        Ok(()) => assert!(is_iwarp && is_write, "the access should be refused"),
        Err(error) if is_iwarp => assert_eq!(*error.kind(), ErrorKind::Disconnected, "{error}"),
        Err(error) => {
            let refused = ErrorKind::WorkRequestFailed(WcStatus::IB_WC_REM_ACCESS_ERR);
            assert_eq!(*error.kind(), refused, "{error}");
        }
    }
    // A message that follows the access does not arrive.
    if let Ok(mut buffer) = client.acquire_buffer_timeout(LONG) {
        buffer.set_len(1).expect("the length should fit");
        drop(client.post_send(buffer));
    }
    let reported = ErrorKind::PeerRequestFailed(AsyncEventType::IB_EVENT_QP_ACCESS_ERR);
    let expected = match is_iwarp {
        true => siw_reports.then_some(reported),
        false if is_card() || kernel_version() >= RXE_REPORTS_SINCE => Some(reported),
        false => Some(ErrorKind::UnreportedCause),
    };
    match (server.recv_timeout(LONG), expected) {
        (Ok(None), None) => {}
        (Err(error), Some(kind)) => assert_eq!(*error.kind(), kind, "{error}"),
        (end, expected) => panic!("the end should be {expected:?}: {end:?}"),
    }
    let mut bytes = [0; 64];
    memory.read(0, &mut bytes).expect("the range should be within the memory");
    assert_eq!(bytes, [7; 64]);
}

/// Checks that the device of the memory's owner decides on the access of a peer.
///
/// The peer can change the rights in its own descriptor.
fn device_enforces_remote_access(
    address: SocketAddr,
    given: RemoteAccess,
    accesses: &[(RemoteAccess, Access)],
) {
    for (needs, access) in accesses {
        if given.contains(*needs) {
            continue;
        }
        let both = begun(address);
        let [client, server] = &both;
        let memory = held();
        let export = server.export(&memory, .., given).expect("export");
        let mut descriptor = export.remote_memory().to_bytes();
        descriptor[1] = RemoteAccess::all().bits();
        let forged = sent(server, client, &descriptor);
        assert_eq!(forged.access(), RemoteAccess::all());
        let named =
            RemoteMemory::new(forged.addr(), forged.rkey(), forged.len(), RemoteAccess::all());
        assert_eq!(named.expect("the descriptor should be valid"), forged);
        let is_write = *needs == RemoteAccess::WRITE;
        assert_refused(&both, &memory, |client| access(client, &forged, 0), is_write, is_write);
    }
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn rxe_device_enforces_remote_access() {
    for given in
        [RemoteAccess::empty(), RemoteAccess::READ, RemoteAccess::WRITE, RemoteAccess::ATOMIC, BOTH]
    {
        device_enforces_remote_access(roce(0), given, &ACCESSES);
    }
}

/// Checks that siw permits every read, and has no atomics.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn siw_device_enforces_remote_write_access() {
    for given in [RemoteAccess::empty(), RemoteAccess::READ] {
        device_enforces_remote_access(siw(0), given, &ACCESSES[1..2]);
    }
}

/// Checks that use of a revoked or forged key ends the connection and changes no other memory.
fn revoked_or_forged_keys_are_refused_by_peer(address: SocketAddr) {
    // The forgeries are another key, another address, and a range beyond the end of the memory.
    const KEY: usize = 7;
    let forgeries = [None, Some((KEY, 0)), Some((14, 0)), Some((22, 64))];
    for (forgery, (needs, access)) in
        forgeries.iter().flat_map(|forgery| ACCESSES[..2].iter().map(move |each| (forgery, each)))
    {
        let both = begun(address);
        let [client, server] = &both;
        let memory = held();
        let export = server.export(&memory, .., BOTH).expect("export");
        let mut descriptor = export.remote_memory().to_bytes();
        if let Some((place, _)) = forgery {
            descriptor[*place] ^= 0xff;
        }
        let remote = sent(server, client, &descriptor);
        let (_kept, offset) = match forgery {
            Some((_, offset)) => (Some(export), *offset),
            None => {
                export.revoke().expect("revoke");
                (None, 0)
            }
        };
        let is_write = *needs == RemoteAccess::WRITE;
        // siw reports no event if it does not know the key of a write (`siw_proc_write`), and an ambiguous event for a
        // read.
        let siw_reports = is_write && matches!(forgery, Some((place, _)) if *place != KEY);
        let access = |client: &Connection| access(client, &remote, offset);
        assert_refused(&both, &memory, access, is_write, siw_reports);
    }
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn rxe_revoked_or_forged_keys_are_refused_by_peer() {
    revoked_or_forged_keys_are_refused_by_peer(roce(0));
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn siw_revoked_or_forged_keys_are_refused_by_peer() {
    revoked_or_forged_keys_are_refused_by_peer(siw(0));
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn siw_foreign_protection_domain_is_refused() {
    let [_client, server] = pair(roce(0), &ConnectionConfig::default());
    let pd = server.protection_domain().expect("side should be connected");
    let config = ConnectionConfig::new().protection_domain(Some(pd));
    let listener = Listener::bind(siw(0)).expect("bind");
    let address = listener.local_addr().expect("the id should have an address");
    let connector = Connector::new().config(config).total_timeout(LONG);
    let error =
        connector.connect(address).expect_err("a domain of another device should be refused");
    assert_invalid(&error, &["siw0", "the protection domain is of rxe0"]);
}
