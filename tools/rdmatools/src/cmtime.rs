//! `cmtime`: how long each step of connecting takes with many connections at once, as the program of
//! rdma-core 44 measures it.
//!
//! One thread makes the calls and one takes the events; both note the time of each step of each
//! connection. Between steps the first yields until the second has counted all events. All queue pairs
//! of a client complete on the two queues that the first one has brought.

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

use crate::failure::{Failure, waited};
use crate::host::find;

/// Time the steps of connecting many times
#[derive(Debug, Args)]
#[command(args_override_self = true)]
pub(crate) struct Options {
    /// Address or name of the server; without one, be the server, which does not end
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
    /// How often a resolution, or a packet, is tried again
    #[arg(short = 'r', default_value_t = 2, value_parser = clap::value_parser!(u8).range(..=7))]
    retries: u8,
    /// How long a resolution may take, in milliseconds
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
            // A program that reads what is printed would be woken, and run, while a step is timed.
            let mut later = BufWriter::new(out);
            connect(server, options, &mut later)?;
            Ok(later.flush()?)
        }
        None => serve(options, out),
    }
}

/// When something began and ended, in microseconds.
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

/// The times of the steps: of one connection, or as a whole.
type Steps = [Times; STEPS.len()];

struct Node {
    id: CmId,
    times: Steps,
    /// How often a resolution may still be tried again.
    retries: AtomicU32,
}

/// What both threads know.
struct Test {
    peer: AddrInfo,
    there: Address,
    timeout: Duration,
    /// Each where its id says.
    nodes: Vec<Node>,
    steps: Steps,
    /// How many connections have ended each step, of those that an event ends.
    completed: [AtomicUsize; STEPS.len()],
    /// The event that ended the test.
    failure: OnceLock<String>,
}

/// Notes what time it is.
fn note(time: &AtomicI64) {
    // `Instant` computes and checks more, which would be seen in a step's time.
    let now = ClockId::CLOCK_MONOTONIC.now().expect("Linux has that clock");
    time.store(now.num_nanoseconds(), Ordering::Relaxed);
}

fn connect(server: &str, options: &Options, out: &mut (dyn Write + Send)) -> Result<(), Failure> {
    let channel = EventChannel::new()?;
    writeln!(out, "creating id")?;
    let mut steps = Steps::default();
    note(&steps[CREATE_ID].start);
    let mut nodes = Vec::with_capacity(options.connections as usize);
    for place in 0..options.connections {
        let times = Steps::default();
        note(&times[CREATE_ID].start);
        let id = CmId::new(&channel, PortSpace::Tcp)?;
        id.set_user_data(place.into());
        note(&times[CREATE_ID].end);
        nodes.push(Node { id, times, retries: AtomicU32::default() });
    }
    note(&steps[CREATE_ID].end);
    let mut hints = hints(AddrInfoFlags::empty());
    if let Some(source) = &options.source {
        hints.src_addr = find(Some(source), None, &self::hints(AddrInfoFlags::PASSIVE))?.src_addr;
    }
    let peer = find(Some(server), Some(&options.port), &hints)?;
    let there = peer.dst_addr.ok_or_else(|| Failure::because("there is no address to resolve"))?;
    let test = Arc::new(Test {
        peer,
        there,
        timeout: Duration::from_millis(options.timeout),
        nodes,
        steps: std::mem::take(&mut steps),
        completed: Default::default(),
        failure: OnceLock::new(),
    });
    // Not scoped: where a call fails the program ends, and the thread, which sleeps, with it.
    let reader = thread::Builder::new().spawn({
        let test = Arc::clone(&test);
        move || test.take_events(&channel)
    });
    let reader = reader
        .map_err(|error| Failure::because(format!("cannot start the events' thread: {error}")))?;
    // What the queue pairs share is no id's: it ends when the ids have been destroyed, and not with the last.
    let _shared = test.calls(options, out)?;
    // It has counted the last event.
    reader.join().map_err(|_| Failure::because("the thread that takes events panicked"))?;
    let Some(Test { nodes, steps, .. }) = Arc::into_inner(test) else {
        return Err(Failure::because("the thread that takes events still has the test"));
    };
    let (ids, times): (Vec<_>, Vec<_>) =
        nodes.into_iter().map(|node| (node.id, node.times)).unzip();
    writeln!(out, "destroying id")?;
    note(&steps[DESTROY].start);
    for (id, times) in ids.into_iter().zip(&times) {
        note(&times[DESTROY].start);
        id.destroy().map_err(rdmacm::Error::from)?;
        note(&times[DESTROY].end);
    }
    note(&steps[DESTROY].end);
    report(&steps, &times, options.source.is_some(), out)
}

impl Test {
    /// The steps between creating the ids and destroying them; what all queue pairs were made with.
    fn calls(
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

    /// Takes every connection through a step, which `call` begins. What ends it is the call's
    /// return or an event.
    fn step(
        &self,
        step: usize,
        mut call: impl FnMut(&Node) -> rdmacm::Result<()>,
    ) -> Result<(), Failure> {
        let by_event = [RESOLVE_ADDR, RESOLVE_ROUTE, CONNECT, DISCONNECT].contains(&step);
        note(&self.steps[step].start);
        for node in &self.nodes {
            note(&node.times[step].start);
            call(node)?;
            if !by_event {
                note(&node.times[step].end);
            }
        }
        while by_event && self.completed[step].load(Ordering::Acquire) != self.nodes.len() {
            if let Some(failure) = self.failure.get() {
                return Err(Failure::because(failure));
            }
            thread::yield_now();
        }
        note(&self.steps[step].end);
        Ok(())
    }

    /// Takes events until every connection has ended.
    fn take_events(&self, channel: &EventChannel) {
        while self.completed[DISCONNECT].load(Ordering::Relaxed) != self.nodes.len() {
            let taken = waited(|| channel.get_event()).map_err(Failure::from);
            if let Err(Failure::Failed(messages)) = taken.and_then(|event| self.take(&event)) {
                let _ = self.failure.set(messages.join("; "));
                return;
            }
        }
    }

    fn take(&self, event: &Event) -> Result<(), Failure> {
        use EventType as T;
        let place = usize::try_from(event.user_data()).expect("it was made of one");
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
                return Err(Failure::because(format!("event: {name}, error: {status}")));
            }
            _ => return Ok(()),
        };
        note(&node.times[step].end);
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

/// A line for each step: total and longest in milliseconds, shortest and mean in microseconds.
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

/// Accepts every connection, and ends it when the client does.
fn serve(options: &Options, out: &mut (dyn Write + Send)) -> Result<(), Failure> {
    let channel = EventChannel::new()?;
    let listener = CmId::new(&channel, PortSpace::Tcp)?;
    let passive = hints(AddrInfoFlags::PASSIVE);
    let here = find(options.source.as_deref(), Some(&options.port), &passive)?;
    listener
        .bind(here.src_addr.ok_or_else(|| Failure::because("there is no address to bind to"))?)?;
    listener.listen(0)?;
    let mut connections = HashMap::new();
    loop {
        use EventType as T;
        let mut event = waited(|| channel.get_event())?;
        let token = event.token();
        match event.event_type() {
            T::ConnectRequest => {
                let id = event.take_request().expect("a request brings an id");
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
                    // It is over, whether the client hears of it or not.
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
