//! Translations of IPv6 beside NAT44, in small: every figure is present. The test is a process of
//! its own, because memory that another run frees falsifies the memory of a run.

use natgate_lab::ipv6::{Plan, measure};
use serde_json::Value;
use std::time::Duration;

fn positive(value: &Value, fields: &[&str]) {
    for field in fields {
        assert!(value[field].as_f64().is_some_and(|it| it > 0.0), "{field} of {value:#}");
    }
}

const MODES: [&str; 10] = [
    "NAT44",
    "NAT64",
    "DS-Lite",
    "SIIT",
    "SIIT with 1,000 maps",
    "NPTv6",
    "lw4o6",
    "lw4o6, 10,000 changes a second",
    "MAP-E",
    "MAP-T",
];

#[test]
fn every_translation_has_its_figures() {
    let plan =
        Plan { sessions: vec![3000, 6000], batch: 32, time: Duration::ZERO, subscribers: 500 };
    let report = measure(&plan, "test");
    let json = report.json();
    assert_eq!((&json["benchmark"], &json["batch"]), (&"ipv6".into(), &32.into()));
    let sizes = json["sizes"].as_array().expect("sizes");
    assert_eq!(sizes.len(), 2);
    for (size, sessions) in sizes.iter().zip([3000, 6000]) {
        assert_eq!(size["sessions"], sessions);
        positive(size, &["hosts", "sweep_call_ns", "sweep_calls"]);
        positive(&size["limit_ns"], &["median"]);
        let rows = size["rows"].as_array().expect("rows");
        for mode in MODES {
            for way in ["outbound", "inbound", "mixed"] {
                let row = rows.iter().find(|row| row["mode"] == mode && row["way"] == way);
                let row = row.unwrap_or_else(|| panic!("there is no row {mode}, {way}"));
                positive(&row["ns"], &["median", "runs"]);
                positive(&row["to_nat44"], &["min", "median", "max"]);
                assert!(mode != "NAT44" || row["to_nat44"]["max"] == 1.0, "{row}");
            }
        }
        size["create_ns"].as_array().expect("two").iter().for_each(|it| positive(it, &["median"]));
    }
    // Later sizes get the pages of earlier ones, so only the first shows its memory.
    positive(&sizes[0]["memory"], &["nat44_bytes_per_session", "nat64_bytes_per_session"]);
    positive(&json["hosts"], &["subscribers", "one_each_bytes", "full_bytes"]);
    let targets = json["targets"].as_array().expect("targets");
    assert_eq!(targets.len(), 2 * 28 + 2);
    for target in targets {
        let is_within = target["found"].as_f64() <= target["wanted"].as_f64();
        assert_eq!(target["reached"], is_within, "{target}");
    }
    let page = report.markdown();
    for wanted in ["## 3,000 sessions", "| NPTv6, mixed |", "## Memory", "## Targets"] {
        assert!(page.contains(wanted), "{wanted} is not in {page}");
    }
}
