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

/// Every document, by its name.
fn documents() -> Vec<(String, String)> {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let entries = std::fs::read_dir(root.join("docs")).expect("docs/ is there").flatten();
    let paths = entries.map(|entry| entry.path()).chain([root.join("README.md")]);
    let paths = paths.filter(|path| path.extension().is_some_and(|ending| ending == "md"));
    let read = |path: std::path::PathBuf| {
        let text = std::fs::read_to_string(&path).expect("a readable document");
        (path.file_name().expect("a name").to_string_lossy().into_owned(), text)
    };
    paths.map(read).collect()
}

/// The key that a span of a document names, if it names one: `nat.filtering`, `[[log]]`,
/// `tcp_mss = "mtu"` is none.
fn key_in(span: &str) -> Option<(String, Option<String>)> {
    let span = span.split(" = ").next().unwrap_or_default();
    let is_word = |text: &str| {
        !text.is_empty() && text.chars().all(|c| c.is_ascii_lowercase() || c == '_' || c == '.')
    };
    if let Some(table) = span.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        let table = table.trim_start_matches('[').trim_end_matches(']');
        return is_word(table).then(|| (table.to_owned(), None));
    }
    let (table, key) = span.rsplit_once('.')?;
    let is_table = !table.is_empty() && SECTIONS.iter().any(|(section, _)| *section == table);
    (is_word(span) && is_table).then(|| (table.to_owned(), Some(key.to_owned())))
}

/// Endings of files, which are not keys: `natgate.toml` has no table of that name, but these do.
const ENDINGS: [&str; 4] = ["md", "toml", "rs", "json"];

#[test]
fn documents_name_keys_that_the_reader_knows() {
    let mut named = 0;
    for (name, text) in documents() {
        let mut fenced = false;
        let prose = text.lines().filter(|line| {
            let fence = line.starts_with("```");
            fenced ^= fence;
            !fenced && !fence
        });
        let prose: Vec<&str> = prose.collect();
        // Files of entries for P4 programs have tables of their own.
        let is_p4 = name.starts_with("p4");
        for span in prose.join("\n").split('`').skip(1).step_by(2) {
            let Some((table, key)) = key_in(span) else { continue };
            let is_file = key.as_deref().is_some_and(|it| ENDINGS.contains(&it));
            if is_file || (is_p4 && key.is_none()) {
                continue;
            }
            let known = SECTIONS.iter().find(|(section, _)| *section == table);
            let known = known.unwrap_or_else(|| panic!("{name}: `{span}`: no such table"));
            let is_table = |key: &str| {
                SECTIONS.iter().any(|(section, _)| *section == format!("{table}.{key}"))
            };
            if let Some(key) = key {
                let is_known = known.1.contains(&&*key) || is_table(&key);
                assert!(is_known, "{name}: `{span}`: no such key");
            }
            named += 1;
        }
    }
    assert!(named > 100, "only {named} keys are named");
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
        let has_tunnels = ["[dslite]", "[lw4o6]", "[[map]]"].iter().any(|one| block.contains(one));
        let address6 = if has_tunnels { "address6 = \"2001:db8:0:1::1/64\"\n" } else { "" };
        let inside = format!("[inside]\ndevice = \"eth1\"\n{address6}");
        for (table, part) in [
            ("[inside]", &*inside),
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
