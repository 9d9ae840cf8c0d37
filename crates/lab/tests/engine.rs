//! The engine's benchmark in small: every figure is there and can be true.

use natgate_lab::engine::{Plan, run};
use natgate_lab::report::Report;
use serde_json::Value;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// One at a time: memory that another run gives back is missing in what a run takes.
static ALONE: Mutex<()> = Mutex::new(());

fn plan(tcp: bool) -> Plan {
    Plan { sessions: 4_000, batch: 32, time: Duration::ZERO, tcp }
}

fn positive(value: &Value, fields: &[&str]) {
    for field in fields {
        assert!(value[field].as_f64().is_some_and(|it| it > 0.0), "{field} of {value:#}");
    }
}

#[test]
fn every_figure_is_positive() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    for tcp in [false, true] {
        let results = run(&plan(tcp), 2, true, 2.0);
        let report = results.report(Report::new("engine", "Engine", "test"), &[], &[]);
        let json = report.json();
        positive(
            &json,
            &[
                "outbound_ns",
                "inbound_ns",
                "mixed_ns",
                "create_ns",
                "limit_ns",
                "bytes_per_session",
                "sessions",
                "cycles_per_ns",
            ],
        );
        assert_eq!(json["sessions"], 4_000);
        positive(&json["ratios_to_limit"], &["outbound", "inbound", "mixed", "create"]);
        positive(&json["threads"], &["alone_mpps", "together_mpps", "ratio", "ratio_wall"]);
        let pause = &json["pause"];
        positive(pause, &["expiring", "longest_us", "median_us", "quiet_longest_us"]);
        assert!(pause["longest_us"].as_f64() >= pause["median_us"].as_f64());
        let levels = json["scarcity"].as_array().expect("levels");
        assert_eq!(levels.len(), 4);
        levels.iter().for_each(|level| positive(level, &["used_percent", "create_ns"]));
        let page = report.markdown();
        for heading in ["## What bounds it", "## Threads", "## The longest pause", "## When ports"]
        {
            assert!(page.contains(heading), "{heading} is not in {page}");
        }
    }
}

#[test]
fn a_run_is_compared_with_an_earlier_one() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let results = run(&plan(false), 1, true, 2.0);
    let mut earlier = serde_json::to_value(&results).expect("figures are JSON");
    let half = earlier["mixed_ns"].as_f64().expect("a number") / 2.0;
    earlier["mixed_ns"] = half.into();
    let changes = results.against(&earlier).expect("an earlier run");
    let percent = |figure: &str| {
        let change = changes.iter().find(|change| change.figure == figure);
        change.expect("every figure is compared").percent()
    };
    assert!((percent("mixed_ns") - 100.0).abs() < 1e-6);
    assert!(percent("create_ns").abs() < 1e-6);
    assert!(results.against(&serde_json::json!({"mixed_ns": 1})).is_err());
}
