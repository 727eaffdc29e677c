//! Checks of commands, which create and destroy objects and change some of them.

use rdmacm::device::{Device, Transport};
use rdmacm::verbs::{
    AccessFlags, CompletionChannel, CompletionQueue, Context, MemoryRegion, MemoryWindow,
    MemoryWindowType, ProtectionDomain, QpState, QpType, QueuePair, QueuePairAttributes,
    QueuePairInit, SharedReceiveQueue, SharedReceiveQueueAttributes, XrcDomain,
};

use super::loopback;
use super::report::{Checks, Problem, ensure};

/// Checks the objects of `device`.
pub(super) fn check(device: &Device, checks: &mut Checks<'_>) {
    let mut opened = None;
    checks.run("open the device", || {
        let context = Context::open(device)?;
        let answer = context.query_device()?;
        let found = format!(
            "at most {} queue pairs, with {} send requests each",
            answer.max_qp, answer.max_qp_wr
        );
        opened = Some(context);
        Ok(found)
    });
    let Some(context) = opened else { return };
    checks.run("port and GIDs", || port(&context));
    checks.run("memory region", || memory(&context));
    checks.run("completion queue", || completion_queue(&context));
    checks.optional("resized completion queue", || resized_queue(&context));
    checks.optional("shared receive queue", || shared_receive_queue(&context));
    checks.run("queue pair", || queue_pair(&context));
    checks.optional("queue pairs of other types", || other_types(&context));
    checks.optional("memory windows", || memory_windows(&context));
    checks.optional("XRC domain", || xrc_domain(&context));
    loopback::check(&context, checks);
}

fn port(context: &Context) -> Result<String, Problem> {
    let port = context.query_port(1)?;
    let gids = context.gids(1)?;
    Ok(format!("active MTU {}, {} GIDs", port.active_mtu.0, gids.len()))
}

fn memory(context: &Context) -> Result<String, Problem> {
    let pd = ProtectionDomain::new(context)?;
    let mut region = MemoryRegion::alloc(&pd, 1 << 16, AccessFlags::IB_UVERBS_ACCESS_LOCAL_WRITE)?;
    region.write(100, b"kept")?;
    let mut bytes = [0; 4];
    region.read(100, &mut bytes)?;
    ensure(bytes == *b"kept", "the memory lacks the bytes that were written")?;
    region.destroy().map_err(rdmacm::Error::from)?;
    pd.destroy().map_err(rdmacm::Error::from)?;
    Ok("64 KiB".into())
}

fn completion_queue(context: &Context) -> Result<String, Problem> {
    let channel = CompletionChannel::new(context)?;
    let cq = CompletionQueue::new(context, 100, Some(&channel))?;
    let capacity = cq.capacity();
    ensure(capacity >= 100, format!("the queue holds {capacity} completions and not 100"))?;
    cq.request_notify(false)?;
    cq.destroy().map_err(rdmacm::Error::from)?;
    Ok(format!("{capacity} completions"))
}

fn resized_queue(context: &Context) -> Result<String, Problem> {
    let cq = CompletionQueue::new(context, 100, None)?;
    cq.resize(1000)?;
    let capacity = cq.capacity();
    ensure(capacity >= 1000, format!("the queue holds {capacity} completions and not 1000"))?;
    cq.destroy().map_err(rdmacm::Error::from)?;
    Ok(format!("{capacity} completions"))
}

fn shared_receive_queue(context: &Context) -> Result<String, Problem> {
    let pd = ProtectionDomain::new(context)?;
    let srq = SharedReceiveQueue::new(&pd, SharedReceiveQueueAttributes::default())?;
    let attributes = srq.attributes();
    srq.set_limit(3)?;
    ensure(srq.query()?.limit == 3, "the limit of the queue is not the one that was set")?;
    srq.destroy().map_err(rdmacm::Error::from)?;
    Ok(format!("{} requests of {} scatter/gather entries", attributes.max_wr, attributes.max_sge))
}

/// Moves a queue pair through the states that need no peer.
fn queue_pair(context: &Context) -> Result<String, Problem> {
    let pd = ProtectionDomain::new(context)?;
    let cq = CompletionQueue::new(context, 16, None)?;
    let qp = QueuePair::new(&pd, &QueuePairInit::new(&cq))?;
    let caps = qp.caps();
    if context.transport() == Transport::InfiniBand {
        let init = QueuePairAttributes::to(QpState::IB_QPS_INIT).pkey_index(0).port(1);
        for attributes in [
            init.access(AccessFlags::empty()),
            QueuePairAttributes::to(QpState::IB_QPS_ERR),
            QueuePairAttributes::to(QpState::IB_QPS_RESET),
        ] {
            qp.modify(&attributes)?;
            let (state, wanted) = (qp.query()?.qp_state, attributes.qp_state);
            let is_there = u32::from(state.0) == wanted;
            ensure(is_there, format!("the queue pair is in {state} and not in state {wanted}"))?;
        }
    }
    qp.destroy().map_err(rdmacm::Error::from)?;
    Ok(format!(
        "{} sends of {} scatter/gather entries or {} inline bytes, {} receives",
        caps.max_send_wr, caps.max_send_sge, caps.max_inline_data, caps.max_recv_wr
    ))
}

fn other_types(context: &Context) -> Result<String, Problem> {
    let pd = ProtectionDomain::new(context)?;
    let cq = CompletionQueue::new(context, 16, None)?;
    for qp_type in [QpType::IB_UVERBS_QPT_UC, QpType::IB_UVERBS_QPT_UD] {
        let qp = QueuePair::with_type(&pd, qp_type, &QueuePairInit::new(&cq))?;
        qp.destroy().map_err(rdmacm::Error::from)?;
    }
    Ok("UC and UD".into())
}

fn memory_windows(context: &Context) -> Result<String, Problem> {
    let pd = ProtectionDomain::new(context)?;
    for mw_type in [MemoryWindowType::IB_MW_TYPE_1, MemoryWindowType::IB_MW_TYPE_2] {
        MemoryWindow::new(&pd, mw_type)?.destroy().map_err(rdmacm::Error::from)?;
    }
    Ok("types 1 and 2".into())
}

fn xrc_domain(context: &Context) -> Result<String, Problem> {
    XrcDomain::new(context)?.close().map_err(rdmacm::Error::from)?;
    Ok("created and closed".into())
}
