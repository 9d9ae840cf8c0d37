//! Static mappings of hosts behind B4s: what they are read as, what is refused and where, what
//! check and who say, and which changes need a restart.

use natgate_control::config::{Configuration, read_text, reread};
use natgate_control::meaning::Meaning;
use natgate_control::who::{Answer, forward, forward6, reverse};
use natgate_engine::{Engine, Timestamp};
use natgate_ipv6::{StaticHost, Translator};
use natgate_logs::OwnersInForce;
use std::net::Ipv4Addr;
use std::path::Path;

/// The file that tests add to; the addition begins in line 12.
const HEAD: &str = r#"[inside]
device = "eth1"
address6 = "2001:db8:0:1::1/64"
[outside]
device = "eth0"
address = "192.0.2.1/24"
[[pool]]
addresses = ["203.0.113.1"]
[dslite]
address = "2001:db8:ffff::1"
b4 = ["2001:db8:b4::/48"]
"#;

const B4: &str = "2001:db8:b4::1";
const OTHER_B4: &str = "2001:db8:b4::2";

fn fixed(b4: &str, internal: &str, external: &str, more: &str) -> String {
    format!(
        "[[static]]\nsoftwire = \"{b4}\"\ninternal = \"{internal}\"\nexternal = \"{external}\"\n\
         {more}\n"
    )
}

#[track_caller]
fn read(added: &str) -> Configuration {
    let text = format!("{HEAD}{added}");
    read_text(&text, "t").unwrap_or_else(|problems| panic!("{text}\n{problems:#?}"))
}

/// Checks that there is one problem: `LINE KEY: `, and a part of the message.
#[track_caller]
fn refused_in(text: &str, start: &str, part: &str) {
    let problems = read_text(text, "t").expect_err(text);
    let found: Vec<String> = problems
        .iter()
        .map(|one| format!("{} {}: {}", one.line.expect("a line"), one.key, one.message))
        .collect();
    assert_eq!(found.len(), 1, "in\n{text}\n{found:#?}");
    let is_right = found[0].starts_with(start) && found[0].contains(part);
    assert!(is_right, "{found:#?}\nexpected {start}{part}");
}

#[track_caller]
fn refused(added: &str, start: &str, part: &str) {
    refused_in(&format!("{HEAD}{added}"), start, part);
}

/// The mapping of the web server behind a B4 to a port.
fn web(b4: &str, port: u16) -> String {
    fixed(b4, "192.168.1.2:80", &format!("203.0.113.1:{port}"), "protocol = \"tcp\"")
}

#[test]
fn equal_inner_hosts_of_two_b4s_have_two_numbers() {
    let all = web(B4, 80) + &web(OTHER_B4, 81) + &fixed(B4, "192.0.0.2", "198.51.100.9", "");
    let settings = read(&all).settings;
    let of = |b4: &str, inner: [u8; 4]| (b4.parse().expect("an address"), Ipv4Addr::from(inner));
    let hosts = [of(B4, [192, 168, 1, 2]), of(OTHER_B4, [192, 168, 1, 2]), of(B4, [192, 0, 0, 2])];
    let expected = StaticHost::first_behind(&hosts, 128, 1);
    assert!(settings.ipv6.static_hosts().eq(&expected));
    let internals: Vec<_> = settings.engine.statics.iter().map(|one| one.internal).collect();
    let number = |place: usize| expected[place].number;
    assert_eq!(internals, [(number(0), Some(80)), (number(1), Some(80)), (number(2), None)]);
    assert!(settings.engine.statics.iter().all(|one| one.realm == 1));
    // The translator and the engine take them.
    let mut config = settings.engine.clone();
    let translator = Translator::new(&settings.ipv6, &mut config, [1; 32]);
    assert!(translator.expect("good settings").is_some());
    Engine::new(&config, [1; 32], Timestamp(1)).expect("a good configuration");
}

#[test]
fn an_address_of_the_gateway_is_no_b4() {
    for (old, own) in
        [("2001:db8:0:1::1", "2001:db8:b4::9"), ("2001:db8:ffff::1", "2001:db8:b4::9")]
    {
        let text = format!("{}{}", HEAD.replace(old, own), web(own, 80));
        refused_in(&text, "13 static[0].softwire: ", "is an address of the gateway itself");
    }
}

#[test]
fn hosts_that_cannot_be() {
    let bad = [
        (web("2001:db8:b5::1", 80), "13 static[0].softwire: ", "is not in dslite.b4 (2001:db8:b4"),
        (web("192.0.2.9", 80), "13 static[0].softwire: ", "is no IPv6 address"),
        (
            fixed(B4, "198.51.100.5:80", "203.0.113.1:80", ""),
            "14 static[0].internal: ",
            "198.51.100.5 is not in nat.subscribers",
        ),
        (
            fixed(B4, "192.0.0.1:80", "203.0.113.1:80", ""),
            "14 static[0].internal: ",
            "192.0.0.1 is the gateway itself",
        ),
        (
            fixed(B4, "192.0.0.7:80", "203.0.113.1:80", ""),
            "14 static[0].internal: ",
            "192.0.0.7 is no address of a host",
        ),
        (
            fixed(B4, "[2001:db8::5]:80", "203.0.113.1:80", ""),
            "13 static[0].softwire: ",
            "stands beside a host of IPv6",
        ),
        (
            fixed(B4, "192.168.1.2", "203.0.113.1:80", ""),
            "15 static[0].external: ",
            "one endpoint has a port and the other has none",
        ),
        (
            fixed(B4, "192.168.1.2:80", "203.0.113.1:80", "realm = \"default\""),
            "16 static[0].realm: ",
            "hosts behind B4s are in no realm",
        ),
        (
            "[[static]]\nsoftwire = \"2001:db8:b4::1\"\nexternal = \"203.0.113.1:80\"\n\
             servers = [{ internal = \"10.0.0.4:80\" }]\n"
                .to_owned(),
            "13 static[0].softwire: ",
            "stands beside servers",
        ),
        (
            web(B4, 80) + &web(B4, 81),
            "19 static[1].internal: ",
            "overlaps the static mapping in line 12",
        ),
    ];
    for (added, start, part) in bad {
        refused(&added, start, part);
    }
    let prefixes = HEAD.replace("[dslite]\n", "[dslite]\nsubscriber_length = 56\n");
    let of_one = web(B4, 80) + &web(OTHER_B4, 81);
    refused_in(
        &format!("{prefixes}{of_one}"),
        "20 static[1].internal: ",
        "a subscriber has one B4; write 2001:db8:b4::1 as softwire",
    );
    let without = HEAD.split("[dslite]").next().expect("a head");
    let message = "2001:db8:b4::1 is a B4, and no [dslite] has its tunnel";
    refused_in(&format!("{without}{}", web(B4, 80)), "10 static[0].softwire: ", message);
}

#[test]
fn hosts_without_room() {
    let many = |count: u32| -> String {
        let host = |number: u32| format!("192.168.{}.{}:80", number >> 8, number & 255);
        let one = |number| fixed(B4, &host(number), &format!("203.0.113.1:{}", 1024 + number), "");
        (1..=count).map(one).collect()
    };
    read(&many(256));
    refused(
        &many(257),
        "1294 static[256].internal: ",
        "192.168.1.1 behind 2001:db8:b4::1 is host 257 of 2001:db8:b4::1, and a subscriber has",
    );
}

#[test]
fn a_block_belongs_to_one_b4() {
    let nat = "[nat]\nallocation = \"block\"\n[nat.block]\nsize = 512\n";
    let other_host = fixed(B4, "192.168.1.3:80", "203.0.113.1:2049", "");
    read(&format!("{}{other_host}{nat}", web(B4, 2048)));
    refused(
        &format!("{}{}{nat}", web(B4, 2048), web(OTHER_B4, 2049)),
        "20 static[1].external: ",
        "is in block 2048-2559 of 203.0.113.1, which 2001:db8:b4::1 has by the mapping in line 12",
    );
}

#[test]
fn check_and_who_name_the_hosts() {
    let range = fixed(OTHER_B4, "192.168.1.2:80-81", "203.0.113.1:8081-8082", "");
    let configuration = read(&(web(B4, 8080) + &range));
    let owners = OwnersInForce::of_settings(&configuration.settings);
    let text = Meaning::of(configuration).to_string();
    for line in [
        "static: 192.168.1.2:80 behind 2001:db8:b4::1 is 203.0.113.1:8080, TCP\n",
        "static: 192.168.1.2:80-81 behind 2001:db8:b4::2 is 203.0.113.1:8081-8082, all",
    ] {
        assert!(text.contains(line), "{line} in\n{text}");
    }
    let sentence = "2001:db8:b4::1 (host 192.168.1.2) has tcp port 8080 of 203.0.113.1";
    let says = |answers: Vec<Answer>| {
        let [answer] = &answers[..] else { panic!("{answers:?}") };
        assert!(answer.sentence().starts_with(sentence), "{}", answer.sentence());
        assert_eq!(answer.object()["subscriber"], B4);
        assert_eq!(answer.object()["internal"], "192.168.1.2");
    };
    says(reverse(&owners, Ipv4Addr::new(203, 0, 113, 1), 8080, Some(6)).expect("an owner"));
    says(forward6(&owners, B4).expect("its mapping"));
    // The inner address alone names nobody.
    assert!(forward(&owners, Ipv4Addr::new(192, 168, 1, 2)).is_err());
    let packed = owners.pack().expect("a record");
    assert_eq!(OwnersInForce::unpack(&packed), Some(owners));
}

#[test]
fn a_reload_adds_hosts_and_only_a_restart_changes_one_way_mappings() {
    let one_way = fixed(B4, "192.168.1.2:80", "203.0.113.1:81", "direction = \"inbound\"");
    let before = read(&one_way).settings;
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join("tunneled.toml");
    let check = |added: &str| {
        std::fs::write(&file, format!("{HEAD}{added}")).expect("a file");
        let new = reread(&file, &before);
        new.map(drop).map_err(|problems| {
            problems.iter().map(|one| format!("{}: {}", one.key, one.message)).collect::<Vec<_>>()
        })
    };
    // The new host comes first, so the first numbers are others.
    let more = web(OTHER_B4, 80);
    assert_eq!(check(&format!("{more}{one_way}")), Ok(()));
    let changed = one_way.replace("1.2:80", "1.3:80");
    let problems = check(&format!("{more}{changed}")).expect_err("a restart is needed");
    assert_eq!(problems.len(), 1, "{problems:?}");
    assert!(problems[0].starts_with("static[1].external: changes only at a restart"));
}
