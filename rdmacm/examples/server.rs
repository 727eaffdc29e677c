//! Waits for a client and prints its message: `cargo run --example server 0.0.0.0:7471`
#![expect(unsafe_code, reason = "posts a receive into memory that outlives the receive")]
use rdmacm::{cm::*, verbs::*};
use std::{error::Error, net::SocketAddr};

fn receive(address: SocketAddr) -> Result<String, Box<dyn Error>> {
    let channel = EventChannel::new()?;
    let listener = CmId::new(&channel, PortSpace::Tcp)?;
    listener.bind(address)?;
    listener.listen(1)?;
    let mut request = channel.expect_event(EventType::ConnectRequest)?;
    // Declared before the id, so it is dropped after the id and its queue pair.
    let buffer;
    let id = request.take_request().expect("a request has an id");
    // Only one client is served. The kernel rejects other clients, and they raise no event here.
    drop(listener);

    let context = id.context()?;
    let pd = ProtectionDomain::new(&context)?;
    let cq = CompletionQueue::new(&context, 4, Some(&CompletionChannel::new(&context)?))?;
    let caps = QueuePairCaps::default();
    let init = QueuePairInit { caps, signal_all: true, ..QueuePairInit::new(&cq) };
    let qp = id.create_qp(&pd, &init)?;
    buffer = MemoryRegion::alloc(&pd, 64, AccessFlags::IB_UVERBS_ACCESS_LOCAL_WRITE)?;
    // Posted before the client may send: each message needs a posted receive.
    // SAFETY: the buffer is not accessed before the receive has completed. It is dropped after the
    // receive has completed, or after the queue pair.
    unsafe { qp.post_recv(&ReceiveRequest { wr_id: 1, scatter: &[buffer.sge(..)?] })? };

    id.accept(&ConnParam::default())?;
    channel.expect_event(EventType::Established)?;
    channel.expect_event(EventType::Disconnected)?;
    id.disconnect()?;
    // The receive has completed: disconnecting flushes it if no message has arrived.
    let mut done = [Completion::default()];
    cq.wait(&mut done)?;
    if !done[0].is_success() {
        return Err("the client sent nothing".into());
    }
    let mut text = vec![0; done[0].byte_len() as usize];
    buffer.read(0, &mut text)?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}

fn main() -> Result<(), Box<dyn Error>> {
    let address = std::env::args().nth(1).and_then(|text| text.parse().ok());
    println!("{}", receive(address.ok_or("usage: server ADDRESS:PORT")?)?);
    Ok(())
}
