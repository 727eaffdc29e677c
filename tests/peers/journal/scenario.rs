//! Runs a script of verbs with this library. `scenario.c` runs the same scripts with rdma-core's library.
//!
//! A script has one verb in each line. The objects of a kind are numbered in the order of their creation:
//!
//! | verb | effect |
//! |---|---|
//! | `context` | opens the device again, and uses this context from then on |
//! | `use CONTEXT` | uses another context, with its first protection domain and its first region |
//! | `pd` | creates a protection domain |
//! | `mr BYTES` | registers memory with a pattern in it, with all access rights |
//! | `buffers COUNT BYTES` | registers buffers of a multiple of 64 bytes with a pattern in them, for local access, as one region that is not the first one |
//! | `buffered QP` | posts to this queue pair, and polls its completion queues, by a [`BufferedQueuePair`] from then on |
//! | `access RIGHTS` | changes the access rights of the first region |
//! | `replace BYTES` | registers the first region again, over other memory with the pattern |
//! | `domain PD` | moves the first region to another protection domain |
//! | `window TYPE` | creates a memory window of type 1 or 2 |
//! | `bind QP WINDOW SGES RIGHTS FLAGS` | posts a bind of a window to a part of the first region, or to nothing |
//! | `channel` | creates a completion channel |
//! | `cq CAPACITY CHANNEL` | creates a completion queue; `-` for no channel |
//! | `resize CQ CAPACITY` | changes the capacity of a completion queue |
//! | `srq RECEIVES SGES` | creates a shared receive queue |
//! | `xrcd` | creates an XRC domain |
//! | `xrc_srq CQ RECEIVES SGES` | creates a shared receive queue in the XRC domain |
//! | `target` | creates an XRC target, which counts as a queue pair |
//! | `qp TYPE SEND_CQ RECV_CQ SRQ SENDS RECEIVES SEND_SGES RECEIVE_SGES INLINE SIGNALED` | creates a queue pair, whose type is `rc`, `uc`, `ud` or `initiator`; with `all`, every send is signaled |
//! | `try_qp TYPE CQ SENDS RECEIVES SEND_SGES RECEIVE_SGES INLINE` | creates a queue pair and destroys it, or prints the error number |
//! | `ah FLOW_LABEL TRAFFIC_CLASS HOP_LIMIT SERVICE_LEVEL RATE` | creates an address handle for the device itself |
//! | `connect QP PEER`, `datagrams QP` | moves a queue pair from RESET to RTS |
//! | `reset QP`, `error QP`, `suspend QP`, `resume QP` | moves a queue pair to RESET, ERR, SQD or RTS |
//! | `show_qp QP`, `show_srq SRQ` | prints what the kernel answers about a queue |
//! | `limit SRQ RECEIVES` | sets the limit of a shared receive queue |
//! | `async` | reads an asynchronous event and prints its type |
//! | `group` | creates an address handle for a multicast group |
//! | `join QP`, `leave QP` | attaches a queue pair to the multicast group, or detaches it |
//! | `ece QP OPTIONS`, `show_ece QP` | requests options of enhanced connection establishment, or prints them |
//! | `receive SGES`, `send OPERATION FLAGS SGES` | adds a request to the list of the next post |
//! | `post_receives QP`, `post_shared SRQ`, `post_sends QP` | posts the list |
//! | `post_too_many QP` | posts the list, whose last send is refused |
//! | `poll CQ COUNT` | polls once, for at most this number of completions |
//! | `await CQ COUNT` | polls for single completions until this number has arrived |
//! | `free` | lets the engine of the card run freely from then on |
//! | `arm CQ WHICH` | arms for `all` or `solicited` completions |
//! | `event CHANNEL` | reads and acknowledges an event |
//! | `memory OFFSET LENGTH` | prints bytes of the first region, or with `#BUFFER` in the place of the offset those of a buffer |
//! | `destroy KIND NUMBER` | destroys an object |
//!
//! SGES are scatter/gather entries `OFFSET+LENGTH,...` in the first region, or `-` for none; a `!` before an entry gives it a
//! key that no region has. A request of a buffered queue pair is signaled and has the entry `#BUFFER+LENGTH`, which begins a
//! buffer. Flags are `s`ignaled, solicited `e`vent, `f`ence and `i`nline, or `-`. Rights are `l`ocal write,
//! remote `w`rite, remote `r`ead, remote `a`tomics and `b`ind, or `-`. Operations are
//! `send`, `send_imm:IMMEDIATE`, `send_inv` (of the first region's key), `send_inv:WINDOW`, `invalidate:WINDOW`, `datagram:AH:QP`,
//! `datagram_imm:AH:QP:IMMEDIATE`, `multicast:AH`, `write:OFFSET`, `write_badly:OFFSET` (with a key that no region has),
//! `write_through:WINDOW:OFFSET`, `write_imm:OFFSET:IMMEDIATE`, `read:OFFSET`, `swap:OFFSET:COMPARE:SWAP` and `add:OFFSET:ADD`. For
//! an initiator, `at:SRQ:` precedes the operation.
//!
//! # Safety
//!
//! Requests name memory of the first region only. A script destroys the region, or ends, after it has destroyed the queue
//! pairs; the region's bytes are accessed by copying.
#![expect(unsafe_code, reason = "re-registers memory that no request names")]

mod buffered;
mod completions;
mod kept;
mod posts;
mod queue_pair;
mod words;

use std::alloc::{self, Layout};
use std::env;
use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::net::Ipv6Addr;
use std::path::Path;
use std::ptr::NonNull;

use rdmacm::device::{Device, Gid};
use rdmacm::verbs::{
    AddressHandle, CompletionChannel, CompletionQueue, Context, Ece, MemoryRegion, MemoryWindow,
    MemoryWindowType, ProtectionDomain, QpState, QueuePair, QueuePairAttributes, ReregisterOptions,
    Sge, SharedReceiveQueue, SharedReceiveQueueAttributes, XrcDomain, XrcTarget,
};
use rdmacm::verbs_abi::ib_uverbs_ah_attr;

use self::buffered::Buffers;
use self::kept::KeptQueues;
use self::queue_pair::{Qp, to_datagrams};
use self::words::{number, rights};

/// GID of an IPv4 multicast group on RoCE, and below it the LID that every group has on Ethernet.
const GROUP: [u8; 16] = [0xff, 0x0e, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 239, 1, 2, 3];
const GROUP_LID: u16 = 0xc000;

/// The address of the device, which connects and sends datagrams to itself.
#[derive(Debug, Clone, Copy)]
pub(super) struct Address {
    pub(super) gid: Ipv6Addr,
    pub(super) index: u8,
}

/// A script that is being run.
struct Run {
    device: Device,
    contexts: Vec<Opened>,
    /// The context that the verbs use.
    current: usize,
    /// File of the card that pauses the engine while it is open. `None` if the engine runs freely.
    sweeps: Option<File>,
    address: Address,
    channels: Vec<Option<CompletionChannel>>,
    cqs: Vec<Option<CompletionQueue>>,
    srqs: Vec<Option<SharedReceiveQueue>>,
    domain: Option<XrcDomain>,
    qps: Vec<Option<Qp>>,
    ahs: Vec<Option<AddressHandle>>,
    windows: Vec<Option<MemoryWindow>>,
    regions: Vec<Option<MemoryRegion>>,
    pds: Vec<Option<ProtectionDomain>>,
    buffers: Buffers,
    queues: Queues,
    kept: KeptQueues,
    /// `true` if queues were kept that are released now.
    has_kept: bool,
    receives: Vec<Receive>,
    sends: Vec<Send>,
    next_id: u64,
    printed: String,
}

/// The functions with which a script posts and polls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Queues {
    /// Each post and each poll locks its queue.
    Plain,
    /// A queue stays locked from its first post or poll until an object is destroyed or resized.
    Kept,
}

/// A context, and the places of its first protection domain and of its first region.
struct Opened {
    context: Context,
    pd: usize,
    region: usize,
}

/// The memory of a request.
enum Memory {
    Sges(Vec<Sge>),
    /// The first `length` bytes of a buffer.
    Buffer {
        buffer: usize,
        length: usize,
    },
}

impl Memory {
    /// Returns the scatter/gather entries of a request that is posted without a buffer.
    fn sges(&self) -> &[Sge] {
        match self {
            Self::Sges(sges) => sges,
            Self::Buffer { buffer, .. } => {
                panic!("buffer {buffer} does not belong to this queue pair")
            }
        }
    }
}

/// A receive request of the next list.
struct Receive {
    wr_id: u64,
    memory: Memory,
}

/// A send request of the next list.
struct Send {
    wr_id: u64,
    operation: String,
    flags: String,
    memory: Memory,
}

/// Runs `script` on `device`. The engine of the card sweeps twice after each verb, and at no other time, unless the script lets
/// it run freely.
///
/// Returns the lines that the program in C prints.
pub(super) fn run(
    device: &Device,
    address: Address,
    sweeps: &Path,
    script: &str,
    queues: Queues,
) -> String {
    let sweeps = OpenOptions::new().write(true).open(sweeps).expect("open the file of sweeps");
    let mut run = Run {
        device: device.clone(),
        contexts: Vec::new(),
        current: 0,
        sweeps: Some(sweeps),
        address,
        channels: Vec::new(),
        cqs: Vec::new(),
        srqs: Vec::new(),
        domain: None,
        qps: Vec::new(),
        ahs: Vec::new(),
        windows: Vec::new(),
        regions: Vec::new(),
        pds: Vec::new(),
        buffers: Buffers::default(),
        queues,
        kept: KeptQueues::default(),
        has_kept: false,
        receives: Vec::new(),
        sends: Vec::new(),
        next_id: 0,
        printed: String::new(),
    };
    run.open();
    for line in script.lines() {
        run.verb(line);
        run.sweep(2);
    }
    run.release_kept();
    if queues == Queues::Kept && script.lines().any(|line| line.starts_with("poll ")) {
        assert!(run.has_kept, "the script should poll queues that are kept");
    }
    let Run { printed, mut contexts, sweeps, .. } = run;
    while contexts.pop().is_some() {}
    drop(sweeps);
    printed
}

/// Returns the object with this number.
fn at<T>(objects: &[Option<T>], number: usize) -> &T {
    objects[number].as_ref().expect("object should exist")
}

/// Takes the object with this number, so that it can be destroyed.
fn take<T>(objects: &mut [Option<T>], number: usize) -> T {
    objects[number].take().expect("object should exist")
}

impl Run {
    /// Lets the engine sweep this number of times, unless it runs freely.
    fn sweep(&mut self, times: u32) {
        if let Some(sweeps) = &mut self.sweeps {
            sweeps.write_all(times.to_string().as_bytes()).expect("sweep");
        }
    }

    fn open(&mut self) {
        self.current = self.contexts.len();
        let context = Context::open(&self.device).expect("open the device");
        self.contexts.push(Opened { context, pd: self.pds.len(), region: self.regions.len() });
    }

    fn opened(&self) -> &Opened {
        &self.contexts[self.current]
    }

    fn context(&self) -> &Context {
        &self.opened().context
    }

    fn pd(&self) -> &ProtectionDomain {
        at(&self.pds, self.opened().pd)
    }

    fn region(&self) -> &MemoryRegion {
        at(&self.regions, self.opened().region)
    }

    fn region_mut(&mut self) -> &mut MemoryRegion {
        let place = self.opened().region;
        self.regions[place].as_mut().expect("region should exist")
    }

    fn qp(&self, text: &str) -> &Qp {
        at(&self.qps, number(text))
    }

    /// Returns a queue pair that has queues.
    fn queues(&self, text: &str) -> &QueuePair {
        match self.qp(text) {
            Qp::WithQueues(qp) => qp,
            Qp::Buffered(queues) => queues.qp(),
            Qp::Target(_) => panic!("queue pair {text} has no queues"),
        }
    }

    fn print(&mut self, line: &str) {
        self.printed.push_str(line);
        self.printed.push('\n');
    }

    fn verb(&mut self, line: &str) {
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            ["context"] => self.open(),
            ["use", context] => self.current = number(context),
            ["pd"] => self.pds.push(Some(ProtectionDomain::new(self.context()).expect("pd"))),
            ["mr", length] => self.create_region(number(length)),
            ["buffers", count, length] => self.create_buffers(number(count), number(length)),
            ["buffered", qp] => self.buffer(number(qp)),
            ["channel"] => {
                let channel = CompletionChannel::new(self.context()).expect("channel");
                self.channels.push(Some(channel));
            }
            ["cq", capacity, channel] => {
                let channel = (channel != "-").then(|| at(&self.channels, number(channel)));
                let cq = CompletionQueue::new(self.context(), number(capacity), channel);
                self.cqs.push(Some(cq.expect("cq")));
            }
            ["resize", cq, capacity] => {
                // A thread cannot resize a queue whose guard it holds.
                self.release_kept();
                let cq = at(&self.cqs, number(cq));
                cq.resize(number(capacity)).expect("resize");
                let line = format!("capacity {}", cq.capacity());
                self.print(&line);
            }
            ["xrcd"] => {
                self.domain = Some(XrcDomain::new(self.context()).expect("an XRC domain"));
            }
            ["xrc_srq", cq, receives, sges] => {
                let cq = Some(at(&self.cqs, number(cq)).clone());
                self.create_srq(cq, number(receives), number(sges));
            }
            ["target"] => {
                let domain = self.domain.as_ref().expect("an XRC domain");
                let target = XrcTarget::new(domain).expect("an XRC target");
                self.qps.push(Some(Qp::Target(target)));
            }
            ["srq", receives, sges] => self.create_srq(None, number(receives), number(sges)),
            ["qp", qp_type, ref rest @ ..] => self.create_qp(qp_type, rest),
            ["access", letters] => {
                let options =
                    ReregisterOptions { access: Some(rights(letters)), ..Default::default() };
                let region = self.region_mut();
                // SAFETY: scripts change the region when all requests that named it have completed.
                unsafe { region.reregister(&options) }.expect("re-register");
            }
            ["replace", length] => self.replace_memory(number(length)),
            ["try_qp", qp_type, cq, ref caps @ ..] => self.try_qp(qp_type, number(cq), caps),
            ["domain", pd] => {
                let pd = at(&self.pds, number(pd)).clone();
                let region = self.region_mut();
                let options = ReregisterOptions { pd: Some(&pd), ..Default::default() };
                // SAFETY: as above.
                unsafe { region.reregister(&options) }.expect("re-register");
            }
            ["window", mw_type] => {
                let window = MemoryWindow::new(self.pd(), MemoryWindowType(number(mw_type)));
                self.windows.push(Some(window.expect("window")));
            }
            ["bind", qp, window, sges, letters, flags] => {
                let wr_id = self.next_id();
                self.bind(wr_id, number(qp), [window, sges, letters, flags]);
            }
            ["ah", flow_label, traffic_class, hop_limit, sl, rate] => {
                let mut address = self.address_of_device();
                address.grh.flow_label = number(flow_label);
                address.grh.traffic_class = number(traffic_class);
                address.grh.hop_limit = number(hop_limit);
                address.sl = number(sl);
                address.static_rate = number(rate);
                self.ahs.push(Some(AddressHandle::new(self.pd(), &address).expect("ah")));
            }
            ["connect", qp, peer] => self.connect(self.qp(qp), self.qp(peer)),
            ["datagrams", qp] => to_datagrams(self.qp(qp)),
            ["reset", qp] => {
                // A thread that holds a poller removes the completions of the queue pair only when it polls.
                self.has_kept |= self.kept.release_pollers();
                self.qp(qp).modify(QueuePairAttributes::to(QpState::IB_QPS_RESET));
            }
            ["error", qp] => self.qp(qp).modify(QueuePairAttributes::to(QpState::IB_QPS_ERR)),
            ["suspend", qp] => self.qp(qp).modify(QueuePairAttributes::to(QpState::IB_QPS_SQD)),
            ["resume", qp] => self.qp(qp).modify(QueuePairAttributes::to(QpState::IB_QPS_RTS)),
            ["show_qp", qp] => {
                let found = self.queues(qp).query().expect("query");
                let peer = self.qp_of(found.dest_qp_num);
                let line = format!(
                    "state {} peer {peer} psn {} {} depths {} {} retries {} {}",
                    found.qp_state.0,
                    found.rq_psn,
                    found.sq_psn,
                    found.max_rd_atomic,
                    found.max_dest_rd_atomic,
                    found.retry_cnt,
                    found.rnr_retry
                );
                self.print(&line);
            }
            ["show_srq", srq] => {
                let found = at(&self.srqs, number(srq)).query().expect("query");
                self.print(&format!("srq {} {} {}", found.max_wr, found.max_sge, found.limit));
            }
            ["limit", srq, limit] => {
                at(&self.srqs, number(srq)).set_limit(number(limit)).expect("limit");
            }
            ["async"] => {
                let event = self.context().async_events().get_event().expect("event");
                self.print(&format!("async {}", event.event_type().0));
            }
            ["group"] => {
                let mut address = self.address_of_device();
                address.grh.dgid = GROUP;
                self.ahs.push(Some(AddressHandle::new(self.pd(), &address).expect("ah")));
            }
            ["join", qp] => {
                self.queues(qp).attach_multicast(Gid(GROUP), GROUP_LID).expect("attach");
            }
            ["leave", qp] => {
                self.queues(qp).detach_multicast(Gid(GROUP), GROUP_LID).expect("detach");
            }
            ["ece", qp, options] => {
                let qp = self.queues(qp);
                let ece = qp.ece().expect("the card should have options");
                qp.set_ece(Ece { options: number(options), ..ece }).expect("set the options");
            }
            ["show_ece", qp] => {
                let ece = self.queues(qp).ece().expect("the card should have options");
                self.print(&format!("ece {} {}", ece.vendor_id, ece.options));
            }
            ["receive", sges] => {
                let (wr_id, memory) = (self.next_id(), self.memory(sges));
                self.receives.push(Receive { wr_id, memory });
            }
            ["send", operation, flags, sges] => {
                let (operation, flags) = (operation.to_owned(), flags.to_owned());
                let (wr_id, memory) = (self.next_id(), self.memory(sges));
                self.sends.push(Send { wr_id, operation, flags, memory });
            }
            ["post_receives", qp] => {
                let receives = std::mem::take(&mut self.receives);
                self.post_receives(number(qp), &receives);
            }
            ["post_shared", srq] => {
                let receives = std::mem::take(&mut self.receives);
                self.post_shared(number(srq), &receives);
            }
            ["post_sends", qp] => {
                let sends = std::mem::take(&mut self.sends);
                self.post_sends(number(qp), &sends);
            }
            ["post_too_many", qp] => {
                let sends = std::mem::take(&mut self.sends);
                let errno = self.post_too_many(number(qp), &sends);
                self.print(&format!("refused {errno}"));
            }
            ["poll", cq, count] => self.poll(number(cq), number(count)),
            ["await", cq, count] => self.wait_for(number(cq), number(count)),
            ["free"] => self.sweeps = None,
            ["arm", cq, which] => {
                let cq = at(&self.cqs, number(cq));
                cq.request_notify(which == "solicited").expect("arm");
            }
            ["event", channel] => {
                let event = at(&self.channels, number(channel)).get_event().expect("event");
                let is_from = |cq: &Option<CompletionQueue>| {
                    cq.as_ref().is_some_and(|cq| cq.token() == event.token())
                };
                let cq = self.cqs.iter().position(is_from).expect("queue should exist");
                drop(event);
                self.print(&format!("event {cq}"));
            }
            ["memory", offset, length] => {
                let bytes = match offset.strip_prefix('#') {
                    Some(buffer) => self.buffers.bytes(number(buffer), number(length)),
                    None => {
                        let mut bytes = vec![0; number(length)];
                        self.region()
                            .read(number(offset), &mut bytes)
                            .expect("the range should be within the memory");
                        bytes
                    }
                };
                let line: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
                self.print(&line);
            }
            ["destroy", kind, which] => self.destroy(kind, number(which)),
            _ => panic!("unknown verb: {line}"),
        }
    }

    fn next_id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id - 1
    }

    fn create_region(&mut self, length: usize) {
        let mut region = MemoryRegion::alloc(self.pd(), length, rights("lwrab")).expect("mr");
        let pattern: Vec<u8> = (0..length).map(|at| (at * 7 + 3).to_le_bytes()[0]).collect();
        region.write(0, &pattern).expect("the range should be within the memory");
        self.regions.push(Some(region));
    }

    /// Creates a shared receive queue, in the XRC domain if it has a completion queue.
    fn create_srq(&mut self, cq: Option<CompletionQueue>, max_wr: u32, max_sge: u32) {
        let attributes = SharedReceiveQueueAttributes {
            max_wr,
            max_sge,
            ..SharedReceiveQueueAttributes::default()
        };
        let srq = match (&self.domain, cq) {
            (Some(domain), Some(cq)) => {
                SharedReceiveQueue::with_xrc_domain(domain, self.pd(), &cq, attributes)
            }
            _ => SharedReceiveQueue::new(self.pd(), attributes),
        };
        let srq = srq.expect("srq");
        let attributes = srq.attributes();
        self.print(&format!("srq {} {}", attributes.max_wr, attributes.max_sge));
        self.srqs.push(Some(srq));
    }

    /// Registers the first region over new memory, which lives as long as this process.
    fn replace_memory(&mut self, length: usize) {
        let layout = Layout::from_size_align(length, 4096).expect("a size");
        // SAFETY: the length is not zero.
        let memory = NonNull::new(unsafe { alloc::alloc(layout) }).expect("memory");
        for at in 0..length {
            // SAFETY: the byte is within the memory.
            let byte = unsafe { memory.add(at) };
            // SAFETY: as above; nothing else has the memory.
            unsafe { byte.write((at * 7 + 3).to_le_bytes()[0]) };
        }
        let options =
            ReregisterOptions { memory: Some((memory, length)), ..ReregisterOptions::default() };
        let region = self.region_mut();
        // SAFETY: the memory is never freed, and no reference to it exists; no request names the region now.
        unsafe { region.reregister(&options) }.expect("re-register");
    }

    fn address_of_device(&self) -> ib_uverbs_ah_attr {
        let mut address = ib_uverbs_ah_attr { is_global: 1, port_num: 1, ..Default::default() };
        address.grh.dgid = self.address.gid.octets();
        address.grh.sgid_index = self.address.index;
        address.grh.hop_limit = 64;
        address
    }

    fn release_kept(&mut self) {
        self.has_kept |= self.kept.release();
    }

    fn destroy(&mut self, kind: &str, number: usize) {
        // A queue cannot be destroyed while a guard exists.
        self.release_kept();
        match kind {
            "qp" => take(&mut self.qps, number).destroy(),
            "xrcd" => self.domain.take().expect("an XRC domain").close().expect("close"),
            "cq" => take(&mut self.cqs, number).destroy().expect("destroy"),
            "srq" => take(&mut self.srqs, number).destroy().expect("destroy"),
            "ah" => take(&mut self.ahs, number).destroy().expect("destroy"),
            "window" => take(&mut self.windows, number).destroy().expect("destroy"),
            "channel" => drop(take(&mut self.channels, number)),
            "mr" => match self.regions[number].take() {
                Some(region) => region.destroy().expect("destroy"),
                // The last buffer deregisters the memory.
                None => self.buffers = Buffers::default(),
            },
            "pd" => take(&mut self.pds, number).destroy().expect("destroy"),
            _ => panic!("unknown kind: {kind}"),
        }
    }
}

/// Runs `run` with a variable in the environment of this process and of the programs that it starts.
pub(super) fn with_variable(name: &str, value: &str, run: impl FnOnce()) {
    struct Removed<'a>(&'a str);
    impl Drop for Removed<'_> {
        fn drop(&mut self) {
            // SAFETY: as below.
            unsafe { env::remove_var(self.0) };
        }
    }
    // SAFETY: no other thread of this process reads or changes the environment, because tests run one by one.
    unsafe { env::set_var(name, value) };
    let _removed = Removed(name);
    run();
}
