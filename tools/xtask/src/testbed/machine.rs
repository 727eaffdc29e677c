//! A virtual machine: one boot of a guest, from start to power-off.

use std::fs::{self, File};
use std::io::{self, Write};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::process::{self, Child, ChildStdout, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use guest::plan::{HOST_ROOT_TAG, PROGRAMS_TAG, REPORT_PORT};
use guest::report::{Frame, Reader, Status};
use tool_error::{Context, Error, Result};

use crate::host::progress;
use crate::testbed::architecture::Architecture;
use crate::testbed::cache;
use crate::testbed::console;
use crate::testbed::emulator::{self, CONTROL, TICK_SOURCE};

/// Time limit from a guest's report until it is powered off.
const POWER_OFF_LIMIT: Duration = Duration::from_secs(20);

/// Time limit until a guest is ready: about ten times the duration on an idle machine.
const BOOT_LIMIT: Duration = Duration::from_secs(60);

/// Interval at which [`Machine::run_until`] checks its flag.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// Number of boot attempts.
///
/// QEMU before 8.1 rarely hits a stale breakpoint ([`console::is_unrelated_failure`]), or hangs at such code.
const MAX_BOOTS: u32 = 3;

/// Arguments of a guest's kernel.
///
/// `loglevel=5` shows warnings on the console; `oops=panic` and `panic=-1` end a machine whose kernel failed; `edd=off`
/// avoids a slow BIOS call.
const KERNEL_ARGUMENTS: &str = "loglevel=5 oops=panic panic=-1 edd=off mitigations=off";

/// Prefix of the error if a kernel failed for a reason unrelated to the tests.
const GUEST_FAILURE: &str = "the guest's kernel failed for a reason unrelated to the tests: ";

/// Returns `true` if the kernel failed for a reason unrelated to the tests.
pub(crate) fn is_guest_failure(error: &Error) -> bool {
    error.to_string().starts_with(GUEST_FAILURE)
}

/// The configuration of a machine.
#[derive(Debug)]
pub(crate) struct Machine {
    pub(crate) architecture: Architecture,
    pub(crate) vmlinuz: PathBuf,
    pub(crate) initramfs: Vec<u8>,
    pub(crate) memory_mb: u32,
    pub(crate) processors: NonZeroUsize,
    /// `true` if the guest's clock counts its instructions, see [`INSTRUCTION_CLOCK`].
    pub(crate) counts_instructions: bool,
    /// `true` if the guest may read this machine's files.
    pub(crate) host_root: bool,
    /// A directory of this machine with programs of the guest's architecture.
    pub(crate) programs: Option<PathBuf>,
    /// Network links to another machine.
    pub(crate) link_end: Option<LinkEnd>,
    /// Limit of wall-clock time from start to report.
    pub(crate) limit: Duration,
}

/// One end of two network links.
///
/// The links are the network cards `eth0` and `eth1`, whose frames are sent through sockets.
#[derive(Debug)]
pub(crate) struct LinkEnd {
    /// Directory of the sockets: their paths must be short, so they are relative to it.
    pub(crate) directory: PathBuf,
    /// Index of the end: 0 or 1.
    pub(crate) end: usize,
}

impl LinkEnd {
    const COUNT: usize = 2;

    fn arguments(&self) -> Vec<String> {
        let socket = |end: usize, wire: usize| format!("end{end}.wire{wire}");
        let (ours, theirs) = (self.end, 1 - self.end);
        let card = |wire| {
            let [local, remote] = [socket(ours, wire), socket(theirs, wire)];
            let wired = format!(
                "dgram,id=wire{wire},local.type=unix,local.path={local},remote.type=unix,remote.path={remote}"
            );
            let card = format!("virtio-net-pci,netdev=wire{wire},mac=52:54:00:00:0{ours}:0{wire}");
            ["-netdev".to_owned(), wired, "-device".to_owned(), card]
        };
        (0..Self::COUNT).flat_map(card).collect()
    }
}

/// A handler of a guest's reports.
pub(crate) trait FrameListener {
    /// Handles a frame; an error ends the machine.
    fn handle_frame(&mut self, frame: Frame) -> io::Result<()>;

    /// Returns the deadline of the guest; `None` stands for the machine's own limit.
    fn deadline(&self) -> Option<Deadline> {
        None
    }
}

/// A time at which a guest is ended, with the reason.
#[derive(Debug)]
pub(crate) struct Deadline {
    pub(crate) at: Instant,
    pub(crate) reason: String,
}

impl<F: FnMut(Frame) -> io::Result<()>> FrameListener for F {
    fn handle_frame(&mut self, frame: Frame) -> io::Result<()> {
        self(frame)
    }
}

/// Records whether the guest became ready, and forwards its frames.
struct BootListener<'a> {
    listener: &'a mut dyn FrameListener,
    is_ready: bool,
}

impl FrameListener for BootListener<'_> {
    fn handle_frame(&mut self, frame: Frame) -> io::Result<()> {
        self.is_ready |= matches!(frame, Frame::Ready { .. });
        self.listener.handle_frame(frame)
    }

    fn deadline(&self) -> Option<Deadline> {
        self.listener.deadline()
    }
}

/// The result of a machine whose report is complete.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// The exit status of its command.
    pub(crate) status: Status,
    /// The complaints of its kernel; empty if there are none.
    pub(crate) complaints: Vec<String>,
    /// A warning of its kernel that no program caused, and that is not a complaint.
    pub(crate) known_warning: Option<String>,
}

impl Machine {
    fn takes_turns(&self) -> bool {
        self.counts_instructions && self.processors > NonZeroUsize::MIN
    }

    /// Runs the machine to its end and passes each frame except the last to `listener` as it arrives.
    ///
    /// # Errors
    ///
    /// Returns an error if the test bed failed: the end of a command was not reported. The console is then kept, and
    /// its end is part of the error's text.
    pub(crate) fn run(&self, listener: &mut dyn FrameListener) -> Result<Outcome> {
        for boot in 1..MAX_BOOTS {
            let mut boot_listener = BootListener { listener, is_ready: false };
            match self.run_once(&mut boot_listener) {
                Err(error) if !boot_listener.is_ready => {
                    let text = error.to_string();
                    let why = text.lines().next().unwrap_or_default();
                    progress(&format!(
                        "boot {boot} of {MAX_BOOTS} failed, the next one follows: {why}"
                    ));
                }
                result => return result,
            }
        }
        self.run_once(listener)
    }

    fn run_once(&self, listener: &mut dyn FrameListener) -> Result<Outcome> {
        let directory = Directory::make()?;
        let result = self.run_in(&directory.path, listener);
        let console = directory.console();
        let (kept, text) = match &result {
            Ok(outcome) if outcome.complaints.is_empty() => return directory.remove().and(result),
            Ok(_) => (directory.keep(), String::new()),
            Err(_) => (directory.keep(), console::excerpt(&console)),
        };
        let fault = if console::is_unrelated_failure(&console) { GUEST_FAILURE } else { "" };
        result
            .map_err(|error| {
                Error::new(format!(
                    "{fault}{error}\n{text}\nThe guest's console: {}",
                    kept.display()
                ))
            })
            .map(|mut outcome| {
                outcome.complaints.push(format!("the guest's console: {}", kept.display()));
                outcome
            })
    }

    /// Runs the machine until `over` is set, and restarts it if it ends before.
    ///
    /// Returns the program's standard error and the complaints of its kernel.
    pub(crate) fn run_until(&self, over: &AtomicBool) -> Result<Vec<String>> {
        let mut lines = Vec::new();
        while !over.load(Ordering::SeqCst) {
            let directory = Directory::make()?;
            let qemu = self.start(&directory.path)?;
            let start = Instant::now();
            let (mut ready, mut errors) = (false, Vec::new());
            while !over.load(Ordering::SeqCst) && (ready || start.elapsed() < BOOT_LIMIT) {
                match next(&qemu.frames, Instant::now() + POLL_INTERVAL)? {
                    Some(Ok(Some(Frame::Ready { .. }))) => ready = true,
                    Some(Ok(Some(Frame::Error(bytes)))) => errors.extend(bytes),
                    Some(Ok(Some(Frame::Failed(reason)))) => errors.extend(reason.into_bytes()),
                    None | Some(Ok(Some(_))) => {}
                    Some(Ok(None) | Err(_)) => break,
                }
            }
            drop(qemu);
            lines.extend(String::from_utf8_lossy(&errors).lines().map(str::to_owned));
            // Failures during boot are caused by the emulator: see `MAX_BOOTS`.
            if ready {
                let console = directory.console();
                lines.extend(console::complaints(&console).into_iter().map(str::to_owned));
            }
            directory.remove()?;
        }
        Ok(lines)
    }

    fn start(&self, directory: &Path) -> Result<Qemu> {
        let initramfs = directory.join(INITRAMFS);
        fs::write(&initramfs, &self.initramfs)
            .with_context(|| format!("write {}", initramfs.display()))?;
        Qemu::start(self, directory, &initramfs)
    }

    fn run_in(&self, directory: &Path, listener: &mut dyn FrameListener) -> Result<Outcome> {
        let start = Instant::now();
        let mut qemu = self.start(directory)?;
        let emulator = qemu.process.id();
        let on_ready = || {
            // The initramfs is already in the guest's memory: a run that is killed leaves only logs behind.
            fs::remove_file(directory.join(INITRAMFS)).context("remove the initramfs")?;
            if self.takes_turns() { emulator::take_turns(emulator) } else { Ok(()) }
        };
        let (status, taint) = self.receive_report(start, &qemu.frames, on_ready, listener)?;
        qemu.power_off()?;
        let console = fs::read(directory.join(CONSOLE)).context("read the guest's console")?;
        let console = String::from_utf8_lossy(&console);
        let mut complaints: Vec<String> =
            console::complaints(&console).into_iter().map(str::to_owned).collect();
        complaints
            .extend(console::tainted(taint).iter().map(|name| format!("kernel taint: {name}")));
        let known_warning = console::is_known_warning(&complaints)
            .then(|| std::mem::take(&mut complaints).join("; "));
        if let Some(warning) = &known_warning {
            progress(&format!("the kernel gave a known warning: {warning}"));
        }
        Ok(Outcome { status, complaints, known_warning })
    }

    /// Receives the report of a machine that was started at `start` until its end.
    ///
    /// Returns the exit status of the command and the kernel's taint.
    ///
    /// The end must arrive within the limit, unless the listener has a deadline of its own.
    fn receive_report(
        &self,
        start: Instant,
        frames: &Frames,
        on_ready: impl Fn() -> Result<()>,
        listener: &mut dyn FrameListener,
    ) -> Result<(Status, u64)> {
        let mut is_ready = false;
        loop {
            let deadline = if is_ready { listener.deadline() } else { None };
            let deadline = deadline.unwrap_or_else(|| self.deadline(start, is_ready));
            match next(frames, deadline.at)? {
                Some(Ok(Some(Frame::End { status, taint }))) => return Ok((status, taint)),
                Some(Ok(Some(Frame::Failed(reason)))) => {
                    return Err(Error::new(format!("cannot run the guest: {reason}")));
                }
                Some(Ok(Some(frame))) => {
                    if matches!(frame, Frame::Ready { .. }) {
                        is_ready = true;
                        on_ready()?;
                    }
                    listener.handle_frame(frame).context("pass the guest's output on")?;
                }
                Some(Ok(None)) => {
                    return Err(Error::new("cannot run the guest: no report was received"));
                }
                Some(Err(error)) => {
                    return Err(Error::new(format!("cannot read the guest's report: {error}")));
                }
                None => return Err(Error::new(deadline.reason)),
            }
        }
    }

    /// Returns the deadline for readiness, or for the end of the report.
    ///
    /// The machine was started at `start`.
    fn deadline(&self, start: Instant, is_ready: bool) -> Deadline {
        let (limit, doing) = if is_ready {
            (self.limit, "running the program; raise the limit with --timeout")
        } else {
            (self.limit.min(BOOT_LIMIT), "not ready")
        };
        let reason = format!("after {} s the guest was still {doing}", limit.as_secs());
        Deadline { at: start + limit, reason }
    }
}

/// Settings of a clock with two nanoseconds per instruction, about the real duration.
///
/// While the guest is idle, time passes as on the host.
///
/// The duration of code that never sleeps is therefore the number of its instructions, in the kernel and in the
/// program. It does not depend on the load of this machine or on QEMU's translation cache. A wait for a timer or a device
/// takes as long as without this clock. Several processors [take turns](emulator::take_turns), so that code which runs
/// while another processor polls takes twice as long as in parallel.
const INSTRUCTION_CLOCK: &str = "shift=1,sleep=on";

const INITRAMFS: &str = "initramfs";
const CONSOLE: &str = "console.log";
const QEMU_ERRORS: &str = "qemu.log";

/// The emulator's process, which is killed on drop.
struct Qemu {
    process: Child,
    frames: Frames,
}

/// Receiver of the frames; `None` is the end of the channel.
type Frames = Receiver<io::Result<Option<Frame>>>;

/// Returns the next item of the channel, or `None` at the deadline.
fn next(frames: &Frames, deadline: Instant) -> Result<Option<io::Result<Option<Frame>>>> {
    match frames.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
        Ok(frame) => Ok(Some(frame)),
        Err(RecvTimeoutError::Timeout) => Ok(None),
        Err(RecvTimeoutError::Disconnected) => {
            Err(Error::new("cannot read the guest's report: the reader thread ended"))
        }
    }
}

impl Qemu {
    fn start(machine: &Machine, directory: &Path, initramfs: &Path) -> Result<Self> {
        let errors =
            File::create(directory.join(QEMU_ERRORS)).context("create the emulator's log")?;
        let mut command = emulator::command(machine.architecture, machine.takes_turns())?;
        // The machine always uses TCG, because an existing /dev/kvm may not work.
        if machine.counts_instructions {
            command.args(["-accel", "tcg,thread=single", "-icount", INSTRUCTION_CLOCK]);
            if machine.takes_turns() {
                let control = format!("unix:{CONTROL},server=on,wait=off");
                command.args(["-qmp", &control]).args(TICK_SOURCE).current_dir(directory);
            }
        } else {
            command.args(["-accel", "tcg,thread=multi"]);
        }
        command.args(machine.architecture.machine());
        command.args(["-smp", &machine.processors.to_string()]);
        command.args(["-m", &machine.memory_mb.to_string()]);
        command.args(["-nodefaults", "-no-user-config", "-no-reboot", "-display", "none"]);
        command.arg("-kernel").arg(&machine.vmlinuz).arg("-initrd").arg(initramfs);
        let console = machine.architecture.console();
        command.arg("-append").arg(format!("console={console} {KERNEL_ARGUMENTS}"));
        command.arg("-serial").arg(option("file:", &directory.join(CONSOLE)));
        // The report's channel is this process's standard input and output.
        command.args(["-chardev", "stdio,id=report,signal=off", "-device", "virtio-serial-pci"]);
        command.args(["-device", &format!("virtserialport,chardev=report,name={REPORT_PORT}")]);
        let root = machine.host_root.then_some((HOST_ROOT_TAG, Path::new("/")));
        let programs = machine.programs.as_deref().map(|programs| (PROGRAMS_TAG, programs));
        for (tag, path) in root.into_iter().chain(programs) {
            let share = format!("local,id={tag},security_model=none,readonly=on,multidevs=remap");
            command.arg("-fsdev").arg(option(&format!("{share},path="), path));
            command.args(["-device", &format!("virtio-9p-pci,fsdev={tag},mount_tag={tag}")]);
        }
        if let Some(link_end) = &machine.link_end {
            command.args(link_end.arguments()).current_dir(&link_end.directory);
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(errors);
        let mut process = command.spawn().context("start setpriv and the emulator")?;
        let frames = read_frames(process.stdout.take().expect("standard output should be a pipe"));
        Ok(Self { process, frames })
    }

    /// Acknowledges the report and waits until the machine is off.
    fn power_off(&mut self) -> Result<()> {
        let mut channel = self.process.stdin.take().expect("standard input should be a pipe");
        channel.write_all(&[0]).context("acknowledge the report")?;
        match next(&self.frames, Instant::now() + POWER_OFF_LIMIT)? {
            Some(Ok(None)) => Ok(()),
            Some(Ok(Some(_))) => Err(Error::new(
                "cannot power off the guest: a frame followed the end of the report",
            )),
            Some(Err(error)) => Err(Error::new(format!("cannot read the guest's report: {error}"))),
            None => {
                Err(Error::new("cannot power off the guest: it is still running after its report"))
            }
        }
    }
}

impl Drop for Qemu {
    fn drop(&mut self) {
        // If the process has already ended, there is nothing to kill, and its status is not needed.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Reads frames in a thread until the channel ends; the end is the last item.
fn read_frames(output: ChildStdout) -> Frames {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        let mut reader = Reader::new(io::BufReader::new(output));
        loop {
            let frame = reader.receive();
            let last = !matches!(frame, Ok(Some(_)));
            if sender.send(frame).is_err() || last {
                return;
            }
        }
    });
    receiver
}

/// The directory of one run.
pub(crate) struct Directory {
    pub(crate) path: PathBuf,
}

impl Directory {
    pub(crate) fn make() -> Result<Self> {
        static RUNS: AtomicU32 = AtomicU32::new(0);
        let run = RUNS.fetch_add(1, Ordering::Relaxed);
        let path = cache::root().join(format!("run/{}-{run}", process::id()));
        fs::create_dir_all(&path).with_context(|| format!("create {}", path.display()))?;
        Ok(Self { path })
    }

    /// Returns the console output so far, and the messages of the emulator itself.
    fn console(&self) -> String {
        let read = |name| fs::read(self.path.join(name)).unwrap_or_default();
        let text = [read(CONSOLE), read(QEMU_ERRORS)].concat();
        String::from_utf8_lossy(&text).into_owned()
    }

    pub(crate) fn remove(&self) -> Result<()> {
        fs::remove_dir_all(&self.path).with_context(|| format!("remove {}", self.path.display()))
    }

    /// Removes all files except the logs. Returns the console's path.
    fn keep(&self) -> PathBuf {
        // If the initramfs cannot be removed, it does no harm.
        let _ = fs::remove_file(self.path.join(INITRAMFS));
        self.path.join(CONSOLE)
    }
}

/// Returns an option whose value ends in a path; the emulator parses a doubled comma as one.
fn option(prefix: &str, path: &Path) -> String {
    format!("{prefix}{}", path.display().to_string().replace(',', ",,"))
}

#[cfg(test)]
mod tests;
