//! `[metrics]` and `[snmp]`: what they are read as, and what is said of mistakes.

use natgate_control::config::{Problem, read_text};
use natgate_gateway::{Master, MetricsPlace, MonitoringSettings, SnmpSettings};

const REST: &str = "[inside]\ndevice = \"eth1\"\n[outside]\ndevice = \"eth0\"\n\
    [[pool]]\naddresses = [\"203.0.113.1\"]\n";

fn read(text: &str) -> Result<(MonitoringSettings, Vec<Problem>), String> {
    match read_text(&format!("{text}\n{REST}"), "test.toml") {
        Ok(read) => Ok((read.settings.monitoring, read.warnings)),
        Err(problems) => {
            Err(problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))
        }
    }
}

fn good(text: &str) -> MonitoringSettings {
    let (settings, warnings) = read(text).expect("it is right");
    assert!(warnings.is_empty(), "{warnings:?}");
    settings
}

#[test]
fn metrics_are_at_their_usual_place_elsewhere_or_nowhere() {
    assert_eq!(good("").metrics, MetricsPlace::Usual);
    assert_eq!(good("[metrics]").metrics, MetricsPlace::Usual);
    let there = MetricsPlace::At("127.0.0.1:9000".parse().expect("an address"));
    assert_eq!(good("[metrics]\nlisten = \"127.0.0.1:9000\"").metrics, there);
    let there = MetricsPlace::At("[::1]:9000".parse().expect("an address"));
    assert_eq!(good("[metrics]\nlisten = \"[::1]:9000\"").metrics, there);
    assert_eq!(good("[metrics]\nlisten = \"off\"").metrics, MetricsPlace::Nowhere);
}

#[test]
fn metrics_have_names_where_they_are_served() {
    let names = good("[metrics]\nnames = [\"nat1.example.net\"]").metrics_names;
    assert_eq!(names, ["nat1.example.net"]);
    let wrong = read("[metrics]\nnames = [\"a b\"]").expect_err("it is no name");
    assert!(wrong.contains("metrics.names") && wrong.contains("is no host name"), "{wrong}");
    let idle = "[metrics]\nlisten = \"off\"\nnames = [\"nat1\"]";
    let wrong = read(idle).expect_err("nobody is served");
    assert!(wrong.contains("metrics.names") && wrong.contains("without effect"), "{wrong}");
}

#[test]
fn metrics_for_everybody_are_warned_of() {
    let (_, warnings) = read("[metrics]\nlisten = \"0.0.0.0:9464\"").expect("it is right");
    let [warning] = &warnings[..] else { panic!("{warnings:?}") };
    let text = warning.to_string();
    assert!(text.contains("metrics.listen") && text.contains("firewall"), "{text}");
}

#[test]
fn an_snmp_agent_is_asked_for_by_its_table() {
    assert_eq!(good("").snmp, None);
    let usual = SnmpSettings {
        master: Master::Unix("/var/agentx/master".into()),
        mappings_threshold: Some(90),
        subscribers_threshold: Some(90),
        pools_low_threshold: None,
        interval: 60,
        subscribers: false,
    };
    assert_eq!(good("[snmp]").snmp, Some(usual));
    let other = SnmpSettings {
        master: Master::Tcp("127.0.0.1:705".parse().expect("an address")),
        mappings_threshold: None,
        subscribers_threshold: None,
        pools_low_threshold: Some(10),
        interval: 3600,
        subscribers: true,
    };
    let text = "[snmp]\nagentx = \"127.0.0.1:705\"\nmappings_threshold = 0\ninterval = 3600\n\
                subscribers = true\nsubscribers_threshold = 0\npools_low_threshold = 10";
    assert_eq!(good(text).snmp, Some(other));
}

#[test]
fn mistakes_are_told_with_what_would_be_right() {
    let long = format!("[snmp]\nagentx = \"/{}\"", "a".repeat(96));
    for (text, expected) in [
        ("[metrics]\nlisten = \"9464\"", "\"9464\" is no address with a port; write one such as"),
        ("[metrics]\nlisten = \"\"", "\"\" is no address with a port"),
        ("[metrics]\nlisten = \"localhost:9464\"", "is no address with a port"),
        ("[metrics]\nlisten = \"127.0.0.1:0\"", "has no port that one could go to"),
        ("[metrics]\nlisten = 9464", "it must be an address and a port in quotes, or \"off\""),
        ("[metrics]\nlisten = false", "is true or false; it must be an address and a port"),
        ("[metrics]\nlissen = \"off\"", "did you mean `listen`?"),
        ("[metrics]\nagentx = \"/a\"", "it belongs in [snmp]"),
        ("[snmp]\nagentx = \"master\"", "is no address with a port; write an absolute path"),
        ("[snmp]\nagentx = \"/a\\u0000b\"", "has control characters"),
        (&long, "is too long for a socket"),
        ("[snmp]\nmappings_threshold = 101", "it must be from 0 to 100"),
        ("[snmp]\nsubscribers_threshold = -1", "it must be from 0 to 100"),
        ("[snmp]\npools_low_threshold = 256", "it must be from 0 to 100"),
        ("[snmp]\nsubscribers = \"yes\"", "it must be true or false"),
        ("[snmp]\ninterval = 0", "it must be from 1 to 3600"),
        ("[snmp]\ninterval = \"20s\"", "it must be an integer from 1 to 3600"),
    ] {
        let said = read(text).expect_err(text);
        assert!(said.contains(expected), "{text}: {said}");
        assert!(said.starts_with("test.toml:2:"), "{said}");
    }
}
