//! `cmatose`: sends messages over many connections, as `ucmatose` of rdma-core does.

use std::collections::HashMap;
use std::io::Write;
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use rdmacm::Token;
use rdmacm::addr::{AddrInfo, AddrInfoFlags, AddrInfoHints, AddressFamily};
use rdmacm::cm::{CmId, ConnParam, Event, EventChannel, EventType, PortSpace};
use rdmacm::verbs::{CompletionQueue, ProtectionDomain, QueuePairCaps, QueuePairInit};

use crate::early_exit::{EarlyExit, find};
use crate::endpoint::{Endpoint, poll};
use crate::failure::{Failure, retry_interrupted};
use crate::number::number;

const NAME: &str = "cmatose";
const RESOLUTION: Duration = Duration::from_secs(2);
/// Interval at which a thread that polls for completions checks for events.
///
/// The check is needed because nothing completes if the peer has ended.
const EVENT_CHECK_INTERVAL: Duration = Duration::from_millis(100);
/// Status of the C program if there is no room for another connection.
const ENOMEM: i32 = -12;

/// Open many connections, and send messages over each
#[derive(Debug, Args)]
#[command(args_override_self = true)]
pub(crate) struct Options {
    /// Address or name of the server; if omitted, act as the server
    #[arg(short = 's', value_name = "ADDR")]
    server: Option<String>,
    /// Local address or name
    #[arg(short = 'b', value_name = "ADDR")]
    source: Option<String>,
    /// Format of the addresses: name, ip, ipv6 or gid
    #[arg(short = 'f', default_value = "name", value_parser = format)]
    format: Format,
    /// Port space: tcp or ib
    #[arg(short = 'P', default_value = "tcp", value_parser = port_space)]
    port_space: PortSpace,
    /// Number of connections
    #[arg(short = 'c', default_value_t = 1)]
    connections: usize,
    /// Messages in each direction over each connection
    #[arg(short = 'C', default_value_t = 10)]
    count: u32,
    /// Size of a message in bytes
    #[arg(short = 'S', default_value_t = 100)]
    size: usize,
    /// Type of service
    #[arg(short = 't', value_parser = number::<u8>)]
    tos: Option<u8>,
    /// Port or service
    #[arg(short = 'p', default_value = "7471")]
    port: String,
    /// Migrate every id to another event channel before disconnecting
    #[arg(short = 'm')]
    migrate: bool,
    /// Acknowledgment timeout, as an exponent
    #[arg(short = 'a', value_parser = number::<u8>)]
    ack_timeout: Option<u8>,
}

#[derive(Debug, Clone, Copy)]
enum Format {
    Name,
    Ip,
    Gid,
}

/// Parses a prefix of a format name, as the C program does.
fn format(argument: &str) -> Result<Format, String> {
    let argument = argument.to_lowercase();
    let known = [("ip", Format::Ip), ("gid", Format::Gid), ("name", Format::Name)];
    let found = known.iter().find(|(name, _)| argument.starts_with(name));
    found.map(|(_, format)| *format).ok_or_else(|| "not name, ip, ipv6 or gid".into())
}

fn port_space(argument: &str) -> Result<PortSpace, String> {
    match argument.to_lowercase() {
        argument if argument.starts_with("ib") => Ok(PortSpace::Ib),
        argument if argument.starts_with("tcp") => Ok(PortSpace::Tcp),
        _ => Err("not tcp or ib".into()),
    }
}

pub(crate) fn run(options: &Options, out: &mut (dyn Write + Send)) -> Result<(), Failure> {
    let channel = EventChannel::new()?;
    let mut test = Test::new(options, out, channel);
    let done = match &options.server {
        Some(server) => test.connect(server),
        None => test.serve(),
    };
    writeln!(test.out, "test complete")?;
    let Test { nodes, out, .. } = test;
    drop(nodes);
    EarlyExit::report(done, out)
}

/// A connection, from its id to its queue pair.
enum Node {
    Id(CmId),
    Connection(Endpoint, State),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Connecting,
    Connected,
    Ended,
}

struct Test<'a> {
    options: &'a Options,
    /// Number of messages in each direction: zero if they would be empty.
    count: usize,
    out: &'a mut (dyn Write + Send),
    // Declared before the channel: fields drop in order, and ids must drop before their channel.
    nodes: HashMap<Token, Node>,
    channel: EventChannel,
    connects_left: usize,
    disconnects_left: usize,
}

impl Node {
    fn id(&self) -> &CmId {
        match self {
            Self::Id(id) | Self::Connection(Endpoint { id, .. }, _) => id,
        }
    }
}

impl<'a> Test<'a> {
    fn new(options: &'a Options, out: &'a mut (dyn Write + Send), channel: EventChannel) -> Self {
        let count = if options.size == 0 { 0 } else { options.count as usize };
        let connects_left = options.connections;
        Self {
            options,
            count,
            out,
            nodes: HashMap::new(),
            channel,
            connects_left,
            disconnects_left: 0,
        }
    }

    fn print_line(&mut self, line: &str) -> Result<(), Failure> {
        Ok(writeln!(self.out, "{line}")?)
    }

    fn serve(&mut self) -> Result<(), EarlyExit> {
        self.print_line("cmatose: starting server")?;
        let listener = CmId::new(&self.channel, self.options.port_space)?;
        let hints =
            AddrInfoHints { flags: self.hints().flags | AddrInfoFlags::PASSIVE, ..self.hints() };
        let here = self.find(self.options.source.as_deref(), Some(&self.options.port), &hints)?;
        let here = here.src_addr.ok_or_else(|| Failure::new("cannot bind: there is no address"))?;
        listener.bind(here)?;
        listener.listen(0)?;
        self.connects()?;
        if self.count > 0 {
            self.print_line("initiating data transfers")?;
            self.sends()?;
            self.print_line("completing sends")?;
            self.complete(Endpoint::send_cq)?;
            self.print_line("receiving data transfers")?;
            self.complete(Endpoint::recv_cq)?;
            self.print_line("data transfers complete")?;
        }
        if self.options.migrate {
            self.migrate(Some(&listener))?;
        }
        self.print_line("cmatose: disconnecting")?;
        for node in self.nodes.values_mut() {
            if let Node::Connection(endpoint, state @ State::Connected) = node {
                *state = State::Ended;
                // The state is set first: if the peer is not notified, no event confirms the disconnect.
                endpoint.id.disconnect()?;
            }
        }
        self.disconnects()?;
        Ok(self.print_line("disconnected")?)
    }

    fn connect(&mut self, server: &str) -> Result<(), EarlyExit> {
        for _ in 0..self.options.connections {
            let id = CmId::new(&self.channel, self.options.port_space)?;
            self.nodes.insert(id.token(), Node::Id(id));
        }
        self.print_line("cmatose: starting client")?;
        let mut hints = self.hints();
        if let Some(source) = &self.options.source {
            let flags = hints.flags | AddrInfoFlags::PASSIVE;
            let passive = AddrInfoHints { flags, ..hints.clone() };
            hints.src_addr = self.find(Some(source), None, &passive)?.src_addr;
        }
        let peer = self.find(Some(server), Some(&self.options.port), &hints)?;
        let there = peer
            .dst_addr
            .ok_or_else(|| Failure::new("cannot resolve the address: there is none"))?;
        self.print_line("cmatose: connecting")?;
        for node in self.nodes.values() {
            node.id().resolve_addr(peer.src_addr, there, RESOLUTION)?;
        }
        // If a step fails, the client does not wait for the server, which waits for messages at that point: the server
        // receives an event when the connections are destroyed.
        self.connects()?;
        self.reply()?;
        if self.options.migrate {
            self.migrate(None)?;
        }
        self.disconnects()
    }

    /// Returns the first address that is found for a node and a service.
    fn find(
        &mut self,
        node: Option<&str>,
        service: Option<&str>,
        hints: &AddrInfoHints,
    ) -> Result<AddrInfo, EarlyExit> {
        find(node, service, hints, NAME, self.out)
    }

    fn reply(&mut self) -> Result<(), EarlyExit> {
        if self.count == 0 {
            return Ok(());
        }
        self.print_line("receiving data transfers")?;
        self.complete(Endpoint::recv_cq)?;
        self.print_line("sending replies")?;
        self.sends()?;
        Ok(self.print_line("data transfers complete")?)
    }

    fn sends(&self) -> Result<(), Failure> {
        self.nodes.values().try_for_each(|node| match node {
            Node::Connection(endpoint, State::Connected) => {
                (0..self.count).try_for_each(|_| endpoint.send())
            }
            _ => Ok(()),
        })
    }

    /// Polls until all messages of one direction have completed over every connection.
    ///
    /// Returns an error if a connection ends before.
    fn complete(&mut self, cq: fn(&Endpoint) -> &CompletionQueue) -> Result<(), EarlyExit> {
        let is_connection = |node: &Node| matches!(node, Node::Connection(..));
        let connections = self.nodes.iter().filter(|(_, node)| is_connection(node));
        let connections: Vec<Token> = connections.map(|(token, _)| *token).collect();
        let mut looked = Instant::now();
        for token in connections {
            let mut remaining = self.count;
            while let Some(Node::Connection(endpoint, state)) = self.nodes.get(&token) {
                // The state is read before polling: messages that arrived before the end have then completed.
                let has_ended = *state == State::Ended;
                let polled = poll(cq(endpoint));
                if has_ended && !matches!(polled, Ok(1..)) {
                    return Err(Failure::new("the peer has ended the connection").into());
                }
                let polled = polled?;
                remaining = remaining.saturating_sub(polled);
                if remaining == 0 {
                    break;
                }
                if polled == 0 && looked.elapsed() >= EVENT_CHECK_INTERVAL {
                    while let Some(event) =
                        retry_interrupted(|| self.channel.get_event_timeout(Duration::ZERO))?
                    {
                        self.handle(event)?;
                    }
                    looked = Instant::now();
                } else if polled == 0 {
                    thread::yield_now();
                }
            }
        }
        Ok(())
    }

    fn connects(&mut self) -> Result<(), EarlyExit> {
        while self.connects_left > 0 {
            self.next_event()?;
        }
        Ok(())
    }

    fn disconnects(&mut self) -> Result<(), EarlyExit> {
        while self.disconnects_left > 0 {
            self.next_event()?;
        }
        Ok(())
    }

    fn next_event(&mut self) -> Result<(), EarlyExit> {
        let event = retry_interrupted(|| self.channel.get_event())?;
        self.handle(event)
    }

    fn handle(&mut self, mut event: Event) -> Result<(), EarlyExit> {
        use EventType as T;
        match event.event_type() {
            T::AddrResolved => Ok(self.resolve_route(&event)?),
            T::RouteResolved => Ok(self.ask(&event)?),
            T::ConnectRequest => {
                let id = event.take_request().expect("a connection request should have an id");
                self.accept(id)
            }
            T::Established => {
                if let Some(Node::Connection(_, state)) = self.nodes.get_mut(&event.token()) {
                    *state = State::Connected;
                }
                self.connects_left -= 1;
                self.disconnects_left += 1;
                Ok(())
            }
            // The event belongs to a connection attempt or to an established connection.
            T::AddrError | T::RouteError | T::ConnectError | T::Unreachable | T::Rejected => {
                Err(EarlyExit::from_event(&event, T::Established, NAME, self.out))
            }
            T::Disconnected => {
                if let Some(Node::Connection(endpoint, state)) = self.nodes.get_mut(&event.token())
                {
                    *state = State::Ended;
                    let _ = endpoint.id.disconnect();
                }
                self.disconnects_left = self.disconnects_left.saturating_sub(1);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn resolve_route(&mut self, event: &Event) -> Result<(), Failure> {
        let Some(node) = self.nodes.get(&event.token()) else { return Ok(()) };
        if let Some(tos) = self.options.tos {
            node.id().set_tos(tos)?;
        }
        if let Some(timeout) = self.options.ack_timeout {
            node.id().set_ack_timeout(timeout)?;
        }
        Ok(node.id().resolve_route(RESOLUTION)?)
    }

    /// Creates the connection's queue pair, and sends the connection request.
    fn ask(&mut self, event: &Event) -> Result<(), Failure> {
        let Some(Node::Id(id)) = self.nodes.remove(&event.token()) else { return Ok(()) };
        let endpoint = self.prepare(id)?;
        endpoint.id.connect(&ConnParam {
            responder_resources: 1,
            initiator_depth: 1,
            retry_count: 5,
            rnr_retry_count: 0,
            ..ConnParam::default()
        })?;
        self.keep(endpoint);
        Ok(())
    }

    fn accept(&mut self, id: CmId) -> Result<(), EarlyExit> {
        if self.nodes.len() == self.options.connections {
            self.print_line("cmatose: failing connection request")?;
            id.reject(b"")?;
            let failure =
                Failure::new("cannot accept another connection: all requested connections exist");
            return Err(EarlyExit { status: ENOMEM, failure });
        }
        let endpoint = self.prepare(id)?;
        if let Some(timeout) = self.options.ack_timeout {
            endpoint.id.set_ack_timeout(timeout)?;
        }
        endpoint.id.accept(&ConnParam::default())?;
        self.keep(endpoint);
        Ok(())
    }

    fn keep(&mut self, endpoint: Endpoint) {
        self.nodes.insert(endpoint.id.token(), Node::Connection(endpoint, State::Connecting));
    }

    /// Creates a queue pair for the id, with its own completion queues, and posts its receives.
    fn prepare(&self, id: CmId) -> Result<Endpoint, Failure> {
        let context = id.context()?;
        let pd = ProtectionDomain::new(&context)?;
        let depth = u32::try_from(self.count.max(1)).expect("the count should fit in 32 bits");
        let queue = || CompletionQueue::new(&context, depth, None);
        let (send_cq, recv_cq) = (queue()?, queue()?);
        let caps =
            QueuePairCaps { max_send_wr: depth, max_recv_wr: depth, ..QueuePairCaps::default() };
        let init = QueuePairInit {
            recv_cq: &recv_cq,
            caps,
            signal_all: true,
            ..QueuePairInit::new(&send_cq)
        };
        let qp = id.create_qp(&pd, &init)?;
        let size = if self.count == 0 { 0 } else { self.options.size };
        let endpoint = Endpoint::new(id, qp, size)?;
        (0..self.count).try_for_each(|_| endpoint.receive())?;
        Ok(endpoint)
    }

    fn migrate(&mut self, listener: Option<&CmId>) -> Result<(), Failure> {
        self.print_line("migrating to new event channel")?;
        let channel = EventChannel::new()?;
        for id in listener.into_iter().chain(self.nodes.values().map(Node::id)) {
            id.migrate(&channel)?;
        }
        self.channel = channel;
        Ok(())
    }

    fn hints(&self) -> AddrInfoHints {
        let (flags, family) = match self.options.format {
            Format::Name => (AddrInfoFlags::empty(), None),
            Format::Ip => (AddrInfoFlags::NUMERICHOST, None),
            Format::Gid => {
                (AddrInfoFlags::NUMERICHOST | AddrInfoFlags::FAMILY, Some(AddressFamily::Ib))
            }
        };
        AddrInfoHints {
            flags,
            family,
            port_space: Some(self.options.port_space),
            ..AddrInfoHints::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn word_prefix_selects_format() {
        assert!(matches!(format("IPv6"), Ok(Format::Ip)));
        assert!(matches!(format("gid"), Ok(Format::Gid)));
        assert!(matches!(format("names"), Ok(Format::Name)));
        assert!(format("na").is_err());
        assert_eq!(port_space("TCP"), Ok(PortSpace::Tcp));
        assert_eq!(port_space("ib"), Ok(PortSpace::Ib));
        assert!(port_space("udp").is_err());
    }
}
