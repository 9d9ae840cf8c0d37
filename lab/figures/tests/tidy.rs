//! Rules of CONTRIBUTING.md on the source: short lines, short functions, short files, and a first
//! comment in each file about its content.
//!
//! A function ends at a brace with the indentation of its first line, in rustfmt's format.

use std::fs;
use std::path::{Path, PathBuf};

const LONGEST_LINE: usize = 100;
const LONGEST_FUNCTION: usize = 70;
const LONGEST_FILE: usize = 600;

/// Folders whose Rust files are checked.
const FOLDERS: [&str; 8] = ["core", "gateway", "operate", "p4", "bare", "lab", "natgate", "fuzz"];

/// Files without rules, and the reason. No more than five.
const EXCEPTIONS: [(&str, &str); 1] =
    [("p4/compiler/src/programs/nat.rs", "the compiler wrote it: the golden example")];

struct Source {
    name: String,
    text: String,
}

impl Source {
    fn is_test(&self) -> bool {
        ["/tests/", "/examples/", "/benches/"].iter().any(|part| self.name.contains(part))
            || self.name.ends_with("/tests.rs")
    }

    /// Lines before the tests at the end of the file.
    fn code(&self) -> Vec<&str> {
        let lines: Vec<&str> = self.text.lines().collect();
        let tests = lines.windows(2).position(|two| {
            two[0] == "#[cfg(test)]" && two[1].starts_with("mod ") && two[1].ends_with('{')
        });
        lines[..tests.unwrap_or(lines.len())].to_vec()
    }

    /// Name and length of each function that is too long.
    fn long_functions(&self) -> Vec<String> {
        let lines: Vec<&str> = self.text.lines().collect();
        let mut long = Vec::new();
        for (at, line) in lines.iter().enumerate() {
            let Some((indent, name)) = function(line) else { continue };
            let end = format!("{}}}", " ".repeat(indent));
            let length = lines[at..].iter().position(|line| *line == end).map_or(0, |end| end + 1);
            if length > LONGEST_FUNCTION {
                long.push(format!("{}:{}: {name}: {length} lines", self.name, at + 1));
            }
        }
        long
    }
}

/// Indentation and name of a function whose body begins on this line or a later one.
fn function(line: &str) -> Option<(usize, &str)> {
    let code = line.trim_start();
    let (before, after) = code.split_once("fn ")?;
    let is_head = before.split_whitespace().all(|word| {
        matches!(word, "const" | "async" | "unsafe" | "extern" | "\"C\"") || word.starts_with("pub")
    });
    let name = after.split(|c: char| !c.is_alphanumeric() && c != '_').next()?;
    // A code template has doubled braces.
    let is_template = code.contains("{{") || code.contains("{}");
    let is_declared = code.ends_with(';') || code.ends_with('}');
    (is_head && !name.is_empty() && !is_template && !is_declared)
        .then_some((line.len() - code.len(), name))
}

fn sources() -> Vec<Source> {
    let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
    let mut files = Vec::new();
    FOLDERS.iter().for_each(|folder| collect(&root.join(folder), &mut files));
    let name = |path: &Path| path.strip_prefix(root).expect("below").display().to_string();
    let read = |path: PathBuf| Source {
        name: name(&path),
        text: fs::read_to_string(&path).expect("a readable file"),
    };
    let mut sources: Vec<Source> = files.into_iter().map(read).collect();
    sources.retain(|source| EXCEPTIONS.iter().all(|(file, _)| *file != source.name));
    assert!(sources.len() > 700, "only {} files were found", sources.len());
    sources
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a readable folder").flatten() {
        let path = entry.path();
        let is_made = entry.file_name() == "target";
        if path.is_dir() && !is_made {
            collect(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
}

fn none(what: &str, mut found: Vec<String>) {
    found.sort();
    assert!(found.is_empty(), "{} {what}: {found:#?}", found.len());
}

#[test]
fn comments_keep_to_the_columns() {
    let long = sources().into_iter().flat_map(|source| {
        let lines = source.text.lines().enumerate();
        let is_long =
            |line: &str| line.trim_start().starts_with("//") && line.chars().count() > LONGEST_LINE;
        let long = lines.filter(|(_, line)| is_long(line));
        long.map(|(number, _)| format!("{}:{}", source.name, number + 1)).collect::<Vec<_>>()
    });
    none("comments are too long", long.collect());
}

#[test]
fn functions_are_short() {
    let core = sources().into_iter().filter(|source| source.name.starts_with("core/"));
    none("functions are too long", core.flat_map(|source| source.long_functions()).collect());
}

#[test]
fn files_are_short() {
    let code = sources()
        .into_iter()
        .filter(|source| source.name.starts_with("core/") && !source.is_test());
    let long = code.filter(|source| source.code().len() > LONGEST_FILE);
    none("files are too long", long.map(|source| source.name).collect());
}

#[test]
fn each_file_opens_with_what_it_is() {
    let opens = |source: &Source| {
        let first = source.text.lines().find(|line| !line.starts_with("#!") && !line.is_empty());
        first.is_some_and(|line| line.starts_with("//!"))
    };
    let bare = sources().into_iter().filter(|source| !opens(source));
    none("files do not say what they are", bare.map(|source| source.name).collect());
}
