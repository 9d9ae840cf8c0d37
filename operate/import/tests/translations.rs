//! Conversions of lines of other programs: pools, mappings, rules, and remarks on the rest.

mod common;

use common::{differs, has, imported, lacks, lost, remark, tables};
use natgate_import::{Format, Grade, Hints, ImportError, Imported, import};

#[test]
fn nothing_to_import_is_said_to_be_nothing() {
    for text in ["", " \n\n"] {
        let error = natgate_import::import(text, None, &natgate_import::Hints::default());
        assert!(matches!(error, Err(natgate_import::ImportError::Empty)));
    }
}

#[test]
fn a_home_routers_iptables() {
    let text = include_str!("files/home.iptables");
    let hints = Hints { external: Some("198.51.100.77".into()), ..Hints::default() };
    let all = import(text, None, &hints).expect("it is read");
    has(&all, "[inside] device = \"br-lan\"");
    has(&all, "[outside] device = \"ppp0\"");
    has(&all, "[[pool]] name = \"default\" addresses = [\"198.51.100.77\"]");
    has(&all, "[nat] subscribers = [\"192.168.1.0/24\"] tcp_mss = \"mtu\"");
    has(
        &all,
        "[[static]] internal = \"192.168.1.80:80\" external = \"198.51.100.77:8080\" \
         protocol = \"tcp\" direction = \"inbound\"",
    );
    has(
        &all,
        "[[static]] internal = \"192.168.1.50:6000-6009\" external = \"198.51.100.77:5000-5009\" \
         protocol = \"udp\" direction = \"inbound\"",
    );
    for port in [25, 465, 587] {
        has(
            &all,
            &format!(
                "[[static]] internal = \"192.168.1.25:{port}\" external = \"198.51.100.77:{port}\" \
                 protocol = \"tcp\" direction = \"inbound\""
            ),
        );
    }
    has(&all, "[[rule]] kind = \"bypass\" match = { destination = \"10.99.0.0/16\" }");
    has(
        &all,
        "[[rule]] kind = \"dnat\" match = { destination = \"0.0.0.0/0\", \
         port = 53 } to = \"192.0.2.53\"",
    );
    let line = |what: &str| text.lines().position(|line| line.contains(what)).expect(what) + 1;
    lacks(&all, line(":INPUT DROP"), "no firewall");
    lacks(&all, line("--ctstate"), "a firewall's");
    lacks(&all, line("-d 192.168.1.0/24"), "nat.hairpinning");
    lacks(&all, line("-s 198.51.100.0/24"), "some remote hosts only");
    lacks(&all, line("192.168.1.81"), "never applies");
    lacks(&all, line("REDIRECT"), "machine itself");
    differs(&all, line("--dport 53 "), "TCP, UDP and DCCP");
}

#[test]
fn a_providers_iptables() {
    let all = imported(include_str!("files/isp.iptables"), Format::Iptables);
    has(&all, "[[static]] internal = \"100.64.0.200\" external = \"203.0.113.200\"");
    has(
        &all,
        "[[pool]] name = \"default\" addresses = [\"203.0.113.0/27\"] ports = \"1024-65535\"",
    );
    has(&all, "[[pool]] name = \"pool-2\" addresses = [\"203.0.113.32/27\"]");
    has(&all, "[[rule]] kind = \"snat\" match = { source = \"100.64.64.0/18\" } pool = \"pool-2\"");
    has(&all, "[[rule]] kind = \"bypass\" match = { source = \"100.64.5.0/24\" }");
    has(
        &all,
        "[[static]] internal = \"10.7.0.0\" external = \"198.51.100.16\" direction = \"outbound\"",
    );
    has(
        &all,
        "[[static]] internal = \"10.7.0.15\" external = \"198.51.100.31\" direction = \"outbound\"",
    );
    differs(&all, 7, "for all protocols now, not only tcp");
    differs(&all, 8, "line 7 does that already");
    differs(&all, 9, "line 7 has said which");
    lacks(&all, 11, "never applies: line 10 matches all");
    lost(&all, 12, "--mark 0x7");
    lost(&all, 14, "one outside");
}

#[test]
fn a_ruleset_of_nftables() {
    let text = include_str!("files/ruleset.nft");
    let all = imported(text, Format::Nft);
    let line = |what: &str| text.lines().position(|line| line.contains(what)).expect(what) + 1;
    has(&all, "[outside] device = \"eth0\"");
    has(
        &all,
        "[[pool]] name = \"default\" addresses = [\"203.0.113.1-203.0.113.9\"] ports = \
         \"2000-65535\"",
    );
    has(
        &all,
        "[[static]] internal = \"10.0.0.60:5062\" external = \"203.0.113.9:5060\" protocol = \
         \"udp\" direction = \"inbound\"",
    );
    has(
        &all,
        "[[rule]] kind = \"bypass\" match = { destination = \"172.16.0.0/12\" } priority = 3",
    );
    has(
        &all,
        "[[rule]] kind = \"snat\" match = { source = \"10.0.0.0/16\" } pool = \"default\" priority \
         = 2",
    );
    has(
        &all,
        "[[rule]] kind = \"snat\" match = { source = \"10.2.0.96/30\" } pool = \"default\" \
         priority = 1",
    );
    // The rule before has port 80, so only 443 of the map is left, and it has no effect.
    lacks(&all, line("map @services"), "has that external endpoint already");
    lost(&all, line("meta mark"), "meta mark");
    lost(&all, line("10.4.0.0/16"), "ct state new");
    lacks(&all, line("table ip6") + 3, "IPv6");
    differs(&all, line("policy drop"), "accepts them");
    lacks(&all, line("ct state established"), "a firewall's");
    differs(&all, line("!= 10.8.0.0/24"), "bypass translation now");
    assert!(all.config.contains("tcp_mss = \"mtu\""));
}

/// A ruleset with sets, maps, maps of verdicts and a filter, as `nft` prints it.
const MAPS: [&str; 2] = [include_str!("files/maps.nft"), include_str!("files/maps.json")];

/// The ruleset with each set and each map in one line, as people write it.
fn in_one_line_each(text: &str) -> String {
    let (mut all, mut depth) = (String::new(), 0);
    for line in text.lines() {
        let is_head = depth == 0 && line.ends_with('{');
        let begins = is_head && ["set ", "map "].iter().any(|word| line.trim().starts_with(word));
        if begins || depth > 0 {
            depth += line.matches('{').count() as i32 - line.matches('}').count() as i32;
        }
        let end = match (depth, begins) {
            (0, _) => "\n",
            (1, false) => "; ",
            _ => " ",
        };
        all += &format!("{}{end}", line.trim());
    }
    all
}

#[test]
fn a_set_or_a_map_in_one_line_is_read() {
    let text = in_one_line_each(MAPS[0]);
    assert!(text.contains("map ") && text.lines().count() < MAPS[0].lines().count(), "{text}");
    let (own, other) = (imported(&text, Format::Nft), imported(MAPS[0], Format::Nft));
    assert_eq!(tables(&own.config), tables(&other.config), "{text}");
    // A chain in one line would lose its rules.
    let chain = "table ip nat {\nchain out { type nat hook postrouting priority 100; \
                 oifname \"eth0\" masquerade; }\n}\n";
    let refused = import(chain, Some(Format::Nft), &Hints::default());
    assert!(matches!(refused, Err(ImportError::Malformed { line: 2, .. })));
}

#[test]
fn an_excerpt_that_is_cut_says_so() {
    let cut = imported(MAPS[1], Format::Nft).config;
    let excerpts: Vec<&str> = cut.lines().filter(|line| line.contains(": [{")).collect();
    let is_marked = |line: &&str| line.ends_with("]") || line.ends_with(" ...");
    assert!(excerpts.iter().all(is_marked), "{excerpts:#?}");
    assert!(excerpts.iter().any(|line| line.ends_with(" ...")), "{excerpts:#?}");
}

#[test]
fn sets_and_maps_of_nftables_are_written_out() {
    for text in MAPS {
        let all = imported(text, Format::Nft);
        // Maps of destinations: ports and addresses, anonymous and named.
        for (internal, external) in [
            ("10.0.0.80:80", "80"),
            ("10.0.0.81:443", "443"),
            ("10.0.0.82:80", "8080"),
            ("10.0.0.83:22", "2222"),
        ] {
            let table = format!("[[static]] internal = \"{internal}\" external = \"");
            let own = tables(&all.config);
            let found = own.iter().find(|one| one.starts_with(&table));
            let found = found.unwrap_or_else(|| panic!("{internal}: {own:#?}"));
            assert!(found.contains(&format!(":{external}\" protocol = \"tcp\"")), "{found}");
        }
        for (internal, port) in [("10.0.0.25", 25), ("10.0.0.26", 587)] {
            has(
                &all,
                &format!(
                    "[[static]] internal = \"{internal}:{port}\" external = \"203.0.113.9:{port}\" \
                     protocol = \"tcp\" direction = \"inbound\""
                ),
            );
        }
        // A map of sources becomes a pool for each element; a set becomes its prefixes.
        let own = tables(&all.config);
        let pool_of = |source: &str| {
            let rule = format!("[[rule]] kind = \"snat\" match = {{ source = \"{source}\" }} ");
            let found = own.iter().find_map(|one| one.strip_prefix(&rule));
            let found = found.unwrap_or_else(|| panic!("{source}: {own:#?}"));
            let name = found.split('"').nth(1).expect("a pool").to_owned();
            let pool = format!("[[pool]] name = \"{name}\" ");
            let found = own.iter().find_map(|one| one.strip_prefix(&pool));
            found.unwrap_or_else(|| panic!("{pool}: {own:#?}")).to_owned()
        };
        assert_eq!(pool_of("10.3.0.0/24"), "addresses = [\"203.0.113.3\"]");
        assert_eq!(pool_of("10.3.1.0/24"), "addresses = [\"203.0.113.4\"]");
        assert_eq!(pool_of("10.0.0.0/16"), "addresses = [\"203.0.113.1-203.0.113.2\"]");
        assert_eq!(pool_of("10.2.0.0/22"), "addresses = [\"203.0.113.1-203.0.113.2\"]");
        // A random or hashed choice between addresses becomes a pool of all of them.
        assert_eq!(pool_of("10.5.0.0/16"), "addresses = [\"203.0.113.5\", \"203.0.113.6\"]");
        assert_eq!(pool_of("10.6.0.0/16"), "addresses = [\"203.0.113.7\", \"203.0.113.8\"]");
        // A map of networks becomes mappings address by address.
        for host in [0, 15] {
            let external = 16 + host;
            has(
                &all,
                &format!(
                    "[[static]] internal = \"10.4.0.{host}\" external = \"203.0.113.{external}\" \
                     direction = \"outbound\""
                ),
            );
        }
        // A set of addresses with ports.
        for (destination, port) in [("192.0.2.9", 443), ("192.0.2.10", 8443)] {
            let rule = format!(
                "[[rule]] kind = \"bypass\" match = {{ destination = \"{destination}\", \
                 port = {port} }}"
            );
            assert!(own.iter().any(|one| one.starts_with(&rule)), "{rule}: {own:#?}");
        }
    }
}

#[test]
fn what_the_filter_of_nftables_drops_is_dropped() {
    for text in MAPS {
        let all = imported(text, Format::Nft);
        let own = tables(&all.config);
        let drops = |end: &str, address: &str| {
            let rule = format!("[[rule]] kind = \"drop\" match = {{ {end} = \"{address}\"");
            own.iter().any(|one| one.starts_with(&rule))
        };
        for source in ["10.0.66.0/24", "10.0.77.5", "10.0.88.10/31", "10.0.88.20", "10.0.99.0/24"] {
            assert!(drops("source", source), "{source}: {own:#?} {:#?}", all.remarks);
        }
        assert!(drops("source", "10.0.9.9"), "{own:#?}");
        assert!(!drops("source", "10.0.1.0/24"), "{own:#?} {:#?}", all.remarks);
        assert!(drops("destination", "192.0.2.66"), "{own:#?}");
        let lost = all.remarks.iter().filter(|one| one.grade == Grade::Lost);
        // Mail is refused only to hosts that the map does not accept: no rule can express that.
        let (of_statics, lost): (Vec<_>, Vec<_>) =
            lost.partition(|one| one.message.contains("[[static]]"));
        assert!(lost.len() == 1 && lost[0].text.contains("465"), "{lost:#?}");
        // The filter accepts no packet of a static mapping.
        assert!(of_statics.len() >= 3, "{of_statics:#?}");
    }
}

#[test]
fn the_filter_of_iptables_becomes_rules_of_kind_drop() {
    let nat = "*nat\n:POSTROUTING ACCEPT [0:0]\n\
        -A POSTROUTING -s 10.0.0.0/8 -o wan0 -j SNAT --to-source 203.0.113.1\nCOMMIT\n";
    let filter = |policy: &str, rules: &str| {
        let text = format!("*filter\n:FORWARD {policy} [0:0]\n{rules}COMMIT\n{nat}");
        imported(&text, Format::Iptables)
    };
    let drops = |all: &Imported| {
        let own = tables(&all.config).into_iter();
        let rule = "[[rule]] kind = \"drop\" match = ";
        own.filter_map(|one| one.strip_prefix(rule).map(str::to_owned)).collect::<Vec<_>>()
    };
    let losses = |all: &Imported| all.remarks.iter().filter(|one| one.grade == Grade::Lost).count();
    // An accepted address within a dropped prefix is taken out of it.
    let all = filter(
        "ACCEPT",
        "-A FORWARD -d 192.0.2.0/24 -j REJECT --reject-with icmp-port-unreachable\n\
         -A FORWARD -s 10.6.6.6/32 -j ACCEPT\n-A FORWARD -s 10.6.6.4/30 -j DROP\n",
    );
    let expected = [
        "{ source = \"10.6.6.4/31\" }",
        "{ source = \"10.6.6.7\" }",
        "{ destination = \"192.0.2.0/24\" }",
    ];
    let dropped = drops(&all);
    for one in expected {
        assert!(dropped.iter().any(|rule| rule.starts_with(one)), "{one}: {dropped:?}");
    }
    assert_eq!((dropped.len(), losses(&all)), (3, 0), "{:#?}", all.remarks);
    differs(&all, 3, "without an answer");
    // The policy drops everything except the packets of some subscribers.
    let all = filter(
        "DROP",
        "-A FORWARD -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT\n\
         -A FORWARD -s 10.0.0.0/9 -m conntrack --ctstate NEW -j ACCEPT\n",
    );
    assert_eq!(drops(&all), ["{ source = \"10.128.0.0/9\" }"], "{:#?}", all.remarks);
    assert_eq!(losses(&all), 0);
    // Everything from inside is accepted, as by the usual firewall of a home.
    let all = filter(
        "DROP",
        "-A FORWARD -m conntrack --ctstate RELATED,ESTABLISHED,DNAT -j ACCEPT\n\
         -A FORWARD -o wan0 -m conntrack --ctstate NEW -j ACCEPT\n\
         -A FORWARD -i wan0 -m conntrack --ctstate INVALID -j DROP\n",
    );
    assert_eq!((drops(&all).len(), losses(&all)), (0, 0), "{:#?}", all.remarks);
    differs(&all, 2, "as line 4 accepts them");
    // The filter drops before addresses are translated, even if a translating rule is narrower.
    let named = "*filter\n:FORWARD ACCEPT [0:0]\n-A FORWARD -s 10.0.0.0/8 -j DROP\nCOMMIT\n*nat\n\
        -A POSTROUTING -s 10.1.0.0/16 -o wan0 -j SNAT --to-source 203.0.113.1\n\
        -A POSTROUTING -s 172.16.0.0/16 -o wan0 -j SNAT --to-source 203.0.113.2\nCOMMIT\n";
    let all = imported(named, Format::Iptables);
    assert_eq!(drops(&all), ["{ source = \"10.0.0.0/8\" }"], "{}", all.config);
    lacks(&all, 6, "never applies: line 3 matches all that it does");
    // Conditions without an equivalent in rules of kind drop are lost.
    for rule in [
        "-A FORWARD -s 10.1.0.0/16 -d 192.0.2.0/24 -j DROP",
        "-A FORWARD -m mac --mac-source 02:00:00:00:00:01 -j DROP",
        "-A FORWARD -s 10.1.0.0/16 -p tcp --dport 25 -j DROP",
    ] {
        let all = filter("ACCEPT", &format!("{rule}\n"));
        assert_eq!((drops(&all).len(), losses(&all)), (0, 1), "{rule}: {:#?}", all.remarks);
    }
    let all = filter("DROP", "");
    lost(&all, 2, "drops all that is forwarded");
}

#[test]
fn a_static_mapping_that_the_filter_refuses_is_lost() {
    let import = |policy: &str, rules: &str| {
        let text = format!(
            "*filter\n:FORWARD {policy} [0:0]\n{rules}COMMIT\n*nat\n\
             -A PREROUTING -d 203.0.113.1 -i wan0 -p udp --dport 5000:5010 -j DNAT --to 10.0.0.6\n\
             -A POSTROUTING -s 10.0.0.0/8 -o wan0 -j SNAT --to-source 203.0.113.1\nCOMMIT\n"
        );
        imported(&text, Format::Iptables)
    };
    let out = "-A FORWARD -i lan0 -o wan0 -j ACCEPT\n";
    let state = "-A FORWARD -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT\n";
    for (policy, rules, line) in [
        ("DROP", "", 2),
        ("DROP", "-A FORWARD -d 10.0.0.5 -i wan0 -p udp --dport 5000:5010 -j ACCEPT\n", 2),
        ("DROP", "-A FORWARD -d 10.0.0.6 -i wan0 -p tcp --dport 5000:5010 -j ACCEPT\n", 2),
        ("DROP", "-A FORWARD -d 10.0.0.6 -i wan0 -p udp --dport 5000:5009 -j ACCEPT\n", 2),
        ("DROP", "-A FORWARD -s 192.0.2.1 -d 10.0.0.6 -i wan0 -j ACCEPT\n", 2),
        ("ACCEPT", "-A FORWARD -i wan0 -j DROP\n", 5),
        ("ACCEPT", "-A FORWARD -d 10.0.0.6 -p udp --dport 5005 -j DROP\n", 5),
    ] {
        let all = import(policy, &format!("{state}{out}{rules}"));
        let refused = format!("line {line} lets nothing or only a part");
        let of_static = all.remarks.iter().filter(|one| one.text.contains("5000:5010 -j DNAT"));
        let said: Vec<_> = of_static.map(|one| (one.grade, &one.message)).collect();
        assert!(
            said.iter().any(|(grade, text)| *grade == Grade::Lost && text.contains(&refused)),
            "{policy} {rules}: {:#?}",
            all.remarks
        );
        assert!(all.config.contains("device = \"lan0\""), "{}", all.config);
    }
    for (policy, rules) in [
        ("ACCEPT", ""),
        ("DROP", "-A FORWARD -d 10.0.0.6 -i wan0 -p udp --dport 5000:5010 -j ACCEPT\n"),
        ("DROP", "-A FORWARD -d 10.0.0.0/24 -j ACCEPT\n"),
        ("DROP", "-A FORWARD -m conntrack --ctstate DNAT -j ACCEPT\n"),
        ("ACCEPT", "-A FORWARD -i wan0 -m conntrack --ctstate INVALID -j DROP\n"),
        ("ACCEPT", "-A FORWARD -i wan0 -s 192.0.2.66 -j DROP\n"),
    ] {
        let all = import(policy, &format!("{state}{out}{rules}"));
        let is_lost = all.remarks.iter().any(|one| one.grade == Grade::Lost);
        assert!(!is_lost, "{policy} {rules}: {:#?}", all.remarks);
    }
}

#[test]
fn what_is_lost_of_source_translation_is_told_as_lost() {
    let good = "-A POSTROUTING -s 10.0.0.0/8 -o wan0 -j SNAT --to-source 203.0.113.1\n";
    for (rule, grade) in [
        ("-A POSTROUTING -s 10.1.0.0/16 -d 192.0.2.0/24 -o wan0 -j MASQUERADE", Grade::Lost),
        ("-A POSTROUTING -m mark --mark 1 -j SNAT --to-source 203.0.113.2", Grade::Lost),
        ("-A POSTROUTING -s 10.1.0.0/16 -d 192.0.2.0/24 -j RETURN", Grade::Lost),
        ("-A POSTROUTING -s 10.1.0.0/16 -j SNAT --to-source 2001:db8::1", Grade::Lost),
        ("-A POSTROUTING -s 10.1.0.0/16 -j nowhere", Grade::Lost),
        // These lines change nothing for translated hosts.
        ("-A POSTROUTING -o other0 -j ACCEPT", Grade::Without),
        ("-A PREROUTING -p tcp --dport 80 -j REDIRECT --to-ports 8080", Grade::Without),
        ("-A OUTPUT -p tcp --dport 80 -j DNAT --to-destination 10.0.0.1", Grade::Without),
    ] {
        let text = format!("*nat\n{rule}\n{good}COMMIT\n");
        let all = imported(&text, Format::Iptables);
        let found = remark(&all, 2);
        assert_eq!(found.grade, grade, "{rule}: {found:?}");
    }
}

#[test]
fn nftables_as_text_and_as_json_are_the_same() {
    let text = "table ip nat {\n\tchain out {\n\
                \t\ttype nat hook postrouting priority srcnat; policy accept;\n\
        \t\toifname \"eth0\" ip saddr { 10.0.0.0/16, 10.2.0.0-10.2.0.99 } \
        snat to 203.0.113.1-203.0.113.9:2000-65535\n\
        \t\tip daddr 10.7.0.0/24 log prefix \"ours: \" flags tcp options accept\n\
        \t\tip daddr != 10.8.0.0/24 ip saddr 10.9.0.0/24 masquerade\n\t}\n\
        \tchain in {\n\t\ttype nat hook prerouting priority dstnat; policy accept;\n\
        \t\tiifname \"eth0\" tcp dport 80 dnat to 10.0.0.80:8080\n\t}\n}\n";
    let meta = |key: &str, name: &str| {
        format!(
            "{{\"match\":{{\"op\":\"==\",\"left\":{{\"meta\":{{\"key\":\"{key}\"}}}},\
             \"right\":\"{name}\"}}}}"
        )
    };
    let field = |op: &str, protocol: &str, field: &str, right: &str| {
        format!(
            "{{\"match\":{{\"op\":\"{op}\",\"left\":{{\"payload\":{{\"protocol\":\"{protocol}\",\
             \"field\":\"{field}\"}}}},\"right\":{right}}}}}"
        )
    };
    let prefix =
        |address: &str, len: u8| format!("{{\"prefix\":{{\"addr\":\"{address}\",\"len\":{len}}}}}");
    let rule = |chain: &str, expr: &[String]| {
        format!(
            "{{\"rule\":{{\"family\":\"ip\",\"table\":\"nat\",\"chain\":\"{chain}\",\
             \"expr\":[{}]}}}}",
            expr.join(",")
        )
    };
    let chain = |name: &str, hook: &str| {
        format!(
            "{{\"chain\":{{\"family\":\"ip\",\"table\":\"nat\",\"name\":\"{name}\",\
             \"type\":\"nat\",\"hook\":\"{hook}\",\"policy\":\"accept\"}}}}"
        )
    };
    let set = format!(
        "{{\"set\":[{},{{\"range\":[\"10.2.0.0\",\"10.2.0.99\"]}}]}}",
        prefix("10.0.0.0", 16)
    );
    let snat = "{\"snat\":{\"addr\":{\"range\":[\"203.0.113.1\",\"203.0.113.9\"]},\
                \"port\":{\"range\":[2000,65535]}}}";
    let objects = [
        "{\"metainfo\":{\"version\":\"1.0.6\"}}".to_owned(),
        chain("out", "postrouting"),
        rule("out", &[meta("oifname", "eth0"), field("==", "ip", "saddr", &set), snat.to_owned()]),
        rule(
            "out",
            &[
                field("==", "ip", "daddr", &prefix("10.7.0.0", 24)),
                "{\"log\":{\"prefix\":\"ours: \",\"flags\":\"tcp options\"}}".to_owned(),
                "{\"accept\":null}".to_owned(),
            ],
        ),
        rule(
            "out",
            &[
                field("!=", "ip", "daddr", &prefix("10.8.0.0", 24)),
                field("==", "ip", "saddr", &prefix("10.9.0.0", 24)),
                "{\"masquerade\":null}".to_owned(),
            ],
        ),
        chain("in", "prerouting"),
        rule(
            "in",
            &[
                meta("iifname", "eth0"),
                field("==", "tcp", "dport", "80"),
                "{\"dnat\":{\"addr\":\"10.0.0.80\",\"port\":8080}}".to_owned(),
            ],
        ),
    ];
    let json = format!("{{\"nftables\":[{}]}}", objects.join(","));
    let (from_text, from_json) = (imported(text, Format::Nft), imported(&json, Format::Nft));
    let mut all = [tables(&from_text.config), tables(&from_json.config)];
    all.iter_mut().for_each(|tables| tables.sort());
    assert_eq!(all[0], all[1]);
    has(
        &from_json,
        "[[rule]] kind = \"bypass\" match = { destination = \"10.8.0.0/24\" } priority = 1",
    );
    // Packets that are logged and then accepted are accepted.
    assert!(from_json.config.contains("10.7.0.0/24"), "{}", from_json.config);
}

/// The comment of a rule stays with the rule, as long as it is and however long the rule.
#[test]
fn comments_of_nftables_rules_in_json_are_kept_whole() {
    let comment =
        format!("mail of the \\\"head office\\\": {}", "ask Anna before a change; ".repeat(4));
    let addresses: Vec<String> = (1..40).map(|one| format!("\"10.0.0.{one}\"")).collect();
    let rule = |chain: &str, expr: &str| {
        format!(
            "{{\"rule\":{{\"family\":\"ip\",\"table\":\"nat\",\"chain\":\"{chain}\",\
             \"comment\":\"{comment}\",\"expr\":[{expr}]}}}}"
        )
    };
    let chain = |name: &str, hook: &str| {
        format!(
            "{{\"chain\":{{\"family\":\"ip\",\"table\":\"nat\",\"name\":\"{name}\",\
             \"type\":\"nat\",\"hook\":\"{hook}\",\"policy\":\"accept\"}}}}"
        )
    };
    let dnat = "{\"match\":{\"op\":\"==\",\"left\":{\"meta\":{\"key\":\"iifname\"}},\
         \"right\":\"eth0\"}},{\"match\":{\"op\":\"==\",\"left\":{\"payload\":{\"protocol\":\"ip\",\
         \"field\":\"daddr\"}},\"right\":\"203.0.113.1\"}},{\"match\":{\"op\":\"==\",\"left\":\
         {\"payload\":{\"protocol\":\"tcp\",\"field\":\"dport\"}},\"right\":25}},\
         {\"dnat\":{\"addr\":\"10.0.0.80\",\"port\":25}}";
    let snat = format!(
        "{{\"match\":{{\"op\":\"==\",\"left\":{{\"payload\":{{\"protocol\":\"ip\",\
         \"field\":\"saddr\"}}}},\"right\":{{\"set\":[{}]}}}}}},\
         {{\"snat\":{{\"addr\":\"203.0.113.1\"}}}}",
        addresses.join(",")
    );
    let objects = [
        chain("out", "postrouting"),
        rule("out", &snat),
        chain("in", "prerouting"),
        rule("in", dnat),
    ];
    let all = imported(&format!("{{\"nftables\":[{}]}}", objects.join(",")), Format::Nft);
    let whole = format!("comment \"{}\": ", comment.replace('\\', "").trim_end());
    for line in ["# line 2: ", "# line 4: "] {
        let found = all.config.lines().find(|text| text.starts_with(line));
        let found = found.unwrap_or_else(|| panic!("{line}: {}", all.config));
        assert!(found[line.len()..].starts_with(whole.trim_end_matches("\": ")), "{found}");
    }
}

#[test]
fn commands_of_vpp() {
    let text = include_str!("files/startup.vpp");
    let all = imported(text, Format::Vpp);
    let line = |what: &str| text.lines().position(|line| line.contains(what)).expect(what) + 1;
    has(&all, "[inside] device = \"edit-inside\" address = \"10.0.0.1/8\"");
    has(
        &all,
        "[outside] device = \"edit-outside\" address = \"192.0.2.1/24\" gateway = \"192.0.2.254\"",
    );
    has(
        &all,
        "[[pool]] name = \"default\" addresses = [\"203.0.113.0/28\", \"203.0.113.64\"] ports = \
         \"2000-60000\"",
    );
    has(
        &all,
        "[limits] mappings = 1000000 ports_per_subscriber = { tcp = 2000, udp = 2000, \
         icmp = 2000 } subscribers = 5000",
    );
    has(
        &all,
        "[timeouts] icmp = \"60s\" tcp_closing = \"240s\" tcp_established = \"7440s\" tcp_opening \
         = \"240s\" udp = \"300s\"",
    );
    has(&all, "[nat] tcp_mss = 1400");
    has(
        &all,
        "[[static]] internal = \"10.0.0.80:8080\" external = \"203.0.113.64:80\" protocol = \
         \"tcp\" direction = \"inbound\"",
    );
    has(&all, "[[static]] internal = \"10.0.0.81\" external = \"203.0.113.81\"");
    has(
        &all,
        "[[static]] internal = \"10.0.0.53:53\" external = \"192.0.2.1:53\" protocol = \"udp\"",
    );
    has(&all, "[[rule]] kind = \"bypass\" match = { source = \"10.0.0.99\" }");
    assert!(
        all.config.contains("{ internal = \"10.0.0.83:443\", weight = 67 },"),
        "{}",
        all.config
    );
    for (what, why) in [
        ("198.51.100.0/24", "[[route]]"),
        ("twice-nat", "twice NAT"),
        ("forwarding", "bypass"),
        ("ipfix", "logs"),
        ("set logging", "verbosity"),
        ("nat ha", "fail-over"),
        ("del address", "takes something away"),
        ("workers", "[workers]"),
    ] {
        lacks(&all, line(what), why);
    }
}

#[test]
fn what_decides_whose_sources_are_translated_is_lost_of_other_programs_too() {
    let text = include_str!("files/startup.vpp");
    let all = imported(text, Format::Vpp);
    let line = |what: &str| text.lines().position(|line| line.contains(what)).expect(what) + 1;
    lost(&all, line("GigabitEthernet0/10/0"), "[[realm]]");
    lost(&all, line("tenant-vrf"), "[[realm]]");
    let all = imported("det44 add in 10.0.0.0/8 out 203.0.113.1/32\n", Format::Vpp);
    lost(&all, 1, "more subscribers than ports");
    let text = "{ \"pool4\": [\n{ \"protocol\": \"TCP\", \"prefix\": \"127.0.0.1/32\" } ] }";
    let all = imported(text, Format::Jool);
    let losses = all.remarks.iter().filter(|one| one.grade == Grade::Lost);
    assert_eq!(losses.count(), 1, "{:#?}", all.remarks);
}

#[test]
fn deterministic_addresses_of_vpp() {
    let all = imported(include_str!("files/det44.vpp"), Format::Vpp);
    has(&all, "[inside] device = \"eth1\"");
    has(
        &all,
        "[[pool]] name = \"default\" addresses = [\"203.0.113.0/26\"] allocation = \
         \"deterministic\" subscribers = [\"100.64.0.0/18\"]",
    );
    has(&all, "[[rule]] kind = \"snat\" match = { source = \"100.65.0.0/22\" } pool = \"pool-2\"");
    differs(&all, 3, "natgate who");
}

#[test]
fn the_first_rule_that_matches_wins_here_too() {
    let text = "*nat\n-A POSTROUTING -s 10.1.0.0/16 -o eth0 -j SNAT --to-source 203.0.113.1\n\
        -A POSTROUTING -d 192.168.0.0/16 -o eth0 -j RETURN\n\
        -A POSTROUTING -s 10.2.0.0/16 -o eth0 -j SNAT --to-source 203.0.113.2\n\
        -A POSTROUTING -s 172.16.0.0/24 -o eth0 -j SNAT --to-source 203.0.113.3\n\
        -A POSTROUTING -s 172.16.0.0/25 -o eth0 -j RETURN\nCOMMIT\n";
    let all = imported(text, Format::Iptables);
    // The rule comes before the one for 172.16.0.0/24, though its prefix is shorter.
    has(
        &all,
        "[[rule]] kind = \"bypass\" match = { destination = \"192.168.0.0/16\" } priority = 1",
    );
    has(&all, "[[rule]] kind = \"snat\" match = { source = \"172.16.0.0/24\" } pool = \"pool-3\"");
    lacks(&all, 6, "never applies: line 5 matches all");
}

#[test]
fn what_is_no_such_file_is_an_error_with_its_line() {
    let error = |text: &str, format| {
        let error = import(text, format, &Hints::default()).expect_err("it is refused");
        error.to_string()
    };
    assert!(error("hello\n", None).contains("--from"));
    assert_eq!(
        error("*nat\nhello\n", Some(Format::Iptables)),
        "line 2: is no line of iptables-save: it has tables (*nat), chains (:NAME) and rules (-A)"
    );
    assert!(error("{\n\"nftables\": [,]}", Some(Format::Nft)).starts_with("line 2: is no JSON"));
    assert!(
        error("table ip nat {\nset a {\nelements = { 1,\n", Some(Format::Nft)).contains("cut off")
    );
    assert!(error("*filter\nCOMMIT\n", None).contains("no rule for translation"));
    assert!(error("{}", Some(Format::Jool)).contains("pool4"));
    assert!(error("ip route add 0.0.0.0/0 via 192.0.2.1", Some(Format::Vpp)).contains("nat44"));
    let hints = Hints { external: Some("10.0.0.0/33".into()), ..Hints::default() };
    let wrong = import("*nat\n", None, &hints).expect_err("it is refused");
    assert!(matches!(wrong, ImportError::External(_)));
}
