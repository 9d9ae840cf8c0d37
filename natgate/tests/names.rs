//! Commands, options and files in documents, units and man pages exist in the program and in the
//! repository.
//!
//! The control crate compares names of keys, and the metrics crate names of series.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Files with commands for operators.
fn texts() -> Vec<(String, String)> {
    let root = root();
    let mut files: Vec<PathBuf> =
        ["README.md", "Makefile", "CONTRIBUTING.md"].map(|name| root.join(name)).into();
    for folder in [
        "docs",
        "packaging",
        "packaging/debian",
        "packaging/systemd",
        "packaging/examples",
        "contrib/prometheus",
    ] {
        let entries = fs::read_dir(root.join(folder)).expect("the folder is there").flatten();
        files.extend(entries.map(|entry| entry.path()).filter(|path| path.is_file()));
    }
    let name = |path: &Path| {
        let path = path.strip_prefix(&root).expect("a file of the repository");
        path.display().to_string()
    };
    let read = |path: PathBuf| Some((name(&path), fs::read_to_string(&path).ok()?));
    files.into_iter().filter_map(read).collect()
}

/// Help texts by command, each requested once.
#[derive(Default)]
struct Helps(BTreeMap<Vec<String>, Option<String>>);

impl Helps {
    /// Output of `natgate COMMAND --help`; `None` if there is no such command.
    fn of(&mut self, command: &[&str]) -> Option<&str> {
        let key: Vec<String> = command.iter().map(|word| (*word).to_owned()).collect();
        let help = self.0.entry(key).or_insert_with(|| {
            let mut program = Command::new(env!("CARGO_BIN_EXE_natgate"));
            let output = program.args(command).arg("--help").output().expect("the program starts");
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            output.status.success().then_some(text)
        });
        help.as_deref()
    }
}

/// Lines of a text that begin with a natgate command, without that first word.
fn commands(text: &str) -> Vec<String> {
    let joined = text.replace("\\\n", " ");
    let mut commands = Vec::new();
    for line in joined.lines() {
        for part in line.split(['`', '|', ';', '&', '(']) {
            let part = part.trim().trim_start_matches(['#', '$']).trim();
            let part = part.strip_prefix("sudo ").unwrap_or(part);
            let part = part.strip_prefix("ExecStart=").unwrap_or(part);
            let part = part.strip_prefix("ExecReload=").unwrap_or(part);
            let rest =
                ["natgate ", "/usr/sbin/natgate ", "/usr/bin/natgate ", "target/release/natgate "]
                    .iter()
                    .find_map(|name| part.strip_prefix(name));
            commands.extend(rest.map(str::to_owned));
        }
    }
    commands
}

/// Leading words of a line that are subcommands according to the help.
fn subcommand<'a>(words: &[&'a str], helps: &mut Helps) -> Vec<&'a str> {
    let mut command: Vec<&str> = Vec::new();
    for word in words {
        let is_name =
            word.chars().all(|c| c.is_ascii_lowercase() || c == '-' || c.is_ascii_digit());
        if !is_name || word.starts_with('-') {
            break;
        }
        let listed = helps.of(&command).is_some_and(|help| {
            help.lines().any(|line| line.split_whitespace().next() == Some(word))
                && help.contains("Commands:")
        });
        if !listed {
            break;
        }
        command.push(word);
    }
    command
}

#[test]
fn documents_name_commands_and_options_that_there_are() {
    let mut helps = Helps::default();
    let (mut wrong, mut seen) = (Vec::new(), 0);
    for (name, text) in texts() {
        for line in commands(&text) {
            let words: Vec<&str> = line.split_whitespace().collect();
            let command = subcommand(&words, &mut helps);
            // A sentence that begins with the program's name is no command.
            if command.is_empty() {
                continue;
            }
            seen += 1;
            let help = helps.of(&command).unwrap_or_default().to_owned();
            for word in words.iter().take_while(|word| **word != "#") {
                let option = word.split(['=', ']', ',']).next().unwrap_or_default();
                let option = option.trim_start_matches('[').trim_end_matches(['.', ')', '"', ':']);
                if !option.starts_with("--") || option.len() < 4 {
                    continue;
                }
                let is_there = help.split(|c: char| c.is_whitespace() || "=[]<,".contains(c));
                if !is_there.into_iter().any(|known| known == option) {
                    wrong.push(format!("{name}: natgate {line}: no option {option}"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(seen > 100, "only {seen} commands were found");
}

/// Targets of a document's links.
fn links(text: &str) -> Vec<String> {
    let targets = text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    let local = targets.filter(|target| !target.contains("://") && !target.contains(' '));
    local.map(str::to_owned).collect()
}

/// A heading in the form of links.
fn anchor(heading: &str) -> String {
    let text = heading.trim_start_matches('#').trim().to_lowercase();
    let kept = text.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect()
}

#[test]
fn links_of_documents_lead_to_files_and_headings() {
    let root = root();
    let names =
        ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "GLOSSARY.md", "SPECIFICATION.md"];
    let mut files: Vec<PathBuf> = names.map(|name| root.join(name)).into();
    let entries = fs::read_dir(root.join("docs")).expect("docs/ is there").flatten();
    files.extend(
        entries
            .map(|entry| entry.path())
            .filter(|path| path.extension().is_some_and(|end| end == "md")),
    );
    let mut wrong = Vec::new();
    for file in files {
        let text = fs::read_to_string(&file).expect("a document");
        for link in links(&text) {
            let (path, heading) = link.split_once('#').unwrap_or((&link, ""));
            let folder = file.parent().expect("a folder");
            let target = if path.is_empty() { file.clone() } else { folder.join(path) };
            if !target.exists() {
                wrong.push(format!("{}: {link}: no such file", file.display()));
            } else if !heading.is_empty() && target.extension().is_some_and(|end| end == "md") {
                let there = fs::read_to_string(&target).expect("a document");
                let is_there = |line: &str| line.starts_with('#') && anchor(line) == heading;
                if !there.lines().any(is_there) {
                    wrong.push(format!("{}: {link}: no such heading", file.display()));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// The files in backticks in a document exist in the repository, such as `core/engine/src/lib.rs`.
#[test]
fn documents_name_files_that_there_are() {
    let root = root();
    let folders = [
        "core/",
        "gateway/",
        "operate/",
        "p4/",
        "bare/",
        "lab/",
        "natgate/",
        "docs/",
        "packaging/",
        "contrib/",
        "vectors/",
        "requirements/",
        "fuzz/",
    ];
    let (mut wrong, mut seen) = (Vec::new(), 0);
    for (name, text) in texts().iter().filter(|(name, _)| name.ends_with(".md")) {
        for span in text.split('`').skip(1).step_by(2) {
            let is_path = folders.iter().any(|folder| span.starts_with(folder));
            if !is_path || span.contains(|c: char| c.is_whitespace() || "*{}<>NAME".contains(c)) {
                continue;
            }
            seen += 1;
            let path = root.join(span);
            let module = path.with_extension("rs");
            if !path.exists() && !module.exists() {
                wrong.push(format!("{name}: {span}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(seen > 10, "only {seen} files were found");
}
