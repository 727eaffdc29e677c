//! File systems: the kernel's own, and the host's root under an overlay.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::Path;

use guest::plan::{HOST_ROOT_TAG, PROGRAMS_TAG};
use nix::mount::{MsFlags, mount};
use nix::unistd::{chdir, chroot};

use tool_error::{Context, Result};

/// Mounts /proc, /sys, /dev (with pts and shm) over the directories of these names.
pub(crate) fn kernel_file_systems() -> Result<()> {
    attach("proc", "/proc", "proc", "")?;
    attach("sysfs", "/sys", "sysfs", "")?;
    attach("devtmpfs", "/dev", "devtmpfs", "mode=0755")?;
    attach("devpts", "/dev/pts", "devpts", "mode=0620,ptmxmode=0666")?;
    attach("tmpfs", "/dev/shm", "tmpfs", "mode=1777")
}

/// Options of mounts of the host's directories.
///
/// `cache=loose`: the files are assumed not to change while the guest runs.
const NINE_P: &str = "trans=virtio,version=9p2000.L,msize=524288,cache=loose,ro";

/// Makes the host's root, under an overlay that discards all writes, the root of this process.
///
/// The file systems of [`kernel_file_systems`] are moved to the new root. `module_tree`, a directory of the host,
/// becomes available at the path where the host's `modprobe` looks for modules. If `has_programs` is set, the
/// files of the directory of programs hide those of the host's root.
pub(crate) fn host_root(module_tree: &OsStr, has_programs: bool) -> Result<()> {
    attach(HOST_ROOT_TAG, "/host", "9p", NINE_P)?;
    attach("tmpfs", "/writes", "tmpfs", "mode=0755")?;
    for directory in ["/writes/upper", "/writes/work"] {
        make_directory(directory)?;
    }
    if has_programs {
        attach(PROGRAMS_TAG, "/programs", "9p", NINE_P)?;
    }
    let lower = if has_programs { "/programs:/host" } else { "/host" };
    let layers = format!("lowerdir={lower},upperdir=/writes/upper,workdir=/writes/work");
    attach("overlay", "/root", "overlay", &layers)?;
    for name in ["dev", "proc", "sys"] {
        let (from, to) = (format!("/{name}"), format!("/root/{name}"));
        let moved =
            mount(Some(from.as_str()), to.as_str(), None::<&str>, MsFlags::MS_MOVE, None::<&str>);
        moved.with_context(|| format!("move {from} to {to}"))?;
    }
    chdir("/root").context("enter /root")?;
    mount(Some("."), "/", None::<&str>, MsFlags::MS_MOVE, None::<&str>)
        .context("move /root to /")?;
    chroot(".").context("change the root")?;
    chdir("/").context("enter the new root")?;
    offer_modules(Path::new(module_tree))
}

/// Removes every file of the initramfs, including this program, except `program`.
///
/// Mounted file systems remain.
pub(crate) fn keep_only(program: &str) -> Result<()> {
    let root = fs::metadata("/").context("read the metadata of /")?.dev();
    remove_entries(Path::new("/"), root, Path::new(program))
}

/// Removes the entries of a directory that are on file system `device`, except `kept`.
fn remove_entries(directory: &Path, device: u64, kept: &Path) -> Result<()> {
    let entries = fs::read_dir(directory);
    for entry in entries.with_context(|| format!("list {}", directory.display()))? {
        let path = entry.with_context(|| format!("list {}", directory.display()))?.path();
        let about = fs::symlink_metadata(&path);
        let about = about.with_context(|| format!("read the metadata of {}", path.display()))?;
        let doing = || format!("remove {}", path.display());
        if about.dev() != device || path == kept {
            continue;
        }
        if about.is_dir() {
            remove_entries(&path, device, kept)?;
            fs::remove_dir(&path).with_context(doing)?;
        } else {
            fs::remove_file(&path).with_context(doing)?;
        }
    }
    Ok(())
}

fn offer_modules(tree: &Path) -> Result<()> {
    let Some(release) = tree.file_name() else { return Ok(()) };
    make_directory("/lib/modules")?;
    let place = Path::new("/lib/modules").join(release);
    if place.exists() {
        return Ok(());
    }
    symlink(tree, &place).with_context(|| format!("offer {} to modprobe", tree.display()))
}

fn attach(source: &str, target: &str, kind: &str, options: &str) -> Result<()> {
    make_directory(target)?;
    mount(Some(source), target, Some(kind), MsFlags::empty(), Some(options))
        .with_context(|| format!("mount {kind} on {target}"))
}

fn make_directory(path: &str) -> Result<()> {
    fs::create_dir_all(path).with_context(|| format!("create the directory {path}"))
}
