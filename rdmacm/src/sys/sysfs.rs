//! A reader of sysfs: small text files, any of which may be missing.
//!
//! A file that does not exist, cannot be read or does not parse is `None`. sysfs may be unmounted, hidden in a
//! container, or of another kernel. Some files return EINVAL if a table has an empty slot.
//!
//! Source: `drivers/infiniband/core/{sysfs,uverbs_main,ucma}.c`.

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::PathBuf;
use std::str::FromStr;

/// The kernel shows at most one page per file; the files read here hold a line.
const LONGEST: usize = 4096;

/// A directory of sysfs, which need not exist.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Directory {
    path: PathBuf,
}

impl Directory {
    /// Creates the root directory; the mount point is `/sys`, except in tests.
    pub(crate) fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    /// Returns the directory at a relative path.
    pub(crate) fn child(&self, path: &str) -> Self {
        Self::new(self.path.join(path))
    }

    /// Returns the names in the directory, sorted, or `None` if there is no such directory.
    pub(crate) fn names(&self) -> Option<Vec<String>> {
        let entries = std::fs::read_dir(&self.path).ok()?;
        let mut names: Vec<_> =
            entries.flatten().filter_map(|entry| entry.file_name().into_string().ok()).collect();
        names.sort();
        Some(names)
    }

    /// Returns `true` if there is such a directory.
    pub(crate) fn exists(&self) -> bool {
        self.path.is_dir()
    }

    /// Returns the text of a file, without the newline at its end.
    pub(crate) fn text(&self, file: &str) -> Option<String> {
        let mut file = File::open(self.path.join(file)).ok()?;
        let mut bytes = [0; LONGEST];
        // One read is enough, because sysfs returns the whole file at once.
        let length = loop {
            match file.read(&mut bytes) {
                Ok(length) => break length,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return None,
            }
        };
        let text = String::from_utf8_lossy(bytes.get(..length)?);
        Some(text.trim_end().to_owned())
    }

    /// Parses a file that holds a value: `6`, `0002:c9ff:fe12:3456`.
    pub(crate) fn value<T: FromStr>(&self, file: &str) -> Option<T> {
        self.text(file)?.parse().ok()
    }

    /// Parses a file that holds a number and its name: `4: ACTIVE`.
    pub(crate) fn named_number<T: FromStr>(&self, file: &str) -> Option<T> {
        self.text(file)?.split(':').next()?.parse().ok()
    }

    /// Parses a file that holds a hexadecimal number: `0xffff`.
    pub(crate) fn hexadecimal(&self, file: &str) -> Option<u32> {
        u32::from_str_radix(self.text(file)?.strip_prefix("0x")?, 16).ok()
    }

    /// Parses a file that holds a device number as `major:minor`.
    pub(crate) fn device_number(&self, file: &str) -> Option<u64> {
        let text = self.text(file)?;
        let (major, minor) = text.split_once(':')?;
        Some(libc::makedev(major.parse().ok()?, minor.parse().ok()?))
    }
}

/// A tree of files that looks like sysfs, for tests.
#[cfg(any(test, fuzzing))]
pub(crate) mod fake {
    use std::path::PathBuf;
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::Directory;

    /// A temporary directory tree, which is removed when dropped.
    #[derive(Debug)]
    pub(crate) struct Tree {
        root: PathBuf,
    }

    impl Tree {
        /// Creates a tree of these files: path and content.
        pub(crate) fn new(files: &[(&str, &str)]) -> Self {
            static NEXT: AtomicU32 = AtomicU32::new(0);
            let name = format!(
                "rdmacm-fake-sysfs-{}-{}",
                std::process::id(),
                NEXT.fetch_add(1, Ordering::Relaxed)
            );
            let tree = Self { root: std::env::temp_dir().join(name) };
            for (path, content) in files {
                let path = tree.root.join(path);
                let parent = path.parent().expect("the path is below the root");
                std::fs::create_dir_all(parent).expect("make a directory");
                std::fs::write(path, format!("{content}\n")).expect("write a file");
            }
            tree
        }

        /// Returns the directory that replaces `/sys`.
        pub(crate) fn directory(&self) -> Directory {
            Directory::new(&self.root)
        }
    }

    impl Drop for Tree {
        fn drop(&mut self) {
            // A tree without files was never made.
            let _ = std::fs::remove_dir_all(&self.root);
        }
    }
}

#[cfg(test)]
mod tests;
