//! `[alg]`: what is read, and what only a restart changes.

mod common;

use common::{HEAD, texts};
use natgate_control::config::{parse, reread};
use natgate_gateway::{AlgKind, AlgSettings, Settings};
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
fn a_protocol_has_its_usual_port_or_the_ports_of_its_table() {
    let settings = read(
        "[alg]\nftp = true\ntftp = {}\nsip = { ports = [5060, 5062] }\nrtsp = false\n\
         irc = { ports = [6697] }\n",
    );
    let mut expected = AlgSettings::default();
    expected.set(AlgKind::Ftp, vec![21]);
    expected.set(AlgKind::Tftp, vec![69]);
    expected.set(AlgKind::Sip, vec![5060, 5062]);
    expected.set(AlgKind::Irc, vec![6697]);
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
