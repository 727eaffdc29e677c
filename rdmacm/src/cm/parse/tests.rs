use super::*;

/// Returns a CONNECT_REQUEST, field by field.
fn request() -> Vec<u8> {
    let mut bytes = Vec::new();
    bytes.extend(0x1_0000_0005_u64.to_ne_bytes()); // uid of the listener
    bytes.extend(9_u32.to_ne_bytes()); // the new id
    bytes.extend(4_u32.to_ne_bytes()); // CONNECT_REQUEST
    bytes.extend(0_u32.to_ne_bytes()); // status
    bytes.extend(0x11_u32.to_ne_bytes()); // qp_num
    bytes.extend(0_u32.to_ne_bytes()); // qkey
    let mut private_data = [0; 256];
    private_data[..5].copy_from_slice(b"hello");
    bytes.extend(private_data);
    bytes.extend([56, 1, 2, 3, 1, 7, 6, 0]); // length, srq, depths, flow control, retries, valid
    bytes.resize(RawEvent::MIN_SIZE, 0); // the rest of the union
    bytes.extend([0; 4]); // reserved
    bytes.extend([0; 8]); // ece
    bytes
}

#[test]
fn request_event_is_parsed() {
    let event = RawEvent::from_bytes(&request()).expect("the event should be complete");
    assert_eq!((event.uid(), event.handle(), event.status()), (0x1_0000_0005, 9, 0));
    assert_eq!(event.event_type(), EventType::ConnectRequest);
    let EventData::Connection(param) = event.data(ServiceType::Connected) else {
        panic!("a connected service has connection parameters");
    };
    assert_eq!(param.private_data.len(), 56);
    assert_eq!(&param.private_data[..6], b"hello\0");
    assert_eq!((param.responder_resources, param.initiator_depth), (2, 3));
    assert_eq!((param.flow_control, param.retry_count, param.rnr_retry_count), (1, 7, 6));
    assert_eq!((param.srq, param.qp_num), (true, 0x11));
}

#[test]
fn datagram_id_parses_same_bytes_differently() {
    let event = RawEvent::from_bytes(&request()).expect("the event should be complete");
    let EventData::Datagram(param) = event.data(ServiceType::Datagram) else {
        panic!("a datagram service has datagram parameters");
    };
    assert_eq!(param.qp_num, 0x11);
    assert!(param.private_data.is_empty());
}

#[test]
fn short_response_is_refused_and_longer_is_read() {
    let bytes = request();
    for length in 0..RawEvent::MIN_SIZE {
        let error =
            RawEvent::from_bytes(&bytes[..length]).expect_err("the length should be refused");
        assert!(matches!(error.kind(), crate::ErrorKind::MalformedResponse(_)), "{error}");
    }
    assert!(RawEvent::from_bytes(&bytes[..RawEvent::MIN_SIZE]).is_ok());
    let mut longer = bytes;
    longer.resize(1000, 0xff);
    let event = RawEvent::from_bytes(&longer).expect("a longer event should be parsed");
    assert_eq!(event.handle(), 9);
}

#[test]
fn event_type_numbers_round_trip() {
    for number in (0..100).chain([u32::MAX, 1 << 31]) {
        let event_type = EventType::from(number);
        assert_eq!(u32::from(event_type), number);
        assert_eq!(matches!(event_type, EventType::Unknown(_)), number > 19);
        assert!(!event_type.to_string().is_empty());
    }
    assert_eq!(EventType::Established.name(), "RDMA_CM_EVENT_ESTABLISHED");
    assert_eq!(EventType::Unknown(77).to_string(), "event 77");
}

#[test]
fn statuses_are_signed() {
    let mut bytes = request();
    bytes[16..20].copy_from_slice(&(-110_i32).to_ne_bytes());
    assert_eq!(RawEvent::from_bytes(&bytes).expect("the event should be complete").status(), -110);
}

/// Returns an event that has only a number, a status and an argument.
fn plain(event: u32, status: i32, argument: u64) -> RawEvent {
    let mut bytes = Vec::new();
    bytes.extend(0x1_0000_0005_u64.to_ne_bytes());
    bytes.extend(9_u32.to_ne_bytes());
    bytes.extend(event.to_ne_bytes());
    bytes.extend(status.to_ne_bytes());
    bytes.extend(argument.to_ne_bytes());
    bytes.resize(336, 0);
    RawEvent::from_bytes(&bytes).expect("the event should be complete")
}

#[test]
fn rare_events_are_parsed() {
    use EventType as T;
    for (number, status, event_type) in [
        (3, -libc::ETIMEDOUT, T::RouteError),
        (6, -libc::EINVAL, T::ConnectError),
        (13, -libc::ENETRESET, T::MulticastError),
        (14, 0, T::AddrChange),
        (16, 0, T::AddrinfoResolved),
        (17, -libc::ETIMEDOUT, T::AddrinfoError),
    ] {
        let event = plain(number, status, 0);
        assert_eq!((event.event_type(), event.status()), (event_type, status));
        assert_eq!((event.uid(), event.handle()), (0x1_0000_0005, 9));
        assert_eq!(event.data(ServiceType::Connected), EventData::None);
        assert_eq!(event.ece(), Ece::default());
    }
}

#[test]
fn written_user_event_is_parsed() {
    let event = plain(18, -7, 0x0102_0304_0506_0708);
    assert_eq!((event.event_type(), event.status()), (EventType::User, -7));
    for service in [ServiceType::Connected, ServiceType::Datagram] {
        assert_eq!(event.data(service), EventData::Argument(0x0102_0304_0506_0708));
    }
}

#[test]
fn internal_event_yields_named_event() {
    let event = plain(19, 0, 16);
    assert_eq!(event.event_type(), EventType::AddrinfoResolved);
    assert_eq!(event.data(ServiceType::Connected), EventData::None);
    for other in [0, 15, 17, 16 << 32, u64::MAX] {
        let event = plain(19, 0, other);
        assert_eq!(event.event_type(), EventType::Internal);
        assert_eq!(event.data(ServiceType::Connected), EventData::Argument(other));
    }
}

#[test]
fn ece_of_request_is_parsed() {
    let mut bytes = request();
    bytes[328..332].copy_from_slice(&0x15b3_u32.to_ne_bytes());
    bytes[332..336].copy_from_slice(&0x8000_0001_u32.to_ne_bytes());
    let event = RawEvent::from_bytes(&bytes).expect("the event should be complete");
    assert_eq!(event.ece(), Ece { vendor_id: 0x15b3, options: 0x8000_0001 });
    // Kernels before 5.8 do not store it.
    let short = RawEvent::from_bytes(&bytes[..RawEvent::MIN_SIZE])
        .expect("the shortest event should be parsed");
    assert_eq!(short.ece(), Ece::default());
}

#[test]
fn parser_never_panics() {
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = || {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random
    };
    let mut parsed = 0;
    for _ in 0..20_000 {
        let length = usize::try_from(next() % 400).expect("the number should fit");
        let mut bytes: Vec<u8> = (0..length).map(|_| next().to_ne_bytes()[0]).collect();
        // Half of the events have a known number.
        if let Some(field) = bytes.get_mut(12..16).filter(|_| next() % 2 == 0) {
            let number = u32::try_from(next() % 24).expect("the number should fit");
            field.copy_from_slice(&number.to_ne_bytes());
        }
        let Ok(event) = RawEvent::from_bytes(&bytes) else { continue };
        parsed += 1;
        for service in [ServiceType::Connected, ServiceType::Datagram] {
            match event.data(service) {
                EventData::Connection(param) => assert!(param.private_data.len() <= 255),
                EventData::Datagram(param) => assert!(param.private_data.len() <= 255),
                EventData::None | EventData::Argument(_) => {}
            }
        }
    }
    assert!(parsed > 1000, "only {parsed} of the random events were long enough");
}
