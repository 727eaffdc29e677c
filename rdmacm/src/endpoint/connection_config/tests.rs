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

#[test]
fn keep_alive_needs_interval_and_entry() {
    let config = |interval| ConnectionConfig::new().send_buffers(5).keep_alive_interval(interval);
    config(Some(Duration::ZERO)).check().expect_err("no interval should be refused");
    let often = config(Some(Duration::from_nanos(1)));
    often.check().expect("the interval should be possible");
    assert_eq!((often.sends(), config(None).sends()), (6, 5));
    let caps = often.caps(9);
    assert_eq!((caps.max_send_wr, caps.max_recv_wr), (6, 9));
}

#[test]
fn methods_set_their_parameters() {
    let config = ConnectionConfig::new()
        .send_buffers(1)
        .receive_buffers(2)
        .send_buffer_size(3)
        .receive_buffer_size(4)
        .busy_poll(Duration::from_nanos(5));
    assert_eq!((config.send_buffers, config.receive_buffers), (1, 2));
    assert_eq!((config.send_buffer_size, config.receive_buffer_size), (3, 4));
    assert_eq!(config.busy_poll, Duration::from_nanos(5));
    let config = config.responder_resources(6).initiator_depth(7).retry_count(1).rnr_retry_count(2);
    let expected = ConnParam {
        private_data: b"hello".to_vec(),
        responder_resources: 6,
        initiator_depth: 7,
        retry_count: 1,
        rnr_retry_count: 2,
        ..ConnParam::default()
    };
    assert_eq!(config.param(b"hello"), expected);
}

#[cfg(all(feature = "null", not(loom)))]
#[test]
fn protection_domain_is_of_device_of_connection() {
    let (context, other) = (Context::null(), Context::null());
    let pd = ProtectionDomain::new(&context).expect("the protection domain should be created");
    let config = ConnectionConfig::new();
    let created = config.pd(&context).expect("a protection domain should be created");
    assert!(*created.context() == context);
    let config = config.protection_domain(Some(pd.clone()));
    assert_eq!(config.pd(&context).expect("the device should match"), pd);
    let error = config.pd(&other).expect_err("another device should be refused");
    assert_eq!(error.errno(), libc::EINVAL, "{error}");
}
