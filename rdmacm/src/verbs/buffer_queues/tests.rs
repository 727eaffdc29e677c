use super::*;

#[test]
fn huge_reported_queue_takes_little_memory() {
    let most = u32::MAX;
    let caps = QueuePairCaps { max_send_wr: most, max_recv_wr: most, ..QueuePairCaps::default() };
    let (posted, companions) = tables(QpType::IB_UVERBS_QPT_UD, caps);
    assert_eq!(posted.len(), 0);
    assert!(companions.in_use.capacity() < 1 << 17, "{}", companions.in_use.capacity());
}
