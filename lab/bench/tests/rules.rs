//! The comparison of searches for a rule, in small: every figure is present, and properties of any
//! machine hold.

use natgate_lab::rules::{Plan, measure};
use serde_json::Value;
use std::time::Duration;

fn median(report: &Value, finder: &str, batched: bool, rules: u64) -> f64 {
    let mut sizes = report["sizes"].as_array().expect("sizes").iter();
    let size = sizes.find(|size| {
        size["finder"] == finder
            && size["batched"] == batched
            && size["rules"] == rules
            && size["sort"] == "carrier"
    });
    size.and_then(|size| size["spread_ns"]["median"].as_f64()).unwrap_or_else(|| {
        panic!("{finder} has no figure at {rules} rules");
    })
}

#[test]
fn a_linear_search_grows_with_the_rules_and_natgates_does_not() {
    let plan = Plan { rules: vec![100, 5000, 20_000], time: Duration::ZERO, runs: 3 };
    let report = measure(&plan, "test").json();
    for size in report["sizes"].as_array().expect("sizes") {
        for figure in ["warm_ns", "spread_ns", "cold_ns"] {
            assert!(size[figure]["median"].as_f64().expect("a figure") > 0.0, "{figure}: {size}");
        }
    }
    for load in report["loads"].as_array().expect("loads") {
        let bytes = load["bytes_per_rule"].as_f64().expect("a figure");
        assert!(load["load_ms"].as_f64().expect("a figure") > 0.0 && bytes > 1.0, "{load}");
    }
    assert!(report["replace_us"]["median"].as_f64().expect("a figure") > 0.0);
    let linear = |rules| median(&report, "linear", false, rules);
    assert!(linear(5000) > 5.0 * linear(100), "{} and {} ns", linear(100), linear(5000));
    for batched in [false, true] {
        let [few, many] = [100, 5000].map(|rules| median(&report, "natgate", batched, rules));
        assert!(many < linear(5000) / 4.0 && many < 12.0 * few, "{few} and {many} ns");
    }
    let sizes = report["sizes"].as_array().expect("sizes");
    assert!(!sizes.iter().any(|size| size["finder"] == "linear" && size["rules"] == 20_000));
}

#[test]
fn the_report_has_its_files() {
    let plan = Plan { rules: vec![100], ..Plan::quick() };
    let directory = std::env::temp_dir().join(format!("natgate-rules-{}", std::process::id()));
    let files = measure(&plan, "test").write(&directory).expect("the files can be written");
    let names: Vec<_> = files.iter().filter_map(|file| file.file_name()?.to_str()).collect();
    for wanted in ["rules.json", "rules.md", "rules.svg", "rules-cold.svg"] {
        assert!(names.contains(&wanted), "{wanted} is not among {names:?}");
    }
    let page = std::fs::read_to_string(directory.join("rules.md")).expect("a page");
    assert!(
        page.contains("| paper: QNS | 43 |") && page.contains("| natgate, batched |"),
        "{page}"
    );
    std::fs::remove_dir_all(&directory).expect("the files can be removed");
}
