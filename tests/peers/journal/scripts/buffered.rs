//! Requests over whole buffers, which this library posts by [`BufferedQueuePair`](rdmacm::verbs::BufferedQueuePair).

use super::{REMOTE, Script};

/// Bytes of a buffer.
const BUFFER: u32 = 128;

/// Number of buffers.
const BUFFERS: u32 = 24;

/// The first buffer for receives. Sends use the buffers before it, and binds use the last buffers.
const FIRST_RECEIVE: u32 = 8;

/// Capacities of a queue pair for buffers, whose rings wrap after a few requests.
const FEW: &str = "- 8 8 1 1 0 some";

impl Script {
    /// Begins with two connected, buffered queue pairs, each with its completion queues.
    fn buffered(qps: [[u32; 2]; 2], cqs: u32) -> Self {
        let mut script = Self::new(cqs);
        script.create_as("mr", &format!("buffers {BUFFERS} {BUFFER}"));
        for [send_cq, recv_cq] in qps {
            script.create("qp", &format!("rc {send_cq} {recv_cq} {FEW}"));
        }
        script.connect(0, 1);
        script.verb("buffered 0");
        script.verb("buffered 1");
        script
    }

    /// Posts a receive into a buffer.
    fn receive_buffer(&mut self, qp: u32, buffer: u32) {
        self.receive(qp, &format!("#{buffer}+{BUFFER}"));
    }

    fn poll_all(&mut self, cqs: u32) {
        (0..cqs).for_each(|cq| self.verb(format!("poll {cq} 16")));
    }

    /// Sends a message from queue pair 0 to a buffer of queue pair 1, polls, and prints the received bytes.
    fn exchange_buffer(&mut self, operation: &str, length: u32) {
        self.receive_buffer(1, FIRST_RECEIVE);
        self.send(0, &format!("{operation} s #0+{length}"));
        self.poll();
        self.verb(format!("memory #{FIRST_RECEIVE} {BUFFER}"));
    }
}

/// Posts each operation over a buffer, until the rings have wrapped.
pub(in super::super) fn buffered_connection() -> String {
    let mut script = Script::buffered([[0, 0], [1, 1]], 2);
    for length in [0, 1, 63, 64, BUFFER] {
        script.exchange_buffer("send", length);
        script.exchange_buffer("send_imm:0x12345678", length);
        script.exchange_buffer(&format!("write_imm:{REMOTE}:7"), length);
    }
    script.exchange_buffer("send_inv", 10);
    for operation in [
        format!("write:{REMOTE}"),
        format!("read:{REMOTE}"),
        format!("swap:{REMOTE}:0x1122334455667788:7"),
        format!("add:{}:5", REMOTE + 8),
    ] {
        let length = if operation.starts_with(['s', 'a']) { 8 } else { 100 };
        script.send(0, &format!("{operation} s #1+{length}"));
        script.poll();
        script.verb(format!("memory {REMOTE} 32"));
        script.verb(format!("memory #1 {BUFFER}"));
    }
    for (mw_type, window) in [(1, 0), (2, 1)] {
        script.create("window", &mw_type.to_string());
        script.verb(format!("bind 0 {window} {REMOTE}+256 w s"));
        script.poll();
        script.send(1, &format!("write_through:{window}:{REMOTE} s #2+20"));
        script.poll();
    }
    script.verb(format!("memory {REMOTE} 32"));
    script.end()
}

/// Posts several requests before a poll, in both directions, and with events.
pub(in super::super) fn buffered_lists() -> String {
    let mut script = Script::buffered([[0, 1], [2, 2]], 3);
    for round in 0..5 {
        for (from, to) in [(0, 1), (1, 0)] {
            for at in 0..6 {
                script.receive_buffer(to, FIRST_RECEIVE + at);
                script.send(from, &format!("send s #{at}+{}", at * 10 + round));
            }
            script.poll_all(3);
        }
        script.verb(format!("memory #{FIRST_RECEIVE} {BUFFER}"));
        for at in 0..4 {
            script.receive_buffer(0, FIRST_RECEIVE + at);
            script.receive_buffer(1, FIRST_RECEIVE + 4 + at);
        }
        for at in 0..4 {
            script.send(at % 2, &format!("send s #{at}+{}", at + 1));
        }
        script.poll_all(3);
        for at in 0..4 {
            script.send(at % 2, &format!("send s #{at}+{}", at + 30));
        }
        script.poll_all(3);
    }
    script.end()
}

/// Changes the states of queue pairs.
pub(in super::super) fn buffered_states() -> String {
    let mut script = Script::buffered([[0, 0], [1, 1]], 2);
    script.exchange_buffer("send", 10);
    script.receive_buffer(1, FIRST_RECEIVE + 1);
    script.receive_buffer(1, FIRST_RECEIVE + 2);
    script.send(0, &format!("write_badly:{REMOTE} s #1+8"));
    script.send(0, "send s #2+8");
    script.poll();
    script.verb("error 1");
    script.poll();
    script.receive_buffer(1, FIRST_RECEIVE + 3);
    script.poll();
    for round in 0..3 {
        script.verb("reset 0");
        script.verb("reset 1");
        script.connect(0, 1);
        for _ in 0..=round {
            script.exchange_buffer("send", 20 + round);
        }
    }
    script.end()
}

/// Posts datagrams.
pub(in super::super) fn buffered_datagrams() -> String {
    let mut script = Script::new(2);
    script.create_as("mr", &format!("buffers {BUFFERS} {BUFFER}"));
    for cq in 0..2 {
        script.create("qp", &format!("ud {cq} {cq} {FEW}"));
        script.verb(format!("datagrams {cq}"));
        script.verb(format!("buffered {cq}"));
    }
    // A flow label determines the source port.
    script.create("ah", "0x12345 0 64 0 0");
    script.create("ah", "1 0x28 1 5 3");
    for round in 0..6 {
        script.exchange_buffer(&format!("datagram:{}:1", round % 2), 10 * round);
        script.exchange_buffer(&format!("datagram_imm:{}:1:{round}", round % 2), 9);
    }
    script.end()
}
