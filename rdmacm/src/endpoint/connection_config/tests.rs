use super::*;

#[test]
fn impossible_config_is_refused() {
    let config = ConnectionConfig::new;
    config().check().expect("the default should be possible");
    for none in [
        config().send_buffers(0),
        config().receive_buffers(0),
        config().send_buffer_size(0),
        config().receive_buffer_size(0),
    ] {
        none.check().expect_err("a configuration without buffers should be refused");
    }
    for retries in [7, 8, u8::MAX] {
        for with in [config().retry_count(retries), config().rnr_retry_count(retries)] {
            assert_eq!(with.check().is_ok(), retries == 7, "{with:?}");
        }
    }
}
