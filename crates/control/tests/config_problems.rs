//! What bad configurations are told: every problem, at its place, with its remedy.

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
fn what_cannot_be_the_kernels() {
    let head = |side: &str, backend: &str, management: &str| {
        let with = |name: &str| match name == side {
            true => format!("backend = \"{backend}\"\nmanagement = {management}\n"),
            false => String::new(),
        };
        format!(
            "[inside]\ndevice = \"eth1\"\naddress = \"10.0.0.1/8\"\n{}\
             [outside]\ndevice = \"eth0\"\naddress = \"192.0.2.1/24\"\n{}\
             [[pool]]\naddresses = [\"203.0.113.0/28\"]\n\
             [[static]]\ninternal = \"10.0.0.9\"\nexternal = \"198.51.100.9\"\n",
            with("inside"),
            with("outside")
        )
    };
    let many = format!("{:?}", vec!["10.0.0.2"; 33]);
    for (side, backend, management, expected) in [
        (
            "inside",
            "af-xdp",
            "[\"10.0.0.1\"]",
            "5:15 inside.management[0]: 10.0.0.1 is inside.address",
        ),
        (
            "outside",
            "af-packet",
            "[\"203.0.113.7\"]",
            "8:15 outside.management[0]: 203.0.113.7 is an address of pool \"default\"",
        ),
        (
            "outside",
            "af-packet",
            "[\"198.51.100.9\"]",
            "8:15 outside.management[0]: 198.51.100.9 is the external address of a static",
        ),
        (
            "outside",
            "tun",
            "[]",
            "8:14 outside.management: has no effect, because the kernel itself is",
        ),
        (
            "inside",
            "dpdk",
            "[\"10.0.0.2\"]",
            "5:14 inside.management: has no effect, because the kernel does not see",
        ),
        ("inside", "af-xdp", "[\"127.0.0.1\"]", "5:15 inside.management[0]: 127.0.0.1 is in"),
        ("inside", "af-xdp", &many, "5:14 inside.management: has 33 addresses; it may have 32"),
        ("inside", "af-xdp", "\"10.0.0.2\"", "5:14 inside.management: "),
    ] {
        refused(&head(side, backend, management), &[expected]);
    }
    refused_after_smallest(&[
        ("[announce]\ntable = 0", &["8:9 announce.table: "]),
        ("[announce]\ntable = 255", &["8:9 announce.table: is the table of the kernel's own"]),
        ("[announce]\nprotocol = 4", &["8:12 announce.protocol: "]),
        ("[announce]\nprotocol = 256", &["8:12 announce.protocol: "]),
        ("[learn]", &["7:1 learn.table: is missing; write table = 100"]),
        ("[learn]\ntable = -1", &["8:9 learn.table: "]),
        ("[learn]\ntable = 100\nprotocol = 5", &["9:1 learn.protocol: "]),
    ]);
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
                "8:7 : is not TOML: string values must be quoted",
                "9:8 timeouts.icmp: \"x\" is no duration",
            ],
        ),
        ("ports = \"1-2\"\nports = \"1-2\"\n", &["8:1 : is not TOML: duplicate key"]),
        ("[nat\n", &["7:5 : is not TOML: unclosed table"]),
    ]);
    // What could not be read is not called missing.
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
fn dpdk_ports_and_what_dpdk_is_started_with() {
    let with = |device: &str, more: &str| {
        let side = format!("\"{device}\"\nbackend = \"dpdk\"\naddress = \"10.0.0.1/8\"");
        format!("{}{more}", SMALLEST.replace("\"eth1\"", &side))
    };
    for (text, expected) in [
        (with("net memif0", ""), "2:10 inside.device: \"net memif0\" names no DPDK port; "),
        (
            with("net_null0", "[dpdk]\neal = [\"-m\", \"256\", \"--help\"]\n"),
            "10:21 dpdk.eal[2]: \"--help\" ends the program; take it out",
        ),
        (
            with("net_null0", "[dpdk]\neal = [\"-l\", \"1\"]\n"),
            "10:8 dpdk.eal[0]: \"-l\" chooses cores, which natgate does by itself; take it out",
        ),
        (with("net_null0", "[dpdk]\neal = \"-m\"\n"), "10:7 dpdk.eal: …an array of strings"),
        (
            with("net_null0", &format!("[dpdk]\neal = [{}]\n", "\"-m\",".repeat(65))),
            "10:7 dpdk.eal: has 65 arguments; it may have 64",
        ),
    ] {
        refused(&text, &[expected]);
    }
    refused(
        &SMALLEST.replace("\"eth1\"", "\"net_null0\"\nbackend = \"dpdk\""),
        &[
            "1:1 inside.address: is missing, and a DPDK port has none of the kernel's; write address",
        ],
    );
    refused_after_smallest(&[(
        "[dpdk]\neal = []\n",
        &["8:7 dpdk.eal: has no effect, because no side has backend = \"dpdk\"; take it out"],
    )]);
    let outside = "\"net_null0,size=1\"\nbackend = \"dpdk\"\naddress = \"192.0.2.1/24\"";
    refused(
        &with("net_null0,size=2", "").replace("\"eth0\"", outside),
        &["6:10 outside.device: \"net_null0,size=1\" is the inside's device too"],
    );
    // Whatever the back ends.
    refused(
        &SMALLEST.replace("\"eth0\"", "\"eth1\"\nbackend = \"af-xdp\""),
        &["4:10 outside.device: \"eth1\" is the inside's device too"],
    );
}

#[test]
fn rings_and_what_matters_more() {
    let with = |more: &str| SMALLEST.replace("\"eth1\"", &format!("\"eth1\"\n{more}"));
    for (more, expected) in [
        (
            "mode = \"fast\"",
            "3:8 inside.mode: \"fast\" is unknown; it must be one of \"latency\", \"rate\"",
        ),
        (
            "mode = \"rate\"\nbackend = \"tun\"",
            "3:8 inside.mode: \"rate\" is for backend = \"af-packet\", and this side has \"tun\"; take it out",
        ),
        ("ring = 128", "3:8 inside.ring: 128 is out of bounds; it must be from 256 to 65536"),
        ("ring = 5000", "3:8 inside.ring: 5000 is no power of two; write 4096 or 8192"),
        (
            "ring = 65536\nbackend = \"af-xdp\"",
            "3:8 inside.ring: 65536 is out of bounds; it must be from 256 to 16384",
        ),
        (
            "ring = 256\nbackend = \"tun\"",
            "3:8 inside.ring: is for \"af-packet\" and \"af-xdp\", and this side has backend = \"tun\"; take",
        ),
    ] {
        refused(&with(more), &[expected]);
    }
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
fn addresses() {
    for (value, fragment) in [
        ("203.0.113.300", "is no IPv4 address"),
        ("2001:db8::1", "is no IPv4 address"),
        ("", "is no IPv4 address"),
        ("203.0.113.0/33", "is no IPv4 prefix"),
        ("203.0.113.0/+8", "is no IPv4 prefix"),
        ("203.0.113.0/028", "is no IPv4 prefix"),
        ("203.0.113.1/28", "has bits beyond the /28; write \"203.0.113.0/28\""),
        ("203.0.113.9-203.0.113.1", "is reversed; write \"203.0.113.1-203.0.113.9\""),
        ("203.0.113.9-", "is no IPv4 address"),
        ("0.0.0.0/8", "overlaps 0.0.0.0/8 (zero)"),
        ("127.0.0.1", "is in 127.0.0.0/8 (loopback)"),
        ("223.255.255.255-224.0.0.0", "overlaps 224.0.0.0/4 (multicast)"),
        ("255.255.255.255", "is in 240.0.0.0/4 (class E)"),
        ("192.168.1.1", "overlaps 192.168.0.0/16 of nat.subscribers; set nat.subscribers"),
        ("203.0.0.0/16", "makes 65536 external addresses"),
    ] {
        let expected = format!("6:14 pool[0].addresses[0]: …{fragment}");
        refused(&SMALLEST.replace("203.0.113.1", value), &[&expected]);
    }
}

#[test]
fn ports() {
    for (value, fragment) in [
        ("", "is no range of ports"),
        ("1024-", "is no range of ports"),
        ("1024-65536", "is no range of ports"),
        ("1024-2047-4095", "is no range of ports"),
        ("0-1023", "port 0 cannot be used"),
        ("2047-1024", "is reversed; write \"1024-2047\""),
    ] {
        let expected = format!("7:9 pool[0].ports: …{fragment}");
        refused(&format!("{SMALLEST}ports = \"{value}\"\n"), &[&expected]);
    }
}

#[test]
fn pools() {
    let second = |addresses: &str| format!("[[pool]]\nname = \"b\"\naddresses = [{addresses}]\n");
    refused_after_smallest(&[
        (
            &second("\"203.0.113.0/30\""),
            &["9:14 pool[1].addresses[0]: 203.0.113.0/30 overlaps pool[0].addresses[0] in line 6"],
        ),
        // The wide range in between must not hide the overlap with the first.
        (
            &second("\"198.51.100.0/24\", \"198.51.100.7\", \"198.51.100.200\""),
            &[
                "9:33 pool[1].addresses[1]: 198.51.100.7 overlaps pool[1].addresses[0] in line 9",
                "9:49 pool[1].addresses[2]: 198.51.100.200 overlaps pool[1].addresses[0]",
            ],
        ),
        ("[[pool]]\naddresses = [\"203.0.113.2\"]\n", &["7:1 pool[1].name: is missing"]),
        (
            "[[pool]]\nname = \"default\"\naddresses = [\"203.0.113.2\"]\n",
            &["8:8 pool[1].name: \"default\" is the name of the pool in line 5"],
        ),
        ("name = \"a b\"\n", &["7:8 pool[0].name: \"a b\" is no name"]),
    ]);
}

#[test]
fn sides() {
    let sides = |inside: &str, outside: &str| {
        format!(
            "[inside]\n{inside}\n[outside]\n{outside}\n[[pool]]\naddresses = [\"203.0.113.1\"]\n"
        )
    };
    let in_one = "device = \"a\"\naddress = \"10.0.0.1/8\"";
    for (inside, outside, expected) in [
        (in_one, "device = \"a\"", "5:10 outside.device: \"a\" is the inside's device too"),
        (in_one, "device = \"\"", "5:10 outside.device: \"\" names no device"),
        (in_one, "device = \"a/b\"", "5:10 outside.device: \"a/b\" names no device"),
        (
            in_one,
            "device = \"b\"\naddress = \"10.9.0.1/8\"",
            "6:11 outside.address: is in one network",
        ),
        (in_one, "device = \"b\"\naddress = \"192.0.2.1\"", "6:11 outside.address: …no interface"),
        (
            in_one,
            "device = \"b\"\naddress = \"192.0.2.0/24\"",
            "6:11 outside.address: …network address",
        ),
        (in_one, "device = \"b\"\naddress = \"192.0.2.3/30\"", "6:11 outside.address: …broadcast"),
        (
            in_one,
            "device = \"b\"\naddress = \"192.0.2.3/0\"",
            "6:11 outside.address: …every address",
        ),
        (in_one, "device = \"b\"\naddress = \"127.0.0.1/8\"", "6:11 outside.address: …loopback"),
        (in_one, "device = \"b\"\ngateway = \"192.0.2\"", "6:11 outside.gateway: …no IPv4 address"),
    ] {
        refused(&sides(inside, outside), &[expected]);
    }
    let gateway = format!("{in_one}\ngateway = ");
    let other = "device = \"b\"";
    refused(
        &sides(&format!("{gateway}\"192.0.2.1\""), other),
        &["4:11 inside.gateway: 192.0.2.1 is not in 10.0.0.0/8"],
    );
    refused(
        &sides(&format!("{gateway}\"10.0.0.1\""), other),
        &["4:11 inside.gateway: is inside.add"],
    );
    let pool =
        sides(in_one, "device = \"b\"\naddress = \"203.0.113.2/24\"\ngateway = \"203.0.113.1\"");
    refused(&pool, &["9:14 pool[0].addresses[0]: 203.0.113.1 contains outside.gateway"]);
}

#[test]
fn routes() {
    let base = SMALLEST
        .replace("\"eth0\"\n", "\"eth0\"\naddress = \"192.0.2.1/24\"\ngateway = \"192.0.2.254\"\n");
    for (extra, expected) in [
        ("prefix = \"198.51.100.0/24\"", "9:1 route[0].via: is missing"),
        ("via = \"192.0.2.254\"", "9:1 route[0].prefix: is missing"),
        ("prefix = \"8.8.8.8/8\"\nvia = \"192.0.2.2\"", "10:10 route[0].prefix: …beyond the /8"),
        (
            "prefix = \"8.0.0.0/8\"\nvia = \"192.0.3.2\"",
            "11:7 route[0].via: …is not in 192.0.2.0/24",
        ),
        ("prefix = \"8.0.0.0/8\"\nvia = \"192.0.2.1\"", "11:7 route[0].via: is outside.address"),
        ("prefix = \"0.0.0.0/0\"\nvia = \"192.0.2.2\"", "10:10 route[0].prefix: …outside.gateway"),
        ("prefix = \"192.0.2.0/24\"\nvia = \"192.0.2.2\"", "10:10 route[0].prefix: …goes first"),
        (
            "prefix = \"8.0.0.0/8\"\nvia = \"192.0.2.2\"\nside = \"in\"",
            "12:8 route[0].side: \"in\" is",
        ),
    ] {
        refused(&format!("{base}[[route]]\n{extra}\n"), &[expected]);
    }
    let route = "[[route]]\nprefix = \"8.0.0.0/8\"\nvia = \"192.0.2.2\"\n";
    refused(
        &format!("{base}{route}{route}"),
        &["13:10 route[1].prefix: 8.0.0.0/8 has a route in line 10 already"],
    );
}

#[test]
fn static_mappings() {
    let mapping = |internal: &str, external: &str, protocol: &str| {
        let protocol = if protocol.is_empty() {
            String::new()
        } else {
            format!("protocol = \"{protocol}\"\n")
        };
        format!("[[static]]\ninternal = \"{internal}\"\nexternal = \"{external}\"\n{protocol}")
    };
    let one = mapping("10.0.0.80:8080", "203.0.113.1:80", "tcp");
    refused_after_smallest(&[
        (
            "[[static]]\n",
            &["7:1 static[0].internal: is missing", "7:1 static[0].external: is missing"],
        ),
        (&mapping("10.0.0.80:8080", "203.0.113.1", ""), &["9:12 static[0].external: …or neither"]),
        (
            &mapping("10.0.0.80:0", "203.0.113.1:1", ""),
            &["8:12 static[0].internal: \"0\" is no port"],
        ),
        (
            &mapping("10.0.0.80:x", "203.0.113.1:1", ""),
            &["8:12 static[0].internal: \"x\" is no port"],
        ),
        (&mapping("10.0.0.80", "224.0.0.1", ""), &["9:12 static[0].external: …multicast"]),
        (&mapping("10.0.0.80", "10.0.0.81", ""), &["9:12 static[0].external: …nat.subscribers"]),
        (&mapping("203.0.113.1", "198.51.100.1", ""), &["8:12 static[0].internal: …external addr"]),
        (&mapping("10.0.0.80", "198.51.100.1", "sctp"), &["10:12 static[0].protocol: \"sctp\" is"]),
        (
            &(one.clone() + &mapping("10.0.0.81:80", "203.0.113.1:80", "")),
            &["13:12 static[1].external: overlaps the static mapping in line 7"],
        ),
        (
            &(one.clone() + &mapping("10.0.0.80:8080", "203.0.113.1:81", "tcp")),
            &["12:12 static[1].internal: overlaps the static mapping in line 7"],
        ),
        (
            &(one.clone() + &mapping("10.0.0.81", "203.0.113.1", "")),
            &["13:12 static[1].external: overlaps the static mapping in line 7"],
        ),
        (
            &(mapping("10.0.0.80", "203.0.113.1", "") + &one),
            &[
                "11:12 static[1].internal: overlaps the static mapping in line 7",
                "12:12 static[1].external: overlaps the static mapping in line 7",
            ],
        ),
    ]);
    let inbound = mapping("10.0.0.80:8080", "203.0.113.1:81", "tcp") + "direction = \"inbound\"\n";
    assert!(read_text(&format!("{SMALLEST}{one}{inbound}"), "t").is_ok());
    let different = mapping("10.0.0.80:8080", "203.0.113.1:80", "udp");
    assert!(read_text(&format!("{SMALLEST}{one}{different}"), "t").is_ok());
    let own = SMALLEST.replace("\"eth1\"", "\"eth1\"\naddress = \"10.0.0.1/8\"");
    refused(
        &format!("{own}{}", mapping("10.0.0.1", "198.51.100.1", "")),
        &["9:12 static[0].internal: 10.0.0.1 is the gateway itself"],
    );
}

/// Ranges of ports.
#[test]
fn static_ranges() {
    let mapping = |internal: &str, external: &str| {
        format!("[[static]]\ninternal = \"{internal}\"\nexternal = \"{external}\"\n")
    };
    refused_after_smallest(&[
        (
            &mapping("10.0.0.80:8000-8099", "203.0.113.1:9000-9098"),
            &["9:12 static[0].external: 9000-9098 are 99 ports, internal 8000-8099 are 100; …9099"],
        ),
        (
            &mapping("10.0.0.80:1-20", "203.0.113.1:65530-65535"),
            &["9:12 static[0].external: …are 20; give both equally many"],
        ),
        (
            &mapping("10.0.0.80:20-10", "203.0.113.1:1-11"),
            &["8:12 static[0].internal: the range is reversed; write \"10-20\""],
        ),
        (
            &(mapping("10.0.0.80:100-199", "203.0.113.1:100-199")
                + &mapping("10.0.0.81:100-199", "203.0.113.1:199-298")),
            &["12:12 static[1].external: overlaps the static mapping in line 7"],
        ),
        (
            &(mapping("10.0.0.80:100-199", "203.0.113.1:100-199")
                + &mapping("10.0.0.80:150", "203.0.113.1:200")),
            &["11:12 static[1].internal: overlaps …all but one with direction = \"inbound\""],
        ),
    ]);
    let all =
        |host: u8| mapping(&format!("10.0.{host}.1:1-65535"), &format!("198.51.{host}.1:1-65535"));
    let many: String = (0..17).map(all).collect();
    refused_after_smallest(&[(
        &many,
        &["57:12 static[16].external: makes 1114095 static mappings …at most 1048576"],
    )]);
}

#[test]
fn services() {
    let service = |rest: &str| format!("[[static]]\nexternal = \"203.0.113.1:80\"\n{rest}\n");
    let host = "internal = \"10.0.0.80:80\"";
    refused_after_smallest(&[
        (&service("servers = []"), &["9:11 static[0].servers: has 0 servers; write 1 to 64"]),
        (
            &service("servers = [{ weight = 1 }]"),
            &["9:12 static[0].servers[0].internal: is missing"],
        ),
        (
            &service("servers = [{ internal = \"10.0.0.80\" }]"),
            &["9:25 static[0].servers[0].internal: 10.0.0.80 has no port"],
        ),
        (
            &service(&format!("servers = [{{ {host}, weight = 65536 }}]")),
            &["9:50 static[0].servers[0].weight: 65536 is out of bounds"],
        ),
        (
            &service(&format!("servers = [{{ {host}, weigth = 3 }}]")),
            &["9:41 static[0].servers[0].weigth: there is no such key; did you mean `weight`?"],
        ),
        (
            &service(&format!("servers = [{{ {host} }}, {{ {host}, weight = 2 }}]")),
            &["9:56 static[0].servers[1].internal: 10.0.0.80:80 is static[0].servers[0].internal"],
        ),
        (
            &service(&format!("servers = [{{ {host}, weight = 0 }}]")),
            &["9:11 static[0].servers: the weights of all 1 servers are 0"],
        ),
        (
            &service(&format!("{host}\nservers = [{{ {host} }}]")),
            &["9:12 static[0].internal: stands beside servers"],
        ),
        (
            &service(&format!("{host}\naffinity = \"none\"")),
            &["10:12 static[0].affinity: has no effect here"],
        ),
        (
            &service(&format!("direction = \"both\"\nservers = [{{ {host} }}]")),
            &["9:13 static[0].direction: servers are \"inbound\""],
        ),
        (
            &service("servers = 5"),
            &["9:11 static[0].servers: is an integer; it must be an array of tables"],
        ),
        (
            &format!("[[static]]\nexternal = \"203.0.113.1:1-2\"\nservers = [{{ {host} }}]\n"),
            &["8:12 static[0].external: has 2 ports; servers share one"],
        ),
        (
            &format!("[[static]]\nexternal = \"203.0.113.1\"\nservers = [{{ {host} }}]\n"),
            &["8:12 static[0].external: has no port; servers share one"],
        ),
    ]);
}

/// Forwarded ports in blocks, and in ports that arithmetic gives to somebody.
#[test]
fn forwarded_ports_in_shares() {
    let mapping = |internal: &str, external: &str| {
        format!("[[static]]\ninternal = \"{internal}\"\nexternal = \"203.0.113.1:{external}\"\n")
    };
    let blocks = "[nat]\nallocation = \"block\"\n[nat.block]\nmax_per_subscriber = 2\n";
    refused_after_smallest(&[
        (
            &(blocks.to_owned()
                + &mapping("10.0.0.80:1", "2048")
                + &mapping("10.0.0.81:1", "2050")),
            &[
                "16:12 static[1].external: is in block 2048-2559 of 203.0.113.1, which 10.0.0.80 has",
            ],
        ),
        (
            &(blocks.to_owned() + &mapping("10.0.0.80:1-1025", "2048-3072")),
            &["13:12 static[0].external: gives 10.0.0.80 3 blocks of …3 x 512 ports"],
        ),
    ]);
    let fits = blocks.to_owned() + &mapping("10.0.0.80:1-1024", "2048-3071");
    assert!(read_text(&format!("{SMALLEST}{fits}"), "t").is_ok());
    let plan = "allocation = \"deterministic\"\nsubscribers = [\"10.0.0.0/24\"]\n";
    refused_after_smallest(&[(
        &(plan.to_owned() + &mapping("10.0.0.80:1", "1024")),
        &[
            "11:12 static[0].external: port 1024 of 203.0.113.1 is 10.0.0.0's (1024-1275 of 203.…own",
        ],
    )]);
    let own = plan.to_owned() + &mapping("10.0.0.1:1-252", "1276-1527");
    assert!(read_text(&format!("{SMALLEST}{own}"), "t").is_ok());
}

#[test]
fn rules() {
    let rule = |kind: &str, matches: &str, rest: &str| {
        format!("[[rule]]\nkind = \"{kind}\"\nmatch = {{ {matches} }}\n{rest}\n")
    };
    let source = "source = \"10.1.0.0/16\"";
    refused_after_smallest(&[
        ("[[rule]]\n", &["7:1 rule[0].kind: is missing", "7:1 rule[0].match: is missing"]),
        (&rule("masq", source, ""), &["8:8 rule[0].kind: \"masq\" is unknown"]),
        (&rule("snat", source, ""), &["7:1 rule[0].pool: is missing"]),
        (
            &rule("snat", source, "pool = \"x\""),
            &["10:8 rule[0].pool: there is no pool \"x\"; write one of \"default\""],
        ),
        (&rule("bypass", source, "pool = \"default\""), &["10:8 rule[0].pool: has no effect here"]),
        (&rule("drop", source, "address = \"1.1.1.1\""), &["10:11 rule[0].address: has no effect"]),
        (
            &rule("snat", source, "address = \"1.1.1.1\""),
            &["10:11 rule[0].address: 1.1.1.1 is in no pool; write an address of one"],
        ),
        (
            &(rule("snat", source, "address = \"203.0.113.1\"\npool = \"b\"")
                + "[[pool]]\nname = \"b\"\naddresses = [\"203.0.113.2\"]\n"),
            &["10:11 rule[0].address: 203.0.113.1 is in pool \"default\" and not in \"b\""],
        ),
        (
            &rule("bypass", source, "priority = 32768"),
            &["10:12 rule[0].priority: 32768 is out of bounds; it must be from -32768 to 32767"],
        ),
        (
            &rule("bypass", source, "priority = \"high\""),
            &["10:12 rule[0].priority: is a string; it must be an integer from -32768 to 32767"],
        ),
        (&rule("bypass", source, "to = \"10.0.0.1\""), &["10:6 rule[0].to: has no effect here"]),
        (&rule("bypass", "", ""), &["9:9 rule[0].match: names no prefix"]),
        (&rule("bypass", "source = \"10.1.0.1/16\"", ""), &["9:20 rule[0].match.source: …beyond"]),
        (
            &rule("bypass", &format!("{source}, destination = \"1.1.1.1\""), ""),
            &["9:49 rule[0].match.destination: stands beside source"],
        ),
        (
            &rule("bypass", &format!("{source}, port = 65536"), ""),
            &["9:42 rule[0].match.port: 65536"],
        ),
        (
            &(rule("bypass", source, "") + &rule("snat", source, "pool = \"default\"")),
            &[
                "13:20 rule[1].match.source: is what the rule in line 9 matches; keep one of the two",
            ],
        ),
        (
            &rule("dnat", source, ""),
            &[
                "7:1 rule[0].to: is missing",
                "9:20 rule[0].match.source: means nothing to a rule of kind \"dnat\"",
            ],
        ),
    ]);
}

#[test]
fn destinations() {
    let sides = "[inside]\ndevice = \"a\"\naddress = \"10.5.0.1/16\"\n\
                 [outside]\ndevice = \"b\"\naddress = \"192.0.2.1/24\"\n\
                 [[pool]]\naddresses = [\"203.0.113.0/30\"]\n\
                 [[static]]\ninternal = \"10.5.0.80:80\"\nexternal = \"203.0.113.1:8080\"\n";
    let rule = |destination: &str, to: &str| {
        format!(
            "{sides}[[rule]]\nkind = \"dnat\"\nmatch = {{ destination = {destination} }}\n\
             to = {to}\n"
        )
    };
    for (destination, to, problem) in [
        ("\"0.0.0.0/0\", port = 53", "\"224.0.0.1:53\"", "224.0.0.1 is in 224.0.0.0/4 (multicast)"),
        (
            "\"0.0.0.0/0\", port = 53",
            "\"10.5.0.1\"",
            "10.5.0.1 is inside.address, the gateway itself",
        ),
        (
            "\"0.0.0.0/0\", port = 53",
            "\"192.0.2.1:9\"",
            "192.0.2.1 is outside.address, the gateway",
        ),
        (
            "\"0.0.0.0/0\", port = 53",
            "\"10.5.0.9\"",
            "10.5.0.9 is in 10.5.0.0/16, the network of inside.address, but packets go outside; give it \
             a [[static]] mapping and write its external endpoint",
        ),
        (
            "\"0.0.0.0/0\", port = 53",
            "\"203.0.113.1:8081\"",
            "203.0.113.1 is in pool \"default\", and no [[static]] mapping has it for this port",
        ),
        ("\"0.0.0.0/0\", port = 53", "\"203.0.113.1\"", "203.0.113.1 is in pool \"default\""),
        ("\"0.0.0.0/0\", port = 53", "\"192.0.2.9:0\"", "\"0\" is no port"),
        (
            "\"172.20.0.0/16\"",
            "\"10.5.0.0/24\"",
            "10.5.0.0/24 has 256 addresses, and 172.20.0.0/16 has 65536; write a /16 such as \
             \"10.5.0.0/16\"",
        ),
        ("\"172.20.0.0/16\"", "\"10.5.0.1/16\"", "10.5.0.1 has bits beyond the /16"),
        (
            "\"172.20.0.0/16\"",
            "\"10.5.0.0/16:80\"",
            "\"10.5.0.0/16:80\" has a port; with a prefix ports stay as they are",
        ),
        (
            "\"172.20.0.0/24\"",
            "\"203.0.113.0/24\"",
            "203.0.113.0/24 overlaps 203.0.113.0/30 of pool \"default\"",
        ),
        ("\"1.0.0.0/8\"", "\"127.0.0.0/8\"", "127.0.0.0/8 overlaps 127.0.0.0/8 (loopback)"),
    ] {
        let problems = read_text(&rule(destination, to), "t").expect_err(to);
        assert_eq!((problems[0].line, problems[0].column), (Some(15), Some(6)), "{to}");
        assert_eq!(problems[0].key, "rule[0].to");
        assert!(problems[0].message.starts_with(problem), "{}", problems[0].message);
    }
    let off =
        format!("{}[nat]\nhairpinning = false\n", rule("\"1.1.1.1\"", "\"203.0.113.1:8080\""));
    let problems = read_text(&off, "t").expect_err("hairpinning is off");
    assert!(problems[0].message.contains("but nat.hairpinning is off"));
}

/// Destinations that work, and yet not as somebody may think.
#[test]
fn unwise_destinations() {
    let warnings = |sides: &str, rules: &[(&str, &str)]| -> Vec<String> {
        let rules = rules.iter().map(|(destination, to)| {
            format!(
                "[[rule]]\nkind = \"dnat\"\nmatch = {{ destination = {destination} }}\nto = {to}\n"
            )
        });
        let text = format!("{sides}{}", rules.collect::<String>());
        let warnings = read_text(&text, "t").expect("it works").warnings;
        warnings.iter().map(ToString::to_string).collect()
    };
    let company = ("\"172.20.0.0/16\"", "\"10.5.0.0/16\"");
    assert_eq!(warnings(SMALLEST, &[company]), [""; 0]);
    let dns = ("\"0.0.0.0/0\", port = 53", "\"192.0.2.53:5353\"");
    assert_eq!(warnings(SMALLEST, &[dns, ("\"9.9.9.9\"", "\"9.9.9.9\"")]), [""; 0]);
    // What stays as it is may be anything.
    let same = ("\"0.0.0.0/0\"", "\"0.0.0.0/0\"");
    assert_eq!(warnings(SMALLEST, &[same]), [""; 0]);
    assert_eq!(
        warnings(SMALLEST, &[("\"9.9.9.9\"", "\"192.0.2.53:53\"")]),
        [
            "t:10:6: rule[0].to: sends packets for every port to port 53; write match.port, or leave \
          the port out here"
        ]
    );
    assert_eq!(
        warnings(SMALLEST, &[company, ("\"172.21.0.0/16\"", "\"10.5.0.0/16\"")]),
        ["t:14:6: rule[1].to: is what the rule in line 10 translates to as well; what comes from \
          there is seen as 172.20.0.0/16"]
    );
    let inside = SMALLEST.replace("\"eth1\"", "\"eth1\"\naddress = \"10.5.0.1/16\"");
    assert_eq!(
        warnings(&inside, &[company]),
        ["t:11:6: rule[0].to: 10.5.0.0/16 contains inside.address (10.5.0.1), so nobody can be \
          reached as 172.20.0.1"]
    );
    let halves = [
        ("\"172.20.0.0/16\"", "\"10.5.0.0/16\""),
        ("\"172.20.0.0/17\"", "\"10.6.0.0/17\""),
        ("\"172.20.128.0/17\"", "\"10.6.128.0/17\""),
    ];
    assert_eq!(warnings(SMALLEST, &halves[..2]), [""; 0]);
    assert_eq!(
        warnings(SMALLEST, &halves),
        ["t:9:25: rule[0].match.destination: never applies: rules with longer prefixes or higher \
          priority match all that it does"]
    );
    let bypass = format!(
        "{SMALLEST}[[rule]]\nkind = \"bypass\"\nmatch = {{ destination = \"172.16.0.0/12\" }}\n"
    );
    assert_eq!(
        warnings(&bypass, &[company]),
        [
            "t:12:25: rule[1].match.destination: never applies: the rule in line 9 bypasses all that it \
          matches"
        ]
    );
    let snat =
        "[[rule]]\nkind = \"snat\"\nmatch = { source = \"10.0.0.0/12\" }\npool = \"default\"\n";
    assert_eq!(warnings(&format!("{bypass}{snat}"), &[company]), [""; 0]);
}

#[test]
fn priorities() {
    let rule = |priority: i32| {
        let matches = "match = { source = \"10.1.0.0/16\" }";
        format!("[[rule]]\nkind = \"drop\"\n{matches}\npriority = {priority}\n")
    };
    let rules: String = (-8..8).map(rule).collect();
    assert!(read_text(&format!("{SMALLEST}{rules}"), "t").is_ok());
    let wanted = "74:12 rule[16].priority: is one more different priority; at most 16 are possible";
    refused_after_smallest(&[(&(rules + &rule(8) + &rule(9)), &[wanted])]);
}

#[test]
fn rules_that_never_apply() {
    let rule = |matches: &str, priority: i32| {
        format!("[[rule]]\nkind = \"drop\"\nmatch = {{ {matches} }}\npriority = {priority}\n")
    };
    let narrow = rule("source = \"10.1.2.0/24\", port = 53", 0);
    for wider in [
        "source = \"10.1.0.0/16\", port = 53",
        "source = \"10.1.2.0/24\", port = 53",
        "source = \"10.1.2.0/24\"",
        "source = \"0.0.0.0/0\"",
        "destination = \"0.0.0.0/0\"",
    ] {
        let warned = |priority| {
            let text = format!("{SMALLEST}{narrow}{}", rule(wider, priority));
            let warnings = read_text(&text, "t").map(|read| read.warnings).unwrap_or_default();
            warnings.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        let message =
            "never applies: the rule in line 13 matches all that it does, and comes before it";
        assert_eq!(warned(1), [format!("t:9:20: rule[0].match.source: {message}")], "{wider}");
        assert_eq!(warned(-1).len(), usize::from(wider.contains("10.1.2.0/24\", port")), "{wider}");
    }
    for apart in [
        "source = \"10.1.2.0/24\", port = 80",
        "source = \"10.1.2.0/25\"",
        "source = \"10.1.3.0/24\"",
        "destination = \"0.0.0.0/0\", port = 53",
        "destination = \"10.0.0.0/8\"",
    ] {
        let text = format!("{SMALLEST}{narrow}{}", rule(apart, 9));
        assert_eq!(read_text(&text, "t").map(|read| read.warnings), Ok(vec![]), "{apart}");
    }
    // What matches everything by its source comes before what does so by its destination.
    let all = |end: &str| rule(&format!("{end} = \"0.0.0.0/0\""), 0);
    let text = format!("{SMALLEST}{}{}", all("destination"), all("source"));
    let warnings = read_text(&text, "t").map(|read| read.warnings).unwrap_or_default();
    assert_eq!(warnings.len(), 1);
    assert_eq!(warnings[0].key, "rule[0].match.destination");
    // Many are not named one by one.
    let many: String = (0..30).map(|n| rule(&format!("source = \"10.0.0.{n}\""), 0)).collect();
    let text = format!("{SMALLEST}{many}{}", rule("source = \"10.0.0.0/8\"", 1));
    let warnings = read_text(&text, "t").map(|read| read.warnings).unwrap_or_default();
    assert_eq!(warnings.len(), 21);
    assert!(warnings[20].message.ends_with("nor do others: 10 rules in all from here"));
}

#[test]
fn subscribers() {
    refused_after_smallest(&[
        ("[nat]\nsubscribers = []\n", &["8:15 nat.subscribers: names nobody"]),
        (
            "[nat]\nsubscribers = [\"10.0.0.1/8\"]\n",
            &["8:16 nat.subscribers[0]: …write \"10.0.0.0/8\""],
        ),
        ("[nat]\nsubscribers = [\"0.0.0.0/0\"]\n", &["6:14 pool[0].addresses[0]: …0.0.0.0/0"]),
    ]);
    let rule =
        "[[rule]]\nkind = \"snat\"\nmatch = { source = \"10.0.0.0/8\" }\npool = \"default\"\n";
    assert!(read_text(&format!("{SMALLEST}[nat]\nsubscribers = []\n{rule}"), "t").is_ok());
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
                "ports = \"5001\"\n[limits]\nports_per_subscriber = { tcp = 1, udp = 1, icmp = 1 }\n",
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
fn blocks_that_a_pool_has_not() {
    refused_after_smallest(&[
        (
            "ports = \"5000-5099\"\n[nat]\nallocation = \"block\"\n",
            &["9:14 nat.allocation: ports 5000-5099 are 100, too few for a block of 512; write a"],
        ),
        (
            "ports = \"5000-5099\"\nallocation = \"block\"\n[pool.block]\nsize = 128\n",
            &["10:8 pool[0].block.size: ports 5000-5099 are 100, too few for a block of 128"],
        ),
        (
            "allocation = \"block\"\n[nat.block]\nsize = 500\n",
            &["9:8 nat.block.size: 500 is no power of two; write 256 or 512"],
        ),
        ("[nat.block]\nsize = 8\n", &["8:8 nat.block.size: 8 is out of bounds; …16 to 32768"]),
        (
            "[nat.block]\nmax_per_subscriber = 129\nrelease_after = \"61m\"\n",
            &[
                "8:22 nat.block.max_per_subscriber: 129 is out of bounds; …1 to 128",
                "9:17 nat.block.release_after: 1h1m is out of bounds; …0s to 1h",
            ],
        ),
        (
            "block = { size = 64 }\n",
            &[
                "7:9 pool[0].block: has no effect: the pool's allocation is \"random\"; only \"block\"",
            ],
        ),
    ]);
    let blocks = |ports: &str, block: &str| {
        let nat = format!("[nat]\nallocation = \"block\"\n[nat.block]\n{block}");
        format!("{SMALLEST}ports = \"{ports}\"\n{nat}")
    };
    warned(&[
        (&blocks("1024-65535", "size = 512\nmax_per_subscriber = 4\n"), &[]),
        (
            &blocks("5000-6000", "size = 256\n"),
            &["7:9 pool[0].ports: 1001 ports are 3 x 256 and 233 that fill no block; nobody gets"],
        ),
        (
            &blocks("1024-2047", "size = 512\nmax_per_subscriber = 4\n"),
            &["12:22 nat.block.max_per_subscriber: 4 blocks are more than the 2 of an address of"],
        ),
        (
            &format!(
                "{}[limits]\nports_per_subscriber = {{ tcp = 3000 }}\n",
                blocks("1024-65535", "size = 512\n")
            ),
            &[
                "13:24 limits.ports_per_subscriber: the TCP quota of 3000 is more than the 2048 ports",
            ],
        ),
    ]);
}

#[test]
fn shares_that_a_pool_has_not() {
    let second = "[[pool]]\nname = \"b\"\naddresses = [\"203.0.113.2\"]\n";
    refused_after_smallest(&[
        (
            "[nat]\nallocation = \"deterministic\"\n",
            &[
                "7:1 nat.subscribers: 22085632 subscribers are more than the 1 x 64512 = 64512 ports",
            ],
        ),
        (
            "allocation = \"deterministic\"\nsubscribers = [\"10.0.0.0/16\"]\n",
            &["8:15 pool[0].subscribers: 65536 subscribers are more than the 1 x 64512 = 64512"],
        ),
        (
            "allocation = \"deterministic\"\nports_per_subscriber = 1000\n\
             [nat]\nsubscribers = [\"10.0.0.0/25\"]\n",
            &[
                "8:24 pool[0].ports_per_subscriber: 64512 / 1000 = 64 subscribers an address, 64 on 1, \
               but there are 128; write less",
            ],
        ),
        (
            "allocation = \"deterministic\"\ndynamic_ports = 64512\n\
             [nat]\nsubscribers = [\"10.0.0.0/25\"]\n",
            &["8:17 pool[0].dynamic_ports: 64512 of the 64512 ports of an address leave none"],
        ),
        (
            "allocation = \"deterministic\"\nsubscribers = [\"10.0.0.0/25\", \"10.0.0.5\"]\n",
            &["8:15 pool[0].subscribers: 10.0.0.0-10.0.0.127 and 10.0.0.5-10.0.0.5 overlap"],
        ),
        (
            "allocation = \"deterministic\"\nports = \"1-65535\"\nsubscribers = [\"10.0.0.0/25\"]\n",
            &["8:9 pool[0].ports: 1-65535 has ports of both sides of 1024; begin at 1024"],
        ),
        (
            "subscribers = [\"10.0.0.0/25\"]\nports_per_subscriber = 5\ndynamic_ports = 5\n",
            &[
                "7:15 pool[0].subscribers: has no effect: …only \"deterministic\" has it",
                "8:24 pool[0].ports_per_subscriber: has no effect",
                "9:17 pool[0].dynamic_ports: has no effect",
            ],
        ),
        (
            &format!("allocation = \"deterministic\"\n{second}"),
            &["5:1 pool[0].subscribers: is missing: with several pools each says whose its ports"],
        ),
    ]);
    let some = "allocation = \"deterministic\"\nsubscribers = [\"10.0.0.0/25\"]\n";
    let nat = "[nat]\nsubscribers = [\"10.0.0.0/24\"]\n";
    warned(&[
        (&format!("{SMALLEST}{some}[nat]\nsubscribers = [\"10.0.0.0/25\"]\n"), &[]),
        (
            &format!("{SMALLEST}{some}{nat}"),
            &["8:15 pool[0].subscribers: 128 addresses of 10.0.0.0/24 of nat.subscribers are not \
               there; they get no port of this pool"],
        ),
        (
            &format!("{SMALLEST}{some}dynamic_ports = 512\n{nat}"),
            &["8:15 pool[0].subscribers: 128 addresses of …; they get dynamic ports only"],
        ),
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
