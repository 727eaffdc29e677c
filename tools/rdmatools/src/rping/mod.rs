//! `rping`: sends pings over RDMA, and answers them, compatible with the program of rdma-core.
//!
//! A ping has these steps:
//!
//! 1. The client fills a buffer, and sends its address, key and size.
//! 2. The server reads the buffer by RDMA, prints it with `-v`, and sends a go-ahead.
//! 3. The client sends address, key and size of another buffer.
//! 4. The server writes the data that it read there, and sends a go-ahead.
//! 5. The client compares the buffers with `-V`, and prints the second with `-v`.
//!
//! Each side has two threads for a connection. One executes these steps and waits for [completions](connection). The
//! other receives [events](peer); if the connection has ended, it disconnects, which wakes the first thread.

mod client;
mod connection;
mod log;
mod pattern;
mod peer;
mod server;
mod wire;

use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use clap::{ArgGroup, Args};

use self::log::Log;
use self::pattern::SIZES;
use crate::failure::Failure;
use crate::host::resolve;

/// Send pings over RDMA, or answer them
#[derive(Debug, Args)]
#[command(args_override_self = true)]
#[command(group(ArgGroup::new("role").args(["server", "client"]).required(true).multiple(true)))]
#[command(override_usage = "rdmatools rping -s [-vdP] [-a ADDR] [-p PORT]\n       \
    rdmatools rping -c [-vVd] -a ADDR [-p PORT] [-I ADDR] [-S SIZE] [-C COUNT]")]
pub(crate) struct Options {
    /// Act as the server
    #[arg(short = 's')]
    server: bool,
    /// Act as the client
    #[arg(short = 'c', requires = "address", overrides_with = "server")]
    client: bool,
    /// Address or name of the server [default for the server: every IPv4 address; ::0 is every
    /// address]
    #[arg(short = 'a', value_name = "ADDR")]
    address: Option<String>,
    /// Port of the server
    #[arg(short = 'p', default_value_t = 7174)]
    port: u16,
    /// Local address or name of the client
    #[arg(short = 'I', value_name = "ADDR")]
    source: Option<String>,
    /// Bytes of data in a ping, from 23 to 65535; a server uses the client's size
    #[arg(short = 'S', default_value_t = 64, value_parser = size)]
    size: u16,
    /// Number of pings; 0 means no limit
    #[arg(short = 'C', default_value_t = 0)]
    count: u32,
    /// Print the data
    #[arg(short = 'v')]
    verbose: bool,
    /// Compare the returned data with the sent data
    #[arg(short = 'V')]
    validate: bool,
    /// Print every event and message, with its time in seconds
    #[arg(short = 'd')]
    debug: bool,
    /// Serve any number of clients, several at once
    #[arg(short = 'P')]
    persistent: bool,
}

pub(crate) fn run(options: &Options, out: &mut (dyn Write + Send)) -> Result<(), Failure> {
    let log = Log::new(out, options.verbose, options.debug);
    let address = match &options.address {
        Some(host) => resolve(host, options.port)?,
        None => SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), options.port),
    };
    if options.client {
        let source = options.source.as_ref().map(|host| resolve(host, 0)).transpose()?;
        client::run(address, source, options, &log)
    } else if options.persistent {
        server::serve_all(address, &log)
    } else {
        server::serve_one(address, &log)
    }
}

fn size(argument: &str) -> Result<u16, String> {
    let size = argument.parse().ok().filter(|size| SIZES.contains(size));
    size.ok_or_else(|| format!("not a number from {} to {}", SIZES.start(), SIZES.end()))
}

#[cfg(test)]
mod tests;
