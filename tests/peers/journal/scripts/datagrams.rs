//! Datagrams and their addresses.

use super::{PLAIN, Script};

pub(in crate::journal) fn datagrams() -> String {
    let mut script = Script::new(2);
    script.create("qp", "ud 0 0 - 8 8 3 3 100 some");
    script.create("qp", "ud 1 1 - 8 8 3 3 100 some");
    script.verb("datagrams 0");
    script.verb("datagrams 1");
    // A flow label determines the source port. Without a label, the port is random.
    script.create("ah", "0x12345 0 64 0 0");
    script.create("ah", "1 0x28 1 5 3");
    script.create("ah", "0xfffff 0xff 255 7 20");
    for request in [
        "datagram:0:1 s 0+10",
        "datagram:1:1 s 0+10,20+0,30+7",
        "datagram:2:1 se 0+200",
        "datagram:0:1 si 0+60",
        "datagram:0:1 si 0+100",
        "datagram:0:1 s -",
        "datagram:0:1 si 0+0",
        "datagram_imm:1:1:0x11223344 s 0+10",
        "datagram_imm:2:1:1 sei 0+13",
    ] {
        script.exchange(request);
    }
    script.verb("send datagram:0:1 - 0+10");
    script.verb("send datagram:1:1 s 0+20");
    script.verb("receive 4096+256");
    script.verb("receive 4352+256");
    script.verb("post_receives 1");
    script.verb("post_sends 0");
    script.poll();
    // Without a receive the datagram is lost.
    script.send(0, "datagram:0:1 s 0+10");
    script.poll();
    script.end()
}

pub(in crate::journal) fn rates_of_datagrams() -> String {
    let mut script = Script::new(2);
    script.create("qp", "ud 0 0 - 32 32 1 1 0 some");
    script.create("qp", "ud 1 1 - 32 32 1 1 0 some");
    script.verb("datagrams 0");
    script.verb("datagrams 1");
    // These are all rates for which rdma-core has names, from 2.5 to 1200 Gbit/s.
    for rate in 0..24 {
        script.create("ah", &format!("1 0 64 0 {rate}"));
        script.exchange(&format!("datagram:{rate}:1 s 0+10"));
    }
    script.end()
}

pub(in crate::journal) fn multicast() -> String {
    let mut script = Script::new(2);
    for cq in 0..2 {
        script.create("qp", &format!("ud {cq} {cq} {PLAIN}"));
        script.verb(format!("datagrams {cq}"));
    }
    script.create_as("ah", "group");
    script.verb("join 1");
    for request in ["multicast:0 s 0+10", "multicast:0 si 100+20"] {
        script.exchange(request);
    }
    script.verb("leave 1");
    script.exchange("multicast:0 s 0+10");
    script.end()
}

pub(in crate::journal) fn flow_labels() -> String {
    let mut script = Script::new(2);
    for cq in 0..2 {
        script.create("qp", &format!("ud {cq} {cq} {PLAIN}"));
        script.verb(format!("datagrams {cq}"));
    }
    for (number, label) in [0, 1, 0x12345, 0xfffff].into_iter().enumerate() {
        script.create("ah", &format!("{label} 0 64 0 0"));
        script.exchange(&format!("datagram:{number}:1 s 0+10"));
    }
    script.end()
}
