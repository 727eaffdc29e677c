use super::*;

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
