//! Checks of ids with a device: events, listeners, requests, groups.

use std::mem::offset_of;

use nix::libc::{EADDRINUSE, EINVAL, EISCONN, ENOENT};
use ucma_abi::rdma_cm_event_type as Type;
use ucma_abi::{RDMA_PS_TCP, RDMA_PS_UDP};
use verbs_abi::{ib_event_type, ib_qp_attr_mask, ib_uverbs_qp_attr};

use super::super::bench::{Bench, check_equal, u32_at};
use super::super::check::{Check, CheckError, Needs};
use super::super::kernel::Outcome::{Done, Errno};
use super::connection_steps::{Steps, UID, take_request};
use super::request::{self, Event, UNUSED_QPN, sockaddr, with_port_of};
use super::scenario;

/// Maximum length of private data on siw, in bytes.
///
/// siw stores the length, with 4 bytes of its own, in one byte, which wraps to 0.
const SIW_MAX_PRIVATE_DATA: u8 = 251;

pub(super) fn checks() -> Vec<Check> {
    let all = |id, shows, source, run| scenario(id, shows, source, Needs::Device, run);
    vec![
        all("id.reuse", "a free handle is reused", "ucma_alloc_ctx", reused_handle),
        all(
            "create_id.response.lost",
            "an id whose handle cannot be stored is destroyed",
            "ucma_create_id",
            nothing_left_over,
        ),
        all(
            "bind.device",
            "binding to an address of a device assigns the device",
            "ucma_query_addr",
            bound,
        ),
        all("bind.in_use", "a port is bound only once", "cma.c cma_use_port", port_in_use),
        all(
            "resolve_route.timeout",
            "a route cannot be resolved with a timeout of 0",
            "cma.c rdma_resolve_route",
            no_time,
        ),
        all(
            "event.uid",
            "an event contains uid and handle of its id",
            "ucma_create_uevent",
            uid_echoed,
        ),
        all(
            "event.uid.zero",
            "events of an id whose uid is 0 are dropped",
            "ucma_event_handler",
            no_uid_no_events,
        ),
        all(
            "event.counted",
            "DESTROY_ID returns the number of received events",
            "ucma_cleanup_ctx_events",
            events_counted,
        ),
        all(
            "event.dropped",
            "pending events are dropped with their id",
            "ucma_cleanup_ctx_events",
            events_dropped,
        ),
        all(
            "event.response.short",
            "an event stays pending if it does not fit, or cannot be stored",
            "ucma_get_event",
            event_stays,
        ),
        all("migrate_id.events", "events are moved with their id", "ucma_migrate_id", events_move),
        all(
            "migrate_id.counted",
            "MIGRATE_ID returns the number of received events, and does not reset it",
            "ucma_migrate_id",
            count_moves,
        ),
        all(
            "request.uid",
            "a request has the uid of the listener and the handle of a new id; its rejection is sent to the peer",
            "ucma_connect_event_handler",
            request_answered,
        ),
        all(
            "request.dropped",
            "pending requests are dropped with their listener",
            "ucma_cleanup_ctx_events",
            request_dropped,
        ),
        all(
            "request.taken",
            "a received request outlives its listener, which counts it",
            "ucma_cleanup_ctx_events",
            request_outlives,
        ),
        all(
            "connect.private_data",
            "a request has at most 56 bytes of private data; on siw 251",
            "cm.c ib_send_cm_req, siw_cm.c siw_send_mpareqrep",
            private_data_of_a_request,
        ),
        all(
            "reject.private_data",
            "a rejection has at most 148 bytes of private data; on siw 251",
            "cm.c ib_send_cm_rej, siw_cm.c siw_send_mpareqrep",
            private_data_of_a_rejection,
        ),
        all(
            "listen.backlog",
            "a request for datagrams beyond the backlog is rejected, and receiving one makes room",
            "ucma_connect_event_handler",
            backlog,
        ),
        all(
            "accept.connection",
            "an accepted connection assigns the new id its uid, and ends when either side disconnects",
            "ucma_accept, ucma_disconnect",
            connection,
        ),
        all(
            "init_qp_attr.device",
            "an id with a device has attributes for a queue pair, in a response of one length",
            "ucma_init_qp_attr",
            attributes,
        ),
        all(
            "notify.event",
            "an early message establishes a connection; iWARP ignores it",
            "cma.c rdma_notify, cm.c ib_cm_notify",
            notified,
        ),
        all(
            "bind_ip.device",
            "the older command also binds to an address of a device",
            "ucma_bind_ip",
            bound_as_of_old,
        ),
        all(
            "resolve_ip.device",
            "the older command also resolves an address of a device",
            "ucma_resolve_ip",
            resolved_as_of_old,
        ),
        all(
            "join_ip_mcast.group",
            "the older command also joins a group",
            "ucma_join_ip_multicast",
            joined_as_of_old,
        ),
        all(
            "join_mcast.group",
            "a group has its own handle and uid, which its events contain",
            "ucma_process_join",
            group,
        ),
    ]
}

fn reused_handle(bench: &mut Bench<'_>) -> Steps {
    bench.address()?;
    let channel = bench.channel()?;
    let first = bench.create(channel, RDMA_PS_TCP, 1)?;
    check_equal("the number of events", bench.destroy(channel, first)?, 0)?;
    let second = bench.create(channel, RDMA_PS_TCP, 1)?;
    check_equal("the handle", second, first)
}

fn nothing_left_over(bench: &mut Bench<'_>) -> Steps {
    bench.address()?;
    let channel = bench.channel()?;
    let first = bench.create(channel, RDMA_PS_TCP, 1)?;
    check_equal("the number of events", bench.destroy(channel, first)?, 0)?;
    let call = request::with_invalid_response(request::create(RDMA_PS_TCP, 1));
    bench.expect("CREATE_ID", channel, &call, Errno(nix::libc::EFAULT))?;
    let second = bench.create(channel, RDMA_PS_TCP, 1)?;
    check_equal("the handle", second, first)
}

fn bound(bench: &mut Bench<'_>) -> Steps {
    let address = bench.address()?;
    let channel = bench.channel()?;
    let id = bench.create(channel, RDMA_PS_TCP, 1)?;
    bench.expect("BIND", channel, &request::bind(id, &address), Done(0))?;
    let bound = bench.addresses(channel, id)?;
    check_equal("the existence of a GUID", bound.node_guid != 0, true)?;
    check_equal("the port of the device", bound.port_num, 1)?;
    let there = with_port_of(&address, &bound);
    check_equal("the address", &bound.source[..address.len()], &there[..])?;
    check_equal("the existence of a port", bound.source[2..4] != [0; 2], true)?;
    check_equal("the number of events", bench.destroy(channel, id)?, 0)
}

fn port_in_use(bench: &mut Bench<'_>) -> Steps {
    let channel = bench.channel()?;
    let (listener, address) = bench.listener(channel, RDMA_PS_TCP, 1)?;
    let id = bench.create(channel, RDMA_PS_TCP, 1)?;
    let bind = request::bind(id, &address);
    bench.expect("BIND", channel, &bind, Errno(EADDRINUSE))?;
    check_equal("the number of events", bench.destroy(channel, listener)?, 0)?;
    bench.expect("BIND", channel, &bind, Done(0))?;
    check_equal("the number of events", bench.destroy(channel, id)?, 0)
}

fn no_time(bench: &mut Bench<'_>) -> Steps {
    let address = bench.address()?;
    let channel = bench.channel()?;
    let id = bench.create_resolving(channel, RDMA_PS_TCP, UID, &address)?;
    bench.expect_event(channel, UID, id, Type::RDMA_CM_EVENT_ADDR_RESOLVED)?;
    let call = request::resolve_route(id, 0);
    bench.expect("RESOLVE_ROUTE", channel, &call, Errno(EINVAL))?;
    check_equal("the number of events", bench.destroy(channel, id)?, 1)
}

fn uid_echoed(bench: &mut Bench<'_>) -> Steps {
    let address = bench.address()?;
    let channel = bench.channel()?;
    for uid in [1, UID, u64::MAX] {
        let id = bench.create_resolving(channel, RDMA_PS_TCP, uid, &address)?;
        bench.expect_event(channel, uid, id, Type::RDMA_CM_EVENT_ADDR_RESOLVED)?;
    }
    bench.expect_no_event(channel)
}

fn no_uid_no_events(bench: &mut Bench<'_>) -> Steps {
    let address = bench.address()?;
    let channel = bench.channel()?;
    // Addresses are resolved in order.
    let silent = bench.create_resolving(channel, RDMA_PS_TCP, 0, &address)?;
    let id = bench.create_resolving(channel, RDMA_PS_TCP, UID, &address)?;
    bench.expect_event(channel, UID, id, Type::RDMA_CM_EVENT_ADDR_RESOLVED)?;
    bench.expect_no_event(channel)?;
    check_equal("the number of events", bench.destroy(channel, silent)?, 0)
}

fn events_counted(bench: &mut Bench<'_>) -> Steps {
    let address = bench.address()?;
    let channel = bench.channel()?;
    let id = bench.create_resolved(channel, RDMA_PS_TCP, UID, &address)?;
    check_equal("the number of events", bench.destroy(channel, id)?, 2)
}

fn events_dropped(bench: &mut Bench<'_>) -> Steps {
    let address = bench.address()?;
    let channel = bench.channel()?;
    let id = bench.create_resolving(channel, RDMA_PS_TCP, UID, &address)?;
    bench.wait("ADDR_RESOLVED", channel)?;
    check_equal("the number of events", bench.destroy(channel, id)?, 0)?;
    bench.expect_no_event(channel)
}

fn event_stays(bench: &mut Bench<'_>) -> Steps {
    let address = bench.address()?;
    let channel = bench.channel()?;
    let id = bench.create_resolving(channel, RDMA_PS_TCP, UID, &address)?;
    bench.wait("ADDR_RESOLVED", channel)?;
    let mut short = request::get_event();
    short.bytes[6..8].copy_from_slice(&323_u16.to_ne_bytes());
    bench.expect("GET_EVENT with little room", channel, &short, Errno(nix::libc::ENOSPC))?;
    let lost = request::with_invalid_response(request::get_event());
    bench.expect("GET_EVENT to nowhere", channel, &lost, Errno(nix::libc::EFAULT))?;
    let mut oldest = request::get_event();
    oldest.bytes[6..8].copy_from_slice(&324_u16.to_ne_bytes());
    let event = bench.expect("GET_EVENT of the oldest size", channel, &oldest, Done(324))?;
    check_equal("the uid", &event[..8], &UID.to_ne_bytes()[..])?;
    check_equal("the number of events", bench.destroy(channel, id)?, 1)
}

fn events_move(bench: &mut Bench<'_>) -> Steps {
    let address = bench.address()?;
    let (old, new) = (bench.channel()?, bench.channel()?);
    let id = bench.create_resolving(old, RDMA_PS_TCP, UID, &address)?;
    bench.wait("ADDR_RESOLVED", old)?;
    let call = request::migrate(id, bench.descriptor(old));
    let count = bench.expect("MIGRATE_ID", new, &call, Done(4))?;
    check_equal("the number of events", u32_at(&count, 0), 0)?;
    bench.expect_no_event(old)?;
    bench.expect_event(new, UID, id, Type::RDMA_CM_EVENT_ADDR_RESOLVED)?;
    check_equal("the number of events", bench.destroy(new, id)?, 1)
}

fn count_moves(bench: &mut Bench<'_>) -> Steps {
    let address = bench.address()?;
    let (old, new) = (bench.channel()?, bench.channel()?);
    let id = bench.create_resolving(old, RDMA_PS_TCP, UID, &address)?;
    bench.expect_event(old, UID, id, Type::RDMA_CM_EVENT_ADDR_RESOLVED)?;
    let call = request::migrate(id, bench.descriptor(old));
    let count = bench.expect("MIGRATE_ID", new, &call, Done(4))?;
    check_equal("the number of events", u32_at(&count, 0), 1)?;
    bench.expect("RESOLVE_ROUTE", new, &request::resolve_route(id, 10_000), Done(0))?;
    bench.expect_event(new, UID, id, Type::RDMA_CM_EVENT_ROUTE_RESOLVED)?;
    check_equal("the number of events", bench.destroy(new, id)?, 2)
}

fn request_answered(bench: &mut Bench<'_>) -> Steps {
    let (passive, active) = (bench.channel()?, bench.channel()?);
    let (listener, client) = bench.pending_request(passive, active)?;
    let new = take_request(bench, passive, listener, 56)?;
    bench.expect("REJECT", passive, &request::reject(new, b"no", 2), Done(0))?;
    let bytes = bench.expect_rejected(active, client)?;
    check_equal("the private data", &bytes[28..31], b"no\0")?;
    // InfiniBand's message has a fixed length.
    check_equal("its length", bytes[20 + 264], if bench.is_iwarp()? { 2 } else { 148 })?;
    check_equal("the number of events of the new id", bench.destroy(passive, new)?, 0)?;
    check_equal("the number of events of the listener", bench.destroy(passive, listener)?, 1)?;
    check_equal("the number of events of the client", bench.destroy(active, client)?, 3)
}

fn request_dropped(bench: &mut Bench<'_>) -> Steps {
    let (passive, active) = (bench.channel()?, bench.channel()?);
    let (listener, client) = bench.pending_request(passive, active)?;
    check_equal("the number of events", bench.destroy(passive, listener)?, 0)?;
    bench.expect_no_event(passive)?;
    bench.expect_rejected(active, client)?;
    check_equal("the number of events of the client", bench.destroy(active, client)?, 3)
}

fn request_outlives(bench: &mut Bench<'_>) -> Steps {
    let (passive, active) = (bench.channel()?, bench.channel()?);
    let (listener, client) = bench.pending_request(passive, active)?;
    let new = take_request(bench, passive, listener, 56)?;
    check_equal("the number of events", bench.destroy(passive, listener)?, 1)?;
    bench.expect("REJECT", passive, &request::reject(new, &[], 0), Done(0))?;
    bench.expect_rejected(active, client)?;
    check_equal("the number of events", bench.destroy(passive, new)?, 0)
}

fn connection(bench: &mut Bench<'_>) -> Steps {
    const PASSIVE: u64 = 3;
    let is_iwarp = bench.is_iwarp()?;
    let (passive, active) = (bench.channel()?, bench.channel()?);
    // The kernel remembers the queue pairs of a connection for some time, so each check uses new ones.
    let (asking, asked) = (bench.qp_number()?, bench.qp_number()?);
    let (listener, client) = bench.request_with_qp(passive, active, asking)?;
    let new = take_request(bench, passive, listener, 56)?;
    bench.expect("ACCEPT", passive, &request::accept(new, PASSIVE, Some(asked)), Done(0))?;
    if is_iwarp {
        bench.expect_event(active, 2, client, Type::RDMA_CM_EVENT_ESTABLISHED)?;
    } else {
        bench.expect_event(active, 2, client, Type::RDMA_CM_EVENT_CONNECT_RESPONSE)?;
        bench.expect(
            "ACCEPT of the response",
            active,
            &request::accept(client, 9, None),
            Done(0),
        )?;
    }
    bench.expect_event(passive, PASSIVE, new, Type::RDMA_CM_EVENT_ESTABLISHED)?;
    bench.expect("DISCONNECT", active, &request::disconnect(client), Done(0))?;
    bench.expect_event(passive, PASSIVE, new, Type::RDMA_CM_EVENT_DISCONNECTED)?;
    if !is_iwarp {
        bench.expect("DISCONNECT", passive, &request::disconnect(new), Done(0))?;
    }
    bench.expect_event(active, 2, client, Type::RDMA_CM_EVENT_DISCONNECTED)?;
    check_equal("the number of events of the new id", bench.destroy(passive, new)?, 2)?;
    check_equal("the number of events of the listener", bench.destroy(passive, listener)?, 1)
}

fn attributes(bench: &mut Bench<'_>) -> Steps {
    const INIT: u32 = 1;
    let address = bench.address()?;
    let channel = bench.channel()?;
    let id = bench.create(channel, RDMA_PS_TCP, UID)?;
    let call = request::init_qp_attr(id, INIT);
    bench.expect("INIT_QP_ATTR without a device", channel, &call, Errno(EINVAL))?;
    bench.expect("BIND", channel, &request::bind(id, &address), Done(0))?;
    let size = size_of::<ib_uverbs_qp_attr>();
    let answer = bench.expect("INIT_QP_ATTR", channel, &call, Done(size))?;
    let mask = u32_at(&answer, offset_of!(ib_uverbs_qp_attr, qp_attr_mask));
    let (state, port) = (ib_qp_attr_mask::IB_QP_STATE, ib_qp_attr_mask::IB_QP_PORT);
    let both = (state | port).bits();
    check_equal("the presence of state and port", mask & both, both)?;
    check_equal("the state", u32_at(&answer, offset_of!(ib_uverbs_qp_attr, qp_state)), INIT)?;
    check_equal("the port", answer[offset_of!(ib_uverbs_qp_attr, port_num)], 1)?;
    check_equal("the number of events", bench.destroy(channel, id)?, 0)
}

fn notified(bench: &mut Bench<'_>) -> Steps {
    const NOTHING: u32 = 0xff;
    const COMM_EST: u32 = ib_event_type::IB_EVENT_COMM_EST.0;
    let is_iwarp = bench.is_iwarp()?;
    let (passive, active) = (bench.channel()?, bench.channel()?);
    let (asking, asked) = (bench.qp_number()?, bench.qp_number()?);
    let (listener, _) = bench.request_with_qp(passive, active, asking)?;
    let new = take_request(bench, passive, listener, 56)?;
    bench.expect("ACCEPT", passive, &request::accept(new, 3, Some(asked)), Done(0))?;
    let mut notify = |what, event, answer| {
        bench.expect(what, passive, &request::notify(new, event), answer).map(drop)
    };
    if is_iwarp {
        notify("NOTIFY of nothing", NOTHING, Done(0))?;
        return notify("NOTIFY", COMM_EST, Done(0));
    }
    notify("NOTIFY of nothing", NOTHING, Errno(EINVAL))?;
    notify("NOTIFY", COMM_EST, Done(0))?;
    notify("NOTIFY again", COMM_EST, Errno(EISCONN))?;
    bench.expect_event(passive, 3, new, Type::RDMA_CM_EVENT_ESTABLISHED)
}

fn bound_as_of_old(bench: &mut Bench<'_>) -> Steps {
    let address = bench.address()?;
    let channel = bench.channel()?;
    let id = bench.create(channel, RDMA_PS_TCP, UID)?;
    bench.expect("BIND_IP", channel, &request::bind_ip(id, &address), Done(0))?;
    let bound = bench.addresses(channel, id)?;
    check_equal("the port of the device", bound.port_num, 1)?;
    let there = with_port_of(&address, &bound);
    check_equal("the address", &bound.source[..address.len()], &there[..])?;
    check_equal("the number of events", bench.destroy(channel, id)?, 0)
}

fn resolved_as_of_old(bench: &mut Bench<'_>) -> Steps {
    let address = bench.address()?;
    let channel = bench.channel()?;
    let id = bench.create(channel, RDMA_PS_TCP, UID)?;
    bench.expect("RESOLVE_IP", channel, &request::resolve_ip(id, &address), Done(0))?;
    bench.expect_event(channel, UID, id, Type::RDMA_CM_EVENT_ADDR_RESOLVED)?;
    check_equal("the port of the device", bench.addresses(channel, id)?.port_num, 1)?;
    check_equal("the number of events", bench.destroy(channel, id)?, 1)
}

fn joined_as_of_old(bench: &mut Bench<'_>) -> Steps {
    bench.has_datagrams()?;
    let address = bench.address()?;
    let channel = bench.channel()?;
    let id = bench.create(channel, RDMA_PS_UDP, 1)?;
    bench.expect("BIND", channel, &request::bind(id, &address), Done(0))?;
    let join = request::join_ip(id, UID, &sockaddr([239, 1, 1, 1].into()));
    let group = u32_at(&bench.expect("JOIN_IP_MCAST", channel, &join, Done(4))?, 0);
    bench.expect_event(channel, UID, group, Type::RDMA_CM_EVENT_MULTICAST_JOIN)?;
    let count = bench.expect("LEAVE_MCAST", channel, &request::leave(group), Done(4))?;
    check_equal("the number of events of the group", u32_at(&count, 0), 1)?;
    check_equal("the number of events of the id", bench.destroy(channel, id)?, 1)
}

fn private_data_of_a_request(bench: &mut Bench<'_>) -> Steps {
    let is_iwarp = bench.is_iwarp()?;
    let qp_num = bench.qp_number_for_connect()?;
    let (passive, active) = (bench.channel()?, bench.channel()?);
    let (listener, to) = bench.listener(passive, RDMA_PS_TCP, 8)?;
    let client = bench.create_resolved(active, RDMA_PS_TCP, 2, &to)?;
    let connect = |length| request::connect(client, qp_num, length);
    let most = if is_iwarp { SIW_MAX_PRIVATE_DATA } else { 56 };
    if !is_iwarp {
        bench.expect("CONNECT with 57 bytes", active, &connect(57), Errno(EINVAL))?;
    }
    bench.expect("CONNECT with the most bytes", active, &connect(most), Done(0))?;
    take_request(bench, passive, listener, most).map(drop)
}

fn private_data_of_a_rejection(bench: &mut Bench<'_>) -> Steps {
    let is_iwarp = bench.is_iwarp()?;
    let (passive, active) = (bench.channel()?, bench.channel()?);
    let (listener, client) = bench.pending_request(passive, active)?;
    let new = take_request(bench, passive, listener, 56)?;
    let most = if is_iwarp { SIW_MAX_PRIVATE_DATA } else { 148 };
    let reject = |length| request::reject(new, &vec![9; usize::from(most) + 1], length);
    if !is_iwarp {
        bench.expect("REJECT with 149 bytes", passive, &reject(149), Errno(EINVAL))?;
    }
    bench.expect("REJECT with the most bytes", passive, &reject(most), Done(0))?;
    let bytes = bench.expect_rejected(active, client)?;
    let length = usize::from(most);
    check_equal("the private data", &bytes[28..28 + length], &vec![9; length][..])
}

fn backlog(bench: &mut Bench<'_>) -> Steps {
    bench.has_datagrams()?;
    let (passive, active) = (bench.channel()?, bench.channel()?);
    let (_, to) = bench.listener(passive, RDMA_PS_UDP, 1)?;
    let ask = |bench: &mut Bench<'_>, uid| {
        let client = bench.create_resolved(active, RDMA_PS_UDP, uid, &to)?;
        bench.expect("CONNECT", active, &request::connect(client, UNUSED_QPN, 0), Done(0))?;
        Ok::<_, CheckError>(client)
    };
    ask(bench, 2)?;
    bench.wait("the request", passive)?;
    let second = ask(bench, 3)?;
    let (event, _) = bench.event(active)?;
    let refused = Type::RDMA_CM_EVENT_UNREACHABLE;
    check_equal("the event", event, Event { uid: 3, id: second, event: refused, status: 2 })?;
    let is_a_request = |bench: &mut Bench<'_>| {
        let (event, _) = bench.event(passive)?;
        let request = Type::RDMA_CM_EVENT_CONNECT_REQUEST;
        check_equal("uid and event", (event.uid, event.event), (UID, request))?;
        check_equal(
            "the port of the new id's device",
            bench.addresses(passive, event.id)?.port_num,
            1,
        )
    };
    is_a_request(bench)?;
    ask(bench, 4)?;
    is_a_request(bench)
}

fn group(bench: &mut Bench<'_>) -> Steps {
    bench.has_datagrams()?;
    let address = bench.address()?;
    let (channel, other) = (bench.channel()?, bench.channel()?);
    let id = bench.create(channel, RDMA_PS_UDP, 1)?;
    let to = sockaddr([239, 1, 1, 1].into());
    let join = request::join(id, UID, &to);
    bench.expect("JOIN_MCAST without a device", channel, &join, Errno(EINVAL))?;
    bench.expect("BIND", channel, &request::bind(id, &address), Done(0))?;
    let group = u32_at(&bench.expect("JOIN_MCAST", channel, &join, Done(4))?, 0);
    bench.expect_event(channel, UID, group, Type::RDMA_CM_EVENT_MULTICAST_JOIN)?;
    let leave = request::leave(group);
    bench.expect("LEAVE_MCAST by another channel", other, &leave, Errno(EINVAL))?;
    let count = bench.expect("LEAVE_MCAST", channel, &leave, Done(4))?;
    check_equal("the number of events of the group", u32_at(&count, 0), 1)?;
    bench.expect("LEAVE_MCAST again", channel, &leave, Errno(ENOENT))?;
    check_equal("the number of events of the id", bench.destroy(channel, id)?, 1)
}
