//! Threads that drop buffers and a group that waits for them, in every order.
//!
//! The list is the real one. Its descriptor is a real eventfd: it is written right after the lock is released, and loom
//! runs no other thread in between.

use super::*;
use crate::endpoint::poll_group::member_table::MemberTable;
use crate::sync::{check, thread};

type List = ReturnList<Arc<()>>;

fn new_list() -> Arc<List> {
    List::new().expect("the process has descriptors left")
}

fn member() -> Member {
    MemberTable::default().insert(())
}

fn send_buffer() -> Returned<Arc<()>> {
    Returned::Send(member(), 0, Arc::default())
}

/// Starts a thread that drops `buffers` one after the other.
fn start_dropper<const N: usize>(
    list: &Arc<List>,
    buffers: [Returned<Arc<()>>; N],
) -> thread::JoinHandle<()> {
    let list = Arc::clone(list);
    thread::spawn(move || buffers.into_iter().for_each(|buffer| list.return_buffer(buffer)))
}

/// Sleeps until the descriptor is readable, and makes it unreadable.
///
/// If no thread makes it readable, the model fails: it takes too many steps.
fn sleep(list: &List) {
    while list.wakeup().read().is_err() {
        thread::yield_now();
    }
}

/// Takes buffers until there were `count`, and sleeps before each that is not there.
fn take_buffers(list: &List, count: usize) {
    let (mut taken, mut total) = (Vec::new(), 0);
    loop {
        list.take(&mut taken, true);
        total += taken.len();
        if total >= count {
            return assert_eq!(total, count);
        }
        if taken.is_empty() {
            sleep(list);
        }
        taken.clear();
    }
}

fn join(thread: thread::JoinHandle<()>) {
    thread.join().expect("the thread should not panic");
}

#[test]
fn loom_dropped_buffers_wake_sleeping_group() {
    check(|| {
        let list = new_list();
        let droppers =
            [(); 2].map(|()| start_dropper(&list, [Returned::Receive(member(), Arc::default())]));
        take_buffers(&list, 2);
        droppers.into_iter().for_each(join);
    });
}

/// Checks a group that lacks a buffer after its last poll, and waits before it polls again.
#[test]
fn loom_buffer_for_sending_wakes_group_that_lacks_one() {
    check(|| {
        let list = new_list();
        let dropper =
            start_dropper(&list, [Returned::Receive(member(), Arc::default()), send_buffer()]);
        let mut taken = Vec::new();
        list.take(&mut taken, false);
        while !taken.iter().any(|returned| matches!(returned, Returned::Send(..))) {
            taken.clear();
            list.wake_on_return();
            sleep(&list);
            list.take(&mut taken, false);
        }
        join(dropper);
    });
}

#[test]
fn loom_buffer_is_dropped_if_group_is_dropped() {
    check(|| {
        let list = new_list();
        let buffer = Arc::default();
        let dropper = start_dropper(&list, [Returned::Receive(member(), Arc::clone(&buffer))]);
        list.close();
        join(dropper);
        assert_eq!(Arc::strong_count(&buffer), 1, "the list has dropped the buffer");
    });
}
