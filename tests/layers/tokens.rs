//! Splits Rust source into the tokens that matter for imports: names, keywords and punctuation.

/// A token. Literals, lifetimes and comments produce none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Token {
    Word(String),
    Mark(char),
}

impl Token {
    pub(crate) fn is(&self, text: &str) -> bool {
        match self {
            Self::Word(word) => word == text,
            Self::Mark(mark) => text.chars().eq([*mark]),
        }
    }
}

/// Returns the tokens of `source`, which must be valid Rust.
pub(crate) fn tokens(source: &str) -> Vec<Token> {
    let mut rest = source;
    let mut tokens = Vec::new();
    while let Some(first) = rest.chars().next() {
        let length = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if rest.starts_with("/*") {
            block_comment(rest)
        } else if let Some(length) = string(rest) {
            length
        } else if first == '\'' {
            quote(rest)
        } else if rest.starts_with("b'") {
            1 + quote(&rest[1..])
        } else if is_word(first) {
            let length = word(rest);
            if !first.is_ascii_digit() {
                tokens.push(Token::Word(rest[..length].to_owned()));
            }
            length
        } else {
            if !first.is_whitespace() {
                tokens.push(Token::Mark(first));
            }
            first.len_utf8()
        };
        rest = &rest[length..];
    }
    tokens
}

fn is_word(character: char) -> bool {
    character.is_alphanumeric() || character == '_'
}

fn word(text: &str) -> usize {
    text.find(|character| !is_word(character)).unwrap_or(text.len())
}

/// Returns the length of a block comment, which may contain others.
fn block_comment(text: &str) -> usize {
    let mut depth = 0;
    let mut at = 0;
    while at < text.len() {
        let rest = &text.as_bytes()[at..];
        (depth, at) = match rest {
            [b'/', b'*', ..] => (depth + 1, at + 2),
            [b'*', b'/', ..] => (depth - 1, at + 2),
            _ => (depth, at + 1),
        };
        if depth == 0 {
            break;
        }
    }
    at
}

/// Returns the length of the string literal at the beginning of `text`, if there is one.
fn string(text: &str) -> Option<usize> {
    let prefix = ["br", "cr", "r", "b", "c", ""];
    prefix.into_iter().find_map(|prefix| {
        let after = text.strip_prefix(prefix)?;
        let hashes = after.len() - after.trim_start_matches('#').len();
        let is_raw = prefix.ends_with('r');
        if hashes > 0 && !is_raw {
            return None;
        }
        let inside = after[hashes..].strip_prefix('"')?;
        let length = match is_raw {
            true => inside.find(&format!("\"{}", "#".repeat(hashes)))? + 1 + hashes,
            false => escaped(inside, '"'),
        };
        Some(prefix.len() + hashes + 1 + length)
    })
}

/// Returns the length up to and including the `end` that no backslash escapes.
fn escaped(text: &str, end: char) -> usize {
    let mut characters = text.char_indices();
    while let Some((at, character)) = characters.next() {
        match character {
            '\\' => drop(characters.next()),
            _ if character == end => return at + end.len_utf8(),
            _ => {}
        }
    }
    text.len()
}

/// Returns the length of a character literal or of a lifetime.
fn quote(text: &str) -> usize {
    let mut characters = text[1..].chars();
    let (first, second) = (characters.next(), characters.next());
    match (first, second) {
        (Some('\\'), _) | (_, Some('\'')) => 1 + escaped(&text[1..], '\''),
        _ => 1 + word(&text[1..]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn literals_and_comments_yield_no_tokens() {
        let source = r###"
            /* a /* nested */ comment */ let s = "use \" super::x"; // use super::y
            let r = r#"use "super::z"#; let b = b'\''; let c = ['\'', 'x', '"'];
            fn f<'a>(n: &'a u8) -> u64 { 0x1f_u64 }
        "###;
        let text: Vec<String> = tokens(source)
            .iter()
            .map(|token| match token {
                Token::Word(word) => word.clone(),
                Token::Mark(mark) => mark.to_string(),
            })
            .collect();
        let expected = "let s = ; let r = ; let b = ; let c = [ , , ] ; \
            fn f < > ( n : & u8 ) - > u64 { }";
        assert_eq!(text.join(" "), expected);
    }
}
