//! Measured figures in a text without a link to their file.
//!
//! A figure is a number before a unit of measurement. Code, and numbers in links, are ignored.

use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd};

/// Units of measured figures. Units of settings and of conditions (bytes, MiB, seconds) are
/// excluded.
const UNITS: [&str; 15] = [
    "ns",
    "us",
    "ms",
    "Mpps",
    "kpps",
    "Mbit/s",
    "Gbit/s",
    "%",
    "times",
    "cycles",
    "instructions",
    "million",
    "millions",
    "M/s",
    "M",
];

/// A measured figure without a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bare {
    /// Line, from 1.
    pub line: usize,
    /// Number and unit.
    pub text: String,
}

/// Numbers with a unit outside of links, in order.
pub fn bare_figures(markdown: &str) -> Vec<Bare> {
    let (mut depth, mut found) = (0_u32, Vec::new());
    for (event, range) in Parser::new_ext(markdown, Options::ENABLE_TABLES).into_offset_iter() {
        match event {
            Event::Start(Tag::Link { .. } | Tag::CodeBlock(_)) => depth += 1,
            Event::End(TagEnd::Link | TagEnd::CodeBlock) => depth -= 1,
            Event::Text(text) if depth == 0 => {
                let line = 1 + markdown[..range.start].matches('\n').count();
                found.extend(in_words(&text).map(|text| Bare { line, text }));
            }
            _ => {}
        }
    }
    found
}

/// Pairs of a number and a unit.
fn in_words(text: &str) -> impl Iterator<Item = String> {
    let words: Vec<&str> = text.split([' ', '\n', '\u{a0}']).collect();
    let pairs: Vec<String> = words
        .windows(2)
        .filter(|pair| is_number(pair[0]) && is_unit(pair[1]))
        .map(|pair| pair.join(" "))
        .collect();
    pairs.into_iter()
}

fn is_number(word: &str) -> bool {
    let word = word.trim_matches(['(', ',', ';', '"', '~', '<', '>']);
    let is_part = |c: char| c.is_ascii_digit() || c == '.' || c == ',';
    word.starts_with(|c: char| c.is_ascii_digit()) && word.chars().all(is_part)
}

fn is_unit(word: &str) -> bool {
    UNITS.contains(&word.trim_matches(['(', ')', ',', ';', '.', ':', '"']))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_with_units_are_found_outside_of_links_and_code() {
        let text = "One packet takes 71 ns.\n\n\
                    It has [5.2](a.json#/x) Mpps, `3 ms`, 16 addresses,\n\
                    and (2.5 times) more than 1,000 sessions.\n\n    count = 20 %\n\n| a |\n|---|\n\
                    | 12 M |\n";
        let found: Vec<(usize, String)> =
            bare_figures(text).into_iter().map(|bare| (bare.line, bare.text)).collect();
        let wanted = [(1, "71 ns."), (4, "(2.5 times)"), (10, "12 M")];
        assert_eq!(found, wanted.map(|(line, text)| (line, text.to_owned())));
    }
}
