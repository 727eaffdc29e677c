//! Detection of bytes that siw leaves unread on a connection that it has just accepted.

use std::fs;

/// siw0's addresses, as `/proc/net/tcp` and `tcp6` have them: 10.0.0.2 and fd00::2.
const ADDRESSES: [&str; 2] = ["0200000A:", "000000FD000000000000000002000000:"];

/// Returns `true` if a siw connection has unread bytes.
///
/// Bytes that arrive while siw accepts a connection may stay in the socket until more arrives. A peer that waits for an
/// answer to them waits forever. The result is meaningful only after all other traffic has stopped.
pub fn has_unread_bytes() -> bool {
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"].map(fs::read_to_string);
    tables.iter().flatten().flat_map(|table| table.lines().skip(1)).any(is_unread)
}

/// Returns `true` if the connection of a line has unread bytes: `sl local_address rem_address st tx_queue:rx_queue ...`.
fn is_unread(line: &str) -> bool {
    const ESTABLISHED: &str = "01";
    let fields: Vec<&str> = line.split_whitespace().collect();
    let [_, local, _, state, queues, ..] = fields[..] else { return false };
    let is_siws = ADDRESSES.iter().any(|address| local.starts_with(address));
    is_siws && state == ESTABLISHED && !queues.ends_with(":00000000")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unread_bytes_are_found_on_siw_connections() {
        let line = |local: &str, state: &str, queues: &str| {
            format!("   1: {local}:1CCB 0100000A:B5DE {state} {queues} 00:00000000 00000000     0")
        };
        let received = "00000000:00000054";
        assert!(is_unread(&line("0200000A", "01", received)));
        assert!(is_unread(&line("000000FD000000000000000002000000", "01", received)));
        assert!(!is_unread(&line("0100000A", "01", received)), "a connection of rxe's address");
        assert!(
            !is_unread(&line("0200000A", "01", "00000054:00000000")),
            "sent bytes should not count as unread"
        );
        assert!(
            !is_unread(&line("0200000A", "0A", received)),
            "for a listener, the field has another meaning"
        );
        assert!(!is_unread(""));
    }
}
