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
fn assert_busy<T>(result: Result<T>) {
    assert_eq!(result.map(drop).expect_err("the id should be busy").errno(), libc::EBUSY);
}

#[test]
fn call_of_outdated_mode_is_busy() {
    let (id, mode, _kernel) = synchronous();
    drop(mode.lock_call(&id.inner).expect("no thread waits"));
    // This imitates a faster thread.
    id.inner.binding_mut().sync = None;
    assert_busy(mode.lock_call(&id.inner));
}

#[test]
fn waiting_id_does_not_move() {
    let (id, mode, kernel) = synchronous();
    let (channel, others_kernel) = fake_channel();
    let call = mode.lock_call(&id.inner).expect("no thread waits");
    assert_busy(id.migrate(&channel));
    drop(call);
    // An id that another thread has made synchronous or has moved meanwhile does not move either.
    let to = &channel.inner;
    assert_busy(id.inner.migrate(to, None, None));
    assert_busy(id.inner.migrate(to, Some(&Arc::new(SyncMode::new(fake_channel().0))), None));
    id.inner.binding_mut().sync = None;
    assert_busy(id.inner.migrate(to, Some(&mode), None));
    drop((id, mode, channel));
    assert_eq!(commands(others_kernel), [0; 0]);
    assert_eq!(commands(kernel), [1], "DESTROY_ID");
}
