//! Classes of subscribers, thresholds, timeouts by port and by rule: what is read, what is refused
//! and warned of, at its place and with the arithmetic, and what `natgate check` says.

mod common;

use common::{HEAD, texts};
use natgate_control::config::{parse, read_text};
use natgate_control::meaning::Meaning;
use natgate_engine::{Class, ClassLimits, PortTimeout, Prefix, TimeoutSet, Totals};
use std::fmt::Write;
use std::time::Duration;

#[track_caller]
fn refused(extra: &str, expected: &[&str]) {
    let text = format!("{HEAD}{extra}");
    assert_eq!(texts(&read_text(&text, "t").err().unwrap_or_default()), expected, "{text}");
}

#[track_caller]
fn warned(extra: &str, expected: &[&str]) {
    let text = format!("{HEAD}{extra}");
    assert_eq!(texts(&read_text(&text, "t").unwrap().warnings), expected, "{text}");
}

fn prefix(text: &str, len: u8) -> Prefix {
    Prefix::new(text.parse().unwrap(), len)
}

#[test]
fn a_class_says_what_it_says_and_no_more() {
    let text = format!(
        "{HEAD}thresholds = [50]\n\
         [limits]\nthresholds = [80, 95]\nsessions_per_subscriber = 9\n\
         [[class]]\nname = \"one\"\nsubscribers = [\"10.1.0.0/16\"]\n\
         limits = {{ ports_per_subscriber = {{ udp = 7 }}, sessions_per_mapping = 3, thresholds = \
         [] }}\n\
         [[class]]\nname = \"two\"\nsubscribers = [\"10.2.0.0/16\", \"10.1.7.1\"]\n\
         total = {{ ports = {{ tcp = 5000, icmp = 600 }}, sessions = 6, thresholds = [10, 100] }}\n\
         [class.limits]\nnew_mappings_per_second = 4\nsessions_per_subscriber = 5\n"
    );
    let config = parse(&text, "t").unwrap().engine;
    assert_eq!(config.limits.thresholds, [80, 95]);
    assert_eq!(config.limits.sessions_per_subscriber, Some(9));
    assert_eq!(config.pools[0].thresholds, [50]);
    let one = Class {
        realm: None,
        name: "one".into(),
        subscribers: vec![prefix("10.1.0.0", 16)],
        limits: ClassLimits {
            udp_ports: Some(7),
            sessions_per_mapping: Some(3),
            thresholds: Some(vec![]),
            ..ClassLimits::default()
        },
        total: Totals::default(),
    };
    let two = Class {
        realm: None,
        name: "two".into(),
        subscribers: vec![prefix("10.2.0.0", 16), prefix("10.1.7.1", 32)],
        limits: ClassLimits {
            new_mappings_per_second: Some(4),
            sessions_per_subscriber: Some(5),
            ..ClassLimits::default()
        },
        total: Totals {
            tcp_ports: Some(5000),
            icmp_ports: Some(600),
            sessions: Some(6),
            thresholds: vec![10, 100],
            ..Totals::default()
        },
    };
    assert_eq!(config.classes, [one, two]);
}

#[test]
fn classes_that_contradict_each_other_are_refused() {
    let total = "total = { sessions = 5 }\n";
    refused(
        &format!(
            "[[class]]\nname = \"one\"\nsubscribers = [\"10.1.0.0/16\", \"10.1.0.0/16\"]\n{total}\
             [[class]]\nname = \"one\"\nsubscribers = [\"10.1.0.0/17\", \"10.1.0.0/16\"]\n{total}"
        ),
        &[
            "9:31 class[0].subscribers[1]: 10.1.0.0/16 is in class \"one\" in line 9 already; name \
             each prefix once",
            "12:8 class[1].name: \"one\" is the name of the class in line 8; give each class its \
             own",
            "13:31 class[1].subscribers[1]: 10.1.0.0/16 is in class \"one\" in line 9 already; \
             name each prefix once",
        ],
    );
    refused(
        "[[class]]\nname = \"one\"\nsubscribers = []\n",
        &[
            "7:1 class[0]: says nothing of its subscribers; \
             write limits = { ... } or total = { ... }",
            "9:15 class[0].subscribers: names nobody; write inside prefixes such as \
             [\"10.1.0.0/16\"]",
        ],
    );
    refused(
        "[[class]]\nlimits = {}\n",
        &[
            "7:1 class[0].name: is missing; write name = \"business\"",
            "7:1 class[0].subscribers: is missing; write subscribers = [\"10.1.0.0/16\"]",
        ],
    );
    refused(
        "[[class]]\nname = \"one\"\nsubscribers = [\"10.0.0.0/8\"]\n\
         total = { thresholds = [80] }\n",
        &["10:24 class[0].total.thresholds: has no effect: the total has no limit; write one, or \
           leave this out"],
    );
}

#[test]
fn limits_that_cannot_be_reached_or_keep_nobody_from_others_are_warned_of() {
    let class = "[[class]]\nname = \"one\"\nsubscribers = [\"10.1.0.0/16\"]\n";
    warned(
        &format!("{class}limits = {{ ports_per_subscriber = {{ tcp = 70000 }} }}\n"),
        &["10:35 class[0].limits.ports_per_subscriber: the TCP quota of 70000 is more than the \
           64512 ports of an address of pool \"default\", which is all that a subscriber gets \
           under paired pooling"],
    );
    warned(
        &format!(
            "{class}total = {{ ports = {{ udp = 129025 }}, new_mappings_per_second = 400 }}\n"
        ),
        &[
            "10:27 class[0].total.ports.udp: 129025 UDP ports are more than the 129024 that all \
             pools have",
            "10:63 class[0].total.new_mappings_per_second: 400 new mappings a second for all are \
             fewer than the 500 that one may have, so that one alone can use them up",
        ],
    );
    warned(&format!("{class}total = {{ ports = {{ udp = 129024, tcp = 2000 }} }}\n"), &[]);
    warned(
        &format!(
            "{class}total = {{ sessions = 10 }}\nlimits = {{ sessions_per_subscriber = 11 }}\n"
        ),
        &["10:22 class[0].total.sessions: 10 sessions for all are fewer than the 11 that one may \
           have, so that one alone can use them up"],
    );
    warned(
        "[nat]\nsubscribers = [\"10.0.0.0/16\"]\n[[class]]\nname = \"one\"\n\
         subscribers = [\"10.1.0.0/16\", \"10.0.0.0/8\"]\nlimits = {}\n",
        &["11:16 class[0].subscribers[0]: nobody in 10.1.0.0/16 is in nat.subscribers, so the \
           class has nobody there"],
    );
}

#[test]
fn thresholds_are_percentages_in_order() {
    for (list, expected) in [
        ("[9]", "8:15 limits.thresholds[0]: 9 is out of bounds; it must be from 10 to 100"),
        ("[80, 101]", "8:19 limits.thresholds[1]: 101 is out of bounds; it must be from 10 to 100"),
        (
            "[80, 80]",
            "8:19 limits.thresholds[1]: 80 comes after 80; write them ascending, each once",
        ),
        (
            "[95, 80]",
            "8:19 limits.thresholds[1]: 80 comes after 95; write them ascending, each once",
        ),
        (
            "[10, 20, 30, 40, 50]",
            "8:14 limits.thresholds: has 5 percentages; at most 4 are possible",
        ),
        (
            "80",
            "8:14 limits.thresholds: is an integer; it must be an array of percentages, such as \
             [80, 95]",
        ),
    ] {
        refused(&format!("[limits]\nthresholds = {list}\n"), &[expected]);
    }
    refused(
        "thresholds = [5]\n",
        &["7:15 pool[0].thresholds[0]: 5 is out of bounds; it must be from 10 to 100"],
    );
}

fn timeout(protocol: &str, port: &str, idle: &str) -> String {
    format!("[[timeout]]\nprotocol = \"{protocol}\"\nport = {port}\nidle = \"{idle}\"\n")
}

#[test]
fn ports_have_one_timeout_each() {
    let three = [
        timeout("udp", "53", "10s"),
        timeout("tcp", "\"50-60\"", "3h"),
        timeout("dccp", "53", "3h"),
    ];
    let config = parse(&format!("{HEAD}{}", three.concat()), "t").unwrap().engine;
    let of = |protocol, ports, seconds| {
        let idle = Duration::from_secs(seconds);
        PortTimeout { protocol, ports, idle }
    };
    assert_eq!(
        config.port_timeouts,
        [of(17, (53, 53), 10), of(6, (50, 60), 10_800), of(33, (53, 53), 10_800)]
    );
    refused(
        &[timeout("udp", "\"50-53\"", "10s"), timeout("udp", "53", "20s")].concat(),
        &["13:8 timeout[1].port: port 53 has a timeout in line 9 already; give each port one"],
    );
    refused(
        "[[timeout]]\nport = 0\nidle = \"0s\"\n",
        &[
            "7:1 timeout[0].protocol: is missing; write protocol = \"udp\"",
            "8:8 timeout[0].port: 0 is out of bounds; it must be from 1 to 65535",
            "9:8 timeout[0].idle: 0s is out of bounds; it must be from 1s to 30d",
        ],
    );
    let many: String = (1..=257).map(|port| timeout("udp", &port.to_string(), "10s")).collect();
    refused(&many, &["1029:8 timeout[255].port: is one more than the 255 that are possible"]);
}

//= test rfc4787#REQ-5a
#[test]
fn a_port_below_1024_may_have_a_shorter_timeout() {
    let short = [
        timeout("udp", "53", "10s"),
        timeout("udp", "\"1000-1024\"", "1m"),
        timeout("tcp", "443", "2h"),
    ];
    warned(
        &short.concat(),
        &[
            "14:8 timeout[1].idle: 1m is below the 2m that RFC 4787 REQ-5 asks for but of ports \
             below 1024",
            "18:8 timeout[2].idle: 2h is below the 2h4m that RFC 5382 REQ-5 asks for",
        ],
    );
}

fn rule(number: usize, timeouts: &str) -> String {
    format!(
        "[[rule]]\nkind = \"snat\"\nmatch = {{ source = \"10.0.0.{number}\" }}\n\
         pool = \"default\"\n\
         timeouts = {timeouts}\n"
    )
}

#[test]
fn rules_have_few_sets_of_timeouts() {
    let rules = [
        rule(0, "{ udp = \"3m\" }"),
        rule(1, "{ tcp_established = \"3h\", icmp = \"2m\" }"),
        rule(2, "{ udp = \"180s\" }"),
    ];
    let config = parse(&format!("{HEAD}{}", rules.concat()), "t").unwrap().engine;
    assert_eq!(config.rules.iter().map(|rule| rule.timeouts).collect::<Vec<u8>>(), [1, 2, 1]);
    let minutes = |minutes: u64| Some(Duration::from_secs(60 * minutes));
    let first = TimeoutSet { udp: minutes(3), ..TimeoutSet::default() };
    let second =
        TimeoutSet { tcp_established: minutes(180), icmp: minutes(2), ..TimeoutSet::default() };
    assert_eq!(config.timeout_sets, [first, second]);
    let many: String = (0..40)
        .map(|number| rule(number, &format!("{{ other = \"{}s\" }}", number / 2 + 1)))
        .collect();
    refused(
        &many,
        &["161:12 rule[30].timeouts: is set 16 of different timeouts; at most 15 are possible, \
           let rules have the same ones"],
    );
    let fifteen: String = (0..30)
        .map(|number| rule(number, &format!("{{ other = \"{}s\" }}", number / 2 + 1)))
        .collect();
    warned(&fifteen, &[]);
    warned(
        &[rule(0, "{ udp = \"30s\" }"), rule(1, "{ udp = \"30s\" }")].concat(),
        &["11:12 rule[0].timeouts.udp: 30s is below the 2m that RFC 4787 REQ-5 asks for"],
    );
    refused(
        &rule(0, "{}"),
        &["11:12 rule[0].timeouts: has no timeout; write one such as { udp = \"30s\" }"],
    );
    refused(
        "[[rule]]\nkind = \"bypass\"\nmatch = { source = \"10.0.0.1\" }\n\
         timeouts = { udp = \"3m\" }\n",
        &["10:12 rule[0].timeouts: has no effect here; only a rule of kind \"snat\" has it"],
    );
}

#[test]
fn words_say_what_holds_for_whom() {
    let mut text = format!("{HEAD}thresholds = [90]\n");
    write!(
        text,
        "[limits]\nsessions_per_subscriber = 20000\nthresholds = [80, 95]\n\
         [[class]]\nname = \"business\"\nsubscribers = [\"10.1.0.0/16\", \"10.7.0.1\"]\n\
         limits = {{ ports_per_subscriber = {{ tcp = 8000 }}, thresholds = [] }}\n\
         total = {{ ports = {{ udp = 90000 }}, new_mappings_per_second = 5000, thresholds = [50] \
         }}\n\
         {}{}{}",
        timeout("udp", "53", "10s"),
        timeout("tcp", "\"5222-5223\"", "12h"),
        rule(9, "{ udp = \"3m\", tcp_closing = \"4m\" }"),
    )
    .unwrap();
    let meaning = Meaning::of(read_text(&text, "t").unwrap()).to_string();
    for line in [
        "    use: an event at 90 %, and again after 10 points less",
        "  a subscriber: 2,000 TCP, 2,000 UDP and 200 ICMP mappings",
        "  a subscriber: 20,000 sessions",
        "  a subscriber: an event at 80 %, 95 %, and again after 10 points less",
        "  class business: 65,537 addresses, 10.1.0.0/16, 10.7.0.1/32",
        "    a subscriber: 8,000 TCP, 2,000 UDP and 200 ICMP mappings",
        "    a subscriber: 500 new mappings a second",
        "    a subscriber: 20,000 sessions",
        "    a mapping: 64 sessions",
        "    together: 90,000 UDP mappings, 5,000 new mappings a second",
        "    together: an event at 50 %, and again after 10 points less",
        "  UDP to port 53 10s",
        "  TCP established to ports 5222-5223 12h",
        "  rule: source 10.0.0.9/32 uses pool default, UDP 3m, TCP closing 4m",
    ] {
        assert!(meaning.lines().any(|found| found == line), "{line:?} is not in\n{meaning}");
    }
    let own = "    a subscriber: an event";
    assert!(!meaning.lines().any(|line| line.starts_with(own)), "{meaning}");
}
