use std::sync::atomic::AtomicBool;

use verbs_abi::{
    IB_USER_VERBS_CMD_ALLOC_PD, IB_USER_VERBS_CMD_MODIFY_SRQ, ib_uverbs_create_cq,
    ib_uverbs_modify_srq,
};

use crate::driver::{Arm, CommandContext, CqControlOps as _, Driver as _, External};
use crate::drivers::null::Null;
use crate::sync::AtomicU32;
use crate::sys::uverbs::UverbsFile;

/// The null driver issues these commands as most drivers do.
#[test]
fn external_driver_issues_default_commands() {
    let ((file, recorder), is_removed) = (UverbsFile::recording(), AtomicBool::new(false));
    let cx = CommandContext::new(&file, &is_removed);
    let driver = External::new(Null::default());
    driver.create_pd(cx).expect("create a protection domain");
    driver.set_srq_limit(cx, ib_uverbs_modify_srq::default()).expect("set the limit");
    assert_eq!(recorder.commands(), [IB_USER_VERBS_CMD_ALLOC_PD, IB_USER_VERBS_CMD_MODIFY_SRQ]);
}

#[test]
fn external_queue_is_armed_by_its_driver() {
    let (file, is_removed) = (UverbsFile::silent(), AtomicBool::new(false));
    let cx = CommandContext::new(&file, &is_removed);
    let request = ib_uverbs_create_cq { cqe: 4, ..Default::default() };
    let created = External::new(Null::default()).create_cq(cx, request);
    let control = created.expect("a completion queue").control;
    assert!(!control.is_armed());
    let events_read = AtomicU32::new(0);
    let arm = Arm { cq_handle: 0, solicited_only: false, events_read: &events_read };
    control.arm(cx, &arm).expect("arm");
    assert!(control.is_armed());
}
