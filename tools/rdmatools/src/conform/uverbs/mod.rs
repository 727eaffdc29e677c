//! Checks of uverbs, the ABI of `/dev/infiniband/uverbsN`.

mod command;
mod commands;
mod invariants;
mod objects;
mod request;
mod rows;

use std::mem::offset_of;

use nix::libc::EINVAL;
use verbs_abi::{
    IB_USER_VERBS_CMD_QUERY_DEVICE, ib_uverbs_get_context_resp, ib_uverbs_query_device,
    ib_uverbs_query_device_resp, rdma_driver_id,
};

use self::objects::{MLX5, command_named};
use super::bench::{Bench, check_equal, u32_at, u64_at};
use super::check::{Check, CheckError, Driver};
use super::kernel::{Call, File, Kernel, Outcome};

/// Returns all checks.
pub(super) fn checks() -> Vec<Check> {
    let mut checks = rows::rows();
    checks.extend(invariants::checks());
    checks
}

/// Creates a GET_CONTEXT for the driver at `place`, with room for the driver's part.
fn get_context(place: usize) -> Call {
    let command = command_named("get_context");
    command.on(place, &[])
}

/// The vendor id of the devices of mlx5.
const MELLANOX: u32 = 0x02c9;

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
    let mut opened = kernel.call(file, &get_context(0));
    let needs_driver_data = opened.returned == Err(EINVAL);
    if needs_driver_data {
        opened = kernel.call(file, &get_context(MLX5));
    }
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
    if needs_driver_data && vendor != MELLANOX {
        return Err(format!(
            "{node} provides no context: the driver data of its driver are not known"
        ));
    }
    let driver = match vendor {
        0xff_ffff => Driver::Rxe,
        // The number consists of the bytes "bmt".
        0x62_6d74 => Driver::Siw,
        // The driver of older cards of this vendor needs no driver data.
        MELLANOX if needs_driver_data => Driver::Mlx5,
        _ => Driver::Other,
    };
    Ok(Identity { driver, node_guid })
}

impl Bench<'_> {
    /// Opens a file of verbs with a context.
    fn context(&mut self) -> Result<File, CheckError> {
        let file = self.verbs()?;
        let command = command_named("get_context");
        let answer = match command.place(&self.machine) {
            Ok(place) => self.expect_created(command, file, &get_context(place))?,
            Err(_) => self.expect_context(file)?,
        };
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

    /// Creates a context of a driver whose part of the response is not known. Returns the stored response.
    fn expect_context(&mut self, file: File) -> Result<Vec<u8>, CheckError> {
        let core = size_of::<ib_uverbs_get_context_resp>();
        let answer = self.call(file, &get_context(0));
        match answer.outcome() {
            Ok(Outcome::Done(length)) if length >= core => Ok(answer.stored),
            outcome => Err(CheckError::Violation(format!("GET_CONTEXT: {outcome:?}"))),
        }
    }

    /// Returns the driver's number for the ioctl.
    fn driver_number(&self) -> Result<rdma_driver_id, CheckError> {
        match self.machine.driver {
            Driver::Rxe => Ok(rdma_driver_id::RDMA_DRIVER_RXE),
            Driver::Siw => Ok(rdma_driver_id::RDMA_DRIVER_SIW),
            Driver::Mlx5 => Ok(rdma_driver_id::RDMA_DRIVER_MLX5),
            Driver::Other => Err(CheckError::Skip("the number of the driver is not known".into())),
        }
    }
}
