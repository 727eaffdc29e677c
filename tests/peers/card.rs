//! Tests of the emulated card: options of connections (ECE), the clock, regions of dma-bufs, and the check of doorbells.

use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::process::Command;

use rdmacm::cm::{CmId, ConnParam, Ece, EventChannel, EventType, PortSpace};
use rdmacm::verbs::{CompletionQueue, ProtectionDomain, QueuePairInit};
use rdmacm_tests::roce::{CardParameter, bad_requests, roce_ip, roce_name};
use rdmacm_tests::{Process, mount_debugfs, promised, promised_device, skip};

use crate::pingpong::{bounce, gid, listening};
use crate::rping::{LIMIT, Program, Server, compile, compile_with, port};

/// The card's options (`CARD_ECE` in `tests/kmod/mlx5/card.h`), with rdma-core's vendor number.
const CARD_ECE: Ece = Ece { vendor_id: 0x15b3, options: 0x1000_0003 };

/// Returns an id that has resolved the address of `server`.
fn resolved(channel: &EventChannel, server: &Server) -> CmId {
    let id = CmId::new(channel, PortSpace::Tcp).expect("create an id");
    id.resolve_addr(None, server.address(), LIMIT).expect("resolve the address");
    channel.expect_event(EventType::AddrResolved).expect("the address should be resolved");
    id.resolve_route(LIMIT).expect("resolve the route");
    channel.expect_event(EventType::RouteResolved).expect("the route should be resolved");
    id
}

/// Returns parameters with one read or atomic in each direction.
fn shallow() -> ConnParam {
    ConnParam { responder_resources: 1, initiator_depth: 1, ..ConnParam::default() }
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn request_carries_ece_of_card() {
    for program in [Program::C, Program::Ours] {
        let channel = EventChannel::new().expect("open an event channel");
        let listener = CmId::new(&channel, PortSpace::Tcp).expect("create an id");
        let port = port();
        let ip: IpAddr = roce_ip().parse().expect("an address");
        let address = SocketAddr::new(ip, port.parse().expect("a port"));
        listener.bind(address).expect("bind");
        listener.listen(0).expect("listen");
        let client = program.start(&["-c", "-a", roce_ip(), "-p", &port, "-C", "1"]);
        let mut event = channel.expect_event(EventType::ConnectRequest).expect("a request");
        let id = event.take_request().expect("a request should have an id");
        assert_eq!(
            id.remote_ece().expect("the peer's options should be readable without a queue pair"),
            CARD_ECE,
            "{program:?}"
        );
        id.reject_ece(&[]).expect("reject");
        assert!(!client.finish().status.success(), "{program:?}");
    }
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn server_answers_with_common_ece() {
    for program in [Program::C, Program::Ours] {
        let server = Server::start(program, roce_ip(), &[]);
        let channel = EventChannel::new().expect("open an event channel");
        let id = resolved(&channel, &server);
        // The card removes an option that it does not have, when the server changes its queue pair.
        id.set_local_ece(Ece { options: 0x1000_0005, ..CARD_ECE }).expect("set");
        id.connect(&ConnParam { qp_num: 0x77_7777, ..shallow() }).expect("connect");
        channel.expect_event(EventType::ConnectResponse).expect("an answer");
        let agreed = Ece { options: 0x1000_0001, ..CARD_ECE };
        assert_eq!(
            id.remote_ece().expect("the peer's options should be readable without a queue pair"),
            agreed,
            "{program:?}"
        );
    }
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn ece_is_agreed_with_c() {
    let server = Server::start(Program::C, roce_ip(), &[]);
    let channel = EventChannel::new().expect("open an event channel");
    let id = resolved(&channel, &server);
    let context = id.context().expect("the id should have a device");
    let pd = ProtectionDomain::new(&context).expect("protection domain");
    let cq = CompletionQueue::new(&context, 16, None).expect("completion queue");
    let qp = id.create_qp(&pd, &QueuePairInit::new(&cq)).expect("queue pair");
    assert_eq!(qp.ece(), Some(CARD_ECE));
    id.connect(&shallow()).expect("connect");
    channel.expect_event(EventType::Established).expect("the connection should be established");
    assert_eq!(qp.ece(), Some(CARD_ECE));
}

/// Runs the part of `card.c` with this name.
fn check(part: &str) {
    let (index, gid) = gid(roce_ip());
    let program = compile("card.c");
    let ended =
        Process::start(Command::new(&program).args([roce_name(), &gid, &index, part]), LIMIT)
            .finish();
    assert!(ended.status.success(), "{}", ended.stderr);
    fs::remove_file(program).expect("remove the program");
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn completions_of_c_have_times_of_clock() {
    check("clock");
    let (index, _) = gid(roce_ip());
    let port = port();
    let mut arguments = vec!["-d", roce_name(), "-g", &index, "-p", &port, "-t", "-n", "20"];
    let server = listening(Program::C.run("ibv_rc_pingpong", &arguments), &port);
    arguments.push(roce_ip());
    let client = Program::C.run("ibv_rc_pingpong", &arguments).finish();
    for ended in [client, server.finish()] {
        assert!(ended.status.success(), "{}", ended.stderr);
        let is_time = |line: &String| line.contains("receive completion clock cycles");
        assert!(ended.stdout.iter().any(is_time), "{:?}", ended.stdout);
    }
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn c_writes_to_region_of_dma_buf() {
    if promised("RDMACM_TEST_KERNEL") == "6.1" {
        return skip("Debian's kernel gives programs no dma-bufs");
    }
    check("dmabuf");
}

/// Checks that the programs of both libraries work with the answers of older kernels and other devices.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn other_contexts_carry_messages() {
    promised_device(roce_name());
    for parameters in [
        &[("request_length", "24"), ("answer_length", "56")][..],
        &[("request_length", "16"), ("answer_length", "48")],
        &[("register_size", "256")],
        &[("register_size", "0")],
        &[("register_size", "256"), ("dynamic", "Y")],
        &[("register_size", "0"), ("dynamic", "Y")],
    ] {
        let _set = Vec::from_iter(parameters.iter().map(|(name, to)| CardParameter::set(name, to)));
        for (server, client) in [(Program::C, Program::C), (Program::Ours, Program::C)] {
            bounce(server, client, "rc", roce_ip(), 1, "-e -c -n 20 -s 60");
        }
    }
}

/// Checks that the programs of both libraries fail if the kernel refuses a context or a register page.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn refused_contexts_end_programs() {
    promised_device(roce_name());
    for (name, value) in [("request_length", "15"), ("register_pages", "0")] {
        let _set = CardParameter::set(name, value);
        for program in [Program::C, Program::Ours] {
            let ended = program.run("ibv_devinfo", &["-d", roce_name()]).finish();
            assert!(!ended.status.success(), "{program:?} with {name}");
            assert!(!ended.stderr.is_empty(), "{program:?} with {name}");
        }
    }
}

/// The file by which a program decides when the card reads its memory.
const SWEEPS: &str = "/sys/kernel/debug/mlx5_card/sweeps";

/// Checks that the card counts faults of programs, such as wrong doorbells.
///
/// It starts only entries for which a doorbell was rung, and raises events only for completion queues that a store
/// armed.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn wrong_doorbells_are_counted() {
    mount_debugfs();
    let (index, gid) = gid(roce_ip());
    let program = compile_with("card_doorbell.c", &["-lmlx5"]);
    let run = |part: &str| {
        let before = bad_requests();
        let mut command = Command::new(&program);
        command.args([roce_name(), &gid, &index, SWEEPS, part]);
        let ended = Process::start(&mut command, LIMIT).finish();
        assert!(ended.status.success(), "{part}: {}", ended.stderr);
        (ended.stdout.join("\n"), bad_requests() - before)
    };
    assert_eq!(run("right"), ("2".to_owned(), 0));
    // The program checks that an event needs the store to the register.
    let arm = || assert_eq!(run("unarmed"), ("1".to_owned(), 0));
    arm();
    let check_all = || {
        for (part, completions, bad) in [
            ("silent", 0, 1),
            ("first_of_two", 1, 1),
            ("silent_flush", 0, 1),
            ("early", 0, 1),
            ("repeated", 1, 1),
            ("other_queue_pair", 0, 1),
            // The card counts both the wrong store and the missing doorbell.
            ("half", 0, 2),
            ("other_entry", 0, 2),
            ("too_many", 0, 2),
            ("other_completion_queue", 0, 1),
            // The queue pair moves to the error state, which flushes the send.
            ("too_many_receives", 1, 1),
        ] {
            assert_eq!(run(part), (completions.to_string(), bad), "{part}");
        }
    };
    let _parameter = CardParameter::without_complaints();
    check_all();
    let _parameter = CardParameter::set("dynamic", "Y");
    check_all();
    arm();
    fs::remove_file(program).expect("remove the program");
}
