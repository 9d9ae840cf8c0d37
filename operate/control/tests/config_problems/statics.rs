//! Static mappings, ranges of ports and services that cannot be.

use crate::{SMALLEST, refused, refused_after_smallest};
use natgate_control::config::read_text;

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
            &service(&format!("{host}\n[static.health]\nkind = \"tcp\"")),
            &["10:1 static[0].health: has no effect here"],
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
            &["16:12 static[1].external: is in block 2048-2559 of 203.0.113.1, which 10.0.0.80 \
                 has"],
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
        &["11:12 static[0].external: port 1024 of 203.0.113.1 is 10.0.0.0's (1024-1275 of \
             203.…own"],
    )]);
    let own = plan.to_owned() + &mapping("10.0.0.1:1-252", "1276-1527");
    assert!(read_text(&format!("{SMALLEST}{own}"), "t").is_ok());
}

#[test]
fn health_checks() {
    let checked = |keys: &str| {
        format!(
            "[[static]]\nexternal = \"203.0.113.1:80\"\n\
             servers = [{{ internal = \"10.0.0.80:80\" }}]\n[static.health]\n{keys}\n"
        )
    };
    let key = "static[0].health";
    let long = format!("kind = \"http\"\ntarget = \"/{}\"", "x".repeat(500));
    for (keys, said) in [
        ("interval = \"1s\"", format!("{key}.kind: is missing")),
        ("kind = \"ping\"", format!("{key}.kind: \"ping\"")),
        ("kind = \"tcp\"\ninterval = \"50ms\"", format!("{key}.interval: 50ms is out of bounds")),
        (
            "kind = \"tcp\"\ninterval = \"1s\"\ntimeout = \"2s\"",
            format!("{key}.timeout: is longer than interval"),
        ),
        ("kind = \"tcp\"\nfailures = 0", format!("{key}.failures: 0 is out of bounds")),
        ("kind = \"icmp\"\nport = 80", format!("{key}.port: has no effect with kind = \"icmp\"")),
        ("kind = \"tcp\"\ntarget = \"/\"", format!("{key}.target: has no effect with kind")),
        ("kind = \"http\"\ntarget = \"x\"", format!("{key}.target: \"x\" is no path")),
        ("kind = \"http\"\nhost = \"a b\"", format!("{key}.host: \"a b\" is no host name")),
        ("kind = \"tcp\"\nsessions = \"go\"", format!("{key}.sessions: \"go\"")),
        (&long, format!("{key}: makes a request of ")),
    ] {
        let text = format!("{SMALLEST}{}", checked(keys));
        let problems = read_text(&text, "t.toml").err().unwrap_or_default();
        let problems: Vec<_> = problems.iter().map(ToString::to_string).collect();
        let is_said = problems.len() == 1 && problems[0].contains(&said);
        assert!(is_said, "{keys}: {problems:?}, not {said}");
    }
    let one = |last: u8| format!("{{ internal = \"10.0.0.{last}:80\", backup = true }}");
    let warned = |servers: &str, health: &str| {
        let services = format!("[[static]]\nexternal = \"203.0.113.1:80\"\n{servers}\n{health}");
        let read = read_text(&format!("{SMALLEST}{services}"), "t.toml").expect("it can be run");
        read.warnings.iter().map(|warning| warning.message.clone()).collect::<Vec<_>>()
    };
    let all = warned(&format!("servers = [{}, {}]", one(5), one(6)), "");
    assert!(all.len() == 1 && all[0].starts_with("every server is a backup"), "{all:?}");
    let usual = "{ internal = \"10.0.0.4:80\" }";
    let servers = format!("servers = [{usual}, {}]", one(5));
    let all = warned(&servers, "");
    assert!(all.len() == 1 && all[0].starts_with("a backup server without health"), "{all:?}");
    assert_eq!(warned(&servers, "[static.health]\nkind = \"tcp\"\n"), [""; 0]);
}
