use std::sync::atomic::AtomicBool;

use super::*;

/// A completion queue whose functions all have different results.
#[derive(Debug)]
struct Ring {
    is_swept: Arc<AtomicBool>,
}

impl CqOps for Ring {
    fn poll(&mut self, _: &UverbsFile, _: &mut [Completion]) -> Result<usize, PollError> {
        Ok(2)
    }

    fn try_poll(&mut self, _: &mut [Completion]) -> Option<usize> {
        Some(3)
    }

    fn try_take(&mut self, _: &mut [Completion]) -> Option<usize> {
        Some(4)
    }

    fn sweep(&mut self) {
        self.is_swept.store(true, std::sync::atomic::Ordering::Relaxed);
    }

    fn resize(
        &mut self,
        _: CommandContext<'_>,
        _: ib_uverbs_resize_cq,
        _: &mut Option<Arc<Mapping>>,
    ) -> Result<u32, CreateError> {
        Ok(5)
    }
}

/// Queues whose requests the library flushes, and whose resize fails.
#[derive(Debug)]
struct Requests;

impl OrphanedRequests for Requests {
    fn take(&self) -> Vec<u64> {
        vec![6]
    }
}

impl SendOps for Requests {
    unsafe fn store(&mut self, _: Doorbell<'_>, _: QpState, _: &SendRequest<'_>) -> Posted {
        Ok(())
    }

    fn ring(&mut self, _: Doorbell<'_>) -> Posted {
        Ok(())
    }

    fn orphans(&self) -> Option<Box<dyn OrphanedRequests>> {
        Some(Box::new(Self))
    }
}

impl RecvOps for Requests {
    unsafe fn store(&mut self, _: &ReceiveRequest<'_>) -> Posted {
        Ok(())
    }

    fn orphans(&self) -> Option<Box<dyn OrphanedRequests>> {
        Some(Box::new(Self))
    }

    fn resize(
        &mut self,
        _: CommandContext<'_>,
        _: ib_uverbs_modify_srq,
    ) -> Result<(), CreateError> {
        Err(CreateError::Unsupported("another size"))
    }
}

/// Calls every function of a completion queue.
fn results(ring: &mut impl CqOps) -> (usize, Option<usize>, Option<usize>, u32) {
    let (file, is_removed) = (UverbsFile::silent(), AtomicBool::new(false));
    let cx = CommandContext::new(&file, &is_removed);
    ring.sweep();
    let polled = ring.poll(&file, &mut []).expect("poll");
    let (tried, taken) = (ring.try_poll(&mut []), ring.try_take(&mut []));
    let resized = ring.resize(cx, ib_uverbs_resize_cq::default(), &mut None).expect("resize");
    (polled, tried, taken, resized)
}

#[test]
fn box_passes_calls_of_completion_queue_on() {
    let is_swept = Arc::new(AtomicBool::new(false));
    let mut boxed: Box<dyn CqOps> = Box::new(Ring { is_swept: Arc::clone(&is_swept) });
    assert_eq!(results(&mut boxed), (2, Some(3), Some(4), 5));
    assert!(is_swept.load(std::sync::atomic::Ordering::Relaxed));
}

#[test]
fn box_passes_calls_of_work_queues_on() {
    fn taken(orphans: Option<Box<dyn OrphanedRequests>>) -> Vec<u64> {
        orphans.map_or_else(Vec::new, |orphans| orphans.take())
    }
    fn of_sends(ring: &impl SendOps) -> Vec<u64> {
        taken(ring.orphans())
    }
    fn of_receives(ring: &mut impl RecvOps) -> (Vec<u64>, bool) {
        let (file, is_removed) = (UverbsFile::silent(), AtomicBool::new(false));
        let cx = CommandContext::new(&file, &is_removed);
        let is_resized = ring.resize(cx, ib_uverbs_modify_srq::default()).is_ok();
        (taken(ring.orphans()), is_resized)
    }
    let sends: Box<dyn SendOps> = Box::new(Requests);
    let mut receives: Box<dyn RecvOps> = Box::new(Requests);
    assert_eq!(of_sends(&sends), [6]);
    assert_eq!(of_receives(&mut receives), (vec![6], false));
}
