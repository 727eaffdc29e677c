//! Checks of uverbs, the ABI of `/dev/infiniband/uverbsN`.

mod command;
mod commands;
mod invariants;
mod objects;
mod request;
mod rows;

use std::mem::offset_of;

use verbs_abi::{
    IB_USER_VERBS_CMD_GET_CONTEXT, IB_USER_VERBS_CMD_QUERY_DEVICE, ib_uverbs_get_context,
    ib_uverbs_get_context_resp, ib_uverbs_query_device, ib_uverbs_query_device_resp,
    rdma_driver_id,
};

use super::bench::{Bench, check_equal, u32_at, u64_at};
use super::check::{Check, CheckError, Driver};
use super::kernel::{Call, File, Kernel, Outcome};

/// Returns all checks.
pub(super) fn checks() -> Vec<Check> {
    let mut checks = rows::rows();
    checks.extend(invariants::checks());
    checks
}

/// Creates a GET_CONTEXT, with room for the driver's part.
fn get_context() -> Call {
    let response = size_of::<ib_uverbs_get_context_resp>();
    let core = vec![0; size_of::<ib_uverbs_get_context>()];
    let call = request::write(IB_USER_VERBS_CMD_GET_CONTEXT, core, response, response + 64);
    Call { descriptor: Some(offset_of!(ib_uverbs_get_context_resp, async_fd)), ..call }
}

/// The identity of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Identity {
    pub(super) driver: Driver,
    /// GUID in network byte order.
    pub(super) node_guid: u64,
}

/// Queries the device of `node`. Returns the reason if that is not possible.
pub(super) fn identify(kernel: &mut dyn Kernel, node: &str) -> Result<Identity, String> {
    let file = kernel.open(node).map_err(|errno| {
        kernel.end();
        format!("{node} cannot be opened: {}", Outcome::Errno(errno))
    })?;
    let opened = kernel.call(file, &get_context());
    let length = size_of::<ib_uverbs_query_device_resp>();
    let core = vec![0; size_of::<ib_uverbs_query_device>()];
    let query = request::write(IB_USER_VERBS_CMD_QUERY_DEVICE, core, length, length);
    let answer = kernel.call(file, &query);
    kernel.end();
    if let Err(errno) = opened.returned {
        let refused = Outcome::Errno(errno);
        return Err(format!("{node} provides no context: {refused}"));
    }
    if answer.outcome() != Ok(Outcome::Done(length)) {
        return Err(format!("{node} does not identify its device"));
    }
    let vendor = u32_at(&answer.stored, offset_of!(ib_uverbs_query_device_resp, vendor_id));
    let node_guid = u64_at(&answer.stored, offset_of!(ib_uverbs_query_device_resp, node_guid));
    let driver = match vendor {
        0xff_ffff => Driver::Rxe,
        // The bytes "bmt".
        0x62_6d74 => Driver::Siw,
        _ => Driver::Other,
    };
    Ok(Identity { driver, node_guid })
}

impl Bench<'_> {
    /// Opens a file of verbs with a context.
    fn context(&mut self) -> Result<File, CheckError> {
        let file = self.verbs()?;
        let core = size_of::<ib_uverbs_get_context_resp>();
        let answer = self.expect_created("GET_CONTEXT", file, &get_context(), core, [0, 8])?;
        let number = |offset| u32_at(&answer, offset);
        let vectors = number(offset_of!(ib_uverbs_get_context_resp, num_comp_vectors));
        check_equal(
            "validity of the number of completion vectors",
            (1..1 << 16).contains(&vectors),
            true,
        )?;
        let descriptor = number(offset_of!(ib_uverbs_get_context_resp, async_fd));
        check_equal("validity of the descriptor", descriptor < 1 << 30, true)?;
        Ok(file)
    }

    /// Makes a command whose response has `core` bytes, plus those of rxe or siw. Returns the stored response.
    fn expect_created(
        &mut self,
        what: &str,
        file: File,
        call: &Call,
        core: usize,
        [rxe, siw]: [usize; 2],
    ) -> Result<Vec<u8>, CheckError> {
        let expected = match self.machine.driver {
            Driver::Rxe => core + rxe..=core + rxe,
            Driver::Siw => core + siw..=core + siw,
            Driver::Other => core..=usize::MAX,
        };
        let answer = self.call(file, call);
        match answer.outcome() {
            Ok(Outcome::Done(length)) if expected.contains(&length) => Ok(answer.stored),
            outcome => {
                let why = format!("{what}: {outcome:?}, expected {expected:?} bytes of response");
                Err(CheckError::Violation(why))
            }
        }
    }

    /// Returns the driver's number for the ioctl.
    fn driver_number(&self) -> Result<rdma_driver_id, CheckError> {
        match self.machine.driver {
            Driver::Rxe => Ok(rdma_driver_id::RDMA_DRIVER_RXE),
            Driver::Siw => Ok(rdma_driver_id::RDMA_DRIVER_SIW),
            Driver::Other => Err(CheckError::Skip("the number of the driver is not known".into())),
        }
    }
}
