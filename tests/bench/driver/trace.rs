//! What a program asks of the kernel, by strace.

use std::env;
use std::error::Error;
use std::fs;
use std::process;

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
}

/// Runs the program to its end under strace.
pub(crate) fn count(program: &Program) -> Result<Counts, Box<dyn Error>> {
    let file = env::temp_dir().join(format!("bench-trace-{}", process::id()));
    let mut strace = Program::new("strace").args(["-f", "-y", "-o"]).arg(&file);
    strace = strace.arg(program.path()).args(program.arguments());
    let trace = run::output(&strace).and_then(|_| Ok(fs::read(&file)?))?;
    fs::remove_file(&file)?;
    let counts = read(&String::from_utf8_lossy(&trace));
    if counts.after_open == 0 {
        return Err(format!("{program} did not open rdma_cm:\n{counts:?}").into());
    }
    Ok(counts)
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
105   --- SIGCHLD {si_signo=SIGCHLD, si_code=CLD_EXITED (1)} ---
104   exit_group(0)                     = ?
104   +++ exited with 0 +++
"#;

    #[test]
    fn calls_are_counted_once_and_signals_never() {
        assert_eq!(read(TRACE), Counts { all: 8, after_open: 6, commands: 2, mappings: 1 });
    }

    #[test]
    fn nothing_is_nothing() {
        assert_eq!(read(""), Counts::default());
    }
}
