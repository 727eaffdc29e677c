use std::io::Write;

use nix::unistd::read;

use super::*;
use crate::addr::port_space::PortSpace;
use crate::cm::id::tests::{commands, fake_channel, fake_id};

#[test]
fn only_listener_keeps_former_channel_open() {
    for listens in [false, true] {
        let [(from, _from_kernel), (to, _to_kernel)] = [(); 2].map(|()| fake_channel());
        let id = CmId::from_inner(fake_id(&from, PortSpace::Tcp));
        id.inner.listens.store(listens, Ordering::Relaxed);
        id.migrate(&to).expect("the id should move");
        let former = Arc::downgrade(&from.inner);
        drop(from);
        assert_eq!(former.upgrade().is_some(), listens);
    }
}

#[test]
fn channel_knows_each_former_channel_once() {
    let [(channel, _kernel), (first, _first_kernel), (second, _second_kernel)] =
        [(); 3].map(|()| fake_channel());
    for _ in 0..2 {
        channel.inner.add_former_channels([&first.inner, &second.inner].into_iter());
        assert_eq!(channel.inner.former_channels().len(), 2);
    }
}

/// Checks that the id of a wakeup is destroyed, and that a second wakeup follows only if it is due.
#[test]
fn read_wakeup_is_destroyed_and_repeated_if_due() {
    for is_due in [false, true] {
        let (channel, mut kernel) = fake_channel();
        // The channel is readable: it has an unread event.
        kernel.write_all(&[0]).expect("the event should be written");
        channel.inner.waker().sent(7);
        if is_due {
            assert!(!channel.inner.waker().request_wakeup());
        }
        channel.inner.on_wakeup_event();
        // A socket that is closed with unread bytes resets its peer.
        read(channel.as_fd(), &mut [0]).expect("the event should be read");
        drop(channel);
        let expected: &[u32] = if is_due { &[1, 0, 21] } else { &[1] };
        assert_eq!(commands(kernel), expected, "DESTROY_ID, CREATE_ID, RESOLVE_ADDR");
    }
}
