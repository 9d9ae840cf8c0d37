//! The comparison of one table for all workers with one for each, in small: every figure is
//! present, and the counted lines have the properties of the designs.

use natgate_lab::sharing::{Plan, measure};
use serde_json::Value;

fn counted<'a>(report: &'a Value, design: &str, cores: u64, load: &str) -> &'a Value {
    let mut rows = report["counted"].as_array().expect("rows").iter();
    let row = rows.find(|row| {
        (&row["design"], &row["cores"], &row["load"])
            == (&Value::from(design), &Value::from(cores), &Value::from(load))
    });
    row.unwrap_or_else(|| panic!("no row of {design} with {cores} cores"))
}

#[test]
fn designs_differ_in_the_lines_between_cores() {
    let report = measure(&Plan::quick(), "test").json();
    for row in report["timed"].as_array().expect("rows") {
        assert!(row["mpps"]["median"].as_f64().expect("a figure") > 0.0, "{row}");
        assert!(row["creates"].as_f64().expect("a figure") > 0.0, "{row}");
    }
    assert_eq!(report["timed"].as_array().map(Vec::len), Some(8), "one alone, three designs");
    let between = |design: &str, cores: u64, what: &str| {
        let lines = &counted(&report, design, cores, "even")[what];
        let figure = |name: &str| lines[name].as_f64().expect("a figure");
        figure("from_others") + figure("taken_away")
    };
    for design in ["steered", "handed_over", "shared"] {
        assert_eq!(between(design, 1, "established"), 0.0, "{design}: one core has no other");
    }
    for what in ["established", "create"] {
        assert_eq!(between("steered", 4, what), 0.0, "{what}");
        let handed_over = between("handed_over", 4, what);
        assert!(handed_over > 0.75, "{what}: three of four packets move, {handed_over} lines");
    }
    assert!(between("shared", 4, "create") > 0.5, "a bucket and ports of all");
    let page = counted(&report, "shared", 4, "popular");
    assert!(page["established"]["fetched"].as_f64().expect("a figure") >= 1.0, "{page}");
}

#[test]
fn the_report_has_its_files() {
    let directory = std::env::temp_dir().join(format!("natgate-sharing-{}", std::process::id()));
    let files = measure(&Plan::quick(), "test").write(&directory).expect("files");
    let names: Vec<_> = files.iter().filter_map(|file| file.file_name()?.to_str()).collect();
    for wanted in ["sharing.json", "sharing.md", "sharing.svg"] {
        assert!(names.contains(&wanted), "{wanted} is not among {names:?}");
    }
    std::fs::remove_dir_all(&directory).expect("the files can be removed");
}
