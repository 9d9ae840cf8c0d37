//! `natgate bench`, `conform` and `demo` start the laboratory's program.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;

/// A folder with a copy of natgate, and with a script as the laboratory's program if one is given.
fn folder(name: &str, script: Option<&str>) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("laboratory-{name}"));
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).expect("a folder");
    let program = env!("CARGO_BIN_EXE_natgate");
    std::fs::hard_link(program, folder.join("natgate")).expect("a second name");
    if let Some(script) = script {
        let path = folder.join("natgate-lab");
        std::fs::write(&path, script).expect("a script");
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).expect("it is ours");
    }
    folder
}

#[test]
fn arguments_and_exit_code_pass_unchanged() {
    let script = "#!/bin/sh\nprintf '%s\\n' \"$@\"; exit 7\n";
    let folder = folder("arguments", Some(script));
    for command in ["bench", "conform", "demo"] {
        let mut natgate = Command::new(folder.join("natgate"));
        let output = natgate.args([command, "--help", "-c", "a b", "--", "x"]).output().unwrap();
        assert_eq!(output.status.code(), Some(7));
        let said = String::from_utf8_lossy(&output.stdout);
        assert_eq!(said, format!("{command}\n--help\n-c\na b\n--\nx\n"));
    }
}

#[test]
fn a_missing_laboratory_is_one_sentence() {
    let mut natgate = Command::new(folder("missing", None).join("natgate"));
    let output = natgate.args(["bench", "engine"]).env("PATH", "/nonexistent").output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8_lossy(&output.stderr);
    let wanted = "natgate: the program natgate-lab is not installed; make build makes it, and the \
        Debian package natgate-lab has it\n";
    assert_eq!(said, wanted);
}
