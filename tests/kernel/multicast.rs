//! Multicast groups: their members, and the objects that remain after a leave.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::mpsc;
use std::thread;

use rdmacm::cm::{CmId, Event, EventChannel, EventType, Membership, PortSpace};
use rdmacm::device::Gid;
use rdmacm::verbs::{
    AddressHandle, CompletionQueue, Destination, GRH_LENGTH, ProtectionDomain, QueuePairCaps,
    QueuePairInit, SendFlags, SendOperation,
};
use rdmacm::verbs_abi::ib_uverbs_ah_attr;
use rdmacm::{ErrorKind, Result};
use rdmacm_tests::wait_until;

use crate::child::in_child;
use crate::fixtures::{
    LONG, Side, assert_invalid, channel, device, ids, objects, resolve, roce, roce_end, roce_name,
};
use crate::io::{Io, Shape};
use crate::netdev::ip;

/// Returns a multicast group for one test. Each test has its own groups, because all tests run on one kernel.
fn group(number: u8) -> SocketAddr {
    ([239, 1, 2, number], 0).into()
}

fn gid(group: SocketAddr) -> Gid {
    match group {
        SocketAddr::V4(v4) => v4.ip().to_ipv6_mapped().into(),
        SocketAddr::V6(v6) => (*v6.ip()).into(),
    }
}

/// Returns an id for datagrams that is bound to the RoCE device.
fn bound(channel: &EventChannel) -> CmId {
    let id = CmId::new(channel, PortSpace::Udp).expect("create an id");
    id.bind(roce(0)).expect("bind");
    id
}

/// Creates a side with a queue pair and with posted receives.
fn side(channel: &EventChannel) -> Side {
    let side = Side::new(bound(channel), Shape::default());
    for wr_id in 0..4 {
        side.io.receive(wr_id, 0..GRH_LENGTH + 100).expect("post a receive");
    }
    side
}

/// Joins `group`, and waits for the event.
fn join(channel: &EventChannel, id: &CmId, group: SocketAddr, membership: Membership) -> Event {
    id.join_multicast(group, membership).expect("join");
    let event =
        channel.expect_event(EventType::MulticastJoin).expect("the id should join the group");
    assert_eq!((event.token(), event.multicast()), (id.token(), Some(group.into())));
    event
}

/// Returns the destination of datagrams to the group from `io`, as `event` reports it.
fn handle(io: &Io, event: &Event) -> (AddressHandle, u32, u32) {
    let to = event.datagram().expect("the event should have a destination");
    let handle = AddressHandle::new(io.qp().pd(), &to.ah_attr).expect("address handle");
    (handle, to.qp_num, to.qkey)
}

/// Sends `number` to the group.
///
/// The send is unsignaled, because the sender may also wait for a receive on the same queue.
fn send(io: &Io, (handle, qp_num, qkey): &(AddressHandle, u32, u32), number: u32) {
    let destination = Destination { address: handle, qp_num: *qp_num, qkey: *qkey };
    let operation = SendOperation::SendTo { destination, imm_data: Some(number) };
    io.post(99, operation, 0..8, SendFlags::empty()).expect("post a send");
}

/// Receives the next datagram, and returns its number.
fn received(io: &Io) -> u32 {
    let done = io.next();
    assert!(done.is_success(), "{done:?}");
    assert_eq!(done.byte_len(), 48);
    done.imm_data().expect("a number")
}

fn errno<T>(result: Result<T>) -> Option<i32> {
    result.err().map(|error| error.errno())
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn datagrams_reach_full_members() {
    let channel = channel();
    let group = group(1);
    let [first, second, sender, stranger] = [(); 4].map(|()| side(&channel));
    for member in [&first, &second] {
        let event = join(&channel, &member.id, group, Membership::Full);
        let to = event.datagram().expect("the event should have a destination");
        assert_eq!((to.qp_num, to.qkey), (0xff_ffff, 0x0123_4567));
        assert_eq!((Gid(to.ah_attr.grh.dgid), to.ah_attr.dlid), (gid(group), 0));
    }
    let event = join(&channel, &sender.id, group, Membership::SendOnly);
    let to = handle(&sender.io, &event);
    send(&sender.io, &to, 1);
    assert_eq!([received(&first.io), received(&second.io)], [1, 1]);
    // A member that leaves receives no further messages, but the other members do.
    first.id.leave_multicast(group).expect("leave");
    send(&sender.io, &to, 2);
    assert_eq!(received(&second.io), 2);
    for other in [&first, &sender, &stranger] {
        assert_eq!(other.io.polled(), None);
        let error = other
            .io
            .qp()
            .detach_multicast(gid(group), 0)
            .expect_err("the queue pair should not be attached");
        assert_eq!(error.errno(), libc::EINVAL);
    }
    // A full member also sends, and receives its own datagrams.
    let event = join(&channel, &first.id, group, Membership::Full);
    let to = handle(&first.io, &event);
    send(&first.io, &to, 3);
    assert_eq!([received(&first.io), received(&second.io)], [3, 3]);
    drop(event);
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn group_needs_one_leave_per_join() {
    let channel = channel();
    let (once, twice) = (group(2), group(3));
    let member = side(&channel);
    let to = handle(&member.io, &join(&channel, &member.id, twice, Membership::Full));
    drop(join(&channel, &member.id, twice, Membership::Full));
    drop(join(&channel, &member.id, once, Membership::Full));
    member.id.leave_multicast(once).expect("leave");
    member.id.leave_multicast(twice).expect("leave");
    send(&member.io, &to, 7);
    assert_eq!(received(&member.io), 7, "the member should still be in the group");
    member.id.leave_multicast(twice).expect("leave");
    let error = member
        .io
        .qp()
        .detach_multicast(gid(twice), 0)
        .expect_err("the queue pair should not be attached");
    assert_eq!(error.errno(), libc::EINVAL);
    // An id that is in no group of that address cannot leave it.
    let other_port = ([239, 1, 2, 2], 1).into();
    for never in [once, twice, other_port, ([239, 9, 9, 9], 0).into()] {
        let error =
            member.id.leave_multicast(never).expect_err("the id should not be in the group");
        assert_eq!(error.errno(), libc::EADDRNOTAVAIL);
        assert!(error.to_string().contains("has not joined"), "{error}");
    }
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn impossible_joins_are_refused() {
    let channel = channel();
    let (full, group) = (Membership::Full, group(4));
    let fresh = CmId::new(&channel, PortSpace::Udp).expect("create an id");
    assert_eq!(errno(fresh.join_multicast(group, full)), Some(libc::EINVAL), "no device");
    fresh.bind(([0, 0, 0, 0], 0)).expect("bind");
    assert_eq!(errno(fresh.join_multicast(group, full)), Some(libc::EINVAL), "no device");
    let connected = resolve(&channel, roce(7199));
    let error =
        connected.join_multicast(group, full).expect_err("an id for connections should not join");
    assert_invalid(&error, &["join the multicast group 239.1.2.4:0", "connections"]);
    let listener = bound(&channel);
    listener.listen(1).expect("listen");
    assert_eq!(
        errno(listener.join_multicast(group, full)),
        Some(libc::EINVAL),
        "the id should listen"
    );
    let id = bound(&channel);
    assert_eq!(errno(id.join_multicast(([0, 0, 0, 0], 0), full)), Some(libc::EINVAL));
    // The errno is the kernel's ENOTSUPP, which has no name in user space.
    let v6: SocketAddr = "[ff0e::1]:0".parse().expect("an address");
    assert_eq!(errno(id.join_multicast(v6, full)), Some(524));
    // No failed call has joined a group.
    for group in [group, v6, ([0, 0, 0, 0], 0).into()] {
        assert_eq!(errno(id.leave_multicast(group)), Some(libc::EADDRNOTAVAIL));
    }
    drop(join(&channel, &id, group, full));
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn external_queue_pair_is_attached_by_program() {
    let channel = channel();
    let group = group(5);
    let id = bound(&channel);
    let event = join(&channel, &id, group, Membership::Full);
    // The queue pair is created after the event was read, so no call has attached it.
    let io = Io::new(&id, Shape::default());
    assert_eq!(errno(io.qp().detach_multicast(gid(group), 0)), Some(libc::EINVAL));
    io.qp().attach_multicast(gid(group), 0).expect("attach");
    io.qp().attach_multicast(gid(group), 0).expect("a second call should have no effect");
    io.receive(1, 0..100).expect("post a receive");
    let to = handle(&io, &event);
    send(&io, &to, 5);
    assert_eq!(received(&io), 5);
    // The kernel does not destroy an attached queue pair, and the id has no record of the attachment.
    id.destroy_qp();
    let qp = io.qp().clone();
    drop(io);
    let (qp, error) = qp.destroy().expect_err("the queue pair should be attached").into_parts();
    assert_eq!(error.errno(), libc::EBUSY);
    let error = qp.attach_multicast(gid(roce(0)), 0).expect_err("the GID should be of no group");
    assert_eq!(error.errno(), libc::EINVAL);
    qp.detach_multicast(gid(group), 0).expect("detach");
    qp.destroy().expect("destroy");
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn failed_attach_is_error() {
    let channel = channel();
    let member = side(&channel);
    // The kernel joins an address that is no multicast group, and then refuses to attach the queue pair to it.
    let address = roce(0);
    member.id.join_multicast(address, Membership::Full).expect("join");
    let event = channel.get_event().expect("an event");
    assert_eq!(
        (event.event_type(), event.multicast()),
        (EventType::MulticastError, Some(address.into()))
    );
    assert_eq!(event.status(), -libc::EINVAL);
    let error = event.error_for(EventType::MulticastJoin).expect("a failure");
    assert_eq!(error.errno(), libc::EINVAL);
    drop(event);
    member.id.leave_multicast(address).expect("leave");
    // A queue pair that only sends is not attached.
    drop(join(&channel, &member.id, address, Membership::SendOnly));
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn late_join_failure_is_event() {
    let address = Ipv4Addr::new(10, 0, 0, 77);
    let change = |verb| ip(&["address", verb, &format!("{address}/24"), "dev", roce_end()]);
    let channel = channel();
    let id = CmId::new(&channel, PortSpace::Udp).expect("create an id");
    change("add");
    wait_until("rxe0 has the address", || id.bind((address, 0)).is_ok());
    change("del");
    let group = group(6);
    let is_gone = || {
        let mut gids = device(roce_name()).port(1).expect("port").gids().expect("gids");
        !gids.any(|entry| entry.gid == Gid::from(address.to_ipv6_mapped()))
    };
    wait_until("rxe0 has lost the address", is_gone);
    id.join_multicast(group, Membership::Full).expect("join");
    let event = channel.get_event().expect("an event");
    assert_eq!((event.event_type(), event.status()), (EventType::MulticastError, 0));
    assert_eq!((event.token(), event.multicast()), (id.token(), Some(group.into())));
    assert!(event.datagram().is_none());
    drop(event);
    // The id must leave the group nevertheless.
    id.leave_multicast(group).expect("leave");
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn leave_and_destroy_wait_for_events() {
    let channel = channel();
    let group = group(7);
    let member = bound(&channel);
    let event = join(&channel, &member, group, Membership::Full);
    let error =
        member.leave_multicast(group).expect_err("the call should not wait for its own thread");
    assert!(matches!(error.kind(), ErrorKind::WouldDeadlock(_)), "{error:?}");
    let (member, error) =
        member.destroy().expect_err("the call should not wait for its own thread").into_parts();
    assert!(matches!(error.kind(), ErrorKind::WouldDeadlock(_)), "{error:?}");
    // Calls of another thread wait until the event is dropped.
    thread::scope(|scope| {
        let (left, returned) = mpsc::channel();
        let member = &member;
        scope.spawn(move || left.send(member.leave_multicast(group)));
        wait_until("the group is being left", || {
            errno(member.leave_multicast(group)) == Some(libc::EADDRNOTAVAIL)
        });
        for _ in 0..20 {
            objects();
            returned.try_recv().expect_err("the call should wait");
        }
        drop(event);
        returned.recv().expect("the call should return").expect("leave");
    });
    let event = join(&channel, &member, group, Membership::Full);
    let before = ids();
    thread::scope(|scope| {
        let (gone, returned) = mpsc::channel();
        scope.spawn(move || gone.send(member.destroy().map_err(|error| error.into_parts().1)));
        wait_until("the id is being destroyed", || ids() < before);
        for _ in 0..20 {
            objects();
            returned.try_recv().expect_err("the call should wait");
        }
        drop(event);
        returned.recv().expect("the call should return").expect("destroy");
    });
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn early_leave_cancels_join() {
    let channel = channel();
    let member = side(&channel);
    for number in 0..20 {
        let group = group(10 + number);
        member.id.join_multicast(group, Membership::Full).expect("join");
        member.id.leave_multicast(group).expect("leave");
        assert_eq!(errno(member.io.qp().detach_multicast(gid(group), 0)), Some(libc::EINVAL));
    }
    // The left groups cause no event. The next event belongs to another id.
    let other = bound(&channel);
    drop(join(&channel, &other, group(9), Membership::SendOnly));
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn leave_is_safe_while_events_are_read() {
    let (ours, rounds) = (channel(), 100);
    let member = side(&ours);
    // The reader ends when this id is destroyed.
    let last = bound(&ours);
    let mut still_attached = Vec::new();
    thread::scope(|scope| {
        let reader = scope.spawn(|| {
            loop {
                let event = ours.get_event().expect("an event");
                if event.token() == last.token() {
                    return;
                }
                assert_eq!(event.token(), member.id.token());
            }
        });
        for number in 0..rounds {
            let group = group(40 + number);
            member.id.join_multicast(group, Membership::Full).expect("join");
            for _ in 0..number {
                thread::yield_now();
            }
            member.id.leave_multicast(group).expect("leave");
            if errno(member.io.qp().detach_multicast(gid(group), 0)) != Some(libc::EINVAL) {
                still_attached.push(number);
            }
        }
        last.join_multicast(group(8), Membership::SendOnly).expect("join");
        reader.join().expect("reader should not panic");
    });
    assert_eq!(still_attached, [0; 0]);
    member.id.destroy().expect("every event should be acknowledged");
}

/// Drops the events of `channel` until an event of `last` arrives.
fn read_until(channel: &EventChannel, last: &CmId) {
    while channel.get_event().expect("an event").token() != last.token() {}
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn threads_join_and_leave_same_group() {
    let (ours, group) = (channel(), group(161));
    let (member, last) = (bound(&ours), bound(&ours));
    thread::scope(|scope| {
        let reader = scope.spawn(|| read_until(&ours, &last));
        let members = [(); 3].map(|()| {
            scope.spawn(|| {
                for _ in 0..500 {
                    member.join_multicast(group, Membership::Full).expect("join");
                    member.leave_multicast(group).expect("leave");
                }
            })
        });
        for thread in members {
            thread.join().expect("thread should not panic");
        }
        last.join_multicast(group, Membership::SendOnly).expect("join");
        reader.join().expect("reader should not panic");
    });
    assert_eq!(errno(member.leave_multicast(group)), Some(libc::EADDRNOTAVAIL));
    member.destroy().expect("every event should be acknowledged");
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn leave_and_join_of_same_group_may_overlap() {
    let (ours, group) = (channel(), group(162));
    let (member, last) = (side(&ours), bound(&ours));
    for round in 0..100 {
        for _ in 0..2 {
            member.id.join_multicast(group, Membership::Full).expect("join");
        }
        thread::scope(|scope| {
            let reader = scope.spawn(|| read_until(&ours, &last));
            for _ in 0..round {
                thread::yield_now();
            }
            member.id.leave_multicast(group).expect("leave");
            last.join_multicast(group, Membership::SendOnly).expect("join");
            reader.join().expect("reader should not panic");
        });
        last.leave_multicast(group).expect("leave");
        member.io.qp().detach_multicast(gid(group), 0).expect("the queue pair should be attached");
        member.id.leave_multicast(group).expect("leave");
    }
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn id_destroy_leaves_its_groups_only() {
    let channel = channel();
    let keeper = side(&channel);
    let before = objects();
    for round in 0..40 {
        let id = bound(&channel);
        let context = id.context().expect("context");
        let pd = ProtectionDomain::new(&context).expect("protection domain");
        let cq = CompletionQueue::new(&context, 4, None).expect("completion queue");
        let caps = QueuePairCaps::default();
        let init = QueuePairInit { caps, ..QueuePairInit::new(&cq) };
        let qp = id.create_qp(&pd, &init).expect("queue pair");
        let joined = join(&channel, &id, group(150), Membership::Full);
        drop(join(&channel, &id, group(151), Membership::SendOnly));
        // The event of the last join stays unread.
        id.join_multicast(group(152), Membership::Full).expect("join");
        if round % 4 < 2 {
            // The id has no record of the attachment to this group.
            qp.attach_multicast(gid(group(153)), 0).expect("attach");
        }
        match round % 4 {
            // The program drops its handle of the queue pair last, or earlier.
            0 => drop((joined, id, qp)),
            1 => drop((qp, id, joined)),
            2 => {
                drop(joined);
                id.destroy().expect("destroy");
                qp.destroy().expect("the queue pair should be in no group");
            }
            _ => {
                id.destroy_qp();
                qp.destroy().expect("the queue pair should be in no group");
                drop(joined);
                id.leave_multicast(group(150)).expect("leave");
                id.destroy().expect("destroy");
            }
        }
        cq.destroy().expect("the object should be unused");
        pd.destroy().expect("the object should be unused");
    }
    assert_eq!(objects(), before);
    drop(keeper);
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn resolving_group_address_finds_device() {
    let channel = channel();
    let id = CmId::new(&channel, PortSpace::Udp).expect("create an id");
    let group = group(160);
    let source = Some(roce(0).into());
    id.resolve_addr(source, group, LONG).expect("resolve the address");
    channel.expect_event(EventType::AddrResolved).expect("the address should be resolved");
    assert_eq!(id.context().expect("context").device().name(), roce_name());
    let event = join(&channel, &id, group, Membership::Full);
    assert_eq!(
        Gid(event.datagram().expect("the event should have a destination").ah_attr.grh.dgid),
        gid(group)
    );
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn forked_child_cannot_leave_groups() {
    let channel = channel();
    let group = group(170);
    let member = side(&channel);
    let event = join(&channel, &member.id, group, Membership::Full);
    let to = handle(&member.io, &event);
    drop(event);
    let before = objects();
    in_child(|| {
        let (qp, gid) = (member.io.qp(), gid(group));
        let attributes = ib_uverbs_ah_attr::default();
        for refused in [
            member.id.join_multicast(group, Membership::Full),
            member.id.leave_multicast(group),
            qp.attach_multicast(gid, 0),
            qp.detach_multicast(gid, 0),
            AddressHandle::new(qp.pd(), &attributes).map(drop),
        ] {
            let error = refused.expect_err("the object should belong to the parent");
            assert!(matches!(error.kind(), ErrorKind::NotOwner(_)), "{error:?}");
        }
        member.id.destroy_qp();
    });
    assert_eq!(objects(), before);
    send(&member.io, &to, 1);
    assert_eq!(received(&member.io), 1);
    member.id.leave_multicast(group).expect("leave");
}
