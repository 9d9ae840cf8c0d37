//! docs/dependencies.md names every crate that the workspace uses, and every license is permitted.

use serde_json::Value;
use std::collections::BTreeSet;
use std::process::Command;

/// A crate must offer one of these licenses, or all parts of a conjunction must be among them.
const ALLOWED: [&str; 9] = [
    "0BSD",
    "Apache-2.0",
    "MIT",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "ISC",
    "Unicode-3.0",
    "Zlib",
    "Apache-2.0 WITH LLVM-exception",
];

fn metadata() -> Value {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--locked", "--format-version", "1"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("cargo metadata is JSON")
}

fn is_allowed(licence: &str) -> bool {
    licence.replace('/', " OR ").split(" AND ").all(|part| {
        part.trim_matches(['(', ')']).split(" OR ").any(|one| ALLOWED.contains(&one.trim()))
    })
}

#[test]
fn every_licence_is_one_that_may_be_taken_in() {
    let metadata = metadata();
    let packages = metadata["packages"].as_array().expect("packages");
    assert!(packages.len() > 20);
    for package in packages {
        let licence = package["license"].as_str().unwrap_or_default();
        assert!(is_allowed(licence), "{}: licence {licence:?}", package["name"]);
    }
    assert!(!is_allowed("GPL-3.0-only") && !is_allowed("MIT AND GPL-2.0-only") && !is_allowed(""));
}

#[test]
fn every_direct_dependency_earns_its_place() {
    let metadata = metadata();
    let used: BTreeSet<String> = metadata["packages"]
        .as_array()
        .expect("packages")
        .iter()
        .filter(|package| package["source"].is_null())
        .flat_map(|package| package["dependencies"].as_array().expect("dependencies"))
        .filter_map(|dependency| dependency["name"].as_str())
        .filter(|name| !name.starts_with("natgate"))
        .map(str::to_owned)
        .collect();
    let page = include_str!("../../docs/dependencies.md");
    let listed: BTreeSet<String> = page
        .lines()
        .filter(|line| line.starts_with("| `"))
        .filter_map(|line| line.split('|').nth(1))
        .flat_map(|names| names.split('`').skip(1).step_by(2))
        .map(str::to_owned)
        .collect();
    assert_eq!(used, listed, "docs/dependencies.md and the manifests differ");
}
