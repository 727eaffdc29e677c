//! One run of two programs, with a failing call in one of them.

use std::env;
use std::error::Error;
use std::fmt;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{self, Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rdmacm::device::{self, ResourceCounts};

use crate::plan::{Fault, Scenario, Side};
use crate::trace;
use crate::verdict::{self, Ended, Verdict};

/// Time limit of a program, some hundred times its usual duration.
const LIMIT: Duration = Duration::from_secs(40);
/// Time limit of a program that cannot detect the end of its peer.
const GRACE: Duration = Duration::from_millis(500);
/// Interval between two checks of a condition.
const LOOK: Duration = Duration::from_millis(3);

/// The call that fails.
#[derive(Debug)]
pub(crate) struct Walk<'a> {
    pub(crate) tools: &'a Path,
    pub(crate) scenario: &'a Scenario,
    pub(crate) side: Side,
    pub(crate) call: &'a str,
    pub(crate) fault: Fault,
    pub(crate) number: u32,
    pub(crate) port: u16,
}

impl fmt::Display for Walk<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { scenario, side, call, fault, number, .. } = self;
        write!(f, "{} {side}, {fault} at {call} {number}", scenario.name)
    }
}

impl Walk<'_> {
    /// Runs the programs, and returns `None` if the counted call did not happen.
    ///
    /// If `nodes` is not empty, only the calls on those nodes count.
    pub(crate) fn run(&self, nodes: &[PathBuf]) -> Result<Option<Verdict>, Box<dyn Error>> {
        let before = objects()?;
        let faulty = (self.call, self.fault, self.number);
        let start = |side| Program::start(self, side, (side == self.side).then_some(faulty), nodes);
        let mut server = start(Side::Server)?;
        let mut client = None;
        if server.waits_for_clients(self.scenario, &before)? {
            let mut first = start(Side::Client)?;
            self.attend(&mut server, &mut first)?;
            client = Some(first);
        }
        let mut others = Vec::new();
        if self.side == Side::Client && server.is_running()? {
            // The server does not count a client that failed: it waits for another one, or ends.
            let mut another = Program::start(self, Side::Client, None, nodes)?;
            self.attend(&mut server, &mut another)?;
            others.push(another.end()?);
        }
        let server = server.end()?;
        let client = client.map(Program::end).transpose()?;
        let (faulty, peer) = match self.side {
            Side::Server => (Some(server), client),
            Side::Client => (client, Some(server)),
        };
        let Some(faulty) = faulty else {
            return Err(format!("{self}: the server did not wait for a client").into());
        };
        others.extend(peer);
        let injected = trace::injected(nodes)?;
        let hit = match self.fault {
            Fault::Errno(_) => injected.is_some(),
            Fault::Kill => faulty.is_killed(),
        };
        if !hit && !faulty.is_overdue {
            // Otherwise the visits of this side would end here, without results for the later calls.
            return match faulty.status.success() {
                true => Ok(None),
                false => {
                    Err(format!("{self}: no call was made to fail, and yet: {faulty:?}").into())
                }
            };
        }
        let mut verdict =
            verdict::of(self.scenario.name, self.call, self.fault, injected.as_ref(), &faulty);
        for other in others.iter().filter(|_| self.scenario.is_connected) {
            verdict =
                verdict.and_then(|fine| verdict::of_peer(self.scenario.name, other).map(|()| fine));
        }
        Ok(Some(verdict.and_then(|fine| left_nothing(&before).map(|()| fine))))
    }

    /// Waits until both programs have ended.
    ///
    /// If neither side can detect the end of the other, the program without an injected fault is not waited for.
    fn attend(&self, server: &mut Program, client: &mut Program) -> Result<(), Box<dyn Error>> {
        let (faulty, peer) = match self.side {
            Side::Server => (server, client),
            Side::Client => (client, server),
        };
        if self.scenario.is_connected {
            // A server may correctly wait for another client.
            let first = if self.side == Side::Client { faulty } else { peer };
            return first.wait(LIMIT);
        }
        faulty.wait(LIMIT)?;
        peer.wait(GRACE)?;
        if peer.is_running()? {
            peer.child.kill()?;
            peer.child.wait()?;
        }
        Ok(())
    }
}

/// A running program.
struct Program {
    child: Child,
    output: File,
    errors: File,
}

impl Program {
    fn start(
        walk: &Walk<'_>,
        side: Side,
        fault: Option<(&str, Fault, u32)>,
        nodes: &[PathBuf],
    ) -> Result<Self, Box<dyn Error>> {
        let (output, errors) = (nameless_file()?, nameless_file()?);
        let mut command = match fault {
            None if !walk.scenario.pauses => Command::new(walk.tools),
            _ => trace::command(walk.tools, fault, nodes),
        };
        command.args(walk.scenario.arguments(side, walk.port));
        // The environment is not inherited, because cargo's LD_LIBRARY_PATH makes the loader search every directory.
        command.env_clear().envs(env::var_os("PATH").map(|path| ("PATH", path)));
        command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(errors.try_clone()?);
        let child = command.spawn().map_err(|error| format!("{command:?}: {error}"))?;
        Ok(Self { child, output, errors })
    }

    /// Waits until the server accepts clients, or has ended.
    fn waits_for_clients(
        &mut self,
        scenario: &Scenario,
        before: &[ResourceCounts],
    ) -> Result<bool, Box<dyn Error>> {
        let deadline = Instant::now() + LIMIT;
        while self.is_running()? && Instant::now() < deadline {
            let is_ready = match scenario.ready {
                Some(text) => text_of(&self.output)?.contains(text),
                None => ids(&objects()?) > ids(before) && self.sleeps(),
            };
            if is_ready {
                return Ok(true);
            }
            thread::sleep(LOOK);
        }
        Ok(false)
    }

    /// Returns `true` if its first thread waits for something.
    fn sleeps(&self) -> bool {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.child.id()));
        stat.is_ok_and(|stat| {
            // The name before the state is in parentheses and may hold anything.
            stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('S'))
        })
    }

    fn is_running(&mut self) -> Result<bool, Box<dyn Error>> {
        Ok(self.child.try_wait()?.is_none())
    }

    /// Waits for the end of the program, at most until the limit.
    fn wait(&mut self, limit: Duration) -> Result<(), Box<dyn Error>> {
        let deadline = Instant::now() + limit;
        while self.is_running()? && Instant::now() < deadline {
            thread::sleep(LOOK);
        }
        Ok(())
    }

    /// Waits for the end of the program, and kills it if it is overdue.
    fn end(mut self) -> Result<Ended, Box<dyn Error>> {
        self.wait(LIMIT)?;
        let is_overdue = self.is_running()?;
        if is_overdue {
            self.child.kill()?;
        }
        let status: ExitStatus = self.child.wait()?;
        Ok(Ended { status, errors: text_of(&self.errors)?, is_overdue })
    }
}

/// Returns a file to write to and to read, which is deleted with its last descriptor.
fn nameless_file() -> io::Result<File> {
    let path = env::temp_dir().join(format!("fault-output-{}", process::id()));
    let file = File::options().read(true).write(true).create_new(true).open(&path)?;
    fs::remove_file(path)?;
    Ok(file)
}

/// Returns the text that was written to the file.
fn text_of(file: &File) -> io::Result<String> {
    let mut bytes = vec![0; usize::try_from(file.metadata()?.len()).map_err(io::Error::other)?];
    file.read_exact_at(&mut bytes, 0)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Returns the object counts of each device.
fn objects() -> Result<Vec<ResourceCounts>, Box<dyn Error>> {
    let devices = device::list()?;
    Ok(devices.iter().map(device::Device::resources).collect::<rdmacm::Result<_>>()?)
}

fn ids(objects: &[ResourceCounts]) -> u64 {
    objects.iter().filter_map(|device| device.count("cm_id")).sum()
}

/// Checks that the devices return to their earlier counts, possibly a little later. The kernel releases some objects
/// asynchronously.
fn left_nothing(before: &[ResourceCounts]) -> Result<(), String> {
    let deadline = Instant::now() + LIMIT;
    loop {
        let now = objects().map_err(|error| error.to_string())?;
        if now == before {
            return Ok(());
        }
        if Instant::now() > deadline {
            return Err(format!("the program leaves {now:?}; before it there were {before:?}"));
        }
        thread::sleep(LOOK);
    }
}
