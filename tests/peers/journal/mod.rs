//! Comparison of the accesses of rdma-core's libmlx5 and of this library to the emulated mlx5 card in one script.
//!
//! The card keeps a journal of commands, entries of queues and doorbells (`tests/kmod/mlx5/journal.c`). The card reads the
//! memory of the program only between two verbs of the script, so both programs cause the same journal, except for the
//! differences that [`comparison`] permits. In some scripts the card runs freely; then only entries and completions are compared.

mod comparison;
mod connection_states;
mod entry;
mod planted;
mod scenario;
mod scripts;

use std::collections::BTreeSet;
use std::env;
use std::fmt::Debug;
use std::fs;
use std::net::Ipv6Addr;
use std::path::{Path, PathBuf};
use std::process::{self, Command};
use std::sync::OnceLock;
use std::time::Duration;

use rdmacm::device::{Device, GidType};
use rdmacm_tests::roce::{CardParameter, bad_requests, card_count};
use rdmacm_tests::{Process, mount_debugfs, promised_device};

use self::entry::Entry;
use self::scenario::{Address, Queues};
use crate::rping::compile;

const LIMIT: Duration = Duration::from_secs(60);
const DEVICE: &str = "mlx5_0";
const JOURNAL: &str = "/sys/kernel/debug/mlx5_card/journal";
const SWEEPS: &str = "/sys/kernel/debug/mlx5_card/sweeps";

/// The lines that a program prints, and the journal.
struct Seen {
    printed: String,
    journal: String,
    entries: Vec<Entry>,
    /// Number of times that the card started entries without their doorbell.
    unrung: u64,
}

/// Returns the program that uses rdma-core, which is compiled once.
fn c_scenario() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| compile("journal/scenario.c"))
}

/// The GID of the device's IPv4 address.
const IPV4: Ipv6Addr = Ipv6Addr::new(0, 0, 0, 0, 0, 0xffff, 0x0a00, 3);
/// The GID of its IPv6 address.
const IPV6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 3);

/// Returns the address of the device with this GID.
fn address(device: &Device, gid: Ipv6Addr) -> Address {
    let mut gids = device.port(1).expect("a port").gids().expect("GIDs");
    let is_it = |entry: &rdmacm::device::GidEntry| {
        Ipv6Addr::from(entry.gid) == gid && entry.gid_type == Some(GidType::RoceV2)
    };
    let entry = gids.find(is_it).expect("the address should be in the table");
    Address { gid, index: u8::try_from(entry.index).expect("the index should fit") }
}

/// Runs `run`, and returns its output and the card's journal.
fn observe(run: impl FnOnce() -> String) -> Seen {
    fs::write(JOURNAL, "1").expect("enable the journal");
    let (bad, unrung) = (bad_requests(), card_count("unrung"));
    let printed = run();
    let unrung = card_count("unrung") - unrung;
    assert_eq!(bad_requests(), bad, "the card should count no faults of the program");
    let journal = fs::read_to_string(JOURNAL).expect("the journal");
    let entries = entry::read(&journal);
    Seen { printed, journal, entries, unrung }
}

fn run_c(address: Address, script: &str) -> String {
    let file = env::temp_dir().join(format!("script-{}", process::id()));
    fs::write(&file, script).expect("store the script");
    let mut command = Command::new(c_scenario());
    command.args([DEVICE, &address.gid.to_string(), &address.index.to_string(), SWEEPS]);
    // Without this variable, the device writes small messages into completions, which this library never requests.
    command.arg(&file).env("MLX5_SCATTER_TO_CQE", "0");
    let ended = Process::start(&mut command, LIMIT).finish();
    assert!(ended.status.success(), "{}", ended.stderr);
    fs::remove_file(&file).expect("remove the script");
    ended.stdout.iter().map(|line| format!("{line}\n")).collect()
}

/// Returns the output and the card's journal of rdma-core with `c`, and of this library with `ours`.
fn observe_both(c: &str, ours: &str) -> [Seen; 2] {
    observe_both_at(IPV4, c, ours, Queues::Plain)
}

/// Observes both libraries like [`observe_both`], over this GID of the device.
///
/// `queues` selects the functions of this library.
fn observe_both_at(gid: Ipv6Addr, c: &str, ours: &str, queues: Queues) -> [Seen; 2] {
    let device = promised_device(DEVICE);
    mount_debugfs();
    let address = address(&device, gid);
    let c = observe(|| run_c(address, c));
    [c, observe(|| scenario::run(&device, address, Path::new(SWEEPS), ours, queues))]
}

/// Runs `script` with both libraries, and compares the journals. Returns the reasons of permitted differences.
#[track_caller]
fn compare(script: &str) -> BTreeSet<&'static str> {
    compare_at(IPV4, script, Queues::Plain)
}

/// Compares both libraries like [`compare`], over this GID of the device.
///
/// `queues` selects the functions of this library.
#[track_caller]
fn compare_at(gid: Ipv6Addr, script: &str, queues: Queues) -> BTreeSet<&'static str> {
    let [c, ours] = observe_both_at(gid, script, script, queues);
    for seen in [&c, &ours] {
        entry::check_copies(&seen.journal);
    }
    let result = comparison::compare(&c.entries, &ours.entries);
    let reasons = result.unwrap_or_else(|difference| panic!("{difference}"));
    let lines = c.printed.lines().zip(ours.printed.lines()).enumerate();
    for (place, (c, ours)) in lines {
        assert_eq!(c, ours, "line {place} of the results");
    }
    assert_eq!(c.printed.len(), ours.printed.len(), "length of the results");
    assert!(c.entries.len() > script.lines().count() / 2, "journal should have entries");
    reasons
}

/// Defines tests of each script for each version of completions, kind of registers, and for kept queues.
macro_rules! scripts {
    ($($name:ident)*) => {
        $(
            #[test]
            #[ignore = "needs the test bed: cargo xtask test"]
            fn $name() {
                compare(&scripts::$name());
            }
        )*

        /// Completions have version 0, as on the first devices: they name queue pairs by number.
        mod version_0 {
            use super::{compare, scripts, with_parameter};

            $(
                #[test]
                #[ignore = "needs the test bed: cargo xtask test"]
                fn $name() {
                    with_parameter("cqe_version", "0", || drop(compare(&scripts::$name())));
                }
            )*
        }

        /// The card has dynamic registers, as newer kernels have for programs that support them.
        mod dynamic_registers {
            use super::{compare, scripts, with_parameter};

            $(
                #[test]
                #[ignore = "needs the test bed: cargo xtask test"]
                fn $name() {
                    with_parameter("dynamic", "Y", || drop(compare(&scripts::$name())));
                }
            )*
        }

        /// A thread keeps the queues locked, and posts by their guards. Completions have both versions.
        mod kept_queues {
            use super::{IPV4, Queues, compare_at, scripts, with_parameter};

            $(
                #[test]
                #[ignore = "needs the test bed: cargo xtask test"]
                fn $name() {
                    let compare = || drop(compare_at(IPV4, &scripts::$name(), Queues::Kept));
                    compare();
                    with_parameter("cqe_version", "0", compare);
                }
            )*
        }
    };
}

scripts! {
    inline_sends
    gathered_sends
    flags_of_sends
    every_send_signaled
    one_sided_operations
    lists_of_requests
    send_ring_wraps
    receive_ring_wraps
    receives_with_fewer_sges
    shared_receives
    datagrams
    unreliable_connection
    completion_events
    several_completions
    shared_registers
    second_generation
    failed_requests
    sizes_of_queues
    resized_queues
    xrc
    rates_of_datagrams
    memory_windows
    failed_binds
    changed_access
    limit_of_shared_receives
    queried_states
    suspended_sends
    multicast
    flow_labels
    wrong_local_keys
    full_send_queue
    shared_receives_after_error
    overrun_completion_queue
    missing_receives
    changed_domain
    refused_queue_pairs
    replaced_memory
    shared_receives_of_other_types
    narrower_arming
    several_contexts
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn permitted_differences_exist() {
    let mut found = compare(&scripts::second_generation());
    found.extend(compare(&scripts::shared_receives()));
    found.extend(compare(&scripts::narrower_arming()));
    assert_eq!(found, comparison::reasons());
}

/// Checks what happens to a message that arrived in a shared receive before its queue pair was reset.
///
/// rdma-core drops the completion and posts the receive again, so the program gets no sign that the memory has changed. This
/// library returns the completion.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn unpolled_shared_receive_survives_reset() {
    let script = scripts::unpolled_shared_receive();
    let [c, ours] = observe_both(&script, &script);
    let received = |seen: &Seen| {
        let is_receive = |line: &&str| line.starts_with("completion id=0 status=0 qp=1");
        seen.printed.lines().filter(is_receive).count()
    };
    assert_eq!((received(&c), received(&ours)), (0, 1), "{}\n{}", c.printed, ours.printed);
}

/// Runs `run` while a parameter of the card's module has this value, and then restores it.
fn with_parameter(name: &str, value: &str, run: impl FnOnce()) {
    let _parameter = CardParameter::set(name, value);
    run();
}

/// Compares the scripts whose requests a `BufferedQueuePair` of this library posts.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn buffered_queue_pairs_match_c() {
    let compare_all = || {
        for script in [
            scripts::buffered_connection(),
            scripts::buffered_lists(),
            scripts::buffered_states(),
            scripts::buffered_datagrams(),
        ] {
            compare(&script);
        }
    };
    compare_all();
    with_parameter("cqe_version", "0", compare_all);
    with_parameter("dynamic", "Y", compare_all);
}

/// Number of doorbells that the card may miss in addition to those that it misses of rdma-core.
///
/// A register of the card is plain memory. If the card's thread does not run for a while, a queue pair may overwrite the doorbell
/// of another one in the same register, which is no fault. In eleven runs, the card missed none of either library.
const UNRUNG_MARGIN: u64 = 5;

/// Runs `script`, in which the card runs freely, with both libraries. Compares the entries of each queue, and the completions
/// of each queue pair. The card must see the doorbells of both libraries.
#[track_caller]
fn compare_free(script: &str, queues: Queues) {
    let [c, ours] = observe_both_at(IPV4, script, script, queues);
    let (unrung, most) = (ours.unrung, c.unrung + UNRUNG_MARGIN);
    assert!(unrung <= most, "card should miss at most {most} doorbells of this library: {unrung}");
    comparison::compare_posted(&c.entries, &ours.entries)
        .unwrap_or_else(|difference| panic!("{difference}"));
    let [c, ours] = [&c, &ours].map(|seen| by_queue_pair(&seen.printed));
    for (c, ours) in c.iter().zip(&ours) {
        assert_eq!(c, ours, "results of a queue pair");
    }
    assert_eq!(c.len(), ours.len(), "number of results");
}

/// Returns the lines of a program, those of completions by the type of completion and by queue pair.
fn by_queue_pair(printed: &str) -> Vec<&str> {
    let mut lines: Vec<_> = printed.lines().collect();
    lines.sort_by_key(|line| {
        let word = |start: &str| line.split(' ').find(|word| word.starts_with(start));
        (word("qp="), line.contains(" flags="))
    });
    lines
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn request_streams_match_c() {
    let compare_all = || {
        compare_free(&scripts::streams_of_requests(), Queues::Plain);
        compare_free(&scripts::streams_of_requests(), Queues::Kept);
    };
    compare_all();
    with_parameter("cqe_version", "0", compare_all);
    with_parameter("dynamic", "Y", compare_all);
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn shared_register_streams_match_c() {
    let compare_both = || {
        compare_free(&scripts::streams_in_shared_registers(), Queues::Plain);
        compare_free(&scripts::streams_in_shared_registers(), Queues::Kept);
    };
    compare_both();
    with_parameter("cqe_version", "0", compare_both);
    with_parameter("dynamic", "Y", || {
        compare_free(&scripts::streams_in_shared_registers(), Queues::Plain);
    });
}

/// Checks that each queue of a free-running script is compared.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn changed_streams_are_noticed() {
    let script = scripts::streams_of_requests();
    for (word, other, field) in [
        ("send send si 64+6", "send send si 64+7", "inline.length"),
        ("receive 4160+63", "receive 4160+62", "data.byte_count"),
        ("add:8256:3", "add:8256:4", "atomic.swap_add"),
        ("send read:8192 sf 1024+9", "send read:8192 s 1024+9", "ctrl.fm_ce_se"),
    ] {
        assert_noticed(&script, [word, other], field, comparison::compare_posted);
    }
}

/// Checks that `compare` fails at `field` if this library runs the script with another word.
fn assert_noticed<T: Debug>(
    script: &str,
    [word, other]: [&str; 2],
    field: &str,
    compare: impl FnOnce(&[Entry], &[Entry]) -> Result<T, String>,
) {
    assert!(script.contains(word), "{word}");
    let [c, ours] = observe_both(script, &script.replacen(word, other, 1));
    let difference = compare(&c.entries, &ours.entries).expect_err(other);
    let first_line = difference.lines().next().expect("a line");
    assert!(first_line.contains(field), "{other}: {difference}");
}

/// Tests of scripts with addresses, over the device's IPv6 address.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn ipv6_addresses_match_c() {
    let compare_all = || {
        for script in [
            scripts::inline_sends(),
            scripts::datagrams(),
            scripts::flow_labels(),
            scripts::rates_of_datagrams(),
            scripts::unreliable_connection(),
            scripts::xrc(),
        ] {
            compare_at(IPV6, &script, Queues::Plain);
        }
    };
    compare_all();
    with_parameter("cqe_version", "0", compare_all);
}

/// Compares the options of connections with completions of version 1.
///
/// With version 0 the card has no options, like the first devices.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn connection_options_match_c() {
    compare(&scripts::options_of_connections());
    with_parameter("dynamic", "Y", || drop(compare(&scripts::options_of_connections())));
}

/// Checks contexts with the properties of older kernels and other devices.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn other_contexts_match_c() {
    for (request, answer) in [("31", "72"), ("24", "56"), ("16", "48")] {
        let compare_both = || {
            compare(&scripts::one_sided_operations());
            with_parameter("cqe_version", "0", || drop(compare(&scripts::one_sided_operations())));
        };
        with_parameter("request_length", request, || {
            with_parameter("answer_length", answer, compare_both);
        });
    }
    let compare_all = || {
        compare(&scripts::one_sided_operations());
        compare(&scripts::shared_registers());
    };
    for (size, has_blueflame) in [("128", true), ("0", false)] {
        with_parameter("register_size", size, || {
            let script = scripts::one_sided_operations();
            for seen in observe_both(&script, &script) {
                let has = seen.entries.iter().any(|entry| entry.has("ring=blueflame"));
                assert_eq!(has, has_blueflame, "registers of {size} bytes");
            }
            compare_all();
            with_parameter("cqe_version", "0", compare_all);
            with_parameter("dynamic", "Y", compare_all);
        });
    }
}

/// Checks environment variables that both libraries read.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn environment_variables_match_c() {
    let compare_all = || {
        compare(&scripts::one_sided_operations());
        compare(&scripts::lists_of_requests());
        compare(&scripts::resized_queues());
        compare(&scripts::shared_registers());
    };
    for (name, value) in [
        ("MLX5_CQE_SIZE", "128"),
        ("MLX5_SHUT_UP_BF", "1"),
        ("MLX5_POST_SEND_PREFER_BF", "0"),
        ("MLX5_TOTAL_UUARS", "40"),
        ("MLX5_NUM_LOW_LAT_UUARS", "9"),
    ] {
        scenario::with_variable(name, value, || {
            compare_all();
            with_parameter("cqe_version", "0", compare_all);
            with_parameter("dynamic", "Y", compare_all);
        });
    }
    // The smallest number is rounded up. All scripts would take minutes with the largest one.
    for registers in ["15", "512"] {
        let compare = || drop(compare(&scripts::shared_registers()));
        scenario::with_variable("MLX5_TOTAL_UUARS", registers, || {
            compare();
            with_parameter("cqe_version", "0", compare);
            with_parameter("dynamic", "Y", compare);
        });
    }
}

/// Checks that two scripts that differ in one word fail at the field that this word determines.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn changed_scripts_are_noticed() {
    let script = scripts::one_sided_operations();
    for (word, other, field) in [
        ("read:8192 s 64+100", "read:8192 s 64+99", "data.byte_count"),
        ("read:8192 s 64+100", "read:8192 s 65+100", "data.addr"),
        ("read:8192 s 64+100", "read:8193 s 64+100", "raddr.addr"),
        ("read:8192 sf 64", "read:8192 s 64", "ctrl.fm_ce_se"),
        ("write:8192 si", "write:8192 s", "ctrl.ds"),
        ("swap:8200:0:7", "swap:8200:1:7", "atomic.compare"),
        ("write_imm:8192:3 sei", "write_imm:8192:4 sei", "ctrl.imm"),
        ("poll 0 8", "poll 0 0", "kind"),
        ("cq 64 -", "cq 63 -", "cqe"),
        ("connect 0 1", "connect 0 0", "dest"),
    ] {
        assert_noticed(&script, [word, other], field, comparison::compare);
    }
}
