//! The connecting side: it lets the server read data and write them back.

use std::net::SocketAddr;
use std::time::Duration;

use rdmacm::cm::{CmId, ConnParam, EventChannel, EventType, PortSpace};
use rdmacm::verbs::{AccessFlags, MemoryRegion};

use super::connection::{Connection, advertise};
use super::log::Log;
use super::peer::Peer;
use super::{Options, pattern};
use crate::failure::Failure;

const RESOLUTION: Duration = Duration::from_secs(2);

/// Connects to `server`, from the local address `source` if given, and sends pings.
pub(super) fn run(
    server: SocketAddr,
    source: Option<SocketAddr>,
    options: &Options,
    log: &Log<'_>,
) -> Result<(), Failure> {
    let channel = EventChannel::new()?;
    let id = CmId::new(&channel, PortSpace::Tcp)?;
    id.resolve_addr(source.map(Into::into), server, RESOLUTION)?;
    log.expect(&channel, EventType::AddrResolved, &format!("resolve the address {server}"))?;
    id.resolve_route(RESOLUTION)?;
    log.expect(&channel, EventType::RouteResolved, &format!("resolve the route to {server}"))?;

    let peer = Peer::new(id);
    let connection = Connection::new(&peer, options.size.into(), log)?;
    let param = ConnParam { responder_resources: 1, initiator_depth: 1, ..ConnParam::default() };
    peer.id.connect(&param)?;
    log.expect(&channel, EventType::Established, &format!("connect to {server}"))?;
    peer.run_with_events(&channel, log, || ping(connection, options, log))
}

fn ping(
    mut connection: Connection<'_, '_>,
    options: &Options,
    log: &Log<'_>,
) -> Result<(), Failure> {
    let size = usize::from(options.size);
    let readable = AccessFlags::IB_UVERBS_ACCESS_REMOTE_READ;
    let mut source = MemoryRegion::alloc(connection.pd(), size, readable)?;
    let pings = if options.count == 0 { u64::MAX } else { options.count.into() };
    for number in 0..pings {
        let data = pattern::data(number, size);
        source.write(0, &data)?;
        // The server answers the first message after its read, and the second after its write.
        connection.exchange(advertise(&source))?;
        connection.exchange(connection.sink())?;
        let echo = connection.data(size)?;
        if options.validate && echo != data {
            return Err(Failure::new(format!("cannot validate ping {number}: the data differ")));
        }
        log.data("ping data:", &echo)?;
    }
    Ok(())
}
