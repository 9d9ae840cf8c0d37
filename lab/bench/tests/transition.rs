//! RFC 8219's measurements in small.

use natgate_lab::router::transition::{Plan, Technology, measure};
use std::time::Duration;

#[test]
fn every_technology_has_its_figures() {
    let plan = Plan {
        sizes: vec![64, 9216],
        flows: 50,
        trial: Duration::from_micros(100),
        precision: 0.2,
        ..Plan::quick()
    };
    let report = measure(&plan, "test");
    let json = report.json();
    assert_eq!(
        (&json["benchmark"], &json["repetitions"]),
        (&"router-transition".into(), &2.into())
    );
    assert_eq!(json["failed"].as_array().map(Vec::len), Some(0), "{json:#}");
    let rows = json["rows"].as_array().expect("rows");
    assert_eq!(rows.len(), Technology::ALL.len() * 5);
    for technology in Technology::ALL.map(Technology::key) {
        let of = |row: &&serde_json::Value| row["technology"] == technology;
        let shares: Vec<_> =
            rows.iter().filter(of).filter_map(|row| row["foreground_percent"].as_u64()).collect();
        assert_eq!(shares, [100, 100, 90, 50, 10], "{technology}");
    }
    for row in rows {
        let number = |value: &serde_json::Value| value.as_f64().unwrap_or(f64::NAN);
        let [rate, line] = [&row["throughput"]["median"], &row["line_rate"]].map(number);
        assert!(rate > 1e3 && rate <= line * 1.001, "{row:#}");
        let [typical, worst] =
            ["typical_latency_us", "worst_latency_us"].map(|field| number(&row[field]["p99"]));
        assert!(
            typical > 0.0 && worst >= typical && number(&row["pdv_us"]["p1"]) >= 0.0,
            "{row:#}"
        );
        let ipdv: Vec<f64> = row["ipdv_us"].as_array().expect("three").iter().map(number).collect();
        assert!(ipdv.len() == 3 && ipdv.is_sorted(), "{row:#}");
        let loss = row["loss"].as_array().expect("offered rates");
        assert!((2..=10).contains(&loss.len()) && loss[0]["offered_percent"] == 100, "{row:#}");
    }
    // Sizes are those of IPv6, or of the tester's IPv4.
    for (technology, sizes) in
        [("nat64", [84, 64]), ("clat", [64, 84]), ("464xlat", [64, 64]), ("ds-lite", [104, 64])]
    {
        let row = rows.iter().find(|row| row["technology"] == technology).expect("a row");
        assert_eq!(row["frame_at"], serde_json::json!(sizes), "{row:#}");
    }
    let page = report.markdown();
    for wanted in ["## Throughput (section 7.1)", "| 64 (IPv6: 84), 90 % |", "## 464XLAT: double"] {
        assert!(page.contains(wanted), "{wanted} is not in {page}");
    }
}
