//! `lat` and `bw`: measure latency, bandwidth and message rate, with options named as in perftest.
//!
//! Client and server connect with rdma_cm. The connection request contains the [`plan`] of the measurement. Both
//! sides execute it [size by size](mod@measure), and synchronize before and after each size, so that one side does not
//! measure while the other one prepares.
//!
//! During a measurement, a thread polls without yielding, and has [exclusive access](side) to its queues: a message
//! needs only the system calls of the device's driver, and no lock.

mod clock;
mod measure;
mod plan;
mod plot;
mod report;
mod side;

use std::fs;
use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, ValueEnum};
use rdmacm::cm::{CmId, ConnParam, EventChannel, EventType, PortSpace};

use self::measure::{measure, serve};
use self::plan::{Plan, Remote, Test};
use self::side::{Role, Side};
use crate::failure::Failure;
use crate::host::resolve;

const RESOLUTION: Duration = Duration::from_secs(2);

/// The operation that transfers a message.
///
/// It sends to a receive, writes to the peer's memory, or reads from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Operation {
    Send,
    Write,
    Read,
}

impl Operation {
    const ALL: [Self; 3] = [Self::Send, Self::Write, Self::Read];

    fn name(self) -> &'static str {
        match self {
            Self::Send => "send",
            Self::Write => "write",
            Self::Read => "read",
        }
    }
}

/// The options of both tools.
#[derive(Debug, Args)]
struct Options {
    /// Address or name of the server; if omitted, serve one client, which selects the measurement
    host: Option<String>,
    /// Port of the server
    #[arg(short = 'p', long = "port", default_value_t = 18_515)]
    port: u16,
    /// Address that the server listens on
    #[arg(short = 'b', long = "bind", value_name = "ADDR")]
    bind: Option<String>,
    /// Operations to measure, separated by commas
    #[arg(short = 'o', long = "operations", value_name = "OPERATIONS", value_delimiter = ',')]
    #[arg(default_value = "send")]
    operations: Vec<Operation>,
    /// Size of a message in bytes [default: every power of two from 2 to 65536]
    #[arg(short = 's', long = "size", value_parser = size)]
    size: Option<u32>,
    /// Number of posted receives
    #[arg(short = 'r', long = "rx-depth", value_name = "COUNT", default_value_t = 512)]
    rx_depth: u32,
    /// Largest message sent as inline data, in bytes
    #[arg(short = 'I', long = "inline_size", value_name = "BYTES")]
    inline: Option<u32>,
    /// Print the results as JSON
    #[arg(long = "json")]
    json: bool,
    /// Write a chart of the results to this file, in SVG; "-" prints it instead of the results
    #[arg(long = "plot", value_name = "FILE")]
    plot: Option<PathBuf>,
}

/// Measure the latency of messages: median, 99 %, 99.9 %
#[derive(Debug, Args)]
#[command(args_override_self = true)]
#[command(
    after_help = "The latency of send and write is half of the round-trip time; that of read is the whole time."
)]
pub(crate) struct LatencyOptions {
    #[command(flatten)]
    common: Options,
    /// Number of messages of each size
    #[arg(short = 'n', long = "iters", value_name = "COUNT", default_value_t = 1000)]
    iterations: u32,
    /// Depth of the send queue
    #[arg(short = 't', long = "tx-depth", value_name = "COUNT", default_value_t = 1)]
    tx_depth: u32,
    /// Number of requests per signaled request
    #[arg(short = 'Q', long = "cq-mod", value_name = "COUNT", default_value_t = 1)]
    moderation: u32,
}

/// Measure bandwidth and message rate
#[derive(Debug, Args)]
#[command(args_override_self = true)]
pub(crate) struct BandwidthOptions {
    #[command(flatten)]
    common: Options,
    /// Number of messages of each size
    #[arg(short = 'n', long = "iters", value_name = "COUNT", default_value_t = 5000)]
    iterations: u32,
    /// Depth of the send queue
    #[arg(short = 't', long = "tx-depth", value_name = "COUNT", default_value_t = 128)]
    tx_depth: u32,
    /// Number of requests per signaled request
    #[arg(short = 'Q', long = "cq-mod", value_name = "COUNT", default_value_t = 100)]
    moderation: u32,
    /// Number of requests posted with one doorbell
    #[arg(short = 'l', long = "post_list", value_name = "COUNT", default_value_t = 1)]
    list: u32,
}

fn size(argument: &str) -> Result<u32, String> {
    let size = argument.parse().ok().filter(|size| (1..=Plan::MAX_SIZE).contains(size));
    size.ok_or_else(|| format!("not a number from 1 to {}", Plan::MAX_SIZE))
}

/// Inline size for latency: supported by every known device.
const INLINE: u32 = 64;

pub(crate) fn run_lat(
    options: &LatencyOptions,
    out: &mut (dyn Write + Send),
) -> Result<(), Failure> {
    let LatencyOptions { common, iterations, tx_depth, moderation } = options;
    let plan = common.plan(Test::Latency, *iterations, *tx_depth, *moderation);
    run(common, plan, out)
}

pub(crate) fn run_bw(
    options: &BandwidthOptions,
    out: &mut (dyn Write + Send),
) -> Result<(), Failure> {
    let BandwidthOptions { common, iterations, tx_depth, moderation, list } = options;
    let plan = common.plan(Test::Bandwidth, *iterations, *tx_depth, *moderation);
    run(common, Plan { list: *list, ..plan }, out)
}

impl Options {
    fn plan(&self, test: Test, iterations: u32, tx_depth: u32, moderation: u32) -> Plan {
        let (smallest, largest) = self.size.map_or((2, 65_536), |size| (size, size));
        let inline = if test == Test::Latency { INLINE } else { 0 };
        let mut operations = Operation::ALL.to_vec();
        operations.retain(|operation| self.operations.contains(operation));
        Plan {
            test,
            operations,
            smallest,
            largest,
            iterations,
            tx_depth,
            rx_depth: self.rx_depth,
            moderation,
            list: 1,
            inline: self.inline.unwrap_or(inline),
        }
    }
}

fn run(options: &Options, plan: Plan, out: &mut dyn Write) -> Result<(), Failure> {
    match &options.host {
        None => answer(options, out),
        Some(server) => {
            plan.check().map_err(Failure::new)?;
            ask(resolve(server, options.port)?, options, &plan, out)
        }
    }
}

/// Measures against `server`.
fn ask(
    server: SocketAddr,
    options: &Options,
    plan: &Plan,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    let channel = EventChannel::new()?;
    let id = CmId::new(&channel, PortSpace::Tcp)?;
    id.resolve_addr(None, server, RESOLUTION)?;
    channel.expect_event(EventType::AddrResolved)?;
    id.resolve_route(RESOLUTION)?;
    channel.expect_event(EventType::RouteResolved)?;
    let mut side = Side::new(id, channel, plan, Role::Client)?;
    let private_data = [plan.to_bytes(), side.local().to_bytes()].concat();
    side.id.connect(&ConnParam { private_data, ..ConnParam::default() })?;
    let event = side.channel.expect_event(EventType::Established)?;
    let peer = Remote::from_bytes(event.private_data());
    let peer =
        peer.ok_or_else(|| Failure::new("cannot read the server's answer: it is malformed"))?;
    drop(event);
    side.established()?;
    let device = side.device()?;
    let mut samples = Vec::new();
    let prints_chart = options.plot.as_deref() == Some(Path::new("-"));
    let prints_table = !options.json && !prints_chart;
    if prints_table {
        report::heading(plan, &device, out)?;
    }
    measure(&mut side, plan, peer, |sample| {
        if prints_table {
            report::line(&sample, out)?;
        }
        samples.push(sample);
        Ok(())
    })?;
    if prints_chart {
        out.write_all(plot::svg(plan, &device, &samples).as_bytes())?;
        return Ok(());
    }
    if options.json {
        report::json(plan, &device, &samples, out)?;
    }
    if let Some(path) = &options.plot {
        let written = fs::write(path, plot::svg(plan, &device, &samples));
        written
            .map_err(|error| Failure::new(format!("cannot write {}: {error}", path.display())))?;
    }
    Ok(())
}

/// Serves one client.
fn answer(options: &Options, out: &mut dyn Write) -> Result<(), Failure> {
    let address = match &options.bind {
        Some(host) => resolve(host, options.port)?,
        None => SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), options.port),
    };
    let channel = EventChannel::new()?;
    let listener = CmId::new(&channel, PortSpace::Tcp)?;
    listener.bind(address)?;
    listener.listen(1)?;
    writeln!(out, "listening on {address}")?;
    out.flush()?;
    let mut request = channel.expect_event(EventType::ConnectRequest)?;
    let plan = Plan::from_bytes(request.private_data());
    let peer = request.private_data().get(Plan::LENGTH..).and_then(Remote::from_bytes);
    let (Some(plan), Some(peer)) = (plan, peer) else {
        return Err(Failure::new("cannot read the client's plan: it is malformed"));
    };
    let id = request.take_request().expect("a connection request should have an id");
    drop(request);
    drop(listener);
    let mut side = Side::new(id, channel, &plan, Role::Server)?;
    let private_data = side.local().to_bytes();
    side.id.accept(&ConnParam { private_data, ..ConnParam::default() })?;
    side.channel.expect_event(EventType::Established)?;
    side.established()?;
    serve(&mut side, &plan, peer)?;
    side.channel.expect_event(EventType::Disconnected)?;
    Ok(())
}
