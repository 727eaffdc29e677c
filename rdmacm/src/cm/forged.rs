//! Event channels and events without a kernel, for fuzz targets, tests and benchmarks.

use std::os::fd::OwnedFd;

use ucma_abi::{rdma_cm_event_type, rdma_ucm_event_resp};
use zerocopy::{FromZeros, IntoBytes};

use super::channel::{ChannelInner, EventChannel};
use super::event::Event;
use super::id::CmId;
use super::parse::RawEvent;
use crate::sys::ucma::UcmaFile;

/// Returns a channel that writes its commands to `fd`, and whose answers are zeros.
pub(crate) fn channel_on(fd: OwnedFd) -> EventChannel {
    EventChannel { inner: ChannelInner::new(UcmaFile::new(fd)) }
}

/// Delivers an event of `id`, whose type is a number of the kernel.
///
/// Returns `None` if the library reports no event to the program.
#[cfg_attr(not(any(fuzzing, test)), expect(dead_code, reason = "no benchmark delivers an event"))]
pub(crate) fn deliver(
    channel: &EventChannel,
    id: &CmId,
    event_type: u32,
    status: u32,
) -> Option<Event> {
    let mut response = rdma_ucm_event_resp::new_zeroed();
    response.uid = id.token().get().into();
    (response.event, response.status) = (rdma_cm_event_type(event_type), status);
    channel
        .deliver(&RawEvent::from_bytes(response.as_bytes()).expect("the event should be complete"))
}
