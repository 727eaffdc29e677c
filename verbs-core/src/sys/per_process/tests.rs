use std::sync::{Barrier, Mutex};
use std::thread;

use super::*;
use crate::sys::process::in_child;

#[test]
fn forked_child_has_own_value_despite_parent_lock() {
    static VALUE: PerProcess<Mutex<u8>> = PerProcess::new();
    // As by another thread, which the child does not have.
    let mut parents = VALUE.lock().expect("lock");
    *parents = 7;
    assert!(in_child(|| {
        let Ok(mut own) = VALUE.try_lock() else { return false };
        *own == 0 && {
            *own = 8;
            in_child(|| VALUE.try_lock().is_ok_and(|own| *own == 0))
        }
    }));
    assert!(VALUE.try_lock().is_err(), "the parent's is as it was");
    drop(parents);
    assert_eq!(*VALUE.lock().expect("lock"), 7);
}

#[test]
fn all_threads_share_value() {
    static VALUE: PerProcess<Mutex<u8>> = PerProcess::new();
    let together = Barrier::new(4);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                together.wait();
                *VALUE.lock().expect("lock") += 1;
            });
        }
    });
    assert_eq!(*VALUE.lock().expect("lock"), 4);
}
