//! Connections leave nothing on the heap.

use std::net::SocketAddr;

use rdmacm::cm::ConnParam;
use rdmacm::endpoint::ConnectionConfig;
use rdmacm_tests::heap::live;
use rdmacm_tests::{holds_in_time, try_again};
use tokio::runtime::Builder;

use crate::endpoint_connect::pair;
use crate::endpoint_tokio;
use crate::fixtures::{Connection, roce, siw};
use crate::io::Shape;

/// The process has no more on its heap after this many connections than it had after a tenth of them.
const CONNECTIONS: usize = 100;
/// By which threads, buffers and tables come into being.
const FIRST: usize = CONNECTIONS / 10;

/// Series of connections, of which one has to leave nothing.
const SERIES: usize = 3;

fn leave_nothing(connect: impl Fn()) {
    (0..FIRST).for_each(|_| connect());
    for series in 1.. {
        let before = live();
        (FIRST..CONNECTIONS).for_each(|_| connect());
        // A thread that has been waited for may still have to free its last. Threads that earlier tests have left, such as those
        // of smol for blocking work, end and free memory meanwhile.
        let mut now = live();
        let has_no_more = holds_in_time(|| {
            now = live();
            now.bytes <= before.bytes && now.blocks <= before.blocks
        });
        if has_no_more {
            return;
        }
        // A table grows if more objects exist at the same time than ever before, which depends on the order of threads. The
        // next series finds it large enough, whereas a leak is there again.
        assert!(series < SERIES, "{before:?} became {now:?} in series {series}");
        try_again(&format!("{before:?} became {now:?}"));
    }
}

fn low_level_connections_free_heap(address: SocketAddr) {
    let connect = || Connection::to(address, Shape::default(), &ConnParam::default());
    leave_nothing(|| connect().close());
    leave_nothing(|| drop(connect()));
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn rxe_low_level_connections_free_heap() {
    low_level_connections_free_heap(roce(0));
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn siw_low_level_connections_free_heap() {
    low_level_connections_free_heap(siw(0));
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn rxe_connections_free_heap() {
    leave_nothing(|| drop(pair(roce(0), &ConnectionConfig::default())));
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn siw_connections_free_heap() {
    leave_nothing(|| drop(pair(siw(0), &ConnectionConfig::default())));
}

/// Each round has a runtime of its own.
///
/// A living runtime frees the data of a descriptor only when it has more to free.
fn task_connections_free_heap(address: SocketAddr) {
    let config = ConnectionConfig::default();
    leave_nothing(|| {
        let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
        drop(runtime.block_on(endpoint_tokio::pair(address, &config)));
    });
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn rxe_task_connections_free_heap() {
    task_connections_free_heap(roce(0));
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn siw_task_connections_free_heap() {
    task_connections_free_heap(siw(0));
}
