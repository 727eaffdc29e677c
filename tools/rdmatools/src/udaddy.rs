//! `udaddy`: exchanges datagrams with a service resolved by SIDR, as in rdma-core.
//!
//! The server takes the destination of its answers from the received messages. The address is in the global route
//! header, and the number of the client's queue pair is the immediate data.

use std::io::Write;
use std::time::Duration;

use clap::{Args, ValueEnum};
use rdmacm::addr::{AddrInfoFlags, AddrInfoHints, Address, AddressFamily};
use rdmacm::cm::{CmId, ConnParam, EventChannel, EventType, PortSpace};
use rdmacm::verbs::QpCreateFlags;

use crate::datagram::{self, Node, Plan};
use crate::early_exit::{EarlyExit, find};
use crate::failure::{Failure, retry_interrupted};

const NAME: &str = "udaddy";
const PORT: &str = "7174";
const RESOLUTION: Duration = Duration::from_secs(2);

/// Exchange datagrams with a server, or act as the server
#[derive(Debug, Args)]
#[command(args_override_self = true)]
pub(crate) struct Options {
    /// Address of the server; if omitted, act as the server
    #[arg(short = 's', value_name = "ADDR")]
    server: Option<String>,
    /// Local address or name [default for the server: every address]
    #[arg(short = 'b', value_name = "ADDR")]
    bind: Option<String>,
    /// Format of -s and -b
    #[arg(short = 'f', value_name = "FORMAT", ignore_case = true, default_value = "name")]
    format: Format,
    /// Port space [default: udp]
    #[arg(short = 'P', value_name = "SPACE", ignore_case = true, overrides_with = "number")]
    space: Option<Space>,
    /// Port space by its number: 0x111 for UDP, 0x2 for IPoIB
    #[arg(short = 'p', value_name = "NUMBER", value_parser = datagram::port_space)]
    number: Option<PortSpace>,
    /// Number of ids on each side
    #[arg(short = 'c', default_value_t = 1)]
    connections: usize,
    /// Number of messages in each direction
    #[arg(short = 'C', default_value_t = 10)]
    count: u32,
    /// Size of a message in bytes
    #[arg(short = 'S', default_value_t = 100)]
    size: usize,
    /// Type of service of the client's packets
    #[arg(short = 't')]
    tos: Option<u8>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Format {
    /// A name, or an IP address
    Name,
    /// An IP address
    #[value(alias = "ipv6")]
    Ip,
    /// A GID of InfiniBand
    Gid,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Space {
    Udp,
    Ipoib,
}

impl Options {
    fn port_space(&self) -> PortSpace {
        match (self.number, self.space) {
            (_, Some(Space::Ipoib)) => PortSpace::IpoIb,
            (Some(number), None) => number,
            _ => PortSpace::Udp,
        }
    }

    fn plan(&self) -> Plan {
        Plan::new(self.connections, self.count, self.size)
    }

    /// Returns the first address of `host`, with `flags`.
    fn find(
        &self,
        host: Option<&str>,
        port: Option<&str>,
        flags: AddrInfoFlags,
        out: &mut dyn Write,
    ) -> Result<Address, EarlyExit> {
        let (format, family) = match self.format {
            Format::Name => (AddrInfoFlags::empty(), None),
            Format::Ip => (AddrInfoFlags::NUMERICHOST, None),
            Format::Gid => {
                (AddrInfoFlags::NUMERICHOST | AddrInfoFlags::FAMILY, Some(AddressFamily::Ib))
            }
        };
        let port_space = Some(self.port_space());
        let hints =
            AddrInfoHints { flags: flags | format, family, port_space, ..AddrInfoHints::default() };
        let found = find(host, port, &hints, NAME, out)?;
        let address = found.dst_addr.or(found.src_addr);
        Ok(address.ok_or_else(|| Failure::new("cannot resolve the address: there is none"))?)
    }
}

pub(crate) fn run(options: &Options, out: &mut dyn Write) -> Result<(), Failure> {
    let channel = EventChannel::new()?;
    datagram::run(out, |out, nodes| match &options.server {
        Some(server) => client(&channel, server, options, nodes, out),
        None => server(&channel, options, nodes, out),
    })
}

fn server(
    channel: &EventChannel,
    options: &Options,
    nodes: &mut Vec<Node>,
    out: &mut dyn Write,
) -> Result<(), EarlyExit> {
    let plan = options.plan();
    writeln!(out, "udaddy: starting server")?;
    let listener = CmId::new(channel, options.port_space())?;
    let address = options.find(options.bind.as_deref(), Some(PORT), AddrInfoFlags::PASSIVE, out)?;
    listener.bind(address)?;
    listener.listen(0)?;
    while nodes.len() < plan.connections {
        let mut event = retry_interrupted(|| channel.get_event())?;
        let Some(id) = event.take_request() else {
            return Err(EarlyExit::from_event(&event, EventType::ConnectRequest, NAME, out));
        };
        let mut node = Node::new(id);
        // If a node fails, its id is dropped, which rejects the client.
        node.prepare(plan, QpCreateFlags::empty(), NAME, out)?;
        node.post_receives()?;
        node.id.accept(&ConnParam::default())?;
        nodes.push(node);
    }
    if plan.count > 0 {
        writeln!(out, "receiving data transfers")?;
        for node in &mut *nodes {
            if let Some(first) = node.complete(plan.count)? {
                node.reply_to(&first)?;
            }
        }
        writeln!(out, "sending replies")?;
        for node in &*nodes {
            node.post_sends(plan.count)?;
        }
        for node in &*nodes {
            node.complete(plan.count)?;
        }
        writeln!(out, "data transfers complete")?;
    }
    Ok(())
}

fn client(
    channel: &EventChannel,
    server: &str,
    options: &Options,
    nodes: &mut Vec<Node>,
    out: &mut dyn Write,
) -> Result<(), EarlyExit> {
    let plan = options.plan();
    for _ in 0..plan.connections {
        nodes.push(Node::new(CmId::new(channel, options.port_space())?));
    }
    writeln!(out, "udaddy: starting client")?;
    let mut find = |host, port, flags| options.find(Some(host), port, flags, out);
    let source = options.bind.as_deref().map(|host| find(host, None, AddrInfoFlags::PASSIVE));
    let source = source.transpose()?;
    let address = find(server, Some(PORT), AddrInfoFlags::empty())?;
    writeln!(out, "udaddy: connecting")?;
    for node in &*nodes {
        node.id.resolve_addr(source, address, RESOLUTION)?;
    }
    while !nodes.iter().all(Node::has_peer) {
        let event = retry_interrupted(|| channel.get_event())?;
        let Some(node) = nodes.iter_mut().find(|node| node.id.token() == event.token()) else {
            continue;
        };
        match (event.event_type(), event.datagram()) {
            (EventType::AddrResolved, _) => {
                if let Some(tos) = options.tos {
                    node.id.set_tos(tos)?;
                }
                node.id.resolve_route(RESOLUTION)?;
            }
            (EventType::RouteResolved, _) => {
                node.prepare(plan, QpCreateFlags::empty(), NAME, out)?;
                node.post_receives()?;
                node.id.connect(&ConnParam::default())?;
            }
            (EventType::Established, Some(peer)) => node.send_to(peer)?,
            _ => return Err(EarlyExit::from_event(&event, EventType::Established, NAME, out)),
        }
    }
    if plan.count > 0 {
        writeln!(out, "initiating data transfers")?;
        for node in &*nodes {
            node.post_sends(0)?;
        }
        writeln!(out, "receiving data transfers")?;
        for node in &*nodes {
            node.complete(plan.count)?;
        }
        writeln!(out, "data transfers complete")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
