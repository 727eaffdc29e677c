//! Reads the modules that a source file declares, and the paths that its code names.
//!
//! Documentation, attributes and items that only tests or rustdoc compile are left out.

use super::tokens::{Token, tokens};

/// The imports of one file.
#[derive(Debug, Default)]
pub(crate) struct Imports {
    /// Modules that are files of their own.
    pub(crate) children: Vec<String>,
    /// Names that `use` declarations bind.
    pub(crate) uses: Vec<Use>,
    /// Paths in code outside of `use` declarations: at least two segments each.
    pub(crate) paths: Vec<Path>,
    /// All words of the code outside of `use` declarations.
    pub(crate) words: Vec<String>,
}

/// A path, and the inline modules of the file in which it is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Path {
    pub(crate) within: Vec<String>,
    pub(crate) segments: Vec<String>,
}

/// One name of a `use` declaration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Use {
    pub(crate) path: Path,
    /// The bound name; `*` for all names of the module.
    pub(crate) name: String,
    /// `true` if the name is visible outside of the module that declares it.
    pub(crate) is_exported: bool,
}

/// Reads the imports of a source file.
pub(crate) fn imports(source: &str) -> Imports {
    let tokens = tokens(source);
    let mut reader =
        Reader { tokens: &tokens, at: 0, within: Vec::new(), found: Imports::default() };
    reader.block();
    reader.found
}

struct Reader<'a> {
    tokens: &'a [Token],
    at: usize,
    within: Vec<String>,
    found: Imports,
}

impl Reader<'_> {
    /// Reads up to the end of a block or of the file.
    fn block(&mut self) {
        let mut depth = 0;
        let mut is_exported = false;
        while let Some(token) = self.tokens.get(self.at) {
            match token {
                Token::Mark('{') => depth += 1,
                Token::Mark('}') if depth == 0 => return,
                Token::Mark('}') => depth -= 1,
                Token::Mark('#') if self.attribute() => continue,
                Token::Word(word) if word == "pub" => {
                    is_exported = true;
                    self.visibility();
                    continue;
                }
                Token::Word(word) if word == "use" && !self.sees(1, "<") => {
                    self.at += 1;
                    self.use_tree(&[], is_exported);
                }
                Token::Word(word) if word == "mod" => self.module(),
                Token::Word(_) => {
                    self.path();
                    is_exported = false;
                    continue;
                }
                Token::Mark(_) => {}
            }
            is_exported = false;
            self.at += 1;
        }
    }

    fn sees(&self, ahead: usize, text: &str) -> bool {
        self.tokens.get(self.at + ahead).is_some_and(|token| token.is(text))
    }

    fn word(&self, ahead: usize) -> Option<&str> {
        match self.tokens.get(self.at + ahead)? {
            Token::Word(word) => Some(word),
            Token::Mark(_) => None,
        }
    }

    /// Skips `pub`, `pub(crate)` and `pub(in path)`.
    fn visibility(&mut self) {
        self.at += 1;
        if self.sees(0, "(")
            && ["crate", "super", "self", "in"].iter().any(|word| self.sees(1, word))
        {
            self.group();
        }
    }

    /// Skips the group that begins here; returns its tokens without the delimiters.
    fn group(&mut self) -> &[Token] {
        let begin = self.at;
        let mut depth = 0;
        while let Some(token) = self.tokens.get(self.at) {
            self.at += 1;
            match token {
                Token::Mark('(' | '[' | '{') => depth += 1,
                Token::Mark(')' | ']' | '}') => depth -= 1,
                _ => {}
            }
            if depth == 0 {
                break;
            }
        }
        &self.tokens[begin + 1..self.at - 1]
    }

    /// Skips an attribute, and its item if the attribute is a `cfg` that no build of the library fulfills.
    ///
    /// Returns `false` if there is no attribute.
    fn attribute(&mut self) -> bool {
        let is_inner = self.sees(1, "!");
        let begin = 1 + usize::from(is_inner);
        if !self.sees(begin, "[") {
            return false;
        }
        self.at += begin;
        let attribute = self.group();
        let is_left_out = attribute.first().is_some_and(|first| first.is("cfg"))
            && holds(&attribute[2..attribute.len() - 1]) == Some(false);
        if is_left_out && is_inner {
            self.at = self.tokens.len();
        } else if is_left_out {
            self.skip();
        }
        true
    }

    /// Skips an item, a field, a match arm or a statement.
    fn skip(&mut self) {
        while self.sees(0, "#") {
            self.at += 1;
            self.group();
        }
        if self.sees(0, "pub") {
            self.visibility();
        }
        let is_value = ["use", "static", "type", "let"].iter().any(|word| self.sees(0, word))
            || self.sees(0, "const") && self.sees(2, ":");
        let items = ["fn", "impl", "struct", "enum", "trait", "mod", "unsafe", "extern", "const"];
        let is_item = is_value
            || items.iter().chain(&["async", "macro_rules"]).any(|word| self.sees(0, word));
        while let Some(token) = self.tokens.get(self.at) {
            match token {
                Token::Mark('}' | ')' | ']') => return,
                Token::Mark('{') if !is_value => {
                    self.group();
                    return;
                }
                Token::Mark('(' | '[' | '{') => drop(self.group().len()),
                Token::Mark(mark) => {
                    self.at += 1;
                    if *mark == ';' || *mark == ',' && !is_item {
                        return;
                    }
                }
                Token::Word(_) => self.at += 1,
            }
        }
    }

    /// Reads a module: a declaration, or its contents.
    fn module(&mut self) {
        let Some(name) = self.word(1).map(str::to_owned) else { return };
        self.at += 2;
        if self.sees(0, "{") {
            self.at += 1;
            self.within.push(name);
            self.block();
            self.within.pop();
        } else {
            self.found.children.push(name);
        }
    }

    /// Reads the rest of a `use` declaration, up to the mark behind it.
    fn use_tree(&mut self, prefix: &[String], is_exported: bool) {
        let mut segments = prefix.to_vec();
        let mut name = None;
        while let Some(token) = self.tokens.get(self.at) {
            match token {
                Token::Word(word) if word == "as" => {
                    name = self.word(1).map(str::to_owned);
                    self.at += 1;
                }
                Token::Word(word) => segments.push(word.clone()),
                Token::Mark('*') => name = Some("*".to_owned()),
                Token::Mark('{') => {
                    self.at += 1;
                    while !self.sees(0, "}") {
                        self.use_tree(&segments, is_exported);
                        self.at += usize::from(self.sees(0, ","));
                    }
                    self.at += 1;
                    return;
                }
                Token::Mark(':') => {}
                Token::Mark(_) => break,
            }
            self.at += 1;
        }
        if segments.len() > 1 && segments.last().is_some_and(|last| last == "self") {
            segments.pop();
        }
        let Some(name) = name.or_else(|| segments.last().cloned()) else { return };
        let path = Path { within: self.within.clone(), segments };
        self.found.uses.push(Use { path, name, is_exported });
    }

    /// Reads the path that begins here, which may be a single word.
    fn path(&mut self) {
        let mut segments = Vec::new();
        let begin = self.at;
        while let Some(word) = self.word(0) {
            segments.push(word.to_owned());
            self.at += 1;
            if self.sees(0, ":") && self.sees(1, ":") && self.word(2).is_some() {
                self.at += 2;
            } else {
                break;
            }
        }
        self.found.words.extend(segments.iter().cloned());
        // Behind `.` is a method or a field, and behind `:` the rest of a path in angle brackets.
        let is_first = begin.checked_sub(1).is_none_or(|before| {
            let before = &self.tokens[before];
            !before.is(".") && !before.is(":")
        });
        let follows_colon = begin >= 2 && self.tokens[begin - 1].is(":");
        let is_typed = follows_colon && !self.tokens[begin - 2].is(":");
        if segments.len() > 1 && (is_first || is_typed) {
            self.found.paths.push(Path { within: self.within.clone(), segments });
        }
    }
}

/// Returns `true` if a `cfg` predicate holds in plain builds, without tests and documentation.
///
/// Returns `None` if the result depends on other settings.
fn holds(predicate: &[Token]) -> Option<bool> {
    let (first, rest) = predicate.split_first()?;
    let parts = || {
        let inner = &rest[1..rest.len() - 1];
        let mut depth = 0;
        inner.split(move |token| {
            match token {
                Token::Mark('(') => depth += 1,
                Token::Mark(')') => depth -= 1,
                _ => {}
            }
            depth == 0 && token.is(",")
        })
    };
    let decided = |by: bool| {
        let mut values = parts().filter(|part| !part.is_empty()).map(holds);
        let mut is_open = false;
        let found = values.any(|value| {
            is_open |= value.is_none();
            value == Some(by)
        });
        if found { Some(by) } else { (!is_open).then_some(!by) }
    };
    match first {
        Token::Word(word) if word == "test" || word == "doc" => Some(false),
        Token::Word(word) if word == "not" => holds(&rest[1..rest.len() - 1]).map(|value| !value),
        Token::Word(word) if word == "all" => decided(false),
        Token::Word(word) if word == "any" => decided(true),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn used(source: &str) -> Vec<String> {
        let imports = imports(source);
        let mut paths: Vec<_> = imports
            .uses
            .iter()
            .map(|used| &used.path)
            .chain(&imports.paths)
            .map(|path| path.segments.join("::"))
            .collect();
        paths.sort();
        paths
    }

    #[test]
    fn use_tree_yields_every_leaf() {
        let source = "pub(crate) use crate::a::{self, B, c::{D as E, f::*}}; use super::g;";
        let imports = imports(source);
        let found: Vec<_> = imports
            .uses
            .iter()
            .map(|used| (used.path.segments.join("::"), used.name.as_str(), used.is_exported))
            .collect();
        let expected = [
            ("crate::a", "a", true),
            ("crate::a::B", "B", true),
            ("crate::a::c::D", "E", true),
            ("crate::a::c::f", "*", true),
            ("super::g", "g", false),
        ];
        assert_eq!(found, expected.map(|(path, name, out)| (path.to_owned(), name, out)));
    }

    #[test]
    fn path_in_code_is_read() {
        let source = "
            /// See [`crate::docs::X`].
            pub(in crate::nowhere) fn f(a: crate::a::A) -> impl Sized + use<> {
                let x: super::b::B = <Self as crate::c::C>::new().crate_field;
                match x { super::d::E::F { .. } => $crate::macros::g!(h::I) }
            }";
        let expected = [
            "crate::a::A",
            "crate::c::C",
            "crate::macros::g",
            "h::I",
            "super::b::B",
            "super::d::E::F",
        ];
        assert_eq!(used(source), expected);
    }

    #[test]
    fn code_for_tests_and_docs_is_left_out() {
        let source = "
            #[cfg(doc)] use crate::a::A;
            #[cfg(test)] mod b;
            #[cfg(test)] #[allow(dead_code)] pub(super) mod tests { use crate::b::B; }
            #[cfg(all(test, not(loom)))] fn f<T, U>() where T: crate::c::C, U: V { crate::d::d() }
            #[cfg(test)] const fn g() -> u8 { crate::e::E }
            #[cfg(test)] const G: crate::f::F = crate::f::F { x: 1 };
            struct S { #[cfg(test)] x: crate::g::G, y: crate::y::Y }
            #[cfg(any(test, fuzzing))] use crate::z::Z;
            #[cfg(not(test))] mod c;
            mod d { #![allow(unused)] fn f() { #[cfg(test)] crate::h::h(); super::x::x() } }";
        assert_eq!(used(source), ["crate::y::Y", "crate::z::Z", "super::x::x"]);
        let imports = imports(source);
        assert_eq!(imports.children, ["c"]);
        assert_eq!(imports.paths.last().expect("a path").within, ["d"]);
    }
}
