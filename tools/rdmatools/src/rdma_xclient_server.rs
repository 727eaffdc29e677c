//! `rdma_xserver` and `rdma_xclient`: send one message from the client to the server.
//!
//! They use one connection and no events, as the programs of rdma-core do. With XRC, the server receives from a shared
//! receive queue, and the client names that queue by the number in the server's answer.

use std::io::Write;
use std::str::FromStr;

use clap::Args;
use rdmacm::addr::{AddrInfoFlags, AddrInfoHints};
use rdmacm::cm::{CmId, ConnParam, PortSpace};
use rdmacm::verbs::QpType;

use crate::endpoint::{SharedEndpoint, wait};
use crate::failure::Failure;
use crate::host::find;
use crate::rdma_client_server::{
    MESSAGE, disconnect, endpoint, hints, queue_pair, run_framed, send,
};

/// Wait for one rdma_xclient and receive a message
#[derive(Debug, Args)]
#[command(args_override_self = true)]
pub(crate) struct ServerOptions {
    /// Port or service to listen on
    #[arg(short = 'p', value_name = "PORT", default_value = "7471")]
    port: String,
    /// Type of communication: r for reliable connected queue pairs, x for XRC
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
    /// Type of communication: r for reliable connected queue pairs, x for XRC
    #[arg(short = 'c', value_name = "TYPE", default_value = "r")]
    communication: Communication,
}

/// The type of the queue pairs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Communication {
    ReliableConnected,
    Xrc,
}

impl FromStr for Communication {
    type Err = &'static str;

    /// Parses a type by its first letter, in upper or lower case.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.chars().next() {
            Some('r' | 'R') => Ok(Self::ReliableConnected),
            Some('x' | 'X') => Ok(Self::Xrc),
            _ => Err("the supported types are r and x"),
        }
    }
}

impl Communication {
    /// Returns the hints for a side with `flags`; with XRC its queue pair is of `xrc_type`.
    fn hints(self, flags: AddrInfoFlags, xrc_type: QpType) -> AddrInfoHints {
        match self {
            Self::ReliableConnected => hints(flags),
            Self::Xrc => AddrInfoHints {
                port_space: Some(PortSpace::Ib),
                qp_type: Some(xrc_type),
                ..hints(flags)
            },
        }
    }
}

/// Returns parameters of an answer with the number of a shared receive queue, and zeros.
fn answer(srq_number: u32) -> ConnParam {
    ConnParam {
        private_data: srq_number.to_be_bytes().to_vec(),
        responder_resources: 0,
        initiator_depth: 0,
        retry_count: 0,
        rnr_retry_count: 0,
        ..ConnParam::default()
    }
}

/// Returns the number of the shared receive queue in the answer of the server.
fn answered(client: &CmId) -> Result<u32, Failure> {
    let event = client.last_event();
    let number = event.as_deref().and_then(|event| event.private_data().first_chunk());
    let missing = || Failure::new("cannot send the message: the server has named no queue");
    // Private data that the server left out arrives as zeros.
    number
        .map(|number| u32::from_be_bytes(*number))
        .filter(|number| *number != 0)
        .ok_or_else(missing)
}

pub(crate) fn serve(options: &ServerOptions, out: &mut (dyn Write + Send)) -> Result<(), Failure> {
    run_framed("rdma_xserver", out, |out| {
        let communication = options.communication;
        let hints = communication.hints(AddrInfoFlags::PASSIVE, QpType::IB_UVERBS_QPT_XRC_TGT);
        let passive = find(None, Some(&options.port), &hints)?;
        let listener = CmId::create_ep(&passive, Some(&queue_pair()))?;
        listener.listen(0)?;
        let id = listener.get_request()?;
        match communication {
            Communication::ReliableConnected => {
                let server = endpoint("rdma_xserver", id, out)?;
                server.receive()?;
                // Only XRC uses the number.
                server.id.accept(&answer(0))?;
                let received = wait(server.recv_cq());
                disconnect(&server.id);
                received
            }
            Communication::Xrc => {
                let server = SharedEndpoint::new(id, MESSAGE.len())?;
                server.receive()?;
                server.id.accept(&answer(server.srq_number()))?;
                let received = wait(server.recv_cq());
                disconnect(&server.id);
                received
            }
        }
    })
}

pub(crate) fn connect(
    options: &ClientOptions,
    out: &mut (dyn Write + Send),
) -> Result<(), Failure> {
    run_framed("rdma_xclient", out, |out| {
        let communication = options.communication;
        let hints = communication.hints(AddrInfoFlags::empty(), QpType::IB_UVERBS_QPT_XRC_INI);
        let active = find(Some(&options.server), Some(&options.port), &hints)?;
        let id = CmId::create_ep(&active, Some(&queue_pair()))?;
        let client = endpoint("rdma_xclient", id, out)?;
        client.id.connect(&ConnParam::default())?;
        let posted = match communication {
            Communication::ReliableConnected => send(&client),
            Communication::Xrc => answered(&client.id)
                .and_then(|srq_number| client.send_inline_to(srq_number, &MESSAGE)),
        };
        let sent = posted.and_then(|()| wait(client.send_cq()));
        disconnect(&client.id);
        sent
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn communication_is_read_by_first_letter() {
        for (text, expected) in [
            ("r", Communication::ReliableConnected),
            ("Reliable", Communication::ReliableConnected),
            ("x", Communication::Xrc),
            ("XRC", Communication::Xrc),
        ] {
            assert_eq!(text.parse(), Ok(expected), "{text}");
        }
        for text in ["", "u", "-x"] {
            assert!(text.parse::<Communication>().is_err(), "{text}");
        }
    }
}
