//! Common parts of `udaddy` and `mckey`: ids that exchange datagrams, and the output.

mod node;

use std::io::Write;

use rdmacm::cm::PortSpace;

pub(crate) use self::node::Node;
use crate::early_exit::EarlyExit;
use crate::failure::Failure;

/// The number and size of the messages, and the number of ids.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Plan {
    pub(crate) connections: usize,
    /// Number of messages that each id sends and receives.
    pub(crate) count: u32,
    /// Size of a message in bytes.
    pub(crate) size: usize,
}

impl Plan {
    /// Creates a plan; without bytes there are no messages.
    pub(crate) fn new(connections: usize, count: u32, size: usize) -> Self {
        Self { connections, count: if size == 0 { 0 } else { count }, size }
    }
}

/// Runs `work` with the ids that it creates, and prints the result.
pub(crate) fn run(
    out: &mut dyn Write,
    work: impl FnOnce(&mut dyn Write, &mut Vec<Node>) -> Result<(), EarlyExit>,
) -> Result<(), Failure> {
    let mut nodes = Vec::new();
    let done = work(out, &mut nodes);
    writeln!(out, "test complete")?;
    drop(nodes);
    EarlyExit::report(done, out)
}

/// Parses the number of a port space in the C library, decimal or hexadecimal.
pub(crate) fn port_space(number: &str) -> Result<PortSpace, String> {
    let parsed = match number.strip_prefix("0x") {
        Some(digits) => u16::from_str_radix(digits, 16).ok(),
        None => number.parse().ok(),
    };
    match parsed {
        Some(0x0111) => Ok(PortSpace::Udp),
        Some(0x0002) => Ok(PortSpace::IpoIb),
        _ => Err("neither 0x111 (UDP) nor 0x2 (IPoIB)".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn port_spaces_have_numbers() {
        assert_eq!(port_space("0x111"), Ok(PortSpace::Udp));
        assert_eq!(port_space("273"), Ok(PortSpace::Udp));
        assert_eq!(port_space("2"), Ok(PortSpace::IpoIb));
        for wrong in ["0x106", "", "udp", "-1", "0x"] {
            assert!(port_space(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn run_prints_its_status() {
        let mut out = Vec::new();
        run(&mut out, |_, _| Ok(())).unwrap();
        assert_eq!(out, b"test complete\nreturn status 0\n");
        let mut out = Vec::new();
        let failed = run(&mut out, |_, _| Err(Failure::new("no").into()));
        assert!(failed.is_err());
        assert_eq!(out, b"test complete\nreturn status -1\n");
    }
}
