//! Starts the programs under test, and has the lines that the two `rping`s must print.

use std::ffi::OsStr;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{self, Command};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;
use std::{env, fs};

use rdmacm::device::{self, ResourceCounts};
use rdmacm_tests::roce::roce_name;
use rdmacm_tests::{Process, promised, promised_device, wait_until};

/// A time limit that suffices for a thousand pings on a loaded machine.
pub(crate) const LIMIT: Duration = Duration::from_secs(120);

/// The time limit of the C compiler in a guest on a loaded machine.
pub(crate) const COMPILER_LIMIT: Duration = Duration::from_secs(400);

/// Maker of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Program {
    /// The applets of rdmatools.
    Ours,
    /// The programs of rdma-core.
    C,
}

impl Program {
    /// Runs `rping` with `arguments`.
    pub(crate) fn start(self, arguments: &[&str]) -> Process {
        self.run("rping", arguments)
    }

    /// Runs the program that both makers call `name`.
    pub(crate) fn run(self, name: &str, arguments: &[&str]) -> Process {
        Process::start(self.command(name).args(arguments), LIMIT).blockable_by_driver()
    }

    /// Returns the program that both makers call `name`, in the promised test bed.
    pub(crate) fn command(self, name: &str) -> Command {
        promised_device(roce_name());
        match self {
            Self::Ours => {
                let path = promised("RDMACM_TEST_RDMATOOLS");
                assert!(Path::new(&path).exists(), "{path} was promised, and is not there");
                let mut command = Command::new(path);
                command.arg(name);
                command
            }
            Self::C => Command::new(name),
        }
    }
}

/// Compiles a program of these tests for rdma-core's library, and returns its file. `source` is relative to this directory.
pub(crate) fn compile(source: &str) -> PathBuf {
    compile_with(source, &[])
}

/// Compiles a C program like [`compile`], and links it with more libraries of rdma-core.
pub(crate) fn compile_with(source: &str, libraries: &[&str]) -> PathBuf {
    let name = Path::new(source).file_stem().and_then(OsStr::to_str).expect("a name");
    let program = env::temp_dir().join(format!("{name}-{}", process::id()));
    let source = format!("{}/peers/{source}", env!("CARGO_MANIFEST_DIR"));
    let mut gcc = Command::new("gcc");
    gcc.args(["-Wall", "-Wextra", "-Werror", &source, "-libverbs"]).args(libraries);
    let compiled = Process::start(gcc.arg("-o").arg(&program), COMPILER_LIMIT).finish();
    assert!(compiled.status.success(), "{}", compiled.stderr);
    program
}

/// Returns a port that no other server has.
pub(crate) fn port() -> String {
    static PORT: AtomicU16 = AtomicU16::new(7200);
    PORT.fetch_add(1, Ordering::Relaxed).to_string()
}

/// Waits until a server listens.
pub(crate) fn listening(mut server: Process) -> Process {
    wait_until("the server listens", || listens(server.id()) || !server.is_running());
    if !server.is_running() {
        panic!("the server ended: {}", server.finish().stderr);
    }
    server
}

/// A server that listens.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) process: Process,
    address: String,
    port: String,
}

impl Server {
    /// Starts a server on `address`, with a port of its own, and waits until it listens.
    pub(crate) fn start(program: Program, address: &str, options: &[&str]) -> Self {
        let port = port();
        let arguments = [&["-s", "-a", address, "-p", &port], options].concat();
        let process = listening(program.start(&arguments));
        Self { process, address: address.into(), port }
    }

    /// Returns the address of the server.
    pub(crate) fn address(&self) -> SocketAddr {
        let ip = self.address.parse().expect("an IP address");
        SocketAddr::new(ip, self.port.parse().expect("a port"))
    }

    /// Returns the objects on the devices, and the server's threads and descriptors.
    pub(crate) fn holds(&self) -> (Vec<ResourceCounts>, usize, usize) {
        let devices = device::list().expect("list the devices");
        let objects = devices.iter().map(|device| device.resources().expect("count the objects"));
        let objects = objects.collect();
        let entries = |name: &str| {
            let directory = fs::read_dir(format!("/proc/{}/{name}", self.process.id()));
            directory.expect("the server should run").count()
        };
        (objects, entries("task"), entries("fd"))
    }
}

/// Returns `true` if process `pid` has an id that listens.
pub(crate) fn listens(pid: u32) -> bool {
    let mut command = Command::new("rdma");
    let listed = Process::start(command.args(["res", "show", "cm_id"]), LIMIT);
    let listed = listed.finish();
    assert!(listed.status.success(), "{}", listed.stderr);
    let owner = format!(" pid {pid} ");
    listed.stdout.iter().any(|id| id.contains(" state LISTEN ") && id.contains(&owner))
}

/// Starts a client of `server`.
pub(crate) fn connect(
    program: Program,
    server: &Server,
    size: usize,
    count: usize,
    options: &[&str],
) -> Process {
    let (size, count) = (size.to_string(), count.to_string());
    let arguments = ["-c", "-a", &server.address, "-p", &server.port, "-S", &size, "-C", &count];
    program.start(&[&arguments, options].concat())
}

/// Returns the line that a program prints for ping `number` of `size` bytes.
pub(crate) fn expected(heading: &str, number: usize, size: usize) -> String {
    let text = format!("{heading}: rdma-ping-{number}: ");
    // The size counts the bytes after the heading and its colon, with a zero byte at the end, which is not printed.
    let length = heading.len() + 2 + size - 1;
    // The letters go from A (65) to z (122). Each ping begins with the next letter.
    let letters = (number..)
        .map(|place| (65..=122_u8).nth(place % 58).expect("the remainder should be below 58"));
    text.chars().chain(letters.map(char::from)).take(length).collect()
}
