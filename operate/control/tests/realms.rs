//! Realms in the configuration: what they come to, what is refused with line and column, how they
//! are explained, what events say.

use natgate_control::config::{Problem, parse, read_text};
use natgate_control::json;
use natgate_control::meaning::Meaning;
use natgate_engine::{Allocation, Change, Event, Match, Prefix, RuleAction, Side, Timestamp};
use natgate_gateway::{Link, Settings};
use serde_json::json;
use std::net::Ipv4Addr;

const HEAD: &str = r#"[inside]
device = "eth1"
address = "10.0.0.1/8"
[outside]
device = "eth0"
address = "192.0.2.1/24"
[[pool]]
addresses = ["203.0.113.1"]
"#;

/// The lines of `HEAD`.
const HEAD_LINES: usize = 8;

const TWO: &str = r#"[[pool]]
name = "b"
addresses = ["203.0.113.2"]
[nat]
subscribers = ["10.0.0.0/8"]
hairpin_to = ["b"]
[[realm]]
name = "a"
vlan = 100
address = "10.0.0.1/8"
gateway = "10.0.0.254"
mtu = 1400
icmp_errors = false
[[realm]]
name = "b"
device = "eth2"
address = "10.0.0.2/24"
subscribers = ["10.0.0.0/24"]
pool = "b"
hairpin_to = ["a", "default"]
[[static]]
realm = "b"
internal = "10.0.0.80:80"
external = "203.0.113.1:80"
[[static]]
internal = "10.0.0.80:80"
external = "203.0.113.1:81"
[[route]]
realm = "b"
prefix = "172.16.0.0/12"
via = "10.0.0.9"
[[rule]]
realm = "a"
kind = "drop"
match = { destination = "198.51.100.0/24" }
[[rule]]
kind = "bypass"
match = { destination = "198.51.100.0/24" }
"#;

fn settings(text: &str) -> Settings {
    parse(&format!("{HEAD}{text}"), "t").unwrap_or_else(|problems| panic!("{problems:#?}"))
}

fn ip(text: &str) -> Ipv4Addr {
    text.parse().unwrap()
}

#[test]
fn realms_come_to_what_they_say() {
    let settings = settings(TWO);
    let engine = &settings.engine;
    assert_eq!(engine.hairpin_to, [2]);
    let [a, b] = &engine.realms[..] else { panic!("{:?}", engine.realms) };
    assert_eq!((&a.name[..], a.default_pool, &a.subscribers), ("a", 0, &engine.subscribers));
    assert_eq!((a.inside.mtu, a.inside.silent), (Some(1400), true));
    assert_eq!((&b.name[..], b.default_pool, &b.hairpin_to[..]), ("b", 1, &[1, 0][..]));
    assert_eq!(b.subscribers, [Prefix::new(ip("10.0.0.0"), 24)]);
    assert_eq!(b.inside.network, Some(Prefix::new(ip("10.0.0.0"), 24)));
    let servers = Match::Destination(Prefix::new(ip("198.51.100.0"), 24), 0);
    let of = |rules: &[natgate_engine::Rule]| -> Vec<_> {
        rules.iter().map(|rule| (rule.matches, rule.action.clone())).collect()
    };
    assert_eq!(of(&engine.rules), [(servers, RuleAction::Bypass)]);
    assert_eq!(of(&a.rules), [(servers, RuleAction::Drop)]);
    assert_eq!(engine.statics.iter().map(|fixed| fixed.realm).collect::<Vec<_>>(), [2, 0]);
    assert_eq!(settings.devices(), ["eth1", "eth0", "eth2"]);
    assert_eq!((settings.realms[0].vlan, settings.realms[1].vlan), (Some(100), None));
    let inside = settings.link(Link::inside(1));
    assert_eq!((&inside.device[..], inside.gateway), ("eth1", Some(ip("10.0.0.254"))));
    assert_eq!(settings.routes, []);
    let route = settings.realms[1].routes[0];
    assert_eq!((route.via, route.side), (ip("10.0.0.9"), Side::Inside));
}

#[test]
fn a_deterministic_pool_has_the_subscribers_of_its_realm() {
    let text = TWO.replace(
        "name = \"b\"\naddresses",
        "name = \"b\"\nallocation = \"deterministic\"\nsubscribers = [\"10.0.0.0/25\"]\naddresses",
    );
    let settings = settings(&text);
    let Some(Allocation::Deterministic(plan)) = &settings.engine.pools[1].allocation else {
        panic!("{:?}", settings.engine.pools[1]);
    };
    assert_eq!(plan.realm, 2);
}

/// `LINE:COLUMN key: message` of each problem, lines counted from after the head.
fn told(problems: &[Problem]) -> Vec<String> {
    let told = |problem: &Problem| {
        let line = problem.line.map_or(0, |line| line - HEAD_LINES);
        format!("{line}:{} {}: {}", problem.column.unwrap_or(0), problem.key, problem.message)
    };
    problems.iter().map(told).collect()
}

/// The problems begin and go on like this.
#[track_caller]
fn refused(text: &str, expected: &[(&str, &str)]) {
    let found = told(&read_text(&format!("{HEAD}{text}"), "t").err().unwrap_or_default());
    let same = found.len() == expected.len()
        && found
            .iter()
            .zip(expected)
            .all(|(found, (start, part))| found.starts_with(start) && found.contains(part));
    assert!(same, "{text}\nfound    {found:#?}\nexpected {expected:#?}");
}

#[test]
fn what_realms_must_not_be() {
    let realm = |name: &str, more: &str| {
        format!("[[realm]]\nname = \"{name}\"\naddress = \"10.0.0.1/8\"\n{more}\n")
    };
    let a = realm("a", "vlan = 100");
    refused(
        "[[realm]]\n",
        &[
            ("1:1 realm[0].name: ", "is missing; write name"),
            ("1:1 realm[0]: ", "names neither vlan nor device"),
            ("1:1 realm[0].address: ", "is missing; write address"),
        ],
    );
    refused(
        &(a.clone() + &realm("b", "vlan = 100")),
        &[(
            "8:8 realm[1].vlan: VLAN 100 of \"eth1\" is that of the realm in line 12",
            "give each realm its own",
        )],
    );
    refused(
        &(a.clone() + &realm("a", "vlan = 101")),
        &[(
            "6:8 realm[1].name: \"a\" is the name of the realm in line 10",
            "give each realm its own",
        )],
    );
    refused(&realm("default", "vlan = 1"), &[("2:8 realm[0].name: ", "write another name")]);
    for name in ["nat64", "dslite"] {
        let said = format!("2:8 realm[0].name: \"{name}\" is what the realm of the hosts of");
        refused(&realm(name, "vlan = 1"), &[(&said, "write another name")]);
    }
    refused(&realm("a", "vlan = 4095"), &[("4:8 realm[0].vlan: ", "1 to 4094")]);
    refused(
        &realm("a", "device = \"eth0\""),
        &[("4:10 realm[0].device: ", "the outside's device")],
    );
    refused(&realm("a", "device = \"eth1\""), &[("4:10 realm[0].device: ", "add vlan = 100")]);
    refused(
        &realm("a", "vlan = 7\npool = \"x\""),
        &[("5:8 realm[0].pool: there is no pool \"x\"", "write one of \"default\"")],
    );
    refused(
        &realm("a", "vlan = 7\nhairpin_to = [\"a\", \"c\"]"),
        &[
            ("5:15 realm[0].hairpin_to[0]: is the realm itself", "leave it out"),
            ("5:20 realm[0].hairpin_to[1]: there is no realm \"c\"", "\"default\", \"a\""),
        ],
    );
    let off = "[nat]\nhairpinning = false\nhairpin_to = [\"a\"]\n";
    refused(&(off.to_owned() + &a), &[("3:15 nat.hairpin_to[0]: ", "nat.hairpinning is off")]);
    refused(
        &realm("a", "vlan = 7\ngateway = \"11.0.0.1\""),
        &[(
            "5:11 realm[0].gateway: 11.0.0.1 is not in 10.0.0.0/8, the network of realm[0].address",
            "neighbor",
        )],
    );
    let rule = "[[rule]]\nrealm = \"z\"\nkind = \"drop\"\nmatch = { source = \"10.0.0.0/8\" }\n";
    refused(&(a.clone() + rule), &[("6:9 rule[0].realm: there is no realm \"z\"", "write one of")]);
    let twice = rule.replace("\"z\"", "\"a\"");
    refused(
        &format!("{a}{twice}{twice}"),
        &[("12:20 rule[1].match.source: ", "keep one of the two")],
    );
    let fixed = |external: &str| {
        format!(
            "[[static]]\nrealm = \"a\"\ninternal = \"10.0.0.80:1\"\nexternal = \"{external}\"\n"
        )
    };
    refused(
        &format!("{a}{}{}", fixed("203.0.113.1:1"), fixed("203.0.113.1:2")),
        &[("11:12 static[1].internal: ", "map each endpoint once")],
    );
    let route = "[[route]]\nrealm = \"a\"\nprefix = \"172.16.0.0/12\"\nvia = \"192.0.2.5\"\n";
    refused(&format!("{a}{route}"), &[("8:7 route[0].via: ", "network of realm[0].address")]);
    refused(
        &format!("{a}{route}side = \"outside\"\n"),
        &[("9:8 route[0].side: ", "no side of a realm")],
    );
}

#[test]
fn a_realm_in_which_nobody_is_translated_is_refused() {
    let realm = |more: &str| {
        format!("[[realm]]\nname = \"a\"\naddress = \"10.0.0.1/8\"\nvlan = 7\n{more}\n")
    };
    let nobody = realm("subscribers = []");
    let message = "names nobody, nor does a rule or a static mapping of the realm";
    refused(&nobody, &[("5:15 realm[0].subscribers: ", message)]);
    let rule = |realm: &str| {
        format!("[[rule]]\nrealm = \"{realm}\"\nkind = \"bypass\"\nmatch.source = \"10.0.0.0/8\"\n")
    };
    refused(&format!("{nobody}{}", rule("default")), &[("5:15 realm[0].subscribers: ", message)]);
    settings(&format!("{nobody}{}", rule("a")));
    let inherits = "[nat]\nsubscribers = []\n".to_owned();
    refused(
        &(inherits.clone() + &realm("")),
        &[("3:1 realm[0]: has no subscribers of its own", "nat.subscribers names nobody")],
    );
    // All may be on VLANs.
    settings(&(inherits + &realm("subscribers = [\"10.0.0.0/8\"]")));
}

#[test]
fn a_class_may_be_of_one_realm() {
    let class = |name: &str, realm: &str, prefix: &str| {
        let head = format!("[[class]]\nname = \"{name}\"\n{realm}");
        format!("{head}subscribers = [\"{prefix}\"]\nlimits.sessions_per_subscriber = 9\n")
    };
    let all = class("all", "", "10.0.0.0/24");
    let own = class("own", "realm = \"b\"\n", "10.0.0.0/24");
    let first = class("first", "realm = \"default\"\n", "10.0.1.0/24");
    let text = format!("{HEAD}{TWO}{all}{own}{first}");
    let read = read_text(&text, "t").expect("it can be run");
    let realms: Vec<_> = read.settings.engine.classes.iter().map(|class| class.realm).collect();
    assert_eq!(realms, [None, Some(2), Some(0)]);
    assert_eq!(read.warnings, []);
    let said = Meaning::of(read).to_string();
    for line in [
        "  class all: 256 addresses, 10.0.0.0/24",
        "  class own: 256 addresses, 10.0.0.0/24 of b",
        "  class first: 256 addresses, 10.0.1.0/24 of default",
    ] {
        assert!(said.lines().any(|found| found == line), "{line:?} is missing in\n{said}");
    }
    let realm = "[[realm]]\nname = \"b\"\naddress = \"10.0.0.1/8\"\nvlan = 7\n";
    refused(
        &format!("{realm}{own}{}", own.replace("own", "other")),
        &[("13:16 class[1].subscribers[0]: 10.0.0.0/24 is in class \"own\"", "once")],
    );
    refused(&own, &[("3:9 class[0].realm: there is no realm \"b\"", "write one of \"default\"")]);
    let outside = class("own", "realm = \"b\"\n", "11.0.0.0/24");
    let read = read_text(&format!("{HEAD}{TWO}{outside}"), "t").expect("it can be run");
    let warned = told(&read.warnings);
    let message = "nobody in 11.0.0.0/24 is a subscriber of realm \"b\"";
    assert!(warned.len() == 1 && warned[0].contains(message), "{warned:?}");
}

#[test]
fn a_plan_of_two_realms_is_refused() {
    let text = "allocation = \"deterministic\"\nsubscribers = [\"10.0.0.0/25\"]\n\
        [[realm]]\nname = \"a\"\naddress = \"10.0.0.1/8\"\nvlan = 7\npool = \"default\"\n";
    refused(
        text,
        &[(
            "7:8 realm[0].pool: deterministic pool \"default\" serves realm \"default\" already",
            "give \"a\" a pool of its own",
        )],
    );
}

#[test]
fn realms_are_explained() {
    let read = read_text(&format!("{HEAD}{TWO}"), "t").expect("it can be run");
    let text = Meaning::of(read).to_string();
    for line in [
        "Realms",
        "  default: what comes by eth1 without a VLAN tag",
        "    default reaches b by hairpin",
        "  a: VLAN 100 of eth1, 10.0.0.1/8, next hop 10.0.0.254, MTU 1400, no ICMP errors",
        "    subscribers: 10.0.0.0/8, pool default",
        "    a reaches no other realm by hairpin",
        "  b: eth2, 10.0.0.2/24, MTU 1500",
        "    b reaches a, default by hairpin",
        "  route: 172.16.0.0/12 via 10.0.0.9, realm b",
        "  static: 10.0.0.80:80 of b is 203.0.113.1:80, all protocols",
        "  rule of default: destination 198.51.100.0/24 passes untranslated",
        "  rule of a: destination 198.51.100.0/24 is dropped",
    ] {
        assert!(text.lines().any(|found| found == line), "{line:?} is missing in\n{text}");
    }
    let plain = read_text(HEAD, "t").expect("it can be run");
    assert!(!Meaning::of(plain).to_string().contains("ealm"));
}

#[test]
fn events_name_the_realm_if_there_are_several() {
    let subscriber = ip("10.0.0.5");
    let change = Change::QuotaReached { realm: 2, subscriber, protocol: 17 };
    let event = Event { time: Timestamp(0), change };
    let names = json::Names::of(&settings(TWO).engine);
    let line = serde_json::to_value(json::event(&event, &names)).unwrap();
    assert_eq!(line["realm"], json!("b"));
    let names = json::Names::of(&settings("").engine);
    let line = serde_json::to_value(json::event(&event, &names)).unwrap();
    assert_eq!(line.get("realm"), None);
}

const DSLITE: &str = "[dslite]\naddress = \"2001:db8:ffff::1\"\nb4 = [\"2001:db8:b4::/40\"]\n\
    [[route]]\nprefix = \"2001:db8::/32\"\nvia = \"fe80::9\"\nside = \"inside\"\n";

#[test]
fn events_name_the_kind_of_hosts_if_there_are_both() {
    let named = |text: &str, last: u16| {
        let names = json::Names::of_settings(&settings(text));
        let subscriber = ip("10.0.0.5");
        let name = |realm| {
            let change = Change::QuotaReached { realm, subscriber, protocol: 17 };
            let event = Event { time: Timestamp(0), change };
            let line = serde_json::to_value(json::event(&event, &names)).unwrap();
            line.get("realm").map(|name| name.as_str().unwrap().to_owned())
        };
        let name = |realm| name(realm).unwrap_or_else(|| String::from("-"));
        (0..=last).map(name).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(named("[nat64]\n", 1), "- -");
    assert_eq!(named(DSLITE, 1), "- -");
    assert_eq!(named(&format!("[nat64]\n{DSLITE}"), 2), "- nat64 dslite");
    assert_eq!(named(&format!("{TWO}[nat64]\n{DSLITE}"), 4), "default a b nat64 dslite");
}

#[test]
fn realms_of_hosts_leave_fewer_others() {
    let realm = |number: u16| {
        format!("[[realm]]\nname = \"r{number}\"\nvlan = {number}\naddress = \"10.0.0.1/8\"\n")
    };
    let many = |count: u16| (1..=count).map(realm).collect::<String>();
    let both = format!("[nat64]\n{DSLITE}");
    let read = |text: &str| read_text(&format!("{HEAD}{text}"), "t");
    assert!(read(&format!("{}{both}", many(4093))).is_ok());
    assert!(read(&format!("{}[nat64]\n", many(4094))).is_ok());
    let found = told(&read(&format!("{}{both}", many(4094))).err().unwrap_or_default());
    let said = "realm[4093]: is one too many; at most 4093 are possible";
    assert!(found.len() == 1 && found[0].ends_with(said), "{found:?}");
}
