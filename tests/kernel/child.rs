//! Child processes, and changes of the process or thread in which a test runs.
//!
//! # Safety
//!
//! This module forks and changes credentials, signals and system call filters. The kernel does this, and touches no
//! memory of the process.
#![expect(unsafe_code, reason = "forks, and changes credentials, signals and system call filters")]

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::panic::{self, AssertUnwindSafe};
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::thread;

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, Gid, Uid, fork, setresgid, setresuid};
use rdmacm::{Error, ErrorKind};

/// Checks that a forked child cannot make `call`: it fails when it is polled first.
#[track_caller]
pub(crate) fn child_cannot(call: impl Future<Output = rdmacm::Result<()>>) {
    let mut call = pin!(call);
    in_child(|| {
        let polled = call.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        let is_refused = |error: &Error| matches!(error.kind(), ErrorKind::NotOwner(_));
        assert!(matches!(&polled, Poll::Ready(Err(error)) if is_refused(error)), "{polled:?}");
    });
}

/// Runs `body` in a forked child, and fails the test if it panics.
///
/// The child leaves only what the kernel keeps: drops that follow `body` do not run there.
#[track_caller]
pub(crate) fn in_child(body: impl FnOnce()) {
    let (mut from_child, to_parent) = UnixStream::pair().expect("socket pair");
    // SAFETY: only this thread exists in the child. The program runs one test at a time, so its other threads wait for
    // the test or are in calls of this library. They hold no lock that the child takes, and the C library keeps the
    // allocator's locks usable.
    match unsafe { fork() }.expect("fork") {
        ForkResult::Child => {
            panic::set_hook(Box::new(move |panic| {
                // No other place could report the panic.
                let _ = write!(&to_parent, "{panic}");
            }));
            let failed = panic::catch_unwind(AssertUnwindSafe(body)).is_err();
            // SAFETY: `_exit` has no preconditions.
            unsafe { libc::_exit(i32::from(failed)) }
        }
        ForkResult::Parent { child } => {
            // The copy of this process would keep the read below from ending.
            drop(to_parent);
            let mut text = String::new();
            from_child.read_to_string(&mut text).expect("read the report of the child");
            let status = waitpid(child, None).expect("wait for the child");
            assert_eq!(status, WaitStatus::Exited(child, 0), "the child: {text}");
        }
    }
}

/// Makes this process one of an ordinary user.
pub(crate) fn become_ordinary_user() {
    let (user, group) = (Uid::from_raw(65_534), Gid::from_raw(65_534));
    setresgid(group, group, group).expect("change the group");
    setresuid(user, user, user).expect("change the user");
}

/// Changes the credentials of this thread only.
pub(crate) fn change_credentials_of_this_thread() {
    let group: libc::gid_t = 1;
    // SAFETY: the call takes numbers only. The C library's own function would change every thread.
    let changed = unsafe { libc::syscall(libc::SYS_setresgid, group, group, group) };
    assert_eq!(changed, 0, "{}", nix::errno::Errno::last());
}

/// Runs `call` in a thread whose commands the kernel refuses, and returns its result.
pub(crate) fn with_refused_commands<T: Send>(call: impl FnOnce() -> T + Send) -> T {
    thread::scope(|scope| {
        let stranger = scope.spawn(|| {
            change_credentials_of_this_thread();
            forbid_ioctl_to_this_thread();
            call()
        });
        stranger.join().expect("thread should not panic")
    })
}

/// Hides `directory` from this process by mounting an empty file system over it.
pub(crate) fn hide(directory: &str) {
    keep_mounts_to_this_process();
    mount(Some("none"), directory, Some("tmpfs"), MsFlags::empty(), None::<&str>).expect("mount");
}

/// Makes the file system at `directory` one that this process cannot write to.
pub(crate) fn read_only(directory: &str) {
    keep_mounts_to_this_process();
    let (nothing, flags) = (None::<&str>, MsFlags::MS_REMOUNT | MsFlags::MS_BIND);
    mount(nothing, directory, nothing, flags | MsFlags::MS_RDONLY, nothing).expect("mount");
}

fn keep_mounts_to_this_process() {
    unshare(CloneFlags::CLONE_NEWNS).expect("a mount namespace");
    let nothing = None::<&str>;
    mount(nothing, "/", nothing, MsFlags::MS_REC | MsFlags::MS_PRIVATE, nothing)
        .expect("keep mounts to this process");
}

/// Makes the creation of netlink sockets fail in this process, which has one thread.
pub(crate) fn forbid_netlink() {
    refuse(libc::SYS_socket, Some((0, libc::AF_NETLINK)), libc::EPERM);
}

/// Makes each ioctl fail in this process, which has one thread.
pub(crate) fn forbid_ioctl() {
    refuse(libc::SYS_ioctl, None, libc::EPERM);
}

/// Makes ioctls of RDMA fail in this thread only, as before Linux 5.0.
pub(crate) fn forbid_ioctl_to_this_thread() {
    refuse(libc::SYS_ioctl, None, libc::ENOTTY);
}

/// Makes a system call fail in this thread only.
pub(crate) fn forbid_to_this_thread(call: libc::c_long, errno: i32) {
    refuse(call, None, errno);
}

/// Makes writes to the next opened file fail in this thread.
pub(crate) fn forbid_writing_to_the_next_file(errno: i32) {
    let next = File::open("/dev/null").expect("the file should open").as_raw_fd();
    refuse(libc::SYS_write, Some((0, next)), errno);
}

/// Makes each `write` of `length` bytes fail in this thread.
///
/// This affects the commands of this length, to any file.
pub(crate) fn forbid_writes_of_length(length: i32, errno: i32) {
    refuse(libc::SYS_write, Some((2, length)), errno);
}

/// Makes a system call fail in this thread if its argument with this index has this value.
fn refuse(call: libc::c_long, argument: Option<(u32, i32)>, errno: i32) {
    let statement = |code: u32, k: u32| libc::sock_filter {
        code: u16::try_from(code).expect("a code should have 16 bits"),
        jt: 0,
        jf: 0,
        k,
    };
    // The program skips `jf` statements if the value differs.
    let unless = |k: u32, jf| libc::sock_filter {
        jf,
        ..statement(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, k)
    };
    let load = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
    let number = |number| u32::try_from(number).expect("a number should have 32 bits");
    let refused = libc::SECCOMP_RET_ERRNO | number(i64::from(errno));
    // The system call's number, and (after number, architecture and address) the arguments, of 8 bytes each.
    let mut program = vec![statement(load, 0)];
    match argument {
        None => program.push(unless(number(call), 1)),
        Some((index, value)) => program.extend([
            unless(number(call), 3),
            statement(load, 16 + 8 * index),
            unless(number(i64::from(value)), 1),
        ]),
    }
    program.extend([
        statement(libc::BPF_RET | libc::BPF_K, refused),
        statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW),
    ]);
    let program = libc::sock_fprog {
        len: u16::try_from(program.len()).expect("the length should fit"),
        filter: program.as_mut_ptr(),
    };
    // SAFETY: the third argument of this operation is a program of `len` statements at `filter`, which are those of the vector,
    // alive until the call returns; the kernel copies them.
    let set =
        unsafe { libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program) };
    assert_eq!(set, 0, "{}", nix::errno::Errno::last());
}

extern "C" fn nothing(_: libc::c_int) {}

/// Makes SIGUSR1 interrupt the call in which its thread waits, without another effect.
pub(crate) fn let_sigusr1_interrupt() {
    let handler = SigHandler::Handler(nothing);
    let action = SigAction::new(handler, SaFlags::empty(), SigSet::empty());
    // SAFETY: the handler does nothing, which is safe at any moment.
    unsafe { sigaction(Signal::SIGUSR1, &action) }.expect("set a signal handler");
}
