//! The structures, members and constants that the text of a C header defines.
//!
//! The parser knows only the syntax that the kernel's headers use, and panics at other syntax.

use std::collections::BTreeMap;

/// Definitions of a header.
#[derive(Debug, Default)]
pub(crate) struct Header {
    /// Name, as it is included.
    pub(crate) name: String,
    /// Structures and unions with a name.
    pub(crate) structs: BTreeMap<String, Body>,
    /// Enumerations: their text, and the names of their values.
    pub(crate) enums: Vec<(String, Vec<String>)>,
    /// Macros without parameters that have a value.
    pub(crate) defines: Vec<String>,
}

/// Text between the braces of a structure or union.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Body {
    /// `true` if the members share their place.
    pub(crate) union: bool,
    /// The members, in order.
    pub(crate) members: Vec<Member>,
}

/// A member of a structure or union.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Member {
    /// Its name; none for an anonymous structure or union.
    pub(crate) name: Option<String>,
    /// Its type as written; empty if `body` has it.
    pub(crate) c_type: String,
    /// `true` if it is an array without a size or of size 0, which names the data after it.
    pub(crate) flexible: bool,
    /// Its own members, if they are defined in place.
    pub(crate) body: Option<Body>,
}

impl Header {
    /// Reads a public header.
    pub(crate) fn parse(name: &str, text: &str) -> Self {
        let (code, defines) = preprocess(&without_comments(text));
        let mut header = Self { name: name.to_owned(), defines, ..Self::default() };
        header.read_structs(&tokenize(&code));
        header.read_enums(&tokenize(&code));
        header
    }

    /// Reads a header of the kernel's own: its enumerations.
    pub(crate) fn parse_own(name: &str, text: &str) -> Self {
        let (code, _) = preprocess(&without_comments(text));
        let mut header = Self { name: name.to_owned(), ..Self::default() };
        header.read_enums(&tokenize(&code));
        header
    }

    fn read_structs(&mut self, tokens: &[String]) {
        let mut at = 0;
        while at < tokens.len() {
            let (kind, rest) = (tokens[at].as_str(), &tokens[at + 1..]);
            if matches!(kind, "struct" | "union") && rest.get(1).is_some_and(|t| t == "{") {
                at += 3;
                let body = members(tokens, &mut at, kind == "union");
                self.structs.insert(rest[0].clone(), body);
            } else {
                at += 1;
            }
        }
    }

    fn read_enums(&mut self, tokens: &[String]) {
        for (at, _) in tokens.iter().enumerate().filter(|(_, token)| *token == "enum") {
            let enumeration = &tokens[at..];
            if enumeration[1] == "{" || enumeration[2] == "{" {
                self.enums.push(self::enumeration(&enumeration[..=position(enumeration, "}")]));
            }
        }
    }

    /// Returns `true` if the header defines a constant.
    pub(crate) fn has_constant(&self, name: &str) -> bool {
        self.constants().any(|constant| constant == name)
    }

    /// Returns every constant that the header defines.
    pub(crate) fn constants(&self) -> impl Iterator<Item = &str> {
        let values = self.enums.iter().flat_map(|(_, names)| names);
        values.chain(&self.defines).map(String::as_str)
    }

    /// Returns the body of a structure's member that is defined in place or is a structure of the header.
    pub(crate) fn body_at(&self, name: &str, path: &str) -> Option<&Body> {
        let mut body = self.structs.get(name)?;
        for step in path.split('.').filter(|step| !step.is_empty()) {
            body = self.body_of(body.find(step)?)?;
        }
        Some(body)
    }

    /// Returns the body of a member: its own, or that of the structure that it names.
    fn body_of<'a>(&'a self, member: &'a Member) -> Option<&'a Body> {
        member.body.as_ref().or_else(|| {
            let (kind, name) = member.c_type.split_once(' ')?;
            if matches!(kind, "struct" | "union") { self.structs.get(name) } else { None }
        })
    }
}

impl Body {
    /// Finds a member by its name, also in anonymous structures and unions.
    pub(crate) fn find(&self, name: &str) -> Option<&Member> {
        self.members.iter().find_map(|member| match (&member.name, &member.body) {
            (Some(own), _) => (own == name).then_some(member),
            (None, Some(body)) => body.find(name),
            (None, None) => None,
        })
    }

    /// Returns `true` if a member shares its place with others.
    pub(crate) fn shares(&self, name: &str) -> bool {
        self.union
            || self.members.iter().any(|member| match (&member.name, &member.body) {
                (None, Some(body)) => body.find(name).is_some() && body.shares(name),
                _ => false,
            })
    }
}

fn without_comments(text: &str) -> String {
    let mut code = String::new();
    let mut rest = text;
    while let Some((before, comment)) = rest.split_once("/*") {
        code.push_str(before);
        code.push(' ');
        rest = comment.split_once("*/").expect("a comment should end").1;
    }
    code.push_str(rest);
    let lines: Vec<&str> =
        code.lines().map(|line| line.split_once("//").map_or(line, |(before, _)| before)).collect();
    lines.join("\n")
}

/// Removes the preprocessor's lines and the parts for the kernel only. Returns the rest, and the macros.
fn preprocess(text: &str) -> (String, Vec<String>) {
    let mut code = String::new();
    let mut defines = Vec::new();
    // For each open conditional: `true` if it is for the kernel only.
    let mut conditionals = Vec::new();
    let joined = text.replace("\\\n", " ");
    for line in joined.lines() {
        let Some(directive) = line.trim_start().strip_prefix('#') else {
            if !conditionals.contains(&true) {
                code.push_str(line);
                code.push('\n');
            }
            continue;
        };
        let words: Vec<&str> = directive.split_whitespace().collect();
        match words[..] {
            ["if" | "ifdef" | "ifndef", ..] => {
                conditionals.push(words[0] == "ifdef" && words[1] == "__KERNEL__");
            }
            ["endif", ..] => {
                conditionals.pop().expect("an #endif should have its #if");
            }
            ["else" | "elif", ..] => assert!(!conditionals.contains(&true), "{line}"),
            ["define", name, _, ..] if !name.contains('(') => defines.push(name.to_owned()),
            _ => {}
        }
    }
    (code, defines)
}

fn tokenize(code: &str) -> Vec<String> {
    let mut tokens: Vec<String> = Vec::new();
    let mut word = String::new();
    for c in code.chars() {
        if c.is_alphanumeric() || c == '_' {
            word.push(c);
            continue;
        }
        if !word.is_empty() {
            tokens.push(std::mem::take(&mut word));
        }
        if !c.is_whitespace() {
            tokens.push(c.to_string());
        }
    }
    tokens
}

fn position(tokens: &[String], token: &str) -> usize {
    tokens.iter().position(|t| t == token).unwrap_or_else(|| panic!("no {token} in {tokens:?}"))
}

fn enumeration(tokens: &[String]) -> (String, Vec<String>) {
    let values = &tokens[position(tokens, "{") + 1..tokens.len() - 1];
    let names = values.split(|t| t == ",").filter_map(|value| value.first().cloned());
    (tokens.join(" ").replace("< <", "<<"), names.collect())
}

/// Reads members up to and with the closing brace.
fn members(tokens: &[String], at: &mut usize, union: bool) -> Body {
    let mut body = Body { union, members: Vec::new() };
    while tokens[*at] != "}" {
        let nested =
            match (tokens[*at].as_str(), tokens[*at + 1].as_str(), tokens[*at + 2].as_str()) {
                (kind @ ("struct" | "union"), "{", _) => Some((kind == "union", 2)),
                (kind @ ("struct" | "union"), _, "{") => Some((kind == "union", 3)),
                _ => None,
            }
            .map(|(union, skip)| {
                *at += skip;
                members(tokens, at, union)
            });
        let end = *at + position(&tokens[*at..], ";");
        body.members.extend(declaration(&tokens[*at..end], nested));
        *at = end + 1;
    }
    *at += 1;
    body
}

/// Returns the members of one declaration without its semicolon: `TYPE NAME, NAME[N];`.
///
/// The declaration may also be the text that follows a body in place.
fn declaration(tokens: &[String], body: Option<Body>) -> Vec<Member> {
    if tokens.is_empty() {
        return vec![Member { name: None, c_type: String::new(), flexible: false, body }];
    }
    // Macros of a type and a name. RDMA_UAPI_PTR is a pointer in the place of an __aligned_u64.
    if let [kind @ ("__DECLARE_FLEX_ARRAY" | "RDMA_UAPI_PTR"), "(", .., name, ")"] =
        *tokens.iter().map(String::as_str).collect::<Vec<_>>()
    {
        let flexible = kind == "__DECLARE_FLEX_ARRAY";
        let c_type = if flexible { "" } else { "__aligned_u64" };
        let (name, c_type) = (Some(name.to_owned()), c_type.to_owned());
        return vec![Member { name, c_type, flexible, body: None }];
    }
    let mut c_type = None;
    tokens
        .split(|t| t == ",")
        .map(|declarator| {
            let end = declarator.iter().position(|t| t == "[").unwrap_or(declarator.len());
            let (name, before) =
                declarator[..end].split_last().expect("a member should have a name");
            assert!(name.starts_with(|c: char| c.is_alphabetic() || c == '_'), "{declarator:?}");
            Member {
                name: Some(name.clone()),
                c_type: c_type.get_or_insert_with(|| before.join(" ")).clone(),
                flexible: matches!(declarator.get(end + 1).map(String::as_str), Some("]" | "0")),
                body: body.clone(),
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "
        #ifndef EXAMPLE_H
        #define EXAMPLE_H
        #define EXAMPLE_SIZE 4 /* bytes */
        #define EXAMPLE_SUM \\
            (1 + 2)
        #define EXAMPLE_MACRO(x) (x)
        enum { EXAMPLE_A, EXAMPLE_B = 1 << 1, }; // values
        enum example_kind { EXAMPLE_KIND = (1 << 4) };
        struct example;
        struct example {
            __aligned_u64 a; /* struct hidden { */
            __u8 b[EXAMPLE_SIZE], c;
            union { struct { __u32 d; } e; __u64 f; } g;
            union { __u32 h; struct other *i; };
        #ifdef __KERNEL__
            void *j;
        #endif
            struct other k[], none[0];
        };
        struct other { RDMA_UAPI_PTR(struct example *, l); union { __DECLARE_FLEX_ARRAY(struct x, m); }; };
        #endif
    ";

    #[test]
    fn structures_and_members_are_read() {
        let header = Header::parse("example.h", TEXT);
        assert_eq!(header.structs.keys().collect::<Vec<_>>(), ["example", "other"]);
        let example = &header.structs["example"];
        let names = example.members.iter().map(|m| m.name.as_deref().unwrap_or(""));
        assert_eq!(names.collect::<Vec<_>>(), ["a", "b", "c", "g", "", "k", "none"]);
        assert_eq!(example.find("a").unwrap().c_type, "__aligned_u64");
        assert_eq!(example.find("c").unwrap().c_type, "__u8");
        assert_eq!(example.find("i").unwrap().c_type, "struct other *");
        let flexible = example.members.iter().map(|m| m.flexible);
        assert_eq!(flexible.collect::<Vec<_>>(), [false, false, false, false, false, true, true]);
        assert!(example.find("j").is_none());
        assert_eq!(header.body_at("example", "g.e").unwrap().members[0].c_type, "__u32");
        assert!(header.body_at("example", "g").unwrap().union);
        assert_eq!([example.shares("a"), example.shares("h")], [false, true]);
        assert_eq!(header.body_at("example", "k").unwrap().members.len(), 2);
        assert_eq!(header.structs["other"].find("l").unwrap().c_type, "__aligned_u64");
        assert!(header.structs["other"].find("m").unwrap().flexible);
    }

    #[test]
    fn constants_are_read() {
        let header = Header::parse("example.h", TEXT);
        let constants: Vec<&str> = header.constants().collect();
        assert_eq!(
            constants,
            ["EXAMPLE_A", "EXAMPLE_B", "EXAMPLE_KIND", "EXAMPLE_SIZE", "EXAMPLE_SUM"]
        );
        assert_eq!(header.enums[0].0, "enum { EXAMPLE_A , EXAMPLE_B = 1 << 1 , }");
    }
}
