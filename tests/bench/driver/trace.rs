//! System calls of a program, counted by strace.

use std::env;
use std::error::Error;
use std::fs;
use std::ops::Add;
use std::path::{Path, PathBuf};
use std::process::{self, Child, Stdio};
use std::thread;
use std::time::Duration;

use crate::run::{self, Program};

/// Numbers of system calls of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Counts {
    /// Calls of all threads from the execve to the end.
    pub(crate) all: u32,
    /// Calls after the one that opens rdma_cm for the first time.
    pub(crate) after_open: u32,
    /// Writes and ioctls on rdma_cm and uverbs.
    pub(crate) commands: u32,
    /// Calls that map memory of uverbs, and calls that unmap it.
    pub(crate) mappings: u32,
    pub(crate) unmappings: u32,
    /// Reads of the time. They need a system call only if the kernel's clock cannot be read without one.
    pub(crate) time: u32,
}

impl Counts {
    /// Returns the number of all calls except reads of the time.
    pub(crate) fn but_time(self) -> u32 {
        self.all - self.time
    }
}

impl Add for Counts {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            all: self.all + other.all,
            after_open: self.after_open + other.after_open,
            commands: self.commands + other.commands,
            mappings: self.mappings + other.mappings,
            unmappings: self.unmappings + other.unmappings,
            time: self.time + other.time,
        }
    }
}

/// Runs the program to its end under strace.
pub(crate) fn run(program: &Program) -> Result<Counts, Box<dyn Error>> {
    let file = file(process::id());
    let strace = strace(&file).arg(program.path()).args(program.arguments());
    run::output(&strace)?;
    take(&file)
}

/// Runs a program that uses the connection manager, and returns its counts.
pub(crate) fn count(program: &Program) -> Result<Counts, Box<dyn Error>> {
    let counts = run(program)?;
    if counts.after_open == 0 {
        return Err(format!("{program} did not open rdma_cm:\n{counts:?}").into());
    }
    Ok(counts)
}

/// An strace that is attached to a running program.
pub(crate) struct Tracer {
    strace: Child,
    file: PathBuf,
}

impl Tracer {
    /// Attaches to the process, and traces its calls from now on.
    pub(crate) fn attach(process: u32) -> Result<Self, Box<dyn Error>> {
        let file = file(process);
        let strace = strace(&file).args(["-p", &process.to_string()]);
        let child = strace.command().stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
        let mut tracer = Self { strace: child, file };
        let status = format!("/proc/{process}/status");
        while fs::read_to_string(&status)?.contains("TracerPid:\t0\n") {
            if let Some(status) = tracer.strace.try_wait()? {
                return Err(format!("{strace}: {status}").into());
            }
            thread::sleep(Duration::from_millis(2));
        }
        Ok(tracer)
    }

    /// Waits for the end of the process.
    pub(crate) fn finish(mut self) -> Result<Counts, Box<dyn Error>> {
        self.strace.wait()?;
        take(&self.file)
    }
}

fn strace(file: &Path) -> Program {
    Program::new("strace").args(["-f", "-y", "-o"]).arg(file)
}

/// Returns the file of the trace that a process takes, or of the process that is traced.
fn file(process: u32) -> PathBuf {
    env::temp_dir().join(format!("bench-trace-{process}"))
}

fn take(file: &Path) -> Result<Counts, Box<dyn Error>> {
    let trace = fs::read(file)?;
    fs::remove_file(file)?;
    Ok(read(&String::from_utf8_lossy(&trace)))
}

/// Reads the output of `strace -f -y`.
///
/// A line has the number of a thread, and a call, the end of a call that another thread interrupted, a signal or an
/// exit.
fn read(trace: &str) -> Counts {
    let mut counts = Counts::default();
    let mut opened = false;
    let mut mapped = Mapped::default();
    for line in trace.lines() {
        let call = line.trim_start_matches(|character: char| character.is_ascii_digit());
        let thread = line.strip_suffix(call).unwrap_or_default();
        mapped.resumed(thread, call);
        let Some((name, arguments)) = call.trim_start().split_once('(') else { continue };
        if name.is_empty() || !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
        {
            continue;
        }
        counts.all += 1;
        counts.after_open += u32::from(opened);
        opened |= name == "openat" && arguments.contains("\"/dev/infiniband/rdma_cm\"");
        let file = arguments.split_once('<').map_or("", |(_, file)| file);
        let to_device = ["rdma_cm>", "uverbs"].iter().any(|device| {
            file.strip_prefix("/dev/infiniband/").is_some_and(|file| file.starts_with(device))
        });
        counts.commands += u32::from(to_device && matches!(name, "write" | "ioctl"));
        if to_device && name == "mmap" {
            counts.mappings += 1;
            mapped.map(thread, arguments);
        }
        counts.unmappings += u32::from(name == "munmap" && mapped.unmap(arguments));
        counts.time += u32::from(matches!(name, "clock_gettime" | "gettimeofday"));
    }
    counts
}

/// The mappings of uverbs.
#[derive(Default)]
struct Mapped<'a> {
    addresses: Vec<u64>,
    /// Threads whose call to make a mapping is in progress.
    waiting: Vec<&'a str>,
}

impl<'a> Mapped<'a> {
    /// Records a mapping that a thread makes by a call with these `arguments`.
    fn map(&mut self, thread: &'a str, arguments: &str) {
        match result(arguments) {
            Some(address) => self.addresses.push(address),
            None => self.waiting.push(thread),
        }
    }

    /// Records the end of a `call` that another thread's line interrupted.
    fn resumed(&mut self, thread: &str, call: &str) {
        let is_mmap = call.trim_start().starts_with("<... mmap resumed>");
        let place = self.waiting.iter().position(|waiting| is_mmap && *waiting == thread);
        if let Some(place) = place {
            self.waiting.remove(place);
            self.addresses.extend(result(call));
        }
    }

    /// Returns `true` if a call with these `arguments` removes such a mapping.
    fn unmap(&mut self, arguments: &str) -> bool {
        let mut words = arguments.split([',', ')', ' ']).filter(|word| !word.is_empty());
        let (start, length) = (words.next().and_then(address), words.next());
        let (Some(start), Some(Ok(length))) = (start, length.map(str::parse::<u64>)) else {
            return false;
        };
        let before = self.addresses.len();
        self.addresses.retain(|address| !(start..start + length).contains(address));
        self.addresses.len() < before
    }
}

/// Returns the address that a call has returned.
fn result(call: &str) -> Option<u64> {
    call.rsplit_once(" = ").and_then(|(_, result)| address(result))
}

fn address(text: &str) -> Option<u64> {
    u64::from_str_radix(text.strip_prefix("0x")?, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE: &str = r#"104   execve("/usr/bin/client", ["client"], 0x7ff /* 9 vars */) = 0
104   openat(AT_FDCWD</tmp>, "/dev/infiniband/rdma_cm", O_RDWR|O_CLOEXEC) = 3</dev/infiniband/rdma_cm>
104   write(3</dev/infiniband/rdma_cm>, "\v\0\0("..., 24 <unfinished ...>
105   ioctl(4</dev/infiniband/uverbs0>, RDMA_VERBS_IOCTL, 0x7ffd8b0) = -1 ENOSPC (No space left)
104   <... write resumed>)              = 24
104   write(1<pipe:[7]>, "</dev/infiniband/rdma_cm>", 25) = 25
104   mmap(NULL, 4096, PROT_READ, MAP_SHARED, 4</dev/infiniband/uverbs0>, 0x1000) = 0x7f9000
104   mmap(0x7f8000, 64, PROT_READ, MAP_SHARED, 4</dev/infiniband/uverbs0>, 0x2000 <unfinished ...>
105   mmap(NULL, 4096, PROT_READ, MAP_PRIVATE|MAP_ANONYMOUS, -1, 0 <unfinished ...>
105   <... mmap resumed>)               = 0x600000
104   <... mmap resumed>)               = 0x7f8000
104   munmap(0x600000, 4096)            = 0
104   munmap(0x7f8000, 4160 <unfinished ...>
105   mmap(NULL, 4096, PROT_READ, MAP_SHARED, 4</dev/infiniband/uverbs0>, 0x3000) = 0x7f8000
104   <... munmap resumed>)             = 0
105   munmap(0x7f8000, 4096)            = 0
105   munmap(0x7f8000, 4096)            = 0
104   openat(AT_FDCWD</tmp>, "/dev/infiniband/rdma_cm", O_RDWR|O_CLOEXEC) = 5</dev/infiniband/rdma_cm>
104   gettimeofday({tv_sec=1795286400, tv_usec=7}, NULL) = 0
105   --- SIGCHLD {si_signo=SIGCHLD, si_code=CLD_EXITED (1)} ---
104   exit_group(0)                     = ?
104   +++ exited with 0 +++
"#;

    #[test]
    fn calls_count_once_and_signals_never() {
        let counts =
            Counts { all: 16, after_open: 14, commands: 2, mappings: 3, unmappings: 2, time: 1 };
        assert_eq!(read(TRACE), counts);
        assert_eq!(counts.but_time(), 15);
        assert_eq!((counts + counts).all, 32);
    }

    #[test]
    fn empty_trace_has_no_calls() {
        assert_eq!(read(""), Counts::default());
    }
}
