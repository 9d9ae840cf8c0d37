//! The suite with the program's own gateway, in simulated time, for two hours and more in each
//! test.
//!
//! With default settings the gateway fails only the requirements that the lists in `requirements/`
//! name as exceptions, with the reason. With other settings, exactly the requirements about the
//! changed setting have another verdict. So the suite can fail, and does not fail at random.

use natgate_conform::Verdict::{Fail, NotApplicable, Pass};
use natgate_conform::{Hosts, Options, Report, Setup, Simulated, Unreachable, Verdict};
use natgate_conform::{requirements, run, surround};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Configuration of the published report.
const EVERYTHING: &str = include_str!("../../../docs/conform/natgate.toml");

fn try_with(more: &str, options: Options) -> Report {
    try_config(&format!("{EVERYTHING}\n{more}"), options)
}

fn try_config(text: &str, mut options: Options) -> Report {
    let mut settings = natgate_control::config::parse(text, "test").expect("a good configuration");
    let setup = surround(&mut settings).expect("room for hosts");
    options.quota = Some(settings.engine.limits.udp_ports);
    let bench = Simulated::new(&settings, [7; 32]).expect("a good configuration");
    run(Box::new(bench), setup, options, &mut |_| {}).expect("packets pass")
}

fn verdicts(report: &Report) -> BTreeMap<String, Verdict> {
    report.items.iter().map(|item| (item.id.clone(), item.verdict)).collect()
}

/// Requirements that natgate deliberately meets in another way or not at all.
fn exceptions() -> BTreeSet<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../requirements");
    let mut found = BTreeSet::new();
    for entry in std::fs::read_dir(folder).expect("requirements/").flatten() {
        let text = std::fs::read_to_string(entry.path()).expect("a readable list");
        let Ok(list) = text.parse::<toml::Table>() else { continue };
        let rfc = entry.path().file_stem().expect("a name").to_string_lossy().into_owned();
        for one in list["requirement"].as_array().expect("requirements") {
            if one.get("exception").is_some() {
                found.insert(format!("{rfc}#{}", one["id"].as_str().expect("a name")));
            }
        }
    }
    assert!(!found.is_empty());
    // PCP is off by default, and is not available in simulated time.
    found.insert("rfc6888#REQ-9".to_owned());
    found
}

/// Checks that additional configuration changes these verdicts and no others.
fn changes(more: &str, expected: &[(&str, Verdict)]) {
    let usual = verdicts(&try_with("", Options::default()));
    let report = try_with(more, Options::default());
    let changed: BTreeMap<&str, Verdict> = report
        .items
        .iter()
        .filter(|item| usual[&item.id] != item.verdict)
        .map(|item| (&*item.id, item.verdict))
        .collect();
    let told: Vec<_> = report
        .items
        .iter()
        .filter(|item| changed.contains_key(&*item.id))
        .map(|item| {
            format!("{}: {:?}, was {:?}: {}", item.id, item.verdict, usual[&item.id], item.why)
        })
        .collect();
    assert_eq!(changed, expected.iter().copied().collect(), "\n{}", told.join("\n"));
}

#[test]
fn as_it_comes_natgate_fails_only_what_it_deliberately_does_otherwise() {
    let report = try_with("", Options::default());
    let exceptions = exceptions();
    for item in &report.items {
        let excused = exceptions.contains(&item.id);
        assert!(item.verdict != Fail || excused, "{}: {}\n{:#?}", item.id, item.why, item.evidence);
        assert_ne!(item.verdict, Verdict::NotTested, "{}: {}", item.id, item.why);
    }
    let passed = report.items.iter().filter(|item| item.verdict == Pass).count();
    assert!(passed > 220, "only {passed} passed");
    assert!(
        report.seconds > 7400.0,
        "{} s are too few for an established connection",
        report.seconds
    );
}

#[test]
fn the_smallest_configuration_will_do() {
    let text = "[inside]\ndevice = \"a\"\n[outside]\ndevice = \"b\"\n\
                [[pool]]\naddresses = [\"203.0.113.1\"]\n";
    let report = try_config(text, Options::default());
    let exceptions = exceptions();
    let failed = report.items.iter().filter(|item| item.verdict == Fail);
    let failed: Vec<_> = failed.filter(|item| !exceptions.contains(&item.id)).collect();
    assert!(failed.is_empty(), "{failed:#?}");
}

#[test]
fn the_same_seed_gives_the_same_report() {
    let only =
        |_: ()| Options { only: vec!["rfc4787".into(), "rfc5382".into()], ..Options::default() };
    assert_eq!(try_with("", only(())), try_with("", only(())));
}

#[test]
fn every_requirement_is_reported_once_and_in_order() {
    let report =
        try_with("", Options { patience: std::time::Duration::ZERO, ..Options::default() });
    let reported: Vec<_> = report.items.iter().map(|item| &item.id).collect();
    assert_eq!(reported, requirements().map(|one| &one.id).collect::<Vec<_>>());
    let item = report.item("rfc5382#REQ-5").expect("it is there");
    assert_eq!((item.verdict, &*item.why), (Verdict::NotTested, "Not tested: needs 2 h 4 min."));
}

#[test]
fn hosts_are_placed_where_the_configuration_lets_them_be() {
    let place = |inside: &str, outside: &str, more: &str| {
        let text = format!(
            "[inside]\ndevice = \"a\"\n{inside}\n[outside]\ndevice = \"b\"\n{outside}\n\
             [[pool]]\naddresses = [\"198.51.100.0/24\"]\n{more}"
        );
        let mut settings = natgate_control::config::parse(&text, "test").expect(&text);
        surround(&mut settings)
    };
    // Without settings: a subscriber's network inside, and a network outside of the pools.
    let setup = place("", "", "").unwrap();
    assert_eq!(setup.inside_gateway.to_string(), "10.0.0.1");
    assert_eq!(setup.outside_hosts.first.to_string(), "192.0.2.16");
    assert!(setup.outside_gateway.is_some() && setup.nobody.is_none());
    // With a router, hosts are behind it. Without one, they are neighbors, and one address is
    // missing.
    let address = "address = \"192.0.2.1/24\"";
    let behind = place("", &format!("{address}\ngateway = \"192.0.2.254\""), "").unwrap();
    assert_eq!(behind.outside_gateway.unwrap().to_string(), "192.0.2.254");
    assert_eq!(behind.outside_hosts.first.to_string(), "203.0.113.16");
    let beside = place("", address, "").unwrap();
    assert_eq!(beside.outside_hosts.first.to_string(), "192.0.2.16");
    assert!(!beside.outside_hosts.contains(beside.nobody.unwrap()));
    // A route determines the outside network if no other setting does.
    let route =
        "[[route]]\nprefix = \"203.0.113.0/25\"\nvia = \"192.0.2.253\"\nside = \"outside\"\n";
    let routed = place("", "", route).unwrap();
    assert_eq!(routed.outside_gateway.unwrap().to_string(), "192.0.2.253");
    assert_eq!(routed.outside_hosts.first.to_string(), "203.0.113.16");
    // Hosts are subscribers without static mappings.
    let mapped = "[[static]]\ninternal = \"10.0.0.100\"\nexternal = \"203.0.113.1\"\n";
    let setup = place("address = \"10.0.0.1/16\"", "", mapped).unwrap();
    assert!(!setup.inside_hosts.contains([10, 0, 0, 100].into()));
    let strangers = "[nat]\nsubscribers = [\"172.16.0.0/12\"]\n";
    let error = place("address = \"10.0.0.1/16\"", "", strangers).unwrap_err();
    assert!(error.to_string().contains("whose addresses are subscribers"), "{error}");
    let error = place("address = \"10.0.0.1/29\"", "", "").unwrap_err();
    assert!(error.to_string().contains("found inside"), "{error}");
}

/// Realms with devices of their own and on VLANs, with one worker and with several.
#[test]
fn realms_with_devices_of_their_own_are_no_obstacle() {
    let realms = "[[realm]]\nname = \"blue\"\ndevice = \"c\"\naddress = \"10.0.0.1/8\"\n\
                  [[realm]]\nname = \"green\"\ndevice = \"d\"\nvlan = 7\naddress = \"10.0.0.1/8\"\n\
                  [[realm]]\nname = \"red\"\nvlan = 8\naddress = \"10.0.0.1/8\"\n";
    let options = || Options { only: vec!["rfc4787#REQ-1".into()], ..Options::default() };
    for workers in ["", "[workers]\ncount = 2\n"] {
        let report = try_with(&format!("{realms}{workers}"), options());
        assert_eq!(report.item("rfc4787#REQ-1").expect("it is there").verdict, Pass);
    }
}

/// Between the families: a packet with DF that is too long for the inside is answered.
#[test]
fn an_inside_with_a_smaller_mtu_than_the_outside() {
    let text = EVERYTHING.replace("mtu     = 1400", "").replace("[inside]", "[inside]\nmtu = 1400");
    let only = Options { only: vec!["rfc7915".into()], ..Options::default() };
    let report = try_config(&text, only);
    let failed: Vec<_> = report.items.iter().filter(|item| item.verdict == Fail).collect();
    assert!(failed.is_empty(), "{failed:#?}");
    assert_eq!(report.item("rfc7915#section-4.1-df").expect("it is there").verdict, Pass);
}

/// Without IPv6 on the inside, nothing about the families applies.
#[test]
fn a_translator_of_one_family() {
    let (text, _) = EVERYTHING.split_once("# Hosts of NAT64").expect("IPv6 comes last");
    let only = vec!["rfc6146".into(), "rfc7915".into(), "rfc7757".into()];
    let report = try_config(text, Options { only, ..Options::default() });
    let is_silent = |verdict| matches!(verdict, NotApplicable | Verdict::NotVisible);
    assert!(report.items.len() > 100 && report.items.iter().all(|item| is_silent(item.verdict)));
}

/// No cable limits the configured MTUs.
#[test]
fn large_packets_are_possible() {
    let text = EVERYTHING.replace("[inside]", "[inside]\nmtu = 9000");
    assert!(text.contains("mtu = 9000"));
    let only = Options { only: vec!["rfc4787#REQ-13".into()], ..Options::default() };
    let report = try_config(&text, only);
    for item in report.items.iter().filter(|item| item.id.starts_with("rfc4787#REQ-13")) {
        assert_ne!(item.verdict, Fail, "{}: {}", item.id, item.why);
    }
}

#[test]
fn what_cannot_be_tried_is_said_before_anything_is() {
    let mut settings = natgate_control::config::parse(EVERYTHING, "test").unwrap();
    let setup = surround(&mut settings).unwrap();
    let failure = |setup: Setup| {
        let bench = Simulated::new(&settings, [7; 32]).unwrap();
        run(Box::new(bench), setup, Options::default(), &mut |_| {}).unwrap_err()
    };
    let elsewhere = Setup { inside_gateway: [10, 77, 9, 9].into(), ..setup.clone() };
    assert_eq!(failure(elsewhere), Unreachable::NoGateway([10, 77, 9, 9].into()));
    let hosts = |first: [u8; 4], last: [u8; 4]| Hosts { first: first.into(), last: last.into() };
    let strangers = hosts([8, 8, 8, 0], [8, 8, 8, 255]);
    let strangers = Setup { inside_hosts: strangers, ..setup.clone() };
    assert!(matches!(failure(strangers), Unreachable::NothingPasses { .. }));
    let few = Setup { outside_hosts: hosts([9, 9, 9, 1], [9, 9, 9, 9]), ..setup };
    assert_eq!(failure(few), Unreachable::FewHosts { side: "outside", count: 9 });
}

#[test]
fn address_dependent_filtering() {
    changes(
        "[nat]\nfiltering = \"address-dependent\"\n",
        &[
            ("rfc7857#section-7", Pass),
            ("rfc7857#section-7-tcp", Pass),
            ("rfc6888#REQ-7", Fail),
            ("rfc6146#section-3.5.2-v4-init", NotApplicable),
        ],
    );
}

#[test]
fn address_and_port_dependent_filtering() {
    changes(
        "[nat]\nfiltering = \"address-and-port-dependent\"\n",
        &[
            ("rfc4787#REQ-8", Fail),
            ("rfc5382#REQ-3", Fail),
            ("rfc5597#REQ-3", Fail),
            ("rfc7857#section-6", NotApplicable),
            ("rfc7857#section-6-default", NotApplicable),
            ("rfc7857#section-7", Pass),
            ("rfc7857#section-7-tcp", Pass),
            ("rfc6888#REQ-7", Fail),
            ("rfc6146#section-3.5.1-filtering", Fail),
            ("rfc6146#section-3.5.2-v4-init", NotApplicable),
        ],
    );
}

#[test]
fn address_dependent_mapping() {
    changes(
        "[nat]\nmapping = \"address-dependent\"\n",
        &[
            ("rfc4787#REQ-1", Fail),
            ("rfc4787#REQ-9a", Fail),
            ("rfc5382#REQ-1", Fail),
            ("rfc5382#REQ-2", Fail),
            ("rfc5382#REQ-8", Fail),
            ("rfc5382#REQ-8a", NotApplicable),
            ("rfc5508#REQ-1a", Fail),
            ("rfc5508#REQ-7", Fail),
            ("rfc5508#REQ-7a", Fail),
            ("rfc5597#REQ-1", Fail),
            ("rfc5597#REQ-8", Fail),
            ("rfc7857#section-12-error", Fail),
            ("rfc6146#section-3.8", Fail),
            ("rfc6146#section-5.2-mapping", Fail),
        ],
    );
}

#[test]
fn no_hairpinning() {
    changes(
        "[nat]\nhairpinning = false\n",
        &[
            ("rfc4787#REQ-9", Fail),
            ("rfc4787#REQ-9a", NotApplicable),
            ("rfc5382#REQ-8", Fail),
            ("rfc5382#REQ-8a", NotApplicable),
            ("rfc5508#REQ-7", Fail),
            ("rfc5508#REQ-7a", Fail),
            ("rfc5597#REQ-8", Fail),
            ("rfc7857#section-12-error", Fail),
            ("rfc6146#section-3.8", Fail),
        ],
    );
}

#[test]
fn no_port_parity() {
    changes(
        "[nat]\nport_parity = false\n",
        &[
            ("rfc4787#REQ-4", Fail),
            ("rfc7857#section-9-parity", NotApplicable),
            ("rfc6056#section-4-parity", NotApplicable),
            ("rfc6146#section-3.5.1.1-parity", Fail),
        ],
    );
}

#[test]
fn arbitrary_pooling() {
    changes(
        "[nat]\npooling = \"arbitrary\"\n",
        &[
            ("rfc4787#REQ-2", Fail),
            ("rfc7857#section-4-tcp", Fail),
            ("rfc6888#REQ-2", Fail),
            ("rfc6146#section-3.5.1.1-address", Fail),
            ("rfc6146#section-3.5.2.3-address", Fail),
        ],
    );
}

#[test]
fn preserved_ports() {
    changes(
        "[nat]\nallocation = \"preserve\"\n",
        &[
            ("rfc7857#section-9", NotApplicable),
            ("rfc7857#section-9-preserve", Pass),
            ("rfc7857#section-12", Pass),
            ("rfc6888#REQ-15", Fail),
            ("rfc6056#section-4-obfuscate", NotApplicable),
            ("rfc6056#section-4-preserve", Pass),
        ],
    );
}

#[test]
fn preserved_ports_without_hold_down() {
    changes(
        "[nat]\nallocation = \"preserve\"\n[timeouts]\nhold_down = \"1s\"\n",
        &[
            ("rfc7857#section-9", NotApplicable),
            ("rfc7857#section-9-preserve", Pass),
            ("rfc7857#section-12", Pass),
            ("rfc6888#REQ-8", Fail),
            ("rfc6888#REQ-15", Fail),
            ("rfc6056#section-4-obfuscate", NotApplicable),
            ("rfc6056#section-4-preserve", Pass),
        ],
    );
}

#[test]
fn no_inbound_refresh() {
    changes("[nat]\ninbound_refresh = false\n", &[("rfc4787#REQ-6a", NotApplicable)]);
}

#[test]
fn short_timers() {
    changes(
        "[timeouts]\nudp = \"30s\"\nicmp = \"10s\"\n\
         tcp_established = \"1h\"\ntcp_opening = \"20s\"\ntcp_closing = \"20s\"\n",
        &[
            ("rfc4787#REQ-5", Fail),
            ("rfc4787#REQ-5c", Fail),
            ("rfc5382#REQ-5", Fail),
            ("rfc5382#REQ-5-transitory", Fail),
            ("rfc5508#REQ-2", Fail),
            ("rfc5597#REQ-5", Fail),
            ("rfc5597#REQ-5-transitory", Fail),
            ("rfc7857#section-2.1-default", Fail),
            ("rfc7857#section-2.2-wait", Fail),
            ("rfc6146#section-3.5.1-least", Fail),
            ("rfc6146#section-3.5.1-default", Fail),
            ("rfc6146#section-3.5.2-least", Fail),
            ("rfc6146#section-3.5.2-default", Fail),
        ],
    );
}

#[test]
fn small_limits_are_met_and_change_nothing() {
    changes(
        "[limits]\nports_per_subscriber = { tcp = 400, udp = 600, icmp = 50 }\n\
         fragment_memory = \"64KiB\"\n",
        &[],
    );
}

#[test]
fn mid_stream_pickup() {
    changes("[nat]\ntcp_pickup = true\n", &[("rfc6146#section-3.5.2-closed", Pass)]);
}

#[test]
fn silent() {
    changes(
        "[nat]\nunsolicited_syn = \"silent\"\nrefusal = \"silent\"\n",
        &[
            ("rfc5382#REQ-4-answer", Fail),
            ("rfc5508#REQ-8", Fail),
            ("rfc5597#REQ-4-answer", Fail),
            ("rfc6888#REQ-11b", Fail),
        ],
    );
}

/// The hosts find room around the gateway of each packaged configuration, or the error names static
/// mappings as the obstacle.
#[test]
fn packaged_configurations_have_room_for_the_hosts_or_say_why_not() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/examples");
    let mut seen = 0;
    for entry in std::fs::read_dir(folder).expect("examples").flatten() {
        let name = entry.path().display().to_string();
        let text = std::fs::read_to_string(entry.path()).expect("a readable file");
        let mut settings = natgate_control::config::parse(&text, &name)
            .unwrap_or_else(|problems| panic!("{name}: {problems:?}"));
        match surround(&mut settings) {
            Ok(_) => seen += 1,
            Err(error) => {
                let is_told = error.to_string().contains("that no [[static]] names");
                assert!(is_told && !settings.engine.statics.is_empty(), "{name}: {error}");
            }
        }
    }
    assert!(seen >= 2, "{seen}");
}
