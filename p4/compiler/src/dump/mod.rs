//! Output of the compiler's stages as text, for people and for tests.

mod ir;
mod tree;

pub(crate) use tree::tree;

use crate::lexer::Token;
use crate::source::Lines;

/// Tokens, one a line: location and kind.
pub(crate) fn tokens(tokens: &[Token], text: &str) -> Vec<String> {
    let lines = Lines::new(text);
    let shown = |token: &Token| {
        let (line, column) = lines.position(token.span);
        format!("{line}:{column} {}", token.kind)
    };
    tokens.iter().map(shown).collect()
}
