//! Scripts in which a queue has too little room, and scripts in which the device runs freely.

use super::{BYTES, PLAIN, RECEIVED, REMOTE, Script};

/// Causes more completions than their queue has room for.
pub(in super::super) fn overrun_completion_queue() -> String {
    let mut script = Script::new(0);
    script.create("cq", "3 -");
    script.create("cq", "64 -");
    for cq in [0, 1] {
        script.create("qp", &format!("rc {cq} {cq} {PLAIN}"));
    }
    script.connect(0, 1);
    for _ in 0..3 {
        script.send(0, &format!("write:{REMOTE} s 0+8"));
    }
    script.verb("poll 0 2");
    for _ in 0..6 {
        script.send(0, &format!("write:{REMOTE} s 0+8"));
    }
    script.verb("async");
    script.verb("poll 0 8");
    script.send(0, &format!("write:{REMOTE} s 0+8"));
    script.verb("poll 0 8");
    script.end()
}

/// Sends to a peer without posted receives, until the retries are exhausted.
///
/// The requests are posted in one list. Otherwise a slow program posts some of them after the first one has failed.
pub(in super::super) fn missing_receives() -> String {
    let mut script = Script::connection("rc", PLAIN);
    for flags in ["s", "si", "-"] {
        script.verb(format!("send send {flags} 0+8"));
    }
    script.verb("post_sends 0");
    script.verb("await 0 3");
    script.poll();
    script.verb("show_qp 0");
    script.end()
}

/// Moves a region to another protection domain than that of the queue pairs, and back.
pub(in super::super) fn changed_domain() -> String {
    let mut script = Script::new(2);
    script.create("pd", "");
    for qp in [0, 1] {
        script.create("qp", &format!("rc {qp} {qp} {PLAIN}"));
    }
    script.connect(0, 1);
    script.exchange("send s 0+10");
    script.verb("domain 1");
    script.send(0, &format!("write:{REMOTE} s 0+8"));
    script.poll();
    for qp in [0, 1] {
        script.verb(format!("reset {qp}"));
    }
    script.verb("domain 0");
    script.connect(0, 1);
    script.exchange("send s 0+10");
    script.end()
}

/// Creates queue pairs at the limits of the device, and beyond them.
pub(in super::super) fn refused_queue_pairs() -> String {
    let mut script = Script::new(1);
    for qp_type in ["rc", "uc", "ud"] {
        for capacities in [
            "32769 1 1 1 0",
            "1 32769 1 1 0",
            "1 1 100 1 0",
            "1 1 1 100 0",
            "1 1 1 1 4096",
            "0 32768 0 1 0",
            "20000 1 1 1 0",
        ] {
            script.verb(format!("try_qp {qp_type} 0 {capacities}"));
        }
    }
    script.end()
}

/// Registers a region again, over other memory.
pub(in super::super) fn replaced_memory() -> String {
    let mut script = Script::connection("rc", PLAIN);
    script.exchange("send s 0+10");
    script.verb("replace 20480");
    for request in ["send s 0+10", "send s 12288+1024"] {
        script.receive(1, "16384+4096");
        script.send(0, request);
        script.poll();
    }
    script.send(0, "read:16384 s 0+1024");
    script.poll();
    script.send(0, "write:20479 s 0+2");
    script.poll();
    script.end()
}

/// Shares receives between queue pairs of other types than reliable connections.
pub(in super::super) fn shared_receives_of_other_types() -> String {
    let mut script = Script::new(2);
    script.create("srq", "8 2");
    for cq in [0, 1] {
        script.create("qp", &format!("uc {cq} {cq} 0 16 16 4 4 60 some"));
    }
    for cq in [0, 1] {
        script.create("qp", &format!("ud {cq} {cq} 0 16 16 4 4 60 some"));
    }
    script.connect(0, 1);
    script.verb("datagrams 2");
    script.verb("datagrams 3");
    script.create("ah", "7 0 64 0 0");
    for request in 0..6 {
        script.verb(format!("receive {RECEIVED}+256,{}+64", RECEIVED + 512));
        script.verb("post_shared 0");
        match request % 2 {
            0 => script.send(0, "send_imm:5 s 0+10"),
            _ => script.send(2, "datagram_imm:0:3:6 si 0+20"),
        }
        script.poll();
    }
    script.end()
}

/// Connects queue pairs of two contexts of one process to each other.
pub(in super::super) fn several_contexts() -> String {
    let mut script = Script::default();
    for context in 0..2 {
        if context > 0 {
            script.verb("context");
        }
        script.create("pd", "");
        script.create("mr", &BYTES.to_string());
        script.create("cq", "64 -");
        script.create("qp", &format!("rc {context} {context} {PLAIN}"));
    }
    script.connect(0, 1);
    for round in 0..4 {
        for (from, to) in [(0, 1), (1, 0)] {
            script.verb(format!("use {to}"));
            script.receive(to, &format!("{RECEIVED}+64"));
            script.verb(format!("use {from}"));
            script.send(from, if round % 2 == 0 { "send s 0+10" } else { "send si 5+30" });
            script.poll();
            script.verb(format!("use {to}"));
            script.verb(format!("memory {RECEIVED} 64"));
        }
    }
    // A queue pair of the second context is created before another one of the first context.
    script.verb("use 1");
    script.create("qp", &format!("rc 1 1 {PLAIN}"));
    script.verb("use 0");
    script.create("qp", &format!("rc 0 0 {PLAIN}"));
    script.connect(2, 3);
    script.verb("use 1");
    script.receive(2, &format!("{RECEIVED}+64"));
    script.verb("use 0");
    script.send(3, "send s 0+10");
    script.poll();
    script.end()
}

/// Arms a queue for solicited completions after it was armed for all.
pub(in super::super) fn narrower_arming() -> String {
    let mut script = Script::connection_with_events();
    script.verb("arm 1 all");
    script.verb("arm 1 solicited");
    script.exchange("send se 0+10");
    script.verb("event 0");
    script.end()
}

/// Resets a queue pair before a message in a shared receive is polled.
pub(in super::super) fn unpolled_shared_receive() -> String {
    let mut script = Script::new(2);
    script.create("srq", "8 1");
    for cq in [0, 1] {
        script.create("qp", &format!("rc {cq} {cq} 0 16 16 4 4 60 some"));
    }
    script.connect(0, 1);
    script.verb(format!("receive {RECEIVED}+64"));
    script.verb("post_shared 0");
    script.send(0, "send s 0+10");
    script.verb("reset 1");
    script.poll();
    script.end()
}

/// Posts requests in both directions, which the device executes while the program posts more.
pub(in super::super) fn streams_of_requests() -> String {
    let mut script = Script::connection("rc", "- 64 64 4 4 60 some");
    script.verb("free");
    for round in 0..20_usize {
        for (to, list) in [(1, 1), (0, 2), (1, 3), (0, 6), (1, 4)] {
            // Each queue pair has separate memory, because the order of their requests is not determined.
            for at in 0..list {
                let offset = RECEIVED + 2048 * to + 64 * at;
                script.verb(format!("receive {offset}+{}", 64 - round));
            }
            script.verb(format!("post_receives {to}"));
        }
        for qp in [0, 1] {
            for at in 0..8 {
                let (flags, length) = (["s", "si", "sf", "sei"][at % 4], 5 * at + round);
                script.verb(format!("send send {flags} {}+{}", 64 * at, length.min(44)));
                // Requests are posted one by one, and in lists.
                if [0, 1, 4, 7].contains(&at) {
                    script.verb(format!("post_sends {qp}"));
                }
            }
            script.send(qp, &format!("write:{} si 0+{}", REMOTE + 2048 * qp, 3 * round));
            script.send(qp, &format!("read:{} sf {}+9", REMOTE + 2048 * qp, 1024 + 64 * qp));
            script.send(qp, &format!("add:{}:3 s {}+8", REMOTE + 64, 2048 + 64 * qp));
        }
        script.verb("await 0 19");
        script.verb("await 1 19");
    }
    script.verb(format!("memory {REMOTE} 128"));
    script.verb(format!("memory {RECEIVED} 512"));
    script.verb(format!("memory {} 512", RECEIVED + 2048));
    script.end()
}

/// Posts requests to many queue pairs, whose doorbells overwrite each other in shared registers.
pub(in super::super) fn streams_in_shared_registers() -> String {
    let mut script = Script::new(0);
    script.create("cq", "512 -");
    script.create("cq", "512 -");
    for _ in 0..20 {
        script.create("qp", &format!("rc 0 1 {PLAIN}"));
    }
    for pair in 0..10 {
        script.connect(2 * pair, 2 * pair + 1);
    }
    script.verb("free");
    for round in 0..6 {
        for qp in 0..20 {
            for at in 0..3 {
                script.verb(format!("receive {}+64", RECEIVED + 64 * at));
            }
            script.verb(format!("post_receives {qp}"));
        }
        for at in 0..3 {
            for qp in 0..20 {
                let flags = if (qp + at) % 2 == 0 { "s" } else { "si" };
                script.send(qp, &format!("send {flags} 0+{}", qp + at + round));
            }
        }
        script.verb("await 0 60");
        script.verb("await 1 60");
    }
    script.end()
}
