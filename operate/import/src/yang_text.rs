//! Text of YANG's syntax (RFC 7950 section 6.3): statements with a keyword, perhaps a value, and
//! `;` or a block.

use crate::ImportError;
use std::borrow::Cow;

/// Most blocks inside each other.
const MOST_DEPTH: usize = 32;

/// A statement. One with `;` has no statements of its own.
#[derive(Debug)]
pub(crate) struct Statement<'t> {
    pub(crate) key: &'t str,
    pub(crate) value: Option<Cow<'t, str>>,
    pub(crate) inner: Vec<Self>,
    pub(crate) line: usize,
}

impl<'t> Statement<'t> {
    /// The value; empty without one.
    pub(crate) fn text(&self) -> &str {
        self.value.as_deref().unwrap_or_default()
    }

    /// The first inner statement with a keyword.
    pub(crate) fn get(&self, key: &str) -> Option<&Statement<'t>> {
        self.inner.iter().find(|statement| statement.key == key)
    }
}

enum Token<'t> {
    Word(Cow<'t, str>, &'t str),
    Open,
    Close,
    End,
}

struct Lexer<'t> {
    rest: &'t str,
    line: usize,
}

/// Reads all statements of a text.
///
/// # Errors
/// [`ImportError::Malformed`] with the line where the syntax breaks.
pub(crate) fn statements(text: &str) -> Result<Vec<Statement<'_>>, ImportError> {
    let mut lexer = Lexer { rest: text, line: 1 };
    let mut open: Vec<Statement<'_>> = Vec::new();
    let mut done: Vec<Statement<'_>> = Vec::new();
    let mut words: Vec<(Cow<'_, str>, &str, usize)> = Vec::new();
    while let Some(token) = lexer.token()? {
        let line = lexer.line;
        let wrong = |message: &str| Err(ImportError::Malformed { line, message: message.into() });
        match token {
            Token::Word(..) if words.len() >= 2 => {
                let lines = [words[0].2, words[1].2, line];
                // A statement seldom goes on in the next line: its end is missing.
                if let Some(ended) = lines.windows(2).find(|pair| pair[0] < pair[1]) {
                    let message = "lacks a ; at its end".into();
                    return Err(ImportError::Malformed { line: ended[0], message });
                }
                return wrong("has a third word; a statement is KEYWORD VALUE; or KEYWORD {");
            }
            Token::Word(word, raw) => words.push((word, raw, line)),
            Token::Open | Token::End => {
                let mut words = words.drain(..);
                let Some((_, key, start)) = words.next() else {
                    return wrong("has no keyword before it; a statement is KEYWORD VALUE;");
                };
                let value = words.next().map(|(value, ..)| value);
                let statement = Statement { key, value, inner: Vec::new(), line: start };
                match token {
                    Token::Open if open.len() >= MOST_DEPTH => {
                        return wrong("opens one more block inside others than are read");
                    }
                    Token::Open => open.push(statement),
                    _ => add(&mut open, &mut done, statement),
                }
            }
            Token::Close if !words.is_empty() => return wrong("lacks a ; before the }"),
            Token::Close => match open.pop() {
                Some(block) => add(&mut open, &mut done, block),
                None => return wrong("closes a block that nothing opened"),
            },
        }
    }
    let last = open.last().map(|block| (block.line, "opens a block that nothing closes"));
    let last = last.or_else(|| words.first().map(|word| (word.2, "lacks a ; at its end")));
    match last {
        Some((line, message)) => Err(ImportError::Malformed { line, message: message.into() }),
        None => Ok(done),
    }
}

fn add<'t>(open: &mut [Statement<'t>], done: &mut Vec<Statement<'t>>, statement: Statement<'t>) {
    match open.last_mut() {
        Some(block) => block.inner.push(statement),
        None => done.push(statement),
    }
}

impl<'t> Lexer<'t> {
    /// Takes bytes from the text, and counts their lines.
    fn take(&mut self, len: usize) -> &'t str {
        let (taken, rest) = self.rest.split_at(len);
        self.line += taken.bytes().filter(|byte| *byte == b'\n').count();
        self.rest = rest;
        taken
    }

    fn token(&mut self) -> Result<Option<Token<'t>>, ImportError> {
        self.skip()?;
        let Some(first) = self.rest.chars().next() else { return Ok(None) };
        let token = match first {
            '{' => Token::Open,
            '}' => Token::Close,
            ';' => Token::End,
            '"' | '\'' => return self.quoted(first).map(Some),
            _ => {
                let ends = |one: char| one.is_whitespace() || matches!(one, '{' | '}' | ';' | '"');
                let len = self.rest.find(ends).unwrap_or(self.rest.len());
                let word = self.take(len);
                return Ok(Some(Token::Word(word.into(), word)));
            }
        };
        self.take(1);
        Ok(Some(token))
    }

    /// Passes over white space and comments.
    fn skip(&mut self) -> Result<(), ImportError> {
        loop {
            let blank = self.rest.len() - self.rest.trim_start().len();
            self.take(blank);
            let len = if self.rest.starts_with("//") {
                self.rest.find('\n').unwrap_or(self.rest.len())
            } else if self.rest.starts_with("/*") {
                let end = self.rest.find("*/").map(|end| end + 2);
                end.ok_or_else(|| ImportError::Malformed {
                    line: self.line,
                    message: "begins a comment that has no end; write */".into(),
                })?
            } else {
                return Ok(());
            };
            self.take(len);
        }
    }

    fn quoted(&mut self, mark: char) -> Result<Token<'t>, ImportError> {
        let mut value = String::new();
        let mut letters = self.rest.char_indices().skip(1);
        let end = loop {
            match letters.next() {
                Some((at, one)) if one == mark => break at,
                Some((_, '\\')) if mark == '"' => match letters.next() {
                    Some((_, 'n')) => value.push('\n'),
                    Some((_, 't')) => value.push('\t'),
                    Some((_, one)) => value.push(one),
                    None => {}
                },
                Some((_, one)) => value.push(one),
                None => {
                    return Err(ImportError::Malformed {
                        line: self.line,
                        message: format!("begins a string that has no end; write {mark}"),
                    });
                }
            }
        };
        let raw = self.take(end + 1);
        Ok(Token::Word(value.into(), raw))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_have_values_blocks_and_lines() {
        let text =
            "// a comment\na {\n  b 1; /* two\nlines */ c \"x \\\"y;\";\n  d { e; }\n}\nf 'g';\n";
        let all = statements(text).expect("good text");
        assert_eq!((all.len(), all[0].key, all[0].line), (2, "a", 2));
        assert_eq!(all[0].get("b").map(Statement::text), Some("1"));
        let c = all[0].get("c").expect("it is there");
        assert_eq!((c.text(), c.line), ("x \"y;", 4));
        assert!(all[0].get("d").is_some_and(|d| d.get("e").is_some_and(|e| e.value.is_none())));
        assert_eq!((all[1].text(), all[1].line), ("g", 7));
    }

    #[test]
    fn broken_syntax_has_a_line() {
        for (text, expected) in [
            ("a {\n b 1\n}", "line 3: lacks a ; before the }"),
            ("a {\n b 1;\n", "line 1: opens a block that nothing closes"),
            ("a 1;\n}", "line 2: closes a block"),
            ("a 1 2;", "line 1: has a third word"),
            ("a {\n b 1\n c 2;\n}", "line 2: lacks a ;"),
            ("a {\n b\n c 2;\n}", "line 2: lacks a ;"),
            ("a {\n b 1\n\n c { d; }\n}", "line 2: lacks a ;"),
            ("a\n b 1;\nc\n {", "line 1: lacks a ;"),
            ("\n;", "line 2: has no keyword"),
            ("a \"b;\n", "line 1: begins a string"),
            ("a; /* b", "line 1: begins a comment"),
            ("a", "line 1: lacks a ;"),
        ] {
            let error = statements(text).expect_err(text).to_string();
            assert!(error.starts_with(expected), "{error}");
        }
        assert!(statements(&"a {".repeat(100)).is_err());
    }
}
