//! Test of completion events on the null driver.

use std::io::Write as _;

use verbs_abi::ib_uverbs_comp_event_desc;
use zerocopy::IntoBytes as _;

use super::*;
use crate::drivers::any::AnyCqControl;

/// Drivers such as mlx5 pass the number to the device when they arm the queue.
#[test]
fn arming_passes_number_of_read_events() {
    let context = Context::on_null(AnyDriver::Null(Null::default()));
    let (channel, mut device) = CompletionChannel::on_socket(&context);
    let new = || CompletionQueue::new(&context, 4, Some(&channel)).expect("completion queue");
    let [cq, other] = [new(), new()];
    let AnyCqControl::Null(control) = cq.engine().control() else {
        panic!("the queue should belong to the null driver");
    };
    let mut raise = |cq: &CompletionQueue| {
        let event = ib_uverbs_comp_event_desc { cq_handle: cq.token().get().into() };
        device.write_all(event.as_bytes()).expect("raise an event");
    };
    cq.request_notify(false).expect("arm");
    assert_eq!(control.events_read(), 0);
    [&cq, &other, &cq].into_iter().for_each(&mut raise);
    let _unacknowledged = channel.get_event().expect("an event");
    channel.drop_event().expect("an event of the other queue");
    channel.drop_event().expect("an event");
    assert_eq!(control.events_read(), 0, "only arming passes the number");
    cq.request_notify(false).expect("arm");
    assert_eq!(control.events_read(), 2);
}
