//! Programs under test. A program that does not end within its limit is killed, and its output is shown.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::{rxe, siw};

/// A running program. It is killed when the value is dropped.
#[derive(Debug)]
pub struct Process {
    child: Child,
    line: String,
    stdout: Vec<String>,
    lines: Receiver<String>,
    stderr: Option<JoinHandle<String>>,
    deadline: Instant,
    may_be_blocked_by_driver: bool,
}

/// A program that has ended, and its output.
#[derive(Debug)]
pub struct Ended {
    /// Exit status of the program.
    pub status: ExitStatus,
    /// The lines of its standard output.
    pub stdout: Vec<String>,
    /// Its standard error.
    pub stderr: String,
}

impl Process {
    /// Starts `command`, which must end within `limit` from now.
    pub fn start(command: &mut Command, limit: Duration) -> Self {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let stdout = BufReader::new(child.stdout.take().expect("a pipe"));
        let mut stderr = child.stderr.take().expect("a pipe");
        let (sender, lines) = mpsc::channel();
        thread::spawn(move || {
            let lines = stdout.split(b'\n').map_while(Result::ok);
            // Sending fails if the process was dropped, which ends the thread.
            lines.map(|line| String::from_utf8_lossy(&line).into()).try_for_each(|l| sender.send(l))
        });
        let stderr = thread::spawn(move || {
            let mut bytes = Vec::new();
            let _ = stderr.read_to_end(&mut bytes);
            String::from_utf8_lossy(&bytes).into()
        });
        let (line, deadline) = (format!("{command:?}"), Instant::now() + limit);
        let (stdout, stderr, may_be_blocked_by_driver) = (Vec::new(), Some(stderr), false);
        Self { child, line, stdout, lines, stderr, deadline, may_be_blocked_by_driver }
    }

    /// Marks a program that may wait forever because of a fault of siw or rxe.
    ///
    /// The program does not end if siw leaves [unread bytes](siw::has_unread_bytes), or if rxe [repeats](rxe::retries_forever) a
    /// message forever. The runner then repeats the test.
    pub fn blockable_by_driver(mut self) -> Self {
        self.may_be_blocked_by_driver = true;
        self
    }

    /// Returns the process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Waits for the next line of standard output; `None` at its end.
    pub fn next_line(&mut self) -> Option<&str> {
        let rest = self.deadline.saturating_duration_since(Instant::now());
        match self.lines.recv_timeout(rest) {
            Ok(line) => self.stdout.push(line),
            Err(RecvTimeoutError::Disconnected) => return None,
            Err(RecvTimeoutError::Timeout) => self.overdue(),
        }
        self.stdout.last().map(String::as_str)
    }

    /// Returns `true` if the program has not ended yet.
    pub fn is_running(&mut self) -> bool {
        self.child.try_wait().expect("ask for the status").is_none()
    }

    /// Kills the program.
    pub fn kill(&mut self) {
        self.child.kill().expect("kill");
    }

    /// Waits until the program ends.
    pub fn finish(mut self) -> Ended {
        while self.next_line().is_some() {}
        while self.is_running() {
            if Instant::now() > self.deadline {
                self.overdue();
            }
            thread::sleep(Duration::from_millis(5));
        }
        let status = self.child.wait().expect("wait");
        let (stdout, stderr) = (std::mem::take(&mut self.stdout), self.stderr());
        Ended { status, stdout, stderr }
    }

    /// Kills the program, and fails the test with its output.
    fn overdue(&mut self) -> ! {
        let why = if !self.may_be_blocked_by_driver {
            ""
        } else if siw::has_unread_bytes() {
            "siw leaves bytes unread: "
        } else if rxe::retries_forever() {
            "rxe repeats a message forever: "
        } else {
            ""
        };
        self.fail(&format!("{why}{} did not end in time", self.line));
    }

    /// Kills the program, and fails the test with `reason` and the output so far.
    pub fn fail(&mut self, reason: &str) -> ! {
        self.kill();
        let stderr = self.stderr();
        let last = self.stdout.iter().rev().take(20).rev();
        let stdout = last.map(|line| format!("{line:.200}\n")).collect::<String>();
        panic!("{reason}; it has printed\n{stdout}{stderr}");
    }

    fn stderr(&mut self) -> String {
        let reader = self.stderr.take().expect("read once");
        reader.join().expect("reader should not panic")
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // The program may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
