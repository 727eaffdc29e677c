//! The kernels whose headers are available.

use std::fs;
use std::path::{Path, PathBuf};

use crate::header::Header;

/// A kernel, by its headers.
#[derive(Debug)]
pub(crate) struct Kernel {
    /// Version, as `6.12`.
    pub(crate) name: String,
    /// The directory with the public headers, `include/uapi` of the kernel's source.
    pub(crate) uapi: PathBuf,
}

impl Kernel {
    /// Name of the environment variable with the directory of the headers.
    const VARIABLE: &'static str = "RDMACM_UAPI_HEADERS";

    /// Returns the kernels that `RDMACM_UAPI_HEADERS` names: `6.1=DIR:6.12=DIR`.
    ///
    /// `DIR` is the kernel's `include/uapi`, with the kernel's own headers beside it in `DIR/..`.
    ///
    /// # Panics
    ///
    /// Panics if the variable is not set, or has another form. A skipped comparison would look like a successful one.
    pub(crate) fn from_environment() -> Vec<Self> {
        let value = std::env::var(Self::VARIABLE).unwrap_or_else(|error| {
            panic!(
                "{}: {error}; set it to the directories of the headers: 6.1=DIR:6.12=DIR",
                Self::VARIABLE
            )
        });
        Self::parse(&value)
    }

    fn parse(value: &str) -> Vec<Self> {
        value
            .split(':')
            .map(|entry| {
                let (name, uapi) = entry
                    .split_once('=')
                    .unwrap_or_else(|| panic!("{}: {entry:?} is not VERSION=DIR", Self::VARIABLE));
                version(name);
                Self { name: name.to_owned(), uapi: PathBuf::from(uapi) }
            })
            .collect()
    }

    /// Returns `true` if the kernel has the features of version `since`.
    ///
    /// `None` stands for features that every kernel of the test bed has.
    pub(crate) fn has(&self, since: Option<&str>) -> bool {
        since.is_none_or(|since| version(since) <= version(&self.name))
    }

    /// Returns `true` if a header is one of the public ones, which a C program can include.
    pub(crate) fn is_public(&self, header: &str) -> bool {
        self.directory_of(header) != self.own()
    }

    /// Returns the directory of a header.
    ///
    /// An RDMA header is among the kernel's public headers or its own, any other header among those of the host.
    fn directory_of(&self, header: &str) -> PathBuf {
        if !header.starts_with("rdma/") {
            return PathBuf::from("/usr/include");
        }
        let directories = [self.uapi.clone(), self.own()];
        directories.into_iter().find(|dir| dir.join(header).is_file()).unwrap_or_else(|| {
            panic!("Linux {}: no {header} in {} and above it", self.name, self.uapi.display())
        })
    }

    fn own(&self) -> PathBuf {
        self.uapi.join("..")
    }

    /// Returns a header, read as text.
    pub(crate) fn header(&self, name: &str) -> Header {
        let text = read(&self.directory_of(name).join(name));
        if self.is_public(name) {
            Header::parse(name, &text)
        } else {
            Header::parse_own(name, &text)
        }
    }
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn version(name: &str) -> (u32, u32) {
    name.split_once('.')
        .and_then(|(major, minor)| Some((major.parse().ok()?, minor.parse().ok()?)))
        .unwrap_or_else(|| panic!("{name:?} is not a version of Linux, as 6.12"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_compare_as_numbers() {
        let kernels = Kernel::parse("6.1=/a:6.12=/b");
        assert_eq!(kernels[1].uapi, Path::new("/b"));
        let has = |since| [kernels[0].has(since), kernels[1].has(since)];
        assert_eq!(has(None), [true, true]);
        assert_eq!(has(Some("6.1")), [true, true]);
        assert_eq!(has(Some("6.2")), [false, true]);
        assert_eq!(has(Some("6.18")), [false, false]);
    }

    #[test]
    #[should_panic(expected = "not VERSION=DIR")]
    fn directory_without_headers_is_refused() {
        Kernel::parse("/usr/include");
    }
}
