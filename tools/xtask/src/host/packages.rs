//! Debian packages that must be installed.

use std::process::Command;
use std::sync::OnceLock;
use std::thread;
use std::time::Duration;

use nix::unistd::geteuid;
use tool_error::{Context, Error, Result};

use crate::host::{self, progress};

/// Checks that the packages are installed.
///
/// Installs missing packages if the user is allowed to; otherwise the error contains the command.
pub(crate) fn require(packages: &[&str]) -> Result<()> {
    let missing = missing(packages)?;
    if missing.is_empty() {
        return Ok(());
    }
    let names = missing.join(" ");
    if !geteuid().is_root() {
        return Err(Error::new(how_to_install(&names)));
    }
    progress(&format!("installing {names}"));
    let install = || {
        let mut command = host::command("apt-get");
        command.args(["install", "--yes", "--no-install-recommends"]);
        command.args(&missing);
        command.env("DEBIAN_FRONTEND", "noninteractive");
        run_when_unlocked(&mut command, &format!("install {names}"))
    };
    // The first attempt fails if the package lists are missing or outdated.
    install().or_else(|first| if update()? { install() } else { Err(first) })
}

/// Returns the message for a user without the permission to install `names`.
fn how_to_install(names: &str) -> String {
    format!(
        "cannot run the task: packages are missing; install them and run this again:\n  \
         sudo apt-get update && sudo apt-get install --no-install-recommends {names}"
    )
}

fn missing<'a>(packages: &[&'a str]) -> Result<Vec<&'a str>> {
    // dpkg-query fails if it does not know one of the names, but its output is complete.
    let answer = host::command("dpkg-query")
        .args(["--show", "--showformat=${Package} ${db:Status-Status}\\n"])
        .args(packages)
        .output()
        .context("list the installed packages with dpkg-query (the test bed needs Debian 12)")?;
    let answer = String::from_utf8_lossy(&answer.stdout).into_owned();
    let installed =
        |package: &&&str| answer.lines().any(|line| line == format!("{package} installed"));
    Ok(packages.iter().filter(|package| !installed(package)).copied().collect())
}

/// Fetches this machine's package lists once, if the user is allowed to.
///
/// Returns `true` if this process fetched them.
pub(crate) fn update() -> Result<bool> {
    static UPDATED: OnceLock<Result<bool>> = OnceLock::new();
    let updated = UPDATED.get_or_init(|| {
        if !geteuid().is_root() {
            return Ok(false);
        }
        progress("fetching the package lists");
        run_when_unlocked(host::command("apt-get").arg("update"), "fetch the package lists")?;
        Ok(true)
    });
    updated.clone()
}

/// Longest wait for another program that holds apt's lock.
///
/// Debian's timers hold the lock for minutes after a first boot.
const LOCK_TIMEOUT: Duration = Duration::from_secs(900);

/// Interval between two attempts to take the lock.
const LOCK_INTERVAL: Duration = Duration::from_secs(5);

/// Runs apt-get, and waits while another program holds its lock.
///
/// apt's own `DPkg::Lock::Timeout` does not cover the lock of the package lists, and prints nothing while it waits.
fn run_when_unlocked(apt: &mut Command, doing: &str) -> Result<()> {
    let attempts = LOCK_TIMEOUT.as_secs() / LOCK_INTERVAL.as_secs();
    while_locked(
        attempts,
        || host::run(apt, doing),
        |holder| {
            progress(&format!("waiting for apt's lock to {doing}: {holder}"));
            thread::sleep(LOCK_INTERVAL);
        },
    )
}

/// Calls `run` up to `attempts` times, and `wait` with apt's message if another program holds the lock.
fn while_locked(
    attempts: u64,
    mut run: impl FnMut() -> Result<()>,
    mut wait: impl FnMut(&str),
) -> Result<()> {
    for _ in 1..attempts {
        match run() {
            Err(error) => match error.to_string().lines().find(|line| is_locked(line)) {
                Some(holder) => wait(holder),
                None => return Err(error),
            },
            Ok(()) => return Ok(()),
        }
    }
    run()
}

/// Returns `true` if this is apt's line about a lock that another program holds.
fn is_locked(line: &str) -> bool {
    line.starts_with("E: Could not get lock ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_package_error_has_command() {
        let text = how_to_install("kmod xz-utils");
        let command =
            "sudo apt-get update && sudo apt-get install --no-install-recommends kmod xz-utils";
        assert_eq!(text.lines().last().map(str::trim), Some(command));
    }

    #[test]
    fn held_lock_is_retried() {
        let held = "cannot x: apt-get ended with 100\nE: Could not get lock /var/lib/dpkg/lock-frontend. It is held by process 7 (apt-get)\n";
        let other = "cannot x: E: Unable to locate package y";
        let run = |results: &[std::result::Result<(), &str>]| {
            let (mut left, mut waits) = (results.iter(), 0);
            let next = || left.next().expect("one more attempt").map_err(Error::new);
            let result = while_locked(3, next, |holder| {
                assert!(holder.contains("held by process 7"), "{holder}");
                waits += 1;
            });
            (result.is_ok(), waits, left.len())
        };
        assert_eq!(run(&[Ok(()), Ok(())]), (true, 0, 1));
        assert_eq!(run(&[Err(held), Err(held), Ok(())]), (true, 2, 0));
        assert_eq!(run(&[Err(held), Err(other), Ok(())]), (false, 1, 1), "another error is final");
        assert_eq!(
            run(&[Err(held), Err(held), Err(held), Ok(())]),
            (false, 2, 1),
            "the attempts are limited"
        );
    }
}
