use zerocopy::IntoBytes as _;

use super::*;
use crate::drivers::null::Null;
use crate::engine::{Cq, NewCq};
use crate::sys::uverbs::UverbsFile;
use crate::work::{AddressVector, Destination};

/// An owner that calls `during` when requests are flushed.
struct Owner<'a> {
    cq: &'a Cq,
    during: &'a dyn Fn(&Self),
    has_room: bool,
}

impl QpOwner for Owner<'_> {
    fn cqs(&self) -> CqControls<'_, AnyDriver> {
        CqControls { send: self.cq.control(), recv: self.cq.control() }
    }

    fn complete_orphans(&self, _: QueueSide, _: &[u64]) {
        (self.during)(self);
    }

    fn can_complete_orphan(&self, _: QueueSide) -> bool {
        self.has_room
    }
}

/// A completion queue of the null driver, and queue pairs on it.
struct Device {
    context: DeviceContext,
    cq: Cq,
    pd: PdNumber,
}

impl Device {
    fn new(driver: Null) -> Self {
        Self::on(DeviceContext::new(UverbsFile::silent(), AnyDriver::Null(driver)))
    }

    fn on(context: DeviceContext) -> Self {
        let request = verbs_abi::ib_uverbs_create_cq { cqe: 4, ..Default::default() };
        let NewCq { cq, .. } = Cq::create(&context, request).expect("a completion queue");
        Self { context, cq, pd: PdNumber::next() }
    }

    fn created(&self, qp_type: QpType) -> NewQp {
        let request = ib_uverbs_ex_create_qp {
            qp_type,
            max_send_wr: 4,
            max_recv_wr: 4,
            ..Default::default()
        };
        let cqs = CqControls { send: self.cq.control(), recv: self.cq.control() };
        Qp::create(&self.context, self.pd, request, cqs).expect("a queue pair")
    }

    fn qp(&self, qp_type: QpType) -> Qp {
        self.created(qp_type).qp
    }
}

/// A flush may miss a request that another thread posts during the flush.
#[test]
fn post_during_flush_owes_another_flush() {
    let device = Device::new(Null::with_flush(FlushMode::Library));
    let qp = device.qp(QpType::IB_UVERBS_QPT_RC);
    let (context, cq) = (&device.context, &device.cq);
    qp.set_state(QpState::IB_QPS_ERR);
    qp.defer_flush();
    let post = |owner: &Owner<'_>| qp.flush_if_error(context, owner).expect("only recorded");
    let alone = Owner { cq, during: &|_| (), has_room: true };
    let with_post = Owner { cq, during: &post, has_room: true };
    post(&alone);
    assert!(qp.owes_flush());
    qp.flush_deferred(context, &with_post).expect("flush");
    assert!(qp.owes_flush(), "a request was posted meanwhile");
    qp.flush_deferred(context, &alone).expect("flush");
    assert!(!qp.owes_flush());
}

/// The kinds of operations that types of queue pairs support differently.
fn operations<'a>(address: &'a AddressVector) -> [(&'static str, SendOperation<'a>); 10] {
    let (remote_addr, rkey) = (0, 0);
    let destination = Destination { address, qp_num: 1, qkey: 1 };
    let placement = crate::work::FlushPlacement::GLOBAL;
    [
        ("send", SendOperation::Send),
        ("send", SendOperation::SendWithImm { imm_data: 1 }),
        ("write", SendOperation::Write { remote_addr, rkey }),
        ("datagram", SendOperation::SendTo { destination, imm_data: None }),
        ("shared", SendOperation::AtSharedQueue { srq_number: 1, operation: &SendOperation::Send }),
        ("read", SendOperation::Read { remote_addr, rkey }),
        ("atomic", SendOperation::CompareSwap { remote_addr, rkey, compare: 0, swap: 0 }),
        ("atomic", SendOperation::FetchAdd { remote_addr, rkey, add: 0 }),
        ("atomic", SendOperation::AtomicWrite { remote_addr, rkey, bytes: [0; 8] }),
        ("flush", SendOperation::Flush { remote_addr, rkey, length: None, placement }),
    ]
}

/// The fast check accepts some of the supported operations.
#[test]
fn operations_depend_on_type_of_queue_pair() {
    let device = Device::new(Null::default());
    let address = AddressVector::new(device.pd, &[7_u8; 16]);
    for (qp_type, supported, common) in [
        (QpType::IB_UVERBS_QPT_RC, "send write read atomic flush", "send write read"),
        (QpType::IB_UVERBS_QPT_UC, "send write", "send write"),
        (QpType::IB_UVERBS_QPT_UD, "datagram", "datagram"),
        (QpType::IB_UVERBS_QPT_XRC_INI, "send write shared read atomic flush", ""),
    ] {
        let qp = device.qp(qp_type);
        assert_eq!(qp.qp_type(), qp_type);
        for (kind, operation) in operations(&address) {
            let is_supported = qp.check_operation(&operation).is_ok();
            assert_eq!(is_supported, supported.contains(kind), "{qp_type:?}: {operation:?}");
            let payload = Payload::Gather(&[]);
            let request = SendRequest { wr_id: 0, operation, payload, flags: SendFlags::SIGNALED };
            let is_common = qp.is_common(&request);
            assert_eq!(is_common, common.contains(kind), "{qp_type:?}: {operation:?}");
        }
    }
}

#[test]
fn inline_read_is_not_common() {
    let device = Device::new(Null::default());
    let qp = device.qp(QpType::IB_UVERBS_QPT_RC);
    let operation = SendOperation::Read { remote_addr: 0, rkey: 0 };
    let request = |payload| SendRequest { wr_id: 0, operation, payload, flags: SendFlags::empty() };
    assert!(qp.is_common(&request(Payload::Gather(&[]))));
    assert!(!qp.is_common(&request(Payload::Inline(&[]))));
}

#[test]
fn address_belongs_to_domain_of_queue_pair() {
    let device = Device::new(Null::default());
    let qp = device.qp(QpType::IB_UVERBS_QPT_UD);
    let other = AddressVector::new(PdNumber::next(), &[7_u8; 16]);
    for (kind, operation) in operations(&other) {
        let request = SendRequest {
            wr_id: 0,
            operation,
            payload: Payload::Gather(&[]),
            flags: SendFlags::empty(),
        };
        qp.check_operation(&operation).expect_err(kind);
        assert!(!qp.is_common(&request), "{kind}");
    }
}

/// The library completes the requests that are posted in ERR, which needs room on the completion queue.
#[test]
fn post_in_error_needs_room_if_library_flushes() {
    for flush in [FlushMode::Library, FlushMode::Device] {
        let device = Device::new(Null::with_flush(flush));
        let qp = device.qp(QpType::IB_UVERBS_QPT_RC);
        let full = Owner { cq: &device.cq, during: &|_| (), has_room: false };
        let empty = Owner { has_room: true, ..full };
        assert!(qp.check_send_state(&full).is_ok(), "no request is completed by the library");
        qp.set_state(QpState::IB_QPS_ERR);
        let is_full = matches!(qp.check_send_state(&full), Err(PostError::Unpolled));
        assert_eq!(is_full, flush == FlushMode::Library);
        assert!(matches!(qp.check_send_state(&empty), Ok(QpState::IB_QPS_ERR)));
    }
}

/// A request that is posted while the command runs sees the state ERR. In RESET, nothing is posted.
#[test]
fn state_is_error_before_command() {
    for (before, during) in
        [(QpState::IB_QPS_RTS, QpState::IB_QPS_ERR), (QpState::IB_QPS_RESET, QpState::IB_QPS_RESET)]
    {
        let device = Device::new(Null::default());
        let qp = device.qp(QpType::IB_UVERBS_QPT_RC);
        let owner = Owner { cq: &device.cq, during: &|_| (), has_room: true };
        qp.set_state(before);
        let command = || {
            assert_eq!(qp.state(), during);
            Ok(())
        };
        qp.move_to_error(&owner, command).expect("the command should succeed");
        assert_eq!(qp.state(), QpState::IB_QPS_ERR);
    }
}

#[test]
fn command_moves_queue_pair_to_error() {
    let (file, recorder) = UverbsFile::recording();
    let device = Device::on(DeviceContext::new(file, AnyDriver::Null(Null::default())));
    device.qp(QpType::IB_UVERBS_QPT_RC).command_error(&device.context).expect("recorded");
    assert_eq!(recorder.commands(), [verbs_abi::IB_USER_VERBS_CMD_MODIFY_QP]);
    let expected = ib_uverbs_modify_qp {
        attr_mask: ib_qp_attr_mask::IB_QP_STATE,
        qp_state: QpState::IB_QPS_ERR,
        ..ib_uverbs_modify_qp::default()
    };
    assert!(recorder.bytes().ends_with(expected.as_bytes()));
}

/// Only the extended command has a rate limit.
#[test]
fn rate_limit_selects_command() {
    use verbs_abi::{IB_USER_VERBS_CMD_MODIFY_QP, IB_USER_VERBS_EX_CMD_MODIFY_QP};
    for (rate_limit, command) in
        [(None, IB_USER_VERBS_CMD_MODIFY_QP), (Some(7), IB_USER_VERBS_EX_CMD_MODIFY_QP)]
    {
        let (file, recorder) = UverbsFile::recording();
        let device = DeviceContext::new(file, AnyDriver::Null(Null::default()));
        let base = ib_uverbs_modify_qp {
            attr_mask: ib_qp_attr_mask::IB_QP_STATE,
            ..ib_uverbs_modify_qp::default()
        };
        let change = QpChange { base, rate_limit };
        change.issue(&device).expect("recorded");
        assert_eq!(recorder.commands(), [command]);
        let extended = change.extended();
        assert_eq!(extended.rate_limit, rate_limit.unwrap_or(0));
        let mask = extended.base.attr_mask;
        assert!(mask.contains(ib_qp_attr_mask::IB_QP_STATE));
        assert_eq!(mask.contains(ib_qp_attr_mask::IB_QP_RATE_LIMIT), rate_limit.is_some());
    }
}

/// The fast path leaves requests that need another check to the caller.
#[test]
fn fast_path_stores_common_requests() {
    let device = Device::new(Null::default());
    let NewQp { qp, send: mut ring, .. } = device.created(QpType::IB_UVERBS_QPT_RC);
    qp.set_state(QpState::IB_QPS_RTS);
    let payload = Payload::Gather(&[]);
    let request = |operation, flags| SendRequest { wr_id: 0, operation, payload, flags };
    let try_store = |ring: &mut AnySendRing, operation, flags| {
        // SAFETY: the request names no memory, and the ring is that of the queue pair.
        unsafe { qp.try_store_send(&device.context, ring, &request(operation, flags)) }
    };
    (0..4).for_each(|_| assert!(try_store(&mut ring, SendOperation::Send, SendFlags::SIGNALED)));
    assert!(!try_store(&mut ring, SendOperation::Send, SendFlags::SIGNALED), "the queue is full");
    ring.ring(qp.doorbell(&device.context)).expect("ring");
    assert!(
        !try_store(&mut ring, SendOperation::Send, SendFlags::from_bits_retain(8)),
        "unknown flags"
    );
    assert!(!try_store(&mut ring, SendOperation::LocalInvalidate { rkey: 0 }, SendFlags::empty()));
    qp.set_state(QpState::IB_QPS_ERR);
    assert!(
        !try_store(&mut ring, SendOperation::Send, SendFlags::SIGNALED),
        "a flush may be necessary"
    );
    qp.set_state(QpState::IB_QPS_RTS);
    device.context.set_removed();
    assert!(
        !try_store(&mut ring, SendOperation::Send, SendFlags::SIGNALED),
        "the device was removed"
    );
}
