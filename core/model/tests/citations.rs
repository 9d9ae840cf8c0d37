//! Checks that rules of SPECIFICATION.md that comments and documents cite exist, with plain
//! numbers.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Files below a folder with this ending of their names.
fn files(folder: &Path, end: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).expect("the folder is there").flatten() {
        let path = entry.path();
        if path.is_dir() {
            found.extend(files(&path, end));
        } else if path.to_str().is_some_and(|name| name.ends_with(end)) {
            found.push(path);
        }
    }
    found
}

/// The numbers of the rules, in the order of the text.
fn rules() -> Vec<(u32, u32)> {
    let text = fs::read_to_string(root().join("SPECIFICATION.md")).expect("it is there");
    let number = |paragraph: &str| {
        let (section, rest) = paragraph.split_once('.')?;
        let (rule, _) = rest.split_once(". ")?;
        let (section, rule) = (section.parse().ok()?, rule.parse());
        Some((section, rule.unwrap_or_else(|_| panic!("no plain number: {paragraph}"))))
    };
    text.split("\n\n").filter_map(number).collect()
}

/// Numbers like 3.9 in a text, without versions, addresses and sections of RFCs.
fn cited(text: &str) -> BTreeSet<(u32, u32)> {
    let words = text.split(|c: char| c.is_whitespace() || "(),;:`".contains(c));
    let words: Vec<&str> = words.filter(|word| !word.is_empty()).collect();
    let mut cited = BTreeSet::new();
    let mut of_rfc = false;
    for (place, word) in words.iter().enumerate() {
        let is_number = word.starts_with(|c: char| c.is_ascii_digit());
        let opens = word.starts_with("section") && place >= 2 && words[place - 2] == "RFC";
        of_rfc = opens || of_rfc && (is_number || *word == "and");
        let Some((section, rule)) = word.trim_end_matches('.').split_once('.') else { continue };
        if !of_rfc && let (Ok(section), Ok(rule)) = (section.parse(), rule.parse()) {
            cited.insert((section, rule));
        }
    }
    cited
}

#[test]
fn rules_are_numbered_one_after_the_other() {
    let rules = rules();
    for pair in rules.windows(2) {
        let ((section, rule), next) = (pair[0], pair[1]);
        assert!(next == (section, rule + 1) || next == (section + 1, 1), "{next:?} after {pair:?}");
    }
    assert_eq!(rules.first(), Some(&(1, 1)));
}

#[test]
fn cited_rules_are_there() {
    let rules: BTreeSet<(u32, u32)> = rules().into_iter().collect();
    let mut count = 0;
    let mut check = |path: &Path, text: &str| {
        for rule in cited(text) {
            assert!(rules.contains(&rule), "{}: no rule {rule:?}: {text}", path.display());
            count += 1;
        }
    };
    for folder in ["core/model/src", "core/model/tests", "core/compare"] {
        for path in files(&root().join(folder), ".rs") {
            let text = fs::read_to_string(&path).expect("it can be read");
            let comments = text.lines().filter_map(|line| line.split_once("//"));
            comments.for_each(|(_, comment)| check(&path, comment));
        }
    }
    let named =
        |line: &&str| line.contains("of the specification") || line.contains("SPECIFICATION.md");
    for (folder, end) in [("core/engine", ".rs"), ("vectors", ".md"), ("docs/design", ".md")] {
        for path in files(&root().join(folder), end) {
            let text = fs::read_to_string(&path).expect("it can be read");
            text.lines().filter(named).for_each(|line| check(&path, line));
        }
    }
    let specification = root().join("SPECIFICATION.md");
    let text = fs::read_to_string(&specification).expect("it is there");
    text.split("\n\n").for_each(|paragraph| check(&specification, paragraph));
    assert!(count > 500, "only {count} citations were found");
}
