//! Tests of this tree: README's figures are those of the result files, and the result files are
//! listed.

use natgate_figures::provenance::{PAGE, origins};
use natgate_figures::{bare_figures, figures};
use std::fs;
use std::path::Path;

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

fn readme() -> String {
    fs::read_to_string(root().join("README.md")).expect("README.md can be read")
}

#[test]
fn every_figure_of_the_readme_is_its_files() {
    let figures = figures(&readme(), root()).expect("every figure has a value");
    assert!(figures.len() > 20, "README.md has {} figures", figures.len());
    for figure in figures {
        let (text, target) = (figure.text, figure.target);
        assert_eq!(text, figure.wanted, "README.md, {target}: run `make figures`");
    }
}

#[test]
fn no_figure_of_the_readme_is_without_a_file() {
    assert_eq!(bare_figures(&readme()), [], "link each figure to its value in docs/results");
}

#[test]
fn the_list_of_results_has_every_file_with_its_date() {
    let page = fs::read_to_string(root().join(PAGE)).expect("the list can be read");
    for origin in origins(root()).expect("result files can be read") {
        let (file, date) = (&origin.file, &origin.date);
        let row = page.lines().find(|line| line.contains(&format!("[{file}]")));
        let row = row.unwrap_or_else(|| panic!("{PAGE} lacks {file}: run `make figures`"));
        assert!(row.contains(date), "{PAGE}: {file} is of {date}: run `make figures`");
        if let Some(commit) = origin.commit.filter(|commit| commit.changes_since > 0) {
            let count = commit.changes_since;
            println!("warning: {file} is {count} commits older than the code that it measures");
        }
    }
}
