//! From text to tokens.
//!
//! Comments and blanks are removed. `#include <...>` is a token; every other preprocessor directive
//! is refused.

use crate::source::{Checked, Span, problem};
use num_bigint::BigInt;
use std::fmt;
use std::sync::Arc;

/// Most bytes of a program.
pub(crate) const MOST_BYTES: usize = 1 << 20;

/// Most digits of a number: enough for any bit-string, and quick to convert.
const MOST_DIGITS: usize = 200;

/// Kind of a token.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Kind {
    /// A name or a keyword.
    Name(Arc<str>),
    /// A number; width and signedness if its prefix gives them.
    Number(BigInt, Option<(u32, bool)>),
    /// A string, without its quotes.
    Text(Arc<str>),
    /// An operator or a bracket.
    Punct(&'static str),
    /// Text between `#include <` and `>`.
    Include(Arc<str>),
    /// The end of the text.
    End,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => write!(f, "`{name}`"),
            Self::Number(value, None) => write!(f, "`{value}`"),
            Self::Number(value, Some((width, false))) => write!(f, "`{width}w{value}`"),
            Self::Number(value, Some((width, true))) => write!(f, "`{width}s{value}`"),
            Self::Text(text) => write!(f, "the string {text:?}"),
            Self::Punct(punct) => write!(f, "`{punct}`"),
            Self::Include(name) => write!(f, "`#include <{name}>`"),
            Self::End => f.write_str("the end of the file"),
        }
    }
}

/// A token with its location.
#[derive(Clone, Debug)]
pub(crate) struct Token {
    pub(crate) kind: Kind,
    pub(crate) span: Span,
}

/// Longest first. `>>` is two tokens, since it may end two lists of type arguments.
const PUNCTS: [&str; 39] = [
    "&&&", "...", "|+|", "|-|", "{#}", "<<", "&&", "||", "==", "!=", "<=", ">=", "++", "..", "+",
    "-", "*", "/", "%", "&", "|", "^", "~", "!", "<", ">", "=", "?", ":", ";", ",", ".", "(", ")",
    "[", "]", "{", "}", "@",
];

struct Lexer<'t> {
    text: &'t str,
    number: u8,
    at: usize,
}

/// Tokens of a text; the last is [`Kind::End`].
pub(crate) fn tokens(number: u8, text: &str) -> Checked<Vec<Token>> {
    let mut lexer = Lexer { text, number, at: 0 };
    if text.len() > MOST_BYTES {
        let most = MOST_BYTES >> 20;
        let what = format!("the file has more than {most} MiB; a P4 program is smaller");
        return problem(lexer.since(0), what);
    }
    let mut tokens = Vec::new();
    loop {
        let token = lexer.token()?;
        let is_end = token.kind == Kind::End;
        tokens.push(token);
        if is_end {
            return Ok(tokens);
        }
    }
}

impl Lexer<'_> {
    fn rest(&self) -> &str {
        &self.text[self.at..]
    }

    fn since(&self, start: usize) -> Span {
        Span { text: self.number, start: start as u32, end: self.at as u32 }
    }

    fn take_while(&mut self, wanted: impl Fn(char) -> bool) -> String {
        let rest = self.rest();
        let length = rest.find(|one| !wanted(one)).unwrap_or(rest.len());
        let taken = rest[..length].to_owned();
        self.at += length;
        taken
    }

    fn skip_blanks(&mut self) -> Checked<()> {
        loop {
            let before = self.at;
            self.take_while(char::is_whitespace);
            if self.rest().starts_with("//") {
                self.take_while(|one| one != '\n');
            } else if self.rest().starts_with("/*") {
                match self.rest().find("*/") {
                    Some(length) => self.at += length + 2,
                    None => {
                        self.at += 2;
                        return problem(self.since(before), "this comment has no end; write `*/`");
                    }
                }
            }
            if self.at == before {
                return Ok(());
            }
        }
    }

    fn token(&mut self) -> Checked<Token> {
        self.skip_blanks()?;
        let start = self.at;
        let Some(first) = self.rest().chars().next() else {
            return Ok(Token { kind: Kind::End, span: self.since(start) });
        };
        let kind = match first {
            'a'..='z' | 'A'..='Z' | '_' => self.name(),
            '0'..='9' => self.number()?,
            '"' => self.string()?,
            '#' => self.directive()?,
            _ => self.punct(first)?,
        };
        Ok(Token { kind, span: self.since(start) })
    }

    fn name(&mut self) -> Kind {
        match &*self.take_while(|one| one.is_ascii_alphanumeric() || one == '_') {
            "_" => Kind::Punct("_"),
            name => Kind::Name(name.into()),
        }
    }

    fn punct(&mut self, first: char) -> Checked<Kind> {
        let start = self.at;
        let found = PUNCTS.iter().find(|punct| self.rest().starts_with(**punct));
        let Some(punct) = found else {
            self.at += first.len_utf8();
            let what = format!("{first:?} does not belong in a P4 program; delete it");
            return problem(self.since(start), what);
        };
        self.at += punct.len();
        Ok(Kind::Punct(punct))
    }

    /// Reads a number: digits, perhaps preceded by width, sign and base.
    fn number(&mut self) -> Checked<Kind> {
        let start = self.at;
        let word = self.take_while(|one| one.is_ascii_alphanumeric() || one == '_');
        let wrong = |lexer: &Self| {
            let what = format!("`{word}` is no number; write one such as 10, 0x1F, 8w255 or 4s7");
            problem(lexer.since(start), what)
        };
        if word.len() > MOST_DIGITS {
            let what = format!("a number has {MOST_DIGITS} digits at most");
            return problem(self.since(start), what);
        }
        let is_sign = |one: char| one == 'w' || one == 's';
        let (width, digits) = match word.find(is_sign) {
            Some(place) => {
                let (width, rest) = word.split_at(place);
                let Ok(bits) = width.replace('_', "").parse::<u32>() else { return wrong(self) };
                (Some((bits, rest.starts_with('s'))), &rest[1..])
            }
            None => (None, &*word),
        };
        let (radix, digits) = match digits.get(..2) {
            Some("0x" | "0X") => (16, &digits[2..]),
            Some("0b" | "0B") => (2, &digits[2..]),
            Some("0o" | "0O") => (8, &digits[2..]),
            Some("0d" | "0D") => (10, &digits[2..]),
            _ => (10, digits),
        };
        let digits = digits.replace('_', "");
        match BigInt::parse_bytes(digits.as_bytes(), radix) {
            Some(value) if !digits.is_empty() => Ok(Kind::Number(value, width)),
            _ => wrong(self),
        }
    }

    fn string(&mut self) -> Checked<Kind> {
        let start = self.at;
        self.at += 1;
        let mut text = String::new();
        loop {
            let mut chars = self.rest().chars();
            let taken = match (chars.next(), chars.next()) {
                (Some('"'), _) => {
                    self.at += 1;
                    return Ok(Kind::Text(text.into()));
                }
                (Some('\\'), Some(escaped)) => {
                    self.at += 1;
                    match escaped {
                        'n' => '\n',
                        't' => '\t',
                        other => other,
                    }
                }
                (Some('\n') | None, _) => {
                    return problem(self.since(start), "this string has no end; write `\"`");
                }
                (Some(other), _) => other,
            };
            text.push(taken);
            self.at += self.rest().chars().next().map_or(0, char::len_utf8);
        }
    }

    fn directive(&mut self) -> Checked<Kind> {
        let start = self.at;
        let line = self.take_while(|one| one != '\n');
        let line = line.split("//").next().unwrap_or_default();
        let words = line[1..].trim();
        let name = words.strip_prefix("include").map(str::trim);
        match name.and_then(|name| name.strip_prefix('<')?.strip_suffix('>')) {
            Some(name) => Ok(Kind::Include(name.trim().into())),
            None => problem(
                self.since(start),
                "of the preprocessor only `#include <...>` is supported; write constants as \
                 `const`",
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> String {
        let tokens = tokens(0, text).expect("tokens");
        tokens.iter().map(|token| token.kind.to_string()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn every_kind_of_token_is_told_from_its_neighbours() {
        let text =
            "#include <core.p4>\nbit<8>>x /* c */ = 8w0xF_F ++ 4s7 &&& _ |+| \"a\\\"\" // end";
        let expected = "`#include <core.p4>` `bit` `<` `8` `>` `>` `x` `=` `8w255` `++` `4s7` \
                        `&&&` `_` `|+|` the string \"a\\\"\" the end of the file";
        assert_eq!(words(text), expected);
    }

    #[test]
    fn what_is_no_token_is_refused_with_a_remedy() {
        for (text, message) in [
            ("a $", "'$' does not belong in a P4 program; delete it"),
            ("/* x", "this comment has no end; write `*/`"),
            ("\"x\n\"", "this string has no end; write `\"`"),
            ("0x", "`0x` is no number; write one such as 10, 0x1F, 8w255 or 4s7"),
            ("12ab", "`12ab` is no number; write one such as 10, 0x1F, 8w255 or 4s7"),
        ] {
            let problem = tokens(0, text).expect_err(text);
            assert_eq!(problem.message, message);
        }
        assert!(tokens(0, "#define A 1").expect_err("").message.contains("preprocessor"));
        assert!(tokens(0, &"1".repeat(300)).expect_err("").message.contains("digits"));
    }
}
