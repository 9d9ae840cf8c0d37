//! The soak test in small: an hour over tables that are full from the start.

use natgate_lab::soak::{Plan, run};

#[test]
fn every_promise_is_kept_over_small_tables() {
    for seed in 0..4 {
        let plan = Plan { mappings: 3_000, packets: 60_000, seed };
        let results = run(&plan).unwrap_or_else(|broken| panic!("{broken}"));
        assert_eq!(results.most, 3_000, "the table was full");
        assert!(results.made > 2 * results.most, "mappings came and went: {results:?}");
        assert_eq!(results.made, results.removed);
        assert!(results.left > 0 && results.looks > 5, "{results:?}");
        assert!(results.forwarded > results.packets / 2, "{results:?}");
    }
}
