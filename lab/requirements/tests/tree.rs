//! Tests of this tree: every requirement has code and test, and docs/conformance.md is up to date.

use natgate_requirements::{Matrix, PAGE};
use std::fs;
use std::path::Path;

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

#[test]
fn every_requirement_has_code_and_test() {
    let matrix = Matrix::trace(root()).expect("the tree can be read");
    assert!(matrix.rfcs.len() > 1, "the lists are there");
    let problems: Vec<String> = matrix.problems.iter().map(ToString::to_string).collect();
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

#[test]
fn the_page_is_up_to_date() {
    let matrix = Matrix::trace(root()).expect("the tree can be read");
    let page = fs::read_to_string(root().join(PAGE)).expect("the page can be read");
    assert!(page == matrix.page(), "{PAGE} is out of date; run `make requirements`");
}
