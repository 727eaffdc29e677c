//! Kernel modules: the dependencies of a set, their load order, and their images.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::path::{Path, PathBuf};

use tool_error::{Context, Error, Result};

use crate::host;

/// The index of a module tree, from `depmod` and the kernel's build.
#[derive(Debug)]
pub(crate) struct Index {
    /// Directory of the tree, `lib/modules/RELEASE`.
    tree: PathBuf,
    /// File of each module, relative to the tree, and the files that it depends on.
    files: HashMap<String, (String, Vec<String>)>,
    built_in: HashSet<String>,
}

impl Index {
    /// Reads the index of a module tree in which `depmod` has run.
    pub(crate) fn read(tree: &Path) -> Result<Self> {
        let read = |name: &str| {
            let path = tree.join(name);
            fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))
        };
        Self::parse(tree, &read("modules.dep")?, &read("modules.builtin")?)
    }

    fn parse(tree: &Path, dependencies: &str, built_in: &str) -> Result<Self> {
        let mut files = HashMap::new();
        for line in dependencies.lines() {
            let malformed =
                || Error::new(format!("cannot parse modules.dep: malformed line {line}"));
            let (file, needs) = line.split_once(':').ok_or_else(malformed)?;
            let needs = needs.split_whitespace().map(str::to_owned).collect();
            files.insert(module_name(file), (file.to_owned(), needs));
        }
        let built_in = built_in.lines().map(module_name).collect();
        Ok(Self { tree: tree.to_owned(), files, built_in })
    }

    /// Returns the files of the `wanted` modules, each after its dependencies. Built-in modules need none.
    pub(crate) fn closure(&self, wanted: &[&str]) -> Result<Vec<PathBuf>> {
        let mut order = Vec::new();
        let mut seen = HashSet::new();
        for name in wanted {
            self.visit(name, &mut seen, &mut order)?;
        }
        Ok(order.into_iter().map(|file| self.tree.join(file)).collect())
    }

    fn visit<'a>(
        &'a self,
        name: &str,
        seen: &mut HashSet<String>,
        order: &mut Vec<&'a str>,
    ) -> Result<()> {
        if self.built_in.contains(name) || !seen.insert(name.to_owned()) {
            return Ok(());
        }
        let (file, needs) = self.files.get(name).ok_or_else(|| {
            Error::new(format!(
                "cannot find module {name} of the kernel in {}",
                self.tree.display()
            ))
        })?;
        for need in needs {
            self.visit(&module_name(need), seen, order)?;
        }
        order.push(file);
        Ok(())
    }
}

/// Returns the name of a module file: `kernel/net/9p/9pnet-x.ko.xz` is the module `9pnet_x`.
fn module_name(file: &str) -> String {
    let name = file.rsplit_once('/').map_or(file, |(_, name)| name);
    name.split('.').next().unwrap_or(name).replace('-', "_")
}

/// Returns the module's ELF image, decompressed.
pub(crate) fn image(file: &Path) -> Result<Vec<u8>> {
    let doing = || format!("read the kernel module {}", file.display());
    match file.extension().and_then(|extension| extension.to_str()) {
        Some("ko") => fs::read(file).with_context(doing),
        Some("xz") => host::output(host::command("xz").arg("-dc").arg(file), &doing()),
        _ => Err(Error::new(format!("cannot {}: unknown compression", doing()))),
    }
}

#[cfg(test)]
mod tests;
