//! Splits long lists of rules into pieces that are parsed one after the other.
//!
//! A TOML tree takes kilobytes per rule, gigabytes for a million rules. Rules at the end of a file
//! can be parsed a few thousand at a time instead. A line `[[rule]]` begins a table wherever it
//! stands, except inside a multi-line string, so a file with such strings is not split.

use std::ops::Range;

/// Rules per piece.
pub(super) const RULES: usize = 4096;

/// A piece of a file that contains only rules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    /// Byte range of the piece.
    pub(super) range: Range<usize>,
    /// Number of rules in the piece.
    pub(super) rules: usize,
}

/// Returns the end of the first part of a file, and the pieces after it, each with at most `rules`
/// rules. A file with fewer rules has no pieces.
pub(super) fn cut(text: &str, rules: usize) -> (usize, Vec<Piece>) {
    let starts =
        if text.contains("\"\"\"") || text.contains("'''") { Vec::new() } else { last_rules(text) };
    if starts.len() <= rules {
        return (text.len(), Vec::new());
    }
    let end = |at: usize| starts.get(at).copied().unwrap_or(text.len());
    let piece = |(at, starts): (usize, &[usize])| Piece {
        range: starts[0]..end(at * rules + starts.len()),
        rules: starts.len(),
    };
    (starts[0], starts.chunks(rules).enumerate().map(piece).collect())
}

/// Offsets of the rules that follow the last other table.
fn last_rules(text: &str) -> Vec<usize> {
    let mut starts = Vec::new();
    let mut offset = 0;
    for line in text.split_inclusive('\n') {
        let header = line.trim();
        if header.starts_with('[') {
            match header.split('#').next().unwrap_or_default().trim_end() {
                "[[rule]]" => starts.push(offset),
                "[rule.match]" => {}
                _ => starts.clear(),
            }
        }
        offset += line.len();
    }
    starts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_rules_that_come_last_are_cut() {
        let text = "a = 1\n[[rule]]\n[nat]\n[[rule]] # one\nx = 1\n[rule.match]\n\n  [[rule]]\n";
        let one = text.find("[[rule]] #").unwrap();
        let two = text.rfind("  [[rule]]").unwrap();
        let piece = |range, rules| Piece { range, rules };
        assert_eq!(cut(text, 2), (text.len(), vec![]));
        assert_eq!(cut(text, 1), (one, vec![piece(one..two, 1), piece(two..text.len(), 1)]));
        let three = format!("{text}[[rule]]");
        let last = piece(text.len()..three.len(), 1);
        assert_eq!(cut(&three, 2), (one, vec![piece(one..text.len(), 2), last]));
        for whole in [format!("{text}[[pool]]"), format!("{text}a = ''' '''"), String::new()] {
            assert_eq!(cut(&whole, 1), (whole.len(), vec![]));
        }
    }
}
