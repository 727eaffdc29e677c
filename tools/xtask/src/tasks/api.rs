//! `cargo xtask api`: compares the public interface of the crates with `tests/api`.
//!
//! The interface of a published crate is a list with one line per item.
//!
//! The lines are read from the HTML of rustdoc, which contains each declaration as text. The HTML differs between
//! versions, so rustdoc is always that of Debian's compiler of the minimum version, independent of the installed
//! compiler.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use tool_error::{Context, Error, Result};

use crate::host::{self, progress};
use crate::testbed::rust::Rust;

/// Names of the published packages.
const PACKAGES: [&str; 4] = ["verbs-abi", "ucma-abi", "verbs-core", "rdmacm"];

/// Compares the interface of the crates with the committed one.
///
/// If `renew` is set, the committed interface is overwritten instead.
pub(crate) fn run(renew: bool) -> Result<()> {
    progress("documenting the crates with Debian's compiler");
    let mut cargo = Rust::minimum()?.cargo();
    cargo.args(["doc", "--quiet", "--no-deps", "--all-features", "--locked", "--target-dir"]);
    cargo.arg(Rust::target_directory());
    for package in PACKAGES {
        cargo.args(["--package", package]);
    }
    host::run(&mut cargo, "document the crates")?;
    let mut different = Vec::new();
    for package in PACKAGES {
        let file = host::workspace().join(format!("tests/api/{package}.txt"));
        let name = package.replace('-', "_");
        let mut lines = BTreeSet::new();
        read_all(&Rust::target_directory().join("doc").join(&name), &name, &mut lines)?;
        if lines.is_empty() {
            return Err(Error::new(format!(
                "cannot read the interface of {package}: its documentation has no items"
            )));
        }
        if renew {
            let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
            fs::write(&file, text).with_context(|| format!("write {}", file.display()))?;
            continue;
        }
        let committed =
            fs::read_to_string(&file).with_context(|| format!("read {}", file.display()))?;
        let differences = difference(&committed, &lines);
        if !differences.is_empty() {
            different.push(format!("the interface of {package} differs from {}:", file.display()));
            different.extend(differences);
        }
    }
    if !different.is_empty() {
        return Err(Error::new(format!(
            "{}\nif the change is intended: run cargo xtask api --renew and describe the change in CHANGELOG.md",
            different.join("\n")
        )));
    }
    progress(if renew { "tests/api is written" } else { "the interface matches tests/api" });
    Ok(())
}

/// Adds the lines of the pages in `directory`, which documents the module `path`.
fn read_all(directory: &Path, path: &str, lines: &mut BTreeSet<String>) -> Result<()> {
    for file in host::files(directory)? {
        let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if file.is_dir() {
            read_all(&file, &format!("{path}::{name}"), lines)?;
        } else if name.ends_with(".html") {
            let page = fs::read_to_string(&file);
            let page = page.with_context(|| format!("read {}", file.display()))?;
            // The names are `struct.Name.html`, and `index.html` for the module itself.
            let mut parts = name.split('.').rev().skip(1);
            let item = parts.next().filter(|_| parts.next().is_some());
            let path = item.map_or_else(|| path.to_owned(), |item| format!("{path}::{item}"));
            lines.extend(declarations(&page).into_iter().map(|text| format!("{path}: {text}")));
        }
    }
    Ok(())
}

/// Returns the declarations of a page.
///
/// They are the item, its implementations, and their members that the trait does not declare.
fn declarations(page: &str) -> Vec<String> {
    // Methods of the type that an item dereferences to, such as a slice, do not belong to the item. Blanket
    // implementations exist for every type.
    let own = |section: &&str| {
        !section.starts_with("deref-methods") && !section.starts_with("blanket-implementations")
    };
    let page: String = page.split(SECTION).filter(own).collect();
    let mut found = Vec::new();
    let mut of_trait = false;
    let (mut rest, marks) = (&page[..], [ITEM, IMPLEMENTATION, MEMBER, REEXPORT]);
    while let Some((place, (mark, end))) =
        marks.iter().filter_map(|mark| Some((rest.find(mark.0)?, *mark))).min()
    {
        rest = &rest[place + mark.len()..];
        let (inside, text_after) = rest.split_once(end).unwrap_or((rest, ""));
        rest = text_after;
        let text = text(inside);
        let wanted = match (mark, end) {
            IMPLEMENTATION => {
                of_trait = text.contains(" for ");
                // Of the implementations that the compiler adds, only `Send` and `Sync` are part of the interface.
                let added =
                    ["Freeze", "RefUnwindSafe", "StructuralPartialEq", "Unpin", "UnwindSafe"];
                of_trait && !added.iter().any(|name| text.contains(&format!("{name} for ")))
            }
            MEMBER => !(of_trait && text.contains("fn ")),
            _ => true,
        };
        if wanted {
            found.push(if mark == REEXPORT.0 { format!("pub use {text}") } else { text });
        }
    }
    found
}

/// Start of a section of a page, before its name.
const SECTION: &str = "<h2 id=\"";
/// Start and end of each part of a page that is read.
const ITEM: (&str, &str) = ("<pre class=\"rust item-decl\"><code>", "</code></pre>");
const IMPLEMENTATION: (&str, &str) = ("<h3 class=\"code-header\">", "</h3>");
const MEMBER: (&str, &str) = ("<h4 class=\"code-header\">", "</h4>");
const REEXPORT: (&str, &str) = ("<code>pub use ", "</code>");

/// Returns HTML as one line of text, without interactive elements.
fn text(html: &str) -> String {
    let shown = html.split("<summary").enumerate();
    let shown: String = shown.map(|(index, part)| text_after(index, part, "</summary>")).collect();
    // A block starts a line.
    let lines = shown.replace("<div", " <div").replace("</div", " </div");
    let parts = lines.split('<').enumerate();
    let untagged: String = parts.map(|(index, part)| text_after(index, part, ">")).collect();
    let entities =
        [("&lt;", "<"), ("&gt;", ">"), ("&quot;", "\""), ("&#39;", "'"), ("&nbsp;", " ")];
    let plain = entities.iter().fold(untagged, |text, (from, to)| text.replace(from, to));
    plain.replace("&amp;", "&").split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Returns the text of a part after `end`, or the whole text if the part is the first.
fn text_after<'a>(index: usize, part: &'a str, end: &str) -> &'a str {
    if index == 0 { part } else { part.split_once(end).map_or("", |(_, text)| text) }
}

/// Returns the lines that are only in `committed`, with `-`, and those only in `found`, with `+`.
fn difference(committed: &str, found: &BTreeSet<String>) -> Vec<String> {
    let committed: BTreeSet<String> = committed.lines().map(str::to_owned).collect();
    let gone = committed.difference(found).map(|line| format!("- {line}"));
    gone.chain(found.difference(&committed).map(|line| format!("+ {line}"))).collect()
}

#[cfg(test)]
mod tests;
