//! What a program asks of the kernel, by strace.

use std::env;
use std::error::Error;
use std::fs;
use std::ops::Add;
use std::path::{Path, PathBuf};
use std::process::{self, Child, Stdio};
use std::thread;
use std::time::Duration;

use crate::run::{self, Program};

/// How many system calls a run made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Counts {
    /// From the execve to the end, those of all threads.
    pub(crate) all: u32,
    /// Of these, the ones after the one that opens rdma_cm for the first time.
    pub(crate) after_open: u32,
    /// Writes and ioctls on rdma_cm and uverbs.
    pub(crate) commands: u32,
    /// Mappings of uverbs.
    pub(crate) mappings: u32,
    /// Looks at the time, which take a system call only where the kernel's clock does not tell it without.
    pub(crate) time: u32,
}

impl Counts {
    /// All but those that look at the time.
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
            time: self.time + other.time,
        }
    }
}

/// Runs the program to its end under strace.
pub(crate) fn count(program: &Program) -> Result<Counts, Box<dyn Error>> {
    let file = file(process::id());
    let strace = strace(&file).arg(program.path()).args(program.arguments());
    run::output(&strace)?;
    let counts = take(&file)?;
    if counts.after_open == 0 {
        return Err(format!("{program} did not open rdma_cm:\n{counts:?}").into());
    }
    Ok(counts)
}

/// strace of a program that runs already.
pub(crate) struct Tracer {
    strace: Child,
    file: PathBuf,
}

impl Tracer {
    /// Sees what the process asks for from now on.
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

/// Where the trace goes that the process takes, or of the process that it is taken.
fn file(process: u32) -> PathBuf {
    env::temp_dir().join(format!("bench-trace-{process}"))
}

fn take(file: &Path) -> Result<Counts, Box<dyn Error>> {
    let trace = fs::read(file)?;
    fs::remove_file(file)?;
    Ok(read(&String::from_utf8_lossy(&trace)))
}

/// Reads what `strace -f -y` wrote: lines of a thread's number and a call, a call's end that was
/// interrupted by another thread, a signal or an exit.
fn read(trace: &str) -> Counts {
    let mut counts = Counts::default();
    let mut opened = false;
    for line in trace.lines() {
        let call = line.trim_start_matches(|character: char| character.is_ascii_digit());
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
        counts.mappings += u32::from(to_device && name == "mmap");
        counts.time += u32::from(matches!(name, "clock_gettime" | "gettimeofday"));
    }
    counts
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
104   mmap(NULL, 4096, PROT_READ, MAP_SHARED, 4</dev/infiniband/uverbs0>, 0x1000) = 0x7f9
104   openat(AT_FDCWD</tmp>, "/dev/infiniband/rdma_cm", O_RDWR|O_CLOEXEC) = 5</dev/infiniband/rdma_cm>
104   gettimeofday({tv_sec=1795286400, tv_usec=7}, NULL) = 0
105   --- SIGCHLD {si_signo=SIGCHLD, si_code=CLD_EXITED (1)} ---
104   exit_group(0)                     = ?
104   +++ exited with 0 +++
"#;

    #[test]
    fn calls_are_counted_once_and_signals_never() {
        let counts = Counts { all: 9, after_open: 7, commands: 2, mappings: 1, time: 1 };
        assert_eq!(read(TRACE), counts);
        assert_eq!(counts.but_time(), 8);
        assert_eq!((counts + counts).all, 18);
    }

    #[test]
    fn nothing_is_nothing() {
        assert_eq!(read(""), Counts::default());
    }
}
