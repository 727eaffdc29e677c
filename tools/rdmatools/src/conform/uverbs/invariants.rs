//! Checks of verbs objects, and of the ioctl.

use std::mem::offset_of;

use nix::libc::{EBUSY, EFAULT, EINVAL, ENOENT, EPROTONOSUPPORT};
use verbs_abi::ioctl::ib_uverbs_ioctl_hdr;
use verbs_abi::*;
use zerocopy::IntoBytes;

use super::super::bench::{Bench, check_equal, u32_at};
use super::super::check::{Check, CheckError, Needs, Run};
use super::super::kernel::Outcome::{Done, Errno};
use super::super::kernel::{Call, Caller, File};
use super::command::Object;
use super::request;

type Steps = Result<(), CheckError>;

pub(super) fn checks() -> Vec<Check> {
    let entry = |id: &str, shows: &str, source: &str, run: fn(&mut Bench<'_>) -> Steps| Check {
        id: format!("uverbs.{id}"),
        shows: shows.to_owned(),
        source: source.to_owned(),
        since: None,
        needs: Needs::Verbs,
        run: Run::Scenario(run),
    };
    vec![
        entry(
            "header.short",
            "a write shorter than a header is rejected",
            "uverbs_main.c ib_uverbs_write",
            part_of_a_header,
        ),
        entry(
            "header.flags",
            "undefined bits of the number are rejected",
            "rdma_core.h uapi_get_method",
            stray_bits,
        ),
        entry(
            "handle.reuse",
            "the lowest free handle of a file is assigned next, and a failure loses none",
            "rdma_core.c idr_add_uobj",
            reused_handles,
        ),
        entry(
            "handle.file",
            "handles belong to a file: another file has the same ones",
            "rdma_core.c lookup_get_idr_uobject",
            handles_of_a_file,
        ),
        entry(
            "object.busy",
            "an object in use cannot be destroyed",
            "rdma_core.c uverbs_destroy_uobject",
            busy,
        ),
        entry(
            "object.close",
            "closing a file destroys its objects, in the right order",
            "rdma_core.c uverbs_destroy_ufile_hw",
            closed,
        ),
        entry(
            "query_port.number",
            "a port that the device does not have is rejected",
            "verbs.c ib_query_port",
            ports,
        ),
        entry(
            "ex_query_device.mask",
            "undefined bits are rejected, and the response contains its length",
            "uverbs_cmd.c ib_uverbs_ex_query_device",
            extended_query,
        ),
        entry(
            "ex_create_cq.mask",
            "undefined bits are rejected",
            "uverbs_cmd.c ib_uverbs_ex_create_cq",
            extended_cq,
        ),
        entry(
            "ioctl.same",
            "the ioctl answers as the write does, also in a forked child",
            "uverbs_std_types_device.c UVERBS_METHOD_INVOKE_WRITE",
            same_by_ioctl,
        ),
        entry(
            "ioctl.header",
            "an ioctl with another driver's number, reserved fields, or an unknown method is rejected",
            "uverbs_ioctl.c ib_uverbs_cmd_verbs",
            headers_of_ioctl,
        ),
    ]
}

/// Creates a plain command with room for the driver's part of request and response.
fn plain(number: u32, core: &[u8], response: usize) -> Call {
    request::write(number, core.to_vec(), response, response)
}

fn query_device() -> Call {
    let response = size_of::<ib_uverbs_query_device_resp>();
    plain(IB_USER_VERBS_CMD_QUERY_DEVICE, &[0; size_of::<ib_uverbs_query_device>()], response)
}

fn alloc_pd() -> Call {
    plain(IB_USER_VERBS_CMD_ALLOC_PD, &[0; 8], 4)
}

fn dealloc_pd(pd_handle: u32) -> Call {
    plain(IB_USER_VERBS_CMD_DEALLOC_PD, ib_uverbs_dealloc_pd { pd_handle }.as_bytes(), 0)
}

impl Bench<'_> {
    fn pd(&mut self, file: File) -> Result<u32, CheckError> {
        self.make(file, Object::ProtectionDomain)
    }

    fn cq(&mut self, file: File) -> Result<u32, CheckError> {
        Ok(u32_at(&self.create_from(file, "create_cq", &[])?, 0))
    }

    fn qp(&mut self, file: File, pd: u32, cq: u32) -> Result<u32, CheckError> {
        Ok(u32_at(&self.create_from(file, "create_qp", &[pd, cq, cq])?, 0))
    }

    /// Returns the number of a queue pair that exists until the check ends.
    pub(in super::super) fn qp_number(&mut self) -> Result<u32, CheckError> {
        let file = self.context()?;
        let (pd, cq) = (self.pd(file)?, self.cq(file)?);
        let answer = self.create_from(file, "create_qp", &[pd, cq, cq])?;
        Ok(u32_at(&answer, offset_of!(ib_uverbs_create_qp_resp, qpn)))
    }
}

fn destroy_cq(cq_handle: u32) -> Call {
    let request = ib_uverbs_destroy_cq { cq_handle, ..Default::default() };
    plain(IB_USER_VERBS_CMD_DESTROY_CQ, request.as_bytes(), 8)
}

fn destroy_qp(qp_handle: u32) -> Call {
    let request = ib_uverbs_destroy_qp { qp_handle, ..Default::default() };
    plain(IB_USER_VERBS_CMD_DESTROY_QP, request.as_bytes(), 4)
}

fn part_of_a_header(bench: &mut Bench<'_>) -> Steps {
    let file = bench.context()?;
    for length in [0, 4, 7] {
        let mut call = query_device();
        call.bytes.truncate(length);
        bench.expect(&format!("a write of {length} bytes"), file, &call, Errno(EINVAL))?;
    }
    Ok(())
}

fn stray_bits(bench: &mut Bench<'_>) -> Steps {
    let file = bench.context()?;
    for bit in 8..31 {
        let mut call = query_device();
        let number = IB_USER_VERBS_CMD_QUERY_DEVICE | 1 << bit;
        call.bytes[..4].copy_from_slice(&number.to_ne_bytes());
        bench.expect(&format!("bit {bit}"), file, &call, Errno(EINVAL))?;
    }
    Ok(())
}

fn reused_handles(bench: &mut Bench<'_>) -> Steps {
    let file = bench.context()?;
    let (first, second) = (bench.pd(file)?, bench.pd(file)?);
    check_equal("equality of two handles", first == second, false)?;
    bench.expect("DEALLOC_PD", file, &dealloc_pd(first), Done(0))?;
    let lost = request::with_invalid_response(alloc_pd());
    bench.expect("ALLOC_PD to nowhere", file, &lost, Errno(EFAULT))?;
    check_equal("the handle", bench.pd(file)?, first)?;
    bench.expect("DEALLOC_PD", file, &dealloc_pd(second), Done(0)).map(drop)
}

fn handles_of_a_file(bench: &mut Bench<'_>) -> Steps {
    let (one, other) = (bench.context()?, bench.context()?);
    let pd = bench.pd(one)?;
    check_equal("the handle", bench.pd(other)?, pd)?;
    bench.expect("DEALLOC_PD", one, &dealloc_pd(pd), Done(0))?;
    bench.expect("DEALLOC_PD again", one, &dealloc_pd(pd), Errno(ENOENT))?;
    bench.expect("DEALLOC_PD of the other file", other, &dealloc_pd(pd), Done(0)).map(drop)
}

fn busy(bench: &mut Bench<'_>) -> Steps {
    let file = bench.context()?;
    let (pd, cq) = (bench.pd(file)?, bench.cq(file)?);
    let qp = bench.qp(file, pd, cq)?;
    bench.expect("DEALLOC_PD", file, &dealloc_pd(pd), Errno(EBUSY))?;
    bench.expect("DESTROY_CQ", file, &destroy_cq(cq), Errno(EBUSY))?;
    let events = bench.expect("DESTROY_QP", file, &destroy_qp(qp), Done(4))?;
    check_equal("the events of the queue pair", events, vec![0; 4])?;
    let events = bench.expect("DESTROY_CQ", file, &destroy_cq(cq), Done(8))?;
    check_equal("the events of the completion queue", events, vec![0; 8])?;
    bench.expect("DEALLOC_PD", file, &dealloc_pd(pd), Done(0)).map(drop)
}

fn closed(bench: &mut Bench<'_>) -> Steps {
    // The device has a small limit of some object, or a leftover of one round would be visible in the next.
    for _ in 0..3 {
        let file = bench.context()?;
        let (pd, cq) = (bench.pd(file)?, bench.cq(file)?);
        let qp = bench.qp(file, pd, cq)?;
        bench.expect("DEALLOC_PD", file, &dealloc_pd(pd), Errno(EBUSY))?;
        bench.expect("DESTROY_CQ", file, &destroy_cq(cq), Errno(EBUSY))?;
        check_equal("difference of the handles", pd != cq && cq != qp && qp != pd, true)?;
        bench.close(file);
    }
    Ok(())
}

fn ports(bench: &mut Bench<'_>) -> Steps {
    let file = bench.context()?;
    for (port_num, answer) in [(0, Errno(EINVAL)), (1, Done(40)), (255, Errno(EINVAL))] {
        let request = ib_uverbs_query_port { port_num, ..Default::default() };
        let call = plain(IB_USER_VERBS_CMD_QUERY_PORT, request.as_bytes(), 40);
        let answer = bench.expect(&format!("port {port_num}"), file, &call, answer)?;
        if port_num == 1 {
            let state = answer[offset_of!(ib_uverbs_query_port_resp, state)];
            check_equal("validity of the state", (1..=5).contains(&state), true)?;
        }
    }
    Ok(())
}

fn extended_query(bench: &mut Bench<'_>) -> Steps {
    let file = bench.context()?;
    let number = request::wire_number(IB_USER_VERBS_EX_CMD_QUERY_DEVICE, true);
    let ask = |comp_mask, reserved| {
        let core = ib_uverbs_ex_query_device { comp_mask, reserved };
        request::write(number, core.as_bytes().to_vec(), 304, 304)
    };
    bench.expect("a mask", file, &ask(1, 0), Errno(EINVAL))?;
    bench.expect("a reserved field", file, &ask(0, 1), Errno(EINVAL))?;
    let plain = bench.expect("QUERY_DEVICE", file, &query_device(), Done(176))?;
    let extended = bench.expect("EX_QUERY_DEVICE", file, &ask(0, 0), Done(304))?;
    check_equal("the first part", &extended[..176], &plain[..])?;
    let length = offset_of!(ib_uverbs_ex_query_device_resp, response_length);
    check_equal("the length in it", u32_at(&extended, length), 304)
}

fn extended_cq(bench: &mut Bench<'_>) -> Steps {
    let file = bench.context()?;
    let number = request::wire_number(IB_USER_VERBS_EX_CMD_CREATE_CQ, true);
    for (comp_mask, reserved, comp_vector) in [(1, 0, 0), (0, 1, 0), (0, 0, u32::MAX)] {
        let core = ib_uverbs_ex_create_cq {
            cqe: 1,
            comp_channel: -1,
            comp_mask,
            reserved,
            comp_vector,
            ..Default::default()
        };
        let call = request::write(number, core.as_bytes().to_vec(), 16, 16);
        bench.expect("EX_CREATE_CQ", file, &call, Errno(EINVAL))?;
    }
    Ok(())
}

/// Creates a QUERY_DEVICE by ioctl.
fn query_by_ioctl(driver: rdma_driver_id) -> Call {
    request::ioctl(driver, IB_USER_VERBS_CMD_QUERY_DEVICE, &[0; 8], 176)
}

fn same_by_ioctl(bench: &mut Bench<'_>) -> Steps {
    let driver = bench.driver_number()?;
    let file = bench.context()?;
    let written = bench.expect("QUERY_DEVICE", file, &query_device(), Done(176))?;
    for caller in [Caller::Opener, Caller::Thread, Caller::OtherCredentials, Caller::Child] {
        let call = query_by_ioctl(driver).by(caller);
        let answered = bench.expect(&format!("{caller:?}"), file, &call, Done(176))?;
        check_equal("the answer", &answered, &written)?;
    }
    Ok(())
}

fn headers_of_ioctl(bench: &mut Bench<'_>) -> Steps {
    let driver = bench.driver_number()?;
    let file = bench.context()?;
    let mut refused = |what, offset: usize, value: u8, answer| {
        let mut call = query_by_ioctl(driver);
        call.bytes[offset] = value;
        bench.expect(what, file, &call, Errno(answer)).map(drop)
    };
    let [object, method] =
        [offset_of!(ib_uverbs_ioctl_hdr, object_id), offset_of!(ib_uverbs_ioctl_hdr, method_id)];
    let [first, second] =
        [offset_of!(ib_uverbs_ioctl_hdr, reserved1), offset_of!(ib_uverbs_ioctl_hdr, reserved2)];
    let other = if driver == rdma_driver_id::RDMA_DRIVER_MLX5 { 2 } else { 1 };
    refused("another driver", offset_of!(ib_uverbs_ioctl_hdr, driver_id), other, EINVAL)?;
    refused("the first reserved field", first, 1, EPROTONOSUPPORT)?;
    refused("the second reserved field", second, 1, EPROTONOSUPPORT)?;
    refused("no object", object + 1, 0xff, EPROTONOSUPPORT)?;
    refused("no method", method, 0xff, EPROTONOSUPPORT)?;
    refused("another length", 0, 25, EINVAL)?;
    refused("another number of attributes", offset_of!(ib_uverbs_ioctl_hdr, num_attrs), 2, EINVAL)?;
    // The first attribute gets the id of the second one, and then an unknown but mandatory id.
    let attribute = size_of::<ib_uverbs_ioctl_hdr>();
    refused("an attribute twice", attribute, 0, EINVAL)?;
    refused("an unknown attribute", attribute, 0x70, EPROTONOSUPPORT)
}
