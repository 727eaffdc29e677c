//! Test of completion events on the null driver.

use std::io::Write as _;

use verbs_abi::ib_uverbs_comp_event_desc;
use zerocopy::IntoBytes as _;

use super::*;
use crate::drivers::any::AnyCqControl;
use crate::sys::process::in_child;

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

/// One call reads at most as many events as its parameter says, and no event is no error.
#[test]
fn events_are_dropped_up_to_limit() {
    let context = Context::on_null(AnyDriver::Null(Null::default()));
    let (channel, mut device) = CompletionChannel::on_socket(&context);
    channel.set_nonblocking(true).expect("non-blocking");
    let cq = CompletionQueue::new(&context, 4, Some(&channel)).expect("completion queue");
    let AnyCqControl::Null(control) = cq.engine().control() else {
        panic!("the queue should belong to the null driver");
    };
    let event = ib_uverbs_comp_event_desc { cq_handle: cq.token().get().into() };
    for _ in 0..3 {
        device.write_all(event.as_bytes()).expect("raise an event");
    }
    for read in [2, 3, 3] {
        channel.drop_events::<2>().expect("read");
        cq.request_notify(false).expect("arm");
        assert_eq!(control.events_read(), read);
    }
    let error = channel.get_event().map(drop).expect_err("there is no event");
    assert!(matches!(error.kind(), ErrorKind::WouldBlock), "{error}");
}

#[test]
fn forked_child_reads_no_event() {
    let context = Context::on_null(AnyDriver::Null(Null::default()));
    let (channel, _device) = CompletionChannel::on_socket(&context);
    assert!(in_child(|| {
        let error = channel.get_event().map(drop).expect_err("the channel is the parent's");
        matches!(error.kind(), ErrorKind::NotOwner(_))
    }));
}

#[test]
fn held_event_keeps_queue() {
    let context = Context::on_null(AnyDriver::Null(Null::default()));
    let (channel, mut device) = CompletionChannel::on_socket(&context);
    let cq = CompletionQueue::new(&context, 4, Some(&channel)).expect("completion queue");
    let event = ib_uverbs_comp_event_desc { cq_handle: cq.token().get().into() };
    device.write_all(event.as_bytes()).expect("raise an event");
    let held = channel.get_event().expect("an event");
    let (cq, error) = cq.destroy().expect_err("this thread holds an event").into_parts();
    assert!(matches!(error.kind(), ErrorKind::WouldDeadlock(_)), "{error}");
    assert!(error.to_string().contains("completion queue"), "{error}");
    drop((held, cq));
}
