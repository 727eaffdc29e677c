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

use guest::plan::{HOST_ROOT_TAG, REPORT_PORT};
use guest::report::{Frame, Reader, Status};
use tool_error::{Context, Error, Result};

use crate::host::progress;
use crate::testbed::cache;
use crate::testbed::console;
use crate::testbed::emulator::{self, CONTROL, TICKING};

/// How long a guest that has reported may take to switch itself off.
const POWER_OFF: Duration = Duration::from_secs(20);

/// How long a guest may take until it is ready: some ten times what it takes on a machine that does nothing else.
const BOOT: Duration = Duration::from_secs(60);

/// How soon a machine that is to run until something is over notices that it is.
const WATCH: Duration = Duration::from_millis(200);

/// How often a guest is started that does not become ready: QEMU before 8.1, once in many boots, runs into a stale breakpoint
/// ([`console::broke_by_itself`]), or never gets past such code.
const BOOTS: u32 = 3;

/// What a kernel gets told. `loglevel=5` shows warnings on the console; `oops=panic` and `panic=-1` end a
/// machine whose kernel is broken; `edd=off` avoids a slow BIOS call.
const KERNEL_ARGUMENTS: &str =
    "console=ttyS0 loglevel=5 oops=panic panic=-1 edd=off mitigations=off";

/// How the error begins of a machine that failed by no fault of its own.
pub(crate) const GUESTS_FAULT: &str = "the guest's kernel broke by no fault of the tests: ";

/// A machine to start.
#[derive(Debug)]
pub(crate) struct Machine {
    pub(crate) vmlinuz: PathBuf,
    pub(crate) initramfs: Vec<u8>,
    pub(crate) memory_mb: u32,
    pub(crate) processors: NonZeroUsize,
    /// `true` if the guest's clock counts its instructions, see [`INSTRUCTION_CLOCK`].
    pub(crate) counts_instructions: bool,
    /// `true` if the guest may read this machine's files.
    pub(crate) host_root: bool,
    /// The wires to another machine.
    pub(crate) wires: Option<Wires>,
    /// The wall-clock limit for everything from start to report.
    pub(crate) limit: Duration,
}

/// One end of two wires: network cards `eth0` and `eth1`, whose frames go from socket to socket.
#[derive(Debug)]
pub(crate) struct Wires {
    /// Where the sockets are: they are named from there, since their names must be short.
    pub(crate) directory: PathBuf,
    /// Which end: 0 or 1.
    pub(crate) end: usize,
}

impl Wires {
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

/// Hears what a guest reports.
pub(crate) trait Listener {
    /// Takes a frame; an error ends the machine.
    fn hear(&mut self, frame: Frame) -> io::Result<()>;

    /// When the guest has to be ended; `None` stands for the machine's own limit.
    fn deadline(&self) -> Option<Deadline> {
        None
    }
}

/// A time at which a guest is ended, and what was too slow then.
#[derive(Debug)]
pub(crate) struct Deadline {
    pub(crate) at: Instant,
    pub(crate) reason: String,
}

impl<F: FnMut(Frame) -> io::Result<()>> Listener for F {
    fn hear(&mut self, frame: Frame) -> io::Result<()> {
        self(frame)
    }
}

/// Notes whether the guest became ready.
struct Boot<'a> {
    listener: &'a mut dyn Listener,
    is_ready: bool,
}

impl Listener for Boot<'_> {
    fn hear(&mut self, frame: Frame) -> io::Result<()> {
        self.is_ready |= matches!(frame, Frame::Ready { .. });
        self.listener.hear(frame)
    }

    fn deadline(&self) -> Option<Deadline> {
        self.listener.deadline()
    }
}

/// How a machine that did its part ended.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// How its command ended.
    pub(crate) status: Status,
    /// What its kernel complained about; empty where all is well.
    pub(crate) complaints: Vec<String>,
}

impl Machine {
    fn takes_turns(&self) -> bool {
        self.counts_instructions && self.processors > NonZeroUsize::MIN
    }

    /// Runs the machine to its end and hands each frame but the last to `listener` as it arrives.
    ///
    /// An error is a failure of the test bed: no command's end was reported. The console is then kept and its
    /// end is part of the error's text.
    pub(crate) fn run(&self, listener: &mut dyn Listener) -> Result<Outcome> {
        for boot in 1..BOOTS {
            let mut boot_listener = Boot { listener, is_ready: false };
            match self.run_once(&mut boot_listener) {
                Err(error) if !boot_listener.is_ready => {
                    let text = error.to_string();
                    let why = text.lines().next().unwrap_or_default();
                    progress(&format!(
                        "boot {boot} of {BOOTS} failed, the next one follows: {why}"
                    ));
                }
                result => return result,
            }
        }
        self.run_once(listener)
    }

    fn run_once(&self, listener: &mut dyn Listener) -> Result<Outcome> {
        let directory = Directory::make()?;
        let result = self.run_in(&directory.path, listener);
        let console = directory.console();
        let (kept, text) = match &result {
            Ok(outcome) if outcome.complaints.is_empty() => return directory.remove().and(result),
            Ok(_) => (directory.keep(), String::new()),
            Err(_) => (directory.keep(), console::excerpt(&console)),
        };
        let fault = if console::broke_by_itself(&console) { GUESTS_FAULT } else { "" };
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

    /// Runs the machine until `over`, and starts it again where it ends before; returns what its program wrote to standard
    /// error and what its kernel complained about.
    pub(crate) fn run_until(&self, over: &AtomicBool) -> Result<Vec<String>> {
        let mut said = Vec::new();
        while !over.load(Ordering::SeqCst) {
            let directory = Directory::make()?;
            let qemu = self.start(&directory.path)?;
            let start = Instant::now();
            let (mut ready, mut errors) = (false, Vec::new());
            while !over.load(Ordering::SeqCst) && (ready || start.elapsed() < BOOT) {
                match next(&qemu.frames, Instant::now() + WATCH)? {
                    Some(Ok(Some(Frame::Ready { .. }))) => ready = true,
                    Some(Ok(Some(Frame::Error(bytes)))) => errors.extend(bytes),
                    Some(Ok(Some(Frame::Failed(reason)))) => errors.extend(reason.into_bytes()),
                    None | Some(Ok(Some(_))) => {}
                    Some(Ok(None) | Err(_)) => break,
                }
            }
            drop(qemu);
            said.extend(String::from_utf8_lossy(&errors).lines().map(str::to_owned));
            // What went wrong while it booted is the emulator's: see `BOOTS`.
            if ready {
                let console = directory.console();
                said.extend(console::complaints(&console).into_iter().map(str::to_owned));
            }
            directory.remove()?;
        }
        Ok(said)
    }

    fn start(&self, directory: &Path) -> Result<Qemu> {
        let initramfs = directory.join(INITRAMFS);
        fs::write(&initramfs, &self.initramfs)
            .with_context(|| format!("write {}", initramfs.display()))?;
        Qemu::start(self, directory, &initramfs)
    }

    fn run_in(&self, directory: &Path, listener: &mut dyn Listener) -> Result<Outcome> {
        let start = Instant::now();
        let mut qemu = self.start(directory)?;
        let emulator = qemu.process.id();
        let on_ready = || {
            // It is in the guest's memory: a run that is killed leaves only logs behind.
            fs::remove_file(directory.join(INITRAMFS)).context("remove the initramfs")?;
            if self.takes_turns() { emulator::take_turns(emulator) } else { Ok(()) }
        };
        let (status, taint) = self.hear(start, &qemu.frames, on_ready, listener)?;
        qemu.power_off()?;
        let console = fs::read(directory.join(CONSOLE)).context("read the guest's console")?;
        let console = String::from_utf8_lossy(&console);
        let mut complaints: Vec<String> =
            console::complaints(&console).into_iter().map(str::to_owned).collect();
        complaints
            .extend(console::tainted(taint).iter().map(|name| format!("kernel taint: {name}")));
        Ok(Outcome { status, complaints })
    }

    /// Hears the report of a machine that began to `start` to its end; returns how the command ended and the kernel's
    /// taint. The end must come within the limit, unless the listener has a deadline of its own.
    fn hear(
        &self,
        start: Instant,
        frames: &Frames,
        on_ready: impl Fn() -> Result<()>,
        listener: &mut dyn Listener,
    ) -> Result<(Status, u64)> {
        let mut is_ready = false;
        loop {
            let deadline = if is_ready { listener.deadline() } else { None };
            let deadline = deadline.unwrap_or_else(|| self.deadline(start, is_ready));
            match next(frames, deadline.at)? {
                Some(Ok(Some(Frame::End { status, taint }))) => return Ok((status, taint)),
                Some(Ok(Some(Frame::Failed(reason)))) => {
                    return Err(Error::new(format!("the guest failed: {reason}")));
                }
                Some(Ok(Some(frame))) => {
                    if matches!(frame, Frame::Ready { .. }) {
                        is_ready = true;
                        on_ready()?;
                    }
                    listener.hear(frame).context("pass the guest's output on")?;
                }
                Some(Ok(None)) => return Err(Error::new("the guest ended without a report")),
                Some(Err(error)) => {
                    return Err(Error::new(format!("the guest's report is damaged: {error}")));
                }
                None => return Err(Error::new(deadline.reason)),
            }
        }
    }

    /// When a machine that began to `start` must be ready, or at its end.
    fn deadline(&self, start: Instant, is_ready: bool) -> Deadline {
        let (limit, doing) = if is_ready {
            (self.limit, "running the program; --timeout gives it longer")
        } else {
            (self.limit.min(BOOT), "not ready")
        };
        let reason = format!("after {} s the guest was still {doing}", limit.as_secs());
        Deadline { at: start + limit, reason }
    }
}

/// Two nanoseconds for each instruction, about what they take; while the guest is idle, time passes as it does here.
/// So the time of what never sleeps says what was executed, in the kernel and out of it, whatever else this machine
/// does and whatever the emulator has translated before; who waits for a timer or a device waits as long as without
/// this. Several processors [take turns](emulator::take_turns), so that what one executes while the other one polls takes
/// twice as long as it would beside it.
const INSTRUCTION_CLOCK: &str = "shift=1,sleep=on";

const INITRAMFS: &str = "initramfs";
const CONSOLE: &str = "console.log";
const QEMU_ERRORS: &str = "qemu.log";

/// The emulator's process; dropped, it is gone.
struct Qemu {
    process: Child,
    frames: Frames,
}

/// What the channel brings; `None` is its end.
type Frames = Receiver<io::Result<Option<Frame>>>;

/// The next thing that the channel brings, or `None` at the deadline.
fn next(frames: &Frames, deadline: Instant) -> Result<Option<io::Result<Option<Frame>>>> {
    match frames.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
        Ok(frame) => Ok(Some(frame)),
        Err(RecvTimeoutError::Timeout) => Ok(None),
        Err(RecvTimeoutError::Disconnected) => Err(Error::new("the reader of the report is gone")),
    }
}

impl Qemu {
    fn start(machine: &Machine, directory: &Path, initramfs: &Path) -> Result<Self> {
        let errors =
            File::create(directory.join(QEMU_ERRORS)).context("make the emulator's log")?;
        let mut command = emulator::command(machine.takes_turns())?;
        // TCG always: a /dev/kvm that is there need not work.
        if machine.counts_instructions {
            command.args(["-accel", "tcg,thread=single", "-icount", INSTRUCTION_CLOCK]);
            if machine.takes_turns() {
                let control = format!("unix:{CONTROL},server=on,wait=off");
                command.args(["-qmp", &control]).args(TICKING).current_dir(directory);
            }
        } else {
            command.args(["-accel", "tcg,thread=multi"]);
        }
        command.args(["-cpu", "max"]);
        command.args(["-smp", &machine.processors.to_string()]);
        command.args(["-m", &machine.memory_mb.to_string()]);
        command.args(["-nodefaults", "-no-user-config", "-no-reboot", "-display", "none"]);
        command.arg("-kernel").arg(&machine.vmlinuz).arg("-initrd").arg(initramfs);
        command.args(["-append", KERNEL_ARGUMENTS]);
        command.arg("-serial").arg(option("file:", &directory.join(CONSOLE)));
        // The report's channel is this process's standard input and output.
        command.args(["-chardev", "stdio,id=report,signal=off", "-device", "virtio-serial-pci"]);
        command.args(["-device", &format!("virtserialport,chardev=report,name={REPORT_PORT}")]);
        if machine.host_root {
            let share = "local,id=root,path=/,security_model=none,readonly=on,multidevs=remap";
            command.args(["-fsdev", share, "-device"]);
            command.arg(format!("virtio-9p-pci,fsdev=root,mount_tag={HOST_ROOT_TAG}"));
        }
        if let Some(wires) = &machine.wires {
            command.args(wires.arguments()).current_dir(&wires.directory);
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(errors);
        let mut process = command.spawn().context("start setpriv and the emulator")?;
        let frames = read_frames(process.stdout.take().expect("standard output is a pipe"));
        Ok(Self { process, frames })
    }

    /// Tells the guest that its report has arrived and waits until the machine is off.
    fn power_off(&mut self) -> Result<()> {
        let mut channel = self.process.stdin.take().expect("standard input is a pipe");
        channel.write_all(&[0]).context("acknowledge the report")?;
        match next(&self.frames, Instant::now() + POWER_OFF)? {
            Some(Ok(None)) => Ok(()),
            Some(Ok(Some(_))) => Err(Error::new("the guest went on after its last report")),
            Some(Err(error)) => Err(Error::new(format!("the guest's report is damaged: {error}"))),
            None => Err(Error::new("the guest reported but did not switch itself off")),
        }
    }
}

impl Drop for Qemu {
    fn drop(&mut self) {
        // It may have ended already; then there is nothing to kill and its status is of no interest.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Reads frames until the channel ends, which is the last thing sent.
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
        fs::create_dir_all(&path).with_context(|| format!("make {}", path.display()))?;
        Ok(Self { path })
    }

    /// The console as far as it came, with what the emulator itself said.
    fn console(&self) -> String {
        let read = |name| fs::read(self.path.join(name)).unwrap_or_default();
        let text = [read(CONSOLE), read(QEMU_ERRORS)].concat();
        String::from_utf8_lossy(&text).into_owned()
    }

    pub(crate) fn remove(&self) -> Result<()> {
        fs::remove_dir_all(&self.path).with_context(|| format!("remove {}", self.path.display()))
    }

    /// Keeps the logs only; returns the console's path.
    fn keep(&self) -> PathBuf {
        // Where the initramfs cannot be removed, it is only in the way.
        let _ = fs::remove_file(self.path.join(INITRAMFS));
        self.path.join(CONSOLE)
    }
}

/// An option's value that ends in a path; the emulator reads a doubled comma as one.
fn option(prefix: &str, path: &Path) -> String {
    format!("{prefix}{}", path.display().to_string().replace(',', ",,"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is heard of a machine that reports `frames` and then is silent, until its time is over.
    fn heard(frames: Vec<io::Result<Option<Frame>>>) -> Result<(Status, u64)> {
        let machine = Machine {
            vmlinuz: PathBuf::new(),
            initramfs: Vec::new(),
            memory_mb: 0,
            processors: NonZeroUsize::MIN,
            counts_instructions: false,
            host_root: false,
            wires: None,
            limit: Duration::ZERO,
        };
        let (sender, receiver) = mpsc::channel();
        for frame in frames {
            sender.send(frame).expect("it is received");
        }
        machine.hear(Instant::now(), &receiver, || Ok(()), &mut |_| Ok(()))
    }

    fn ready() -> io::Result<Option<Frame>> {
        Ok(Some(Frame::Ready { kernel: "6.12.1".to_owned() }))
    }

    #[test]
    fn a_report_ends_with_how_the_command_ended() {
        let end = Ok(Some(Frame::End { status: Status::Exited(3), taint: 8 }));
        let output = Ok(Some(Frame::Output(b"test result: ok. 1 passed".to_vec())));
        assert_eq!(heard(vec![ready(), output, end]), Ok((Status::Exited(3), 8)));
    }

    #[test]
    fn a_report_without_that_end_is_a_failure() {
        let output = || Ok(Some(Frame::Output(b"test result: ok. 1 passed".to_vec())));
        let failed = Ok(Some(Frame::Failed("no devices".to_owned())));
        let damaged = Err(io::Error::other("a frame is missing"));
        for (frames, said) in [
            (vec![ready(), output(), Ok(None)], "the guest ended without a report"),
            (vec![ready(), failed], "the guest failed: no devices"),
            (vec![ready(), output(), damaged], "the guest's report is damaged: a frame is missing"),
            (
                vec![ready(), output()],
                "after 0 s the guest was still running the program; --timeout gives it longer",
            ),
            (vec![], "after 0 s the guest was still not ready"),
        ] {
            assert_eq!(heard(frames), Err(Error::new(said)));
        }
    }
}
