//! Static mappings of IPv6 hosts: what they are read as, what is refused and where, what check and
//! who say, and which changes need a restart.

use natgate_control::config::{Configuration, read_text, reread};
use natgate_control::meaning::Meaning;
use natgate_control::who::{Answer, forward6, reverse};
use natgate_engine::{Begun, Engine, StaticMapping, Timestamp};
use natgate_ipv6::{StaticHost, Translator};
use natgate_logs::OwnersInForce;
use natgate_wire::protocol::TCP;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::Path;

/// The file that tests add to; the addition begins in line 9.
const HEAD: &str = r#"[inside]
device = "eth1"
address6 = "2001:db8:0:1::1/64"
[outside]
device = "eth0"
address = "192.0.2.1/24"
[[pool]]
addresses = ["203.0.113.1"]
"#;

const NAT64: &str = "[nat64]\nsubscribers = [\"2001:db8::/32\"]\n";

fn fixed(internal: &str, external: &str, more: &str) -> String {
    format!("[[static]]\ninternal = \"{internal}\"\nexternal = \"{external}\"\n{more}\n")
}

#[track_caller]
fn read(added: &str) -> Configuration {
    let text = format!("{HEAD}{added}");
    read_text(&text, "t").unwrap_or_else(|problems| panic!("{text}\n{problems:#?}"))
}

/// Checks that there is one problem: `LINE KEY: `, and parts of the message.
#[track_caller]
fn refused(added: &str, start: &str, parts: &[&str]) {
    let text = format!("{HEAD}{added}");
    let problems = read_text(&text, "t").expect_err(&text);
    let found: Vec<String> = problems
        .iter()
        .map(|one| format!("{} {}: {}", one.line.expect("a line"), one.key, one.message))
        .collect();
    assert_eq!(found.len(), 1, "in\n{text}\n{found:#?}");
    let is_right = found[0].starts_with(start) && parts.iter().all(|part| found[0].contains(part));
    assert!(is_right, "{found:#?}\nexpected {start}{parts:?}");
}

fn ip(text: &str) -> Ipv6Addr {
    text.parse().expect("an address")
}

//= test rfc6146#section-3.1-manual
#[test]
fn hosts_get_the_numbers_of_a_new_translator() {
    let web = fixed("[2001:db8::5]:80-81", "203.0.113.1:8080-8081", "protocol = \"tcp\"");
    let whole = fixed("2001:db8:1::7", "198.51.100.9", "direction = \"inbound\"");
    let other = fixed("[2001:db8::6]:22", "203.0.113.1:22", "");
    let settings = read(&format!("{web}{whole}{other}{NAT64}")).settings;
    let hosts = ["2001:db8::5", "2001:db8:1::7", "2001:db8::6"].map(ip);
    let expected = StaticHost::first(&hosts, 64, 1);
    assert!(settings.ipv6.static_hosts().eq(&expected));
    let number = |place: usize| expected[place].number;
    let external = Ipv4Addr::new(203, 0, 113, 1);
    let port = |host, inner, outer, protocol| StaticMapping {
        realm: 1,
        protocol,
        internal: (number(host), Some(inner)),
        external: (external, Some(outer)),
        begun: Begun::Anywhere,
    };
    let whole = StaticMapping {
        realm: 1,
        protocol: None,
        internal: (number(1), None),
        external: (Ipv4Addr::new(198, 51, 100, 9), None),
        begun: Begun::Outside,
    };
    let all =
        [port(0, 80, 8080, Some(TCP)), port(0, 81, 8081, Some(TCP)), whole, port(2, 22, 22, None)];
    assert_eq!(settings.engine.statics, all);
    // The translator and the engine take them.
    let mut config = settings.engine.clone();
    let translator = Translator::new(&settings.ipv6, &mut config, [1; 32]);
    assert!(translator.expect("good settings").is_some());
    Engine::new(&config, [1; 32], Timestamp(1)).expect("a good configuration");
}

#[test]
fn hosts_that_cannot_be() {
    let web = |host: &str| fixed(host, "203.0.113.1:80", "");
    refused(
        &web("[2001:db8::5]:80"),
        "10 static[0].internal: ",
        &["2001:db8::5 is a host of IPv6, and no [nat64] translates for it"],
    );
    for (host, message) in [
        ("[2001:db9::5]:80", "2001:db9::5 is not in nat64.subscribers (2001:db8::/32)"),
        ("[2001:db8:0:1::1]:80", "2001:db8:0:1::1 is the gateway itself"),
        ("[64:ff9b::5]:80", "64:ff9b::5 is in 64:ff9b::/96 of nat64.prefixes"),
        ("[fe80::5]:80", "fe80::5 is link-local"),
        ("[2001:db8::5]:0", "\"0\" is no port"),
        ("[2001:db8::5]:9-8", ""),
        ("[2001:db8::5]80", "is no endpoint; write \"[2001:db8::5]:80\""),
        ("2001:db8::5:80:", "is no IPv6 address"),
    ] {
        refused(&format!("{}{NAT64}", web(host)), "10 static[0].internal: ", &[message]);
    }
    refused(
        &format!("{}{NAT64}", web("2001:db8::5")),
        "11 static[0].external: ",
        &["one endpoint has a port and the other has none"],
    );
    let of_realm = fixed("[2001:db8::5]:80", "203.0.113.1:80", "realm = \"default\"");
    refused(&format!("{of_realm}{NAT64}"), "12 static[0].realm: ", &["hosts of IPv6 are in no"]);
    let twice = web("[2001:db8::5]:80") + &fixed("[2001:db8::5]:80", "203.0.113.1:81", "");
    refused(
        &format!("{twice}{NAT64}"),
        "14 static[1].internal: ",
        &["overlaps the static mapping in line 9"],
    );
}

#[test]
fn hosts_without_room() {
    let many = |count: u32, step: u32| -> String {
        let host = |number: u32| format!("[2001:db8:{:x}::{number:x}]:80", number / step);
        let one = |number| fixed(&host(number), &format!("203.0.113.1:{}", 1024 + number), "");
        (1..=count).map(one).collect()
    };
    read(&format!("{}{NAT64}", many(256, 1000)));
    refused(
        &format!("{}{NAT64}", many(257, 1000)),
        "1034 static[256].internal: ",
        &["2001:db8::101 is host 257 of 2001:db8::/64, and a subscriber has at most 256 hosts"],
    );
    let limits = "[limits]\nsubscribers = 3\n";
    refused(
        &format!("{}{limits}{NAT64}", many(4, 1)),
        "22 static[3].internal: ",
        &["2001:db8:4::4 is in subscriber 4, and limits.subscribers is 3"],
    );
}

#[test]
fn a_block_belongs_to_one_prefix() {
    let nat = "[nat]\nallocation = \"block\"\n[nat.block]\nsize = 512\n";
    let one = fixed("[2001:db8::5]:80", "203.0.113.1:2048", "");
    let same = fixed("[2001:db8::6]:80", "203.0.113.1:2049", "");
    let other = fixed("[2001:db8:1::6]:80", "203.0.113.1:2050", "");
    read(&format!("{one}{same}{nat}{NAT64}"));
    refused(
        &format!("{one}{other}{nat}{NAT64}"),
        "15 static[1].external: ",
        &["is in block 2048-2559 of 203.0.113.1, which 2001:db8::/64 has by the mapping in line 9"],
    );
}

#[test]
fn check_and_who_name_the_hosts() {
    let web = fixed("[2001:db8::5]:80", "203.0.113.1:8080", "protocol = \"tcp\"");
    let whole = fixed("2001:db8:1::7", "198.51.100.9", "");
    let configuration = read(&format!("{web}{whole}{NAT64}"));
    let owners = OwnersInForce::of_settings(&configuration.settings);
    let text = Meaning::of(configuration).to_string();
    for line in [
        "static: [2001:db8::5]:80 is 203.0.113.1:8080, TCP\n",
        "static: 2001:db8:1::7 is 198.51.100.9, all protocols\n",
    ] {
        assert!(text.contains(line), "{line} in\n{text}");
    }
    let sentences =
        |answers: Vec<Answer>| -> Vec<String> { answers.iter().map(Answer::sentence).collect() };
    let whole = "2001:db8:1::/64 (host 2001:db8:1::7) has all ports of 198.51.100.9 (static)";
    let found = reverse(&owners, Ipv4Addr::new(198, 51, 100, 9), 443, None);
    assert_eq!(sentences(found.expect("an owner")), [whole]);
    for subscriber in ["2001:db8:1::7", "2001:db8:1::/64"] {
        let found = forward6(&owners, subscriber).expect("its mapping");
        assert_eq!(found[0].object()["subscriber"], "2001:db8:1::/64");
        assert_eq!(found[0].object()["internal"], "2001:db8:1::7");
        assert_eq!(sentences(found), [whole]);
    }
    assert!(forward6(&owners, "2001:db8:1::8").is_err());
    let packed = owners.pack().expect("a record");
    assert_eq!(OwnersInForce::unpack(&packed), Some(owners));
}

#[test]
fn a_reload_adds_hosts_and_only_a_restart_changes_one_way_mappings() {
    let one_way = fixed("[2001:db8:1::7]:80", "203.0.113.1:81", "direction = \"inbound\"");
    let before = read(&format!("{one_way}{NAT64}")).settings;
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join("statics6.toml");
    let check = |added: &str| {
        std::fs::write(&file, format!("{HEAD}{added}")).expect("a file");
        let new = reread(&file, &before);
        new.map(drop).map_err(|problems| {
            problems.iter().map(|one| format!("{}: {}", one.key, one.message)).collect::<Vec<_>>()
        })
    };
    // The new host comes first, so the first numbers are others.
    let more = fixed("[2001:db8::5]:80", "203.0.113.1:80", "");
    assert_eq!(check(&format!("{more}{one_way}{NAT64}")), Ok(()));
    let changed = one_way.replace("1::7", "1::8");
    let problems = check(&format!("{more}{changed}{NAT64}")).expect_err("a restart is needed");
    assert_eq!(problems.len(), 1, "{problems:?}");
    assert!(problems[0].starts_with("static[1].external: changes only at a restart"));
}
