//! `ibv_rc_pingpong` and related programs: exchange messages between queue pairs.
//!
//! The queue pairs are connected without a connection manager, as in the programs of rdma-core.
//!
//! The two sides exchange the [addresses of their queue pairs](exchange) over TCP and move the queue pairs to a state
//! in which they can send. The client starts; each side sends when its last send has completed and an answer has
//! arrived.
//!
//! The C programs also support timestamps, device memory, and implicit and prefetched on-demand paging, which software
//! devices lack. There is only one way of posting, independent of `-N`.

mod exchange;
mod table;

use std::io::Write;
use std::time::Instant;

use clap::Args;
use rdmacm::device::{self, Device};
use rdmacm::verbs::{Mtu, QpType};

use self::table::QueuePairSet;
use crate::failure::{Failure, NO_DEVICE};
use crate::number::number;

/// The options of all four programs.
#[derive(Debug, Args)]
#[command(args_override_self = true)]
struct Options {
    /// Address or name of the server; if omitted, act as the server
    host: Option<String>,
    /// TCP port of the server
    #[arg(short = 'p', long = "port", default_value = "18515", value_parser = number::<u16>)]
    port: u16,
    /// RDMA device [default: the first one]
    #[arg(short = 'd', long = "ib-dev", visible_alias = "device", value_name = "DEV")]
    device: Option<String>,
    /// Port of the device
    #[arg(short = 'i', long = "ib-port", value_name = "PORT", default_value = "1")]
    #[arg(value_parser = ib_port)]
    ib_port: u8,
    /// Number of receives posted at a time
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
    /// Wait for completion events instead of polling
    #[arg(short = 'e', long = "events")]
    events: bool,
    /// Index of the local GID; required on RoCE
    #[arg(short = 'g', long = "gid-idx", value_name = "INDEX", value_parser = number::<u8>)]
    gid_index: Option<u8>,
    /// Let the client mark each page of its message, and the server report missing marks
    #[arg(short = 'c', long = "chk")]
    check: bool,
}

/// Exchange a message between reliable connected queue pairs
#[derive(Debug, Args)]
#[command(args_override_self = true)]
pub(crate) struct RcOptions {
    #[command(flatten)]
    common: Options,
    #[command(flatten)]
    message: Message,
    /// Register memory with on-demand paging
    #[arg(short = 'o', long = "odp")]
    on_demand: bool,
    /// Post with the other function of the C library; no effect here
    #[arg(short = 'N', long = "new_send")]
    new_send: bool,
}

/// Exchange a message between unreliable connected queue pairs
#[derive(Debug, Args)]
#[command(args_override_self = true)]
pub(crate) struct UcOptions {
    #[command(flatten)]
    common: Options,
    #[command(flatten)]
    message: Message,
}

/// Exchange a message between datagram queue pairs
#[derive(Debug, Args)]
#[command(args_override_self = true)]
pub(crate) struct UdOptions {
    #[command(flatten)]
    common: Options,
    /// Size of a message in bytes
    #[arg(short = 's', long = "size", default_value = "1024", value_parser = number::<u32>)]
    size: u32,
}

/// Exchange messages between queue pairs with a shared receive queue
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
    /// Register memory with on-demand paging
    #[arg(short = 'o', long = "odp")]
    on_demand: bool,
}

/// A message over a connection.
#[derive(Debug, Args)]
struct Message {
    /// Size of a message in bytes
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
    if port == 0 { Err("the first port is 1".into()) } else { Ok(port) }
}

/// The configuration of a test.
struct TestConfig<'a> {
    options: &'a Options,
    qp_type: QpType,
    /// Number of queue pairs, and below it `true` if they share a receive queue.
    queue_pairs: usize,
    shared: bool,
    size: u32,
    mtu: Mtu,
    on_demand: bool,
}

impl<'a> TestConfig<'a> {
    fn new(options: &'a Options, qp_type: QpType, size: u32) -> Self {
        let (queue_pairs, shared, mtu, on_demand) = (1, false, Mtu::IB_MTU_1024, false);
        Self { options, qp_type, queue_pairs, shared, size, mtu, on_demand }
    }

    fn is_for_datagrams(&self) -> bool {
        self.qp_type == QpType::IB_UVERBS_QPT_UD
    }
}

pub(crate) fn run_rc(options: &RcOptions, out: &mut dyn Write) -> Result<(), Failure> {
    let RcOptions { common, message, on_demand, .. } = options;
    let config = TestConfig::new(common, QpType::IB_UVERBS_QPT_RC, message.size);
    run(&TestConfig { mtu: message.mtu, on_demand: *on_demand, ..config }, out)
}

pub(crate) fn run_uc(options: &UcOptions, out: &mut dyn Write) -> Result<(), Failure> {
    let UcOptions { common, message } = options;
    let config = TestConfig::new(common, QpType::IB_UVERBS_QPT_UC, message.size);
    run(&TestConfig { mtu: message.mtu, ..config }, out)
}

pub(crate) fn run_ud(options: &UdOptions, out: &mut dyn Write) -> Result<(), Failure> {
    run(&TestConfig::new(&options.common, QpType::IB_UVERBS_QPT_UD, options.size), out)
}

/// Number of addresses that the two sides exchange for a shared receive queue.
///
/// It does not depend on the number of queue pairs.
const ADDRESS_COUNT: usize = 256;

pub(crate) fn run_srq(options: &SrqOptions, out: &mut dyn Write) -> Result<(), Failure> {
    let SrqOptions { common, message, queue_pairs, on_demand } = options;
    let Options { rx_depth, .. } = common;
    if u32::from(*queue_pairs) > *rx_depth {
        let message = format!(
            "cannot serve {queue_pairs} queue pairs: {rx_depth} receives are too few; raise --rx-depth"
        );
        return Err(Failure::new(message));
    }
    let queue_pairs = usize::from(*queue_pairs);
    if queue_pairs >= ADDRESS_COUNT {
        return Err(Failure::new(format!(
            "cannot create {queue_pairs} queue pairs: the maximum is 255"
        )));
    }
    let config = TestConfig::new(common, QpType::IB_UVERBS_QPT_RC, message.size);
    run(
        &TestConfig {
            queue_pairs,
            shared: true,
            mtu: message.mtu,
            on_demand: *on_demand,
            ..config
        },
        out,
    )
}

fn run(config: &TestConfig<'_>, out: &mut dyn Write) -> Result<(), Failure> {
    let options = config.options;
    let mut table = QueuePairSet::new(&find(options.device.as_deref())?, config)?;
    table.prepare()?;
    let mut ours = table.addresses()?;
    for address in &ours {
        let line = address.to_string();
        // The C program for datagrams prints a colon here.
        let line = if config.is_for_datagrams() { line.replace(", GID", ": GID") } else { line };
        writeln!(out, "  local address:  {line}")?;
    }
    if config.shared {
        ours.resize_with(ADDRESS_COUNT, Default::default);
    }
    let theirs = match &options.host {
        Some(server) => {
            let theirs = exchange::ask(server, options.port, &ours)?;
            table.connect(&ours, &theirs)?;
            theirs
        }
        None => exchange::answer(options.port, &ours, |theirs| table.connect(&ours, theirs))?,
    };
    for address in &theirs[..config.queue_pairs] {
        writeln!(out, "  remote address: {address}")?;
    }
    let is_client = options.host.is_some();
    if is_client && options.check {
        table.mark()?;
    }
    let start = Instant::now();
    table.run_exchange(is_client)?;
    report(config, start.elapsed().as_secs_f64(), out)?;
    if !is_client && options.check {
        for page in table.unmarked()? {
            writeln!(out, "invalid data in page {page}")?;
        }
    }
    Ok(())
}

/// Prints the number of bytes and iterations, and the duration.
fn report(config: &TestConfig<'_>, seconds: f64, out: &mut dyn Write) -> Result<(), Failure> {
    let count = config.options.iterations;
    let bits = f64::from(config.size) * f64::from(count) * 2.0 * 8.0;
    let bytes = u64::from(config.size) * u64::from(count) * 2;
    let (megabits, micros) = (bits / seconds / 1e6, seconds * 1e6 / f64::from(count));
    writeln!(out, "{bytes} bytes in {seconds:.2} seconds = {megabits:.2} Mbit/sec")?;
    Ok(writeln!(out, "{count} iters in {seconds:.2} seconds = {micros:.2} usec/iter")?)
}

/// Returns the device `name`, or the first one.
fn find(name: Option<&str>) -> Result<Device, Failure> {
    let mut devices = device::list()?.into_iter();
    match name {
        None => {
            devices.next().ok_or_else(|| Failure::new(format!("cannot open a device: {NO_DEVICE}")))
        }
        Some(name) => devices.find(|device| device.name() == name).ok_or_else(|| {
            Failure::new(format!("cannot open {name}: there is no such RDMA device"))
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_existing_mtus_are_accepted() {
        assert_eq!(mtu("256"), Ok(Mtu::IB_MTU_256));
        assert_eq!(mtu("0x1000"), Ok(Mtu::IB_MTU_4096));
        assert!(mtu("1500").is_err() && mtu("0").is_err());
        assert!(ib_port("0").is_err() && ib_port("2") == Ok(2));
    }
}
