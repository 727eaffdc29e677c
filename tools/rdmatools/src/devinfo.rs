//! `devinfo`: shows devices and their attributes, in the format of `ibv_devinfo`.

use std::fmt::Display;
use std::io::{BufWriter, Write};

use clap::Args;
use rdmacm::device::{self, Device, GidEntry, LinkLayer, Port, Transport};
use rdmacm::verbs::Context;

use crate::failure::{Failure, NO_DEVICE};

/// Show RDMA devices and their ports
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Show only this device
    #[arg(short = 'd', long = "ib-dev", visible_alias = "device", value_name = "DEV")]
    device: Option<String>,
    /// Show only the names
    #[arg(short = 'l', long = "list")]
    list: bool,
    /// Also show limits, objects in use, GIDs and P_Keys
    #[arg(short = 'v', long = "verbose")]
    verbose: bool,
}

pub(crate) fn run(options: &Options, out: &mut dyn Write) -> Result<(), Failure> {
    let mut devices = device::list()?;
    if let Some(wanted) = &options.device {
        devices.retain(|device| device.name() == wanted);
        if devices.is_empty() {
            return Err(Failure::new(format!(
                "cannot show {wanted}: there is no such RDMA device"
            )));
        }
    }
    if devices.is_empty() {
        return Err(Failure::new(format!("cannot show any device: {NO_DEVICE}")));
    }
    // The output is buffered, because standard output would write each line by itself.
    let out = &mut BufWriter::new(out);
    let mut sheet = Sheet { out, depth: 0, verbose: options.verbose, failed: Vec::new() };
    for device in &devices {
        if options.list {
            writeln!(sheet.out, "{}", device.name())?;
        } else {
            sheet.device(device)?;
        }
    }
    sheet.out.flush()?;
    if sheet.failed.is_empty() { Ok(()) } else { Err(Failure::Failed(sheet.failed)) }
}

/// The output: a key and a value per line, indented.
struct Sheet<'a> {
    out: &'a mut dyn Write,
    depth: usize,
    verbose: bool,
    /// Errors of values that could not be read. The other values are shown nevertheless.
    failed: Vec<String>,
}

impl Sheet<'_> {
    fn line(&mut self, key: &str, value: impl Display) -> Result<(), Failure> {
        let indent = self.depth * 4;
        Ok(writeln!(self.out, "{:indent$}{:28}{value}", "", format!("{key}:"))?)
    }

    /// Writes a line if there is a value.
    fn line_if_known(&mut self, key: &str, value: Option<impl Display>) -> Result<(), Failure> {
        value.map_or(Ok(()), |value| self.line(key, value))
    }

    /// Returns the value, or records its error.
    fn value_or_record<T>(&mut self, value: rdmacm::Result<T>) -> Option<T> {
        value.map_err(|error| self.failed.push(error.to_string())).ok()
    }

    fn device(&mut self, device: &Device) -> Result<(), Failure> {
        self.line("hca_id", device.name())?;
        self.depth += 1;
        self.line_if_known("index", device.index())?;
        self.line_if_known("transport", device.transport().and_then(transport))?;
        let node_type = device.node_type().map(|node| named(node.name(), "RDMA_NODE_", node.0));
        self.line_if_known("node_type", node_type)?;
        self.line_if_known("driver", device.driver().map(driver))?;
        self.line_if_known("fw_ver", device.firmware())?;
        self.line_if_known("node_guid", device.node_guid())?;
        self.line_if_known("sys_image_guid", device.system_image_guid())?;
        match device.uverbs() {
            Some(uverbs) => {
                self.line("uverbs", uverbs.path())?;
                self.line_if_known("driver_abi", uverbs.abi_version())?;
            }
            None => self.line("uverbs", "none (modprobe rdma_ucm)")?,
        }
        if self.verbose {
            // This must precede the opening of the device, which would be counted as well.
            let resources = self.value_or_record(device.resources());
            self.line_if_known("in_use", resources)?;
        }
        let context = self.value_or_record(Context::open(device));
        if let Some(context) = &context {
            self.attributes(context)?;
        }
        self.line_if_known("phys_port_cnt", device.port_count())?;
        for number in 1..=device.port_count().unwrap_or(0) {
            self.depth += 1;
            if let Some(port) = self.value_or_record(device.port(number)) {
                self.port(&port, context.as_ref())?;
            }
            self.depth -= 1;
        }
        self.depth -= 1;
        Ok(())
    }

    /// Shows the attributes that only an open device provides.
    fn attributes(&mut self, context: &Context) -> Result<(), Failure> {
        let Some(attributes) = self.value_or_record(context.query_device()) else { return Ok(()) };
        self.line("vendor_id", format_args!("0x{:04x}", attributes.vendor_id))?;
        self.line("vendor_part_id", attributes.vendor_part_id)?;
        self.line("hw_ver", format_args!("0x{:X}", attributes.hw_ver))?;
        if !self.verbose {
            return Ok(());
        }
        self.line("max_mr_size", format_args!("0x{:x}", attributes.max_mr_size.get()))?;
        self.line("page_size_cap", format_args!("0x{:x}", attributes.page_size_cap.get()))?;
        self.line("atomic_cap", attributes.atomic_cap)?;
        self.line("local_ca_ack_delay", attributes.local_ca_ack_delay)?;
        let limits = [
            ("max_qp", attributes.max_qp),
            ("max_qp_wr", attributes.max_qp_wr),
            ("max_sge", attributes.max_sge),
            ("max_sge_rd", attributes.max_sge_rd),
            ("max_qp_rd_atom", attributes.max_qp_rd_atom),
            ("max_qp_init_rd_atom", attributes.max_qp_init_rd_atom),
            ("max_cq", attributes.max_cq),
            ("max_cqe", attributes.max_cqe),
            ("max_pd", attributes.max_pd),
            ("max_mr", attributes.max_mr),
            ("max_mw", attributes.max_mw),
            ("max_ah", attributes.max_ah),
            ("max_srq", attributes.max_srq),
            ("max_srq_wr", attributes.max_srq_wr),
            ("max_srq_sge", attributes.max_srq_sge),
            ("max_mcast_grp", attributes.max_mcast_grp),
            ("max_mcast_qp_attach", attributes.max_mcast_qp_attach),
            ("max_total_mcast_qp_attach", attributes.max_total_mcast_qp_attach),
        ];
        limits.into_iter().try_for_each(|(key, limit)| self.line(key, limit))
    }

    fn port(&mut self, port: &Port, context: Option<&Context>) -> Result<(), Failure> {
        self.line("port", port.number())?;
        self.depth += 1;
        self.line_if_known("state", port.state().map(|state| named(state.name(), "IB_", state.0)))?;
        let physical = port.physical_state();
        let physical = physical.map(|state| named(state.name(), "IB_PORT_PHYS_STATE_", state.0));
        self.line_if_known("phys_state", physical)?;
        self.line_if_known("link_layer", port.link_layer().map(link_layer))?;
        self.line_if_known("netdev", port.netdev())?;
        self.line_if_known("port_lid", port.lid())?;
        // The queries of an open device have one byte for the port number.
        let opened = context.zip(u8::try_from(port.number()).ok());
        if let Some((context, number)) = opened {
            self.port_attributes(number, context)?;
        }
        if self.verbose {
            self.tables(port, opened)?;
        }
        self.depth -= 1;
        Ok(())
    }

    /// Shows the port attributes that only an open device provides.
    fn port_attributes(&mut self, number: u8, context: &Context) -> Result<(), Failure> {
        let Some(attributes) = self.value_or_record(context.query_port(number)) else {
            return Ok(());
        };
        self.line("max_mtu", mtu(attributes.max_mtu.0))?;
        self.line("active_mtu", mtu(attributes.active_mtu.0))?;
        self.line("sm_lid", attributes.sm_lid)?;
        self.line("port_lmc", format_args!("0x{:02x}", attributes.lmc))?;
        if self.verbose {
            self.line("max_msg_sz", format_args!("0x{:x}", attributes.max_msg_sz))?;
            self.line("gid_tbl_len", attributes.gid_tbl_len)?;
            self.line("pkey_tbl_len", attributes.pkey_tbl_len)?;
        }
        Ok(())
    }

    fn tables(&mut self, port: &Port, opened: Option<(&Context, u8)>) -> Result<(), Failure> {
        let gids = match opened {
            Some((context, number)) => context.gids(number),
            None => port.gids().map(Iterator::collect),
        };
        for entry in self.value_or_record(gids).into_iter().flatten() {
            self.line(&format!("GID[{:3}]", entry.index), gid(&entry))?;
        }
        for (index, pkey) in self.value_or_record(port.pkeys()).into_iter().flatten().enumerate() {
            if pkey != 0 {
                self.line(&format!("PKEY[{index:3}]"), format_args!("0x{pkey:04x}"))?;
            }
        }
        Ok(())
    }
}

fn transport(transport: Transport) -> Option<&'static str> {
    match transport {
        Transport::InfiniBand => Some("InfiniBand (0)"),
        Transport::Iwarp => Some("iWARP (1)"),
        _ => None,
    }
}

/// Returns the driver's name, as in its module's directory.
pub(crate) fn driver(driver: device::DriverId) -> String {
    let name = driver.name().and_then(|name| name.strip_prefix("RDMA_DRIVER_"));
    name.map_or_else(|| driver.to_string(), str::to_lowercase)
}

/// Returns the name of a link layer, as `ibv_devinfo` prints it.
pub(crate) fn link_layer(layer: LinkLayer) -> String {
    match layer {
        LinkLayer::IB_LINK_LAYER_INFINIBAND => "InfiniBand".to_owned(),
        LinkLayer::IB_LINK_LAYER_ETHERNET => "Ethernet".to_owned(),
        other => other.to_string(),
    }
}

/// Formats a kernel name and its number: `PORT_ACTIVE (4)`.
fn named(name: Option<&'static str>, prefix: &str, number: u8) -> String {
    let name = name.and_then(|name| name.strip_prefix(prefix)).unwrap_or("unknown");
    format!("{name} ({number})")
}

/// Formats an MTU, in bytes and as the kernel's number: `1024 (3)`.
fn mtu(number: u8) -> String {
    match number {
        1..=5 => format!("{} ({number})", 128 << number),
        _ => format!("unknown ({number})"),
    }
}

fn gid(entry: &GidEntry) -> String {
    let mut text = entry.gid.to_string();
    if let Some(gid_type) = entry.gid_type {
        text.push_str(&format!(", {gid_type}"));
    }
    if let Some(netdev) = &entry.netdev {
        text.push_str(", ");
        text.push_str(netdev);
    }
    text
}
