//! Tests of requests that are posted while the queue pair is in ERR.
//!
//! Another command may have to complete them.

use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::thread;

use verbs_abi::{IB_USER_VERBS_CMD_DESTROY_QP, IB_USER_VERBS_CMD_MODIFY_QP};

use super::{Loopback, loopback_on, wait_until, would_block};
use crate::driver::FlushMode;
use crate::drivers::any::AnyDriver;
use crate::drivers::null::Null;
use crate::endpoint::Message;
use crate::sys::uverbs::{Recorder, UverbsFile};
use crate::verbs::{Context, QpState, QueuePairAttributes};

impl Loopback {
    /// Sends a message, and receives it.
    fn send_and_receive(&self) -> Message {
        self.send(8);
        self.connection.try_recv().expect("receive").expect("a message should have arrived")
    }

    /// Moves the queue pair to ERR.
    fn move_to_err(&self) {
        let qp = self
            .connection
            .shared
            .lock_here()
            .state
            .qp()
            .expect("the endpoint should have a queue pair");
        qp.modify(&QueuePairAttributes::to(QpState::IB_QPS_ERR)).expect("modify");
    }

    fn owes_flush(&self) -> bool {
        self.with_state(|locked| locked.state.owes_flush())
    }
}

/// Creates a connection whose device flushes according to `flush`.
fn loopback(file: UverbsFile, flush: FlushMode) -> Loopback {
    loopback_on(&Context::on_file(file, AnyDriver::Null(Null::with_flush(flush))))
}

/// Returns the number of times that `command` was issued.
fn count(recorder: &Recorder, command: u32) -> usize {
    recorder.commands().into_iter().filter(|recorded| *recorded == command).count()
}

/// Checks a receive that is posted in ERR, and that the device completes only after a command.
///
/// Builds with debug assertions panic if a command is issued while the state is locked.
#[test]
fn receive_in_err_is_flushed_after_unlock() {
    let (file, recorder) = UverbsFile::recording();
    let own = loopback(file, FlushMode::OnRequest);
    let message = own.send_and_receive();
    own.move_to_err();
    let changes = || count(&recorder, IB_USER_VERBS_CMD_MODIFY_QP);
    let before = changes();
    own.send(8);
    assert_eq!(changes(), before, "the doorbell flushes a send");
    drop(message);
    assert_eq!(changes(), before + 1);
    own.connection.stats().expect("stats should succeed");
    assert_eq!(changes(), before + 1, "the receive should be flushed once");
}

/// Checks that a call that may wake a waiter flushes too.
#[test]
fn send_in_err_is_flushed_if_loop_waits() {
    let own = loopback(UverbsFile::silent(), FlushMode::Library);
    assert!(would_block(own.connection.try_recv()).is_none(), "an event loop waits");
    own.move_to_err();
    own.connection.try_post_bytes(b"x").expect("post");
    assert!(!own.owes_flush());
}

/// Checks that the flushing thread polls if the kernel refuses the queue pair that raises the event.
#[test]
fn flushed_send_is_polled_without_event() {
    let (file, recorder) = UverbsFile::recording();
    let own = loopback(file, FlushMode::Library);
    own.move_to_err();
    recorder.refuse();
    own.connection.try_post_bytes(b"x").expect("post");
    assert!(own.with_state(|locked| locked.state.core.has_sent_all()));
}

/// Checks the destruction of the private queue pair that raises the event of injected completions.
///
/// Builds with debug assertions panic if the queue pair is destroyed while the state is locked.
#[test]
fn polled_wakeup_is_destroyed_by_next_arming() {
    let (file, recorder) = UverbsFile::recording();
    let own = loopback(file, FlushMode::Library);
    own.move_to_err();
    let destroyed = || count(&recorder, IB_USER_VERBS_CMD_DESTROY_QP);
    own.connection.try_recv().expect_err("the receives are flushed");
    assert_eq!(destroyed(), 0);
    own.recv_cq.request_notify(false).expect("arm");
    assert_eq!(destroyed(), 1);
}

/// Reads all bytes from `socket`, and returns `true` if there were any.
fn drain(mut socket: &UnixStream) -> bool {
    socket.set_nonblocking(true).expect("set_nonblocking should succeed");
    let mut bytes = [0; 4096];
    let mut read = || socket.read(&mut bytes).is_ok_and(|count| count > 0);
    let had_bytes = read();
    while read() {}
    had_bytes
}

/// Fills `file`, which is a socket, so that the next command waits.
fn fill(file: &UverbsFile) {
    let fd = file.as_fd().try_clone_to_owned().expect("the descriptor should be duplicated");
    let mut socket = UnixStream::from(fd);
    socket.set_nonblocking(true).expect("set_nonblocking should succeed");
    while socket.write(&[0]).is_ok() {}
    socket.set_nonblocking(false).expect("set_nonblocking should succeed");
}

/// Checks that an abort waits for a flush, which uses the queue pair.
///
/// An abort returns only after all objects are destroyed.
#[test]
fn abort_waits_until_requests_are_flushed() {
    let (file, device) = UverbsFile::on_socket();
    let context = Context::on_file(file, AnyDriver::Null(Null::with_flush(FlushMode::OnRequest)));
    let own = loopback_on(&context);
    let message = own.send_and_receive();
    own.move_to_err();
    fill(context.file());
    drain(&own.kernel);
    let has_waited = thread::scope(|scope| {
        scope.spawn(|| drop(message));
        wait_until(|| {
            own.with_state(|locked| {
                locked.state.core.stats().receives_reposted == 1 && !locked.state.owes_flush()
            })
        });
        scope.spawn(|| own.connection.abort());
        let (mut waits, mut has_destroyed) = (false, false);
        // The first object that an abort destroys is the id.
        wait_until(|| {
            waits = own.with_state(|locked| locked.waits_for_commands);
            has_destroyed = drain(&own.kernel);
            waits || has_destroyed
        });
        drain(&device);
        waits && !has_destroyed
    });
    assert!(has_waited);
    assert!(drain(&own.kernel), "the id is destroyed");
}
