//! Steps of a program with the connection manager: `scenario ROLE ADDRESS PORT`.
//!
//! `scenario.c` makes the same calls with rdma-core's library.

use std::env;
use std::error::Error;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use rdmacm::cm::{CmId, ConnParam, EventChannel, EventType, Membership, PortSpace};
use rdmacm::verbs::{
    CompletionQueue, ProtectionDomain, QpState, QueuePair, QueuePairCaps, QueuePairInit,
};

const GROUP: Ipv4Addr = Ipv4Addr::new(239, 7, 7, 7);
const TIMEOUT: Duration = Duration::from_secs(2);

type Result<T = ()> = std::result::Result<T, Box<dyn Error>>;

fn main() -> Result {
    let mut arguments = env::args().skip(1);
    let usage = "usage: scenario ROLE ADDRESS PORT";
    let role = arguments.next().ok_or(usage)?;
    let ip: Ipv4Addr = arguments.next().ok_or(usage)?.parse()?;
    let address = SocketAddr::from((ip, arguments.next().ok_or(usage)?.parse()?));
    match role.as_str() {
        "active" => active(address),
        "passive" => passive(address),
        "rejected" => rejected(address),
        "rejecting" => rejecting(address),
        "datagram-active" => datagram_active(address),
        "datagram-passive" => datagram_passive(address),
        "multicast" => multicast(address),
        "migrate" => migrate(address),
        "synchronous-active" => synchronous_active(address),
        "synchronous-passive" => synchronous_passive(address),
        "external" => external(address),
        _ => Err(usage.into()),
    }
}

fn caps() -> QueuePairCaps {
    QueuePairCaps { max_send_wr: 4, max_recv_wr: 4, ..QueuePairCaps::default() }
}

fn param() -> ConnParam {
    ConnParam {
        private_data: b"hello".to_vec(),
        responder_resources: 3,
        initiator_depth: 2,
        flow_control: 1,
        retry_count: 5,
        rnr_retry_count: 6,
        ..ConnParam::default()
    }
}

/// Returns the parameters that the C program puts into a datagram request.
fn greeting() -> ConnParam {
    ConnParam {
        responder_resources: 0,
        initiator_depth: 0,
        retry_count: 0,
        rnr_retry_count: 0,
        private_data: b"hello".to_vec(),
        ..ConnParam::default()
    }
}

/// Creates the queues that the C library makes if the program passes none.
fn create_qp(id: &CmId) -> Result {
    let context = id.context()?;
    let pd = ProtectionDomain::new(&context)?;
    let cq = CompletionQueue::new(&context, 4, None)?;
    let init = QueuePairInit { caps: caps(), signal_all: true, ..QueuePairInit::new(&cq) };
    id.create_qp(&pd, &init)?;
    Ok(())
}

fn resolve(channel: &EventChannel, id: &CmId, address: SocketAddr) -> Result {
    id.resolve_addr(None, address, TIMEOUT)?;
    channel.expect_event(EventType::AddrResolved)?;
    Ok(())
}

fn route(channel: &EventChannel, id: &CmId) -> Result {
    id.resolve_route(TIMEOUT)?;
    channel.expect_event(EventType::RouteResolved)?;
    Ok(())
}

fn listener(channel: &EventChannel, port_space: PortSpace, address: SocketAddr) -> Result<CmId> {
    let id = CmId::new(channel, port_space)?;
    id.bind(address)?;
    id.listen(4)?;
    Ok(id)
}

fn request(channel: &EventChannel) -> Result<CmId> {
    let mut event = channel.expect_event(EventType::ConnectRequest)?;
    Ok(event.take_request().ok_or("a request has an id")?)
}

fn destroy(id: CmId) -> Result {
    id.destroy_qp();
    Ok(id.destroy()?)
}

fn active(address: SocketAddr) -> Result {
    let channel = EventChannel::new()?;
    let id = CmId::new(&channel, PortSpace::Tcp)?;
    resolve(&channel, &id, address)?;
    route(&channel, &id)?;
    create_qp(&id)?;
    id.connect(&param())?;
    channel.expect_event(EventType::Established)?;
    id.disconnect()?;
    channel.expect_event(EventType::Disconnected)?;
    destroy(id)
}

fn passive(address: SocketAddr) -> Result {
    let channel = EventChannel::new()?;
    let listening = listener(&channel, PortSpace::Tcp, address)?;
    let id = request(&channel)?;
    create_qp(&id)?;
    id.accept(&param())?;
    channel.expect_event(EventType::Established)?;
    channel.expect_event(EventType::Disconnected)?;
    id.disconnect()?;
    destroy(id)?;
    destroy(listening)
}

fn rejected(address: SocketAddr) -> Result {
    let channel = EventChannel::new()?;
    let id = CmId::new(&channel, PortSpace::Tcp)?;
    resolve(&channel, &id, address)?;
    route(&channel, &id)?;
    create_qp(&id)?;
    id.connect(&param())?;
    if channel.get_event()?.rejection().is_none() {
        return Err("a rejection was due".into());
    }
    destroy(id)
}

fn rejecting(address: SocketAddr) -> Result {
    let channel = EventChannel::new()?;
    let listening = listener(&channel, PortSpace::Tcp, address)?;
    let id = request(&channel)?;
    id.reject(b"no")?;
    destroy(id)?;
    destroy(listening)
}

fn datagram_active(address: SocketAddr) -> Result {
    let channel = EventChannel::new()?;
    let id = CmId::new(&channel, PortSpace::Udp)?;
    resolve(&channel, &id, address)?;
    route(&channel, &id)?;
    create_qp(&id)?;
    id.connect(&greeting())?;
    channel.expect_event(EventType::Established)?;
    destroy(id)
}

fn datagram_passive(address: SocketAddr) -> Result {
    let channel = EventChannel::new()?;
    let listening = listener(&channel, PortSpace::Udp, address)?;
    let id = request(&channel)?;
    create_qp(&id)?;
    id.accept(&greeting())?;
    destroy(id)?;
    destroy(listening)
}

fn multicast(address: SocketAddr) -> Result {
    let channel = EventChannel::new()?;
    let id = CmId::new(&channel, PortSpace::Udp)?;
    id.bind(address)?;
    create_qp(&id)?;
    let group = SocketAddr::from((GROUP, 0));
    id.join_multicast(group, Membership::Full)?;
    channel.expect_event(EventType::MulticastJoin)?;
    id.leave_multicast(group)?;
    destroy(id)
}

fn migrate(address: SocketAddr) -> Result {
    let (first, second) = (EventChannel::new()?, EventChannel::new()?);
    let id = CmId::new(&first, PortSpace::Tcp)?;
    resolve(&first, &id, address)?;
    id.migrate(&second)?;
    route(&second, &id)?;
    create_qp(&id)?;
    id.connect(&param())?;
    second.expect_event(EventType::Established)?;
    id.migrate(&first)?;
    id.disconnect()?;
    first.expect_event(EventType::Disconnected)?;
    destroy(id)
}

fn synchronous_active(address: SocketAddr) -> Result {
    let id = CmId::new_sync(PortSpace::Tcp)?;
    id.resolve_addr(None, address, TIMEOUT)?;
    id.resolve_route(TIMEOUT)?;
    create_qp(&id)?;
    id.connect(&param())?;
    id.disconnect()?;
    destroy(id)
}

fn synchronous_passive(address: SocketAddr) -> Result {
    let listening = CmId::new_sync(PortSpace::Tcp)?;
    listening.bind(address)?;
    listening.listen(4)?;
    let id = listening.get_request()?;
    create_qp(&id)?;
    id.accept(&param())?;
    id.disconnect()?;
    destroy(id)?;
    destroy(listening)
}

fn external(address: SocketAddr) -> Result {
    let channel = EventChannel::new()?;
    let id = CmId::new(&channel, PortSpace::Tcp)?;
    resolve(&channel, &id, address)?;
    route(&channel, &id)?;
    let context = id.context()?;
    let pd = ProtectionDomain::new(&context)?;
    let cq = CompletionQueue::new(&context, 8, None)?;
    let init = QueuePairInit { caps: caps(), ..QueuePairInit::new(&cq) };
    let qp = QueuePair::new(&pd, &init)?;
    let modify = |state| -> Result { Ok(qp.modify(&id.init_qp_attr(state)?)?) };
    modify(QpState::IB_QPS_INIT)?;
    id.connect(&ConnParam { qp_num: qp.number(), ..param() })?;
    channel.expect_event(EventType::ConnectResponse)?;
    modify(QpState::IB_QPS_RTR)?;
    modify(QpState::IB_QPS_RTS)?;
    id.establish()?;
    id.disconnect()?;
    channel.expect_event(EventType::Disconnected)?;
    destroy(id)
}
