//! Programs of a newer Debian, which run on this machine with their own loader and libraries.

use std::fs::{self, Permissions};
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use tool_error::{Context, Result};

use crate::host;

/// Directories of unpacked packages that contain programs.
const PROGRAM_DIRECTORIES: [&str; 3] = ["usr/bin", "usr/libexec", "usr/lib"];

/// Makes the programs of the packages unpacked in `root` run on this machine.
///
/// Each program is replaced by a script that starts it, even after `root` has moved.
pub(crate) fn make_runnable(root: &Path) -> Result<()> {
    PROGRAM_DIRECTORIES
        .iter()
        .try_for_each(|place| wrap_all(&root.join(place), &"../".repeat(place.split('/').count())))
}

/// Wraps the programs below `directory`; the path `up` leads from it to the root.
fn wrap_all(directory: &Path, up: &str) -> Result<()> {
    for path in host::files(directory)? {
        let about = fs::symlink_metadata(&path);
        let about = about.with_context(|| format!("read the metadata of {}", path.display()))?;
        if about.is_dir() {
            wrap_all(&path, &format!("../{up}"))?;
        } else if about.is_file() && about.permissions().mode() & 0o100 != 0 && is_program(&path)? {
            wrap(&path, up)?;
        }
    }
    Ok(())
}

/// Returns `true` if an executable file is a program: it names its loader near its start.
///
/// The C library does so too, and is excluded.
fn is_program(path: &Path) -> Result<bool> {
    if path.to_string_lossy().contains(".so") {
        return Ok(false);
    }
    let mut start = Vec::new();
    let read = fs::File::open(path).and_then(|file| file.take(4096).read_to_end(&mut start));
    read.with_context(|| format!("read {}", path.display()))?;
    let names_loader = start.windows(LOADER.len()).any(|bytes| bytes == LOADER);
    Ok(start.starts_with(b"\x7fELF") && names_loader)
}

const LOADER: &[u8] = b"/lib64/ld-linux-x86-64.so.2\0";

fn wrap(program: &Path, up: &str) -> Result<()> {
    let name = program.file_name().expect("a listed file should have a name").to_string_lossy();
    let moved = program.with_file_name(format!("{name}.program"));
    fs::rename(program, &moved).with_context(|| format!("rename {}", program.display()))?;
    let script = format!(
        "#!/bin/sh\n\
         here=${{0%/*}}\n\
         exec \"$here/{up}usr/lib64/ld-linux-x86-64.so.2\" --library-path \"$here/{up}usr/lib/x86_64-linux-gnu\" \
         --argv0 \"$0\" \"$here/{name}.program\" \"$@\"\n"
    );
    let written = fs::write(program, script)
        .and_then(|()| fs::set_permissions(program, Permissions::from_mode(0o755)));
    written.with_context(|| format!("write {}", program.display()))
}
