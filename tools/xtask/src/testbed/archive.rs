//! Debian's archive: packages that are looked up, downloaded and unpacked, but not installed.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use tool_error::{Context, Error, Result};

use crate::host::packages::update;
use crate::host::{self, progress};
use crate::testbed::architecture::Architecture;
use crate::testbed::cache;

/// The archive's record of a package.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) version: String,
    /// The names of the packages that it depends on.
    pub(crate) depends: Vec<String>,
}

impl Record {
    /// Returns the first dependency whose name starts with `prefix`.
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

/// A source of packages.
#[derive(Debug)]
pub(crate) enum Archive {
    /// The sources of this machine's apt.
    Host,
    /// Another suite of the same archive, for an architecture; the directory contains apt's files for it.
    Suite(PathBuf, Architecture),
}

/// The keys that every Debian system trusts.
const KEYS: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

impl Archive {
    /// Opens suites of Debian, with package lists in the directory `name` of the cache.
    ///
    /// The lists are fetched once, so that packages that are downloaded at different times fit each other.
    pub(crate) fn suites(suites: &[&str], name: &str, architecture: Architecture) -> Result<Self> {
        let fetch = |place: &Path| {
            let source = |suite: &&str| {
                let url = archive_url(suite)?;
                Ok(format!("deb [signed-by={KEYS} target=Packages] {url} {suite} main\n"))
            };
            let sources = suites.iter().map(source).collect::<Result<String>>()?;
            for directory in ["lists/partial", "cache/archives/partial"] {
                let directory = place.join(directory);
                fs::create_dir_all(&directory)
                    .with_context(|| format!("create {}", directory.display()))?;
            }
            fs::write(place.join("sources.list"), sources).context("write a list of sources")?;
            let names = suites.join(" and ");
            progress(&format!("fetching the package lists of {names}"));
            let archive = Self::Suite(place.to_owned(), architecture);
            let doing = format!("fetch the package lists of {names}");
            host::run(archive.apt("apt-get").args(["update", "--error-on=any"]), &doing)
        };
        cache::entry(&format!("{name}/apt"), fetch).map(|place| Self::Suite(place, architecture))
    }

    /// Returns a command of apt with options for the files of this archive.
    fn apt(&self, program: &str) -> Command {
        let mut command = host::command(program);
        // apt's sandbox user may not have access to the project's directory.
        command.args(["-o", "APT::Sandbox::User=root"]);
        if let Self::Suite(place, architecture) = self {
            let place = place.display();
            let mut architectures = vec![*architecture];
            // Programs of this machine build modules for other ones.
            architectures
                .extend((*architecture != Architecture::X86_64).then_some(Architecture::X86_64));
            for architecture in architectures {
                command.arg("-o").arg(format!("APT::Architectures::={}", architecture.debian()));
            }
            for option in [
                format!("APT::Architecture={}", architecture.debian()),
                format!("Dir::Etc::sourcelist={place}/sources.list"),
                "Dir::Etc::sourceparts=/dev/null".to_owned(),
                format!("Dir::State::lists={place}/lists"),
                "Dir::State::status=/dev/null".to_owned(),
                format!("Dir::Cache={place}/cache"),
            ] {
                command.arg("-o").arg(option);
            }
        }
        command
    }

    /// Fetches new package lists before a kernel is chosen from them.
    ///
    /// A kernel's image, headers and source are separate packages that must have one version. With old lists, apt may
    /// choose an image whose source is removed from the archive before a later download renews the lists.
    pub(crate) fn refresh(&self) -> Result<()> {
        match self {
            Self::Host => update().map(drop),
            // The lists of a suite are fetched once for its kernel.
            Self::Suite(..) => Ok(()),
        }
    }

    /// Returns the archive's record of a package.
    pub(crate) fn record(&self, package: &str) -> Result<Record> {
        self.with_renewed_lists(|| {
            let mut command = self.apt("apt-cache");
            command.args(["show", "--no-all-versions", package]);
            let text = host::output(&mut command, &format!("look up the package {package}"));
            let text = text.map_err(|error| match self {
                // The newer kernels are not in every suite.
                Self::Host => Error::new(format!(
                    "{error}; enable main, the updates and the security suite of Debian 12"
                )),
                Self::Suite(..) => error,
            })?;
            let unknown = || Error::new(format!("cannot find {package} in the package lists"));
            Record::parse(&String::from_utf8_lossy(&text)).ok_or_else(unknown)
        })
    }

    /// Returns the newest version of a package that starts with `beginning`.
    pub(crate) fn version(&self, package: &str, beginning: &str) -> Result<String> {
        self.with_renewed_lists(|| {
            let mut command = self.apt("apt-cache");
            let text = host::output(
                command.args(["madison", package]),
                &format!("look up the versions of {package}"),
            )?;
            let text = String::from_utf8_lossy(&text);
            let found = parse_versions(&text).find(|version| version.starts_with(beginning));
            found.map(str::to_owned).ok_or_else(|| {
                Error::new(format!(
                    "cannot find version {beginning} of {package} in the package lists"
                ))
            })
        })
    }

    /// Returns the packages, as `NAME=VERSION`, that apt would install for `packages`.
    ///
    /// Each of `packages` is `NAME` or `NAME=VERSION`.
    ///
    /// A machine of another suite counts as a machine without any package.
    pub(crate) fn closure(&self, packages: &[impl AsRef<OsStr>]) -> Result<Vec<String>> {
        self.with_renewed_lists(|| {
            let mut command = self.apt("apt-get");
            command.args(["--simulate", "--no-install-recommends", "install"]).args(packages);
            let text = host::output(&mut command, "look up the dependencies of packages")?;
            Ok(parse_installed(&String::from_utf8_lossy(&text)))
        })
    }

    /// Downloads packages, each `NAME` or `NAME=VERSION`, and unpacks them into `root`.
    pub(crate) fn unpack(&self, packages: &[&str], root: &Path) -> Result<()> {
        let names = packages.join(" ");
        progress(&format!("downloading {names}"));
        let place = root.join("download");
        self.with_renewed_lists(|| {
            make_empty(&place)?;
            let mut command = self.apt("apt-get");
            command.arg("download").args(packages).current_dir(&place);
            host::run(&mut command, &format!("download {names}"))
        })?;
        for file in host::files(&place)? {
            let mut command = host::command("dpkg-deb");
            command.arg("--extract").arg(&file).arg(root);
            host::run(&mut command, &format!("unpack {}", file.display()))?;
        }
        remove(&place)
    }

    /// Runs `attempt`, and again with new package lists if it fails.
    ///
    /// Missing or outdated lists may be the reason of the failure.
    fn with_renewed_lists<T>(&self, attempt: impl Fn() -> Result<T>) -> Result<T> {
        attempt().or_else(|first| match self {
            Self::Host if update()? => attempt(),
            Self::Host => {
                let remedy = "if the package lists are old, run: sudo apt-get update";
                Err(Error::new(format!("{first}\n{remedy}")))
            }
            Self::Suite(place, _) => {
                let all = place.parent().unwrap_or(place).display();
                Err(Error::new(format!("{first}\nif the package lists are old, remove {all}")))
            }
        })
    }
}

/// Returns the archive of a suite, as named in a list of sources of this machine.
fn archive_url(suite: &str) -> Result<String> {
    let label = if suite.ends_with("-security") { "Debian-Security" } else { "Debian" };
    Archive::Host.with_renewed_lists(|| {
        let mut command = Archive::Host.apt("apt-get");
        command.args(["indextargets", "--format", "$(LABEL) $(COMPONENT) $(SITE)"]);
        let text = host::output(&mut command, "list the sources of apt")?;
        let text = String::from_utf8_lossy(&text);
        let archive_url =
            text.lines().find_map(|line| line.strip_prefix(&format!("{label} main ")));
        archive_url.map(str::to_owned).ok_or_else(|| {
            Error::new(format!("cannot find a source of {label}'s packages: apt has none"))
        })
    })
}

/// Parses the packages that apt would install from a simulation.
///
/// A line is `Inst NAME [OLD] (VERSION SUITE [amd64]) []`.
fn parse_installed(simulation: &str) -> Vec<String> {
    let lines = simulation.lines().filter_map(|line| line.strip_prefix("Inst "));
    let exact = |line: &str| {
        let (name, rest) = line.split_once(' ')?;
        let (_, version) = rest.split_once('(')?;
        Some(format!("{name}={}", version.split(' ').next()?))
    };
    lines.filter_map(exact).collect()
}

/// Parses the versions of a package, newest first, from `apt-cache madison`: `NAME | VERSION | SUITE`.
fn parse_versions(table: &str) -> impl Iterator<Item = &str> {
    table.lines().filter_map(|line| line.split('|').nth(1)).map(str::trim)
}

fn make_empty(directory: &Path) -> Result<()> {
    if directory.exists() {
        remove(directory)?;
    }
    fs::create_dir_all(directory).with_context(|| format!("create {}", directory.display()))
}

fn remove(directory: &Path) -> Result<()> {
    fs::remove_dir_all(directory).with_context(|| format!("remove {}", directory.display()))
}

#[cfg(test)]
mod tests;
