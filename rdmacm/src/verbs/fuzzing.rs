//! Fuzz targets: responses of a verbs file, contents of completion queues, and headers of
//! datagrams.

use verbs_abi::{
    ib_uverbs_async_event_desc, ib_uverbs_qp_attr, ib_uverbs_query_device_resp,
    ib_uverbs_query_port_resp, ib_uverbs_query_qp_resp,
};
use zerocopy::IntoBytes;

use super::Completion;
use super::global_route::{DatagramSource, GRH_LENGTH};
use super::{async_event, attributes};
use crate::sys::uverbs::Polled;
use crate::testing::Input;

/// Decodes completions, events, attributes, and the header of a datagram.
pub fn completions(bytes: &[u8]) {
    let input = || Input(bytes);
    Polled::hold(&mut input());

    let mut datagram = input();
    let completion = Completion(datagram.value());
    assert!(!format!("{completion:?}").is_empty());
    let _ = (completion.imm_data(), completion.invalidated_rkey(), completion.status());
    let header: [u8; GRH_LENGTH] = datagram.value();
    if let Ok(source) = DatagramSource::new(&completion, &header) {
        assert_eq!(source.gid().is_some(), completion.has_grh());
        let answered = source.destination().map(|gid| source.sent_to(gid));
        assert_eq!(answered.unwrap_or(source), source);
    }

    let event: ib_uverbs_async_event_desc = input().value();
    if let Some(event) = async_event::event(&event, async_event::track) {
        assert!(!format!("{event:?}").is_empty());
    }

    let attributes: ib_uverbs_qp_attr = input().value();
    assert!(!attributes::modification(0, &attributes).as_bytes().is_empty());
    let device: ib_uverbs_query_device_resp = input().value();
    let port: ib_uverbs_query_port_resp = input().value();
    let pair: ib_uverbs_query_qp_resp = input().value();
    assert!(!format!("{device:?} {port:?} {pair:?}").is_empty());
}
