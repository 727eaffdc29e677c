//! `selftest`: checks that devices work with this library, and writes a report that can be attached to an issue.
//!
//! It uses its own objects only, some 30 MB of memory at most, and leaves nothing behind.

mod exchange;
mod leftovers;
mod loopback;
mod objects;
mod peer;
mod report;

use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use nix::ifaddrs::getifaddrs;
use rdmacm::addr::Address;
use rdmacm::cm::{CmId, PortSpace};
use rdmacm::device::{self, Device};
use serde_json::{Value, json};

use self::exchange::{Route, Speed};
use self::leftovers::Snapshot;
use self::peer::Peer;
use self::report::{Check, Checks, Outcome, Problem};
use crate::devinfo;
use crate::failure::{Failure, NO_DEVICE};
use crate::host::resolve;

/// Time limit of each wait.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Features that no check exercises.
const NOT_EXERCISED: [&str; 1] =
    ["multicast, which changes the state of switches or of a subnet manager"];

/// Bytes of the largest message.
const LARGEST: usize = 65_536;

/// Check that RDMA devices work, and write a report
///
/// Without arguments, each device is checked against itself. Between two machines, run it with --listen on one of them,
/// and with the address of that one on the other.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Machine that runs `selftest --listen`, by address or name [default: check each device against itself]
    #[arg(value_name = "HOST", conflicts_with = "listen")]
    host: Option<String>,
    /// Serve the checks of another machine, until this program is killed
    #[arg(short = 'l', long)]
    listen: bool,
    /// Check only this device
    #[arg(short = 'd', long = "ib-dev", visible_alias = "device", value_name = "DEV")]
    device: Option<String>,
    /// Local address, if the device has several
    #[arg(short = 'b', long = "bind", value_name = "ADDR")]
    bind: Option<String>,
    /// Port of the connections between two machines
    #[arg(short = 'p', long, default_value_t = 7473)]
    port: u16,
    /// Time limit of the checks of a device; a check that has not begun by then has failed
    #[arg(short = 't', long, value_name = "SECONDS", default_value_t = 60)]
    timeout: u32,
    /// File of the report
    #[arg(short = 'o', long = "output", value_name = "FILE", default_value = "rdma-selftest.json")]
    output: PathBuf,
}

pub(crate) fn run(options: &Options, out: &mut (dyn Write + Send)) -> Result<(), Failure> {
    if options.listen {
        return listen(options, out);
    }
    let mut file = ReportFile::new(options);
    let mut failed = Vec::new();
    for device in devices(options)? {
        let found = check(&device, options, &mut file, out)?;
        let name = device.name();
        failed.extend(found.iter().map(|text| format!("{name}: {text}")));
    }
    for feature in NOT_EXERCISED {
        writeln!(out, "not exercised: {feature}")?;
    }
    writeln!(out, "total time: {:.1} s", file.start.elapsed().as_secs_f64())?;
    file.write(None, true)?;
    writeln!(out, "report: {}", options.output.display())?;
    if failed.is_empty() { Ok(()) } else { Err(Failure::Failed(failed)) }
}

/// The file of the report.
///
/// It is replaced after each check, so that it exists even if a check never ends or kills the program.
struct ReportFile<'a> {
    options: &'a Options,
    start: Instant,
    machine: Value,
    /// The parts about the devices that have been checked.
    devices: Vec<Value>,
}

impl<'a> ReportFile<'a> {
    fn new(options: &'a Options) -> Self {
        let machine = report::machine();
        Self { options, start: Instant::now(), machine, devices: Vec::new() }
    }

    /// Writes the file, with the part about the device that is being checked.
    fn write(&self, current: Option<&Value>, is_complete: bool) -> Result<(), Failure> {
        let devices: Vec<&Value> = self.devices.iter().chain(current).collect();
        let report = json!({
            "tool": concat!("rdmatools ", env!("CARGO_PKG_VERSION")),
            "machine": self.machine,
            "peer": self.options.host.as_deref().unwrap_or("the same device"),
            "devices": devices,
            "not_exercised": NOT_EXERCISED,
            "is_complete": is_complete,
            "total_ms": u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX),
        });
        let path = &self.options.output;
        report::replace_file(path, &format!("{report:#}\n"))
            .map_err(|error| Failure::new(format!("cannot write {}: {error}", path.display())))
    }
}

/// Returns the devices that are checked, at least one: all of this machine, or the one that has the local address or
/// reaches the other machine.
fn devices(options: &Options) -> Result<Vec<Device>, Failure> {
    let (mut devices, of) = match (&options.host, source(options)?) {
        (Some(host), _) => (vec![device_toward(host, options)?], format!(" that reaches {host}")),
        (None, Some(address)) => (vec![device_of(address)?], format!(" at {}", address.ip())),
        (None, None) => (device::list()?, String::new()),
    };
    devices.retain(|device| device.uverbs().is_some());
    let found: Vec<_> = devices.iter().map(|device| device.name().to_owned()).collect();
    if let Some(wanted) = &options.device {
        devices.retain(|device| device.name() == wanted);
    }
    if devices.is_empty() {
        let what = options.device.as_deref().unwrap_or("any device");
        let found = match &found[..] {
            [] if device::list()?.is_empty() => {
                return Err(Failure::Unavailable(format!("cannot check {what}: {NO_DEVICE}")));
            }
            [] => "none".to_owned(),
            names => names.join(", "),
        };
        return Err(Failure::Unavailable(format!(
            "cannot check {what}: no such RDMA device with a verbs node{of}; found: {found}"
        )));
    }
    Ok(devices)
}

/// Returns the device through which the other machine is reached.
fn device_toward(host: &str, options: &Options) -> Result<Device, Failure> {
    let server = resolve(host, options.port)?;
    let id = CmId::new_sync(PortSpace::Tcp)?;
    id.resolve_addr(source(options)?.map(Address::from), server, TIMEOUT)?;
    Ok(id.context()?.device().clone())
}

/// Returns the device that the kernel chooses for a local address.
fn device_of(address: SocketAddr) -> rdmacm::Result<Device> {
    let id = CmId::new_sync(PortSpace::Tcp)?;
    id.bind(address)?;
    Ok(id.context()?.device().clone())
}

/// Returns the local address that the user chose, with port 0.
fn source(options: &Options) -> Result<Option<SocketAddr>, Failure> {
    options.bind.as_deref().map(|host| resolve(host, 0)).transpose()
}

/// Serves other machines.
fn listen(options: &Options, out: &mut dyn Write) -> Result<(), Failure> {
    let address = match &options.bind {
        Some(host) => resolve(host, options.port)?,
        None => SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), options.port),
    };
    let peer = Peer::bind(address)?;
    writeln!(out, "listening on {address}")?;
    if address.ip().is_unspecified() {
        writeln!(out, "datagrams are served only with --bind ADDR")?;
    }
    out.flush()?;
    Ok(peer.serve(&AtomicBool::new(false))?)
}

/// Checks a device, and adds it to the report. Returns a sentence for each failed check.
fn check(
    device: &Device,
    options: &Options,
    file: &mut ReportFile<'_>,
    out: &mut dyn Write,
) -> Result<Vec<String>, Failure> {
    let facts = report::facts(device);
    let part = |checks: &[Check], speed: Option<Value>| json!({ "device": facts, "checks": report::listed(checks), "speed": speed });
    let driver = device.driver().map_or_else(|| "unknown driver".into(), devinfo::driver);
    writeln!(out, "{} ({driver})", device.name())?;
    let mut checks = Vec::new();
    let mut written = Ok(());
    // The first of these fails before any check if the file cannot be written.
    file.write(Some(&part(&checks, None)), false)?;
    let mut add = |check: Check| {
        let Check { name, outcome, milliseconds } = &check;
        let (word, detail) = (outcome.word(), outcome.detail());
        let line = writeln!(out, "  {name:32} {word:8} {milliseconds:>6} ms  {detail}");
        if written.is_ok() {
            written = line.and_then(|()| out.flush());
        }
        checks.push(check);
        // The last one reports an error.
        let _ = file.write(Some(&part(&checks, None)), false);
    };
    let end = Instant::now() + Duration::from_secs(options.timeout.into());
    let mut running = Checks::new(end, &mut add);
    let before = Snapshot::take(device);
    objects::check(device, &mut running);
    let speed = exchange(device, options, &mut running)?;
    running.run_always("nothing is left", || before?.wait_until_nothing_is_left(device));
    written?;
    if let Some(Speed { latency_us, megabytes_per_second }) = &speed {
        writeln!(out, "  64 bytes in {latency_us:.1} us, {megabytes_per_second:.0} MB/s")?;
    }
    let is_failed = |check: &&Check| matches!(check.outcome, Outcome::Failed(_));
    let sentence = |check: &Check| format!("{}: {}", check.name, check.outcome.detail());
    let failed = checks.iter().filter(is_failed).map(sentence).collect();
    let speed = speed.map(|speed| {
        json!({ "latency_us": speed.latency_us, "write_mb_per_s": speed.megabytes_per_second })
    });
    file.devices.push(part(&checks, speed));
    Ok(failed)
}

/// Checks connections with the other machine, or of the device with itself.
fn exchange(
    device: &Device,
    options: &Options,
    checks: &mut Checks<'_>,
) -> Result<Option<Speed>, Failure> {
    let source = source(options)?;
    if let Some(host) = &options.host {
        let route = Route { server: resolve(host, options.port)?, source };
        return Ok(exchange::check(&route, checks));
    }
    let Some(address) = source.or_else(|| address_of(device)) else {
        let why = "the device has no IP address; pass one with --bind ADDR";
        checks.skip("connect", why);
        return Ok(None);
    };
    let mut made = None;
    checks.run("listen", || {
        let owner = device_of(address)?;
        if owner.name() != device.name() {
            let (ip, owner) = (address.ip(), owner.name());
            let text = format!(
                "the kernel assigns its address {ip} to {owner}; pass another one with --bind ADDR"
            );
            return Err(Problem::Missing(text));
        }
        let peer = Peer::bind(address)?;
        let server = peer.address().ok_or_else(|| Problem::Wrong("the port is unknown".into()))?;
        made = Some((peer, server));
        Ok(format!("on {server}"))
    });
    let Some((peer, server)) = made else { return Ok(None) };
    let ends = AtomicBool::new(false);
    let (speed, served) = thread::scope(|scope| {
        let serves = scope.spawn(|| peer.serve(&ends));
        let speed = exchange::check(&Route { server, source: Some(address) }, checks);
        ends.store(true, Ordering::Relaxed);
        (speed, serves.join())
    });
    match served {
        Ok(Ok(())) => {}
        Ok(Err(error)) => {
            checks.run_always("serve", || Err(error.into()));
        }
        Err(_) => return Err(Failure::new("cannot check the device: a thread panicked")),
    }
    Ok(speed)
}

/// Returns an address of the device, an IPv4 address if there is one.
///
/// An address of the network device of the first port is preferred. An InfiniBand port has no network device, so all
/// addresses of this machine are tried after those.
fn address_of(device: &Device) -> Option<SocketAddr> {
    let port = device.port(1).ok();
    let netdev = port.as_ref().and_then(|port| port.netdev());
    let mut addresses: Vec<(bool, IpAddr)> = getifaddrs()
        .ok()?
        .filter_map(|interface| {
            let address = interface.address?;
            let v4 = address.as_sockaddr_in().map(|address| IpAddr::V4(address.ip()));
            let v6 = || address.as_sockaddr_in6().map(|address| IpAddr::V6(address.ip()));
            Some((netdev != Some(interface.interface_name.as_str()), v4.or_else(v6)?))
        })
        .filter(|(_, ip)| !matches!(ip, IpAddr::V6(ip) if ip.is_unicast_link_local()))
        .collect();
    addresses.sort();
    let is_of_device = |ip: IpAddr| {
        device_of(SocketAddr::new(ip, 0)).is_ok_and(|owner| owner.name() == device.name())
    };
    let own = addresses.iter().find(|(_, ip)| is_of_device(*ip));
    // Otherwise a check names the device to which the kernel assigns the address.
    let of_netdev = || addresses.first().filter(|(is_of_other, _)| !is_of_other);
    own.or_else(of_netdev).map(|(_, ip)| SocketAddr::new(*ip, 0))
}
