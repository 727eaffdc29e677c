//! What siw does to a connection that has just been accepted.

use std::fs;

/// Whether siw has left bytes lying: what the connecting side sends while the other's is accepted may stay in the
/// socket until more comes, which for who waits for an answer is for ever. Ask where all that could move has stopped.
pub fn has_left_bytes_lying() -> bool {
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"].map(fs::read_to_string);
    tables.iter().flatten().flat_map(|table| table.lines().skip(1)).any(lie_in)
}

/// What the panic begins with of who waited in vain. The runner tells by it what it runs again.
pub(crate) fn why_in_vain() -> &'static str {
    if has_left_bytes_lying() { "siw has left bytes lying: " } else { "" }
}

/// Whether bytes lie in the connection of a line: `sl local_address rem_address st tx_queue:rx_queue ...`.
fn lie_in(line: &str) -> bool {
    const ESTABLISHED: &str = "01";
    let mut fields = line.split_whitespace().skip(3);
    let (state, queues) = (fields.next(), fields.next());
    let received = queues.and_then(|queues| queues.split_once(':')).map(|(_, received)| received);
    state == Some(ESTABLISHED) && received.is_some_and(|received| received != "00000000")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_lie_where_a_connection_has_received_some() {
        let line = |state: &str, queues: &str| {
            format!("   1: 0200000A:1CCB 0200000A:B5DE {state} {queues} 00:00000000 00000000     0")
        };
        assert!(lie_in(&line("01", "00000000:00000054")));
        assert!(!lie_in(&line("01", "00000054:00000000")), "sent, and not received yet");
        assert!(!lie_in(&line("0A", "00000000:00000001")), "of a listener it is another number");
    }
}
