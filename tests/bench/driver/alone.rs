//! Size of one static program beside the C programs with their libraries.
//!
//! The program also runs in a root directory without any other file.

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::slice;

use rdmacm::device::Device;

use crate::peer::Peer;
use crate::run::{self, Program, progress};
use crate::table::Row;
use crate::trace;

const NAME: &str = "rdmatools";

/// Maximum size of the program in kilobytes: 1.5 MB.
const SIZE_GOAL: f64 = 1500.0;
const CALLS_GOAL: f64 = 100.0;
/// Maximum memory of the program in the kernel's units of 1,024 bytes: 2 MB.
const MEMORY_GOAL: f64 = 1953.0;

/// Measures on the device, with the static program of the directory.
pub(crate) fn rows(
    device: &Device,
    address: &str,
    directory: &Path,
) -> Result<Vec<Row>, Box<dyn Error>> {
    let program = directory.join(NAME);
    alone(device, &program)?;
    let ours = |applet: &str| Program::new(&program).arg(applet);
    let [our_size, c_size] = [size(slice::from_ref(&program))?, size(&with_libraries("rping")?)?];
    let size = Row::exact("size, C's rping with libraries", "kB", our_size, c_size);
    let mut rows = vec![size.below(SIZE_GOAL)];
    let calls = |what: &str, options: &[&str]| -> Result<Row, Box<dyn Error>> {
        let [ours, c] = [ours("devinfo"), Program::new("ibv_devinfo")].map(|program| {
            let program = program.args(["-d", device.name()]).args(options);
            run::repeated(|| trace::run(&program)).map(|counts| f64::from(counts.all))
        });
        Ok(Row::exact(format!("system calls of {what}"), "", ours?, c?))
    };
    rows.push(calls("devinfo", &[])?.below(CALLS_GOAL));
    rows.push(calls("devinfo -v", &["-v"])?.below(CALLS_GOAL));
    let [ours, c] = [ours("rping"), Program::new("rping")].map(|program| {
        let server = Peer::start(device, &program.args(["-s", "-a", address]))?;
        run::peak_of(server.id())
    });
    rows.push(Row::exact("peak memory of an idle rping", "kB", ours?, c?).below(MEMORY_GOAL));
    Ok(rows)
}

/// Runs the program in a directory without any other file.
fn alone(device: &Device, program: &Path) -> Result<(), Box<dyn Error>> {
    let root = std::env::temp_dir().join("alone");
    fs::create_dir(&root)?;
    fs::copy(program, root.join(NAME))?;
    let there = format!("/{NAME}");
    let chroot = Program::new("chroot").arg(&root).args([&there, "link"]);
    let printed = run::output(&chroot)?;
    if !printed.contains(device.name()) {
        return Err(format!("{chroot} does not know {}:\n{printed}", device.name()).into());
    }
    progress("the program runs in a directory without any other file");
    Ok(fs::remove_dir_all(&root)?)
}

/// Returns the total size of the files in kilobytes.
fn size(files: &[PathBuf]) -> Result<f64, Box<dyn Error>> {
    let mut bytes = 0;
    for file in files {
        bytes += fs::metadata(file).map_err(|error| format!("{}: {error}", file.display()))?.len();
    }
    Ok(f64::from(u32::try_from(bytes)?) / 1000.0)
}

/// Returns the path of an installed program, and the files that the loader maps for it.
fn with_libraries(name: &str) -> Result<Vec<PathBuf>, Box<dyn Error>> {
    let shell = |script: String| run::output(&Program::new("sh").args(["-c", &script]));
    let program = shell(format!("command -v {name}"))?;
    let mut files = vec![PathBuf::from(program.trim_end())];
    files.extend(mapped(&shell(format!("ldd {program}"))?));
    Ok(files)
}

/// Returns the files that `ldd` names.
///
/// Its lines are `libc.so.6 => /lib/libc.so.6 (0x7f)` and `/lib64/ld-linux-x86-64.so.2 (0x7f)`.
fn mapped(text: &str) -> impl Iterator<Item = PathBuf> {
    text.lines().filter_map(|line| {
        line.split_whitespace().find(|word| word.starts_with('/')).map(PathBuf::from)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_are_files() {
        let text = "\tlinux-vdso.so.1 (0x7f)\n\tlibc.so.6 => /lib/libc.so.6 (0x7f)\n\t/lib64/ld.so.2 (0x7f)\n";
        let files: Vec<_> = mapped(text).collect();
        assert_eq!(files, ["/lib/libc.so.6", "/lib64/ld.so.2"].map(PathBuf::from));
    }

    #[test]
    fn sizes_are_added() {
        assert_eq!(size(&[PathBuf::from("/dev/null")]).expect("there"), 0.0);
        let error =
            size(&[PathBuf::from("/none")]).expect_err("the file should not exist").to_string();
        assert!(error.contains("/none"), "{error}");
    }
}
