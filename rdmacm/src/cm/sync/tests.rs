use std::os::unix::net::UnixStream;

use super::*;
use crate::cm::id::tests::{commands, fake_channel, fake_id};

/// Returns a synchronous fake id, its mode, and the socket that replaces the kernel.
fn synchronous() -> (CmId, Arc<SyncMode>, UnixStream) {
    let (channel, kernel) = fake_channel();
    let id = fake_id(&channel, PortSpace::Tcp);
    let mode = Arc::new(SyncMode::new(channel));
    id.binding_mut().sync = Some(Arc::clone(&mode));
    (CmId::from_inner(id), mode, kernel)
}

#[track_caller]
fn busy<T>(result: Result<T>) {
    assert_eq!(result.map(drop).expect_err("the id should be busy").errno(), libc::EBUSY);
}

#[test]
fn turn_of_outdated_mode_is_busy() {
    let (id, mode, _kernel) = synchronous();
    drop(mode.turn(&id.inner).expect("no thread waits"));
    // This imitates a faster thread.
    id.inner.binding_mut().sync = None;
    busy(mode.turn(&id.inner));
}

#[test]
fn waiting_id_does_not_move() {
    let (id, mode, kernel) = synchronous();
    let (channel, others_kernel) = fake_channel();
    let turn = mode.turn(&id.inner).expect("no thread waits");
    busy(id.migrate(&channel));
    drop(turn);
    // An id that another thread has made synchronous or has moved meanwhile does not move either.
    let to = &channel.inner;
    busy(id.inner.migrate(to, None, None));
    busy(id.inner.migrate(to, Some(&Arc::new(SyncMode::new(fake_channel().0))), None));
    id.inner.binding_mut().sync = None;
    busy(id.inner.migrate(to, Some(&mode), None));
    drop((id, mode, channel));
    assert_eq!(commands(others_kernel), [0; 0]);
    assert_eq!(commands(kernel), [1], "DESTROY_ID");
}
