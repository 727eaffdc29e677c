use std::io::{ErrorKind::WouldBlock, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::TryLockError;
use std::thread;
use std::time::{Duration, Instant};

use super::*;
use crate::addr::port_space::PortSpace;
use crate::cm::EventChannel;
use crate::cm::id::tests::{fake_channel, fake_id};

/// Asserts that `call` holds the groups of `id` while the kernel executes its command.
///
/// `channel` is the channel that leads to the kernel.
fn holds_the_groups(
    id: &CmId,
    channel: &EventChannel,
    mut kernel: &UnixStream,
    call: impl FnOnce() -> Result<()> + Send,
) {
    // The command waits while no thread reads the bytes that are before it.
    let descriptor =
        channel.as_fd().try_clone_to_owned().expect("the descriptor should be duplicated");
    let mut before = UnixStream::from(descriptor);
    before.set_nonblocking(true).expect("set_nonblocking should succeed");
    while before.write(&[0; 512]).is_ok() {}
    before.set_nonblocking(false).expect("set_nonblocking should succeed");
    kernel.set_nonblocking(true).expect("set_nonblocking should succeed");
    thread::scope(|scope| {
        let caller = scope.spawn(call);
        let is_held = || matches!(id.inner.groups.try_lock(), Err(TryLockError::WouldBlock));
        let deadline = Instant::now() + Duration::from_secs(30);
        let held = loop {
            match (is_held(), Instant::now() < deadline) {
                (false, true) => thread::yield_now(),
                (held, _) => break held,
            }
        };
        while !caller.is_finished() {
            match kernel.read(&mut [0; 4096]) {
                Err(error) if error.kind() == WouldBlock => thread::yield_now(),
                read => drop(read.expect("read what was sent")),
            }
        }
        assert!(held, "the call should hold the events");
        caller.join().expect("the caller should not panic").expect("the call should succeed");
    });
}

#[test]
fn joins_and_leaves_exclude_each_other() {
    let (channel, kernel) = fake_channel();
    let id = CmId::from_inner(fake_id(&channel, PortSpace::Udp));
    let group = std::net::SocketAddr::from(([239, 1, 2, 3], 0));
    let join = || id.join_multicast(group, Membership::Full);
    holds_the_groups(&id, &channel, &kernel, join);
    holds_the_groups(&id, &channel, &kernel, || id.leave_multicast(group));
}
