//! Measures the facts of a table with gcc and a kernel's headers.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::fact::{Target, facts};
use crate::header::Header;
use crate::kernel::Kernel;
use crate::table::Table;

/// Returns the values of a table's facts in a kernel's header, by a program that prints them.
///
/// # Panics
///
/// Panics if the program does not compile. gcc's error names the missing member.
pub(crate) fn measure(kernel: &Kernel, header: &Header, table: &Table) -> BTreeMap<String, u64> {
    let mut source = prelude(kernel, header, table);
    source.push_str("#include <stdio.h>\nint main(void)\n{\n");
    for fact in facts(table, Target::Host) {
        let (what, expression) = (fact.what, fact.expression);
        writeln!(source, "\tprintf(\"%llu\\t{what}\\n\", (unsigned long long)({expression}));")
            .expect("writing to a string should succeed");
    }
    source.push_str("\treturn 0;\n}\n");

    let work = Work::new(kernel, &source);
    let program = work.path.join("facts");
    work.gcc(&["-o", "facts"])
        .unwrap_or_else(|error| panic!("Linux {}, {}:\n{error}", kernel.name, header.name));
    let output = run(&mut Command::new(program)).expect("the program should run");
    output
        .lines()
        .map(|line| {
            let (value, what) =
                line.split_once('\t').expect("a line should have a value and a name");
            (what.to_owned(), value.parse().expect("a number"))
        })
        .collect()
}

/// Asserts the facts of a table at compile time, for 32-bit x86; an error has the output of gcc.
pub(crate) fn assert_on_i386(
    kernel: &Kernel,
    header: &Header,
    table: &Table,
) -> Result<(), String> {
    let mut source = prelude(kernel, header, table);
    for fact in facts(table, Target::I386) {
        let (what, expression, value) = (fact.what, fact.expression, fact.value);
        writeln!(source, "_Static_assert(({expression}) == {value}ULL, \"{what}\");")
            .expect("writing to a string should succeed");
    }
    // No 32-bit libraries are needed to compile only; the headers of the architecture serve both.
    let flags = ["-m32", "-c", "-I/usr/include/x86_64-linux-gnu", "-o", "facts.o"];
    Work::new(kernel, &source).gcc(&flags).map(drop)
}

/// Returns the first lines of a program, which declare the names of the table.
///
/// They include a public header. A header of the kernel's own cannot be included, so they have those of its
/// enumerations that the table names.
fn prelude(kernel: &Kernel, header: &Header, table: &Table) -> String {
    let mut source = String::from("#include <stddef.h>\n");
    if kernel.is_public(&header.name) {
        writeln!(source, "#include <{}>", header.name).expect("writing to a string should succeed");
        return source;
    }
    let named =
        |names: &[String]| names.iter().any(|name| table.constants.iter().any(|c| c.name == name));
    for (text, _) in header.enums.iter().filter(|(_, names)| named(names)) {
        writeln!(source, "{text};").expect("writing to a string should succeed");
    }
    source
}

/// A directory to compile one source in.
struct Work {
    path: PathBuf,
}

impl Work {
    /// Makes a directory with the source, and with `include/rdma` of the kernel.
    ///
    /// The other headers are those of the host, since the kernel's public headers cannot be included before they are
    /// installed.
    fn new(kernel: &Kernel, source: &str) -> Self {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("headers-{}-{number}", std::process::id());
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        fs::create_dir_all(path.join("include")).expect("a directory for the build");
        let rdma = std::path::absolute(kernel.uapi.join("rdma")).expect("a directory");
        symlink(rdma, path.join("include/rdma")).expect("a link");
        fs::write(path.join("facts.c"), source).expect("a source");
        Self { path }
    }

    fn gcc(&self, flags: &[&str]) -> Result<String, String> {
        let mut gcc = Command::new("gcc");
        run(gcc.current_dir(&self.path).args(["-std=gnu11", "-Iinclude", "facts.c"]).args(flags))
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.path).expect("remove the directory");
    }
}

/// Runs a command, and returns its output, or its error output if it failed.
fn run(command: &mut Command) -> Result<String, String> {
    let Output { status, stdout, stderr } =
        command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    if status.success() {
        Ok(String::from_utf8(stdout).expect("the output should be text"))
    } else {
        Err(format!("{status}\n{}", String::from_utf8_lossy(&stderr)))
    }
}
