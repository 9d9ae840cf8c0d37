//! `natgate import` from the user's view, with files of six programs and with the real output of
//! nftables and iptables. Needs root, util-linux, nftables and iptables, and fails without them.

use serde_json::Value;
use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

const PROGRAM: &str = env!("CARGO_BIN_EXE_natgate");
const FILES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../operate/import/tests/files");

fn import(arguments: &[&str], input: &str) -> Output {
    let mut command = Command::new(PROGRAM);
    command.arg("import").args(arguments);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("the program runs");
    // A program that does not read standard input closes it.
    let _ = child.stdin.take().expect("it is piped").write_all(input.as_bytes());
    child.wait_with_output().expect("the program ends")
}

fn object(arguments: &[&str], input: &str) -> Value {
    let output = import(&[&["--json"], arguments].concat(), input);
    serde_json::from_slice(&output.stdout).expect("JSON")
}

fn errors(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).expect("text")
}

/// Checks a configuration with `natgate check`.
fn check(config: &str) {
    let path = std::env::temp_dir().join(format!(
        "natgate-import-{}-{:p}.toml",
        std::process::id(),
        config
    ));
    fs::write(&path, config).expect("it can be written");
    let output = Command::new(PROGRAM).arg("check").arg(&path).output().expect("the program runs");
    let _ = fs::remove_file(&path);
    assert!(output.status.success(), "{}{config}", errors(&output));
}

#[test]
fn what_comes_of_every_file_is_accepted_and_nothing_is_passed_over() {
    let files: Vec<PathBuf> =
        fs::read_dir(FILES).expect("there are some").flatten().map(|entry| entry.path()).collect();
    assert!(files.len() >= 7);
    for file in files {
        let name = file.to_str().expect("text");
        let seen = object(&[name], "");
        assert_eq!(seen["accepted"], true, "{name}: {}", seen["errors"]);
        let config = seen["config"].as_str().expect("text");
        // A file of bindings must be there for the check.
        let folder = std::env::temp_dir().join(format!("natgate-import-b-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("it can be made");
        let csv = folder.join("bindings.csv");
        fs::write(&csv, seen["bindings"].as_str().unwrap_or_default()).expect("it can be written");
        check(&config.replace("\"bindings.csv\"", &format!("{csv:?}")));
        fs::remove_dir_all(&folder).expect("it is ours");
        let remarks = seen["remarks"].as_array().expect("a list");
        assert!(!remarks.is_empty(), "{name}");
        // Each rule of the file appears as a comment of the configuration, or in a remark.
        let text = fs::read_to_string(&file).expect("it is there");
        let rules = text.lines().enumerate().filter(|(_, line)| {
            line.contains("-j ")
                || line.starts_with("nat44 add")
                || line.contains("snat to")
                || line.starts_with("map add")
                || line.starts_with("dslite")
        });
        for (number, line) in rules {
            // A domain of single customers has its address in each of their bindings or maps.
            let customers = format!("{config},{}", seen["bindings"]);
            let mut words = line.split([' ', '/']).filter(|word| word.len() > 6);
            let adds = line.starts_with("map add") || line.starts_with("dslite add");
            let is_binding = adds && words.any(|word| customers.contains(word));
            let said = is_binding
                || remarks.iter().any(|remark| remark["line"] == number + 1)
                || config.contains(&format!("# line {}: ", number + 1))
                || line.contains("TCPMSS")
                || line.contains("-j forwards")
                || line.contains("MASQUERADE")
                || line.contains("100.64.0.200")
                || line.contains("100.64.0.0/18")
                || line.contains("nat44 add address 203.0.113.64");
            assert!(said, "{name}:{}: {line}", number + 1);
        }
    }
}

#[test]
fn exit_codes_and_sentences() {
    let code = |arguments: &[&str], input: &str| {
        let output = import(arguments, input);
        (output.status.code().expect("a code"), errors(&output))
    };
    let good =
        "*nat\n-A POSTROUTING -s 10.0.0.0/8 -o eth0 -j SNAT --to-source 203.0.113.1\nCOMMIT\n";
    assert_eq!(code(&["-"], good), (0, String::new()));
    let lossy = good.replace("COMMIT", "-A POSTROUTING -m mark --mark 1 -j MASQUERADE\nCOMMIT");
    let (done, said) = code(&["-"], &lossy);
    assert_eq!(done, 1);
    assert!(said.starts_with("-:3: lost: `-A POSTROUTING -m mark"), "{said}");
    assert!(
        said.contains("1 line is lost on which it depends which hosts are translated"),
        "{said}"
    );
    let losses = object(&["-"], &lossy);
    assert_eq!(
        (&losses["accepted"], &losses["remarks"][0]["grade"]),
        (&true.into(), &"lost".into())
    );
    let lossy = good.replace("COMMIT", "-A OUTPUT -j ACCEPT\nCOMMIT");
    let (done, said) = code(&["-"], &lossy);
    assert!(done == 0 && said.starts_with("-:3: no equivalent: `-A OUTPUT"), "{done}: {said}");
    let (strict, said) = code(&["-", "--strict"], &lossy);
    assert!(
        strict == 1 && said.contains("1 lines have no equivalent, and --strict is given"),
        "{said}"
    );
    let (unknown, said) = code(&["-"], "hello\n");
    assert!(
        unknown == 2
            && said
                .contains("say with --from whether it is iptables, nft, vpp, jool, tayga or snabb"),
        "{said}"
    );
    let (malformed, said) = code(&["-", "--from", "iptables"], "*nat\nhello\n");
    assert!(
        malformed == 2 && said.starts_with("natgate: -:2: is no line of iptables-save"),
        "{said}"
    );
    let (absent, said) = code(&["/nonexistent"], "");
    assert!(
        absent == 2
            && said.contains("/nonexistent: there is no such file; `-` reads standard input"),
        "{said}"
    );
    let (external, said) = code(&["-", "--external", "10.0.0.0/33"], good);
    assert!(
        external == 2 && said.contains("--external: \"10.0.0.0/33\" is no external address"),
        "{said}"
    );
    let path = std::env::temp_dir().join(format!("natgate-import-bytes-{}", std::process::id()));
    let name = path.to_str().expect("text");
    fs::write(&path, b"nat44 add address \xff\n").expect("it can be written");
    let (bytes, said) = code(&[name], "");
    assert!(bytes == 2 && said.contains("is no text (UTF-8)"), "{said}");
    // A file that is much too long is not read.
    fs::File::create(&path).and_then(|file| file.set_len(1 << 40)).expect("a file with a hole");
    let (long, said) = code(&[name], "");
    assert!(long == 2 && said.contains("has more than 64 MiB; is it the right file?"), "{said}");
    fs::remove_file(&path).expect("it is ours");
}

#[test]
fn bindings_are_a_file_beside_the_configuration() {
    let folder = std::env::temp_dir().join(format!("natgate-import-lw-{}", std::process::id()));
    fs::create_dir_all(&folder).expect("it can be made");
    let input = "softwire-config { internal-interface { ip 2001:db8::2; } binding-table { \
                 softwire { ipv4 203.0.113.7; psid 0; b4-ipv6 2001:db8:b4::1; \
                 br-address 2001:db8::2; port-set { psid-length 0; } } } }";
    let config = folder.join("natgate.toml");
    let csv = folder.join("bindings.csv");
    let out = config.to_str().expect("text");
    // Standard output has no place for a second file.
    let nowhere = import(&["-"], input);
    assert_eq!(nowhere.status.code(), Some(2));
    assert!(errors(&nowhere).contains("give its name with --bindings"), "{}", errors(&nowhere));
    let given = import(&["-", "-o", out, "--inside", "eth1", "--outside", "eth0"], input);
    assert_eq!(given.status.code(), Some(0), "{}", errors(&given));
    let text = fs::read_to_string(&csv).expect("it is there");
    assert!(text.ends_with("203.0.113.7,0,0,0,2001:db8:b4::1\n"), "{text}");
    let checked = Command::new(PROGRAM).args(["check", out]).output().expect("the program runs");
    assert!(checked.status.success(), "{}", errors(&checked));
    // A file that is there is left alone, and nothing stays behind.
    fs::remove_file(&csv).expect("it is ours");
    let again = import(&["-", "-o", out], input);
    assert!(errors(&again).contains("natgate.toml exists already"), "{}", errors(&again));
    assert!(!csv.exists());
    let named = folder.join("customers.csv");
    let said = import(&["-", "--bindings", named.to_str().expect("text")], input);
    let said = String::from_utf8(said.stdout).expect("text");
    assert!(said.contains(&format!("bindings = {named:?}")), "{said}");
    fs::remove_dir_all(&folder).expect("it is ours");
}

#[test]
fn a_file_that_is_there_is_left_alone() {
    let path = std::env::temp_dir().join(format!("natgate-import-there-{}", std::process::id()));
    fs::write(&path, "mine").expect("it can be written");
    let good = "*nat\n-A POSTROUTING -o eth0 -j SNAT --to-source 203.0.113.1\n";
    let output = import(&["-", "-o", path.to_str().expect("text")], good);
    assert_eq!(output.status.code(), Some(1));
    assert!(errors(&output).contains("exists already; choose another name"), "{}", errors(&output));
    assert_eq!(fs::read_to_string(&path).expect("it is there"), "mine");
    fs::remove_file(&path).expect("it is ours");
    let output = import(&["-", "-o", path.to_str().expect("text")], good);
    assert!(output.status.success() && output.stdout.is_empty());
    check(&fs::read_to_string(&path).expect("it is there"));
    fs::remove_file(&path).expect("it is ours");
}

/// Output of a script in a network namespace of its own.
fn printed(script: &str) -> String {
    let output = Command::new("unshare")
        .args(["--net", "sh", "-ec", script])
        .output()
        .expect("unshare runs");
    assert!(output.status.success(), "{}: run `make test`", errors(&output));
    String::from_utf8(output.stdout).expect("text")
}

#[test]
fn what_nftables_really_prints_is_read_as_text_and_as_json() {
    for name in ["ruleset.nft", "maps.nft"] {
        nftables_prints(name);
    }
}

fn nftables_prints(name: &str) {
    let load = format!("nft -f {FILES}/{name}");
    let text = printed(&format!("{load}; nft list ruleset"));
    let json = printed(&format!("{load}; nft -j list ruleset"));
    let [from_text, from_json] = [&text, &json].map(|input| object(&["-"], input));
    for seen in [&from_text, &from_json] {
        assert_eq!(seen["accepted"], true, "{}", seen["errors"]);
        check(seen["config"].as_str().expect("text"));
    }
    let entries = |seen: &Value| -> Vec<String> {
        let config = seen["config"].as_str().expect("text");
        let lines = config.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
        let mut lines: Vec<String> = lines.map(str::to_owned).collect();
        lines.sort();
        lines
    };
    assert_eq!(entries(&from_text), entries(&from_json));
    // The result equals that of the loaded file.
    let file = object(&[&format!("{FILES}/{name}")], "");
    assert_eq!(entries(&from_text), entries(&file));
    let count = |seen: &Value| seen["remarks"].as_array().map(Vec::len);
    assert_eq!(count(&from_text), count(&file));
}

#[test]
fn what_iptables_really_prints_is_read() {
    for file in ["home.iptables", "isp.iptables"] {
        let path = format!("{FILES}/{file}");
        for variant in ["iptables-nft", "iptables-legacy"] {
            let saved = printed(&format!("{variant}-restore <{path}; {variant}-save"));
            let seen = object(&["-"], &saved);
            assert_eq!(seen["accepted"], true, "{variant}: {}", seen["errors"]);
            let own = object(&[&path], "");
            let strip = |seen: &Value| -> Vec<String> {
                let config = seen["config"].as_str().expect("text");
                config.lines().filter(|line| !line.starts_with('#')).map(str::to_owned).collect()
            };
            assert_eq!(strip(&seen), strip(&own), "{variant} {file}");
        }
    }
}
