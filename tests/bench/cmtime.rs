//! What the C program `cmtime -s` does, step by step, with this library: takes many connections
//! through each step together, and prints how long the steps took. The peer is the C program as a
//! server.
//!
//! One thread makes the calls and one takes the events; both note the time of each step of each
//! connection. Between steps the first thread yields until the second has counted all events, as
//! the C program does. As there, all queue pairs complete on the two queues that the first one has
//! brought.

use std::collections::BTreeMap;
use std::env;
use std::error::Error;
use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::process;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rdmacm::Token;
use rdmacm::cm::{CmId, ConnParam, EventChannel, EventType, PortSpace};
use rdmacm::verbs::{
    CompletionChannel, CompletionQueue, ProtectionDomain, QueuePairCaps, QueuePairInit,
};

const TIMEOUT: Duration = Duration::from_secs(2);

const STEPS: [&str; 7] =
    ["create id", "resolve addr", "resolve route", "create qp", "connect", "disconnect", "destroy"];
const CREATE_ID: usize = 0;
const RESOLVE_ADDR: usize = 1;
const RESOLVE_ROUTE: usize = 2;
const CREATE_QP: usize = 3;
const CONNECT: usize = 4;
const DISCONNECT: usize = 5;
const DESTROY: usize = 6;

/// What both threads know.
struct Test {
    began: Instant,
    /// When each connection began and ended each step, in microseconds.
    nodes: Vec<[Times; STEPS.len()]>,
    /// The same of each step as a whole.
    steps: [Times; STEPS.len()],
    /// How many connections have ended each step, of those that an event ends.
    completed: [AtomicUsize; STEPS.len()],
}

#[derive(Default)]
struct Times {
    start: AtomicU64,
    end: AtomicU64,
}

fn main() -> Result<(), Box<dyn Error>> {
    let (server, connections) = arguments()?;
    let channel = EventChannel::new()?;
    let test = Test {
        began: Instant::now(),
        nodes: (0..connections).map(|_| Default::default()).collect(),
        steps: Default::default(),
        completed: Default::default(),
    };
    let mut ids = Vec::with_capacity(connections);
    test.step(CREATE_ID, |_| {
        ids.push(CmId::new(&channel, PortSpace::Tcp)?);
        Ok(())
    })?;
    let places = ids.iter().zip(0..).map(|(id, place)| (id.token(), place)).collect();
    thread::scope(|scope| {
        scope.spawn(|| take_events(&channel, &test, &places));
        run(server, &ids, &test)
    })?;
    let mut ids = ids.into_iter();
    test.step(DESTROY, |_| Ok(ids.next().expect("as many ids as nodes").destroy()?))?;
    Ok(io::stdout().write_all(test.report()?.as_bytes())?)
}

fn arguments() -> Result<(SocketAddr, usize), Box<dyn Error>> {
    let usage = "usage: bench-cmtime server_address port connections";
    let mut arguments = env::args().skip(1);
    let mut next = || arguments.next().ok_or(usage);
    let (server, port, connections) = (next()?, next()?, next()?);
    Ok((SocketAddr::new(server.parse()?, port.parse()?), connections.parse()?))
}

impl Test {
    fn now(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_micros()).expect("a test takes less than an age")
    }

    fn start(&self, times: &Times) {
        times.start.store(self.now(), Ordering::Relaxed);
    }

    fn end(&self, times: &Times) {
        times.end.store(self.now(), Ordering::Relaxed);
    }

    /// Takes every connection through a step, which `call` begins. What ends it is the call's
    /// return or an event.
    fn step(
        &self,
        step: usize,
        mut call: impl FnMut(usize) -> Result<(), Box<dyn Error>>,
    ) -> Result<(), Box<dyn Error>> {
        let by_event = [RESOLVE_ADDR, RESOLVE_ROUTE, CONNECT, DISCONNECT].contains(&step);
        self.start(&self.steps[step]);
        for (place, node) in self.nodes.iter().enumerate() {
            self.start(&node[step]);
            call(place)?;
            if !by_event {
                self.end(&node[step]);
            }
        }
        if by_event {
            while self.completed[step].load(Ordering::Acquire) != self.nodes.len() {
                thread::yield_now();
            }
        }
        self.end(&self.steps[step]);
        Ok(())
    }

    /// A line for each step, as the C program has it: total and longest in milliseconds, shortest
    /// and mean in microseconds.
    fn report(&self) -> Result<String, Box<dyn Error>> {
        let mut report = String::new();
        for (step, name) in STEPS.iter().enumerate() {
            let total = self.steps[step].micros()?;
            let each: Result<Vec<_>, _> =
                self.nodes.iter().map(|node| node[step].micros()).collect();
            let each = each?;
            let longest = each.iter().copied().fold(0.0, f64::max) / 1e3;
            let shortest = each.iter().copied().fold(f64::INFINITY, f64::min);
            let mean = total / f64::from(u32::try_from(each.len())?);
            let total = total / 1e3;
            writeln!(report, "{name:13}: {total:11.2}{longest:11.2}{shortest:11.2}{mean:11.2}")?;
        }
        Ok(report)
    }
}

impl Times {
    fn micros(&self) -> Result<f64, Box<dyn Error>> {
        let [start, end] = [&self.start, &self.end].map(|time| time.load(Ordering::Relaxed));
        Ok(u32::try_from(end.saturating_sub(start))?.into())
    }
}

/// The steps between creating the ids and destroying them.
fn run(server: SocketAddr, ids: &[CmId], test: &Test) -> Result<(), Box<dyn Error>> {
    test.step(RESOLVE_ADDR, |place| Ok(ids[place].resolve_addr(None, server, TIMEOUT)?))?;
    test.step(RESOLVE_ROUTE, |place| Ok(ids[place].resolve_route(TIMEOUT)?))?;
    let mut shared = None;
    test.step(CREATE_QP, |place| {
        let (pd, queues) = match &mut shared {
            Some(shared) => shared,
            none => none.insert(make_queues(&ids[place])?),
        };
        Ok(create_qp(&ids[place], pd, queues)?)
    })?;
    let param = ConnParam {
        responder_resources: 1,
        initiator_depth: 1,
        retry_count: 2,
        rnr_retry_count: 0,
        ..ConnParam::default()
    };
    test.step(CONNECT, |place| Ok(ids[place].connect(&param)?))?;
    test.step(DISCONNECT, |place| {
        ids[place].disconnect()?;
        ids[place].destroy_qp();
        Ok(())
    })
}

/// What all queue pairs share: the protection domain, and a queue for sends and one for receives,
/// each with its channel.
fn make_queues(id: &CmId) -> rdmacm::Result<(ProtectionDomain, [CompletionQueue; 2])> {
    let context = id.context()?;
    let pd = ProtectionDomain::new(&context)?;
    let queue = || CompletionQueue::new(&context, 1, Some(&CompletionChannel::new(&context)?));
    Ok((pd, [queue()?, queue()?]))
}

fn create_qp(
    id: &CmId,
    pd: &ProtectionDomain,
    [send_cq, recv_cq]: &[CompletionQueue; 2],
) -> rdmacm::Result<()> {
    let caps = QueuePairCaps {
        max_send_wr: 1,
        max_recv_wr: 1,
        max_send_sge: 1,
        max_recv_sge: 1,
        max_inline_data: 0,
    };
    id.create_qp(pd, &QueuePairInit { send_cq, recv_cq, caps, signal_all: false }).map(drop)
}

/// Takes events until every connection has ended. The other thread waits for them, so a failure
/// ends the program.
fn take_events(channel: &EventChannel, test: &Test, places: &BTreeMap<Token, usize>) {
    while test.completed[DISCONNECT].load(Ordering::Relaxed) != test.nodes.len() {
        if let Err(error) = take_event(channel, test, places) {
            eprintln!("bench-cmtime: {error}");
            process::exit(1);
        }
    }
}

fn take_event(
    channel: &EventChannel,
    test: &Test,
    places: &BTreeMap<Token, usize>,
) -> Result<(), Box<dyn Error>> {
    let event = channel.get_event()?;
    let step = match event.event_type() {
        EventType::AddrResolved => RESOLVE_ADDR,
        EventType::RouteResolved => RESOLVE_ROUTE,
        EventType::Established => CONNECT,
        EventType::Disconnected => DISCONNECT,
        EventType::TimewaitExit => return Ok(()),
        other => return Err(format!("{other} with status {}", event.status()).into()),
    };
    test.end(&test.nodes[places[&event.token()]][step]);
    test.completed[step].fetch_add(1, Ordering::Release);
    Ok(())
}
