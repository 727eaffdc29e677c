use super::*;

const LIMITS: Limits = Limits {
    send_entry: 1024,
    receive_entry: 512,
    send_blocks: 1 << 15,
    receives: 1 << 15,
    shared_receives: 1 << 15,
};

fn exceeds(what: &'static str, given: u32, most: u32) -> SizeError {
    SizeError::Exceeds { what, given, most }
}

#[test]
fn send_queue_has_sizes_of_device() {
    let rc = |requests, sge, inline| {
        SendSize::new(&LIMITS, QpType::IB_UVERBS_QPT_RC, requests, sge, inline)
    };
    // One entry of 208 bytes takes four blocks: 60 bytes of inline data fit besides.
    assert_eq!(rc(1, 1, 0), Ok(SendSize { blocks: 4, requests: 1, max_inline: 60 }));
    assert_eq!(rc(100, 1, 60), Ok(SendSize { blocks: 512, requests: 128, max_inline: 60 }));
    assert_eq!(rc(100, 1, 61), Ok(SendSize { blocks: 512, requests: 102, max_inline: 124 }));
    assert_eq!(rc(0, 1, 100), Ok(SendSize::default()));
    assert_eq!(rc(100, 1, 60).map(|size| size.bytes()), Ok(512 * 64));
    let initiator = SendSize::new(&LIMITS, QpType::IB_UVERBS_QPT_XRC_INI, 1, 3, 0);
    assert_eq!(initiator, Ok(SendSize { blocks: 4, requests: 1, max_inline: 44 }));
    assert_eq!(rc(1, 0, 0), Ok(SendSize { blocks: 4, requests: 1, max_inline: 0 }));
    assert_eq!(rc(1, 52, 0).map(|size| size.blocks), Ok(16));
    assert_eq!(rc(1, 53, 0), Err(exceeds("scatter/gather entries of a send", 53, 52)));
    assert_eq!(rc(1, 1, 829), Err(exceeds("bytes of inline data", 829, 828)));
    assert_eq!(rc(1 << 13, 1, 0).map(|size| size.blocks), Ok(1 << 15));
    let sends = |given| Err(exceeds("sends with entries of this size", given, 1 << 13));
    assert_eq!(rc((1 << 13) + 1, 1, 0), sends((1 << 13) + 1));
    assert_eq!(rc(u32::MAX, 1, 0), sends(u32::MAX));
    let small = Limits { send_entry: 128, ..LIMITS };
    let none = SendSize::new(&small, QpType::IB_UVERBS_QPT_RC, 1, 0, 0);
    assert_eq!(none, Err(exceeds("bytes of an entry for sends", 192, 128)));
    let ud = |sge, inline| SendSize::new(&LIMITS, QpType::IB_UVERBS_QPT_UD, 1, sge, inline);
    assert_eq!(ud(1, 0), Ok(SendSize { blocks: 2, requests: 1, max_inline: 60 }));
    assert_eq!(ud(59, 0), Ok(SendSize { blocks: 16, requests: 1, max_inline: 940 }));
    // An entry would have 64 units.
    assert_eq!(ud(60, 0), Err(exceeds("scatter/gather entries of a send", 60, 59)));
    assert_eq!(ud(1, 941), Err(exceeds("bytes of inline data", 941, 940)));
}

#[test]
fn receive_queue_has_sizes_of_device() {
    let size = |requests, sge| ReceiveSize::new(&LIMITS, requests, sge);
    assert_eq!(size(1, 1), Ok(ReceiveSize { entries: 4, shift: 4, max_sge: 1 }));
    assert_eq!(size(5, 3), Ok(ReceiveSize { entries: 8, shift: 6, max_sge: 4 }));
    assert_eq!(size(0, 3), Ok(ReceiveSize::default()));
    assert_eq!(size(1, 33), Err(exceeds(RECEIVE_SGES, 33, 32)));
    assert_eq!(size((1 << 15) + 1, 1), Err(exceeds("receives", (1 << 15) + 1, 1 << 15)));
    let largest = ReceiveSize { entries: 1 << 15, shift: 9, max_sge: 32 };
    assert_eq!(size(1 << 15, 32), Ok(largest));
    assert_eq!(largest.bytes(), 1 << 24);
}

#[test]
fn shared_receive_queue_is_doubled_within_limit() {
    let size = |requests, sge| ReceiveSize::shared(&LIMITS, requests, sge);
    let four = ReceiveSize { entries: 16, shift: 5, max_sge: 1 };
    assert_eq!(size(5, 1), Ok((four, 8)));
    let large = size(20_000, 1).expect("the size is within the limit");
    assert_eq!((large.0.entries, large.1), (1 << 15, 1 << 15));
    assert_eq!(size(0, 1), Err(SizeError::Zero { what: "receives" }));
    assert_eq!(size(1 << 15, 1), Err(exceeds("receives", 1 << 15, (1 << 15) - 1)));
    assert_eq!(size(1, 32), Err(exceeds(RECEIVE_SGES, 32, 31)));
    let largest = ReceiveSize { entries: 1 << 15, shift: 5, max_sge: 1 };
    assert_eq!(size((1 << 15) - 1, 1), Ok((largest, 1 << 15)));
    assert_eq!(size(1, 31).map(|size| size.0.max_sge), Ok(31));
    let limited = |shared_receives| {
        let limits = Limits { shared_receives, ..LIMITS };
        ReceiveSize::shared(&limits, 5, 1).map(|size| size.0.entries)
    };
    assert_eq!([limited(16), limited(8)], [Ok(16), Ok(8)]);
    assert_eq!(limited(4), Err(exceeds("receives", 5, 3)));
}

#[test]
fn limits_fit_counters_of_device() {
    let most = u32::MAX;
    let reported = Limits {
        send_entry: most,
        receive_entry: 512,
        send_blocks: most,
        receives: most,
        shared_receives: most,
    };
    assert_eq!((reported.clamped(), LIMITS.clamped()), (LIMITS, LIMITS));
}

#[test]
fn completion_queue_has_one_entry_more() {
    let most = (1 << 22) - 1;
    assert_eq!(completions(0), Err(SizeError::Zero { what: COMPLETIONS }));
    assert_eq!([1, 100, most].map(completions), [Ok(2), Ok(128), Ok(1 << 22)]);
    for given in [1 << 22, u32::MAX] {
        assert_eq!(completions(given), Err(exceeds(COMPLETIONS, given, most)));
    }
}
