//! Debian packages that must be installed.

use guest::error::{Context, Error, Result};
use nix::unistd::geteuid;

use crate::archive;
use crate::host::{self, progress};

/// Makes sure that the packages are installed: installs what is missing where that is allowed,
/// otherwise says how.
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
        command.args(["install", "--yes", "--no-install-recommends"]).args(&missing);
        command.env("DEBIAN_FRONTEND", "noninteractive");
        host::run(&mut command, &format!("install {names}"))
    };
    // Package lists that are absent or out of date make the first attempt fail.
    install().or_else(|first| if archive::update()? { install() } else { Err(first) })
}

/// What a user is told who may not install `names`.
fn how_to_install(names: &str) -> String {
    format!(
        "packages are missing; install them and run this again:\n  \
         sudo apt-get update && sudo apt-get install --no-install-recommends {names}"
    )
}

fn missing<'a>(packages: &[&'a str]) -> Result<Vec<&'a str>> {
    // dpkg-query fails where one of the names is not known to it; what it prints is complete all the same.
    let answer = host::command("dpkg-query")
        .args(["--show", "--showformat=${Package} ${db:Status-Status}\\n"])
        .args(packages)
        .output()
        .context("ask dpkg-query for the installed packages (the test bed runs on Debian 12)")?;
    let answer = String::from_utf8_lossy(&answer.stdout).into_owned();
    let installed =
        |package: &&&str| answer.lines().any(|line| line == format!("{package} installed"));
    Ok(packages.iter().filter(|package| !installed(package)).copied().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_is_told_the_exact_command() {
        let text = how_to_install("kmod xz-utils");
        let command =
            "sudo apt-get update && sudo apt-get install --no-install-recommends kmod xz-utils";
        assert_eq!(text.lines().last().map(str::trim), Some(command));
    }
}
