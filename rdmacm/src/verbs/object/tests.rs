use super::*;
use crate::driver::External;
use crate::drivers::any::AnyDriver;
use crate::drivers::null::Null;
use crate::sys::process::in_child;
use crate::sys::uverbs::UverbsFile;

#[test]
fn refused_destruction_keeps_memory_of_object() {
    for is_refused in [false, true] {
        let (file, recorder) = UverbsFile::recording();
        let context = Context::on_file(file, AnyDriver::External(External::new(Null::default())));
        let memory = Arc::new(Mapping::private(4096).expect("memory"));
        let mapped = Arc::downgrade(&memory);
        let object = Object::<ib_uverbs_destroy_qp>::with_memory(&context, 1, Some(memory));
        if is_refused {
            recorder.refuse();
        }
        drop(object);
        assert_eq!(mapped.upgrade().is_some(), is_refused);
    }
}

#[test]
fn commands_name_their_object() {
    assert_eq!(ib_uverbs_dealloc_pd::of(7).pd_handle, 7);
    assert_eq!(ib_uverbs_dealloc_mw::of(7).mw_handle, 7);
    assert_eq!(ib_uverbs_close_xrcd::of(7).xrcd_handle, 7);
    assert_eq!(ib_uverbs_dereg_mr::of(7).mr_handle, 7);
    assert_eq!(ib_uverbs_destroy_ah::of(7).ah_handle, 7);
    assert_eq!(ib_uverbs_destroy_cq::of(7).cq_handle, 7);
    assert_eq!(ib_uverbs_destroy_qp::of(7).qp_handle, 7);
    assert_eq!(ib_uverbs_destroy_srq::of(7).srq_handle, 7);
}

/// The destruction of an object waits for the events that the kernel has reported.
#[test]
fn responses_count_events() {
    let counts = |reported: Reported| (reported.asynchronous, reported.completions);
    let response = ib_uverbs_destroy_cq_resp { comp_events_reported: 2, async_events_reported: 3 };
    assert_eq!(counts(ib_uverbs_destroy_cq::reported(&response)), (3, 2));
    let response = ib_uverbs_destroy_qp_resp { events_reported: 4 };
    assert_eq!(counts(ib_uverbs_destroy_qp::reported(&response)), (4, 0));
    let response = ib_uverbs_destroy_srq_resp { events_reported: 5 };
    assert_eq!(counts(ib_uverbs_destroy_srq::reported(&response)), (5, 0));
    assert_eq!(counts(ib_uverbs_dealloc_pd::reported(&())), (0, 0));
}

/// The child frees its memory, and leaves the object to its parent.
#[test]
fn forked_child_destroys_no_object() {
    let (file, recorder) = UverbsFile::recording();
    let context = Context::on_file(file, AnyDriver::External(External::new(Null::default())));
    let memory = Arc::new(Mapping::private(4096).expect("memory"));
    let mapped = Arc::downgrade(&memory);
    let object = Object::<ib_uverbs_destroy_qp>::with_memory(&context, 1, Some(memory));
    let is_refused = || context.check_process("use", String::new).is_err();
    assert!(!is_refused());
    // The parent drops the object after the fork.
    assert!(in_child(move || {
        drop(object);
        is_refused() && mapped.upgrade().is_none()
    }));
    assert_eq!(recorder.commands(), [ib_uverbs_destroy_qp::NUMBER]);
}
