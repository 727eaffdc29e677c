use std::sync::atomic::AtomicBool;

use verbs_abi::{
    IB_USER_VERBS_CMD_DESTROY_CQ, IB_USER_VERBS_CMD_DESTROY_QP, IB_USER_VERBS_CMD_DESTROY_SRQ,
};

use super::*;

/// A function that destroys a queue whose creation cannot be finished.
type Discard = fn(CommandContext<'_>, u32, Option<Arc<Mapping>>, Errno) -> CreateError;

const DISCARDS: [(Discard, u32); 3] = [
    (discard_cq, IB_USER_VERBS_CMD_DESTROY_CQ),
    (discard_qp, IB_USER_VERBS_CMD_DESTROY_QP),
    (discard_srq, IB_USER_VERBS_CMD_DESTROY_SRQ),
];

#[test]
fn memory_stays_mapped_if_destruction_is_refused() {
    for (discard, command) in DISCARDS {
        for is_refused in [false, true] {
            let ((file, recorder), is_removed) = (UverbsFile::recording(), AtomicBool::new(false));
            if is_refused {
                recorder.refuse();
            }
            let memory = Arc::new(Mapping::private(4096).expect("memory"));
            let mapped = Arc::downgrade(&memory);
            let cx = CommandContext::new(&file, &is_removed);
            let error = discard(cx, 7, Some(memory), Errno::EPROTO);
            assert_eq!(error, CreateError::Map(Errno::EPROTO));
            assert_eq!(mapped.upgrade().is_some(), is_refused, "command {command}");
            let accepted = if is_refused { vec![] } else { vec![command] };
            assert_eq!(recorder.commands(), accepted);
        }
    }
}
