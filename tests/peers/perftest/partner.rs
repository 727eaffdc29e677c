//! The partner of a program of perftest: the exchange, and a queue pair of this library.

use std::fs::File;
use std::io;
use std::net::{Ipv6Addr, TcpListener, TcpStream};
use std::os::unix::fs::FileExt;

use rdmacm::Result;
use rdmacm::verbs::{
    AccessFlags, BufferedQueuePair, Completion, CompletionQueue, Context, MemoryRegion, Mtu,
    ProtectionDomain, QpState, QpType, QueuePair, QueuePairAttributes, QueuePairCaps,
    QueuePairInit, RegisteredBuffer, SendOperation,
};
use rdmacm::verbs_abi::{ib_uverbs_ah_attr, ib_uverbs_global_route};
use rdmacm_tests::rng::Rng;
use rdmacm_tests::roce::{roce_ip, roce_name};
use rdmacm_tests::{Ended, Process, promised_device, wait_until};

use super::exchange::{Agreed, Exchange, Record, Report};
use crate::pingpong::{gid, listening};
use crate::rping::{LIMIT, Program, port};

/// Number of messages of a test.
pub(super) const MESSAGES: usize = 20;

/// The role of the partner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    Server,
    Client,
}

/// A test of perftest.
#[derive(Debug)]
pub(super) struct Test {
    pub(super) program: &'static str,
    /// Length of a message in bytes.
    pub(super) size: usize,
    /// Number of times that the records are exchanged before the queue pairs are connected.
    pub(super) handshakes: usize,
}

/// A partner whose queue pair is connected to that of C's program.
#[derive(Debug)]
pub(super) struct Partner {
    /// C's program.
    program: Process,
    exchange: Exchange,
    pub(super) agreed: Agreed,
    size: usize,
    ours: Record,
    pub(super) theirs: Record,
    pub(super) queues: BufferedQueuePair,
    /// Memory that C's program may access. Its bytes are those of [`fill`] at first.
    memory: MemoryRegion,
    /// Buffers for a send and for all receives.
    pub(super) buffers: Vec<RegisteredBuffer>,
}

impl Partner {
    /// Starts C's program in the other role, and connects the queue pairs.
    pub(super) fn start(role: Role, test: &Test) -> Self {
        let (index, gid) = gid(roce_ip());
        let (mut program, mut exchange) = meet(role, test, &index);
        let gid: Ipv6Addr = gid.parse().expect("an IPv6 address");
        let index = index.parse().expect("the index should fit");

        let context = Context::open(&promised_device(roce_name())).expect("open the device");
        let pd = ProtectionDomain::new(&context).expect("protection domain");
        let [send_cq, recv_cq] =
            [(); 2].map(|()| CompletionQueue::new(&context, 64, None).expect("completion queue"));
        let count = u32::try_from(MESSAGES).expect("the number should fit");
        let caps =
            QueuePairCaps { max_send_wr: count, max_recv_wr: count, ..QueuePairCaps::default() };
        let init = QueuePairInit { caps, recv_cq: &recv_cq, ..QueuePairInit::new(&send_cq) };
        let qp = QueuePair::with_type(&pd, QpType::IB_UVERBS_QPT_RC, &init).expect("queue pair");
        let access = REMOTE_ACCESS | AccessFlags::IB_UVERBS_ACCESS_LOCAL_WRITE;
        let mut memory = MemoryRegion::alloc(&pd, MEMORY, access).expect("memory region");
        memory.write(0, &fill()).expect("the range should be within the memory");
        let ours = Record {
            lid: 0,
            out_reads: 1,
            qp_num: qp.number(),
            // Any number of 24 bits is valid. If the sides expect different numbers, no packet is accepted.
            psn: qp.number() ^ 0xab_cdef,
            rkey: memory.rkey(),
            vaddr: memory.addr(),
            gid: gid.octets(),
        };
        let agree = |exchange: &mut Exchange| {
            let agreed = exchange.agree(Mtu::IB_MTU_1024)?;
            let theirs = exchange.handshake(&ours)?;
            for _ in 1..test.handshakes {
                exchange.handshake(&ours)?;
            }
            io::Result::Ok((agreed, theirs))
        };
        let (agreed, theirs) = agree(&mut exchange)
            .unwrap_or_else(|error| program.fail(&format!("cannot exchange addresses: {error}")));
        connect(&qp, index, agreed.mtu, &ours, &theirs);
        let buffers = RegisteredBuffer::alloc(&pd, 1 + MESSAGES, test.size).expect("buffers");
        let queues = BufferedQueuePair::new(qp).expect("the queues");
        let size = test.size;
        let mut partner =
            Self { program, exchange, agreed, size, ours, theirs, queues, memory, buffers };
        // After two steps both queue pairs are connected, and perftest has printed both records.
        partner.handshake();
        partner.handshake();
        partner
    }

    /// Exchanges the records again, which waits until the other side does so too.
    pub(super) fn handshake(&mut self) {
        let theirs = self.exchange.handshake(&self.ours);
        let theirs = self.exchanged(theirs);
        assert_eq!(theirs, self.theirs, "peer should send an unchanged record");
    }

    /// Exchanges the results of a bandwidth test, and returns C's numbers of bytes and messages.
    pub(super) fn report(&mut self, report: &Report) -> (u64, u64) {
        let theirs = self.exchange.report(report);
        self.exchanged(theirs)
    }

    /// Waits until C's program has moved all its data. It keeps its memory until [`end`](Self::end).
    pub(super) fn await_end(&mut self) {
        let waited = self.exchange.await_end();
        self.exchanged(waited);
    }

    /// Ends the exchange, and returns the output of C's program, which must succeed.
    pub(super) fn end(mut self) -> Ended {
        let ended = self.exchange.end(&self.ours);
        self.exchanged(ended);
        let ended = self.program.finish();
        assert!(ended.status.success(), "{}: {}", ended.status, ended.stderr);
        ended
    }

    fn exchanged<T>(&mut self, result: io::Result<T>) -> T {
        result.unwrap_or_else(|error| self.program.fail(&format!("cannot exchange: {error}")))
    }

    /// Returns the first bytes of the memory that C's program lets its peer access, and receives into.
    pub(super) fn target(&self, length: usize) -> Vec<u8> {
        self.peer_memory(self.theirs.vaddr, length)
    }

    /// Returns the first bytes of the memory that C's program sends, writes or reads into.
    ///
    /// The memory is directly before that of [`target`](Self::target). Its length is that of a message, at least
    /// [`Agreed::cycle`].
    pub(super) fn source(&self, length: usize) -> Vec<u8> {
        let size = self.size.max(self.agreed.cycle) as u64;
        self.peer_memory(self.theirs.vaddr - size, length)
    }

    fn peer_memory(&self, address: u64, length: usize) -> Vec<u8> {
        let memory = File::open(format!("/proc/{}/mem", self.program.id()));
        let mut bytes = vec![0; length];
        let read = memory.and_then(|memory| memory.read_exact_at(&mut bytes, address));
        read.expect("read the memory of the program");
        bytes
    }

    /// Returns the bytes of this side's memory that C's program may access.
    pub(super) fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.memory.len()];
        self.memory.read(0, &mut bytes).expect("the range should be within the memory");
        bytes
    }

    /// Posts a request over `buffer`, and waits until it has completed.
    pub(super) fn send(
        &mut self,
        buffer: RegisteredBuffer,
        length: usize,
        operation: SendOperation<'_>,
    ) -> RegisteredBuffer {
        self.queues.post_send(buffer, length, operation).expect("post");
        let (buffer, _) = self.wait("send", |queues, done| {
            queues.poll_send(|buffer, completion| *done = Some((buffer, *completion)))
        });
        buffer
    }

    /// Waits for a message, and returns its bytes.
    ///
    /// No other message can come before this side has answered.
    pub(super) fn receive(&mut self) -> Vec<u8> {
        let (buffer, completion) = self.wait("receive", |queues, done| {
            queues.poll_recv(|buffer, completion| *done = Some((buffer, *completion)))
        });
        let length = usize::try_from(completion.byte_len()).expect("the length should fit");
        buffer[..length].to_vec()
    }

    /// Waits for the completion that `poll` stores.
    fn wait(
        &mut self,
        what: &str,
        poll: impl Fn(
            &mut BufferedQueuePair,
            &mut Option<(RegisteredBuffer, Completion)>,
        ) -> Result<usize>,
    ) -> (RegisteredBuffer, Completion) {
        let Self { queues, program, .. } = self;
        let mut done = None;
        wait_until(&format!("the {what} completes"), || {
            poll(queues, &mut done).expect("poll");
            done.is_some() || !program.is_running()
        });
        match done {
            Some((buffer, completion)) if completion.is_success() => (buffer, completion),
            Some((_, completion)) => program.fail(&format!("{what}: {}", completion.status())),
            None => program.fail(&format!("C's program ended before the {what} completed")),
        }
    }
}

/// Length of the memory that C's program may access.
const MEMORY: usize = 4096;

/// Returns the first contents of the memory that C's program may access.
pub(super) fn fill() -> Vec<u8> {
    pattern(MESSAGES, MEMORY)
}

/// Returns the bytes of message `number`.
pub(super) fn pattern(number: usize, length: usize) -> Vec<u8> {
    let mut rng = Rng(1 + number as u64);
    (0..length).map(|_| rng.number().to_le_bytes()[0]).collect()
}

/// Access to the memory that C's program has.
const REMOTE_ACCESS: AccessFlags = AccessFlags::IB_UVERBS_ACCESS_REMOTE_WRITE
    .union(AccessFlags::IB_UVERBS_ACCESS_REMOTE_READ)
    .union(AccessFlags::IB_UVERBS_ACCESS_REMOTE_ATOMIC);

/// Starts C's program, and connects to it over TCP.
fn meet(role: Role, test: &Test, gid_index: &str) -> (Process, Exchange) {
    let (port, count, size) = (port(), MESSAGES.to_string(), test.size.to_string());
    // The clock of an emulated processor is not that in its description, which -F permits.
    let mut arguments = vec!["-F", "-d", roce_name(), "-x", gid_index, "-m", "1024"];
    arguments.extend(["-n", &count, "-s", &size, "-p", &port]);
    let at = format!("{}:{port}", roce_ip());
    let (program, stream) = match role {
        Role::Client => {
            let program = listening(Program::C.run(test.program, &arguments), &port);
            (program, TcpStream::connect(at).expect("connect to the server"))
        }
        Role::Server => {
            let listener = TcpListener::bind(at).expect("listen");
            listener.set_nonblocking(true).expect("a mode of every socket");
            arguments.push(roce_ip());
            let mut program = Program::C.run(test.program, &arguments);
            let mut accepted = None;
            wait_until("the client connects", || {
                accepted = listener.accept().ok();
                accepted.is_some() || !program.is_running()
            });
            let Some((stream, _)) = accepted else {
                program.fail("C's client ended before it connected");
            };
            (program, stream)
        }
    };
    stream.set_read_timeout(Some(LIMIT)).expect("a limit");
    (program, Exchange { stream, is_client: role == Role::Client })
}

/// Moves the queue pair to RTS.
fn connect(qp: &QueuePair, gid_index: u8, mtu: Mtu, ours: &Record, theirs: &Record) {
    let modify = |attributes| qp.modify(&attributes).expect("modify");
    let init = QueuePairAttributes::to(QpState::IB_QPS_INIT);
    modify(init.pkey_index(0).port(1).access(REMOTE_ACCESS));
    let grh = ib_uverbs_global_route {
        dgid: theirs.gid,
        sgid_index: gid_index,
        hop_limit: 64,
        ..Default::default()
    };
    let address = ib_uverbs_ah_attr { grh, is_global: 1, port_num: 1, ..Default::default() };
    let receive = QueuePairAttributes::to(QpState::IB_QPS_RTR).address(address);
    let receive = receive.path_mtu(mtu).dest_qp_num(theirs.qp_num).rq_psn(theirs.psn);
    modify(receive.max_dest_rd_atomic(ours.out_reads).min_rnr_timer(12));
    let send = QueuePairAttributes::to(QpState::IB_QPS_RTS).sq_psn(ours.psn);
    let send = send.timeout(14).retry_cnt(7).rnr_retry(7);
    modify(send.max_rd_atomic(theirs.out_reads));
}
