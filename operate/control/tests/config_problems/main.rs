//! Problems of bad configurations: every problem is told, at its place, with its remedy.

mod pools;
mod rules;
mod sides;
mod statics;

use natgate_control::config::{self, Problem, read_text};
use std::path::Path;

const SMALLEST: &str = r#"[inside]
device = "eth1"
[outside]
device = "eth0"
[[pool]]
addresses = ["203.0.113.1"]
"#;

/// Compares `LINE:COLUMN key: message` of each problem with what is expected: the same beginning up
/// to the first `…`, then a fragment.
#[track_caller]
fn compare(text: &str, found: &[Problem], expected: &[&str]) {
    let found: Vec<String> = found
        .iter()
        .map(|problem| {
            let position = problem.line.zip(problem.column);
            let (line, column) = position.expect("a problem in the text has a position");
            format!("{line}:{column} {}: {}", problem.key, problem.message)
        })
        .collect();
    let agrees = |(found, expected): (&String, &&str)| {
        let (start, fragment) = expected.split_once('…').unwrap_or((expected, ""));
        found.starts_with(start) && found.contains(fragment)
    };
    let same = found.len() == expected.len() && found.iter().zip(expected).all(agrees);
    assert!(same, "in\n{text}\nfound    {found:#?}\nexpected {expected:#?}");
}

#[track_caller]
fn refused(text: &str, expected: &[&str]) {
    let problems = read_text(text, "t.toml").err().unwrap_or_default();
    compare(text, &problems, expected);
}

/// A case that stands below the smallest file, from line 7 on.
#[track_caller]
fn refused_after_smallest(cases: &[(&str, &[&str])]) {
    for (extra, expected) in cases {
        refused(&format!("{SMALLEST}{extra}"), expected);
    }
}

#[track_caller]
fn warned(cases: &[(&str, &[&str])]) {
    for (text, expected) in cases {
        let read = read_text(text, "t.toml").expect("a configuration with warnings can be run");
        compare(text, &read.warnings, expected);
    }
}

#[test]
fn missing_parts() {
    refused(
        "",
        &[
            "1:1 inside: is missing; write [inside] with device = \"eth1\"",
            "1:1 outside: is missing; write [outside] with device = \"eth0\"",
            "1:1 pool: is missing; write [[pool]] with addresses = [\"203.0.113.1\"]",
        ],
    );
    refused(
        "[inside]\n[outside]\naddress = \"192.0.2.1/24\"\n[[pool]]\n",
        &[
            "1:1 inside.device: is missing; write device = \"eth1\"",
            "2:1 outside.device: is missing; write device = \"eth0\"",
            "4:1 pool[0].addresses: is missing; write addresses = [\"203.0.113.1\"]",
        ],
    );
}

#[test]
fn unknown_keys_and_tables() {
    refused_after_smallest(&[
        ("[nat]\nmaping = 1\n", &["8:1 nat.maping: there is no such key; did you mean `mapping`?"]),
        ("[limts]\n", &["7:2 limts: there is no such table; did you mean `limits`?"]),
        ("zzz = 1\n", &["7:1 pool[0].zzz: …it may have `name`, `addresses`"]),
        ("[nat]\nmtu = 1500\n", &["8:1 nat.mtu: …it belongs in [inside]"]),
        (
            "[limits.ports_per_subscriber]\nsctp = 5\n",
            &["8:1 limits.ports_per_subscriber.sctp: …it may have `tcp`, `udp`, `icmp`"],
        ),
        (
            "[[rule]]\nkind = \"bypass\"\nmatch = { sourc = \"10.0.0.0/8\" }\n",
            &[
                "9:9 rule[0].match: names no prefix; …write source or destination",
                "9:11 rule[0].match.sourc: …did you mean `source`?",
            ],
        ),
    ]);
}

#[test]
fn wrong_types() {
    refused_after_smallest(&[
        ("ports = 5000\n", &["7:9 pool[0].ports: is an integer; it must be a string such as"]),
        ("[timeouts]\nudp = 300\n", &["8:7 timeouts.udp: is an integer; …\"2h4m\""]),
        ("[nat]\nhairpinning = \"yes\"\n", &["8:15 nat.hairpinning: is a string; …true or false"]),
        (
            "[nat]\nsubscribers = \"10.0.0.0/8\"\n",
            &["8:15 nat.subscribers: is a string; …an array"],
        ),
        (
            "[nat]\nmapping = true\n",
            &["8:11 nat.mapping: is true or false; …one of \"endpoint-ind"],
        ),
        ("[nat]\nblock = 512\n", &["8:9 nat.block: is an integer; …a table [nat.block]"]),
        ("[limits]\nmappings = 1.5\n", &["8:12 limits.mappings: is a number with a fraction; …"]),
        ("[static]\ninternal = \"10.0.0.1\"\n", &["7:1 static: is a table; …write [[static]]"]),
        ("[[nat]]\n[[nat]]\n", &["7:1 nat: is there more than once; write one [nat]"]),
        ("name = 1979-05-27\n", &["7:8 pool[0].name: is a date; …a name"]),
    ]);
    refused(
        "inside = 5\n[outside]\ndevice = \"eth0\"\n[[pool]]\naddresses = [\"203.0.113.1\", 7]\n",
        &[
            "1:10 inside: is an integer; it must be a table [inside]",
            "5:29 pool[0].addresses[1]: is an integer; it must be an address",
        ],
    );
    refused(
        &SMALLEST.replace("[\"203.0.113.1\"]", "[]"),
        &["6:13 pool[0].addresses: has no address; …write one"],
    );
}

#[test]
fn text_that_is_not_toml() {
    refused_after_smallest(&[
        (
            "[timeouts]\nudp = 5m\nicmp = \"x\"\n",
            &[
                "8:7 : is not TOML: 5m is a duration without quotes; write udp = \"5m\"",
                "9:8 timeouts.icmp: \"x\" is no duration",
            ],
        ),
        ("ports = \"1-2\"\nports = \"1-2\"\n", &["8:1 : is not TOML: duplicate key"]),
        ("[nat\n", &["7:5 : is not TOML: unclosed table"]),
    ]);
    // A table that could not be read is not called missing.
    refused("[inside\ndevice = \"é\" \u{1}\n", &["1:8 : is not TOML", "2:14 : is not TOML"]);
}

#[test]
fn words() {
    refused_after_smallest(&[
        (
            "[nat]\nmapping = \"endpoint-independant\"\n",
            &["8:11 nat.mapping: \"endpoint-independant\" is unknown; did you mean \"endpoint-ind"],
        ),
        ("[nat]\nfiltering = \"full cone\"\n", &["8:13 nat.filtering: …it must be one of \"endp"]),
        ("[nat]\npooling = \"Paired\"\n", &["8:11 nat.pooling: …did you mean \"paired\"?"]),
        ("[nat]\nallocation = \"blocks\"\n", &["8:14 nat.allocation: …did you mean \"block\"?"]),
        ("allocation = \"any\"\n", &["7:14 pool[0].allocation: …one of \"random\", \"preserve\""]),
    ]);
}

#[test]
fn numbers() {
    refused_after_smallest(&[
        (
            "[limits]\nports_per_subscriber = { tcp = 0, udp = -1, icmp = 4294967296 }\n",
            &[
                "8:32 limits.ports_per_subscriber.tcp: 0 is out of bounds; …1 to 4294967295",
                "8:41 limits.ports_per_subscriber.udp: -1 is out of bounds",
                "8:52 limits.ports_per_subscriber.icmp: 4294967296 is out of bounds",
            ],
        ),
        ("[limits]\nsessions_per_mapping = 65536\n", &["8:24 limits.sessions_per_mapping: …65535"]),
        ("[limits]\nnew_mappings_per_second = 0\n", &["8:27 limits.new_mappings_per_second: 0 "]),
        ("[limits]\nicmp_errors_per_second = 0\n", &["8:26 limits.icmp_errors_per_second: 0 is"]),
        ("[limits]\nmappings = 0\n", &["8:12 limits.mappings: 0 is"]),
        (
            "[limits]\nextra_sessions = 0x4000_0001\n",
            &["8:18 limits.extra_sessions: 0x40000001 is"],
        ),
        ("[limits]\nfragment_memory = \"16MB5\"\n", &["8:19 limits.fragment_memory: …no size"]),
        ("[limits]\nfragment_memory = \"1KiB\"\n", &["8:19 limits.fragment_memory: …\"64KiB\""]),
        ("[limits]\nfragment_memory = 0\n", &["8:19 limits.fragment_memory: 0 is out of bounds"]),
        (
            "[nat.block]\nsize = 0\nmax_per_subscriber = 0\n",
            &[
                "8:8 nat.block.size: 0 is out of bounds",
                "9:22 nat.block.max_per_subscriber: 0 is out of bounds",
            ],
        ),
    ]);
    let mtu = SMALLEST.replace("\"eth0\"", "\"eth0\"\nmtu = 67");
    refused(&mtu, &["5:7 outside.mtu: 67 is out of bounds; it must be from 68 to 65535"]);
}

#[test]
fn durations() {
    for (value, fragment) in [
        ("", "is no duration"),
        ("5", "is no duration"),
        ("m", "is no duration"),
        ("5 m", "is no duration"),
        ("4m2h", "in this order"),
        ("1m1m", "is no duration"),
        ("5M", "is no duration"),
        ("-5m", "is no duration"),
        ("1.5h", "is no duration"),
        ("18446744073709551615s1000ms", "is no duration"),
        ("213503982335d", "is no duration"),
        ("0s", "0s is out of bounds; it must be from 1s to 30d"),
        ("999ms", "999ms is out of bounds"),
        ("31d", "31d is out of bounds"),
    ] {
        let expected = format!("8:7 timeouts.udp: …{fragment}");
        refused(&format!("{SMALLEST}[timeouts]\nudp = \"{value}\"\n"), &[&expected]);
    }
    refused_after_smallest(&[
        ("[timeouts]\nhold_down = \"61m\"\n", &["8:13 timeouts.hold_down: 1h1m is …1ms to 1h"]),
        ("[timeouts]\nfragment = \"3m\"\n", &["8:12 timeouts.fragment: 3m is …1ms to 2m"]),
    ]);
}

#[test]
fn state() {
    let interval = "is out of bounds; it must be from 100ms to 1d";
    let cases = [
        ("[state]\n", "7:1 state.file: is missing; write file = \"/var/lib/natgate/ports\""),
        ("[state]\nfile = 5\n", "8:8 state.file: is an integer; it must be a path in quotes"),
        ("[state]\nfile = \"ports\"\n", "8:8 state.file: \"ports\" is no absolute path of a file"),
        ("[state]\nfile = \"/var/\"\n", "8:8 state.file: \"/var/\" is no absolute path of a file"),
        ("[state]\nfile = \"\"\n", "8:8 state.file: \"\" is no absolute path of a file"),
        ("[state]\nfile = \"/p\\u0000\"\n", "8:8 state.file: \"/p\\0\" is no absolute path"),
        (
            "[state]\nfile = \"/p\"\ninterval = \"99ms\"\n",
            &format!("9:12 state.interval: 99ms {interval}"),
        ),
        (
            "[state]\nfile = \"/p\"\ninterval = \"25h\"\n",
            &format!("9:12 state.interval: 1d1h {interval}"),
        ),
        ("[state]\nfil = \"/p\"\n", "8:1 state.fil: there is no such key; did you mean `file`?"),
    ];
    for (extra, expected) in cases {
        let missing = ["7:1 state.file: is missing; write file = \"/var/lib/natgate/ports\""];
        let more = if extra.contains("fil =") { &missing[..] } else { &[] };
        refused(&format!("{SMALLEST}{extra}"), &[more, &[expected]].concat());
    }
}

//= test rfc7857#section-2.1-shorter
#[test]
fn what_is_unwise_is_a_warning() {
    let after = |extra: &str| format!("{SMALLEST}{extra}");
    let limits = "[limits]\nports_per_subscriber = { tcp = 70000 }\n";
    let sides = SMALLEST
        .replace("\"eth1\"", "\"eth1\"\naddress = \"10.0.0.1/8\"\nmtu = 500")
        .replace("\"eth0\"", "\"eth0\"\naddress = \"10.9.0.1/16\"");
    let in_outside = SMALLEST
        .replace("\"eth1\"", "\"eth1\"\naddress = \"10.9.0.1/16\"")
        .replace("\"eth0\"", "\"eth0\"\naddress = \"10.0.0.1/8\"");
    let inside_pool = SMALLEST.replace("\"eth1\"", "\"eth1\"\naddress = \"203.0.113.9/24\"");
    let second = "[[pool]]\nname = \"b\"\naddresses = [\"203.0.113.2\"]\n";
    warned(&[
        (SMALLEST, &[]),
        (
            &after("[timeouts]\nudp = \"119s\"\ntcp_established = \"2h\"\ntcp_opening = \"4m\"\n"),
            &[
                "8:7 timeouts.udp: 1m59s is below the 2m that RFC 4787 REQ-5 asks for",
                "9:19 timeouts.tcp_established: 2h is below the 2h4m that RFC 5382 REQ-5 asks for",
            ],
        ),
        (
            &after(
                "[timeouts]\ntcp_opening = \"3m\"\ntcp_closing = \"3m\"\nicmp = \"59s\"\n\
                 hold_down = \"1s\"\nother = \"1s\"\nfragment = \"1s\"\n",
            ),
            &[
                "8:15 timeouts.tcp_opening: 3m is below the 4m",
                "9:15 timeouts.tcp_closing: 3m is below the 4m",
                "10:8 timeouts.icmp: 59s is below the 1m",
                "11:13 timeouts.hold_down: 1s is below the 2m",
            ],
        ),
        (&after("[nat.block]\nsize = 512\n"), &["7:1 nat.block: has no effect"]),
        (
            &after("[nat]\nsubscribers = [\"10.1.0.0/16\", \"10.0.0.0/8\"]\n"),
            &["8:16 nat.subscribers[0]: 10.1.0.0/16 has no effect: 10.0.0.0/8 contains it"],
        ),
        (
            &after(limits),
            &["8:24 limits.ports_per_subscriber: the TCP quota of 70000 is more than the"],
        ),
        (&after(&format!("[nat]\npooling = \"arbitrary\"\n{limits}")), &[]),
        (
            &after(
                "ports = \"5001\"\n[limits]\n\
                 ports_per_subscriber = { tcp = 1, udp = 1, icmp = 1 }\n",
            ),
            &["7:9 pool[0].ports: port 5001 alone leaves even ports without nat.port_parity"],
        ),
        (&after("[limits]\nmappings = 200000\n"), &["8:12 limits.mappings: 200000 mappings take"]),
        (&after(second), &["8:8 pool[1].name: no rule names pool \"b\", so it is never used"]),
        (
            &sides,
            &[
                "3:11 inside.address: the inside network 10.0.0.0/8 contains outside.address",
                "4:7 inside.mtu: is below the 576 bytes",
            ],
        ),
        (
            &in_outside,
            &["6:11 outside.address: the outside network 10.0.0.0/8 contains inside.addr"],
        ),
        (&inside_pool, &["7:14 pool[0].addresses[0]: 203.0.113.1 is in 203.0.113.0/24, the"]),
    ]);
}

#[test]
fn problems_read_as_one_line_each() {
    let problems = config::parse("[inside]\ndevice = \"a\\nb\"\n", "lab.toml");
    let problems = problems.expect_err("there is neither outside nor pool");
    assert_eq!(problems.len(), 3);
    assert!(problems.iter().all(|problem| !problem.contains('\n')), "{problems:?}");
    let odd = config::parse("\"a\\u001b\\nb\" = 1\n", "lab.toml").expect_err("an unknown key");
    assert!(odd[0].starts_with("lab.toml:1:1: \"a\\u{1b}\\nb\": there is no"), "{odd:?}");
    assert!(problems[2].starts_with("lab.toml:2:10: inside.device: \"a\\nb\" names no device; "));
}

#[test]
fn columns_count_characters() {
    refused(
        &format!("\"é\" = 1\r\n{SMALLEST}ports = \"ß\"\r\n"),
        &["1:1 \"é\": there is no such table", "8:9 pool[0].ports: \"ß\" is no range of ports"],
    );
    refused(
        &format!("{SMALLEST}name = \"é\" \n[nat] # é\nx.\"é\" = 5 # \n"),
        &["7:8 pool[0].name: \"é\" is no name", "9:1 nat.x: there is no such key"],
    );
}

#[test]
fn files_that_cannot_be_read() {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let absent = config::load(&directory.join("absent.toml")).expect_err("the file is absent");
    assert_eq!(absent.len(), 1);
    assert!(absent[0].contains("absent.toml: cannot be read: No such file"), "{absent:?}");
    let is_directory = config::load(directory).expect_err("a directory is no file");
    assert!(is_directory[0].contains("Is a directory"), "{is_directory:?}");
    let latin = directory.join("latin1.toml");
    std::fs::write(&latin, b"# ok\n# caf\xe9\n").expect("the test may write its directory");
    let latin = config::load(&latin).expect_err("the file is not UTF-8");
    assert_eq!(latin.len(), 1);
    assert!(latin[0].contains("latin1.toml:2:6: "), "{latin:?}");
}

#[test]
fn values_without_quotes() {
    refused_after_smallest(&[
        ("drain = [203.0.113.1]\n", &["7:10 : is not TOML: 203.0.113.1 is …without quotes"]),
        (
            "[[route]]\nprefix = 10.0.0.0/8\nvia = \"192.0.2.1\"\n",
            &["8:10 : is not TOML: 10.0.0.0/8 is …write prefix = \"10.0.0.0/8\""],
        ),
        (
            "[nat]\nhairpinning = yes\n",
            &["8:15 : is not TOML: yes is no value of TOML; write true"],
        ),
    ]);
    refused(
        &SMALLEST.replace("device = \"eth1\"", "device = \"eth1\"\naddress = 10.0.0.1/8"),
        &["3:11 : is not TOML: 10.0.0.1/8 is …write address = \"10.0.0.1/8\""],
    );
}

#[test]
fn features_that_are_not_built_in_are_named() {
    let text = format!("{SMALLEST}[fleet]\netcd = true\n");
    let problems = read_text(&text, "t.toml").expect_err("larger fleets are not built in");
    let said: Vec<String> = problems.iter().map(ToString::to_string).collect();
    let named = "fleet.etcd: is for a fleet of more than two machines, which is not built in yet";
    assert!(said.iter().any(|one| one.contains(named)), "{said:?}");
    refused_after_smallest(&[("[realm]\n", &["7:1 realm: is a table; …write [[realm]]"])]);
}

#[test]
fn a_segment_size_that_no_link_carries() {
    refused_after_smallest(&[(
        "[nat]\ntcp_mss = 9000\n",
        &["8:11 nat.tcp_mss: 9000 has no effect: the largest mtu, 1500, leaves 1460"],
    )]);
    let jumbo = SMALLEST.replace("device = \"eth1\"", "device = \"eth1\"\nmtu = 9100");
    assert!(read_text(&format!("{jumbo}[nat]\ntcp_mss = 9000\n"), "t").is_ok());
}
