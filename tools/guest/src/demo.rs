//! The demonstration: one program is the server and the client, without any other program.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use guest::plan::Device;
use guest::report::{Frame, Status};
use tool_error::{Context, Error, Result};

use crate::channel::Report;

/// Start of the line that each side prints for every ping.
const PING: &str = "ping data: ";
/// Start of the line that the server prints when it listens.
const LISTENS: &str = "listening on ";
/// Time limit until the server listens.
const LISTEN_TIMEOUT: Duration = Duration::from_secs(20);

/// Runs `program` as server and client on the first of `devices` for `pings` pings.
///
/// Returns success if both sides counted all of them.
pub(crate) fn run(
    program: &str,
    devices: &[Device],
    pings: u32,
    report: &Report,
) -> Result<Status> {
    let device = devices.first();
    let device = device.ok_or_else(|| Error::new("cannot run rping: the plan has no device"))?;
    let (name, address) = (device.name(), device.address());
    send_line(
        report,
        "guest",
        "times: seconds since the start of the kernel, and of each program",
    )?;
    send_line(
        report,
        "guest",
        &format!("RDMA device {name} at {address} is up; starting rping as server"),
    )?;
    let server = Side::start("server", program, &["-s", "-a", address, "-v", "-d"], report)?;
    server.wait_until_it_listens()?;
    send_line(report, "guest", "the server is listening; starting rping as client")?;
    let count = pings.to_string();
    let client = ["-c", "-a", address, "-C", &count, "-V", "-v", "-d"];
    let client = Side::start("client", program, &client, report)?.finish()?;
    let server = server.finish()?;
    for (name, side) in [("server", &server), ("client", &client)] {
        send_line(
            report,
            "guest",
            &format!("{name}: {} pings, {}", side.pings, status_text(&side.status)),
        )?;
    }
    let done = |side: &Ended| side.pings == pings && side.status == Status::Exited(0);
    Ok(Status::Exited(i32::from(!(done(&server) && done(&client)))))
}

/// One of the two programs.
struct Side {
    name: &'static str,
    process: Child,
    output: JoinHandle<Result<u32>>,
    errors: JoinHandle<Result<u32>>,
    /// Receives one message when the side listens.
    listening: Receiver<()>,
}

struct Ended {
    status: Status,
    pings: u32,
}

impl Side {
    fn start(name: &'static str, program: &str, options: &[&str], report: &Report) -> Result<Self> {
        let doing = || format!("start the {name}");
        // The program selects its tool by this name.
        let mut command = Command::new(program);
        command.arg0("rping").args(options).stdin(Stdio::null());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut process = command.spawn().with_context(doing)?;
        let output = process.stdout.take().expect("standard output should be a pipe");
        let errors = process.stderr.take().expect("standard error should be a pipe");
        let (listens, listening) = mpsc::channel();
        let errors = relay(name, errors, listens.clone(), report);
        let output = relay(name, output, listens, report);
        Ok(Self { name, process, output, errors, listening })
    }

    fn wait_until_it_listens(&self) -> Result<()> {
        self.listening.recv_timeout(LISTEN_TIMEOUT).map_err(|error| match error {
            RecvTimeoutError::Timeout => {
                Error::new("cannot start the client: the server is not listening")
            }
            RecvTimeoutError::Disconnected => {
                Error::new("cannot start the client: the server ended before it listened")
            }
        })
    }

    fn finish(mut self) -> Result<Ended> {
        let status = self.process.wait().with_context(|| format!("wait for the {}", self.name))?;
        let status = match (status.code(), status.signal()) {
            (Some(code), _) => Status::Exited(code),
            (None, signal) => Status::Signaled(signal.unwrap_or_default()),
        };
        let mut pings = 0;
        for relay in [self.output, self.errors] {
            pings += relay
                .join()
                .map_err(|_| Error::new("cannot relay the output: the thread panicked"))??;
        }
        Ok(Ended { status, pings })
    }
}

/// Sends the lines that arrive in `pipe` and counts the pings among them.
///
/// Notifies `listens` when the side listens.
fn relay(
    name: &'static str,
    pipe: impl Read + Send + 'static,
    listens: Sender<()>,
    report: &Report,
) -> JoinHandle<Result<u32>> {
    let report = report.clone();
    thread::spawn(move || {
        let mut pings = 0;
        for line in BufReader::new(pipe).split(b'\n') {
            let line = line.with_context(|| format!("read the output of the {name}"))?;
            let line = String::from_utf8_lossy(&line);
            pings += u32::from(line.contains(PING));
            send_line(&report, name, &line)?;
            if line.contains(LISTENS) {
                // The receiver may be dropped: only the server's side is waited for.
                let _ = listens.send(());
            }
        }
        Ok(pings)
    })
}

/// Sends a line with its source and the time in seconds since the kernel started.
///
/// Lines are sent in the order of their times.
fn send_line(report: &Report, source: &str, text: &str) -> Result<()> {
    static SEND_LOCK: Mutex<()> = Mutex::new(());
    let _guard = SEND_LOCK.lock().unwrap_or_else(PoisonError::into_inner);
    let uptime = fs::read_to_string("/proc/uptime").context("read the time")?;
    let now = uptime.split(' ').next().unwrap_or_default();
    report.send(&Frame::Output(format!("{now:>7} s  {source:6}  {text}\n").into_bytes()))
}

fn status_text(status: &Status) -> String {
    match status {
        Status::Exited(code) => format!("exit status {code}"),
        Status::Signaled(signal) => format!("killed by signal {signal}"),
        Status::NotStarted(reason) => format!("not started: {reason}"),
    }
}
