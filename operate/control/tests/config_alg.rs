//! `[alg]`: what is read, and what only a restart changes.

mod common;

use common::{HEAD, texts};
use natgate_control::config::{parse, read_text, reread};
use natgate_control::meaning::Meaning;
use natgate_gateway::{AlgKind, AlgSettings, RuleAlgs, Settings};
use std::path::Path;

fn read(more: &str) -> Settings {
    parse(&format!("{HEAD}{more}"), "t").expect("it is right")
}

#[test]
fn no_protocol_is_on_unless_the_file_says_so() {
    for silent in ["", "[alg]\n", "[alg]\nftp = false\n"] {
        let settings = read(silent);
        assert!(settings.alg.is_off());
        assert_eq!(settings.engine.limits.explicit_mappings, 0);
    }
}

#[test]
fn the_meaning_names_the_protocols_that_are_on() {
    let meaning = |more: &str| Meaning::of(read_text(&format!("{HEAD}{more}"), "t").unwrap());
    let off = meaning("");
    assert!(off.algs.is_empty() && off.to_string().contains("nothing that packets carry"));
    let on = meaning("[alg]\nftp = true\nsip = { ports = [5060, 5062] }\n");
    let named: Vec<(&str, &[u16])> =
        on.algs.iter().map(|one| (one.protocol, &one.ports[..])).collect();
    assert_eq!(named, [("ftp", &[21][..]), ("sip", &[5060, 5062])]);
    assert!(on.to_string().contains("  sip: servers at ports 5060, 5062\n"));
}

#[test]
fn a_protocol_has_its_usual_port_or_the_ports_of_its_table() {
    let settings = read(
        "[alg]\nftp = true\ntftp = {}\nsip = { ports = [5060, 5062] }\nrtsp = false\n\
         irc = { ports = [6697] }\ndns = true\npptp = true\nh323 = true\n",
    );
    let mut expected = AlgSettings::default();
    expected.set(AlgKind::Ftp, vec![21]);
    expected.set(AlgKind::Tftp, vec![69]);
    expected.set(AlgKind::Sip, vec![5060, 5062]);
    expected.set(AlgKind::Irc, vec![6697]);
    expected.set(AlgKind::Dns, vec![53]);
    expected.set(AlgKind::Pptp, vec![1723]);
    expected.set(AlgKind::H323, vec![1720, 1719]);
    assert_eq!(settings.alg, expected);
    assert_eq!(settings.engine.limits.explicit_mappings, 65_536);
    // TFTP is over UDP, FTP over TCP.
    read("[alg]\nftp = { ports = [69] }\ntftp = true\n");
}

#[test]
fn expectations_have_the_room_of_requested_mappings() {
    let settings = read("[pcp]\nenabled = true\nmappings = 100\n[alg]\nftp = true\n");
    assert_eq!(settings.engine.limits.explicit_mappings, 100);
}

#[test]
fn a_reload_changes_gateways() {
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join("alg.toml");
    let changed = |before: &str, after: &str| {
        std::fs::write(&file, format!("{HEAD}{after}")).expect("a file that can be written");
        texts(&reread(&file, &read(before)).err().unwrap_or_default())
    };
    let restart = "changes only at a restart; write what was there, or restart natgate";
    let ftp = "[alg]\nftp = true\n";
    let other = "[alg]\nsip = { ports = [5060, 21] }\n";
    for (before, after) in [("", ftp), (ftp, ""), (ftp, other), (other, ftp)] {
        assert_eq!(changed(before, after), [""; 0], "{before} -> {after}");
    }
    let more = format!("{ftp}flows = 100\n");
    assert_eq!(changed(ftp, &more), [format!("9:9 alg.flows: {restart}")]);
    for (before, after) in [("", &*more), (&*more, "")] {
        assert_eq!(changed(before, after), [""; 0], "{before} -> {after}");
    }
    let pcp = "[pcp]\nenabled = true\n";
    let both = format!("{ftp}{pcp}");
    assert_eq!(changed(ftp, &both), [format!("10:11 pcp.enabled: {restart}")]);
    assert_eq!(changed(pcp, &both), [""; 0]);
    assert_eq!(changed(&both, ftp), [""; 0]);
    // The room for requested mappings does not grow.
    let few = format!("{pcp}mappings = 100\n");
    assert_eq!(changed(&few, &format!("{few}{ftp}")), [""; 0]);
    assert_eq!(changed(&few, ftp), [format!("1:1 pcp.mappings: {restart}")]);
}

const RULE: &str = "[[rule]]\nkind = \"snat\"\nmatch = { source = \"10.1.0.0/16\" }\n\
                    pool = \"default\"\n";

#[test]
fn a_rule_names_the_gateways_of_its_flows() {
    let mark = |rule: &str| read(&format!("[alg]\nftp = true\nsip = true\n{RULE}{rule}"));
    let mark = |rule: &str| mark(rule).engine.rules[0].mark;
    assert_eq!(RuleAlgs::of_mark(mark("")), None);
    assert_eq!(mark("alg = []\n"), RuleAlgs::of([]).mark());
    let both = RuleAlgs::of_mark(mark("alg = [\"sip\", \"ftp\"]\n")).expect("it names two");
    assert_eq!(both.names().collect::<Vec<_>>(), ["ftp", "sip"]);
    assert!(both.has(AlgKind::Ftp) && !both.has(AlgKind::Tftp));
}

#[test]
fn a_rule_names_only_gateways_that_are_on() {
    let other = RULE.replace("snat", "bypass").replace("pool = \"default\"\n", "");
    for (rule, says) in [
        (
            format!("{RULE}alg = [\"ftp\", \"sip\"]\n"),
            "rule[0].alg[1]: \"sip\" is off; write sip = true in [alg], or take it out",
        ),
        (format!("{RULE}alg = [\"pptp\"]\n"), "rule[0].alg[0]: "),
        (
            format!("{RULE}alg = [\"ftp\", \"ftp\"]\n"),
            "rule[0].alg[1]: \"ftp\" is there more than once; take it out",
        ),
        (
            format!("{RULE}alg = \"ftp\"\n"),
            "rule[0].alg: is a string; it must be an array of protocols",
        ),
        (
            format!("{other}alg = []\n"),
            "rule[0].alg: has no effect here; only a rule of kind \"snat\" has it",
        ),
    ] {
        let text = format!("{HEAD}[alg]\nftp = true\n{rule}");
        let faults = parse(&text, "t").err().unwrap_or_default();
        assert!(faults.len() == 1 && faults[0].contains(says), "{rule}: {faults:?}");
    }
}

#[test]
fn a_reload_changes_gateways_of_rules() {
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join("alg-rule.toml");
    let text = |rule: &str| format!("{HEAD}[alg]\nftp = true\n{RULE}{rule}");
    std::fs::write(&file, text("alg = []\n")).expect("a file that can be written");
    let before = parse(&text(""), "t").expect("it is right");
    let after = reread(&file, &before).expect("a reload may change it");
    assert_eq!(after.settings.engine.rules[0].mark, RuleAlgs::of([]).mark());
}
