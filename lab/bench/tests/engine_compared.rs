//! A run of the engine's benchmark compared with an earlier one.

use natgate_lab::engine::{Plan, run};
use std::time::Duration;

#[test]
fn a_run_is_compared_with_an_earlier_one() {
    let plan = Plan { sessions: 4_000, batch: 32, time: Duration::ZERO, tcp: false };
    let results = run(&plan, 1, true, 2.0);
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
