use super::*;

#[test]
fn huge_reported_queue_takes_little_memory() {
    let most = u32::MAX;
    let caps = QueuePairCaps { max_send_wr: most, max_recv_wr: most, ..QueuePairCaps::default() };
    let (posted, companions) = tables(QpType::IB_UVERBS_QPT_UD, caps);
    assert_eq!(posted.len(), 0);
    assert!(companions.in_use.capacity() < 1 << 17, "{}", companions.in_use.capacity());
}

#[cfg(all(feature = "null", not(loom)))]
mod deferred_commands {
    use verbs_abi::IB_USER_VERBS_CMD_DESTROY_QP;

    use super::super::*;
    use crate::driver::FlushMode;
    use crate::drivers::any::AnyDriver;
    use crate::drivers::null::Null;
    use crate::sys::uverbs::UverbsFile;
    use crate::verbs::{
        CompletionChannel, CompletionQueue, Context, ProtectionDomain, QueuePairInit, WcOpcode,
    };

    /// A private queue pair raises the event of injected completions. A poll must not destroy it.
    #[test]
    fn polls_issue_no_commands_if_deferred() {
        let (file, recorder) = UverbsFile::recording();
        let driver = AnyDriver::Null(Null::with_flush(FlushMode::Library));
        let context = Context::on_file(file, driver);
        let pd = ProtectionDomain::new(&context).expect("a protection domain");
        let (channel, _device) = CompletionChannel::on_socket(&context);
        let cq = || CompletionQueue::new(&context, 4, Some(&channel)).expect("a completion queue");
        let cqs = [cq(), cq()];
        let init = QueuePairInit { send_cq: &cqs[0], ..QueuePairInit::new(&cqs[1]) };
        let qp = QueuePair::new(&pd, &init).expect("a queue pair");
        let number = qp.number();
        let mut queues = BufferedQueuePair::new(qp).expect("queues");
        queues.defer_commands();
        let destroyed = || {
            let commands = recorder.commands();
            commands.iter().filter(|command| **command == IB_USER_VERBS_CMD_DESTROY_QP).count()
        };
        for (cq, before) in cqs.iter().zip(0..) {
            cq.request_notify(false).expect("arm");
            cq.complete_orphans(&pd, number, WcOpcode::IB_WC_RECV, &[1]);
            queues.poll(|_, _| ()).expect("poll");
            assert_eq!(destroyed(), before);
            cq.request_notify(false).expect("arm");
            assert_eq!(destroyed(), before + 1);
        }
    }
}
