//! Posting to and polling queues that a thread keeps takes no lock.
//!
//! The test verifies this instruction by instruction.
//!
//! # Safety
//!
//! Requests name memory of regions that outlive the connection, and no thread reads their bytes. The handler of the
//! signal reads the instruction that the processor is about to execute, and calls nothing.
#![expect(unsafe_code, reason = "posts requests, and handles a signal")]

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering, compiler_fence};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use nix::libc::{REG_EFL, REG_RIP, c_int, c_void, siginfo_t, ucontext_t};
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, raise, sigaction};
use rdmacm::Result;
use rdmacm::cm::ConnParam;
use rdmacm::verbs::{
    Completion, Payload, ReceiveRequest, SendFlags, SendOperation, SendRequest, SharedReceiveQueue,
    SharedReceiveQueueAttributes,
};

use crate::fixtures::{Connection, LONG, is_card, roce, siw};
use crate::io::Shape;

/// The flag by which a processor traps after each instruction.
const TRAP: i64 = 1 << 8;

/// The watching test holds this mutex, because the process has one set of counters.
static WATCHING: Mutex<()> = Mutex::new(());
static IS_WATCHED: AtomicBool = AtomicBool::new(false);
static EXECUTED: AtomicUsize = AtomicUsize::new(0);
static LOCKED: AtomicUsize = AtomicUsize::new(0);

/// The numbers of executed instructions, and of locked ones among them. Locks consist of locked instructions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Steps {
    executed: usize,
    locked: usize,
}

/// Returns `true` if `byte` yields the bytes of a locked instruction.
///
/// A fence does not count: compilers implement it by a locked instruction without effect, for which no thread waits.
fn is_locked(byte: impl Fn(usize) -> u8) -> bool {
    const LOCK: u8 = 0xf0;
    const OTHERS: [u8; 10] = [0x26, 0x2e, 0x36, 0x3e, 0x64, 0x65, 0x66, 0x67, 0xf2, 0xf3];
    // lock or dword ptr [rsp], 0, with a displacement or without
    if byte(0) == LOCK && byte(1) == 0x83 && matches!(byte(2), 0x0c | 0x4c) && byte(3) == 0x24 {
        return false;
    }
    let mut at = 0;
    while OTHERS.contains(&byte(at)) {
        at += 1;
    }
    if byte(at) == LOCK {
        return true;
    }
    at += usize::from(byte(at) & 0xf0 == 0x40);
    // An exchange with memory, which is locked without a prefix.
    matches!(byte(at), 0x86 | 0x87) && byte(at + 1) < 0xc0
}

/// Inspects the next instruction. Makes the processor trap after it while the thread is watched.
extern "C" fn trapped(_: c_int, _: *mut siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel passes a context to the handler, and only the handler uses it until it returns.
    let registers = unsafe { &mut (*context.cast::<ucontext_t>()).uc_mcontext.gregs };
    if !IS_WATCHED.load(Ordering::Relaxed) {
        registers[REG_EFL as usize] &= !TRAP;
        return;
    }
    registers[REG_EFL as usize] |= TRAP;
    let address = usize::try_from(registers[REG_RIP as usize]).unwrap_or_default();
    let byte = |at: usize| {
        let place = std::ptr::with_exposed_provenance::<u8>(address + at);
        // SAFETY: the byte belongs to an instruction that the processor is about to execute.
        unsafe { place.read_volatile() }
    };
    EXECUTED.fetch_add(1, Ordering::Relaxed);
    LOCKED.fetch_add(usize::from(is_locked(byte)), Ordering::Relaxed);
}

/// Counts the instructions that this thread executes in `what`.
///
/// `what` must not panic: the panic would be watched, too, for minutes. The first instruction after a system call is
/// not counted, because the processor traps after that instruction.
fn steps<T>(what: impl FnOnce() -> T) -> (T, Steps) {
    EXECUTED.store(0, Ordering::Relaxed);
    LOCKED.store(0, Ordering::Relaxed);
    IS_WATCHED.store(true, Ordering::Relaxed);
    raise(Signal::SIGTRAP).expect("start to watch the thread");
    let done = what();
    compiler_fence(Ordering::SeqCst);
    IS_WATCHED.store(false, Ordering::Relaxed);
    compiler_fence(Ordering::SeqCst);
    let [executed, locked] = [&EXECUTED, &LOCKED].map(|count| count.load(Ordering::Relaxed));
    (done, Steps { executed, locked })
}

/// Counts the instructions of `what`, which must succeed.
#[track_caller]
fn steps_to<T>(what: impl FnOnce() -> Result<T>) -> Steps {
    let (done, steps) = steps(what);
    done.expect("the call should succeed");
    steps
}

fn watch(address: SocketAddr) {
    let _alone = WATCHING.lock().unwrap_or_else(PoisonError::into_inner);
    let action = SigAction::new(
        SigHandler::SigAction(trapped),
        SaFlags::SA_SIGINFO | SaFlags::SA_RESTART,
        SigSet::empty(),
    );
    // SAFETY: the handler is one that takes three arguments, as the flag says, and calls nothing that
    // a signal must not interrupt.
    unsafe { sigaction(Signal::SIGTRAP, &action) }.expect("handle the signal");
    let ((), nothing) = steps(|| ());
    assert_eq!(nothing.locked, 0, "{nothing:?}");
    let connection = Connection::to(address, Shape::default(), &ConnParam::default());
    let Connection { client, server, .. } = &connection;
    let scatter = [server.io.memory().sge(0..64).expect("the range should be within the memory")];
    let gather = [client.io.memory().sge(0..64).expect("the range should be within the memory")];
    let receive = ReceiveRequest { wr_id: 1, scatter: &scatter };
    let send = |payload| SendRequest {
        wr_id: 2,
        operation: SendOperation::Send,
        payload,
        flags: SendFlags::empty(),
    };
    let (gathered, inline) = (send(Payload::Gather(&gather)), send(Payload::Inline(&[7; 32])));
    let (sender, receiver, arrived) = (client.io.qp(), server.io.qp(), server.io.cq());
    let shared = SharedReceiveQueue::new(receiver.pd(), SharedReceiveQueueAttributes::default());
    let shared = shared.expect("shared receive queue");
    // The first exchange does work that later ones need not repeat. On iWARP the connecting side must send first.
    server.io.receive(1, 0..64).expect("post a receive");
    client.io.post(2, SendOperation::Send, 0..64, SendFlags::SIGNALED).expect("post a send");
    server.io.done(1);
    client.io.done(2);
    let mut receives = receiver.lock_receive_queue().expect("receive queue");
    let mut shares = shared.lock_receive_queue().expect("shared receive queue");
    let mut sends = sender.lock_send_queue().expect("send queue");
    let mut poller = arrived.lock_poller().expect("poller");
    let mut done = [Completion::default(); 4];
    let mut all = Vec::new();
    // A doorbell of mlx5 executes one locked instruction, so that a step to RESET waits until the doorbell has been
    // rung. A push of a receive rings the doorbell, too. The queue pairs of this test have dedicated registers, so the
    // thread waits for no other thread.
    let rings = usize::from(is_card());
    // SAFETY: the regions outlive the queue pairs, and no thread reads the bytes.
    all.push(("post a receive", rings, steps_to(|| unsafe { receives.post(&receive) })));
    // SAFETY: as above.
    all.push(("push a receive", rings, steps_to(|| unsafe { receives.push(&receive) })));
    all.push(("ring for it", rings, steps_to(|| receives.ring_doorbell())));
    // SAFETY: as above.
    all.push(("post a shared one", 0, steps_to(|| unsafe { shares.post(&receive) })));
    // SAFETY: as above.
    all.push(("post a send", rings, steps_to(|| unsafe { sends.post(&gathered) })));
    // SAFETY: as above.
    all.push(("push one inline", 0, steps_to(|| unsafe { sends.push(&inline) })));
    all.push(("ring for it", rings, steps_to(|| sends.ring_doorbell())));
    let (mut polled, deadline) = (0, Instant::now() + LONG);
    while polled < 2 {
        let (count, seen) = steps(|| poller.poll(&mut done[..1]));
        polled += count.expect("poll");
        all.push(("poll", 0, seen));
        assert!(Instant::now() < deadline, "{polled} of 2 messages have come within {LONG:?}");
    }
    let (count, seen) = steps(|| poller.poll(&mut done));
    assert_eq!(count.expect("poll"), 0);
    all.push(("poll for nothing", 0, seen));
    drop((receives, shares, sends, poller));
    for (what, locked, seen) in all {
        assert!(seen.executed > nothing.executed + 10, "{what}: {seen:?}, {nothing:?}");
        assert_eq!(seen.locked, locked, "{what}: {seen:?}");
    }
    // Calls that take a lock execute locked instructions.
    // SAFETY: as above.
    let locks = steps_to(|| unsafe { receiver.post_recv(&receive) });
    assert!(locks.locked >= 2, "{locks:?}");
    let locks = steps_to(|| arrived.poll(&mut done));
    assert!(locks.locked >= 2, "{locks:?}");
    // SAFETY: as above.
    let locks = steps_to(|| unsafe { sender.post_send(&gathered) });
    assert!(locks.locked >= 2, "{locks:?}");
    connection.close();
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn held_queue_guards_take_no_lock() {
    watch(roce(0));
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn held_queue_guards_take_no_lock_on_siw0() {
    watch(siw(0));
}

#[test]
fn locked_instructions_are_recognized() {
    let bytes = |some: &[u8]| is_locked(|at| some.get(at).copied().unwrap_or(0x90));
    // lock cmpxchg, with registers of 32 and 64 bits; xchg with memory; lock or of a word
    for locked in [&[0xf0, 0x0f, 0xb1, 0x0f][..], &[0xf0, 0x48, 0x0f, 0xb1, 0x0f], &[0x87, 0x07]] {
        assert!(bytes(locked), "{locked:x?}");
    }
    assert!(bytes(&[0x48, 0x87, 0x07]) && bytes(&[0x66, 0xf0, 0x83, 0x08, 0x01]));
    // xchg between registers; mov; mfence; cmpxchg; a lock that is an operand; a fence
    for plain in [&[0x87, 0xc8][..], &[0x89, 0x07], &[0x0f, 0xae, 0xf0], &[0x0f, 0xb1, 0x0f]] {
        assert!(!bytes(plain), "{plain:x?}");
    }
    assert!(!bytes(&[0xb0, 0xf0]) && !bytes(&[0xf0, 0x83, 0x4c, 0x24, 0xc0, 0x00]));
}
