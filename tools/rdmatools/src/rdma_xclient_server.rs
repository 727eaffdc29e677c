//! `rdma_xserver` and `rdma_xclient`: send one message from the client to the server.
//!
//! They use one connection and no events, as the programs of rdma-core do.

use std::io::Write;
use std::str::FromStr;

use clap::Args;
use rdmacm::addr::{AddrInfoFlags, AddrInfoHints};
use rdmacm::cm::{CmId, ConnParam};

use crate::endpoint::wait;
use crate::failure::Failure;
use crate::host::find;
use crate::rdma_client_server::{disconnect, endpoint, hints, queue_pair, run_framed, send};

/// Private data of the server's answer: the number of the shared receive queue, which only XRC uses.
const NO_NUMBER: [u8; 4] = [0; 4];

/// Wait for one rdma_xclient and receive a message
#[derive(Debug, Args)]
#[command(args_override_self = true)]
pub(crate) struct ServerOptions {
    /// Port or service to listen on
    #[arg(short = 'p', value_name = "PORT", default_value = "7471")]
    port: String,
    /// Type of communication: r for reliable connected queue pairs; x (XRC) is rejected
    #[arg(short = 'c', value_name = "TYPE", default_value = "r")]
    communication: Communication,
}

/// Connect to an rdma_xserver and send a message
#[derive(Debug, Args)]
#[command(args_override_self = true)]
pub(crate) struct ClientOptions {
    /// Address or name of the server; 127.0.0.1 reaches only an RDMA link over lo
    #[arg(short = 's', value_name = "ADDR", default_value = "127.0.0.1")]
    server: String,
    /// Port or service of the server
    #[arg(short = 'p', value_name = "PORT", default_value = "7471")]
    port: String,
    /// Type of communication: r for reliable connected queue pairs; x (XRC) is rejected
    #[arg(short = 'c', value_name = "TYPE", default_value = "r")]
    communication: Communication,
}

/// The type of the queue pairs.
#[derive(Debug, Clone, Copy)]
enum Communication {
    ReliableConnected,
}

impl FromStr for Communication {
    type Err = &'static str;

    /// Parses a type by its first letter, in upper or lower case.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.chars().next() {
            Some('r' | 'R') => Ok(Self::ReliableConnected),
            Some('x' | 'X') => Err("x is XRC, which no supported driver can send"),
            _ => Err("the only supported type is r"),
        }
    }
}

impl Communication {
    fn hints(self, flags: AddrInfoFlags) -> AddrInfoHints {
        match self {
            Self::ReliableConnected => hints(flags),
        }
    }
}

pub(crate) fn serve(options: &ServerOptions, out: &mut (dyn Write + Send)) -> Result<(), Failure> {
    run_framed("rdma_xserver", out, |out| {
        let passive =
            find(None, Some(&options.port), &options.communication.hints(AddrInfoFlags::PASSIVE))?;
        let listener = CmId::create_ep(&passive, Some(&queue_pair()))?;
        listener.listen(0)?;
        let server = endpoint("rdma_xserver", listener.get_request()?, out)?;
        server.receive()?;
        let nothing = ConnParam {
            private_data: NO_NUMBER.to_vec(),
            responder_resources: 0,
            initiator_depth: 0,
            retry_count: 0,
            rnr_retry_count: 0,
            ..ConnParam::default()
        };
        server.id.accept(&nothing)?;
        let received = wait(server.recv_cq());
        disconnect(&server);
        received
    })
}

pub(crate) fn connect(
    options: &ClientOptions,
    out: &mut (dyn Write + Send),
) -> Result<(), Failure> {
    run_framed("rdma_xclient", out, |out| {
        let active = find(
            Some(&options.server),
            Some(&options.port),
            &options.communication.hints(AddrInfoFlags::empty()),
        )?;
        let id = CmId::create_ep(&active, Some(&queue_pair()))?;
        let client = endpoint("rdma_xclient", id, out)?;
        client.id.connect(&ConnParam::default())?;
        let sent = send(&client).and_then(|()| wait(client.send_cq()));
        disconnect(&client);
        sent
    })
}
