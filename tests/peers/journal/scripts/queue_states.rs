//! States, limits and failures of queues.

use super::{PLAIN, RECEIVED, REMOTE, Script};

pub(in crate::journal) fn second_generation() -> String {
    let mut script = Script::connection("rc", PLAIN);
    for round in 0..3 {
        for at in 0..=round {
            script.exchange(&format!("send s 0+{}", at + 1));
        }
        // At the reset, completions are unpolled and a receive is still posted.
        script.receive(1, &format!("{RECEIVED}+64"));
        script.receive(1, &format!("{}+64", RECEIVED + 64));
        script.send(0, "send s 0+10");
        script.verb("reset 0");
        script.verb("reset 1");
        script.poll();
        script.connect(0, 1);
    }
    script.exchange("send si 0+10");
    script.verb("error 1");
    script.receive(1, &format!("{RECEIVED}+64"));
    script.poll();
    script.end()
}

pub(in crate::journal) fn failed_requests() -> String {
    let mut script = Script::connection("rc", PLAIN);
    script.receive(1, &format!("{RECEIVED}+64"));
    script.verb(format!("send write_badly:{REMOTE} s 0+10"));
    script.verb("send send s 0+10");
    script.verb("send send - 0+10");
    script.verb("post_sends 0");
    script.poll();
    script.verb("reset 0");
    script.verb("reset 1");
    script.connect(0, 1);
    // The receive is too short.
    script.receive(1, &format!("{RECEIVED}+8"));
    script.send(0, "send s 0+10");
    script.poll();
    script.verb("reset 0");
    script.verb("reset 1");
    script.connect(0, 1);
    script.exchange("send s 0+10");
    script.end()
}

pub(in crate::journal) fn failed_binds() -> String {
    let mut script = Script::connection("rc", PLAIN);
    script.create("window", "2");
    script.verb("bind 1 0 8192+64 w s");
    script.poll();
    // The window is bound already.
    script.verb("bind 1 0 8256+64 w s");
    script.poll();
    script.end()
}

pub(in crate::journal) fn limit_of_shared_receives() -> String {
    let mut script = Script::new(2);
    script.create("srq", "8 1");
    script.create("qp", "rc 0 0 0 16 0 4 0 0 some");
    script.create("qp", "rc 1 1 0 16 0 4 0 0 some");
    script.connect(0, 1);
    script.verb("show_srq 0");
    for place in 0..4 {
        script.verb(format!("receive {}+64", RECEIVED + 64 * place));
    }
    script.verb("post_shared 0");
    script.verb("limit 0 3");
    script.verb("show_srq 0");
    for _ in 0..2 {
        script.send(0, "send s 0+10");
        script.poll();
    }
    script.verb("async");
    script.verb("show_srq 0");
    script.end()
}

pub(in crate::journal) fn queried_states() -> String {
    let mut script = Script::connection("rc", PLAIN);
    script.verb("show_qp 0");
    script.exchange("send s 0+10");
    script.verb("show_qp 1");
    script.verb("error 0");
    script.verb("show_qp 0");
    script.verb("reset 0");
    script.verb("show_qp 0");
    script.end()
}

pub(in crate::journal) fn suspended_sends() -> String {
    let mut script = Script::connection("rc", PLAIN);
    script.exchange("send s 0+10");
    script.verb("suspend 0");
    script.verb("show_qp 0");
    script.receive(1, &format!("{RECEIVED}+64"));
    script.send(0, "send s 20+10");
    script.poll();
    script.verb("resume 0");
    script.poll();
    script.verb("show_qp 0");
    script.exchange("write:8192 s 0+64");
    script.end()
}

pub(in crate::journal) fn wrong_local_keys() -> String {
    let mut script = Script::connection("rc", PLAIN);
    for (round, request) in
        ["send s !0+10", "write:8192 s 0+8,!8+8", "read:8192 s !0+10"].iter().enumerate()
    {
        if round > 0 {
            script.verb("reset 0");
            script.verb("reset 1");
            script.connect(0, 1);
        }
        script.send(0, request);
        script.poll();
    }
    script.verb("reset 0");
    script.verb("reset 1");
    script.connect(0, 1);
    script.receive(1, &format!("!{RECEIVED}+64"));
    script.send(0, "send s 0+10");
    script.poll();
    script.verb("async");
    script.end()
}

pub(in crate::journal) fn full_send_queue() -> String {
    let mut script = Script::connection("rc", PLAIN);
    for _ in 0..3 {
        for _ in 0..15 {
            script.verb("send write:8192 - 0+8");
        }
        script.verb("send write:8192 s 0+8");
        // The queue has room for 16.
        script.verb("send write:8192 s 0+8");
        script.verb("post_too_many 0");
        script.poll();
    }
    script.end()
}

pub(in crate::journal) fn shared_receives_after_error() -> String {
    let mut script = Script::new(2);
    script.create("srq", "8 1");
    script.create("qp", "rc 0 0 0 16 0 4 0 0 some");
    script.create("qp", "rc 1 1 0 16 0 4 0 0 some");
    script.connect(0, 1);
    for place in 0..3 {
        script.verb(format!("receive {}+64", RECEIVED + 64 * place));
    }
    script.verb("post_shared 0");
    script.send(0, "send s 0+10");
    script.verb("error 1");
    script.verb("async");
    script.poll();
    script.verb("reset 1");
    script.verb("reset 0");
    script.connect(0, 1);
    script.send(0, "send s 0+20");
    script.poll();
    script.end()
}
