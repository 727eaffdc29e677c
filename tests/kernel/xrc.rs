//! XRC on `kt0`: domains, queues and targets that processes share, and the initiators that send to them.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;
use std::{env, process, thread};

use nix::errno::Errno;
use nix::fcntl::AT_FDCWD;
use rdmacm::cm::{CmId, ConnParam, EventType, PortSpace};
use rdmacm::verbs::{
    AsyncEventType, CompletionQueue, Context, ProtectionDomain, QpState, QpType, QueuePair,
    QueuePairInit, SendOperation, SharedReceiveQueue, SharedReceiveQueueAttributes, WcOpcode,
    WcStatus, XrcDomain, XrcOpenMode, XrcTarget,
};
use rdmacm::{Error, ErrorKind};
use rdmacm_tests::wait_until;

use crate::child::in_child;
use crate::fixtures::{LONG, assert_invalid, channel, device, is_card, request, roce, roce_name};
use crate::kt::Kt;
use crate::node::{Node, attributes, completed, receive_shared};

const TARGET: QpType = QpType::IB_UVERBS_QPT_XRC_TGT;

/// A file that names a domain. Dropping it removes the file.
struct Name(PathBuf);

impl Name {
    fn new(name: &str) -> Self {
        let path = env::temp_dir().join(format!("rdmacm-xrc-{name}-{}", process::id()));
        File::create(&path).expect("create a file");
        Self(path)
    }

    fn open(&self, context: &Context, sharing: XrcOpenMode) -> rdmacm::Result<XrcDomain> {
        XrcDomain::open(context, File::open(&self.0).expect("open the file"), sharing)
    }
}

impl Drop for Name {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

#[track_caller]
fn assert_errno(error: &Error, errno: Errno) {
    assert_eq!(error.errno(), errno as i32, "{error}");
}

fn go(target: &XrcTarget, states: &[QpState]) {
    for state in states {
        target.modify(&attributes(TARGET, *state, 77)).expect("modify");
    }
}

/// Returns a queue in the domain, and its completion queue.
fn queue(domain: &XrcDomain, limit: u32) -> (SharedReceiveQueue, CompletionQueue) {
    let pd = ProtectionDomain::new(domain.context()).expect("protection domain");
    let cq = CompletionQueue::new(domain.context(), 16, None).expect("completion queue");
    let attributes = SharedReceiveQueueAttributes { limit, ..Default::default() };
    let made = SharedReceiveQueue::with_xrc_domain(domain, &pd, &cq, attributes);
    (made.expect("shared receive queue"), cq)
}

/// As `ibv_create_xrc_rcv_qp(3)` promises, the queue pair exists until the last process closes it.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn target_lives_until_last_process_closes() {
    let kt = Kt::load();
    let name = Name::new("last");
    let context = kt.context();
    let domain = name.open(&context, XrcOpenMode::Create).expect("create the domain");
    let target = XrcTarget::new(&domain).expect("make a target");
    let (srq, cq) = queue(&domain, 0);
    let number = target.number();
    go(&target, &[QpState::IB_QPS_INIT]);
    let (mut ours, mut theirs) = UnixStream::pair().expect("socket pair");
    thread::scope(|scope| {
        let name = &name;
        let other = scope.spawn(move || {
            in_child(|| {
                let context = Context::open(&device("kt0")).expect("open kt0");
                let domain = name.open(&context, XrcOpenMode::Join).expect("join");
                let target = XrcTarget::open(&domain, number).expect("register");
                assert_eq!(target.number(), number);
                assert_eq!(target.query().expect("query").qp_state, QpState::IB_QPS_INIT);
                go(&target, &[QpState::IB_QPS_RTR]);
                theirs.write_all(&[1]).expect("report the registration");
                theirs.read_exact(&mut [0]).expect("wait");
                // The process that created the target has closed it.
                assert_eq!(target.query().expect("query").qp_state, QpState::IB_QPS_RTR);
                go(&target, &[QpState::IB_QPS_RTS]);
                let (srq, cq) = queue(&domain, 0);
                receive_shared(&srq, 5).expect("post a receive");
                let reached = srq.number().expect("the queue should be in a domain").to_ne_bytes();
                theirs.write_all(&reached).expect("report the destination");
                theirs.read_exact(&mut [0]).expect("wait");
                let done = completed(&cq);
                assert_eq!((done[0].wr_id(), done[0].qp_num()), (5, number));
                // This process ends without further commands.
            });
        });
        ours.read_exact(&mut [0]).expect("the other process should register");
        assert_eq!(target.query().expect("query").qp_state, QpState::IB_QPS_RTR);
        assert_eq!([kt.count("context"), kt.count("xrcd"), kt.count("qp")], [2, 1, 1]);
        receive_shared(&srq, 3).expect("post a receive");
        kt.deliver(number, srq.number().expect("the queue should be in a domain"), 10)
            .expect("deliver");
        let done = completed(&cq);
        assert_eq!((done[0].wr_id(), done[0].byte_len()), (3, 10));
        assert_eq!((done[0].qp_num(), done[0].opcode()), (number, WcOpcode::IB_WC_RECV));
        target.unregister().expect("unregister the target");
        srq.destroy().expect("destroy the queue");
        domain.close().expect("leave the domain");
        assert_eq!(
            [kt.count("xrcd"), kt.count("qp")],
            [1, 1],
            "the other process should have the objects"
        );
        ours.write_all(&[1]).expect("let the other process continue");
        let mut reached = [0; 4];
        ours.read_exact(&mut reached).expect("the other process should send a number");
        kt.deliver(number, u32::from_ne_bytes(reached), 1).expect("deliver");
        ours.write_all(&[1]).expect("let the other process end");
        other.join().expect("the other process should not panic");
    });
    wait_until("the other process has ended", || kt.count("context") == 1);
    assert_eq!([kt.count("xrcd"), kt.count("qp"), kt.count("srq")], [0; 3]);
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn domain_is_shared_by_file() {
    let kt = Kt::load();
    let [first, second] = [kt.context(), kt.context()];
    let [name, other] = [Name::new("one"), Name::new("other")];
    let absent = name.open(&first, XrcOpenMode::Join).expect_err("domain should be absent");
    // EAGAIN does not mean a limit of the cgroup here.
    assert_eq!(*absent.kind(), ErrorKind::Os(libc::EAGAIN), "{absent}");
    let made = name.open(&first, XrcOpenMode::JoinOrCreate).expect("create");
    let joined = name.open(&second, XrcOpenMode::JoinOrCreate).expect("join");
    let twice = name.open(&second, XrcOpenMode::Join).expect("join");
    assert_eq!(kt.count("xrcd"), 1);
    let present = name.open(&second, XrcOpenMode::Create).expect_err("the domain should exist");
    assert_errno(&present, Errno::EINVAL);
    let apart = other.open(&second, XrcOpenMode::Create).expect("another file");
    let private = XrcDomain::new(&second).expect("a private domain");
    assert_eq!(kt.count("xrcd"), 3);
    // A target is found only in its domain.
    let target = XrcTarget::new(&made).expect("make a target");
    XrcTarget::open(&joined, target.number()).expect("the domain should be the same");
    for domain in [&apart, &private] {
        let error = XrcTarget::open(domain, target.number())
            .expect_err("the target should not be in this domain");
        assert_errno(&error, Errno::EINVAL);
    }
    // The file may be removed before the domain is closed.
    drop(name);
    drop(target);
    made.close().expect("leave");
    assert_eq!(kt.count("xrcd"), 3);
    joined.close().expect("leave");
    twice.close().expect("leave");
    assert_eq!(kt.count("xrcd"), 2);
    drop((apart, private));
    assert_eq!(kt.count("xrcd"), 0);
}

/// Checks that `AT_FDCWD`, a `BorrowedFd` that names no open file, is refused.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn domain_without_open_file_is_refused() {
    let context = Context::open(&device(roce_name())).expect("open");
    for sharing in [XrcOpenMode::Join, XrcOpenMode::JoinOrCreate] {
        let error = XrcDomain::open(&context, AT_FDCWD, sharing)
            .expect_err("the descriptor should be refused");
        assert_errno(&error, Errno::EBADF);
        assert!(matches!(error.kind(), ErrorKind::InvalidInput { .. }), "{error}");
    }
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn each_handle_of_target_counts() {
    let kt = Kt::load();
    let context = kt.context();
    let domain = XrcDomain::new(&context).expect("a domain");
    let target = XrcTarget::new(&domain).expect("make a target");
    let number = target.number();
    let [second, third] = [(); 2].map(|()| XrcTarget::open(&domain, number).expect("register"));
    assert_ne!(second.token(), third.token());
    let (target, error) = {
        let clone = target.clone();
        let refused = clone.unregister().expect_err("a clone should keep it");
        let (_, error) = refused.into_parts();
        (target, error)
    };
    assert_errno(&error, Errno::EBUSY);
    let (domain, error) = domain.close().expect_err("targets should be in the domain").into_parts();
    assert_errno(&error, Errno::EBUSY);
    drop(target);
    third.unregister().expect("unregister the target");
    assert_eq!(kt.count("qp"), 1);
    go(&second, &[QpState::IB_QPS_INIT]);
    second.unregister().expect("unregister the target");
    assert_eq!(kt.count("qp"), 0);
    assert_errno(
        &XrcTarget::open(&domain, number).expect_err("target should be destroyed"),
        Errno::EINVAL,
    );
    let node = Node::new(&context, QpType::IB_UVERBS_QPT_RC, 1);
    for number in [node.qp.number(), 0, u32::MAX] {
        let error = XrcTarget::open(&domain, number).expect_err("no target should be found");
        assert_errno(&error, Errno::EINVAL);
        assert!(error.to_string().contains(&number.to_string()), "{error}");
    }
    domain.close().expect("leave");
    assert_eq!(kt.count("xrcd"), 0);
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn target_events_reach_creator() {
    let kt = Kt::load();
    let name = Name::new("events");
    let [first, second] = [kt.context(), kt.context()];
    let made = name.open(&first, XrcOpenMode::Create).expect("create");
    let joined = name.open(&second, XrcOpenMode::Join).expect("join");
    let target = XrcTarget::new(&made).expect("make a target");
    let opened = XrcTarget::open(&joined, target.number()).expect("register");
    kt.raise(AsyncEventType::IB_EVENT_COMM_EST, target.number());
    let event = first.async_events().get_event_timeout(LONG).expect("read").expect("an event");
    assert_eq!(event.token(), Some(target.token()));
    assert_eq!(event.event_type(), AsyncEventType::IB_EVENT_COMM_EST);
    let none = second.async_events().get_event_timeout(Duration::ZERO).expect("read");
    assert!(none.is_none(), "{none:?}");
    let (target, error) = target
        .unregister()
        .expect_err("this thread should hold an event of the target")
        .into_parts();
    assert!(matches!(error.kind(), ErrorKind::WouldDeadlock(_)), "{error}");
    drop(event);
    target.unregister().expect("unregister the target");
    opened.unregister().expect("unregister the target");
    assert_eq!(kt.count("qp"), 0);
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn queue_in_domain_is_reached_by_number() {
    let kt = Kt::load();
    let context = kt.context();
    let domain = XrcDomain::new(&context).expect("a domain");
    let target = XrcTarget::new(&domain).expect("make a target");
    go(&target, &[QpState::IB_QPS_INIT, QpState::IB_QPS_RTR]);
    let [(first, first_cq), (second, second_cq)] = [(); 2].map(|()| queue(&domain, 1));
    let numbers =
        [&first, &second].map(|srq| srq.number().expect("the queue should be in a domain"));
    assert_ne!(numbers[0], numbers[1]);
    assert_eq!(first.domain(), Some(&domain));
    assert_eq!(first.cq(), Some(&first_cq));
    for wr_id in 0..2 {
        receive_shared(&first, wr_id).expect("post a receive");
        receive_shared(&second, 10 + wr_id).expect("post a receive");
    }
    kt.deliver(target.number(), numbers[1], 7).expect("deliver");
    assert!(completed(&first_cq).is_empty());
    let done = completed(&second_cq);
    assert_eq!((done[0].wr_id(), done[0].byte_len(), done.len()), (10, 7, 1));
    // This message takes the last receive, so the number is below the limit.
    kt.deliver(target.number(), numbers[1], 7).expect("deliver");
    let event = context.async_events().get_event_timeout(LONG).expect("read").expect("an event");
    assert_eq!(event.event_type(), AsyncEventType::IB_EVENT_SRQ_LIMIT_REACHED);
    assert_eq!(event.token(), Some(second.token()));
    drop(event);
    // The message is longer than the receive: the target fails, and the queue does not.
    kt.deliver(target.number(), numbers[0], 65).expect("deliver");
    let done = completed(&first_cq);
    assert_eq!((done[0].wr_id(), done[0].status()), (0, WcStatus::IB_WC_LOC_LEN_ERR));
    assert_eq!(target.query().expect("query").qp_state, QpState::IB_QPS_ERR);
    assert_eq!(first.query().expect("query").max_wr, 16);
    first.destroy().expect("destroy");
    drop(second);
    assert_eq!(kt.count("srq"), 0);
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn initiator_only_sends() {
    let kt = Kt::load();
    let context = kt.context();
    let domain = XrcDomain::new(&context).expect("a domain");
    let target = XrcTarget::new(&domain).expect("make a target");
    let node = Node::new(&context, QpType::IB_UVERBS_QPT_XRC_INI, 16);
    assert_eq!([node.qp.caps().max_send_wr, node.qp.caps().max_recv_wr], [16, 0]);
    node.connect(target.number());
    for state in [QpState::IB_QPS_INIT, QpState::IB_QPS_RTR, QpState::IB_QPS_RTS] {
        target.modify(&attributes(TARGET, state, node.qp.number())).expect("modify");
    }
    assert_eq!(target.query().expect("query").dest_qp_num, node.qp.number());
    assert_invalid(
        &node.receive([1]).expect_err("an XRC initiator should have no receives"),
        &["only sends"],
    );
    let mut queue = node.qp.lock_send_queue().expect("send queue");
    let (remote_addr, rkey, imm_data) = (0, 1, 2);
    for operation in [
        SendOperation::Send,
        SendOperation::SendWithImm { imm_data },
        SendOperation::WriteWithImm { remote_addr, rkey, imm_data },
        SendOperation::AtSharedQueue { srq_number: 1, operation: &SendOperation::Send },
    ] {
        let error = Node::push(&mut queue, 1, operation, 1)
            .expect_err("the command should not name a shared receive queue");
        assert!(matches!(error.kind(), ErrorKind::Unsupported(_)), "{error}");
    }
    Node::push(&mut queue, 2, SendOperation::Write { remote_addr, rkey }, 1).expect("push");
    Node::push(&mut queue, 3, SendOperation::Read { remote_addr, rkey }, 1).expect("push");
    queue.ring_doorbell().expect("ring");
    drop(queue);
    let success = WcStatus::IB_WC_SUCCESS;
    assert_eq!(node.completed(), [(2, success), (3, success)]);
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn mismatched_types_and_domains_are_refused() {
    let kt = Kt::load();
    let [context, other] = [kt.context(), kt.context()];
    let domain = XrcDomain::new(&context).expect("a domain");
    let (srq, cq) = queue(&domain, 0);
    let pd = srq.pd();
    let init = QueuePairInit::new(&cq);
    let with = |qp_type, srq| {
        let made = QueuePair::with_type(pd, qp_type, &QueuePairInit { srq, ..init });
        made.expect_err("type and attributes should not match")
    };
    let rc = QpType::IB_UVERBS_QPT_RC;
    assert_invalid(&with(rc, Some(&srq)), &["XRC domain"]);
    assert_invalid(&with(TARGET, None), &["XRC domain"]);
    let basic = SharedReceiveQueue::new(pd, SharedReceiveQueueAttributes::default());
    let basic = basic.expect("shared receive queue");
    assert_eq!((basic.number(), basic.domain(), basic.cq()), (None, None, None));
    assert_invalid(&with(QpType::IB_UVERBS_QPT_XRC_INI, Some(&basic)), &["only sends"]);
    let elsewhere = ProtectionDomain::new(&other).expect("protection domain");
    let attributes = SharedReceiveQueueAttributes::default();
    let error = SharedReceiveQueue::with_xrc_domain(&domain, &elsewhere, &cq, attributes);
    assert_invalid(
        &error.expect_err("objects of two contexts should be refused"),
        &["different contexts"],
    );
    for attributes in [
        SharedReceiveQueueAttributes { max_wr: 0, ..attributes },
        SharedReceiveQueueAttributes { max_wr: 100_000, ..attributes },
        SharedReceiveQueueAttributes { max_sge: 100, ..attributes },
    ] {
        let error = SharedReceiveQueue::with_xrc_domain(&domain, pd, &cq, attributes);
        assert_errno(&error.expect_err("invalid attributes should be refused"), Errno::EINVAL);
    }
    let target = XrcTarget::new(&domain).expect("make a target");
    let step = crate::node::attributes(TARGET, QpState::IB_QPS_RTS, 1);
    assert_errno(&target.modify(&step).expect_err("INIT should come first"), Errno::EINVAL);
    let roce = Context::open(&device(roce_name())).expect("open the RoCE device");
    match XrcDomain::new(&roce) {
        Ok(domain) => assert!(is_card(), "{domain:?}"),
        Err(error) => assert_errno(&error, Errno::EOPNOTSUPP),
    }
    // Failed calls leave no object.
    assert_eq!([kt.count("srq"), kt.count("qp"), kt.count("xrcd")], [2, 1, 1]);
}

/// Connects an initiator to a target. The connection manager does not check their numbers.
///
/// On this device, which has no XRC, the numbers name no queue pair.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn initiator_connects_to_target() {
    let (ours, theirs) = (channel(), channel());
    let id = |channel, qp_type| CmId::with_qp_type(channel, PortSpace::Ib, qp_type);
    let listener = id(&theirs, TARGET).expect("create an id");
    listener.bind(roce(0)).expect("bind");
    listener.listen(1).expect("listen");
    let address = listener.local_addr().expect("query").expect("a bound id should have an address");
    let connect = |qp_type, qp_num| {
        let client = id(&ours, qp_type).expect("create an id");
        client.resolve_addr(None, address, LONG).expect("resolve the address");
        ours.expect_event(EventType::AddrResolved).expect("the address should be resolved");
        client.resolve_route(LONG).expect("resolve the route");
        ours.expect_event(EventType::RouteResolved).expect("the route should be resolved");
        client.connect(&ConnParam { qp_num, ..ConnParam::default() }).expect("connect");
        client
    };
    let client = connect(QpType::IB_UVERBS_QPT_XRC_INI, 0x11);
    let server = request(&theirs);
    assert_eq!(server.qp_type(), TARGET);
    server.accept(&ConnParam { qp_num: 0x22, ..ConnParam::default() }).expect("accept");
    let event = ours.expect_event(EventType::ConnectResponse).expect("an answer");
    assert_eq!(
        event.connection().expect("the event should have connection parameters").qp_num,
        0x22
    );
    drop(event);
    client.establish().expect("establish");
    theirs.expect_event(EventType::Established).expect("the server should be connected");
    let step = client.init_qp_attr(QpState::IB_QPS_RTR).expect("attributes");
    assert_eq!(step.dest_qp_num, 0x22);
    client.disconnect().expect("disconnect");
    theirs.expect_event(EventType::Disconnected).expect("server should get the event");
    server.disconnect().expect("disconnect");
    ours.expect_event(EventType::Disconnected).expect("client should get the event");
    // A target accepts only initiators.
    let _stranger = connect(QpType::IB_UVERBS_QPT_RC, 0x33);
    let error = ours
        .expect_event(EventType::Established)
        .expect_err("the target should reject other types");
    assert!(matches!(error.kind(), ErrorKind::Rejected(_)), "{error}");
}
