//! Makes the client calls of the C program `ucmatose -C 0` with this library.
//!
//! Connects many ids in one event loop, waits until the server disconnects them, and cleans up. The peer is the C
//! program as a server.

use std::collections::BTreeMap;
use std::env;
use std::error::Error;
use std::net::SocketAddr;
use std::time::Duration;

use rdmacm::cm::{CmId, ConnParam, Event, EventChannel, EventType, PortSpace};
use rdmacm::verbs::{CompletionQueue, ProtectionDomain, QueuePairCaps, QueuePairInit};

const TIMEOUT: Duration = Duration::from_secs(2);

/// A connection, and the objects of its queue pair.
struct Node {
    id: CmId,
    pd: Option<ProtectionDomain>,
    queues: Option<[CompletionQueue; 2]>,
}

struct Test {
    nodes: Vec<Node>,
    connects_left: usize,
    disconnects_left: usize,
}

fn main() -> Result<(), Box<dyn Error>> {
    let (server, connections) = arguments()?;
    let channel = EventChannel::new()?;
    let mut test = Test { nodes: Vec::new(), connects_left: connections, disconnects_left: 0 };
    let mut places = BTreeMap::new();
    for place in 0..connections {
        let id = CmId::new(&channel, PortSpace::Tcp)?;
        places.insert(id.token(), place);
        test.nodes.push(Node { id, pd: None, queues: None });
    }
    for node in &test.nodes {
        node.id.resolve_addr(None, server, TIMEOUT)?;
    }
    while test.connects_left > 0 || test.disconnects_left > 0 {
        let event = channel.get_event()?;
        test.handle(places[&event.token()], &event)?;
    }
    test.nodes.into_iter().try_for_each(Node::destroy)
}

fn arguments() -> Result<(SocketAddr, usize), Box<dyn Error>> {
    let usage = "usage: bench-ucmatose server_address port connections";
    let mut arguments = env::args().skip(1);
    let mut next = || arguments.next().ok_or(usage);
    let (server, port, connections) = (next()?, next()?, next()?);
    Ok((SocketAddr::new(server.parse()?, port.parse()?), connections.parse()?))
}

impl Test {
    fn handle(&mut self, place: usize, event: &Event) -> Result<(), Box<dyn Error>> {
        let node = &mut self.nodes[place];
        match event.event_type() {
            EventType::AddrResolved => node.id.resolve_route(TIMEOUT)?,
            EventType::RouteResolved => node.connect()?,
            EventType::Established => {
                self.connects_left -= 1;
                self.disconnects_left += 1;
            }
            EventType::Disconnected => {
                node.id.disconnect()?;
                self.disconnects_left -= 1;
            }
            EventType::TimewaitExit => {}
            other => return Err(format!("{other} with status {}", event.status()).into()),
        }
        Ok(())
    }
}

impl Node {
    fn connect(&mut self) -> Result<(), Box<dyn Error>> {
        let context = self.id.context()?;
        let pd = ProtectionDomain::new(&context)?;
        let [send_cq, recv_cq] =
            [CompletionQueue::new(&context, 1, None)?, CompletionQueue::new(&context, 1, None)?];
        let caps = QueuePairCaps { max_send_wr: 1, max_recv_wr: 1, ..QueuePairCaps::default() };
        let init = QueuePairInit {
            recv_cq: &recv_cq,
            caps,
            signal_all: true,
            ..QueuePairInit::new(&send_cq)
        };
        self.id.create_qp(&pd, &init)?;
        self.pd = Some(pd);
        self.queues = Some([send_cq, recv_cq]);
        let param = ConnParam {
            responder_resources: 1,
            initiator_depth: 1,
            retry_count: 5,
            rnr_retry_count: 0,
            ..ConnParam::default()
        };
        Ok(self.id.connect(&param)?)
    }

    fn destroy(self) -> Result<(), Box<dyn Error>> {
        self.id.destroy_qp();
        drop(self.queues);
        drop(self.pd);
        Ok(self.id.destroy()?)
    }
}
