use super::*;

#[test]
fn default_fits_linux_limit_of_locked_memory() {
    let config = PollGroupConfig::default();
    let bytes = |count: u32, size: usize| size * usize::try_from(count).expect("32 bits fit");
    let receives = bytes(config.posted_receives(true), config.receive_buffer_size);
    let sends = bytes(config.send_buffers, config.send_buffer_size);
    assert!(receives + sends <= 7 << 20, "{} bytes of the 8 MiB", receives + sends);
}

#[test]
fn impossible_parameters_are_refused() {
    let config = PollGroupConfig::default;
    config().check().expect("the default should be possible");
    for refused in [
        config().receive_buffers(0),
        config().send_buffers(0),
        config().receive_buffer_size(0),
        config().send_buffer_size(0),
        config().send_buffers_per_member(0),
        config().max_held(0),
        config().retry_count(8),
        config().rnr_retry_count(8),
        config().keep_alive_interval(Some(Duration::ZERO)),
    ] {
        refused.check().expect_err("the value should be refused");
    }
}

#[test]
fn iwarp_group_has_reserve() {
    let posted = |receives, is_iwarp| {
        PollGroupConfig::new().receive_buffers(receives).posted_receives(is_iwarp)
    };
    assert_eq!([posted(1, true), posted(80, true), posted(80, false)], [3, 90, 80]);
    assert_eq!(posted(u32::MAX, true), u32::MAX);
}

#[test]
fn completion_queue_has_room_for_all_sends() {
    let config = PollGroupConfig::new().send_buffers(10).send_buffers_per_member(2);
    assert_eq!([config.send_completions(0), config.send_completions(5)], [13, 18]);
    assert_eq!(config.send_completions(u32::MAX), u32::MAX);
}

#[test]
fn parameters_of_members_are_those_of_group() {
    let config = PollGroupConfig::new().retry_count(3).rnr_retry_count(4);
    let expected = ConnParam {
        private_data: b"hello".to_vec(),
        responder_resources: 0,
        initiator_depth: 0,
        retry_count: 3,
        rnr_retry_count: 4,
        ..ConnParam::default()
    };
    assert_eq!(config.param(b"hello"), expected);
}
