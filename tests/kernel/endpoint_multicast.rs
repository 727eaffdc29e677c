//! The safe tier: multicast groups.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::AsFd;
use std::thread;
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use rdmacm::ErrorKind;
use rdmacm::cm::Membership;
use rdmacm::endpoint::{DatagramSocket, MulticastGroup, RemoteOperation};
use rdmacm_tests::wait_until;

use crate::endpoint_datagrams::{address, filled, found, receives, socket};
use crate::fixtures::{LONG, assert_invalid, device, objects, roce, roce_end, roce_name};
use crate::netdev::ip;

/// Returns a multicast group for one test. Each test has its own groups, because all tests run on one kernel.
fn group(number: u8) -> SocketAddr {
    ([239, 1, 3, number], 0).into()
}

fn join(socket: &DatagramSocket, group: SocketAddr, membership: Membership) -> MulticastGroup {
    socket
        .start_join_multicast(group, membership)
        .and_then(|join| join.wait_timeout(LONG))
        .expect("join")
}

fn start_join(socket: &DatagramSocket, number: u8) -> RemoteOperation<MulticastGroup> {
    socket.start_join_multicast(group(number), Membership::Full).expect("start")
}

#[track_caller]
fn receives_nothing(socket: &DatagramSocket) {
    let error = socket.try_recv_from().expect_err("no datagram should arrive");
    assert_eq!(*error.kind(), ErrorKind::WouldBlock, "{error}");
}

/// Sends `text` to `group` from `sender`, and waits for the completion.
fn send(sender: &DatagramSocket, group: &MulticastGroup, text: &[u8]) {
    drop(
        sender
            .start_send_to(filled(sender, text), group.peer())
            .and_then(|send| send.wait_timeout(LONG))
            .expect("send"),
    );
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn datagrams_reach_full_members() {
    let before = objects();
    let address = group(1);
    let [first, second, sender, stranger] = [(); 4].map(|()| socket(roce(0)));
    let firsts = join(&first, address, Membership::Full);
    let seconds = join(&second, address, Membership::Full);
    let senders = join(&sender, address, Membership::SendOnly);
    for joined in [&firsts, &seconds, &senders] {
        assert_eq!((joined.address(), joined.peer().qp_num()), (address.into(), 0xff_ffff));
        let gid = joined.peer().gid().map(Ipv6Addr::from);
        assert_eq!(gid, Some(Ipv4Addr::new(239, 1, 3, 1).to_ipv6_mapped()));
        joined.check_membership().expect("socket should be in the group");
    }
    send(&sender, &senders, b"to all");
    // A member answers a datagram of the group to its sender alone, from the member's own address.
    for member in [&first, &second] {
        let from = receives(member, b"to all");
        assert_eq!(from.qp_num(), sender.qp_num());
        member.post_send_to(filled(member, b"heard"), &from).expect("answer");
        assert_eq!(receives(&sender, b"heard").qp_num(), member.qp_num());
    }
    // A sender is the same peer in a direct datagram and in one of the group.
    let directly = found(&sender, &first);
    send(&sender, &senders, b"by the group");
    let one = receives(&first, b"by the group");
    sender.post_send_to(filled(&sender, b"directly"), &directly).expect("post");
    assert_eq!(receives(&first, b"directly"), one);
    receives(&second, b"by the group");
    // Full members receive their own datagrams. A member that left receives no more, and the other members do.
    firsts.leave().expect("leave");
    send(&second, &seconds, b"once more");
    receives(&second, b"once more");
    for other in [&first, &sender, &stranger] {
        receives_nothing(other);
    }
    let firsts = join(&first, address, Membership::Full);
    send(&first, &firsts, b"back again");
    for member in [&first, &second] {
        receives(member, b"back again");
    }
    // Dropping a group leaves it.
    drop(firsts);
    send(&second, &seconds, b"the last");
    receives(&second, b"the last");
    receives_nothing(&first);
    // A group handle may outlive its socket.
    drop((first, second, sender, stranger));
    seconds.check_membership().expect("the socket should be in the group");
    senders.leave().expect("leaving after the end of the socket should succeed");
    drop((seconds, one, directly));
    assert_eq!(objects(), before);
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn impossible_joins_are_refused() {
    let member = socket(roce(0));
    let first = join(&member, group(2), Membership::Full);
    for membership in [Membership::Full, Membership::SendOnly] {
        let again = member
            .start_join_multicast(group(2), membership)
            .expect_err("socket should be in the group already");
        assert_invalid(&again, &["join the multicast group 239.1.3.2:0", "is in the group"]);
        assert_eq!(again.errno(), libc::EADDRINUSE);
    }
    // The kernel joins an address that is no multicast group, and then refuses to attach the queue pair to it.
    let refused = |address: SocketAddr, reason: &str| {
        let joining = member.start_join_multicast(address, Membership::Full);
        joining.and_then(|joining| joining.wait_timeout(LONG)).expect_err(reason)
    };
    for _ in 0..2 {
        let error = refused(roce(0), "no group");
        assert_eq!(error.errno(), libc::EINVAL, "{error}");
    }
    let v6: SocketAddr = "[ff0e::1]:0".parse().expect("an address");
    let error = refused(v6, "not on RoCE v2");
    assert_eq!(error.errno(), 524, "{error}");
    // The failed calls have not ended the socket.
    first.check_membership().expect("socket should be in the group");
    send(&member, &first, b"to all");
    receives(&member, b"to all");
    // Another socket may join the same group.
    let other = socket(roce(0));
    drop(join(&other, group(2), Membership::Full));
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn late_join_failure_is_error() {
    let gone = Ipv4Addr::new(10, 0, 0, 78);
    let change = |verb| ip(&["address", verb, &format!("{gone}/24"), "dev", roce_end()]);
    change("add");
    let has = || {
        let mut gids = device(roce_name()).port(1).expect("port").gids().expect("GIDs");
        gids.any(|entry| entry.gid == gone.to_ipv6_mapped().into())
    };
    wait_until("rxe0 has the address", has);
    let member = socket((gone, 0).into());
    change("del");
    wait_until("rxe0 has lost the address", || !has());
    for _ in 0..2 {
        let error = member
            .start_join_multicast(group(3), Membership::Full)
            .and_then(|join| join.wait_timeout(LONG))
            .expect_err("the join should fail without the address");
        assert!(error.to_string().contains("RDMA_CM_EVENT_MULTICAST_ERROR"), "{error}");
    }
}

/// Checks that a group is joined without waiting, and left when the operation is dropped.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn join_needs_no_blocking_call() {
    let member = socket(roce(0));
    let mut join_of_4 = start_join(&member, 4);
    let joined = loop {
        match join_of_4.try_wait() {
            Ok(joined) => break joined,
            Err(error) => assert_eq!(*error.kind(), ErrorKind::WouldBlock, "{error}"),
        }
        // The descriptor reports the event, whichever call reads it.
        receives_nothing(&member);
        let mut fds = [PollFd::new(member.as_fd(), PollFlags::POLLIN)];
        let long = PollTimeout::try_from(LONG).expect("the value should fit");
        assert!(poll(&mut fds, long).expect("poll") > 0, "descriptor should become readable");
        receives_nothing(&member);
    };
    send(&member, &joined, b"to all");
    receives(&member, b"to all");
    for number in 5..25 {
        let mut started = start_join(&member, number);
        match number % 4 {
            0 => drop(started.wait_timeout(LONG).expect("join")),
            1 => {
                let other = member.start_join_multicast(group(number), Membership::SendOnly);
                assert_eq!(
                    other.expect_err("socket should be joining the group already").errno(),
                    libc::EADDRINUSE
                );
                drop(started);
            }
            2 => drop(started.wait_timeout(Duration::ZERO)),
            _ => {
                drop(started.try_wait());
                drop(started);
            }
        }
        // The group is left in any case, so that it can be joined again.
        drop(join(&member, group(number), Membership::SendOnly));
    }
    send(&member, &joined, b"still there");
    receives(&member, b"still there");
}

/// Joins, leaves, sends and receives in several threads on one socket.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn threads_join_and_leave_concurrently() {
    let before = objects();
    let (member, other) = (socket(roce(0)), socket(roce(0)));
    let keeper = join(&member, group(30), Membership::Full);
    let others = join(&other, group(30), Membership::SendOnly);
    thread::scope(|scope| {
        let joiners = [31, 32, 33].map(|number| {
            let member = &member;
            scope.spawn(move || {
                for round in 0..30 {
                    let joined = join(member, group(number), Membership::Full);
                    match round % 2 {
                        0 => drop(joined),
                        _ => joined.leave().expect("leave"),
                    }
                }
            })
        });
        for number in 0..100_u8 {
            send(&other, &others, &[number]);
            receives(&member, &[number]);
        }
        joiners.into_iter().for_each(|joiner| joiner.join().expect("joiner should not panic"));
    });
    assert_eq!(address(&member).ip(), roce(0).ip());
    drop((keeper, others, member, other));
    assert_eq!(objects(), before);
}
