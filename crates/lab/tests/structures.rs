//! The comparison of lookup structures, in small: every figure is there, and the one statement of the
//! thesis that holds on any machine holds here.

use natgate_lab::structures::{Plan, measure};
use serde_json::Value;
use std::time::Duration;

fn report() -> Value {
    let plan = Plan {
        sessions: vec![500, 4000],
        threads: vec![1, 2],
        thread_sessions: 4000,
        time: Duration::ZERO,
        patience: Duration::from_secs(60),
        runs: 3,
        ..Plan::quick()
    };
    measure(&plan, "test").json()
}

/// The median of a figure of a structure.
fn median(report: &Value, structure: &str, sessions: u64, figure: &str) -> f64 {
    let mut sizes = report["sizes"].as_array().expect("sizes").iter();
    let size = sizes.find(|size| size["structure"] == structure && size["sessions"] == sessions);
    size.and_then(|size| size[figure]["median"].as_f64()).unwrap_or_else(|| {
        panic!("{structure} has no {figure} at {sessions} sessions");
    })
}

#[test]
fn every_structure_is_measured_and_a_linear_array_is_linear() {
    let report = report();
    for size in report["sizes"].as_array().expect("sizes") {
        for figure in ["paper_ns", "create_ns", "answer_ns", "found_ns", "zipf_ns"] {
            assert!(size[figure]["median"].as_f64().expect("a figure") > 0.0, "{figure}: {size}");
            assert_eq!(size[figure]["runs"], 3);
        }
    }
    for threaded in report["threads"].as_array().expect("threads") {
        for figure in ["paper_mpps", "found_mpps", "paper_mpps_wall", "found_mpps_wall"] {
            assert!(threaded[figure].as_f64().expect("a figure") > 0.0, "{figure}: {threaded}");
        }
    }
    let linear = |sessions| median(&report, "linear array", sessions, "found_ns");
    let grown = linear(4000) / linear(500);
    assert!(grown > 2.0, "with 8 times the entries a packet takes {grown:.1} times as long");
    let hashed = median(&report, "hash, lines of 3", 4000, "found_ns");
    assert!(linear(4000) > 2.0 * hashed, "a hash table is no quicker than a linear array");
}

#[test]
fn the_report_has_its_files() {
    let plan = Plan { sessions: vec![500], threads: vec![1], ..Plan::quick() };
    let directory = std::env::temp_dir().join(format!("natgate-lab-{}", std::process::id()));
    let files = measure(&plan, "test").write(&directory).expect("the files can be written");
    let names: Vec<_> = files.iter().filter_map(|file| file.file_name()?.to_str()).collect();
    for wanted in ["structures.json", "structures.md", "structures.svg", "structures-threads.svg"] {
        assert!(names.contains(&wanted), "{wanted} is not among {names:?}");
    }
    let page = std::fs::read_to_string(directory.join("structures.md")).expect("a page");
    assert!(page.contains("| linear array |") && page.contains("| headers only |"));
    std::fs::remove_dir_all(&directory).expect("the files can be removed");
}
