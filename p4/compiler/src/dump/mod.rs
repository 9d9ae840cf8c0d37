//! What the stages of the compiler make of a program, as text: for people to read and tests to
//! compare.

mod ir;
mod tree;

pub(crate) use tree::tree;

use crate::lexer::Token;
use crate::source::Lines;

/// Tokens, one a line: where it begins, and what it is.
pub(crate) fn tokens(tokens: &[Token], text: &str) -> Vec<String> {
    let lines = Lines::new(text);
    let shown = |token: &Token| {
        let (line, column) = lines.position(token.span);
        format!("{line}:{column} {}", token.kind)
    };
    tokens.iter().map(shown).collect()
}
