//! Files that the test bed keeps between runs.
//!
//! They are in directories below `target/test-bed`, each of which is either complete or absent.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use nix::fcntl::{Flock, FlockArg};
use tool_error::{Context, Error, Result};

use crate::host::{self, progress};

/// Returns the root of the cache.
///
/// It belongs to the checkout: kernels do not depend on cargo's target directory.
pub(crate) fn root() -> PathBuf {
    host::workspace().join("target/test-bed")
}

/// Returns the directory `name` of the cache, and calls `make` to fill it if it is absent.
///
/// `make` gets a temporary directory, which is renamed only if `make` succeeds, so `make` must not store its path.
pub(crate) fn entry(name: &str, make: impl FnOnce(&Path) -> Result<()>) -> Result<PathBuf> {
    let path = root().join(name);
    if path.exists() {
        return Ok(path);
    }
    let beside = |suffix: &str| root().join(format!("{name}.{suffix}"));
    let parent = path.parent().expect("an entry should be below the root");
    fs::create_dir_all(parent).with_context(|| format!("create {}", parent.display()))?;
    let _lock = lock(&beside("lock"))?;
    if path.exists() {
        return Ok(path);
    }
    let partial = beside("partial");
    if partial.exists() {
        fs::remove_dir_all(&partial).with_context(|| format!("remove {}", partial.display()))?;
    }
    fs::create_dir(&partial).with_context(|| format!("create {}", partial.display()))?;
    make(&partial)?;
    fs::rename(&partial, &path).with_context(|| format!("rename {}", partial.display()))?;
    Ok(path)
}

/// Locks an entry against other runs of xtask until the lock is dropped.
fn lock(path: &Path) -> Result<Flock<File>> {
    let doing = || format!("lock {}", path.display());
    let file = File::create(path).with_context(doing)?;
    match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
        Ok(lock) => Ok(lock),
        Err((file, _)) => {
            progress(&format!("waiting for another xtask, which holds {}", path.display()));
            Flock::lock(file, FlockArg::LockExclusive)
                .map_err(|(_, errno)| Error::new(format!("cannot {}: {errno}", doing())))
        }
    }
}
