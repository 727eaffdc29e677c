use super::*;
use crate::driver::External;
use crate::drivers::any::AnyDriver;
use crate::drivers::null::Null;
use crate::sys::uverbs::UverbsFile;

/// The ways in which the last handle of a completion queue ends.
const ENDS: [fn(CompletionQueue); 2] = [drop, |cq| drop(cq.destroy())];

#[test]
fn refused_destruction_keeps_memory_of_resized_queue() {
    for (end, is_refused) in ENDS.into_iter().flat_map(|end| [(end, false), (end, true)]) {
        let (file, recorder) = UverbsFile::recording();
        let context = Context::on_file(file, AnyDriver::External(External::new(Null::default())));
        let cq = CompletionQueue::new(&context, 16, None).expect("completion queue");
        let memory = Arc::new(Mapping::private(4096).expect("memory"));
        let mapped = Arc::downgrade(&memory);
        // The null driver cannot resize queues.
        *ignore_poison(cq.inner.resized.lock()) = Some(memory);
        if is_refused {
            recorder.refuse();
        }
        end(cq);
        assert_eq!(mapped.upgrade().is_some(), is_refused);
    }
}
