use std::sync::atomic::AtomicBool;

use verbs_abi::{IB_USER_VERBS_CMD_MODIFY_SRQ, IB_USER_VERBS_CMD_RESIZE_CQ};

use super::*;
use crate::driver::commands::ArmedByCommand;
use crate::drivers::forged::Forged;
use crate::sys::uverbs::UverbsFile;

/// Queues with the required functions only.
#[derive(Debug)]
struct Plain;

impl CqOps for Plain {
    fn poll(&mut self, _: &UverbsFile, _: &mut [Completion]) -> Result<usize, PollError> {
        Ok(1)
    }
}

impl RecvOps for Plain {
    unsafe fn store(&mut self, _: &ReceiveRequest<'_>) -> Posted {
        Ok(())
    }
}

/// A driver that overrides nothing has no fast path, and resizes with the kernel's commands.
#[test]
fn optional_functions_have_defaults() {
    let ((file, recorder), is_removed) = (UverbsFile::recording(), AtomicBool::new(false));
    let cx = CommandContext::new(&file, &is_removed);
    let into = &mut [Completion::default()];
    assert_eq!((Plain.try_poll(into), Plain.try_take(into)), (None, None));
    CqOps::resize(&mut Plain, cx, ib_uverbs_resize_cq::default(), &mut None).expect("resize");
    RecvOps::resize(&mut Plain, cx, ib_uverbs_modify_srq::default()).expect("resize");
    assert_eq!(recorder.commands(), [IB_USER_VERBS_CMD_RESIZE_CQ, IB_USER_VERBS_CMD_MODIFY_SRQ]);
    assert!(!ArmedByCommand.is_armed(), "the kernel has the state");
}

#[test]
fn driver_without_vendor_has_no_options() {
    let (file, is_removed) = (UverbsFile::silent(), AtomicBool::new(false));
    let cx = CommandContext::new(&file, &is_removed);
    let driver = Forged::new(Capabilities::default());
    let request = ib_uverbs_ex_modify_qp::default();
    let refused = driver.modify_qp_with_ece(cx, request, 1).expect_err("no options");
    assert_eq!(refused, CommandError::Os(Errno::EOPNOTSUPP));
}

#[test]
fn device_is_known_by_driver_and_version() {
    let (rxe, siw) = (rdma_driver_id::RDMA_DRIVER_RXE, rdma_driver_id::RDMA_DRIVER_SIW);
    for (driver, abi_version, is_known) in [
        (Some(rxe), Some(2), true),
        (Some(rxe), None, true),
        (Some(rxe), Some(3), false),
        (Some(siw), Some(2), false),
        (Some(siw), None, false),
        (None, None, false),
    ] {
        let device = DeviceInfo { driver, abi_version };
        assert_eq!(device.is(rxe, 2), is_known, "{device:?}");
    }
}
