//! Connections free all their memory on the heap.

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

/// Number of connections after which the heap is not larger than after a tenth of them.
const CONNECTIONS: usize = 100;
/// Number of connections after which threads, buffers and tables exist.
const FIRST: usize = CONNECTIONS / 10;

/// Number of series of connections. At least one series must leave nothing.
const SERIES: usize = 3;

fn leave_nothing(connect: impl Fn()) {
    (0..FIRST).for_each(|_| connect());
    for series in 1.. {
        let before = live();
        (FIRST..CONNECTIONS).for_each(|_| connect());
        // A thread that was joined may still free memory. Threads of earlier tests, such as smol's threads for blocking work, end
        // and free memory meanwhile.
        let mut now = live();
        let is_freed = holds_in_time(|| {
            now = live();
            now.bytes <= before.bytes && now.blocks <= before.blocks
        });
        if is_freed {
            return;
        }
        // A table grows if more objects exist at the same time than ever before, which depends on the order of threads. In the
        // next series the table is large enough, but a leak occurs again.
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

/// Connects tasks in rounds, each with its own runtime.
///
/// A running runtime frees the data of a descriptor only together with the data of others.
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
