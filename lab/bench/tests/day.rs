//! The simulated day in small. The same seed gives the same day, every scheme meets the same
//! sessions, and the properties of the schemes hold.

use natgate_lab::day::{Plan, measure};
use serde_json::Value;

/// A day that is busy for its pool: few subscribers with very many sessions.
fn busy() -> Plan {
    Plan { subscribers: 128, hours: 1, sessions: 40_000, seed: 5 }
}

/// An ordinary day.
fn small() -> Plan {
    Plan { subscribers: 500, hours: 1, ..Plan::quick() }
}

fn report(plan: &Plan) -> Value {
    measure(plan, &|_| 100, "test").json()
}

fn schemes(report: &Value) -> &Vec<Value> {
    report["schemes"].as_array().expect("schemes")
}

/// Sum of a figure over the hours.
fn sum(scheme: &Value, figure: &str) -> u64 {
    let hours = scheme["hours"].as_array().expect("hours").iter();
    hours.map(|hour| hour[figure].as_u64().expect("a number")).sum()
}

fn refused(scheme: &Value) -> u64 {
    let hours = scheme["hours"].as_array().expect("hours").iter();
    let reasons = hours.flat_map(|hour| hour["refused"].as_object().expect("reasons").values());
    reasons.map(|number| number.as_u64().expect("a number")).sum()
}

fn named<'r>(report: &'r Value, name: &str) -> &'r Value {
    let found = schemes(report).iter().find(|scheme| scheme["scheme"] == name);
    found.unwrap_or_else(|| panic!("there is no scheme {name}"))
}

#[test]
fn all_schemes_meet_the_same_day_and_it_can_be_had_again() {
    let first = report(&small());
    for scheme in schemes(&first) {
        assert!(sum(scheme, "sessions") > 500, "{}", scheme["scheme"]);
        assert_eq!(sum(scheme, "sessions"), sum(&schemes(&first)[0], "sessions"));
        assert_eq!(scheme["looks"].as_array().expect("looks").len(), 2);
        for look in scheme["looks"].as_array().expect("looks") {
            for share in ["tcp", "udp", "bound", "idle", "blocks", "busiest_address"] {
                let share = look[share].as_f64().expect("a share");
                assert!((0.0..=1.0).contains(&share), "{look}");
            }
        }
    }
    let without_times = |mut report: Value| {
        for scheme in report["schemes"].as_array_mut().expect("schemes") {
            scheme["seconds"] = 0.into();
        }
        report["schemes"].clone()
    };
    let again = without_times(report(&small()));
    assert_eq!(again, without_times(first));
    assert_ne!(again, without_times(report(&Plan { seed: 2, ..small() })));
}

#[test]
fn a_busy_day_costs_each_scheme_what_it_is_known_for() {
    let report = report(&busy());
    let random = named(&report, "64:1 random");
    let block = named(&report, "64:1 block, 4 of 512");
    let fixed = named(&report, "64:1 deterministic, 1,008");
    let mixed = named(&report, "64:1 deterministic, 504 and dynamic");
    // The schemes write two lines for each mapping, some lines for each block, or none.
    let lines = |scheme| sum(scheme, "log_lines");
    let accepted = sum(random, "sessions") - refused(random);
    assert!(2 * lines(random) > accepted, "{} lines, {accepted} sessions", lines(random));
    assert!(lines(block) > 0 && lines(block) * 20 < lines(random), "{}", lines(block));
    assert_eq!(lines(fixed), 0);
    assert!(lines(mixed) > 0 && lines(mixed) < lines(random), "{}", lines(mixed));
    assert_eq!(sum(random, "log_bytes"), 100 * lines(random));
    // The busiest subscribers need more ports than their fixed ones.
    let [few, some, all] = [random, mixed, fixed].map(refused);
    assert!(few <= some && some < all, "{few}, {some}, {all}");
    assert!(
        !random["hours"][0]["refused"]
            .as_object()
            .expect("reasons")
            .contains_key("mapping_table_full")
    );
    assert!(fixed["subscribers_refused"].as_u64() > Some(0));
    assert!(fixed["subscribers_refused"].as_u64() < fixed["subscribers_seen"].as_u64());
    let reasons = &fixed["hours"][0]["refused"];
    assert!(reasons["port_quota"].as_u64() > Some(0), "{reasons}");
}

#[test]
fn the_report_has_its_files() {
    let plan = Plan { subscribers: 64, hours: 1, ..Plan::quick() };
    let directory = std::env::temp_dir().join(format!("natgate-day-{}", std::process::id()));
    let files = measure(&plan, &|_| 100, "test").write(&directory).expect("they can be written");
    let names: Vec<_> = files.iter().filter_map(|file| file.file_name()?.to_str()).collect();
    for wanted in ["day.json", "day.md", "day.svg", "day-log.svg", "day-refused.svg"] {
        assert!(names.contains(&wanted), "{wanted} is not among {names:?}");
    }
    let page = std::fs::read_to_string(directory.join("day.md")).expect("a page");
    assert!(page.contains("64 subscribers, seed 1, for 1 hour"), "{page}");
    std::fs::remove_dir_all(&directory).expect("the files can be removed");
}
