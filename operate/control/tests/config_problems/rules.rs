//! Rules that cannot be, or never apply.

use crate::{SMALLEST, refused_after_smallest};
use natgate_control::config::read_text;

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
            &["13:20 rule[1].match.source: is what the rule in line 9 matches; keep one of the \
                 two"],
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
            "10.5.0.9 is in 10.5.0.0/16, the network of inside.address, but packets go outside; \
             give it a [[static]] mapping and write its external endpoint",
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
    // Destinations that stay as they are may be anything.
    let same = ("\"0.0.0.0/0\"", "\"0.0.0.0/0\"");
    assert_eq!(warnings(SMALLEST, &[same]), [""; 0]);
    assert_eq!(
        warnings(SMALLEST, &[("\"9.9.9.9\"", "\"192.0.2.53:53\"")]),
        ["t:10:6: rule[0].to: sends packets for every port to port 53; write match.port, or \
          leave the port out here"]
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
        ["t:12:25: rule[1].match.destination: never applies: the rule in line 9 bypasses all \
          that it matches"]
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
    // A rule for every source comes before a rule for every destination.
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
