//! The engine's benchmark in small: every figure is present and plausible. The test is a process of
//! its own, because memory that another run frees falsifies the memory of a run.

use natgate_lab::engine::{Plan, run};
use natgate_lab::report::Report;
use serde_json::Value;
use std::time::Duration;

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
                "sessions",
                "cycles_per_ns",
            ],
        );
        if !tcp {
            // Later runs get the pages of earlier runs, so only the first shows its memory.
            positive(&json, &["bytes_per_session"]);
        }
        assert_eq!(json["sessions"], 4_000);
        // The rounds have packets of established sessions only, and all are answered before.
        assert!(json["complete_percent"].as_f64().is_some_and(|share| share < 0.5));
        positive(&json["ratios_to_limit"], &["outbound", "inbound", "mixed", "create"]);
        positive(&json["threads"], &["alone_mpps", "together_mpps", "ratio", "ratio_wall"]);
        let pause = &json["pause"];
        positive(pause, &["expiring", "longest_us", "median_us", "quiet_longest_us"]);
        assert!(pause["longest_us"].as_f64() >= pause["median_us"].as_f64());
        assert!(pause["longest_of_run_us"].as_f64() >= pause["longest_us"].as_f64());
        positive(pause, &["most_ended", "runs"]);
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
