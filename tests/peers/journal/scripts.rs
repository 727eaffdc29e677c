//! The scripts that both libraries run. Their language is described in [`scenario`](super::scenario).

mod buffered;
mod datagrams;
mod limits;
mod queue_states;

use std::fmt::Write as _;

pub(super) use self::buffered::{
    buffered_connection, buffered_datagrams, buffered_lists, buffered_states,
};
pub(super) use self::datagrams::{datagrams, flow_labels, multicast, rates_of_datagrams};
pub(super) use self::limits::{
    changed_domain, missing_receives, narrower_arming, overrun_completion_queue,
    refused_queue_pairs, replaced_memory, several_contexts, shared_receives_of_other_types,
    streams_in_shared_registers, streams_of_requests, unpolled_shared_receive,
};
pub(super) use self::queue_states::{
    failed_binds, failed_requests, full_send_queue, limit_of_shared_receives, queried_states,
    second_generation, shared_receives_after_error, suspended_sends, wrong_local_keys,
};

/// A script that is being written.
#[derive(Default)]
struct Script {
    text: String,
    created: Vec<(&'static str, u32)>,
}

/// Offset of the memory for receives in the region. Memory for sends is at its beginning.
const RECEIVED: u32 = 4096;
/// Offset of the memory for remote operations.
const REMOTE: u32 = 8192;
/// Length of the region in bytes.
const BYTES: u32 = 16384;

impl Script {
    /// Begins with a protection domain, a memory region, and `cqs` completion queues.
    fn new(cqs: u32) -> Self {
        let mut script = Self::default();
        script.create("pd", "");
        script.create("mr", &BYTES.to_string());
        for _ in 0..cqs {
            script.create("cq", "64 -");
        }
        script
    }

    /// Begins with two connected queue pairs, each with its own completion queue.
    fn connection(qp_type: &str, rest: &str) -> Self {
        let mut script = Self::new(2);
        script.create("qp", &format!("{qp_type} 0 0 {rest}"));
        script.create("qp", &format!("{qp_type} 1 1 {rest}"));
        script.connect(0, 1);
        script
    }

    /// Begins with two connected queue pairs, each with a completion queue of one channel.
    fn connection_with_events() -> Self {
        let mut script = Self::new(0);
        script.create("channel", "");
        script.create("cq", "16 0");
        script.create("cq", "16 0");
        for cq in [0, 1] {
            script.create("qp", &format!("rc {cq} {cq} {PLAIN}"));
        }
        script.connect(0, 1);
        script
    }

    fn verb(&mut self, line: impl AsRef<str>) {
        writeln!(self.text, "{}", line.as_ref()).expect("a string");
    }

    fn create(&mut self, kind: &'static str, rest: &str) {
        self.create_as(kind, format!("{kind} {rest}").trim_end());
    }

    /// Creates an object of `kind` with another verb.
    fn create_as(&mut self, kind: &'static str, verb: &str) {
        self.verb(verb);
        let number = self.created.iter().filter(|(of, _)| *of == kind).count();
        self.created.push((kind, u32::try_from(number).expect("the number should fit")));
    }

    fn connect(&mut self, one: u32, other: u32) {
        self.verb(format!("connect {one} {other}"));
        self.verb(format!("connect {other} {one}"));
    }

    fn receive(&mut self, qp: u32, sges: &str) {
        self.verb(format!("receive {sges}"));
        self.verb(format!("post_receives {qp}"));
    }

    fn send(&mut self, qp: u32, request: &str) {
        self.verb(format!("send {request}"));
        self.verb(format!("post_sends {qp}"));
    }

    fn poll(&mut self) {
        self.verb("poll 0 8");
        self.verb("poll 1 8");
    }

    /// Sends a message from queue pair 0 to queue pair 1, polls, and prints the received bytes.
    fn exchange(&mut self, request: &str) {
        self.receive(1, &format!("{RECEIVED}+1024"));
        self.send(0, request);
        self.poll();
        self.verb(format!("memory {RECEIVED} 64"));
    }

    /// Destroys all objects, the last one first.
    fn end(mut self) -> String {
        for (kind, number) in std::mem::take(&mut self.created).into_iter().rev() {
            self.verb(format!("destroy {kind} {number}"));
        }
        self.text
    }
}

/// Capacities of a queue pair with inline data of 60 bytes.
const PLAIN: &str = "- 16 16 4 4 60 some";

pub(super) fn inline_sends() -> String {
    let mut script = Script::connection("rc", PLAIN);
    for length in [0, 1, 11, 12, 13, 28, 29, 44, 60] {
        script.exchange(&format!("send si 100+{length}"));
    }
    script.exchange("send si -");
    script.exchange("send si 100+5,200+0,300+20");
    script.end()
}

pub(super) fn gathered_sends() -> String {
    let mut script = Script::connection("rc", PLAIN);
    for sges in ["-", "0+10", "0+0", "0+10,20+0,40+30", "0+0,20+7,40+0", "0+1,20+2,40+3,60+4"] {
        script.exchange(&format!("send s {sges}"));
    }
    script.exchange("send s 0+1024");
    script.end()
}

pub(super) fn flags_of_sends() -> String {
    let mut script = Script::connection("rc", PLAIN);
    for request in [
        "send_imm:0x12345678 s 0+10",
        "send_imm:1 si 0+10",
        "send e 0+10",
        "send se 0+10",
        "send sf 0+10",
        "send sefi 0+10",
        "send - 0+10",
        "send_imm:7 se -",
        "send_inv s 0+10",
        "send_inv si 0+12",
    ] {
        script.exchange(request);
    }
    script.end()
}

pub(super) fn every_send_signaled() -> String {
    let mut script = Script::connection("rc", "- 16 16 1 1 0 all");
    script.exchange("send - 0+10");
    script.exchange("send s 0+10");
    script.end()
}

pub(super) fn one_sided_operations() -> String {
    let mut script = Script::connection("rc", PLAIN);
    for request in [
        format!("write:{REMOTE} s 0+100"),
        format!("write:{REMOTE} si 0+20"),
        format!("write:{REMOTE} s 0+10,20+0,40+20"),
        format!("write:{REMOTE} s -"),
        format!("read:{REMOTE} s 64+100"),
        format!("read:{REMOTE} sf 64+10,200+20"),
        format!("read:{REMOTE} s -"),
        format!("swap:{REMOTE}:0x1122334455667788:0x99aabbccddeeff00 s 128+8"),
        format!("add:{REMOTE}:5 s 136+8"),
        format!("swap:{}:0:7 sf 144+8", REMOTE + 8),
        format!("add:{}:0xffffffffffffffff s 152+8", REMOTE + 8),
    ] {
        script.send(0, &request);
        script.poll();
        script.verb(format!("memory {REMOTE} 32"));
        script.verb("memory 64 112");
    }
    script.exchange(&format!("write_imm:{REMOTE}:0xcafe s 0+10"));
    script.exchange(&format!("write_imm:{REMOTE}:3 sei 0+10"));
    script.exchange(&format!("write_imm:{REMOTE}:4 s -"));
    script.end()
}

pub(super) fn lists_of_requests() -> String {
    let mut script = Script::connection("rc", PLAIN);
    for count in [1, 2, 5] {
        for at in 0..count {
            script.verb(format!("receive {}+64", RECEIVED + 64 * at));
        }
        script.verb("post_receives 1");
        for at in 0..count {
            let signaled = if at + 1 == count { "s" } else { "-" };
            script.verb(format!("send send {signaled} {}+{}", at * 64, 10 + at));
        }
        script.verb("post_sends 0");
        script.poll();
        for at in 0..count {
            let flags = if at % 2 == 0 { "si" } else { "s" };
            let offset = REMOTE + 64 * at;
            script.verb(format!("send write:{offset} {flags} {}+{}", at * 64, 20 + at));
        }
        script.verb("post_sends 0");
        script.poll();
    }
    script.end()
}

pub(super) fn send_ring_wraps() -> String {
    let mut script = Script::connection("rc", "- 4 4 2 1 200 some");
    for at in 0..70 {
        // Entries have one to four blocks, so inline data wraps at the end of the ring after each of its blocks.
        let length = [0, 12, 30, 90, 200, 61, 130, 20][at % 8];
        let flags = if at % 5 == 4 { "s" } else { "si" };
        script.exchange(&format!("send {flags} 100+{length}"));
    }
    script.end()
}

pub(super) fn receive_ring_wraps() -> String {
    let mut script = Script::connection("rc", "- 8 4 1 2 0 some");
    for round in 0..6 {
        for at in 0..3 {
            script.verb(format!("receive {}+{}", RECEIVED + 64 * at, 64 - round));
        }
        script.verb("post_receives 1");
        for at in 0..3 {
            script.send(0, &format!("send s {}+{}", at * 32, 8 + round));
        }
        script.poll();
    }
    script.end()
}

pub(super) fn receives_with_fewer_sges() -> String {
    let mut script = Script::connection("rc", PLAIN);
    for sges in [
        format!("{RECEIVED}+64"),
        format!("{RECEIVED}+8,{}+64", RECEIVED + 64),
        format!("{RECEIVED}+8,{}+0,{}+64", RECEIVED + 64, RECEIVED + 128),
        format!("{RECEIVED}+0,{}+64", RECEIVED + 64),
        format!("{RECEIVED}+1,{0}+2,{0}+3,{0}+64", RECEIVED + 64),
    ] {
        script.receive(1, &sges);
        script.send(0, "send s 0+20");
        script.poll();
        script.verb(format!("memory {RECEIVED} 192"));
    }
    script.receive(1, "-");
    script.send(0, "send s -");
    script.poll();
    script.end()
}

pub(super) fn shared_receives() -> String {
    let mut script = Script::new(2);
    script.create("srq", "6 3");
    for cq in [0, 1, 0] {
        script.create("qp", &format!("rc {cq} {cq} 0 16 16 4 4 60 some"));
    }
    script.connect(0, 1);
    for round in 0..4 {
        for at in 0..5 {
            let offset = RECEIVED + 128 * at;
            let sges = match at {
                0 => format!("{offset}+64"),
                1 => format!("{offset}+8,{}+64", offset + 16),
                // No entry is empty: rdma-core stores the length 0, which means 2 GiB to the device.
                2 => format!("{offset}+8,{}+5,{}+64", offset + 16, offset + 32),
                _ => format!("{offset}+{}", 100 + at),
            };
            script.verb(format!("receive {sges}"));
            // Even rounds post receives one by one, odd rounds in a list.
            if round % 2 == 0 {
                script.verb("post_shared 0");
            }
        }
        if round % 2 == 1 {
            script.verb("post_shared 0");
        }
        for at in 0..5 {
            script.send(at % 2, &format!("send s {}+{}", 32 * at, 8 + at));
        }
        script.verb("poll 1 2");
        script.verb("poll 0 8");
        script.verb("poll 1 8");
    }
    script.verb("receive 4096+64");
    script.verb("post_shared 0");
    script.end()
}

pub(super) fn unreliable_connection() -> String {
    let mut script = Script::connection("uc", PLAIN);
    script.exchange("send s 0+10");
    script.exchange("send_imm:9 si 0+10");
    script.exchange(&format!("write_imm:{REMOTE}:0xcafe s 0+10"));
    script.send(0, &format!("write:{REMOTE} si 0+20"));
    script.poll();
    script.end()
}

pub(super) fn completion_events() -> String {
    let mut script = Script::connection_with_events();
    for round in 0..6 {
        // There are more events than serial numbers of arm words.
        script.verb("arm 1 all");
        script.exchange("send s 0+10");
        script.verb("event 0");
        script.verb("arm 1 solicited");
        script.exchange("send s 0+10");
        script.exchange("send se 0+10");
        script.verb("event 0");
        if round == 3 {
            // The queue is armed twice, and the other queue once.
            script.verb("arm 1 solicited");
            script.verb("arm 1 all");
            script.verb("arm 0 all");
            script.exchange("send si 0+10");
            script.verb("event 0");
            script.verb("event 0");
        }
    }
    // The completion exists before the queue is armed.
    script.receive(1, &format!("{RECEIVED}+64"));
    script.send(0, "send s 0+10");
    script.verb("arm 1 all");
    script.verb("event 0");
    script.poll();
    script.verb("arm 1 all");
    script.end()
}

pub(super) fn several_completions() -> String {
    let mut script = Script::connection("rc", "- 32 32 1 1 0 some");
    for most in [1, 2, 3, 16] {
        for at in 0..8 {
            script.receive(1, &format!("{}+64", RECEIVED + 64 * at));
            script.send(0, &format!("send {} 0+{at}", if at % 2 == 0 { "s" } else { "-" }));
        }
        for _ in 0..=8 / most {
            script.verb(format!("poll 0 {most}"));
            script.verb(format!("poll 1 {most}"));
        }
    }
    // The completion ring has 64 entries, so it wraps.
    for _ in 0..40 {
        script.exchange("send s 0+10");
        script.exchange("send s 0+11");
    }
    script.end()
}

pub(super) fn shared_registers() -> String {
    let mut script = Script::new(2);
    for _ in 0..20 {
        script.create("qp", &format!("rc 0 1 {PLAIN}"));
    }
    for pair in 0..10 {
        script.connect(2 * pair, 2 * pair + 1);
    }
    for round in 0..3 {
        for qp in 0..20 {
            let flags = if (qp + round) % 3 == 0 { "s" } else { "si" };
            script.receive(qp ^ 1, &format!("{RECEIVED}+64"));
            script.send(qp, &format!("send {flags} 0+{}", qp + 1));
            script.poll();
        }
    }
    // New queue pairs get the registers of destroyed ones.
    for qp in [3, 7, 11] {
        script.verb(format!("destroy qp {qp}"));
        script.created.retain(|created| *created != ("qp", qp));
    }
    let mut text = script.text;
    for qp in 20..24 {
        writeln!(text, "qp rc 0 1 {PLAIN}").expect("a string");
        script.created.push(("qp", qp));
    }
    let mut script = Script { text, created: script.created };
    for pair in [10, 11] {
        script.connect(2 * pair, 2 * pair + 1);
    }
    for qp in 20..24 {
        script.receive(qp ^ 1, &format!("{RECEIVED}+64"));
        script.send(qp, "send si 0+30");
        script.poll();
    }
    // Objects are destroyed in reverse order, so the region outlives the queue pairs.
    script.end()
}

pub(super) fn options_of_connections() -> String {
    let mut script = Script::new(2);
    for cq in [0, 1] {
        script.create("qp", &format!("rc {cq} {cq} {PLAIN}"));
        script.verb(format!("show_ece {cq}"));
    }
    for (one, other) in [("0x10000003", "0x10000005"), ("0", "0x10000001"), ("0xffffffff", "0")] {
        script.verb(format!("ece 0 {one}"));
        script.verb(format!("ece 1 {other}"));
        script.verb("show_ece 0");
        script.connect(0, 1);
        script.verb("show_ece 0");
        script.verb("show_ece 1");
        script.exchange("send s 0+10");
        script.verb("reset 0");
        script.verb("reset 1");
        script.verb("show_ece 1");
    }
    // The step to ERR passes the options too.
    script.connect(0, 1);
    script.verb("ece 0 0x10000001");
    script.verb("error 0");
    script.verb("show_ece 0");
    script.end()
}

pub(super) fn sizes_of_queues() -> String {
    let mut script = Script::new(1);
    for capacity in [1, 2, 3, 4, 100, 127, 128, 4095, 4096] {
        script.create("cq", &format!("{capacity} -"));
    }
    for sizes in ["1 1", "5 2", "100 3", "1000 1", "16383 4", "20000 1"] {
        script.create("srq", sizes);
    }
    for sizes in [
        "- 1 1 1 1 0",
        "- 2 3 1 1 0",
        "- 7 9 2 3 0",
        "- 100 100 4 5 0",
        "- 100 1 1 1 60",
        "- 100 1 1 1 61",
        "- 33 1 30 32 0",
        "- 5 5 3 3 800",
        "0 10 0 1 0 0",
        "- 0 10 0 1 0",
        "- 10 0 1 0 0",
    ] {
        for qp_type in ["rc", "uc", "ud"] {
            script.create("qp", &format!("{qp_type} 0 0 {sizes} some"));
        }
    }
    script.end()
}

pub(super) fn resized_queues() -> String {
    let mut script = Script::connection_with_events();
    // Capacities are larger, smaller or equal. The ring has wrapped before some of the changes.
    for (round, capacity) in [40, 17, 31, 200, 20, 3, 16].into_iter().enumerate() {
        for at in 0..5 {
            script.exchange(&format!("send s {}+10", at * 16));
        }
        // Completions that were not polled move to the new ring.
        for at in 0..round % 3 {
            script.receive(
                1,
                &format!(
                    "{}+64",
                    RECEIVED + 64 * u32::try_from(at).expect("the number should fit")
                ),
            );
            script.send(0, "send s 0+10");
        }
        script.verb(format!("resize 1 {capacity}"));
        if round % 2 == 0 {
            script.verb("arm 1 all");
            script.exchange("send s 0+20");
            script.verb("event 0");
        }
        script.poll();
        script.verb(format!("resize 0 {}", 100 - capacity / 3));
    }
    script.exchange("send s 0+10");
    script.end()
}

pub(super) fn xrc() -> String {
    let mut script = Script::new(3);
    script.create("xrcd", "");
    // Each shared receive queue has its own completion queue, and the initiator has the first one.
    script.create_as("srq", "xrc_srq 1 6 2");
    script.create_as("srq", "xrc_srq 2 6 1");
    script.create("qp", "initiator 0 0 - 16 0 4 0 60 some");
    script.create_as("qp", "target");
    script.connect(0, 1);
    let mut exchange = |srq: u32, request: &str| {
        script.verb(format!("receive {RECEIVED}+512"));
        script.verb(format!("post_shared {srq}"));
        script.send(0, &format!("at:{srq}:{request}"));
        (0..3).for_each(|cq| script.verb(format!("poll {cq} 8")));
        script.verb(format!("memory {RECEIVED} 64"));
    };
    for round in 0..4 {
        for srq in [0, 1] {
            exchange(srq, &format!("send s {}+{}", round * 8, 10 + srq));
        }
        exchange(round % 2, "send_imm:0x12345678 si 0+20");
        exchange(round % 2, &format!("write_imm:{REMOTE}:7 se 0+10,20+8"));
    }
    for request in [
        format!("write:{REMOTE} s 0+100"),
        format!("write:{REMOTE} si 0+60"),
        format!("read:{REMOTE} s 64+100"),
        format!("swap:{REMOTE}:0:7 s 128+8"),
        format!("add:{REMOTE}:5 sf 136+8"),
    ] {
        script.send(0, &format!("at:1:{request}"));
        (0..3).for_each(|cq| script.verb(format!("poll {cq} 8")));
        script.verb(format!("memory {REMOTE} 32"));
        script.verb("memory 64 112");
    }
    script.end()
}

pub(super) fn memory_windows() -> String {
    let mut script = Script::connection("rc", PLAIN);
    script.create("window", "1");
    script.create("window", "2");
    let write = |script: &mut Script, window: u32, offset: u32| {
        script.send(0, &format!("write_through:{window}:{offset} s 64+32"));
        script.poll();
        script.verb(format!("memory {offset} 32"));
    };
    for (sges, rights) in [("8192+256", "w"), ("8448+64", "wr"), ("8192+4096", "wra")] {
        script.verb(format!("bind 1 0 {sges} {rights} s"));
        script.poll();
        write(&mut script, 0, sges[..4].parse().expect("an offset"));
    }
    script.verb("bind 1 0 0+0 - s");
    script.poll();
    script.verb("bind 1 1 8192+512 wr s");
    script.poll();
    write(&mut script, 1, REMOTE);
    script.send(1, "invalidate:1 s -");
    script.poll();
    script.verb("bind 1 1 9000+100 w s");
    script.poll();
    write(&mut script, 1, 9000);
    script.exchange("send_inv:1 s 0+16");
    // A request after a bind has the small fence, or the full fence if the program requests it.
    script.verb("bind 1 1 8192+64 w -");
    script.receive(0, "4096+64");
    script.send(1, "send s 0+8");
    script.poll();
    script.send(1, "invalidate:1 - -");
    script.receive(0, "4096+64");
    script.send(1, "send sf 0+8");
    script.poll();
    script.verb("bind 1 0 8192+64 w sf");
    script.poll();
    script.end()
}

pub(super) fn changed_access() -> String {
    let mut script = Script::connection("rc", PLAIN);
    script.send(0, "write:8192 s 0+16");
    script.poll();
    script.verb("access lr");
    script.send(0, "read:8192 s 0+16");
    script.poll();
    script.send(0, "write:8192 s 0+16");
    script.poll();
    script.end()
}
