//! `rdma_xserver` and `rdma_xclient`: one connection, one message from the client to the server,
//! without events, as the programs of rdma-core do.

use std::io::Write;
use std::str::FromStr;

use clap::Args;
use rdmacm::addr::{AddrInfoFlags, AddrInfoHints};
use rdmacm::cm::{CmId, ConnParam};

use crate::endpoint::wait;
use crate::failure::Failure;
use crate::hello::{end, endpoint, framed, hints, queue_pair, send};
use crate::host::find;

/// What the server says with its answer: the number of the shared receive queue that XRC has.
const NO_NUMBER: [u8; 4] = [0; 4];

/// Wait for one rdma_xclient and receive a message
#[derive(Debug, Args)]
#[command(args_override_self = true)]
pub(crate) struct ServerOptions {
    /// Port or service to listen on
    #[arg(short = 'p', value_name = "PORT", default_value = "7471")]
    port: String,
    /// Type of communication: r for reliable connected queue pairs; x (XRC) is refused
    #[arg(short = 'c', value_name = "TYPE", default_value = "r")]
    communication: Communication,
}

/// Connect to an rdma_xserver and send a message
#[derive(Debug, Args)]
#[command(args_override_self = true)]
pub(crate) struct ClientOptions {
    /// Address or name of the server; 127.0.0.1 reaches only an RDMA link that was made over lo
    #[arg(short = 's', value_name = "ADDR", default_value = "127.0.0.1")]
    server: String,
    /// Port or service of the server
    #[arg(short = 'p', value_name = "PORT", default_value = "7471")]
    port: String,
    /// Type of communication: r for reliable connected queue pairs; x (XRC) is refused
    #[arg(short = 'c', value_name = "TYPE", default_value = "r")]
    communication: Communication,
}

/// By which queue pairs the two communicate.
#[derive(Debug, Clone, Copy)]
enum Communication {
    ReliableConnected,
}

impl FromStr for Communication {
    type Err = &'static str;

    /// The first letter counts, large or small.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.chars().next() {
            Some('r' | 'R') => Ok(Self::ReliableConnected),
            Some('x' | 'X') => {
                Err("x is XRC, whose sends no driver that is known here carries out")
            }
            _ => Err("the type that there is is r"),
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
    framed("rdma_xserver", out, |out| {
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
        end(&server);
        received
    })
}

pub(crate) fn connect(
    options: &ClientOptions,
    out: &mut (dyn Write + Send),
) -> Result<(), Failure> {
    framed("rdma_xclient", out, |out| {
        let active = find(
            Some(&options.server),
            Some(&options.port),
            &options.communication.hints(AddrInfoFlags::empty()),
        )?;
        let id = CmId::create_ep(&active, Some(&queue_pair()))?;
        let client = endpoint("rdma_xclient", id, out)?;
        client.id.connect(&ConnParam::default())?;
        let sent = send(&client).and_then(|()| wait(client.send_cq()));
        end(&client);
        sent
    })
}
