//! Fuzz targets for responses of the connection manager's file.

use std::fs::File;

use ucma_abi::{
    rdma_cm_event_type, rdma_ucm_event_resp, rdma_ucm_query_addr_resp,
    rdma_ucm_query_ib_service_records, rdma_ucm_query_path_records, rdma_ucm_query_route_resp,
};
use verbs_abi::{AlignedU64, ib_path_rec_data};
use zerocopy::IntoBytes;

use super::channel::EventChannel;
use super::forged::channel_on;
use super::id::CmId;
use super::parse::{EventData, EventType, RawEvent};
use super::route::PathRecord;
use super::service::service_info;
use super::service_type::ServiceType;
use crate::addr;
use crate::addr::port_space::PortSpace;
use crate::error::RejectReason;
use crate::testing::Input;

/// Returns a channel whose kernel accepts every command and answers zeros.
fn channel() -> EventChannel {
    let silent = File::options().read(true).write(true).open("/dev/null").expect("open");
    channel_on(silent.into())
}

/// Delivers a sequence of events, either of arbitrary bytes or of one of three ids.
///
/// Two of the ids are destroyed on the way.
pub fn events(bytes: &[u8]) {
    parse(bytes);
    let channel = channel();
    let spaces = [PortSpace::Tcp, PortSpace::Udp, PortSpace::Tcp];
    let mut ids = spaces.map(|space| CmId::new(&channel, space).ok());
    let mut kept = Vec::new();
    let mut input = Input(bytes);
    while !input.is_empty() {
        let choice = input.byte();
        let mut response: rdma_ucm_event_resp = input.value();
        // A random number would almost never name an existing id.
        if let Some(Some(id)) = ids.get(usize::from(choice & 3)) {
            response.uid = AlignedU64::new(id.token().get());
        }
        if choice & 4 != 0 {
            response.event = rdma_cm_event_type(response.event.0 % 24);
        }
        let raw = RawEvent::from_bytes(response.as_bytes()).expect("the event should be complete");
        let Some(mut event) = channel.deliver(&raw) else { continue };
        assert!(!format!("{event:?}").is_empty());
        let request = event.take_request();
        if choice & 8 != 0 {
            // Models a program that keeps the event and the request.
            kept.push((event, request));
        } else {
            drop(event);
            if let Some(id) = request.filter(|_| choice & 16 != 0) {
                id.destroy().expect(
                    "the kernel should accept the command, and all events should be acknowledged",
                );
            }
        }
        if choice & 32 != 0 {
            ids[usize::from(choice >> 6 & 1)] = None;
        }
    }
}

/// Parses an event without an id.
fn parse(bytes: &[u8]) {
    let Ok(event) = RawEvent::from_bytes(bytes) else { return };
    let event_type = event.event_type();
    assert!(!event_type.to_string().is_empty());
    assert_eq!(EventType::from(u32::from(event_type)), event_type);
    let _ = (event.uid(), event.handle(), event.ece(), RejectReason(event.status()).to_string());
    for service in [ServiceType::Connected, ServiceType::Datagram] {
        match event.data(service) {
            EventData::Connection(param) => assert!(param.private_data.len() <= 255),
            EventData::Datagram(param) => assert!(param.private_data.len() <= 255),
            EventData::None | EventData::Argument(_) => {}
        }
    }
}

/// Parses responses that hold structured data: addresses, paths and service records.
pub fn answers(bytes: &[u8]) {
    let input = || Input(bytes);
    let paths: rdma_ucm_query_path_records = input().value();
    assert!(paths.paths().len() <= rdma_ucm_query_path_records::CAPACITY);
    for data in paths.paths() {
        let path = PathRecord::from(data);
        assert_eq!(PathRecord::from(&ib_path_rec_data::from(&path)), path);
    }
    let services: rdma_ucm_query_ib_service_records = input().value();
    assert!(services.services().len() <= rdma_ucm_query_ib_service_records::CAPACITY);
    for record in services.services() {
        assert!(service_info(record).dst_addr.is_some());
    }
    let addresses: rdma_ucm_query_addr_resp = input().value();
    for slot in [&addresses.src_addr, &addresses.dst_addr] {
        addr::fuzzing::address(slot);
    }
    let route: rdma_ucm_query_route_resp = input().value();
    assert!(!format!("{route:?}").is_empty());
}
