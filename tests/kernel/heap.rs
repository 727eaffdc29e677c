//! Connections leave nothing on the heap.

use std::net::SocketAddr;

use rdmacm::cm::ConnParam;
use rdmacm::endpoint::Settings;
use rdmacm_tests::heap::live;
use rdmacm_tests::wait_until;
use tokio::runtime::Builder;

use crate::bed::{Connection, rxe, siw};
use crate::endpoint_connect::pair;
use crate::endpoint_tokio;
use crate::io::Shape;

/// The process has no more on its heap after this many connections than it had after a tenth of them.
const CONNECTIONS: usize = 100;
/// By which threads, buffers and tables come into being.
const FIRST: usize = CONNECTIONS / 10;

fn leave_nothing(connect: impl Fn()) {
    (0..FIRST).for_each(|_| connect());
    let before = live();
    (FIRST..CONNECTIONS).for_each(|_| connect());
    // A thread that has been waited for may still have to free its last. Threads that earlier tests have left, such as those of
    // smol for blocking work, end and free memory meanwhile.
    wait_until("the heap has no more than it had", || {
        let now = live();
        now.bytes <= before.bytes && now.blocks <= before.blocks
    });
}

fn connections_of_the_low_level_leave_nothing(address: SocketAddr) {
    let connect = || Connection::to(address, Shape::default(), &ConnParam::default());
    leave_nothing(|| connect().close());
    leave_nothing(|| drop(connect()));
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn rxe_connections_of_the_low_level_leave_nothing_on_the_heap() {
    connections_of_the_low_level_leave_nothing(rxe(0));
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn siw_connections_of_the_low_level_leave_nothing_on_the_heap() {
    connections_of_the_low_level_leave_nothing(siw(0));
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn rxe_connections_leave_nothing_on_the_heap() {
    leave_nothing(|| drop(pair(rxe(0), &Settings::default())));
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn siw_connections_leave_nothing_on_the_heap() {
    leave_nothing(|| drop(pair(siw(0), &Settings::default())));
}

/// On a runtime each: one that goes on frees what it knows of a descriptor when it has some more to free.
fn connections_of_tasks_leave_nothing(address: SocketAddr) {
    let settings = Settings::default();
    leave_nothing(|| {
        let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
        drop(runtime.block_on(endpoint_tokio::pair(address, &settings)));
    });
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn rxe_connections_of_tasks_leave_nothing_on_the_heap() {
    connections_of_tasks_leave_nothing(rxe(0));
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn siw_connections_of_tasks_leave_nothing_on_the_heap() {
    connections_of_tasks_leave_nothing(siw(0));
}
