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
mod tests {
    use clap::{Command, FromArgMatches};

    use super::*;

    fn options(line: &str) -> Result<Options, clap::Error> {
        let command = Options::augment_args(Command::new("rping").no_binary_name(true));
        let matches = command.try_get_matches_from(line.split_whitespace())?;
        Options::from_arg_matches(&matches)
    }

    #[test]
    fn short_options_combine_as_with_getopt() {
        let client = options("-cvVd -a10.0.0.1 -C5 -S 100 -p7471 -I 10.0.0.2").unwrap();
        assert!(client.client && client.verbose && client.validate && client.debug);
        assert_eq!(client.address.as_deref(), Some("10.0.0.1"));
        assert_eq!((client.count, client.size, client.port), (5, 100, 7471));
        assert_eq!(client.source.as_deref(), Some("10.0.0.2"));
        let server = options("-sPva ::0").unwrap();
        assert!(server.server && server.persistent && server.verbose && !server.client);
        assert_eq!((server.count, server.size, server.port), (0, 64, 7174));
    }

    #[test]
    fn last_of_two_values_wins() {
        assert_eq!(options("-s -C 1 -C 2 -vv").unwrap().count, 2);
        assert!(!options("-c -a ::1 -s").unwrap().client);
        assert!(options("-s -c -a ::1").unwrap().client);
    }

    #[test]
    fn values_rejected_by_c_program_are_rejected() {
        for line in ["", "-c", "-s -S 22", "-s -S 65536", "-s -S x", "-s -C -1", "-s -p 65536"] {
            assert!(options(line).is_err(), "{line}");
        }
        assert_eq!(options("-s -S 23").unwrap().size, 23);
        assert_eq!(options("-s -S 65535").unwrap().size, 65_535);
    }
}
