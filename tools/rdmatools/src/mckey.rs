//! `mckey`: sends datagrams to a multicast group, or receives them, as the program of rdma-core does.

use std::io::Write;
use std::net::Ipv6Addr;
use std::thread;
use std::time::Duration;

use clap::Args;
use rdmacm::addr::{Address, IbAddress};
use rdmacm::cm::{CmId, EventChannel, EventType, Membership, PortSpace};
use rdmacm::verbs::QpCreateFlags;

use crate::datagram::{self, Node, Plan};
use crate::early_exit::EarlyExit;
use crate::failure::{Failure, retry_interrupted};
use crate::host::resolve;

const NAME: &str = "mckey";
const RESOLUTION: Duration = Duration::from_secs(2);
/// Time for switches to update their tables of members: they send no confirmation.
const SETTLING: Duration = Duration::from_secs(3);

/// Send datagrams to a multicast group, or receive them
#[derive(Debug, Args)]
#[command(args_override_self = true)]
pub(crate) struct Options {
    /// Multicast group: an address or a name
    #[arg(short = 'm', value_name = "GROUP", required_unless_present = "unmapped")]
    group: Option<String>,
    /// Multicast group as an InfiniBand GID, instead of -m; needs -b
    #[arg(short = 'M', value_name = "GID", requires = "bind")]
    unmapped: Option<Ipv6Addr>,
    /// Act as a sender
    #[arg(short = 's')]
    sender: bool,
    /// Local address or name of the device to use
    #[arg(short = 'b', value_name = "ADDR")]
    bind: Option<String>,
    /// Number of ids
    #[arg(short = 'c', default_value_t = 1)]
    connections: usize,
    /// Number of messages
    #[arg(short = 'C', default_value_t = 10)]
    count: u32,
    /// Size of a message in bytes
    #[arg(short = 'S', default_value_t = 100)]
    size: usize,
    /// Port space: 0x111 for UDP, 0x2 for IPoIB
    #[arg(short = 'p', value_name = "NUMBER", default_value = "0x111",
        value_parser = datagram::port_space)]
    port_space: PortSpace,
    /// Join as a send-only member
    #[arg(short = 'o')]
    send_only: bool,
    /// Do not receive messages that this program sends
    #[arg(short = 'l')]
    block_loopback: bool,
}

pub(crate) fn run(options: &Options, out: &mut dyn Write) -> Result<(), Failure> {
    let channel = EventChannel::new()?;
    datagram::run(out, |out, nodes| {
        let plan = Plan::new(options.connections, options.count, options.size);
        for _ in 0..plan.connections {
            nodes.push(Node::new(CmId::new(&channel, options.port_space)?));
        }
        let role = if options.sender { "client" } else { "server" };
        writeln!(out, "mckey: starting {role}")?;
        let source = options.bind.as_deref().map(|host| resolve(host, 0)).transpose()?;
        let source = source.map(Address::from);
        let group = group(options)?;
        writeln!(out, "mckey: joining")?;
        for node in &mut *nodes {
            if let Some(source) = source {
                node.id.bind(source)?;
            }
            match group {
                Address::Ib(_) => join(node, group, options, plan, out)?,
                Address::Ip(_) => node.id.resolve_addr(source, group, RESOLUTION)?,
            }
        }
        await_groups(&channel, nodes, group, options, plan, out)?;
        thread::sleep(SETTLING);
        let transferred = transfer(nodes, options, plan, out);
        for node in &*nodes {
            node.id.leave_multicast(group)?;
        }
        transferred
    })
}

fn group(options: &Options) -> Result<Address, Failure> {
    match (options.unmapped, &options.group) {
        (Some(gid), _) => {
            let plain = IbAddress::new(gid.into(), options.port_space, 0);
            // Only the GID of a multicast group is used.
            Ok(IbAddress { pkey: 0, service_id: 0, service_id_mask: 0, ..plain }.into())
        }
        (None, Some(host)) => Ok(resolve(host, 0)?.into()),
        (None, None) => Err(Failure::new("cannot join the multicast group: none is given")),
    }
}

/// Joins the group with an id that is bound to a device.
fn join(
    node: &mut Node,
    group: Address,
    options: &Options,
    plan: Plan,
    out: &mut dyn Write,
) -> Result<(), EarlyExit> {
    let flags = match options.block_loopback {
        true => QpCreateFlags::IB_UVERBS_QP_CREATE_BLOCK_MULTICAST_LOOPBACK,
        false => QpCreateFlags::empty(),
    };
    node.prepare(plan, flags, NAME, out)?;
    if !options.sender {
        node.post_receives()?;
    }
    let membership = if options.send_only { Membership::SendOnly } else { Membership::Full };
    node.id.join_multicast(group, membership)?;
    Ok(())
}

/// Handles events until every id has joined the group.
fn await_groups(
    channel: &EventChannel,
    nodes: &mut [Node],
    group: Address,
    options: &Options,
    plan: Plan,
    out: &mut dyn Write,
) -> Result<(), EarlyExit> {
    while !nodes.iter().all(Node::has_peer) {
        let event = retry_interrupted(|| channel.get_event())?;
        let Some(node) = nodes.iter_mut().find(|node| node.id.token() == event.token()) else {
            continue;
        };
        match (event.event_type(), event.datagram()) {
            (EventType::AddrResolved, _) => join(node, group, options, plan, out)?,
            (EventType::MulticastJoin, Some(members)) => {
                let address = &members.ah_attr;
                let (gid, lid, sl) = (Ipv6Addr::from(address.grh.dgid), address.dlid, address.sl);
                writeln!(out, "mckey: joined dgid: {gid} mlid 0x{lid:x} sl {sl}")?;
                node.send_to(members)?;
            }
            _ => return Err(EarlyExit::from_event(&event, EventType::MulticastJoin, NAME, out)),
        }
    }
    Ok(())
}

fn transfer(
    nodes: &[Node],
    options: &Options,
    plan: Plan,
    out: &mut dyn Write,
) -> Result<(), EarlyExit> {
    if plan.count == 0 {
        return Ok(());
    }
    if options.sender {
        writeln!(out, "initiating data transfers")?;
        for node in nodes {
            // The address handle must exist until the sends have completed: the last one is signaled.
            node.post_sends(1)?;
            node.complete(1)?;
        }
    } else {
        writeln!(out, "receiving data transfers")?;
        for node in nodes {
            node.complete(plan.count)?;
        }
    }
    writeln!(out, "data transfers complete")?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(line: &str) -> Result<Options, clap::Error> {
        crate::tests::options(NAME, line)
    }

    #[test]
    fn options_match_c_program() {
        let sender = options("-so -m 239.1.1.1 -b 10.0.0.1 -C5 -p 2").unwrap();
        assert!(sender.sender && sender.send_only && !sender.block_loopback);
        assert!(options("-lm 239.1.1.1").unwrap().block_loopback);
        assert_eq!((sender.connections, sender.count, sender.size), (1, 5, 100));
        assert_eq!(sender.port_space, PortSpace::IpoIb);
        for wrong in ["", "-s", "-M ff12::1", "-M 10.0.0.1 -b 10.0.0.1", "-m 239.1.1.1 -p 1"] {
            assert!(options(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn group_is_address_or_gid() {
        let group = |line: &str| group(&options(line).unwrap()).ok();
        assert_eq!(group("-m 239.1.1.1").unwrap().ip(), Some("239.1.1.1:0".parse().unwrap()));
        let Some(Address::Ib(unmapped)) = group("-M ff12::1 -b 10.0.0.1") else { panic!() };
        assert_eq!(Ipv6Addr::from(unmapped.gid), "ff12::1".parse::<Ipv6Addr>().unwrap());
        assert_eq!((unmapped.pkey, unmapped.service_id, unmapped.service_id_mask), (0, 0, 0));
    }
}
