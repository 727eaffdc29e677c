//! Connects to a server and sends it a message of at most 64 bytes: `cargo run --example client
//! 10.0.0.1:7471 hello`
#![expect(unsafe_code, reason = "posts a send, which carries its bytes inline")]
use rdmacm::{cm::*, verbs::*};
use std::{error::Error, net::SocketAddr, time::Duration};

fn send(server: SocketAddr, message: &str) -> Result<(), Box<dyn Error>> {
    let channel = EventChannel::new()?;
    let id = CmId::new(&channel, PortSpace::Tcp)?;
    id.resolve_addr(None, server, Duration::from_secs(2))?;
    channel.expect_event(EventType::AddrResolved)?;
    id.resolve_route(Duration::from_secs(2))?;
    channel.expect_event(EventType::RouteResolved)?;

    let context = id.context()?;
    let pd = ProtectionDomain::new(&context)?;
    let cq = CompletionQueue::new(&context, 4, Some(&CompletionChannel::new(&context)?))?;
    let caps = QueuePairCaps { max_inline_data: 64, ..QueuePairCaps::default() };
    let init = QueuePairInit { caps, signal_all: true, ..QueuePairInit::new(&cq) };
    let qp = id.create_qp(&pd, &init)?;
    id.connect(&ConnParam::default())?;
    // A server may accept late or never.
    channel.expect_event_timeout(EventType::Established, Duration::from_secs(10))?;

    let payload = Payload::Inline(message.as_bytes());
    let (operation, flags) = (SendOperation::Send, SendFlags::empty());
    // SAFETY: an inline payload is copied; the device gets no memory of this program.
    unsafe { qp.post_send(&SendRequest { wr_id: 1, operation, payload, flags })? };
    let mut done = [Completion::default()];
    // If the server's machine has failed, the device retries, and some devices without limit.
    let count = cq.wait_timeout(&mut done, Duration::from_secs(10))?;
    if count == 0 || !done[0].is_success() {
        return Err("the server did not receive the message".into());
    }

    id.disconnect()?;
    channel.expect_event(EventType::Disconnected)?;
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let usage = "usage: client ADDRESS:PORT MESSAGE";
    let mut arguments = std::env::args().skip(1);
    let server = arguments.next().and_then(|text| text.parse().ok()).ok_or(usage)?;
    send(server, &arguments.next().ok_or(usage)?)
}
