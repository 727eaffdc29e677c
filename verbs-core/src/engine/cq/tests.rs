use std::sync::atomic::AtomicUsize;

use super::*;
use crate::drivers::any::AnyDriver;
use crate::drivers::null::Null;
use crate::sys::uverbs::UverbsFile;

const QP_NUM: u32 = 3;
const FLUSHED: u64 = 5;
const WAKEUP: u64 = 7;

/// A wakeup request that counts how often it was dropped.
#[derive(Debug)]
struct CountedWakeup(Arc<AtomicUsize>);

impl WakeupRequest for CountedWakeup {
    fn completes_with(&self, completion: &Completion) -> bool {
        completion.wr_id() == WAKEUP
    }

    fn raise_event(&self) {}

    fn destroy_qp(&self) {}

    fn is_destroyed(&self) -> bool {
        false
    }
}

impl Drop for CountedWakeup {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// The poll that finds the completion of a wakeup request destroys its queue pair.
///
/// If commands are deferred, the next arming does.
#[test]
fn polled_wakeup_is_destroyed() {
    for is_deferred in [false, true] {
        let device = DeviceContext::new(UverbsFile::silent(), AnyDriver::Null(Null::default()));
        let request = ib_uverbs_create_cq { cqe: 4, ..ib_uverbs_create_cq::default() };
        let NewCq { cq, mut ring, .. } = Cq::create(&device, request).expect("a queue");
        if is_deferred {
            cq.defer_commands();
        }
        let arm = || cq.arm(&device, false, &AtomicU32::new(0)).expect("arm");
        arm();
        let dropped = Arc::default();
        let wakeup = CountedWakeup(Arc::clone(&dropped));
        let inject = |wr_id, wakeup| {
            cq.inject_flushed(QP_NUM, WcOpcode::IB_WC_RECV, &[wr_id], || wakeup);
        };
        inject(FLUSHED, Some(Arc::new(wakeup) as Arc<dyn WakeupRequest>));
        inject(WAKEUP, None);
        let mut polled = [Completion::default(); 4];
        let mut poll = || cq.poll(&device, &mut ring, &mut polled).expect("polling should succeed");
        assert_eq!(poll(), 1, "the completion of the wakeup request is hidden");
        assert_eq!(dropped.load(Ordering::Relaxed), usize::from(!is_deferred));
        assert_eq!(poll(), 0);
        arm();
        assert_eq!(dropped.load(Ordering::Relaxed), 1);
        assert_eq!(polled[0].wr_id(), FLUSHED);
    }
}
