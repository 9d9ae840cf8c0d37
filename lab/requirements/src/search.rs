//! Search for the citations in a tree's Rust files, with their context. The matrix checks that the
//! named requirements exist.

use crate::source::{enclosing, test_below};
use crate::{Citation, Cited, Error, Id, Problem};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Begin of a citation; an invalid comment with it is an error.
const MARK: &str = "//=";

/// Directories without files of the project.
const SKIPPED: [&str; 2] = ["target", "corpus"];

/// Every citation in a tree's Rust files, by file and line, and the problems of invalid ones.
pub(crate) fn citations(root: &Path) -> Result<(Vec<Citation>, Vec<Problem>), Error> {
    let mut sources = BTreeMap::new();
    read_sources(root, root, &mut sources)?;
    let (mut citations, mut problems) = (Vec::new(), Vec::new());
    for (file, text) in &sources {
        let lines: Vec<&str> = text.lines().collect();
        let marked = lines.iter().enumerate().filter(|(_, line)| is_marked(line));
        for (at, line) in marked {
            match citation(&sources, file, &lines, at) {
                Ok(citation) => citations.push(citation),
                Err(wrong) => problems.push(Problem::Citation {
                    file: file.clone(),
                    line: at + 1,
                    text: line.trim().to_owned(),
                    wrong,
                }),
            }
        }
    }
    Ok((citations, problems))
}

fn read_sources(
    root: &Path,
    directory: &Path,
    sources: &mut BTreeMap<String, String>,
) -> Result<(), Error> {
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |error| Error::Read { path, error }
    };
    for entry in fs::read_dir(directory).map_err(failed(directory))? {
        let path = entry.map_err(failed(directory))?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if path.is_dir() && !path.is_symlink() {
            if !name.starts_with('.') && !SKIPPED.contains(&name.as_ref()) {
                read_sources(root, &path, sources)?;
            }
        } else if name.ends_with(".rs") {
            let text = fs::read_to_string(&path).map_err(failed(&path))?;
            sources.insert(relative(root, &path), text);
        }
    }
    Ok(())
}

fn relative(root: &Path, path: &Path) -> String {
    let path = path.strip_prefix(root).unwrap_or(path);
    path.iter().map(|part| part.to_string_lossy()).collect::<Vec<_>>().join("/")
}

fn is_marked(line: &str) -> bool {
    line.trim_start().starts_with(MARK)
}

/// Reads the citation in a line; the error names the problem and the correct form.
fn citation(
    sources: &BTreeMap<String, String>,
    file: &str,
    lines: &[&str],
    at: usize,
) -> Result<Citation, String> {
    let text = lines[at].trim().trim_start_matches(MARK).trim_start();
    let (test, text) = text.strip_prefix("test ").map_or((false, text), |text| (true, text));
    let (rfc, id) = reference(text).ok_or(
        "is no citation; write one like \"//= rfc4787#REQ-5a\" or \"//= test rfc7857#section-2.2\"",
    )?;
    let cited = if test {
        let name = test_below(lines, at)
            .map_err(|found| format!("stands above {found}; write it directly above a #[test]"))?;
        if !is_built(sources, file) {
            return Err("is in a file that no `mod` names; a test that is not built shows nothing"
                .to_owned());
        }
        Cited::Test(name)
    } else if is_test_file(file) {
        return Err("cites code in a test; write \"//= test rfc4787#REQ-5a\"".to_owned());
    } else {
        Cited::Code(enclosing(lines, at))
    };
    Ok(Citation { rfc, id, file: file.to_owned(), line: at + 1, cited })
}

/// Splits `rfc4787#REQ-5a` into its parts.
fn reference(text: &str) -> Option<(u16, Id)> {
    let (rfc, id) = text.strip_prefix("rfc")?.split_once('#')?;
    Some((rfc.parse().ok()?, Id::new(id)?))
}

fn is_test_file(file: &str) -> bool {
    file.split('/').any(|part| part == "tests" || part == "tests.rs")
}

/// Returns true if a file is a crate's root for Cargo, or if its parent module declares it.
fn is_built(sources: &BTreeMap<String, String>, file: &str) -> bool {
    let path = Path::new(file);
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    let directory = path.parent().unwrap_or(Path::new(""));
    if ["main", "lib"].contains(&stem.as_ref()) {
        return true;
    }
    // The parent of `dir` declares `dir/mod.rs`.
    let (name, above) = match (stem.as_ref(), directory.file_name(), directory.parent()) {
        ("mod", Some(name), Some(above)) => (name.to_string_lossy(), above),
        _ => (stem, directory),
    };
    let beside = |file: &str| above.join(file);
    let parents =
        [beside("main.rs"), beside("lib.rs"), beside("mod.rs"), above.with_extension("rs")];
    let declares = |parent: &PathBuf| {
        let text = sources.get(&relative(Path::new(""), parent));
        text.map(|text| {
            let declaration = format!("mod {name};");
            text.lines().any(|line| {
                let line = line.trim();
                let whose = ["pub ", "pub(crate) ", "pub(super) "];
                let bare = whose.iter().find_map(|visible| line.strip_prefix(visible));
                bare.unwrap_or(line) == declaration
            })
        })
    };
    let mut known = parents.iter().filter_map(declares).peekable();
    // A file without a parent module is a test program of its own.
    known.peek().is_none() && above.ends_with("tests") || known.any(|declares| declares)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::{Tree, cite, cite_test};

    fn found(files: &[(&str, String)]) -> (Vec<Citation>, Vec<String>) {
        let tree = Tree::new(files);
        let (citations, problems) = citations(tree.path()).expect("the tree can be read");
        (citations, problems.iter().map(Problem::to_string).collect())
    }

    #[test]
    fn code_and_tests_are_found_with_their_place() {
        let code = format!("fn one() {{\n    {}\n    two();\n}}\n", cite("rfc1#REQ-5a"));
        let test = format!("{}\n#[test]\nfn shows() {{}}\n", cite_test("rfc1#section-2.2-reset"));
        let (found, problems) =
            found(&[("core/a/src/lib.rs", code), ("core/a/tests/shows.rs", test)]);
        assert_eq!(problems, [""; 0]);
        let told: Vec<String> =
            found.iter().map(|one| format!("rfc{}#{} {one}", one.rfc, one.id)).collect();
        assert_eq!(
            told,
            [
                "rfc1#REQ-5a core/a/src/lib.rs:2 one",
                "rfc1#section-2.2-reset core/a/tests/shows.rs:1 shows",
            ]
        );
        assert!(
            matches!(found[0].cited, Cited::Code(_)) && matches!(found[1].cited, Cited::Test(_))
        );
    }

    #[test]
    fn mistakes_are_told_with_their_place() {
        for (file, text, expected) in [
            ("src/lib.rs", cite("rfc1 REQ-1"), "src/lib.rs:1"),
            ("src/lib.rs", cite("rfc1#4.3"), "is no citation"),
            ("src/lib.rs", cite("1#REQ-1"), "is no citation"),
            ("src/lib.rs", format!("{}\nfn f() {{}}", cite_test("rfc1#REQ-1")), "without #[test]"),
            ("tests/a.rs", format!("{}\nfn f() {{}}", cite("rfc1#REQ-1")), "code in a test"),
            ("src/a/tests.rs", format!("{}\nfn f() {{}}", cite("rfc1#REQ-1")), "code in a test"),
        ] {
            let (citations, problems) = found(&[(file, text)]);
            assert_eq!((citations.len(), problems.len()), (0, 1), "{problems:?}");
            assert!(problems[0].contains(expected), "{problems:?} does not say {expected:?}");
        }
    }

    #[test]
    fn a_test_in_a_file_that_nothing_names_is_not_built() {
        let test = || format!("{}\n#[test]\nfn shows() {{}}\n", cite_test("rfc1#REQ-1"));
        for (file, parent, text, built) in [
            ("tests/a.rs", "src/lib.rs", "", true),
            ("tests/r/a.rs", "tests/r/main.rs", "mod a;", true),
            ("tests/r/a.rs", "tests/r/main.rs", "mod ab;", false),
            ("tests/r/a.rs", "tests/r/main.rs", "// mod a;", false),
            ("src/a.rs", "src/lib.rs", "pub mod a;", true),
            ("src/a/tests.rs", "src/a.rs", "pub(crate) mod tests;", true),
            ("src/a.rs", "src/lib.rs", "", false),
            ("src/a/tests.rs", "src/a.rs", "#[cfg(test)]\nmod tests;", true),
            ("src/a/tests.rs", "src/a/mod.rs", "mod tests;", true),
            ("src/a/mod.rs", "src/lib.rs", "mod a;", true),
            ("src/a/mod.rs", "src/lib.rs", "", false),
        ] {
            let (citations, problems) = found(&[(file, test()), (parent, text.to_owned())]);
            assert_eq!(citations.len(), usize::from(built), "{file} of {parent} with {text:?}");
            assert_eq!(problems.len(), usize::from(!built), "{problems:?}");
        }
    }

    #[test]
    fn what_was_built_and_hidden_directories_are_not_read() {
        let code = || format!("{}\nfn f() {{}}\n", cite("rfc1#REQ-1"));
        let (citations, _) = found(&[
            ("target/debug/a.rs", code()),
            (".git/a.rs", code()),
            ("fuzz/corpus/a.rs", code()),
            ("notes.txt", code()),
            ("fuzz/src/lib.rs", code()),
        ]);
        assert_eq!(citations.len(), 1);
    }
}
