use std::cell::Cell;
use std::future::poll_fn;
use std::task::Waker;

use super::*;

#[test]
fn stream_ends_with_first_none() {
    let calls = Cell::new(0);
    let mut stream = Repeat::new(|| {
        calls.set(calls.get() + 1);
        let call = calls.get();
        let mut is_first_poll = true;
        poll_fn(move |_| match std::mem::replace(&mut is_first_poll, false) {
            true => Poll::Pending,
            false => Poll::Ready((call < 3).then_some(call)),
        })
    });
    let mut context = Context::from_waker(Waker::noop());
    let mut poll = || Pin::new(&mut stream).poll_next(&mut context);
    let polls: Vec<_> = (0..8).map(|_| poll()).collect();
    let pending = Poll::Pending;
    let ready = Poll::Ready;
    let expected = [
        pending,
        ready(Some(1)),
        Poll::Pending,
        ready(Some(2)),
        Poll::Pending,
        ready(None),
        ready(None),
        ready(None),
    ];
    assert_eq!(polls, expected);
    assert_eq!(calls.get(), 3);
    assert!(stream.is_terminated());
}
