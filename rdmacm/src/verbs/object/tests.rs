use super::*;
use crate::driver::External;
use crate::drivers::any::AnyDriver;
use crate::drivers::null::Null;
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
