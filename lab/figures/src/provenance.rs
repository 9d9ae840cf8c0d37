//! Origin of each result file: the time and the commit of the measurement, and later changes of the
//! measured code.
//!
//! A report names its commit (`machine.commit`). For older reports without it, the commit is the
//! one that added the file, which is the one after the measurement. Both need the history of the
//! repository; without it the commit stays unknown.

use crate::Error;
use serde_json::Value;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Folder of the results, from the root of the tree.
pub const RESULTS: &str = "docs/results";
/// Page with the list of the results.
pub const PAGE: &str = "docs/results/README.md";

/// Code that each benchmark measures, from the root of the tree.
const MEASURED: [(&str, &[&str]); 18] = [
    ("engine", &["core/engine/src", "core/wire/src"]),
    ("ipv6", &["core/ipv6/src", "core/engine/src", "core/wire/src"]),
    ("instructions", &["core/engine/src", "core/wire/src"]),
    ("rfc9693", &["core/engine/src", "core/wire/src"]),
    ("rfc9693-nat64", &["core/ipv6/src", "core/engine/src", "core/wire/src"]),
    ("soak", &["core/engine/src", "core/wire/src"]),
    ("day", &["core/engine/src"]),
    ("prices", &["core/engine/src"]),
    ("sharing", &["lab/bench/src/sharing"]),
    ("rules", &["core/engine/src/rules", "core/engine/src/rules.rs"]),
    ("structures", &["lab/bench/src/structures", "core/engine/src"]),
    ("io", &["gateway/io/src", "gateway/gateway/src", "core/engine/src", "gateway/dpdk/src"]),
    ("pair", &["core/pair/src", "gateway/partner/src", "gateway/gateway/src/fleet"]),
    ("payloads", &["core/payload/src", "gateway/gateway/src/alg", "core/engine/src"]),
    ("router", &["gateway/io/src", "gateway/gateway/src", "core/engine/src"]),
    (
        "router-transition",
        &["gateway/io/src", "gateway/gateway/src", "core/ipv6/src", "core/engine/src"],
    ),
    ("timings", &["bare/image/src", "gateway/gateway/src", "core/engine/src"]),
    ("p4", &["p4/compiler/src", "gateway/gateway/src", "core/engine/src"]),
];

/// Folders of the measured code, and their former names at the time of older results.
const FORMER: [(&str, &str); 5] = [
    ("core/", "crates/"),
    ("gateway/", "crates/"),
    ("lab/bench/", "crates/lab/"),
    ("bare/image/", "crates/bare/"),
    ("p4/compiler/", "crates/p4/"),
];

/// A result file and its origin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    /// File, from the folder of the results.
    pub file: String,
    /// Command of the measurement.
    pub command: String,
    /// Time, UTC.
    pub date: String,
    /// Processor.
    pub processor: String,
    /// Commit; `None` if it is unknown.
    pub commit: Option<Commit>,
}

/// Commit of a measurement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Commit {
    /// Short name.
    pub name: String,
    /// Number of later commits that change the measured code.
    pub changes_since: usize,
}

/// Origins of all result files of a tree, by name.
///
/// # Errors
/// A file that cannot be read, or is not JSON.
pub fn origins(root: &Path) -> Result<Vec<Origin>, Error> {
    let folder = root.join(RESULTS);
    let mut files = Vec::new();
    json_files(&folder, &mut files)?;
    files.sort();
    let origins = files.iter().map(|path| origin(root, &folder, path));
    origins.filter_map(Result::transpose).collect()
}

fn json_files(folder: &Path, files: &mut Vec<PathBuf>) -> Result<(), Error> {
    let failed = |cause| Error::Read { path: folder.to_owned(), cause };
    for entry in std::fs::read_dir(folder).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if path.is_dir() {
            json_files(&path, files)?;
        } else if path.extension().is_some_and(|extension| extension == "json") {
            files.push(path);
        }
    }
    Ok(())
}

/// Origin of a file; `None` if it is no report of a benchmark.
fn origin(root: &Path, folder: &Path, path: &Path) -> Result<Option<Origin>, Error> {
    let text = std::fs::read_to_string(path)
        .map_err(|cause| Error::Read { path: path.to_owned(), cause })?;
    let report: Value = serde_json::from_str(&text)
        .map_err(|cause| Error::Json { path: path.to_owned(), cause })?;
    let text = |value: &Value| value.as_str().unwrap_or("").to_owned();
    let benchmark = text(&report["benchmark"]);
    if benchmark.is_empty() {
        return Ok(None);
    }
    let named = report["machine"]["commit"].as_str().map(str::to_owned);
    let name = named.or_else(|| git(root, &["log", "-1", "--format=%h", "--", &display(path)]));
    let commit = name.filter(|name| !name.is_empty()).map(|name| {
        let changes_since = changes_since(root, &name, &benchmark);
        Commit { name, changes_since }
    });
    Ok(Some(Origin {
        file: display(path.strip_prefix(folder).unwrap_or(path)),
        command: text(&report["command"]),
        date: text(&report["machine"]["date"]).chars().take(10).collect(),
        processor: text(&report["machine"]["cpu"]),
        commit,
    }))
}

fn display(path: &Path) -> String {
    path.display().to_string()
}

/// Number of commits after `commit` that change the measured code of a benchmark.
fn changes_since(root: &Path, commit: &str, benchmark: &str) -> usize {
    let paths = MEASURED.iter().find(|(name, _)| *name == benchmark).map_or(&[][..], |it| it.1);
    if paths.is_empty() {
        return 0;
    }
    // `+` marks a checkout with uncommitted changes.
    let range = format!("{}..HEAD", commit.trim_end_matches('+'));
    let former = paths.iter().filter_map(|path| {
        FORMER.iter().find_map(|(now, then)| Some(format!("{then}{}", path.strip_prefix(now)?)))
    });
    let former: Vec<String> = former.collect();
    let mut arguments = vec!["rev-list", "--count", &range, "--"];
    arguments.extend(paths);
    arguments.extend(former.iter().map(String::as_str));
    let count = git(root, &arguments);
    count.and_then(|count| count.parse().ok()).unwrap_or(0)
}

/// Output of git, without the end of the line; `None` without git or a history.
fn git(root: &Path, arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").arg("-C").arg(root).args(arguments).output().ok()?;
    let text = output.status.success().then(|| String::from_utf8(output.stdout).ok())??;
    Some(text.trim().to_owned())
}

/// Page with the list of the origins.
pub fn page(origins: &[Origin]) -> String {
    let mut page = String::from(
        "# Results\n\nEach folder has one experiment: a page, its figures as JSON, its plots. The \
         command of a row repeats it.\nThe commit is the one that was measured (`+`: with changes \
         that were not committed), or for older files the one that added them. Changes since: \
         later commits that touched the measured code, when\n`make figures` wrote this page; \
         until the experiment is repeated, its figures are those of the older code.\n\n\
         | file | command | measured | processor | commit | changes since |\n\
         |---|---|---|---|---|---|\n",
    );
    for origin in origins {
        let Origin { file, command, date, processor, commit } = origin;
        let (name, since) = match commit {
            Some(commit) => (commit.name.as_str(), commit.changes_since.to_string()),
            None => ("not known", "not known".to_owned()),
        };
        let row =
            format!("| [{file}]({file}) | `{command}` | {date} | {processor} | {name} | {since} |");
        let _ = writeln!(page, "{row}");
    }
    page
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_has_a_row_for_each_file() {
        let commit = Commit { name: "abc1234".into(), changes_since: 3 };
        let origin = Origin {
            file: "engine/engine.json".into(),
            command: "natgate bench engine".into(),
            date: "2026-11-24".into(),
            processor: "a processor".into(),
            commit: Some(commit),
        };
        let unknown = Origin { commit: None, ..origin.clone() };
        let page = page(&[origin, unknown]);
        let row = "| [engine/engine.json](engine/engine.json) | `natgate bench engine` | \
                   2026-11-24 | a processor |";
        assert!(page.contains(&format!("{row} abc1234 | 3 |")), "{page}");
        assert!(page.contains(&format!("{row} not known | not known |")), "{page}");
    }
}
