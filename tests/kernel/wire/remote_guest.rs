//! The other guest of the wire tests.
//!
//! The other guest exports memory to its clients, and executes commands that concern itself and its end of the wire.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use rdmacm::cm::{ConnParam, EventType};

use super::{CONTROL, CONTROL_PORT, SERVER_PORT, WIRE, plug_in, socket};
use crate::fixtures::{Side, channel, listen};
use crate::io::{Io, Shape};
use crate::netdev::run;

/// Runs until its guest ends.
///
/// The function is no test itself: `cargo xtask test` starts the function for the tests of [`super`].
#[test]
#[ignore = "the other guest's part in the tests of wire: cargo xtask test wire"]
fn serve() {
    plug_in(1);
    thread::spawn(lend_memory);
    let commands = TcpListener::bind(socket(CONTROL[1], CONTROL_PORT)).expect("listen");
    for stream in commands.incoming() {
        obey(stream.expect("a connection"));
    }
}

fn obey(stream: TcpStream) {
    let mut answers = stream.try_clone().expect("duplicate the socket");
    // A failing test drops its end of the connection.
    for command in BufReader::new(stream).lines().map_while(Result::ok) {
        match command.as_str() {
            "cut" => cut(true),
            "plug" => cut(false),
            "crash" => fs::write("/proc/sysrq-trigger", "b").expect("end at once"),
            _ => panic!("unknown command {command}"),
        }
        writeln!(answers, "done").expect("answer");
    }
}

/// Drops all frames that this guest receives from the wire, or stops dropping them.
///
/// Both guests drop frames while the wire is cut. A frame must not be dropped by its sender: rxe would notice the loss,
/// and its queue pair for management datagrams would fail. If the network device were down, the emulator would keep the
/// frames and deliver them later.
pub(super) fn cut(now: bool) {
    static IS_CUT: AtomicBool = AtomicBool::new(false);
    if IS_CUT.swap(now, Ordering::SeqCst) == now {
        return;
    }
    if now {
        run("tc", &["qdisc", "add", "dev", "eth0", "clsact"]);
        run("tc", &["filter", "add", "dev", "eth0", "ingress", "matchall", "action", "drop"]);
    } else {
        run("tc", &["qdisc", "delete", "dev", "eth0", "clsact"]);
    }
}

/// Gives each client the address and the key of separate memory.
fn lend_memory() {
    let channel = channel();
    let (_listener, _) = listen(&channel, socket(WIRE[1], SERVER_PORT));
    let mut lent: Vec<Side> = Vec::new();
    loop {
        let mut event = channel.get_event().expect("an event");
        match event.event_type() {
            EventType::ConnectRequest => {
                let id = event.take_request().expect("an id");
                // The client may give up at any time, especially if the wire has delayed its request.
                let Ok(io) = Io::try_new(&id, Shape::default()) else { continue };
                let side = Side { id, io };
                let memory = side.io.memory();
                let mut private_data = memory.addr().to_be_bytes().to_vec();
                private_data.extend(memory.rkey().to_be_bytes());
                let param = ConnParam { private_data, ..ConnParam::default() };
                if side.id.accept(&param).is_ok() {
                    lent.push(side);
                }
            }
            EventType::Disconnected => {
                lent.retain(|side| side.id.token() != event.token());
            }
            _ => {}
        }
    }
}
