//! The documentation and the reader name the same keys, and the documentation's examples are read.

use natgate_control::config::{SECTIONS, parse};
use std::collections::{BTreeMap, BTreeSet};

const DOCUMENT: &str = include_str!("../../../docs/configuration.md");

/// The tables that a heading is about, as the schema names them.
fn sections_of(heading: &str) -> Vec<&str> {
    let named = |word: &&str| SECTIONS.iter().any(|(section, _)| section == word);
    let words = heading.split_whitespace().map(|word| word.trim_matches(['#', '[', ']']));
    words.filter(|word| !word.is_empty()).filter(named).collect()
}

/// Keys that the tables of the document list, by section.
fn documented() -> BTreeMap<&'static str, BTreeSet<&'static str>> {
    let mut sections = Vec::new();
    let mut keys: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for line in DOCUMENT.lines() {
        if line.starts_with('#') {
            sections = sections_of(line);
        } else if let Some((key, _)) =
            line.strip_prefix("| `").and_then(|row| row.split_once("` |"))
        {
            for section in &sections {
                keys.entry(section).or_default().insert(key);
            }
        }
    }
    keys
}

#[test]
fn the_document_lists_exactly_the_keys_that_the_reader_knows() {
    let tables = SECTIONS.iter().filter(|(section, _)| !section.is_empty());
    let known = tables.map(|(section, keys)| (*section, keys.iter().copied().collect())).collect();
    assert_eq!(documented(), known);
}

#[test]
fn every_table_has_a_heading() {
    let headings = DOCUMENT.lines().filter(|line| line.starts_with('#'));
    let found: BTreeSet<&str> = headings.flat_map(sections_of).collect();
    let tables: BTreeSet<&str> =
        SECTIONS.iter().map(|(section, _)| *section).filter(|name| !name.is_empty()).collect();
    assert_eq!(found, tables);
}

#[test]
fn every_example_can_be_read() {
    let blocks: Vec<&str> = DOCUMENT
        .split("```toml\n")
        .skip(1)
        .map(|rest| rest.split_once("```").expect("a block ends").0)
        .collect();
    assert!(blocks.len() >= 9, "the document has examples");
    for block in blocks {
        // An example shows what it is about; the parts that every file needs stand around it.
        let mut text = block.to_owned();
        for (table, part) in [
            ("[inside]", "[inside]\ndevice = \"eth1\"\n"),
            ("[outside]", "[outside]\ndevice = \"eth0\"\n"),
            ("[[pool]]", "[[pool]]\naddresses = [\"203.0.113.1\"]\n"),
        ] {
            if !block.contains(table) {
                text.push_str(part);
            }
        }
        if let Err(problems) = parse(&text, "example") {
            panic!("{text}\n{}", problems.join("\n"));
        }
    }
}
