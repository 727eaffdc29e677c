//! Checks of ucma, the ABI of `/dev/infiniband/rdma_cm`.

mod commands;
mod connection_steps;
mod connections;
mod invariants;
mod request;
mod rows;

use std::mem::offset_of;

use ucma_abi::{RDMA_PS_TCP, rdma_ucm_query_addr_resp};

use super::bench::{RDMA_CM, u32_at, u64_at};
use super::check::{Check, CheckError, Needs, Run};
use super::kernel::{Kernel, Outcome};
pub(super) use request::sockaddr;

/// Returns all checks.
pub(super) fn checks() -> Vec<Check> {
    let mut checks = rows::rows();
    checks.extend(invariants::checks());
    checks.extend(connections::checks());
    checks
}

/// Returns the GUID of the device that has `address`.
pub(super) fn node_guid(kernel: &mut dyn Kernel, address: &[u8]) -> Option<u64> {
    let channel = kernel.open(RDMA_CM).ok()?;
    let mut ask = |call, length| {
        let answer = kernel.call(channel, &call);
        (answer.outcome() == Ok(Outcome::Done(length))).then_some(answer.stored)
    };
    let mut guid = || {
        let id = u32_at(&ask(request::create(RDMA_PS_TCP, 1), 4)?, 0);
        ask(request::bind(id, address), 0)?;
        let addresses = ask(request::query_addr(id), size_of::<rdma_ucm_query_addr_resp>())?;
        Some(u64_at(&addresses, offset_of!(rdma_ucm_query_addr_resp, node_guid)))
    };
    let guid = guid().filter(|guid| *guid != 0);
    kernel.end();
    guid
}

/// Creates a check with several steps.
fn scenario(
    id: &str,
    shows: &str,
    source: &str,
    needs: Needs,
    run: fn(&mut super::bench::Bench<'_>) -> Result<(), CheckError>,
) -> Check {
    Check {
        id: format!("ucma.{id}"),
        shows: shows.to_owned(),
        source: format!("ucma.c {source}"),
        since: None,
        needs,
        run: Run::Scenario(run),
    }
}
