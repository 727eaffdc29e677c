//! Sizes of queues beyond the limits of the card, which the library refuses without a command.

use rdmacm::ErrorKind;
use rdmacm::verbs::{
    CompletionQueue, Context, ProtectionDomain, QueuePair, QueuePairCaps, QueuePairInit,
    SharedReceiveQueue, SharedReceiveQueueAttributes,
};
use rdmacm_tests::promised_device;

use crate::fixtures::{device, objects, roce_name};

/// Checks that `refused` is an error of an invalid size with the text `expected`.
#[track_caller]
fn assert_limit<T>(refused: rdmacm::Result<T>, expected: &str) {
    let error = refused.err().expect("the size should be refused");
    let text = error.to_string();
    assert!(matches!(error.kind(), ErrorKind::InvalidInput { .. }), "{text}");
    assert_eq!(error.errno(), libc::EINVAL, "{text}");
    assert!(text.contains(&format!(": {expected} (EINVAL)")), "{text}");
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn exceeded_limits_are_named() {
    promised_device(roce_name());
    let context = Context::open(&device(roce_name())).expect("the device should open");
    let pd = ProtectionDomain::new(&context).expect("the protection domain should be created");
    let cq =
        CompletionQueue::new(&context, 16, None).expect("the completion queue should be created");
    let before = objects();

    let cq_of = |capacity| CompletionQueue::new(&context, capacity, None);
    assert_limit(cq_of(0), "the number of completions is 0");
    assert_limit(cq_of(1 << 22), "4194304 completions exceed the maximum of 4194303");
    assert_limit(cq.resize(1 << 22), "4194304 completions exceed the maximum of 4194303");

    let of = |caps| QueuePair::new(&pd, &QueuePairInit { caps, ..QueuePairInit::new(&cq) });
    let default = QueuePairCaps::default();
    let sends = "100000 sends with entries of this size exceed the maximum of 8192";
    assert_limit(of(QueuePairCaps { max_send_wr: 100_000, ..default }), sends);
    let receives = "100000 receives exceed the maximum of 32768";
    assert_limit(of(QueuePairCaps { max_recv_wr: 100_000, ..default }), receives);
    let send_sges = "53 scatter/gather entries of a send exceed the maximum of 52";
    assert_limit(of(QueuePairCaps { max_send_sge: 53, ..default }), send_sges);
    let receive_sges = "33 scatter/gather entries of a receive exceed the maximum of 32";
    assert_limit(of(QueuePairCaps { max_recv_sge: 33, ..default }), receive_sges);
    let inline = "829 bytes of inline data exceed the maximum of 828";
    assert_limit(of(QueuePairCaps { max_inline_data: 829, ..default }), inline);

    let of = |attributes| SharedReceiveQueue::new(&pd, attributes);
    let default = SharedReceiveQueueAttributes::default();
    let none = "the number of receives is 0";
    assert_limit(of(SharedReceiveQueueAttributes { max_wr: 0, ..default }), none);
    let receives = "32768 receives exceed the maximum of 32767";
    assert_limit(of(SharedReceiveQueueAttributes { max_wr: 32_768, ..default }), receives);
    let largest = of(SharedReceiveQueueAttributes { max_wr: 32_767, ..default });
    drop(largest.expect("the largest queue should be created"));
    let sges = "32 scatter/gather entries of a receive exceed the maximum of 31";
    assert_limit(of(SharedReceiveQueueAttributes { max_sge: 32, ..default }), sges);
    assert_eq!(objects(), before);
}
