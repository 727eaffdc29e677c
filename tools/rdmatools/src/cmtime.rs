//! `cmtime`: measures the steps of connecting many connections, as in rdma-core 44.
//!
//! One thread makes the calls and one receives the events; both record the time of each step of each connection.
//! Between two steps the first thread yields until the second one has counted all events. All queue pairs of a client
//! use the two completion queues of the first queue pair.

use std::collections::HashMap;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::sync::atomic::{AtomicI64, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Duration;

use clap::Args;
use nix::sys::time::TimeValLike;
use nix::time::ClockId;
use rdmacm::addr::{AddrInfo, AddrInfoFlags, AddrInfoHints, Address};
use rdmacm::cm::{CmId, ConnParam, EndpointQpInit, Event, EventChannel, EventType, PortSpace};
use rdmacm::verbs::QueuePairCaps;

use crate::failure::{Failure, retry_interrupted};
use crate::host::find;

/// Time the steps of connecting many times
#[derive(Debug, Args)]
#[command(args_override_self = true)]
pub(crate) struct Options {
    /// Address or name of the server; if omitted, act as the server, which runs until it is killed
    #[arg(short = 's', value_name = "ADDR")]
    server: Option<String>,
    /// Local address or name
    #[arg(short = 'b', value_name = "ADDR")]
    source: Option<String>,
    /// Number of connections
    #[arg(short = 'c', default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
    connections: u32,
    /// Port or service
    #[arg(short = 'p', default_value = "7471")]
    port: String,
    /// Number of retries of a resolution, or of a packet
    #[arg(short = 'r', default_value_t = 2, value_parser = clap::value_parser!(u8).range(..=7))]
    retries: u8,
    /// Time limit of a resolution, in milliseconds
    #[arg(short = 't', default_value_t = 2000)]
    timeout: u64,
}

const STEPS: [&str; 8] = [
    "create id",
    "bind addr",
    "resolve addr",
    "resolve route",
    "create qp",
    "connect",
    "disconnect",
    "destroy",
];
const CREATE_ID: usize = 0;
const BIND: usize = 1;
const RESOLVE_ADDR: usize = 2;
const RESOLVE_ROUTE: usize = 3;
const CREATE_QP: usize = 4;
const CONNECT: usize = 5;
const DISCONNECT: usize = 6;
const DESTROY: usize = 7;

pub(crate) fn run(options: &Options, out: &mut (dyn Write + Send)) -> Result<(), Failure> {
    match &options.server {
        Some(server) if io::stdout().is_terminal() => connect(server, options, out),
        Some(server) => {
            // Output is buffered: a program that reads it would otherwise be woken, and run, while a step is timed.
            let mut later = BufWriter::new(out);
            connect(server, options, &mut later)?;
            Ok(later.flush()?)
        }
        None => serve(options, out),
    }
}

/// Start and end of a step, in microseconds.
#[derive(Default)]
struct Times {
    start: AtomicI64,
    end: AtomicI64,
}

impl Times {
    fn micros(&self) -> f64 {
        let [start, end] = [&self.start, &self.end].map(|time| time.load(Ordering::Relaxed));
        Duration::from_nanos(end.saturating_sub(start).unsigned_abs()).as_secs_f64() * 1e6
    }
}

/// The times of the steps of one connection, or of all connections.
type Steps = [Times; STEPS.len()];

struct Node {
    id: CmId,
    times: Steps,
    /// Number of remaining retries of a resolution.
    retries: AtomicU32,
}

/// State that both threads share.
struct Test {
    peer: AddrInfo,
    there: Address,
    timeout: Duration,
    /// The nodes, indexed by the user data of their ids.
    nodes: Vec<Node>,
    steps: Steps,
    /// Number of connections that have completed each step that ends with an event.
    completed: [AtomicUsize; STEPS.len()],
    /// The event that ended the test.
    failure: OnceLock<String>,
}

/// Stores the current time.
fn record_time(time: &AtomicI64) {
    // `Instant` computes and checks more, which would be visible in a step's time.
    let now = ClockId::CLOCK_MONOTONIC.now().expect("Linux should have CLOCK_MONOTONIC");
    time.store(now.num_nanoseconds(), Ordering::Relaxed);
}

fn connect(server: &str, options: &Options, out: &mut (dyn Write + Send)) -> Result<(), Failure> {
    let channel = EventChannel::new()?;
    writeln!(out, "creating id")?;
    let mut steps = Steps::default();
    record_time(&steps[CREATE_ID].start);
    let mut nodes = Vec::with_capacity(options.connections as usize);
    for place in 0..options.connections {
        let times = Steps::default();
        record_time(&times[CREATE_ID].start);
        let id = CmId::new(&channel, PortSpace::Tcp)?;
        id.set_user_data(place.into());
        record_time(&times[CREATE_ID].end);
        nodes.push(Node { id, times, retries: AtomicU32::default() });
    }
    record_time(&steps[CREATE_ID].end);
    let mut hints = hints(AddrInfoFlags::empty());
    if let Some(source) = &options.source {
        hints.src_addr = find(Some(source), None, &self::hints(AddrInfoFlags::PASSIVE))?.src_addr;
    }
    let peer = find(Some(server), Some(&options.port), &hints)?;
    let there =
        peer.dst_addr.ok_or_else(|| Failure::new("cannot resolve the address: there is none"))?;
    let test = Arc::new(Test {
        peer,
        there,
        timeout: Duration::from_millis(options.timeout),
        nodes,
        steps: std::mem::take(&mut steps),
        completed: Default::default(),
        failure: OnceLock::new(),
    });
    // The thread is not scoped: if a call fails the program exits, and ends the sleeping thread.
    let reader = thread::Builder::new().spawn({
        let test = Arc::clone(&test);
        move || test.take_events(&channel)
    });
    let reader =
        reader.map_err(|error| Failure::new(format!("cannot start the event thread: {error}")))?;
    // The resources shared by the queue pairs must be dropped after all ids, not with the last one.
    let _shared = test.run_steps(options, out)?;
    // The thread has counted the last event and ends.
    reader.join().map_err(|_| Failure::new("cannot finish the test: the event thread panicked"))?;
    let Some(Test { nodes, steps, .. }) = Arc::into_inner(test) else {
        return Err(Failure::new("cannot finish the test: the event thread still uses it"));
    };
    let (ids, times): (Vec<_>, Vec<_>) =
        nodes.into_iter().map(|node| (node.id, node.times)).unzip();
    writeln!(out, "destroying id")?;
    record_time(&steps[DESTROY].start);
    for (id, times) in ids.into_iter().zip(&times) {
        record_time(&times[DESTROY].start);
        id.destroy().map_err(rdmacm::Error::from)?;
        record_time(&times[DESTROY].end);
    }
    record_time(&steps[DESTROY].end);
    report(&steps, &times, options.source.is_some(), out)
}

impl Test {
    /// Runs the steps between creation and destruction of the ids.
    ///
    /// Returns the shared resources of the queue pairs.
    fn run_steps(
        &self,
        options: &Options,
        out: &mut (dyn Write + Send),
    ) -> Result<EndpointQpInit, Failure> {
        if let (Some(_), Some(here)) = (&options.source, self.peer.src_addr) {
            writeln!(out, "binding source address")?;
            self.step(BIND, |node| node.id.bind(here))?;
        }
        let retry = |node: &Node| node.retries.store(options.retries.into(), Ordering::Relaxed);
        writeln!(out, "resolving address")?;
        self.step(RESOLVE_ADDR, |node| {
            retry(node);
            self.resolve_addr(node)
        })?;
        writeln!(out, "resolving route")?;
        self.step(RESOLVE_ROUTE, |node| {
            retry(node);
            node.id.resolve_route(self.timeout)
        })?;
        writeln!(out, "creating qp")?;
        let mut qp = queue_pair();
        self.step(CREATE_QP, |node| {
            let made = node.id.create_ep_qp(&qp)?;
            qp.pd.get_or_insert_with(|| made.pd().clone());
            qp.send_cq.get_or_insert_with(|| made.send_cq().clone());
            qp.recv_cq.get_or_insert_with(|| made.recv_cq().clone());
            Ok(())
        })?;
        writeln!(out, "connecting")?;
        let param = ConnParam {
            responder_resources: 1,
            initiator_depth: 1,
            retry_count: options.retries,
            rnr_retry_count: 0,
            ..ConnParam::default()
        };
        self.step(CONNECT, |node| node.id.connect(&param))?;
        writeln!(out, "disconnecting")?;
        self.step(DISCONNECT, |node| {
            node.id.disconnect()?;
            node.id.destroy_qp();
            Ok(())
        })?;
        Ok(qp)
    }

    fn resolve_addr(&self, node: &Node) -> rdmacm::Result<()> {
        node.id.resolve_addr(self.peer.src_addr, self.there, self.timeout)
    }

    /// Runs a step for every connection, started by `call`.
    ///
    /// The step ends with the return of the call or with an event.
    fn step(
        &self,
        step: usize,
        mut call: impl FnMut(&Node) -> rdmacm::Result<()>,
    ) -> Result<(), Failure> {
        let by_event = [RESOLVE_ADDR, RESOLVE_ROUTE, CONNECT, DISCONNECT].contains(&step);
        record_time(&self.steps[step].start);
        for node in &self.nodes {
            record_time(&node.times[step].start);
            call(node)?;
            if !by_event {
                record_time(&node.times[step].end);
            }
        }
        while by_event && self.completed[step].load(Ordering::Acquire) != self.nodes.len() {
            if let Some(failure) = self.failure.get() {
                return Err(Failure::new(failure));
            }
            thread::yield_now();
        }
        record_time(&self.steps[step].end);
        Ok(())
    }

    /// Receives events until every connection has ended.
    fn take_events(&self, channel: &EventChannel) {
        while self.completed[DISCONNECT].load(Ordering::Relaxed) != self.nodes.len() {
            let taken = retry_interrupted(|| channel.get_event()).map_err(Failure::from);
            if let Err(Failure::Failed(messages)) = taken.and_then(|event| self.take(&event)) {
                let _ = self.failure.set(messages.join("; "));
                return;
            }
        }
    }

    fn take(&self, event: &Event) -> Result<(), Failure> {
        use EventType as T;
        let place = usize::try_from(event.user_data()).expect("the user data should be an index");
        let node = &self.nodes[place];
        let step = match event.event_type() {
            T::AddrResolved => RESOLVE_ADDR,
            T::RouteResolved => RESOLVE_ROUTE,
            T::Established => CONNECT,
            T::Disconnected => DISCONNECT,
            T::AddrError if node.may_retry() => return Ok(self.resolve_addr(node)?),
            T::RouteError if node.may_retry() => return Ok(node.id.resolve_route(self.timeout)?),
            T::AddrError | T::RouteError | T::ConnectError | T::Unreachable | T::Rejected => {
                let (name, status) = (event.event_type(), event.status());
                return Err(Failure::new(format!("event: {name}, error: {status}")));
            }
            _ => return Ok(()),
        };
        record_time(&node.times[step].end);
        self.completed[step].fetch_add(1, Ordering::Release);
        Ok(())
    }
}

impl Node {
    fn may_retry(&self) -> bool {
        let less = |left: u32| left.checked_sub(1);
        self.retries.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).is_ok()
    }
}

/// Prints a line with the times of each step.
///
/// Total and longest time are in milliseconds, shortest and mean time in microseconds.
fn report(
    steps: &Steps,
    nodes: &[Steps],
    is_bound: bool,
    out: &mut (dyn Write + Send),
) -> Result<(), Failure> {
    writeln!(out, "step              total ms     max ms     min us  us / conn")?;
    let count = f64::from(u32::try_from(nodes.len()).unwrap_or(u32::MAX));
    for (step, name) in STEPS.iter().enumerate() {
        if step == BIND && !is_bound {
            continue;
        }
        let total = steps[step].micros();
        let each = || nodes.iter().map(|times| times[step].micros());
        let longest = each().fold(0.0, f64::max) / 1e3;
        let shortest = each().fold(f64::INFINITY, f64::min);
        let (milliseconds, mean) = (total / 1e3, total / count);
        writeln!(out, "{name:13}: {milliseconds:11.2}{longest:11.2}{shortest:11.2}{mean:11.2}")?;
    }
    Ok(())
}

/// Accepts every connection, and disconnects it when the client does.
fn serve(options: &Options, out: &mut (dyn Write + Send)) -> Result<(), Failure> {
    let channel = EventChannel::new()?;
    let listener = CmId::new(&channel, PortSpace::Tcp)?;
    let passive = hints(AddrInfoFlags::PASSIVE);
    let here = find(options.source.as_deref(), Some(&options.port), &passive)?;
    listener
        .bind(here.src_addr.ok_or_else(|| Failure::new("cannot bind: there is no address"))?)?;
    listener.listen(0)?;
    let mut connections = HashMap::new();
    loop {
        use EventType as T;
        let mut event = retry_interrupted(|| channel.get_event())?;
        let token = event.token();
        match event.event_type() {
            T::ConnectRequest => {
                let id = event.take_request().expect("a connection request should have an id");
                let accepted =
                    id.create_ep_qp(&queue_pair()).and_then(|_| id.accept(&ConnParam::default()));
                if accepted.is_ok() {
                    connections.insert(token, id);
                } else {
                    writeln!(out, "failing connection request")?;
                }
            }
            T::Disconnected => {
                if let Some(id) = connections.remove(&token) {
                    // The connection is over, even if the client is not notified.
                    let _ = id.disconnect();
                }
            }
            T::ConnectError | T::Unreachable | T::Rejected => {
                let (name, status) = (event.event_type(), event.status());
                writeln!(out, "event: {name}, error: {status}")?;
                connections.remove(&token);
            }
            _ => {}
        }
    }
}

fn queue_pair() -> EndpointQpInit {
    let caps = QueuePairCaps { max_send_wr: 1, max_recv_wr: 1, ..QueuePairCaps::default() };
    EndpointQpInit { caps, ..EndpointQpInit::default() }
}

fn hints(flags: AddrInfoFlags) -> AddrInfoHints {
    AddrInfoHints { flags, port_space: Some(PortSpace::Tcp), ..AddrInfoHints::default() }
}
