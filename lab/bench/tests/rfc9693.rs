//! RFC 9693's measurements in small.

use natgate_lab::rfc9693::{Plan, measure};

#[test]
fn rates_are_found_and_the_capacity_is_what_was_configured() {
    rates_are_found(false);
}

#[test]
fn rates_of_nat64_are_found() {
    rates_are_found(true);
}

fn rates_are_found(nat64: bool) {
    let plan = Plan {
        nat64,
        sessions: vec![2_000, 6_000],
        frames: 10_000,
        capacity: 9_000,
        first_capacity: 2_000,
        ..Plan::quick()
    };
    let json = measure(&plan, "test").json();
    assert_eq!(json["nat64"], nat64);
    let sizes = json["sizes"].as_array().expect("sizes");
    assert_eq!(sizes.len(), 2);
    for size in sizes {
        for rate in ["establishment", "throughput", "tear_down"] {
            let median = size[rate]["median"].as_f64().expect("a median");
            assert!(median > 1e4, "{rate} of {size:#}");
        }
        // The median of two values is one of them. Half the rate cannot have a much longer delay
        // than the whole.
        assert!(size["delay_us"][0].as_f64() <= size["delay_us"][1].as_f64(), "{size:#}");
        assert!(size["dropped"].as_f64().is_some_and(|rate| rate > 0.0), "{size:#}");
    }
    assert_eq!(json["capacity"]["configured"], 9_000);
    let found = json["capacity"]["found"].as_u64().expect("a number");
    assert!((8_900..=9_000).contains(&found), "{found}");
}
