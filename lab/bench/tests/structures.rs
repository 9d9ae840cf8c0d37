//! The comparison of lookup structures, in small: every figure is present.

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

#[test]
fn every_structure_is_measured() {
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
