//! Debian packages: those that must be installed, and those that are only downloaded and unpacked.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use guest::error::{Context, Error, Result};
use nix::unistd::geteuid;

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
        return Err(Error::new(format!(
            "packages are missing; install them and run this again:\n  \
             sudo apt-get update && sudo apt-get install --no-install-recommends {names}"
        )));
    }
    progress(&format!("installing {names}"));
    let install = || {
        let mut command = host::command("apt-get");
        command.args(["install", "--yes", "--no-install-recommends"]).args(&missing);
        command.env("DEBIAN_FRONTEND", "noninteractive");
        host::run(&mut command, &format!("install {names}"))
    };
    // Package lists that are absent or out of date make the first attempt fail.
    install().or_else(|first| if update()? { install() } else { Err(first) })
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

/// What the archive says about a package.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) version: String,
    /// The names that the package depends on.
    pub(crate) depends: Vec<String>,
}

impl Record {
    /// The first dependency whose name starts so.
    pub(crate) fn dependency(&self, prefix: &str) -> Option<&str> {
        self.depends.iter().map(String::as_str).find(|name| name.starts_with(prefix))
    }

    fn parse(text: &str) -> Option<Self> {
        let field = |name: &str| {
            let lines = text.lines().take_while(|line| !line.is_empty());
            lines.filter_map(|line| line.split_once(": ")).find(|(key, _)| *key == name)
        };
        let (_, version) = field("Version")?;
        let depends = field("Depends").map_or("", |(_, value)| value);
        let names = depends.split([',', '|']).filter_map(|item| item.split_whitespace().next());
        Some(Self { version: version.to_owned(), depends: names.map(str::to_owned).collect() })
    }
}

/// Looks a package up in the archive's lists.
pub(crate) fn record(package: &str) -> Result<Record> {
    let look = || {
        let mut command = host::command("apt-cache");
        command.args(["show", "--no-all-versions", package]);
        let text = host::output(&mut command, &format!("look up the package {package}"))?;
        let unknown = || Error::new(format!("the package lists do not know {package}"));
        Record::parse(&String::from_utf8_lossy(&text)).ok_or_else(unknown)
    };
    look().or_else(|first| if update()? { look() } else { Err(stale(&first)) })
}

/// Downloads packages, each `NAME` or `NAME=VERSION`, and unpacks them below `root`, without installing.
pub(crate) fn unpack(packages: &[&str], root: &Path) -> Result<()> {
    let names = packages.join(" ");
    progress(&format!("downloading {names}"));
    let place = root.join("download");
    let download = || {
        make_empty(&place)?;
        let mut command = host::command("apt-get");
        // The sandbox's user may not reach the project's directory.
        command.args(["download", "-o", "APT::Sandbox::User=root"]).args(packages);
        host::run(command.current_dir(&place), &format!("download {names}"))
    };
    download().or_else(|first| if update()? { download() } else { Err(stale(&first)) })?;
    for file in files(&place)? {
        let mut command = host::command("dpkg-deb");
        command.arg("--extract").arg(&file).arg(root);
        host::run(&mut command, &format!("unpack {}", file.display()))?;
    }
    remove(&place)
}

/// Fetches the package lists once, where that is allowed. Says whether they are new since the process began.
fn update() -> Result<bool> {
    static UPDATED: OnceLock<Result<bool>> = OnceLock::new();
    let updated = UPDATED.get_or_init(|| {
        if !geteuid().is_root() {
            return Ok(false);
        }
        progress("fetching the package lists");
        host::run(host::command("apt-get").arg("update"), "fetch the package lists")?;
        Ok(true)
    });
    updated.clone()
}

fn stale(error: &Error) -> Error {
    Error::new(format!("{error}\nIf the package lists are old: sudo apt-get update"))
}

fn make_empty(directory: &Path) -> Result<()> {
    if directory.exists() {
        remove(directory)?;
    }
    fs::create_dir_all(directory).with_context(|| format!("make {}", directory.display()))
}

fn remove(directory: &Path) -> Result<()> {
    fs::remove_dir_all(directory).with_context(|| format!("remove {}", directory.display()))
}

fn files(directory: &Path) -> Result<Vec<PathBuf>> {
    let doing = || format!("list {}", directory.display());
    let entries = fs::read_dir(directory).with_context(doing)?;
    entries.map(|entry| entry.map(|entry| entry.path()).with_context(doing)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_has_its_version_and_every_alternative_dependency() {
        let text = "Package: p\nVersion: 6.12.1-1\nDepends: linux-base (>= 4), \
             linux-image-6.12.1-amd64 (= 6.12.1-1) | linux-image-6.12.1-amd64-unsigned, gcc-12\n\n\
             Package: p\nVersion: 1\n";
        let record = Record::parse(text).unwrap();
        assert_eq!(record.version, "6.12.1-1");
        assert_eq!(record.dependency("linux-image-"), Some("linux-image-6.12.1-amd64"));
        assert_eq!(record.dependency("gcc-"), Some("gcc-12"));
        assert_eq!(record.dependency("pahole"), None);
    }

    #[test]
    fn nothing_is_no_record() {
        assert_eq!(Record::parse(""), None);
    }
}
