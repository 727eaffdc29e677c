//! `ibv_rc_pingpong` and its kin: messages to and fro between queue pairs that no connection manager
//! has connected, as the programs of rdma-core do it.
//!
//! The two sides tell each other [where their queue pairs are](exchange) over TCP and bring them to
//! where they can send. The client begins; each side sends as soon as what it sent last is sent and
//! an answer came.
//!
//! What the C programs have besides (timestamps, device memory, implicit and prefetched on-demand
//! paging) the devices in software do not have; there is one way of posting here, whatever `-N` says.

mod exchange;
mod table;

use std::io::Write;
use std::time::Instant;

use clap::Args;
use rdmacm::device::{self, Device};
use rdmacm::verbs::{Mtu, QpType};

use self::table::Table;
use crate::failure::Failure;
use crate::number::number;

/// What all four take.
#[derive(Debug, Args)]
#[command(args_override_self = true)]
struct Options {
    /// Address or name of the server; without one, be the server
    host: Option<String>,
    /// TCP port of the server
    #[arg(short = 'p', long = "port", default_value = "18515", value_parser = number::<u16>)]
    port: u16,
    /// RDMA device; the first one without this
    #[arg(short = 'd', long = "ib-dev", value_name = "DEV")]
    device: Option<String>,
    /// Port of the device
    #[arg(short = 'i', long = "ib-port", value_name = "PORT", default_value = "1")]
    #[arg(value_parser = ib_port)]
    ib_port: u8,
    /// Receives that are posted at a time
    #[arg(short = 'r', long = "rx-depth", value_name = "COUNT", default_value = "500")]
    #[arg(value_parser = number::<u32>)]
    rx_depth: u32,
    /// Number of exchanges
    #[arg(short = 'n', long = "iters", value_name = "COUNT", default_value = "1000")]
    #[arg(value_parser = number::<u32>)]
    iterations: u32,
    /// Service level
    #[arg(short = 'l', long = "sl", value_name = "LEVEL", default_value = "0")]
    #[arg(value_parser = number::<u8>)]
    service_level: u8,
    /// Sleep until completions come instead of polling
    #[arg(short = 'e', long = "events")]
    events: bool,
    /// Index of the local GID: on RoCE there must be one
    #[arg(short = 'g', long = "gid-idx", value_name = "INDEX", value_parser = number::<u8>)]
    gid_index: Option<u8>,
    /// The client marks each page of its message, and the server says where the mark is missing
    #[arg(short = 'c', long = "chk")]
    check: bool,
}

/// Bounce a message between reliable connected queue pairs
#[derive(Debug, Args)]
#[command(args_override_self = true)]
pub(crate) struct RcOptions {
    #[command(flatten)]
    common: Options,
    #[command(flatten)]
    message: Message,
    /// Register memory that is paged on demand
    #[arg(short = 'o', long = "odp")]
    on_demand: bool,
    /// Post in the other way that the C library has
    #[arg(short = 'N', long = "new_send")]
    new_send: bool,
}

/// Bounce a message between unreliable connected queue pairs
#[derive(Debug, Args)]
#[command(args_override_self = true)]
pub(crate) struct UcOptions {
    #[command(flatten)]
    common: Options,
    #[command(flatten)]
    message: Message,
}

/// Bounce a message between queue pairs for datagrams
#[derive(Debug, Args)]
#[command(args_override_self = true)]
pub(crate) struct UdOptions {
    #[command(flatten)]
    common: Options,
    /// Bytes in a message
    #[arg(short = 's', long = "size", default_value = "1024", value_parser = number::<u32>)]
    size: u32,
}

/// Bounce messages between queue pairs that share a receive queue
#[derive(Debug, Args)]
#[command(args_override_self = true)]
pub(crate) struct SrqOptions {
    #[command(flatten)]
    common: Options,
    #[command(flatten)]
    message: Message,
    /// Number of queue pairs
    #[arg(short = 'q', long = "num-qp", value_name = "COUNT", default_value = "16")]
    #[arg(value_parser = number::<u16>)]
    queue_pairs: u16,
    /// Register memory that is paged on demand
    #[arg(short = 'o', long = "odp")]
    on_demand: bool,
}

/// A message over a connection.
#[derive(Debug, Args)]
struct Message {
    /// Bytes in a message
    #[arg(short = 's', long = "size", default_value = "4096", value_parser = number::<u32>)]
    size: u32,
    /// MTU of the path
    #[arg(short = 'm', long = "mtu", default_value = "1024", value_parser = mtu)]
    mtu: Mtu,
}

fn mtu(argument: &str) -> Result<Mtu, String> {
    let bytes = number::<u32>(argument)?;
    let mut known = (1..=5).map(Mtu);
    let meant = known.find(|mtu| mtu.bytes() == Some(bytes));
    meant.ok_or_else(|| "not 256, 512, 1024, 2048 or 4096".into())
}

fn ib_port(argument: &str) -> Result<u8, String> {
    let port = number(argument)?;
    if port == 0 { Err("ports are counted from 1".into()) } else { Ok(port) }
}

/// What is played.
struct Game<'a> {
    options: &'a Options,
    qp_type: QpType,
    /// How many queue pairs, and whether they share a receive queue.
    players: usize,
    shared: bool,
    size: u32,
    mtu: Mtu,
    on_demand: bool,
}

impl<'a> Game<'a> {
    fn new(options: &'a Options, qp_type: QpType, size: u32) -> Self {
        let (players, shared, mtu, on_demand) = (1, false, Mtu::IB_MTU_1024, false);
        Self { options, qp_type, players, shared, size, mtu, on_demand }
    }

    fn is_for_datagrams(&self) -> bool {
        self.qp_type == QpType::IB_UVERBS_QPT_UD
    }
}

pub(crate) fn run_rc(options: &RcOptions, out: &mut dyn Write) -> Result<(), Failure> {
    let RcOptions { common, message, on_demand, .. } = options;
    let game = Game::new(common, QpType::IB_UVERBS_QPT_RC, message.size);
    run(&Game { mtu: message.mtu, on_demand: *on_demand, ..game }, out)
}

pub(crate) fn run_uc(options: &UcOptions, out: &mut dyn Write) -> Result<(), Failure> {
    let UcOptions { common, message } = options;
    let game = Game::new(common, QpType::IB_UVERBS_QPT_UC, message.size);
    run(&Game { mtu: message.mtu, ..game }, out)
}

pub(crate) fn run_ud(options: &UdOptions, out: &mut dyn Write) -> Result<(), Failure> {
    run(&Game::new(&options.common, QpType::IB_UVERBS_QPT_UD, options.size), out)
}

/// Addresses that the two sides exchange where queue pairs share a receive queue, however many there
/// are.
const PLACES: usize = 256;

pub(crate) fn run_srq(options: &SrqOptions, out: &mut dyn Write) -> Result<(), Failure> {
    let SrqOptions { common, message, queue_pairs, on_demand } = options;
    let Options { rx_depth, .. } = common;
    if u32::from(*queue_pairs) > *rx_depth {
        let message = format!("{rx_depth} receives are not enough for {queue_pairs} queue pairs");
        return Err(Failure::because(message));
    }
    let players = usize::from(*queue_pairs);
    if players >= PLACES {
        return Err(Failure::because(format!("{players} queue pairs, where 255 are the most")));
    }
    let game = Game::new(common, QpType::IB_UVERBS_QPT_RC, message.size);
    run(&Game { players, shared: true, mtu: message.mtu, on_demand: *on_demand, ..game }, out)
}

fn run(game: &Game<'_>, out: &mut dyn Write) -> Result<(), Failure> {
    let options = game.options;
    let mut table = Table::new(&find(options.device.as_deref())?, game)?;
    table.prepare()?;
    let mut ours = table.addresses()?;
    for address in &ours {
        let line = address.to_string();
        // The C program for datagrams has a colon there.
        let line = if game.is_for_datagrams() { line.replace(", GID", ": GID") } else { line };
        writeln!(out, "  local address:  {line}")?;
    }
    if game.shared {
        ours.resize_with(PLACES, Default::default);
    }
    let theirs = match &options.host {
        Some(server) => {
            let theirs = exchange::ask(server, options.port, &ours)?;
            table.connect(&ours, &theirs)?;
            theirs
        }
        None => exchange::answer(options.port, &ours, |theirs| table.connect(&ours, theirs))?,
    };
    for address in &theirs[..game.players] {
        writeln!(out, "  remote address: {address}")?;
    }
    let is_client = options.host.is_some();
    if is_client && options.check {
        table.mark()?;
    }
    let start = Instant::now();
    table.play(is_client)?;
    report(game, start.elapsed().as_secs_f64(), out)?;
    if !is_client && options.check {
        for page in table.unmarked()? {
            writeln!(out, "invalid data in page {page}")?;
        }
    }
    Ok(())
}

/// What moved in how long a time.
fn report(game: &Game<'_>, seconds: f64, out: &mut dyn Write) -> Result<(), Failure> {
    let count = game.options.iterations;
    let bits = f64::from(game.size) * f64::from(count) * 2.0 * 8.0;
    let bytes = u64::from(game.size) * u64::from(count) * 2;
    let (megabits, micros) = (bits / seconds / 1e6, seconds * 1e6 / f64::from(count));
    writeln!(out, "{bytes} bytes in {seconds:.2} seconds = {megabits:.2} Mbit/sec")?;
    Ok(writeln!(out, "{count} iters in {seconds:.2} seconds = {micros:.2} usec/iter")?)
}

/// The device `name`, or the first one.
fn find(name: Option<&str>) -> Result<Device, Failure> {
    let mut devices = device::list()?.into_iter();
    match name {
        None => devices.next().ok_or_else(|| Failure::because("there is no RDMA device")),
        Some(name) => devices
            .find(|device| device.name() == name)
            .ok_or_else(|| Failure::because(format!("there is no RDMA device {name}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mtus_are_those_that_there_are() {
        assert_eq!(mtu("256"), Ok(Mtu::IB_MTU_256));
        assert_eq!(mtu("0x1000"), Ok(Mtu::IB_MTU_4096));
        assert!(mtu("1500").is_err() && mtu("0").is_err());
        assert!(ib_port("0").is_err() && ib_port("2") == Ok(2));
    }
}
