//! Rules of CONTRIBUTING.md on the source: short lines, short functions, short files, and a first
//! comment in each file about its content. Lines of documents are short, too.
//!
//! A function ends at a brace with the indentation of its first line, in rustfmt's format.
//! Functions of tests may be long outside of `core`: they are lists of cases. Lines inside of a raw
//! literal may be long: a break would change the text.

use std::fs;
use std::path::{Path, PathBuf};

const LONGEST_LINE: usize = 100;
const LONGEST_FUNCTION: usize = 70;
const LONGEST_FILE: usize = 600;

/// Folders whose Rust files are checked.
const FOLDERS: [&str; 8] = ["core", "gateway", "operate", "p4", "bare", "lab", "natgate", "fuzz"];

/// Most exceptions.
const MOST_EXCEPTIONS: usize = 3;

/// Exceptions with a reason: the beginning of the path, the rule that is broken, and the reason.
const EXCEPTIONS: [(&str, Rule, &str); 3] = [
    ("p4/compiler/src/programs/nat.rs", Rule::All, "the compiler wrote it: a golden example"),
    ("p4/compiler/src/programs/nat64.rs", Rule::All, "the compiler wrote it: a golden example"),
    ("natgate/src/run.rs: run", Rule::Function, "the start is one sequence"),
];

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Rule {
    CodeLine,
    Comment,
    Function,
    File,
    All,
}

struct Source {
    name: String,
    text: String,
    /// True for a test, an example or a benchmark.
    is_test: bool,
}

impl Source {
    /// Beginning of the names of the modules that only tests have.
    fn test_modules(&self) -> Vec<String> {
        let folder = match self.name.rsplit_once('/') {
            Some((folder, "mod.rs" | "lib.rs" | "main.rs")) => folder,
            _ => self.name.trim_end_matches(".rs"),
        };
        let lines: Vec<&str> = self.text.lines().collect();
        let marked = lines.windows(2).filter(|two| two[0] == "#[cfg(test)]");
        let modules = marked.filter_map(|two| two[1].strip_prefix("mod ")?.strip_suffix(';'));
        modules.map(|module| format!("{folder}/{module}")).collect()
    }

    /// Number of lines before the tests at the end of the file.
    fn length_without_tests(&self) -> usize {
        let lines: Vec<&str> = self.text.lines().collect();
        let tests = lines.windows(2).position(|two| {
            two[0] == "#[cfg(test)]" && two[1].starts_with("mod ") && two[1].ends_with('{')
        });
        tests.unwrap_or(lines.len())
    }

    /// Name and length of each function that is too long.
    fn long_functions(&self) -> Vec<String> {
        let Scan { code, .. } = Scan::new(&self.text);
        let lines: Vec<&str> = code.lines().map(str::trim_end).collect();
        let all = if self.name.starts_with("core/") {
            lines.len()
        } else if self.is_test {
            0
        } else {
            self.length_without_tests()
        };
        let functions = (0..all).filter_map(|at| {
            let (name, length) = function(&lines[at..])?;
            let is_long = length > LONGEST_FUNCTION;
            is_long.then(|| format!("{}: {name}: {length} lines, from line {}", self.name, at + 1))
        });
        functions.collect()
    }

    /// Each comment, or each other line, that is too long.
    fn long_lines(&self, rule: Rule) -> Vec<String> {
        let Scan { is_raw, .. } = Scan::new(&self.text);
        let lines = self.text.lines().zip(is_raw).enumerate();
        let long = lines.filter(|(_, (line, is_raw))| {
            let is_comment = line.trim_start().starts_with("//");
            let is_of_rule =
                if rule == Rule::Comment { is_comment } else { !is_comment && !is_raw };
            is_of_rule && line.chars().count() > LONGEST_LINE
        });
        long.map(|(at, _)| format!("{}:{}", self.name, at + 1)).collect()
    }
}

/// Name and length of the function whose first line is the first of these; `None` if no function
/// begins there, or one without a body, or with a body on its first line.
fn function<'t>(lines: &[&'t str]) -> Option<(&'t str, usize)> {
    let code = lines[0].trim_start();
    let (before, after) = code.split_once("fn ")?;
    let is_head = before.split_whitespace().all(|word| {
        matches!(word, "const" | "async" | "unsafe" | "extern" | "\"C\"") || word.starts_with("pub")
    });
    let name = after.split(|c: char| !c.is_alphanumeric() && c != '_').next()?;
    // The head ends at the brace of the body, or at the semicolon of a declaration.
    let last = lines.iter().find(|line| line.ends_with(['{', ';', '}']))?;
    if !is_head || name.is_empty() || !last.ends_with('{') {
        return None;
    }
    let end = format!("{}}}", " ".repeat(lines[0].len() - code.len()));
    let length = lines.iter().position(|line| *line == end)? + 1;
    Some((name, length))
}

/// The code of a file, and the lines of its raw literals.
struct Scan {
    /// The text, with blanks in place of comments and of the insides of literals.
    code: String,
    /// For each line, true if a raw literal begins before it and ends after it.
    is_raw: Vec<bool>,
}

impl Scan {
    fn new(text: &str) -> Self {
        let (mut code, mut is_raw) = (String::new(), vec![false]);
        let mut rest = text;
        while let Some(first) = rest.chars().next() {
            let is_in_word = code.ends_with(|c: char| c.is_alphanumeric() || c == '_');
            let raw = if is_in_word { None } else { raw_literal(rest) };
            let blank = raw.or_else(|| comment(rest)).or_else(|| literal(rest));
            let (token, after) = rest.split_at(blank.unwrap_or(first.len_utf8()));
            if blank.is_some() {
                code.extend(token.chars().map(|c| if c == '\n' { '\n' } else { ' ' }));
            } else {
                code.push_str(token);
            }
            is_raw.extend(token.matches('\n').map(|_| raw.is_some()));
            if let Some(last) = is_raw.last_mut().filter(|_| raw.is_some()) {
                *last = false;
            }
            rest = after;
        }
        Self { code, is_raw }
    }
}

/// Length of the raw literal at the beginning of the text.
fn raw_literal(text: &str) -> Option<usize> {
    let marks = text.trim_start_matches(['b', 'c']).strip_prefix('r')?;
    let inside = marks.trim_start_matches('#').strip_prefix('"')?;
    let close = format!("\"{}", "#".repeat(marks.len() - inside.len() - 1));
    Some(text.len() - inside.len() + inside.find(&close)? + close.len())
}

/// Length of the comment at the beginning of the text.
fn comment(text: &str) -> Option<usize> {
    text.starts_with("//").then(|| text.find('\n').unwrap_or(text.len()))
}

/// Length of the string or character at the beginning of the text.
fn literal(text: &str) -> Option<usize> {
    let quote = text.chars().next().filter(|c| matches!(c, '"' | '\''))?;
    let mut inside = text.char_indices().skip(1);
    // A lifetime has no second quote.
    let is_escaped = text[1..].starts_with('\\');
    if quote == '\'' && !is_escaped && text.chars().nth(2) != Some('\'') {
        return None;
    }
    while let Some((at, c)) = inside.next() {
        match c {
            '\\' => drop(inside.next()),
            c if c == quote && at > 1 || c == '"' && quote == '"' => return Some(at + 1),
            _ => {}
        }
    }
    None
}

fn source(name: &str, text: &str) -> Source {
    let is_test = ["/tests/", "/examples/", "/benches/"].iter().any(|part| name.contains(part));
    Source { name: name.to_owned(), text: text.to_owned(), is_test }
}

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

fn sources() -> Vec<Source> {
    let root = root();
    let mut files = Vec::new();
    FOLDERS.iter().for_each(|folder| collect(&root.join(folder), &mut files));
    let name = |path: &Path| path.strip_prefix(root).expect("below").display().to_string();
    let read =
        |path: PathBuf| source(&name(&path), &fs::read_to_string(&path).expect("a readable file"));
    let mut sources: Vec<Source> = files.into_iter().map(read).collect();
    let modules: Vec<String> = sources.iter().flat_map(Source::test_modules).collect();
    for source in &mut sources {
        let is_of = |module: &String| {
            let rest = source.name.strip_prefix(&module[..]);
            rest.is_some_and(|rest| rest == ".rs" || rest.starts_with('/'))
        };
        source.is_test |= modules.iter().any(is_of);
    }
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

/// All that breaks a rule.
fn found(rule: Rule) -> Vec<String> {
    let sources = sources();
    let mut found: Vec<String> = match rule {
        Rule::CodeLine | Rule::Comment => {
            sources.iter().flat_map(|source| source.long_lines(rule)).collect()
        }
        Rule::Function => sources.iter().flat_map(Source::long_functions).collect(),
        Rule::File => {
            let code = sources.into_iter().filter(|source| !source.is_test);
            let long = code.filter(|source| source.length_without_tests() > LONGEST_FILE);
            long.map(|source| source.name).collect()
        }
        Rule::All => Vec::new(),
    };
    found.sort();
    found
}

fn is_exception(rule: Rule, name: &str, exception: &(&str, Rule, &str)) -> bool {
    let (path, own, _) = exception;
    let rest = name.strip_prefix(path);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(':'))
        && [rule, Rule::All].contains(own)
}

/// Fails if something breaks the rule, and has no exception.
fn none(what: &str, rule: Rule) {
    let mut found = found(rule);
    found.retain(|name| !EXCEPTIONS.iter().any(|one| is_exception(rule, name, one)));
    assert!(found.is_empty(), "{} {what}: {found:#?}", found.len());
}

#[test]
fn comments_keep_to_the_columns() {
    none("comments are too long", Rule::Comment);
}

#[test]
fn code_keeps_to_the_columns() {
    none("lines of code are too long", Rule::CodeLine);
}

#[test]
fn functions_are_short() {
    none("functions are too long", Rule::Function);
}

#[test]
fn files_are_short() {
    none("files are too long", Rule::File);
}

#[test]
fn exceptions_are_few_and_needed() {
    assert!(EXCEPTIONS.len() <= MOST_EXCEPTIONS);
    let rules = [Rule::CodeLine, Rule::Comment, Rule::Function, Rule::File];
    let all = rules.map(|rule| (rule, found(rule)));
    for exception in &EXCEPTIONS {
        let is_needed = all
            .iter()
            .any(|(rule, found)| found.iter().any(|name| is_exception(*rule, name, exception)));
        assert!(is_needed, "{exception:?} is no longer needed");
    }
}

/// Lines of a document that are too long: no tables, headings, targets of links or examples.
fn long_prose(text: &str) -> Vec<usize> {
    let mut is_code = false;
    let lines = text.lines().enumerate().filter(|(_, line)| {
        is_code ^= line.trim_start().starts_with("```");
        let is_whole = ["|", "#", "[", "    "].iter().any(|start| line.starts_with(start));
        !is_code && !is_whole && line.chars().count() > LONGEST_LINE
    });
    lines.map(|(at, _)| at + 1).collect()
}

#[test]
fn lines_of_documents_are_short() {
    let folders = ["", "docs", "docs/design"].map(|folder| root().join(folder));
    let entries = folders.iter().flat_map(|folder| fs::read_dir(folder).expect("a folder"));
    let paths = entries.map(|entry| entry.expect("an entry").path());
    let documents: Vec<PathBuf> =
        paths.filter(|path| path.extension().is_some_and(|kind| kind == "md")).collect();
    assert!(documents.len() > 40, "only {} documents were found", documents.len());
    let found: Vec<String> = documents
        .iter()
        .flat_map(|path| {
            let text = fs::read_to_string(path).expect("a readable file");
            long_prose(&text).into_iter().map(|line| format!("{}:{line}", path.display()))
        })
        .collect();
    assert!(found.is_empty(), "lines are longer than {LONGEST_LINE}: {found:#?}");
}

#[test]
fn a_long_line_of_a_document_is_found_unless_it_cannot_be_broken() {
    let long = "x".repeat(LONGEST_LINE + 1);
    let text = [&long, "```", &long, "```", &format!("| {long} |"), &format!("[a]: {long}"), &long];
    assert_eq!(long_prose(&text.join("\n")), [1, 7]);
}

#[test]
fn each_file_opens_with_what_it_is() {
    let opens = |source: &Source| {
        let first = source.text.lines().find(|line| !line.starts_with("#!") && !line.is_empty());
        first.is_some_and(|line| line.starts_with("//!"))
    };
    let bare: Vec<String> =
        sources().into_iter().filter(|source| !opens(source)).map(|source| source.name).collect();
    assert!(bare.is_empty(), "{} files do not say what they are: {bare:#?}", bare.len());
}

#[test]
fn each_library_opens_with_an_example() {
    // The fuzz targets are a workspace of their own, whose examples are not tested.
    let is_library =
        |source: &Source| source.name.ends_with("/src/lib.rs") && !source.name.starts_with("fuzz/");
    let has_example = |source: &Source| {
        let mut head = source.text.lines().take_while(|line| line.starts_with("//!"));
        head.any(|line| ["//! ```", "//! ```no_run"].contains(&line))
    };
    let libraries: Vec<Source> = sources().into_iter().filter(is_library).collect();
    assert!(libraries.len() > 30, "only {} libraries were found", libraries.len());
    let bare = libraries.iter().filter(|source| !has_example(source));
    let bare: Vec<&str> = bare.map(|source| &source.name[..]).collect();
    assert!(bare.is_empty(), "{} libraries have no example: {bare:#?}", bare.len());
}

const EXAMPLE: &str = "operate/example/src/lib.rs";

#[test]
fn a_long_line_is_found_unless_it_is_inside_of_a_raw_literal() {
    let long = "x".repeat(LONGEST_LINE + 1);
    let text = [
        &format!("// {long}"),
        &format!("let a = \"{long}\";"),
        "let b = '\"'; // r#\"",
        &long,
        "let c = r#\"\"",
        &long,
        &format!("{long}\"#;"),
        "let d = br\"",
        &long,
        "\";",
        &long,
        "let e: &'static str = \"\\\"",
        &long,
        "\";",
    ];
    let source = source(EXAMPLE, &text.join("\n"));
    let places = |lines: &[usize]| -> Vec<String> {
        lines.iter().map(|line| format!("{EXAMPLE}:{line}")).collect()
    };
    assert_eq!(source.long_lines(Rule::Comment), places(&[1]));
    assert_eq!(source.long_lines(Rule::CodeLine), places(&[2, 4, 7, 11, 13]));
}

#[test]
fn a_long_function_is_found_and_a_declaration_is_none() {
    let lines = |count| "one();\n".repeat(count);
    let method = format!("    fn longest() {{\n{}    }}\n", lines(LONGEST_FUNCTION - 2));
    let declared = "    fn declared(\n        one: u8,\n    ) -> u8;\n";
    let long = format!(
        "pub(crate) const fn long(\n    one: u8,\n) -> u8\nwhere\n    u8: Sized,\n{{\n{}}}\n",
        lines(LONGEST_FUNCTION)
    );
    let text = format!("trait A {{\n{declared}{method}}}\n{long}let text = \"\n{long}\";\n");
    let (length, first) = (LONGEST_FUNCTION + 7, LONGEST_FUNCTION + 6);
    let expected = |name| [format!("{name}: long: {length} lines, from line {first}")];
    assert_eq!(source(EXAMPLE, &text).long_functions(), expected(EXAMPLE));
    // Tests may be long outside of `core`.
    assert!(source("operate/example/tests/all.rs", &text).long_functions().is_empty());
    let after = format!("#[cfg(test)]\nmod tests {{\n{text}}}\n");
    assert!(source(EXAMPLE, &after).long_functions().is_empty());
    let name = "core/example/tests/all.rs";
    assert_eq!(source(name, &text).long_functions(), expected(name));
}
