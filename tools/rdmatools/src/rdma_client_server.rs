//! `rdma_server` and `rdma_client`: exchange one message in each direction.
//!
//! They use one connection and no events, as the programs of rdma-core do.

use std::io::Write;

use clap::Args;
use rdmacm::addr::{AddrInfoFlags, AddrInfoHints};
use rdmacm::cm::{CmId, ConnParam, EndpointQpInit, PortSpace};
use rdmacm::verbs::QueuePairCaps;

use crate::endpoint::{Endpoint, wait};
use crate::failure::Failure;
use crate::host::find;

/// Payload of both messages.
pub(crate) const MESSAGE: [u8; 16] = [0; 16];

/// Wait for one rdma_client, receive a message and send one
#[derive(Debug, Args)]
#[command(args_override_self = true)]
pub(crate) struct ServerOptions {
    /// Address or name to listen on
    #[arg(short = 's', value_name = "ADDR", default_value = "0.0.0.0")]
    server: String,
    /// Port or service to listen on
    #[arg(short = 'p', value_name = "PORT", default_value = "7471")]
    port: String,
}

/// Connect to an rdma_server, send a message and receive one
#[derive(Debug, Args)]
#[command(args_override_self = true)]
pub(crate) struct ClientOptions {
    /// Address or name of the server; 127.0.0.1 reaches only an RDMA link over lo
    #[arg(short = 's', value_name = "ADDR", default_value = "127.0.0.1")]
    server: String,
    /// Port or service of the server
    #[arg(short = 'p', value_name = "PORT", default_value = "7471")]
    port: String,
}

pub(crate) fn serve(options: &ServerOptions, out: &mut (dyn Write + Send)) -> Result<(), Failure> {
    run_framed("rdma_server", out, |out| {
        let passive =
            find(Some(&options.server), Some(&options.port), &hints(AddrInfoFlags::PASSIVE))?;
        let listener = CmId::create_ep(&passive, Some(&queue_pair()))?;
        listener.listen(0)?;
        let server = endpoint("rdma_server", listener.get_request()?, out)?;
        server.receive()?;
        server.id.accept(&ConnParam::default())?;
        let answered = wait(server.recv_cq())
            .and_then(|()| send(&server))
            .and_then(|()| wait(server.send_cq()));
        disconnect(&server.id);
        answered
    })
}

pub(crate) fn connect(
    options: &ClientOptions,
    out: &mut (dyn Write + Send),
) -> Result<(), Failure> {
    run_framed("rdma_client", out, |out| {
        let active =
            find(Some(&options.server), Some(&options.port), &hints(AddrInfoFlags::empty()))?;
        let id = CmId::create_ep(&active, Some(&queue_pair()))?;
        let client = endpoint("rdma_client", id, out)?;
        client.receive()?;
        client.id.connect(&ConnParam::default())?;
        let asked = send(&client)
            .and_then(|()| wait(client.send_cq()))
            .and_then(|()| wait(client.recv_cq()));
        disconnect(&client.id);
        asked
    })
}

/// Runs `run`, and prints the start of `program` and its status.
pub(crate) fn run_framed(
    program: &str,
    out: &mut (dyn Write + Send),
    run: impl FnOnce(&mut (dyn Write + Send)) -> Result<(), Failure>,
) -> Result<(), Failure> {
    writeln!(out, "{program}: start")?;
    let done = run(out);
    writeln!(out, "{program}: end {}", if done.is_ok() { 0 } else { -1 })?;
    done
}

pub(crate) fn hints(flags: AddrInfoFlags) -> AddrInfoHints {
    AddrInfoHints { flags, port_space: Some(PortSpace::Tcp), ..AddrInfoHints::default() }
}

pub(crate) fn queue_pair() -> EndpointQpInit {
    let caps = QueuePairCaps {
        max_send_wr: 1,
        max_recv_wr: 1,
        max_inline_data: 16,
        ..QueuePairCaps::default()
    };
    EndpointQpInit { caps, signal_all: true, ..EndpointQpInit::default() }
}

pub(crate) fn endpoint(
    program: &str,
    id: CmId,
    out: &mut (dyn Write + Send),
) -> Result<Endpoint, Failure> {
    let qp = id.qp().expect("the endpoint should have a queue pair");
    let endpoint = Endpoint::new(id, qp, MESSAGE.len())?;
    if !endpoint.has_inline(16) {
        writeln!(out, "{program}: device doesn't support IBV_SEND_INLINE, using sge sends")?;
    }
    Ok(endpoint)
}

pub(crate) fn send(endpoint: &Endpoint) -> Result<(), Failure> {
    if endpoint.has_inline(16) { endpoint.send_inline(&MESSAGE) } else { endpoint.send() }
}

/// Disconnects.
///
/// Errors are ignored: the messages were exchanged, so a missing answer of the peer has no effect.
pub(crate) fn disconnect(id: &CmId) {
    let _ = id.disconnect();
}
