use super::*;

const LIMITS: Limits = Limits {
    send_entry: 1024,
    receive_entry: 512,
    send_blocks: 1 << 15,
    receives: 1 << 15,
    shared_receives: 1 << 15,
};

#[test]
fn send_queue_has_sizes_of_device() {
    let rc = |requests, sge, inline| {
        SendSize::new(&LIMITS, QpType::IB_UVERBS_QPT_RC, requests, sge, inline)
    };
    // One entry of 208 bytes takes four blocks: 60 bytes of inline data fit besides.
    assert_eq!(rc(1, 1, 0), Some(SendSize { blocks: 4, requests: 1, max_inline: 60 }));
    assert_eq!(rc(100, 1, 60), Some(SendSize { blocks: 512, requests: 128, max_inline: 60 }));
    assert_eq!(rc(100, 1, 61), Some(SendSize { blocks: 512, requests: 102, max_inline: 124 }));
    assert_eq!(rc(0, 1, 100), Some(SendSize::default()));
    assert_eq!(rc(100, 1, 60).map(|size| size.bytes()), Some(512 * 64));
    let initiator = SendSize::new(&LIMITS, QpType::IB_UVERBS_QPT_XRC_INI, 1, 3, 0);
    assert_eq!(initiator, Some(SendSize { blocks: 4, requests: 1, max_inline: 44 }));
    assert_eq!(rc(1, 0, 0), Some(SendSize { blocks: 4, requests: 1, max_inline: 0 }));
    assert_eq!(rc(1, 52, 0).map(|size| size.blocks), Some(16));
    assert_eq!(rc(1, 53, 0), None, "an entry is too large");
    assert_eq!(rc(1, 1, 829), None, "inline data is too large");
    assert_eq!(rc(1 << 13, 1, 0).map(|size| size.blocks), Some(1 << 15));
    assert_eq!(rc((1 << 13) + 1, 1, 0), None, "the queue has too many blocks");
    assert_eq!(rc(u32::MAX, 1, 0), None);
    let ud = |sge, inline| SendSize::new(&LIMITS, QpType::IB_UVERBS_QPT_UD, 1, sge, inline);
    assert_eq!(ud(1, 0), Some(SendSize { blocks: 2, requests: 1, max_inline: 60 }));
    assert_eq!(ud(59, 0), Some(SendSize { blocks: 16, requests: 1, max_inline: 940 }));
    assert_eq!((ud(60, 0), ud(1, 941)), (None, None), "an entry would have 64 units");
}

#[test]
fn receive_queue_has_sizes_of_device() {
    let size = |requests, sge| ReceiveSize::new(&LIMITS, requests, sge);
    assert_eq!(size(1, 1), Some(ReceiveSize { entries: 4, shift: 4, max_sge: 1 }));
    assert_eq!(size(5, 3), Some(ReceiveSize { entries: 8, shift: 6, max_sge: 4 }));
    assert_eq!(size(0, 3), Some(ReceiveSize::default()));
    assert_eq!(size(1, 33), None);
    assert_eq!(size((1 << 15) + 1, 1), None);
    let largest = ReceiveSize { entries: 1 << 15, shift: 9, max_sge: 32 };
    assert_eq!(size(1 << 15, 32), Some(largest));
    assert_eq!(largest.bytes(), 1 << 24);
}

#[test]
fn shared_receive_queue_is_doubled_within_limit() {
    let size = |requests, sge| ReceiveSize::shared(&LIMITS, requests, sge);
    let four = ReceiveSize { entries: 16, shift: 5, max_sge: 1 };
    assert_eq!(size(5, 1), Some((four, 8)));
    let large = size(20_000, 1).expect("the size is within the limit");
    assert_eq!((large.0.entries, large.1), (1 << 15, 1 << 15));
    assert_eq!(size(1 << 16, 1), None);
    assert_eq!(size((1 << 15) + 1, 1), None);
    let largest = ReceiveSize { entries: 1 << 16, shift: 5, max_sge: 1 };
    assert_eq!(size(1 << 15, 1), Some((largest, 1 << 16)));
    assert_eq!(size(1, 31).map(|size| size.0.max_sge), Some(31));
    assert_eq!(size(1, 32), None);
    let limited = |shared_receives| {
        let limits = Limits { shared_receives, ..LIMITS };
        ReceiveSize::shared(&limits, 5, 1).map(|size| size.0.entries)
    };
    assert_eq!(
        [limited(15), limited(14), limited(5), limited(4)],
        [Some(16), Some(8), Some(8), None]
    );
    assert_eq!(size(0, 1), None);
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
    assert_eq!(completions(0), None);
    assert_eq!(completions(1), Some(2));
    assert_eq!(completions(100), Some(128));
    assert_eq!(completions((1 << 22) - 1), Some(1 << 22));
    assert_eq!(completions(1 << 22), None);
    assert_eq!(completions(u32::MAX), None);
}
