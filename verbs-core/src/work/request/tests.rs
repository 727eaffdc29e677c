use super::*;

const LONG: [Sge; 2] = [entry(3), entry(5)];
const SHORT: [Sge; 2] = [entry(3), entry(4)];

const fn entry(length: u32) -> Sge {
    Sge { addr: verbs_abi::AlignedU64::new(0), length, lkey: 0 }
}

fn check(operation: SendOperation<'_>, payload: Payload<'_>) -> Result<(), &'static str> {
    SendRequest { wr_id: 0, operation, payload, flags: SendFlags::SIGNALED }.check()
}

fn atomics(remote_addr: u64) -> [SendOperation<'static>; 2] {
    let rkey = 0;
    [
        SendOperation::CompareSwap { remote_addr, rkey, compare: 0, swap: 0 },
        SendOperation::FetchAdd { remote_addr, rkey, add: 0 },
    ]
}

fn flush(placement: FlushPlacement) -> SendOperation<'static> {
    SendOperation::Flush { remote_addr: 0, rkey: 0, length: None, placement }
}

#[test]
fn unknown_flags_are_refused() {
    let payload = Payload::Gather(&[]);
    for (bits, is_known) in [(0, true), (7, true), (8, false), (15, false)] {
        let (operation, flags) = (SendOperation::Send, SendFlags::from_bits_retain(bits));
        let checked = SendRequest { wr_id: 0, operation, payload, flags }.check();
        assert_eq!(checked.is_ok(), is_known, "{bits}");
    }
}

#[test]
fn read_needs_registered_memory() {
    let read = SendOperation::Read { remote_addr: 1, rkey: 0 };
    check(read, Payload::Gather(&SHORT)).expect("any length and address");
    check(read, Payload::Inline(&[0; 8])).expect_err("inline data");
}

#[test]
fn atomic_needs_eight_aligned_bytes() {
    for operation in atomics(16) {
        check(operation, Payload::Gather(&LONG)).expect("eight bytes");
        check(operation, Payload::Gather(&SHORT)).expect_err("seven bytes");
        check(operation, Payload::Inline(&[0; 8])).expect_err("inline data");
    }
    let write = |remote_addr| SendOperation::AtomicWrite { remote_addr, rkey: 0, bytes: [0; 8] };
    for remote_addr in [1, 4, 7, 15] {
        for operation in atomics(remote_addr) {
            assert_eq!(check(operation, Payload::Gather(&LONG)), Err(UNALIGNED));
        }
        assert_eq!(check(write(remote_addr), Payload::Gather(&[])), Err(UNALIGNED));
    }
    check(write(8), Payload::Gather(&[])).expect("an aligned address");
}

#[test]
fn flush_needs_known_placement() {
    for (bits, is_known) in [(0, false), (1, true), (2, true), (3, true), (4, false), (5, false)] {
        let placement = FlushPlacement::from_bits_retain(bits);
        assert_eq!(check(flush(placement), Payload::Gather(&[])).is_ok(), is_known, "{bits}");
    }
}

#[test]
fn some_operations_have_no_payload() {
    let write = SendOperation::AtomicWrite { remote_addr: 0, rkey: 0, bytes: [0; 8] };
    let invalidate = SendOperation::LocalInvalidate { rkey: 0 };
    for operation in [write, flush(FlushPlacement::GLOBAL), invalidate] {
        check(operation, Payload::Gather(&[])).expect("no payload");
        check(operation, Payload::Gather(&[entry(0)])).expect_err("an entry");
        check(operation, Payload::Inline(&[])).expect_err("inline data");
    }
}

#[test]
fn shared_queue_takes_common_operations() {
    let at = |operation: &SendOperation<'_>, payload: Payload<'_>| {
        check(SendOperation::AtSharedQueue { srq_number: 1, operation }, payload)
    };
    let read = SendOperation::Read { remote_addr: 0, rkey: 0 };
    for operation in [SendOperation::Send, read] {
        at(&operation, Payload::Gather(&LONG)).expect("a common operation");
    }
    at(&read, Payload::Inline(&[])).expect_err("the checks of the operation apply");
    let nested = SendOperation::AtSharedQueue { srq_number: 1, operation: &SendOperation::Send };
    let invalidate = SendOperation::LocalInvalidate { rkey: 0 };
    for operation in [nested, invalidate, flush(FlushPlacement::GLOBAL)] {
        at(&operation, Payload::Gather(&[])).expect_err("no operation of a shared queue");
    }
}
