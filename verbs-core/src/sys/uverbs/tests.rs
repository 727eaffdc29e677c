use super::*;
use crate::sys::process::in_child;

#[test]
fn answer_without_descriptor_is_error() {
    let missing = CommandError::Os(Errno::EBADF);
    assert_eq!(UverbsFile::silent().get_context::<(), ()>(()).expect_err("no descriptor"), missing);
    assert_eq!(UverbsFile::silent().create_comp_channel().expect_err("no descriptor"), missing);
}

#[test]
fn fields_not_stored_by_kernel_are_zero() {
    let request = verbs_abi::ib_uverbs_alloc_pd { response: AlignedU64::default() };
    assert_eq!(
        UverbsFile::silent()
            .command(request)
            .expect("the silent file takes every command")
            .pd_handle,
        0
    );
}

#[test]
#[cfg(debug_assertions)]
#[should_panic = "should not be called under the lock"]
fn method_under_lock_panics() {
    let _locked = lock::NoCommands::begin();
    let _ = UverbsFile::silent().gid_entry(1, 0);
}

#[test]
fn forked_child_is_no_owner() {
    let file = UverbsFile::silent();
    let is_owner = || (file.is_owner(), file.is_owner_fast(), file.check_process().is_ok());
    assert_eq!(is_owner(), (true, true, true));
    assert!(in_child(|| is_owner() == (false, false, false)));
}

#[test]
fn extended_commands_are_marked() {
    let plain = command_word::<verbs_abi::ib_uverbs_modify_qp>();
    assert_eq!(plain, verbs_abi::IB_USER_VERBS_CMD_MODIFY_QP);
    let extended = command_word::<verbs_abi::ib_uverbs_ex_modify_qp>();
    let number = <verbs_abi::ib_uverbs_ex_modify_qp as Command>::NUMBER;
    assert_eq!(extended, number | IB_USER_VERBS_CMD_FLAG_EXTENDED);
    assert_ne!(extended, number);
}
