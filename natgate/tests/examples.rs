//! Every configuration in the repository, given to every command that reads one.
//!
//! A command must not panic on a configuration that `check` accepts. The configurations are the
//! packaged ones, those of documents, and those of other crates' tests.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Parts that every file needs, and the begin of each.
const PARTS: [(&str, &str); 3] = [
    ("[inside]", "[inside]\ndevice = \"eth1\"\n"),
    ("[outside]", "[outside]\ndevice = \"eth0\"\n"),
    ("[[pool]]", "[[pool]]\naddresses = [\"203.0.113.1\"]\n"),
];

/// Tables whose customers send by IPv6.
const BY_IPV6: [&str; 3] = ["[dslite]", "[lw4o6]", "[[map]]"];

/// A realm with a device of its own, beside the inside.
const REALM: &str = r#"
[[realm]]
name = "example"
device = "example0"
address = "10.0.0.1/8"
"#;

/// An external endpoint that most examples have.
const EXTERNAL: &str = "203.0.113.1:2000";

/// A configuration and its origin.
struct Example {
    origin: String,
    text: String,
    /// True if the test has added parts.
    is_changed: bool,
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Files of a folder whose names end with `ending`.
fn files(folder: &str, ending: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(root().join(folder)).expect("the folder is there");
    let paths = entries.map(|entry| entry.expect("a readable folder").path());
    let mut files: Vec<PathBuf> =
        paths.filter(|path| path.to_string_lossy().ends_with(ending)).collect();
    assert!(!files.is_empty(), "{folder} has files *{ending}");
    files.sort();
    files
}

fn whole(path: &Path) -> Example {
    Example { origin: path.display().to_string(), text: read(path), is_changed: false }
}

/// Configurations of a document, each with its missing parts added.
fn in_document(path: &Path) -> Vec<Example> {
    let mut examples = Vec::new();
    for (number, rest) in read(path).split("```toml").skip(1).enumerate() {
        let (_, block) = rest.split_once('\n').expect("a block begins");
        let mut text = block.split_once("```").expect("a block ends").0.to_owned();
        // Such a file is whole without a pool.
        let is_whole = text.contains("[outside]") && text.contains("[[map]]");
        for (table, part) in PARTS {
            if !is_whole && !text.contains(table) {
                text.push_str(part);
            }
        }
        if BY_IPV6.iter().any(|table| text.contains(table)) && !text.contains("address6") {
            text = text.replace("[inside]\n", "[inside]\naddress6 = \"2001:db8:0:1::1/64\"\n");
        }
        let origin = format!("{}, example {}", path.display(), number + 1);
        examples.push(Example { origin, text, is_changed: false });
    }
    examples
}

fn examples() -> Vec<Example> {
    let single = [
        "packaging/natgate.toml",
        "packaging/usb/natgate.toml",
        "docs/conform/natgate.toml",
        "operate/control/tests/good.toml",
    ];
    let mut all: Vec<Example> = single.map(|name| whole(&root().join(name))).into();
    all.extend(files("packaging/examples", ".toml").iter().map(|path| whole(path)));
    let documents = files("docs", ".md").into_iter().chain([root().join("README.md")]);
    all.extend(documents.flat_map(|path| in_document(&path)));
    let with_realms = all.iter().filter(|example| !example.text.contains("[[realm]]"));
    let with_realms = with_realms.map(|example| Example {
        origin: format!("{}, with a realm", example.origin),
        text: format!("{}{REALM}", example.text),
        is_changed: true,
    });
    let with_realms: Vec<Example> = with_realms.collect();
    all.extend(with_realms);
    assert!(all.len() > 60, "only {} examples were found", all.len());
    all
}

fn natgate(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_natgate"));
    command.args(arguments).output().expect("the program can be started")
}

/// Fails if the program panicked, was killed, or gave no reason for its failure.
fn ends_well(output: &Output, what: &str, origin: &str) {
    let said = String::from_utf8_lossy(&output.stderr);
    let code = output.status.code();
    assert!(matches!(code, Some(0..=2)), "{what}, {origin}: {:?}\n{said}", output.status);
    assert!(!said.contains("panicked"), "{what}, {origin}:\n{said}");
    assert!(code == Some(0) || !said.trim().is_empty(), "{what}, {origin}: fails silently");
}

/// A capture with two interfaces and no packet.
fn empty_capture() -> Vec<u8> {
    let word = |value: u32| value.to_le_bytes();
    let section = [0x0a0d_0d0a, 28, 0x1a2b_3c4d, 0x0000_0001, u32::MAX, u32::MAX, 28];
    let interface = [1, 20, 1, 0, 20];
    section.into_iter().chain(interface).chain(interface).flat_map(word).collect()
}

#[test]
fn no_command_panics_on_a_configuration_of_ours() {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("examples");
    fs::create_dir_all(&folder).expect("the test may write its directory");
    let path = |name: &str| folder.join(name).display().to_string();
    let (config, capture) = (path("natgate.toml"), path("in.pcapng"));
    let output = path("out.pcapng");
    let bindings = "203.0.113.7,0,6,1,2001:db8:b4::1\n";
    fs::write(path("bindings.csv"), bindings).expect("the test may write its directory");
    fs::write(&capture, empty_capture()).expect("the test may write its directory");
    let packet = "udp 10.0.0.5:4000 > 192.0.2.1:53";
    let mut tried = 0;
    for Example { origin, text, is_changed } in examples() {
        fs::write(&config, &text).expect("the test may write its directory");
        let checked = natgate(&["check", &config]);
        let said = String::from_utf8_lossy(&checked.stderr).into_owned();
        // A realm cannot share every pool, and the program may lack DPDK.
        if checked.status.code() == Some(2) && (is_changed || said.contains("built without it")) {
            ends_well(&checked, "check", &origin);
            continue;
        }
        assert_eq!(checked.status.code(), Some(0), "{origin}: {said}");
        tried += 1;
        let runs = [
            vec!["check", "--json", &config],
            vec!["trace", "-c", &config, packet],
            vec!["replay", "-c", &config, "--in", &capture, "--out", &output],
            vec!["who", "-c", &config, EXTERNAL],
            vec!["conform", "-c", &config, "--quick", "--only", "rfc4787#REQ-1"],
        ];
        for arguments in &runs {
            ends_well(&natgate(arguments), arguments[0], &origin);
        }
    }
    assert!(tried > 60, "only {tried} configurations were tried");
}
