//! Checks of ids without a device.

use nix::libc::{AF_INET, EFAULT, EINVAL, ENOENT, ENOSYS};
use ucma_abi::*;

use super::super::bench::{Bench, check_equal};
use super::super::check::{Check, CheckError, Needs};
use super::super::kernel::Outcome::{Done, Errno};
use super::super::kernel::{Call, File};
use super::request::{self, RESPONSE_AT_START, sockaddr, write};
use super::scenario;

/// A handle that no id has ever had.
const UNKNOWN_HANDLE: u32 = 0x7fff_fff0;

type Steps = Result<(), CheckError>;

pub(super) fn checks() -> Vec<Check> {
    let safe = |id, shows, source, run| scenario(id, shows, source, Needs::Nothing, run);
    vec![
        safe("header.empty", "an empty write is rejected", "ucma_write", nothing_written),
        safe(
            "create_id.port_space",
            "each port space is accepted, and no other number",
            "ucma_get_qp_type",
            port_spaces,
        ),
        safe(
            "id.handles",
            "simultaneous ids have different handles, on all channels",
            "ucma_alloc_ctx",
            handles,
        ),
        safe("channel.close", "closing a channel destroys its ids", "ucma_close", closed_channel),
        safe(
            "destroy_id.response.lost",
            "an id is destroyed even if its response cannot be stored",
            "ucma_destroy_id",
            destroyed_without_response,
        ),
        safe(
            "migrate_id.response.lost",
            "an id is moved even if the response cannot be stored",
            "ucma_migrate_id",
            moved_without_response,
        ),
        safe(
            "migrate_id.owner",
            "a moved id belongs to the new channel, and the old one rejects it",
            "ucma_migrate_id",
            owner_after_migration,
        ),
        safe(
            "migrate_id.descriptor",
            "the old channel must be an open channel",
            "ucma_migrate_id",
            migration_from_nowhere,
        ),
        safe(
            "bind.address",
            "an address has exactly the length of its family",
            "ucma_bind",
            lengths_of_addresses,
        ),
        safe("bind.twice", "an id can be bound only once", "cma.c rdma_bind_addr_dst", bound_twice),
        safe(
            "bind.wildcard",
            "binding to the wildcard address assigns a port, and no device",
            "ucma_query_addr",
            bound_to_every_address,
        ),
        safe(
            "resolve_addr.address",
            "addresses have exactly the lengths of their families, and there is a destination",
            "ucma_resolve_addr",
            lengths_of_destinations,
        ),
        safe(
            "connect.invalid",
            "invalid parameters are rejected before the handle is looked up",
            "ucma_connect",
            invalid_parameters,
        ),
        safe("reject.reason", "only the reasons 0, 28 and 35 are accepted", "ucma_reject", reasons),
        safe(
            "init_qp_attr.state",
            "states beyond ERR are rejected before the handle is looked up",
            "ucma_init_qp_attr",
            states,
        ),
        safe(
            "set_option.length",
            "a value has exactly the length of its option",
            "ucma_set_option_id",
            lengths_of_options,
        ),
        safe(
            "set_option.unknown",
            "unknown options and levels are rejected",
            "ucma_set_option_level",
            unknown_options,
        ),
        safe(
            "set_option.ack_timeout",
            "the ACK timeout is accepted only for reliable connections",
            "cma.c rdma_set_ack_timeout",
            ack_timeout,
        ),
        safe(
            "event.user",
            "a written event is delivered (Linux 6.18)",
            "ucma_write_cm_event",
            user_event,
        ),
    ]
}

fn nothing_written(bench: &mut Bench<'_>) -> Steps {
    let channel = bench.channel()?;
    let call = Call::write(Vec::new());
    bench.expect("an empty write", channel, &call, Errno(EINVAL)).map(drop)
}

fn port_spaces(bench: &mut Bench<'_>) -> Steps {
    let channel = bench.channel()?;
    for ps in [RDMA_PS_TCP, RDMA_PS_UDP, RDMA_PS_IPOIB, RDMA_PS_IB] {
        let id = bench.create(channel, ps, 1)?;
        check_equal("the number of events", bench.destroy(channel, id)?, 0)?;
    }
    for ps in [0, 0x107, u16::MAX] {
        let call = request::create(ps, 1);
        bench.expect("CREATE_ID of no port space", channel, &call, Errno(EINVAL))?;
    }
    Ok(())
}

fn handles(bench: &mut Bench<'_>) -> Steps {
    let (one, other) = (bench.channel()?, bench.channel()?);
    let mut seen = Vec::new();
    for channel in [one, other, one, other] {
        let id = bench.create(channel, RDMA_PS_TCP, 1)?;
        check_equal("reuse of a handle in use", seen.contains(&id), false)?;
        seen.push(id);
        check_equal("the GUID", bench.addresses(channel, id)?.node_guid, 0)?;
    }
    for (id, channel) in seen.into_iter().zip([one, other, one, other]) {
        check_equal("the number of events", bench.destroy(channel, id)?, 0)?;
    }
    Ok(())
}

fn closed_channel(bench: &mut Bench<'_>) -> Steps {
    let (one, other) = (bench.channel()?, bench.channel()?);
    let id = bench.create(other, RDMA_PS_TCP, 1)?;
    let query = request::query_addr(id);
    bench.expect("QUERY of a foreign id", one, &query, Errno(EINVAL))?;
    bench.close(other);
    bench.expect("QUERY of an id whose channel is closed", one, &query, Errno(ENOENT)).map(drop)
}

fn destroyed_without_response(bench: &mut Bench<'_>) -> Steps {
    let channel = bench.channel()?;
    let id = bench.create(channel, RDMA_PS_TCP, 1)?;
    let call = request::with_invalid_response(request::destroy(id));
    bench.expect("DESTROY_ID", channel, &call, Errno(EFAULT))?;
    bench.expect("DESTROY_ID again", channel, &request::destroy(id), Errno(ENOENT)).map(drop)
}

fn moved_without_response(bench: &mut Bench<'_>) -> Steps {
    let (old, new) = (bench.channel()?, bench.channel()?);
    let id = bench.create(old, RDMA_PS_TCP, 1)?;
    let call = request::with_invalid_response(request::migrate(id, bench.descriptor(old)));
    bench.expect("MIGRATE_ID", new, &call, Errno(EFAULT))?;
    check_owner(bench, id, new, old)
}

/// Checks that `id` belongs to `new`, and that `old` rejects it.
fn check_owner(bench: &mut Bench<'_>, id: u32, new: File, old: File) -> Steps {
    let destroy = request::destroy(id);
    bench.expect("DESTROY_ID on the old channel", old, &destroy, Errno(EINVAL))?;
    check_equal("the number of events", bench.destroy(new, id)?, 0)
}

fn owner_after_migration(bench: &mut Bench<'_>) -> Steps {
    let (old, new) = (bench.channel()?, bench.channel()?);
    let id = bench.create(old, RDMA_PS_TCP, 1)?;
    let call = request::migrate(id, bench.descriptor(old));
    let events = bench.expect("MIGRATE_ID", new, &call, Done(4))?;
    check_equal("the number of events", events, vec![0; 4])?;
    bench.expect("MIGRATE_ID again", new, &call, Errno(EINVAL))?;
    check_owner(bench, id, new, old)
}

fn migration_from_nowhere(bench: &mut Bench<'_>) -> Steps {
    let (old, new) = (bench.channel()?, bench.channel()?);
    let id = bench.create(old, RDMA_PS_TCP, 1)?;
    let null = bench.open("/dev/null")?;
    let from = |fd| request::migrate(id, fd);
    let call = from(bench.descriptor(null));
    bench.expect("MIGRATE_ID from no channel", new, &call, Errno(EINVAL))?;
    bench.expect("MIGRATE_ID from no file", new, &from(u32::MAX), Errno(ENOENT))?;
    check_equal("the number of events", bench.destroy(old, id)?, 0)
}

/// Returns the IPv4 wildcard address.
fn wildcard() -> Vec<u8> {
    sockaddr([0, 0, 0, 0].into())
}

fn lengths_of_addresses(bench: &mut Bench<'_>) -> Steps {
    let channel = bench.channel()?;
    let mut bind = |what, address: &[u8], answer| {
        bench
            .expect(what, channel, &request::bind(UNKNOWN_HANDLE, address), Errno(answer))
            .map(drop)
    };
    bind("an address of IPv4", &wildcard(), ENOENT)?;
    bind("a byte less", &wildcard()[..15], EINVAL)?;
    bind("a byte more", &[&wildcard()[..], &[0]].concat(), EINVAL)?;
    bind("an address of IPv6", &sockaddr([0_u16; 8].into()), ENOENT)?;
    bind("no address", &[], EINVAL)?;
    bind("no family", &[0; 16], EINVAL)?;
    let mut infiniband = [0; 48];
    infiniband[0] = 27;
    bind("an address of AF_IB", &infiniband, ENOENT)
}

fn bound_twice(bench: &mut Bench<'_>) -> Steps {
    let channel = bench.channel()?;
    let id = bench.create(channel, RDMA_PS_TCP, 1)?;
    let bind = request::bind(id, &wildcard());
    bench.expect("BIND", channel, &bind, Done(0))?;
    bench.expect("BIND again", channel, &bind, Errno(EINVAL))?;
    check_equal("the number of events", bench.destroy(channel, id)?, 0)
}

fn bound_to_every_address(bench: &mut Bench<'_>) -> Steps {
    let channel = bench.channel()?;
    let id = bench.create(channel, RDMA_PS_TCP, 1)?;
    bench.expect("BIND", channel, &request::bind(id, &wildcard()), Done(0))?;
    let bound = bench.addresses(channel, id)?;
    check_equal("the GUID", bound.node_guid, 0)?;
    check_equal("the port of the device", bound.port_num, 0)?;
    let family = u16::from_ne_bytes([bound.source[0], bound.source[1]]);
    check_equal("the family", i32::from(family), AF_INET)?;
    check_equal("the existence of a port", bound.source[2..4] != [0; 2], true)?;
    check_equal("the number of events", bench.destroy(channel, id)?, 0)
}

fn lengths_of_destinations(bench: &mut Bench<'_>) -> Steps {
    let channel = bench.channel()?;
    let mut resolve = |what, source: (usize, u16), destination: u16, answer| {
        let mut call = request::resolve_addr(UNKNOWN_HANDLE, &wildcard());
        // The header is followed by the lengths of source and destination, and the source's family.
        call.bytes[16..18].copy_from_slice(&source.1.to_ne_bytes());
        call.bytes[18..20].copy_from_slice(&destination.to_ne_bytes());
        call.bytes[24] = u8::try_from(source.0).expect("families should be small");
        bench.expect(what, channel, &call, Errno(answer)).map(drop)
    };
    let inet = usize::try_from(AF_INET).expect("AF_INET should be 2");
    resolve("no source", (0, 0), 16, ENOENT)?;
    resolve("a source", (inet, 16), 16, ENOENT)?;
    resolve("a source that is too short", (inet, 15), 16, EINVAL)?;
    resolve("a source without family", (0, 16), 16, EINVAL)?;
    resolve("a source whose length is 0", (inet, 0), 16, ENOENT)?;
    resolve("no destination", (0, 0), 0, EINVAL)?;
    resolve("a destination that is too long", (0, 0), 17, EINVAL)
}

fn invalid_parameters(bench: &mut Bench<'_>) -> Steps {
    let channel = bench.channel()?;
    let mut call = request::connect(UNKNOWN_HANDLE, request::UNUSED_QPN, 0);
    bench.expect("CONNECT", channel, &call, Errno(ENOENT))?;
    call.bytes[8 + std::mem::offset_of!(rdma_ucm_conn_param, valid)] = 0;
    bench.expect("CONNECT without parameters", channel, &call, Errno(EINVAL)).map(drop)
}

fn reasons(bench: &mut Bench<'_>) -> Steps {
    let channel = bench.channel()?;
    for reason in [0, 1, 27, 28, 29, 34, 35, 36, u8::MAX] {
        let mut call = request::reject(UNKNOWN_HANDLE, &[], 0);
        call.bytes[8 + std::mem::offset_of!(rdma_ucm_reject, reason)] = reason;
        let answer = if [0, 28, 35].contains(&reason) { ENOENT } else { EINVAL };
        bench.expect(&format!("reason {reason}"), channel, &call, Errno(answer))?;
    }
    Ok(())
}

fn states(bench: &mut Bench<'_>) -> Steps {
    let channel = bench.channel()?;
    for (state, answer) in [(0, ENOENT), (6, ENOENT), (7, EINVAL), (u32::MAX, EINVAL)] {
        let body = [0_u64.to_ne_bytes(), join(UNKNOWN_HANDLE, state)].concat();
        let call = write(RDMA_USER_CM_CMD_INIT_QP_ATTR, &body, RESPONSE_AT_START, 144);
        bench.expect(&format!("state {state}"), channel, &call, Errno(answer))?;
    }
    Ok(())
}

/// Concatenates two 4-byte numbers.
fn join(one: u32, other: u32) -> [u8; 8] {
    let bytes = [one.to_ne_bytes(), other.to_ne_bytes()].concat();
    bytes.try_into().expect("two numbers of 4 bytes should have 8 bytes")
}

fn lengths_of_options(bench: &mut Bench<'_>) -> Steps {
    let channel = bench.channel()?;
    let id = bench.create(channel, RDMA_PS_TCP, 1)?;
    let mut set = |option, value: &[u8], length, answer| {
        let call = request::set_option(id, RDMA_OPTION_ID, option, value, length);
        bench
            .expect(&format!("option {option} of {length} bytes"), channel, &call, answer)
            .map(drop)
    };
    for (option, length) in [
        (RDMA_OPTION_ID_TOS, 1),
        (RDMA_OPTION_ID_REUSEADDR, 4),
        (RDMA_OPTION_ID_AFONLY, 4),
        (RDMA_OPTION_ID_ACK_TIMEOUT, 1),
    ] {
        set(
            option,
            &[0; 4][..length],
            u32::try_from(length).expect("the length should be small"),
            Done(0),
        )?;
        for wrong in [0, 2, 8] {
            set(option, &[0; 8], wrong, Errno(EINVAL))?;
        }
    }
    set(RDMA_OPTION_ID_REUSEADDR, &[0; 3], 4, Errno(EFAULT))?;
    set(RDMA_OPTION_ID_TOS, &[0], u32::MAX, Errno(EINVAL))?;
    check_equal("the number of events", bench.destroy(channel, id)?, 0)
}

fn unknown_options(bench: &mut Bench<'_>) -> Steps {
    let channel = bench.channel()?;
    let id = bench.create(channel, RDMA_PS_TCP, 1)?;
    for (level, option) in
        [(RDMA_OPTION_ID, 0xffff), (RDMA_OPTION_IB, 0xffff), (RDMA_OPTION_IB, 0), (2, 0)]
    {
        let call = request::set_option(id, level, option, &[0], 1);
        let what = format!("option {option} of level {level}");
        bench.expect(&what, channel, &call, Errno(ENOSYS))?;
    }
    check_equal("the number of events", bench.destroy(channel, id)?, 0)
}

fn ack_timeout(bench: &mut Bench<'_>) -> Steps {
    let channel = bench.channel()?;
    for (ps, answer) in [(RDMA_PS_TCP, Done(0)), (RDMA_PS_UDP, Errno(EINVAL))] {
        let id = bench.create(channel, ps, 1)?;
        let option = RDMA_OPTION_ID_ACK_TIMEOUT;
        let call = request::set_option(id, RDMA_OPTION_ID, option, &[14], 1);
        bench.expect("SET_OPTION of the ACK timeout", channel, &call, answer)?;
        check_equal("the number of events", bench.destroy(channel, id)?, 0)?;
    }
    Ok(())
}

fn user_event(bench: &mut Bench<'_>) -> Steps {
    bench.since(6, 18)?;
    let channel = bench.channel()?;
    let id = bench.create(channel, RDMA_PS_TCP, 0xfeed_f00d)?;
    let user = rdma_cm_event_type::RDMA_CM_EVENT_USER;
    let request = rdma_ucm_write_cm_event::new(id, user, 5, 0x1122_3344_5566_7788);
    bench.expect("WRITE_CM_EVENT", channel, &request::from_command(&request), Done(0))?;
    let (event, bytes) = bench.event(channel)?;
    check_equal("the uid", event.uid, 0xfeed_f00d)?;
    check_equal("the handle", event.id, id)?;
    check_equal("event and status", (event.event, event.status), (user, 5))?;
    check_equal("the value", &bytes[20..28], &0x1122_3344_5566_7788_u64.to_ne_bytes()[..])?;
    check_equal("the number of events", bench.destroy(channel, id)?, 1)
}
