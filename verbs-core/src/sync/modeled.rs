//! The primitives of loom, and a model of the memory that the kernel shares.
//!
//! # Safety
//!
//! A word of such memory has an atomic of loom's, which lives as long as the execution of the model.
#![expect(unsafe_code, reason = "loom's atomics model words of memory")]

use std::collections::HashMap;
use std::ptr::NonNull;
use std::sync::Mutex as StdMutex;
use std::time::Instant;

use loom::cell::UnsafeCell;
pub use loom::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, AtomicUsize, fence};
pub use loom::sync::{Condvar, Mutex, MutexGuard};
pub use loom::thread;

use crate::lock::ignore_poison;

/// The models of words of memory, by their addresses.
struct Words<A>(StdMutex<HashMap<usize, Box<A>>>);

impl<A> Default for Words<A> {
    fn default() -> Self {
        Self(StdMutex::default())
    }
}

impl<A> Words<A> {
    /// Returns the atomic of the word at `address`, which `create` creates if there is none yet.
    fn at(&self, address: usize, create: impl FnOnce() -> A) -> NonNull<A> {
        let mut words = ignore_poison(self.0.lock());
        NonNull::from(&**words.entry(address).or_insert_with(|| Box::new(create())))
    }
}

loom::lazy_static! {
    static ref BYTES: Words<AtomicU8> = Words::default();
    static ref HALVES: Words<AtomicU16> = Words::default();
    static ref WORDS: Words<AtomicU32> = Words::default();
    static ref ELEMENTS: Words<UnsafeCell<()>> = Words::default();
}

/// Operations that the atomics of the standard library have as methods.
pub trait FromPtr<T> {
    /// Returns the atomic that models the word at `word`; its first value is that of the word.
    ///
    /// # Safety
    ///
    /// `word` must be aligned and valid for reads, and the execution must last as long as the result.
    unsafe fn from_ptr<'a>(word: *mut T) -> &'a Self;
}

macro_rules! from_ptr {
    ($($atomic:ident $word:ident $all:ident;)*) => {
        $(impl FromPtr<$word> for $atomic {
            unsafe fn from_ptr<'a>(word: *mut $word) -> &'a Self {
                // SAFETY: the caller's contract; only the atomic that is created here writes to the word.
                let first = || Self::new(unsafe { word.read() });
                let atomic = $all.at(word.addr(), first);
                // SAFETY: its box stays at its address until the execution ends.
                unsafe { atomic.as_ref() }
            }
        })*
    };
}

from_ptr! {
    AtomicU8 u8 BYTES;
    AtomicU16 u16 HALVES;
    AtomicU32 u32 WORDS;
}

/// Lets another thread run.
pub fn pause() {
    thread::yield_now();
}

/// Reads the element at `element`.
///
/// The model fails if another thread writes to it at the same time.
pub fn reads(element: NonNull<u8>) {
    let cell = ELEMENTS.at(element.addr().get(), || UnsafeCell::new(()));
    // SAFETY: as in `from_ptr`.
    unsafe { cell.as_ref() }.with(|_| ());
}

/// Writes to the element at `element`.
///
/// The model fails if another thread accesses it at the same time.
pub fn writes(element: NonNull<u8>) {
    let cell = ELEMENTS.at(element.addr().get(), || UnsafeCell::new(()));
    // SAFETY: as in `from_ptr`.
    unsafe { cell.as_ref() }.with_mut(|_| ());
}

/// Returns an even number other than zero that no other running thread has.
pub fn thread_mark() -> usize {
    // Every thread of a model is one of the standard library's.
    loom::thread_local! { static MARK: Box<u16> = Box::new(0); }
    MARK.with(|mark| NonNull::from(&**mark).addr().get())
}

/// Waits until `condvar` is notified.
///
/// A deadline passes at once. The checked orders include those in which another thread acts before the deadline.
pub fn wait_until<'a, T>(
    condvar: &Condvar,
    guard: MutexGuard<'a, T>,
    deadline: Option<Instant>,
) -> (MutexGuard<'a, T>, bool) {
    match deadline {
        None => (ignore_poison(condvar.wait(guard)), false),
        Some(_) => (guard, true),
    }
}

/// Checks `model` in every order that loom knows.
pub fn check(model: impl Fn() + Send + Sync + 'static) {
    loom::model(model);
}

/// Checks `model` in the orders with at most two interruptions of threads that could continue.
///
/// It is for models with too many threads for every order.
pub fn check_bounded(model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(2);
    builder.check(model);
}
