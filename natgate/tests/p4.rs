//! `natgate p4` from the user's view.

use serde_json::Value;
use std::fs;
use std::process::{Command, Output};

const NAT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../p4/nat.p4");

fn p4(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_natgate"));
    command.arg("p4").args(arguments).output().expect("the program runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("text")
}

#[test]
fn the_nat_is_compiled_and_shown() {
    let output = p4(&["compile", NAT]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(text(&output.stdout).contains(": 9 tables, "), "{}", text(&output.stdout));
    let object: Value =
        serde_json::from_slice(&p4(&["compile", "--json", NAT]).stdout).expect("JSON");
    assert_eq!((&object["ok"], &object["tables"]), (&true.into(), &9.into()));
    let shown = |stage| text(&p4(&["dump", "--stage", stage, NAT]).stdout);
    assert!(shown("tokens").contains(" `control`\n"));
    assert!(shown("ast").contains("     action learn()\n"));
    assert!(shown("ir").contains("\ntable NatMain.upload of 1048576 entries {\n"));
    let rust = include_str!("../../p4/compiler/src/programs/nat.rs");
    assert!(
        shown("rust") == rust,
        "NATGATE_BLESS=1 cargo test -p natgate-p4 --test golden writes the file anew"
    );
    assert!(text(&p4(&["compile", "--emit", "rust", NAT]).stdout) == rust);
    let spec = include_str!("../../p4/compiler/tests/golden/nat.spec");
    assert!(shown("spec") == spec);
    assert!(text(&p4(&["compile", "--emit", "spec", NAT]).stdout) == spec);
}

#[test]
fn what_cannot_be_run_is_said_with_what_to_do() {
    let small = concat!(env!("CARGO_MANIFEST_DIR"), "/../p4/examples/programs/small.p4");
    let devices = ["--inside", "nowhere0", "--outside", "nowhere1"];
    let run = |more: &[&str]| {
        let output = p4(&[&["run"], more, &devices].concat());
        (output.status.code(), text(&output.stderr))
    };
    let (code, said) = run(&["--with", "rust", small]);
    assert_eq!(code, Some(2));
    assert!(
        said.contains("is not among the programs compiled with this natgate (nat, nat64): "),
        "{said}"
    );
    // With DPDK the program is executed, so the devices must exist.
    let (code, said) = run(&["--with", "swx", NAT]);
    assert_eq!(code, Some(1));
    let expected = if cfg!(feature = "dpdk") { "nowhere0" } else { "--features dpdk" };
    assert!(said.contains(expected), "{said}");
    let every = concat!(env!("CARGO_MANIFEST_DIR"), "/../p4/examples/programs/every.p4");
    let output = p4(&["compile", "--emit", "spec", every]);
    assert_eq!(output.status.code(), Some(2));
    let said = text(&output.stderr);
    assert!(
        said.contains("every.p4:") && said.contains("has no header fields of bit<128>"),
        "{said}"
    );
    let (code, said) = run(&["--entry", "routes 10.0.0.0/33 via 1,1", NAT]);
    assert_eq!(code, Some(2));
    let sentence = "hdr.ipv4.destination: a prefix is from 0 to 32 bits long";
    assert!(said.contains(sentence), "{said}");
    for workers in ["0", "65"] {
        let (code, said) = run(&["--workers", workers, NAT]);
        assert_eq!(code, Some(2));
        assert!(said.contains(&format!("invalid value '{workers}' for '--workers <N>'")), "{said}");
    }
    let (code, said) = run(&[NAT]);
    assert_eq!(code, Some(1));
    assert!(said.contains("nowhere0"), "{said}");
}

#[test]
fn what_is_wrong_is_said_with_its_place() {
    let file = std::env::temp_dir().join(format!("natgate-p4-{}.p4", std::process::id()));
    let name = file.to_str().expect("a name");
    fs::write(&file, "const bit<8> X = 256;\n").expect("it can be written");
    let output = p4(&["compile", "--json", name]);
    let dumped = p4(&["dump", name]);
    let _ = fs::remove_file(&file);
    let missing = p4(&["compile", name]);
    for output in [&output, &dumped, &missing] {
        assert_eq!(output.status.code(), Some(2));
    }
    let sentence = ":1:18: 256 does not fit bit<8>; cast it, or widen the type\n";
    assert!(text(&output.stderr).ends_with(sentence), "{}", text(&output.stderr));
    assert!(text(&dumped.stderr).ends_with(sentence), "{}", text(&dumped.stderr));
    let object: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!((&object["ok"], &object["errors"][0]["column"]), (&false.into(), &18.into()));
}

#[test]
fn controllers_get_to_know_the_program() {
    let folder = std::env::temp_dir().join(format!("natgate-p4info-{}", std::process::id()));
    fs::create_dir_all(&folder).expect("a folder");
    let name = |file: &str| folder.join(file).to_str().expect("a name").to_owned();
    for (file, expected) in [
        ("nat.txtpb", &b"pkg_info {\n  arch: \"pna\"\n}\n"[..]),
        ("nat.bin", b"\x0a\x05\x2a\x03pna"),
    ] {
        let output = p4(&["compile", "--p4info", &name(file), NAT]);
        assert!(output.status.success(), "{}", text(&output.stderr));
        let written = fs::read(name(file)).expect("it is written");
        assert!(written.starts_with(expected), "{file}");
    }
    let nowhere = p4(&["compile", "--p4info", &name("no/such/folder"), NAT]);
    let _ = fs::remove_dir_all(&folder);
    assert_eq!(nowhere.status.code(), Some(1));
}

#[test]
fn entries_are_checked_against_the_program() {
    let entries = concat!(env!("CARGO_MANIFEST_DIR"), "/../p4/nat.toml");
    let output = p4(&["compile", "--entries", entries, NAT]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let file = std::env::temp_dir().join(format!("natgate-entries-{}.toml", std::process::id()));
    fs::write(&file, "[[entry]]\ntable = \"nothing\"\n").expect("it can be written");
    let file_name = file.to_str().expect("a name");
    let nowhere = ["--inside", "nothing0", "--outside", "nothing1"];
    let run = [&["run", NAT, "--entries", file_name][..], &nowhere].concat();
    let outputs = [p4(&["compile", "--entries", file_name, NAT]), p4(&run)];
    let _ = fs::remove_file(&file);
    for output in outputs {
        assert_eq!(output.status.code(), Some(2));
        let said = text(&output.stderr);
        assert!(said.contains(".toml:2:9: there is no one table `nothing`; "), "{said}");
    }
}
