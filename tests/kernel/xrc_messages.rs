//! XRC on the emulated card, which moves the messages that `kt0` only pretends to move.

use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::{env, fs, process, thread};

use rdmacm::verbs::{
    Completion, Context, Mtu, QpState, QpType, QueuePairAttributes as Attributes, SendFlags,
    SendOperation, WcOpcode, WcStatus, XrcDomain, XrcOpenMode, XrcTarget,
};

use crate::child::in_child;
use crate::fixtures::{LONG, assert_invalid, device, roce_name};
use crate::io::{Io, Shape};
use crate::manual_qp::{self, ACCESS, address, modify};
use crate::shared::Shared;

const SIGNALED: SendFlags = SendFlags::SIGNALED;

/// An initiator, and the target to which it is connected.
struct Connection {
    initiator: Io,
    target: XrcTarget,
}

impl Connection {
    fn new(domain: &XrcDomain) -> Self {
        let initiator = manual_qp::io(QpType::IB_UVERBS_QPT_XRC_INI, Shape::default());
        let target = XrcTarget::new(domain).expect("target");
        let init = Attributes::to(QpState::IB_QPS_INIT).pkey_index(0).port(1).access(ACCESS);
        let receive = |peer| {
            Attributes::to(QpState::IB_QPS_RTR)
                .address(address())
                .path_mtu(Mtu::IB_MTU_1024)
                .dest_qp_num(peer)
                .rq_psn(0)
        };
        let qp = initiator.qp();
        modify(qp, init);
        modify(qp, receive(target.number()));
        let send = Attributes::to(QpState::IB_QPS_RTS).sq_psn(0).timeout(14);
        modify(qp, send.retry_cnt(5).rnr_retry(6).max_rd_atomic(2));
        target.modify(&init).expect("modify");
        let receive = receive(qp.number()).max_dest_rd_atomic(3).min_rnr_timer(12);
        target.modify(&receive).expect("modify");
        Self { initiator, target }
    }

    /// Executes `operation` at `srq_number`, and returns its completion.
    fn carry_out(&self, srq_number: u32, operation: SendOperation<'_>) -> Completion {
        let operation = SendOperation::AtSharedQueue { srq_number, operation: &operation };
        self.initiator.post(7, operation, 0..8, SIGNALED).expect("post");
        let completion = self.initiator.next();
        assert_eq!((completion.wr_id(), completion.qp_num()), (7, self.initiator.qp().number()));
        completion
    }

    #[track_caller]
    fn succeeds(&self, srq_number: u32, operation: SendOperation<'_>) {
        let completion = self.carry_out(srq_number, operation);
        assert!(completion.is_success(), "{completion:?}");
    }
}

fn domain() -> XrcDomain {
    let context = Context::open(&device(roce_name())).expect("open the device");
    XrcDomain::new(&context).expect("domain")
}

fn number(shared: &Shared) -> u32 {
    shared.queue().number().expect("the queue should be in an XRC domain")
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn message_reaches_named_queue() {
    let domain = domain();
    let mut connection = Connection::new(&domain);
    let queues = [(); 2].map(|()| Shared::in_domain(&domain, 8));
    connection.initiator.fill(0, b"contents");
    let memory = queues[0].memory();
    let (remote_addr, rkey) = (memory.addr() + 512, memory.rkey());
    for round in 0..20 {
        for (place, shared) in queues.iter().enumerate() {
            let wr_id = 2 * round + u64::try_from(place).expect("the number should fit");
            shared.receive(wr_id, 64..128).expect("post a receive");
            let imm_data = 0x1234_5678;
            let operation = match round % 3 {
                0 => SendOperation::Send,
                1 => SendOperation::SendWithImm { imm_data },
                _ if place == 0 => SendOperation::WriteWithImm { remote_addr, rkey, imm_data },
                _ => SendOperation::Send,
            };
            connection.succeeds(number(shared), operation);
            let completion = shared.done();
            let number = connection.target.number();
            assert_eq!((completion.wr_id(), completion.qp_num()), (wr_id, number));
            assert_eq!(completion.byte_len(), 8);
            let is_write = matches!(operation, SendOperation::WriteWithImm { .. });
            let wanted = if is_write { 512..520 } else { 64..72 };
            assert_eq!(shared.bytes(wanted), b"contents");
            let has_imm = completion.imm_data() == Some(imm_data);
            assert_eq!(has_imm, !matches!(operation, SendOperation::Send));
            let opcode =
                if is_write { WcOpcode::IB_WC_RECV_RDMA_WITH_IMM } else { WcOpcode::IB_WC_RECV };
            assert_eq!(completion.opcode(), opcode);
        }
    }
}

/// Checks that the protection domain of the named queue, not of the queue pair, protects memory.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn named_queue_guards_remote_memory() {
    let domain = domain();
    let mut connection = Connection::new(&domain);
    let [first, second] = [(); 2].map(|()| Shared::in_domain(&domain, 8));
    let (remote_addr, rkey) = (first.memory().addr(), first.memory().rkey());
    connection.initiator.fill(0, &5_u64.to_ne_bytes());
    connection.succeeds(number(&first), SendOperation::Write { remote_addr, rkey });
    assert_eq!(first.bytes(0..8), 5_u64.to_ne_bytes());
    connection.succeeds(number(&first), SendOperation::FetchAdd { remote_addr, rkey, add: 6 });
    let swap = SendOperation::CompareSwap { remote_addr, rkey, compare: 11, swap: 12 };
    connection.succeeds(number(&first), swap);
    connection.succeeds(number(&first), SendOperation::Read { remote_addr, rkey });
    assert_eq!(connection.initiator.bytes(0..8), 12_u64.to_ne_bytes());
    let completion =
        connection.carry_out(number(&second), SendOperation::Read { remote_addr, rkey });
    assert_eq!(completion.status(), WcStatus::IB_WC_REM_ACCESS_ERR);
    assert_eq!(connection.target.query().expect("query").qp_state, QpState::IB_QPS_ERR);
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn queue_outside_domain_is_not_reached() {
    let [ours, theirs] = [(); 2].map(|()| domain());
    let connection = Connection::new(&ours);
    let stranger = Shared::in_domain(&theirs, 8);
    stranger.receive(1, 0..64).expect("post a receive");
    let completion = connection.carry_out(number(&stranger), SendOperation::Send);
    assert_eq!(completion.status(), WcStatus::IB_WC_REM_INV_REQ_ERR);
    assert_eq!(stranger.cq.poll(&mut [Completion::default()]).expect("poll"), 0);
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn impossible_operations_are_refused() {
    let domain = domain();
    let connection = Connection::new(&domain);
    let shared = Shared::in_domain(&domain, 8);
    let post =
        |operation: SendOperation<'_>| connection.initiator.post(1, operation, 0..8, SIGNALED);
    let (remote_addr, rkey) = (shared.memory().addr(), shared.memory().rkey());
    for plain in [
        SendOperation::Send,
        SendOperation::SendWithImm { imm_data: 1 },
        SendOperation::Write { remote_addr, rkey },
        SendOperation::Read { remote_addr, rkey },
        SendOperation::FetchAdd { remote_addr, rkey, add: 1 },
    ] {
        assert_invalid(
            &post(plain).expect_err("a send without a queue should be refused"),
            &["name a shared receive queue"],
        );
    }
    let srq_number = number(&shared);
    let within = SendOperation::AtSharedQueue { srq_number, operation: &SendOperation::Send };
    for inner in [within, SendOperation::LocalInvalidate { rkey }] {
        let operation = SendOperation::AtSharedQueue { srq_number, operation: &inner };
        assert_invalid(
            &post(operation).expect_err("the operation should not name a queue"),
            &["`AtSharedQueue`"],
        );
    }
    // No bytes were stored.
    shared.receive(1, 0..64).expect("post a receive");
    connection.succeeds(srq_number, SendOperation::Send);
    shared.done();
    let [plain, _peer] = manual_qp::connected(QpType::IB_UVERBS_QPT_RC, Shape::default());
    let error =
        plain.post(1, within, 0..8, SIGNALED).expect_err("the queue pair should be no initiator");
    assert_invalid(&error, &["only XRC initiators"]);
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn completions_of_destroyed_queue_are_dropped() {
    let domain = domain();
    let connection = Connection::new(&domain);
    for round in 0..3 {
        let shared = Shared::in_domain(&domain, 8);
        let cq = shared.cq.clone();
        for wr_id in 0..3 {
            shared.receive(wr_id, 0..64).expect("post a receive");
            connection.succeeds(number(&shared), SendOperation::Send);
        }
        if round == 1 {
            shared.done();
        }
        drop(shared);
        let mut completions = [Completion::default(); 4];
        assert_eq!(cq.poll(&mut completions).expect("poll"), 0, "{completions:?}");
    }
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn initiator_flushes_requests() {
    let domain = domain();
    let connection = Connection::new(&domain);
    modify(connection.initiator.qp(), Attributes::to(QpState::IB_QPS_ERR));
    let completion = connection.carry_out(1, SendOperation::Send);
    assert_eq!(completion.status(), WcStatus::IB_WC_WR_FLUSH_ERR);
    connection.initiator.qp().drain(LONG, |_| {}).expect("drain");
}

/// Checks that one connection reaches each process that has joined the domain.
///
/// This holds while a process has the target.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn processes_share_target() {
    let path = env::temp_dir().join(format!("rdmacm-xrc-messages-{}", process::id()));
    File::create(&path).expect("create a file");
    let open = |mode| {
        let context = Context::open(&device(roce_name())).expect("open the device");
        XrcDomain::open(&context, File::open(&path).expect("open the file"), mode).expect("domain")
    };
    let domain = open(XrcOpenMode::Create);
    let connection = Connection::new(&domain);
    let target = connection.target.number();
    let (mut ours, mut theirs) = UnixStream::pair().expect("socket pair");
    thread::scope(|scope| {
        let open = &open;
        let other = scope.spawn(move || {
            in_child(|| {
                let domain = open(XrcOpenMode::Join);
                let _target = XrcTarget::open(&domain, target).expect("open the target");
                let shared = Shared::in_domain(&domain, 8);
                shared.receive(5, 0..64).expect("post a receive");
                theirs.write_all(&number(&shared).to_ne_bytes()).expect("send the number");
                let completion = shared.done();
                assert_eq!((completion.wr_id(), completion.qp_num()), (5, target));
            });
        });
        let mut theirs = [0; 4];
        ours.read_exact(&mut theirs).expect("learn the number");
        let shared = Shared::in_domain(&domain, 8);
        shared.receive(6, 0..64).expect("post a receive");
        connection.succeeds(u32::from_ne_bytes(theirs), SendOperation::Send);
        connection.succeeds(number(&shared), SendOperation::Send);
        assert_eq!(shared.done().wr_id(), 6);
        other.join().expect("the other process should succeed");
    });
    fs::remove_file(&path).expect("remove the file");
}
