//! `link`: shows ports and manages software devices, in the format of iproute2's `rdma link`.

use std::io::Write;

use clap::{Args, Subcommand};
use rdmacm::device::link::{self, LinkType};
use rdmacm::device::{PhysicalState, Port, PortState};

use crate::failure::Failure;

/// List, add and delete RDMA links
#[derive(Debug, Args)]
#[command(subcommand_value_name = "show|add|delete")]
pub(crate) struct Options {
    #[command(subcommand)]
    action: Option<Action>,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// List links; the default subcommand
    #[command(visible_alias = "list")]
    Show {
        /// Show only this device or port [e.g. rxe0/1]
        #[arg(value_name = "DEV[/PORT]")]
        link: Option<String>,
    },
    /// Create a software device over a network device
    #[command(override_usage = "rdmatools link add NAME type rxe|siw netdev DEV")]
    Add {
        /// Name of the new device
        name: String,
        #[arg(value_name = "type", value_parser = ["type"], hide = true)]
        type_word: String,
        /// rxe (RoCE) or siw (iWARP)
        #[arg(value_name = "TYPE")]
        kind: LinkType,
        #[arg(value_name = "netdev", value_parser = ["netdev"], hide = true)]
        netdev_word: String,
        /// Network device below the RDMA device
        #[arg(value_name = "DEV")]
        netdev: String,
    },
    /// Remove a software device; waits until no program uses it
    #[command(visible_alias = "del")]
    Delete {
        /// Name of the device
        name: String,
    },
}

pub(crate) fn run(options: &Options, out: &mut dyn Write) -> Result<(), Failure> {
    match &options.action {
        None => show(None, out),
        Some(Action::Show { link }) => show(link.as_deref(), out),
        Some(Action::Add { name, kind, netdev, .. }) => Ok(link::add(name, *kind, netdev)?),
        Some(Action::Delete { name }) => Ok(link::delete(name)?),
    }
}

fn show(wanted: Option<&str>, out: &mut dyn Write) -> Result<(), Failure> {
    let ports = link::list()?;
    let mut found = false;
    for port in &ports {
        let link = format!("{}/{}", port.device_name(), port.number());
        if wanted.is_none_or(|wanted| wanted == link || wanted == port.device_name()) {
            found = true;
            writeln!(out, "{}", line(&link, port))?;
        }
    }
    match wanted {
        Some(wanted) if !found => Err(Failure::new(format!("there is no link {wanted}"))),
        _ => Ok(()),
    }
}

/// Formats a port, without unknown values.
///
/// Example: `link rxe0/1 state ACTIVE physical_state LINK_UP netdev eth0`.
fn line(link: &str, port: &Port) -> String {
    let facts = [
        ("lid", port.lid().map(|lid| lid.to_string())),
        ("state", port.state().map(state)),
        ("physical_state", port.physical_state().map(physical_state)),
        ("netdev", port.netdev().map(str::to_owned)),
    ];
    let known = facts.into_iter().filter_map(|(key, value)| Some(format!(" {key} {}", value?)));
    format!("link {link}{}", known.collect::<String>())
}

/// Returns the name of a port's state, as `rdma link` prints it.
pub(crate) fn state(state: PortState) -> String {
    short(state.name(), "IB_PORT_", state.0)
}

fn physical_state(state: PhysicalState) -> String {
    short(state.name(), "IB_PORT_PHYS_STATE_", state.0)
}

/// Returns the kernel's name without `prefix`, or the number if it has no name.
fn short(name: Option<&'static str>, prefix: &str, number: u8) -> String {
    let name = name.and_then(|name| name.strip_prefix(prefix));
    name.map_or_else(|| number.to_string(), str::to_owned)
}
