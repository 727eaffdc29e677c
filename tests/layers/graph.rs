//! The graph of imports between the source files of a crate.

use std::collections::{BTreeMap, BTreeSet};

use super::imports::{Imports, Path, Use, imports};

/// The source files of a crate, and the imports between them.
#[derive(Debug)]
pub(crate) struct Graph {
    /// The file of the root: `lib.rs` or `main.rs`.
    root: String,
    modules: BTreeMap<Vec<String>, Module>,
    /// For each file, the files that it imports from.
    imports: BTreeMap<String, BTreeSet<String>>,
}

/// A module: a file, or an inline part of one.
#[derive(Debug)]
struct Module {
    file: String,
    uses: Vec<Use>,
}

/// A chain of re-exports that is longer than this leads in a circle.
const MAX_REEXPORTS: usize = 8;

impl Graph {
    /// Reads the crate whose root is the file `root`. `read` returns the text of a file by its path.
    pub(crate) fn read(root: &str, read: impl Fn(&str) -> Option<String>) -> Self {
        let mut graph =
            Self { root: root.to_owned(), modules: BTreeMap::new(), imports: BTreeMap::new() };
        let mut files = Vec::new();
        let mut pending = vec![(Vec::new(), root.to_owned())];
        while let Some((module, file)) = pending.pop() {
            let text = read(&file).unwrap_or_else(|| panic!("{file} should be readable"));
            let found = imports(&text);
            let folder = match file.strip_suffix("mod.rs").or_else(|| file.strip_suffix(root)) {
                Some(folder) => folder.to_owned(),
                None => format!("{}/", file.trim_end_matches(".rs")),
            };
            for child in &found.children {
                let paths = [format!("{folder}{child}.rs"), format!("{folder}{child}/mod.rs")];
                let path = paths.into_iter().find(|path| read(path).is_some());
                let path = path.unwrap_or_else(|| panic!("{file} should find its module {child}"));
                pending.push(([module.as_slice(), std::slice::from_ref(child)].concat(), path));
            }
            graph.add(&module, &file, &found);
            files.push((module, file, found));
        }
        for (module, file, found) in &files {
            let targets = graph.targets(module, file, found);
            graph.imports.insert(file.clone(), targets);
        }
        graph
    }

    fn add(&mut self, module: &[String], file: &str, found: &Imports) {
        self.modules.insert(module.to_vec(), Module { file: file.to_owned(), uses: Vec::new() });
        for used in &found.uses {
            let within = [module, &used.path.within].concat();
            let inline = Module { file: file.to_owned(), uses: Vec::new() };
            self.modules.entry(within).or_insert(inline).uses.push(used.clone());
        }
    }

    /// Returns the files from which `file` imports.
    ///
    /// A re-export of a module below the file does not count, unless the file uses the name itself.
    fn targets(&self, module: &[String], file: &str, found: &Imports) -> BTreeSet<String> {
        let mut targets = BTreeSet::new();
        let used = found.uses.iter().filter(|used| {
            let base = [module, &used.path.within].concat();
            let path = self.absolute(&base, &used.path.segments);
            let is_facade = used.is_exported
                && path.is_some_and(|path| path.len() > module.len() && path.starts_with(module));
            !is_facade || found.words.contains(&used.name)
        });
        let paths = used.map(|used| &used.path).chain(&found.paths);
        for Path { within, segments } in paths {
            let base = [module, within].concat();
            let Some(path) = self.absolute(&base, segments) else { continue };
            targets.extend(self.resolve(&base, &path, MAX_REEXPORTS));
            // A module elsewhere that re-exports the name is imported as well.
            let named = &self.modules[self.deepest(&path)].file;
            let folder = named.rfind('/').map(|end| &named[..=end]);
            let is_elsewhere = folder.is_none_or(|folder| !file.starts_with(folder));
            targets.extend(is_elsewhere.then(|| named.clone()));
        }
        targets.remove(&self.root);
        targets.remove(file);
        targets
    }

    /// Returns the path from the root of the crate; `None` for one of another crate.
    fn absolute(&self, base: &[String], segments: &[String]) -> Option<Vec<String>> {
        let (first, rest) = segments.split_first()?;
        let mut base = base.to_vec();
        match first.as_str() {
            "crate" => return Some(rest.to_vec()),
            "self" => {}
            "super" => {
                base.pop()?;
                if rest.first().is_some_and(|next| next == "super") {
                    return self.absolute(&base, rest);
                }
            }
            name => {
                let child = [base.as_slice(), std::slice::from_ref(first)].concat();
                if !self.modules.contains_key(&child) {
                    let bound = self.bound(&base, name)?;
                    if bound.path.segments.first().is_some_and(|first| first == name) {
                        return None;
                    }
                    let base = self.absolute(&base, &bound.path.segments)?;
                    return Some([base.as_slice(), rest].concat());
                }
                base = child;
            }
        }
        Some([base.as_slice(), rest].concat())
    }

    /// Returns the `use` by which `module` binds `name`.
    fn bound(&self, module: &[String], name: &str) -> Option<&Use> {
        self.modules.get(module)?.uses.iter().find(|used| used.name == name)
    }

    /// Returns the innermost module that `path` names.
    fn deepest<'a>(&self, path: &'a [String]) -> &'a [String] {
        let length =
            (0..=path.len()).rev().find(|length| self.modules.contains_key(&path[..*length]));
        &path[..length.unwrap_or(0)]
    }

    /// Returns the file that defines the item which the module `from` calls `path`.
    ///
    /// Re-exports are followed. Returns `None` if another crate defines the item.
    fn resolve(&self, from: &[String], path: &[String], depth: usize) -> Option<String> {
        let module = self.deepest(path);
        let bound = path.get(module.len()).and_then(|name| self.bound(module, name));
        // Imports of a module are visible to the modules inside of it.
        let bound = bound.filter(|bound| bound.is_exported || from.starts_with(module));
        match bound.filter(|_| depth > 0) {
            None => Some(self.modules[module].file.clone()),
            Some(bound) => {
                let target = self.absolute(module, &bound.path.segments)?;
                let rest = &path[module.len() + 1..];
                self.resolve(module, &[target.as_slice(), rest].concat(), depth - 1)
            }
        }
    }

    /// Returns the imports of files, as pairs of the importing file and the imported one.
    pub(crate) fn edges(&self) -> impl Iterator<Item = (&str, &str)> {
        self.imports.iter().flat_map(|(from, targets)| {
            targets.iter().map(move |target| (from.as_str(), target.as_str()))
        })
    }

    /// Returns the files.
    pub(crate) fn files(&self) -> impl Iterator<Item = &str> {
        self.imports.keys().map(String::as_str)
    }

    /// Returns the files that import from themselves through other files of their top-level module.
    pub(crate) fn circular(&self) -> BTreeSet<&str> {
        let reaches_itself = |start: &&str| {
            let mut reached = BTreeSet::new();
            let mut pending = vec![*start];
            while let Some(file) = pending.pop() {
                let targets = self.imports[file].iter().map(String::as_str);
                pending.extend(
                    targets.filter(|to| top_module(to) == top_module(start) && reached.insert(*to)),
                );
            }
            reached.contains(start)
        };
        self.files().filter(reaches_itself).collect()
    }
}

/// Returns the top-level module of a file: its outermost folder, or its own name.
pub(crate) fn top_module(file: &str) -> &str {
    file.split(['/', '.']).next().unwrap_or(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn graph(files: &'static [(&str, &str)]) -> Graph {
        Graph::read("lib.rs", |path| {
            files.iter().find(|(name, _)| *name == path).map(|(_, text)| (*text).to_owned())
        })
    }

    fn edges(files: &'static [(&str, &str)]) -> Vec<String> {
        graph(files).edges().map(|(from, to)| format!("{from} -> {to}")).collect()
    }

    fn circular(files: &'static [(&str, &str)]) -> String {
        graph(files).circular().into_iter().collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn import_leads_to_definition_through_reexports() {
        let files: &[_] = &[
            ("lib.rs", "mod a; mod b; pub use a::A;"),
            ("a/mod.rs", "mod inner; mod other; pub use {foreign::F, inner::Inner as A};"),
            ("a/inner.rs", "use super::F;"),
            ("a/other.rs", "use super::A;"),
            ("b.rs", "use crate::A; fn f() -> crate::a::A { crate::A }"),
        ];
        let expected = ["a/other.rs -> a/inner.rs", "b.rs -> a/inner.rs", "b.rs -> a/mod.rs"];
        assert_eq!(edges(files), expected);
    }

    #[test]
    fn facade_is_import_only_if_name_is_used() {
        let files: &[_] = &[
            ("lib.rs", "mod a; mod b;"),
            ("a/mod.rs", "mod inner; pub use inner::Inner;"),
            ("a/inner.rs", ""),
            ("b/mod.rs", "mod inner; pub use inner::Inner; fn f(x: Inner) {}"),
            ("b/inner.rs", "use super::f;"),
        ];
        assert_eq!(edges(files), ["b/inner.rs -> b/mod.rs", "b/mod.rs -> b/inner.rs"]);
        assert_eq!(circular(files), "b/inner.rs b/mod.rs");
    }

    #[test]
    fn imported_module_leads_to_its_parts() {
        let files: &[_] = &[
            ("lib.rs", "mod a; mod b;"),
            ("a.rs", "pub mod part;"),
            ("a/part.rs", "mod x { use super::super::f; }"),
            ("b.rs", "use crate::a as other; fn f() { other::part::g() }"),
        ];
        let expected = ["a/part.rs -> a.rs", "b.rs -> a.rs", "b.rs -> a/part.rs"];
        assert_eq!(edges(files), expected);
    }

    #[test]
    fn file_cycle_is_found_and_module_cycle_is_not() {
        let files: &[_] = &[
            ("lib.rs", "mod a; mod b;"),
            ("a/mod.rs", "mod x; mod y; mod z; mod w;"),
            ("a/x.rs", "use super::y::Y;"),
            ("a/y.rs", "use super::z; fn f() { z::f() }"),
            ("a/z.rs", "fn f() { crate::a::x::f() }"),
            ("a/w.rs", "use super::x; use crate::b::B;"),
            ("b.rs", "use crate::a::w;"),
        ];
        assert_eq!(circular(files), "a/x.rs a/y.rs a/z.rs");
    }
}
