//! First steps of users: man pages, completions, the Debian package, the image, the examples, and
//! the commands of the quick starts.
//!
//! The packages are built from the program that the tests run. Needs dpkg-dev, lintian, man-db,
//! skopeo, systemd, bird2, iptables, openssl, python3 and root, and fails without them; `make test`
//! installs them.

mod document;
#[path = "../machine/mod.rs"]
mod machine;
mod paths;
mod quickstarts;
mod walk;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

const PROGRAM: &str = env!("CARGO_BIN_EXE_natgate");

/// The laboratory's program, beside the gateway's.
fn laboratory() -> PathBuf {
    let path = Path::new(PROGRAM).with_file_name("natgate-lab");
    assert!(path.is_file(), "{} is missing: cargo build -p natgate-lab", path.display());
    path
}

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

/// A folder of one test, which is removed when dropped.
struct Folder(PathBuf);

impl Folder {
    fn new(test: &str) -> Self {
        let path =
            std::env::temp_dir().join(format!("natgate-package-{test}-{}", std::process::id()));
        fs::create_dir_all(&path).expect("the folder can be made");
        Self(path)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn run(program: &str, arguments: &[&str]) -> Output {
    let mut command = Command::new(program);
    command.args(arguments).env("DEB_COMPRESSION", "gzip");
    command
        .output()
        .unwrap_or_else(|error| panic!("{program} is missing ({error}); run `make test`"))
}

/// Output of a program that must succeed.
fn said(program: &str, arguments: &[&str]) -> String {
    let output = run(program, arguments);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {arguments:?}: {errors}");
    String::from_utf8(output.stdout).expect("text")
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a path of text")
}

/// Subcommands in a command's help.
fn subcommands(command: &[&str]) -> Vec<String> {
    let help = said(PROGRAM, &[command, &["--help"]].concat());
    let list = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let list = list.take_while(|line| !line.is_empty());
    let names = list.filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    let names = names.filter_map(|line| line.split_whitespace().next());
    names.filter(|name| *name != "help").map(str::to_owned).collect()
}

#[test]
fn every_command_has_a_man_page_and_groff_has_nothing_to_say() {
    let folder = Folder::new("man");
    said(PROGRAM, &["man", text(&folder.0)]);
    said(text(&laboratory()), &["man", text(&folder.0)]);
    let mut expected = BTreeSet::from(["natgate.1", "natgate-lab.1"].map(str::to_owned));
    let commands = subcommands(&[]);
    assert!(commands.len() >= 10, "{commands:?}");
    for command in &commands {
        expected.insert(format!("natgate-{command}.1"));
        for below in subcommands(&[command]) {
            expected.insert(format!("natgate-{command}-{below}.1"));
        }
    }
    let entries = fs::read_dir(&folder.0).expect("it is ours").flatten();
    let pages: BTreeSet<String> =
        entries.map(|entry| entry.file_name().into_string().expect("text")).collect();
    assert_eq!(pages, expected);
    for page in &pages {
        let path = folder.file(page);
        let mut command = Command::new("man");
        command.args(["--warnings", "-E", "UTF-8", "-l", "-Tutf8", "-Z", text(&path)]);
        command.env("LC_ALL", "C.UTF-8").env("MANROFFSEQ", "").env("MANWIDTH", "80");
        let output = command.output().expect("man is missing; run `make test`");
        let warnings = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && warnings.is_empty(), "{page}: {warnings}");
        let read = fs::read_to_string(&path).expect("it is ours");
        for section in ["NAME", "SYNOPSIS", "DESCRIPTION"] {
            assert!(read.contains(&format!(".SH {section}\n")), "{page} has no {section}");
        }
        let is_top = matches!(page.as_str(), "natgate.1" | "natgate-lab.1" | "natgate-bench.1");
        assert!(is_top || read.contains(".SH EXAMPLES\n"), "{page} has no example");
    }
    let output = run(PROGRAM, &["man", "/nonexistent"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(
        String::from_utf8_lossy(&output.stderr)
            .contains("/nonexistent is no directory; make it first")
    );
}

#[test]
fn bash_completes_commands_options_and_their_values() {
    let folder = Folder::new("bash");
    let script = folder.file("natgate.bash");
    fs::write(&script, said(PROGRAM, &["completions", "bash"])).expect("it is ours");
    let completed = |words: &str| {
        let ask = format!(
            "source {}; COMP_WORDS=({words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1));
             _natgate natgate \"${{COMP_WORDS[COMP_CWORD]}}\" \"${{COMP_WORDS[COMP_CWORD-1]}}\"
             printf '%s\\n' \"${{COMPREPLY[@]}}\"",
            text(&script)
        );
        said("bash", &["--norc", "-c", &ask])
    };
    assert_eq!(completed("natgate rel"), "reload\n");
    assert_eq!(completed("natgate run --stat"), "--status-file\n");
    assert!(completed("natgate import --from ''").contains("iptables\nnft\nvpp\njool\ntayga"));
    for shell in ["zsh", "fish", "elvish", "powershell"] {
        assert!(said(PROGRAM, &["completions", shell]).contains("status-file"), "{shell}");
    }
}

/// Packages of the gateway and of the laboratory, built once.
fn packages() -> &'static [PathBuf; 2] {
    static MADE: OnceLock<[PathBuf; 2]> = OnceLock::new();
    MADE.get_or_init(|| {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("package");
        let script = format!("{ROOT}/packaging/deb.sh");
        let paths = said(&script, &[PROGRAM, text(&folder), text(&laboratory())]);
        let paths: Vec<PathBuf> = paths.lines().map(PathBuf::from).collect();
        paths.try_into().expect("two packages")
    })
}

/// Package of the gateway.
fn package() -> &'static Path {
    &packages()[0]
}

/// Files and folders of the package, as absolute paths.
fn contents() -> BTreeSet<String> {
    let listed = said("dpkg-deb", &["--contents", text(package())]);
    let paths = listed.lines().filter_map(|line| line.split_whitespace().nth(5));
    paths.map(|path| path.trim_start_matches('.').trim_end_matches('/').to_owned()).collect()
}

#[test]
fn the_package_has_what_it_should_and_lintian_finds_no_error() {
    let fields = said("dpkg-deb", &["--field", text(package())]);
    for field in ["Package: natgate\n", "Depends: libc6", "Section: net\n"] {
        assert!(fields.contains(field), "{fields}");
    }
    let listed = said("dpkg-deb", &["--contents", text(package())]);
    let files = contents();
    for file in [
        "/usr/bin/natgate",
        "/usr/lib/systemd/system/natgate.service",
        "/usr/lib/sysusers.d/natgate.conf",
        "/etc/natgate/natgate.toml",
        "/usr/share/man/man1/natgate-run.1.gz",
        "/usr/share/bash-completion/completions/natgate",
        "/usr/share/zsh/vendor-completions/_natgate",
        "/usr/share/fish/vendor_completions.d/natgate.fish",
        "/usr/share/natgate/grafana/natgate.json",
        "/usr/share/natgate/prometheus/natgate.rules.yml",
        "/usr/share/doc/natgate/copyright",
        "/usr/share/doc/natgate/configuration.md",
        "/usr/share/doc/natgate/quickstart-isp.md",
        "/usr/share/doc/natgate/examples/isp-blocks.toml",
    ] {
        assert!(files.contains(file), "{file} is not among {files:#?}");
    }
    assert!(listed.lines().all(|line| line.contains(" root/root ")), "{listed}");
    assert_lintian_is_content(package());
}

#[test]
fn the_laboratory_is_a_package_of_its_own_for_the_same_version() {
    let package = &packages()[1];
    let fields = said("dpkg-deb", &["--field", text(package)]);
    let version = said("dpkg-deb", &["--field", text(self::package()), "Version"]);
    for field in ["Package: natgate-lab\n", &format!("natgate (= {})", version.trim())] {
        assert!(fields.contains(field), "{fields}");
    }
    let listed = said("dpkg-deb", &["--contents", text(package)]);
    for file in ["/usr/bin/natgate-lab", "/usr/share/man/man1/natgate-bench-engine.1.gz"] {
        assert!(listed.contains(file), "{file} is not among {listed}");
    }
    assert_lintian_is_content(package);
}

/// Fails if lintian finds an error or a warning. The test's maintainer does not exist.
fn assert_lintian_is_content(package: &Path) {
    let suppressed = "bogus-mail-host,bogus-mail-host-in-debian-changelog";
    let options = ["--allow-root", "--fail-on", "error,warning", "--suppress-tags", suppressed];
    let output = run("lintian", &[&options[..], &[text(package)]].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}

#[test]
fn the_package_installs_starts_nothing_and_goes() {
    let folder = Folder::new("install");
    let root = &folder.0;
    // Maintainer scripts run in the new root. The shell and the programs that they call are the
    // host's.
    for name in ["usr", "bin", "sbin", "lib", "lib64"] {
        let here = Path::new("/").join(name);
        if !here.exists() {
            continue;
        }
        fs::create_dir_all(root.join(name)).expect("it is ours");
    }
    for name in ["var/lib/dpkg/updates", "var/lib/dpkg/info", "etc", "tmp", "dev"] {
        fs::create_dir_all(root.join(name)).expect("it is ours");
    }
    fs::write(root.join("var/lib/dpkg/status"), "").expect("it is ours");
    let extracted = said("dpkg-deb", &["--extract", text(package()), text(root)]);
    assert_eq!(extracted, "");
    let program = root.join("usr/bin/natgate");
    assert!(said(text(&program), &["--version"]).starts_with("natgate "));
    let config = root.join("etc/natgate/natgate.toml");
    said(text(&program), &["check", text(&config)]);
    // The installed unit does nothing, and names the necessary step.
    let refused = Command::new("unshare")
        .args(["--net", text(&program), "run", "-c", text(&config)])
        .output()
        .expect("unshare runs");
    let why = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(refused.status.code(), Some(1), "{why}");
    assert!(why.contains("there is no network device \"edit-inside\""), "{why}");
    // Only dpkg's own part, without the effects of the scripts on this machine.
    let admin = format!("--root={}", root.display());
    let options = [&admin[..], "--force-depends", "--force-script-chrootless", "--force-not-root"];
    let mut install = Command::new("dpkg");
    install
        .args(options)
        .args(["--unpack", text(package())])
        .env("PATH", std::env::var_os("PATH").unwrap_or_default());
    let output = install.output().expect("dpkg runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let status = fs::read_to_string(root.join("var/lib/dpkg/status")).expect("dpkg has written it");
    assert!(status.contains("Package: natgate\nStatus: install ok unpacked\n"), "{status}");
    assert!(
        !root.join("etc/systemd/system/multi-user.target.wants").exists(),
        "nothing is enabled"
    );
}

#[test]
fn maintainer_scripts_are_sound_shell_and_start_nothing() {
    for script in ["postinst", "prerm", "postrm"] {
        let path = format!("{ROOT}/packaging/debian/{script}");
        said("sh", &["-n", &path]);
        let text = fs::read_to_string(&path).expect("it is there");
        for word in ["enable", "start "] {
            let lines = text.lines().filter(|line| !line.trim_start().starts_with('#'));
            let calls = lines.filter(|line| line.contains("systemctl") && line.contains(word));
            assert_eq!(calls.count(), 0, "{script} has {word}");
        }
    }
}

#[test]
fn the_same_package_is_made_twice() {
    let folder = Folder::new("twice");
    let script = format!("{ROOT}/packaging/deb.sh");
    let again = said(&script, &[PROGRAM, text(&folder.0)]);
    let [first, second] =
        [package(), Path::new(again.trim_end())].map(|path| fs::read(path).expect("it is there"));
    assert!(first == second, "two packages of one program differ");
}

#[test]
fn the_image_is_one_and_its_program_runs_with_nothing_around_it() {
    let folder = Folder::new("image");
    let image = folder.file("image.tar");
    let script = format!("{ROOT}/packaging/image.sh");
    said(&script, &[PROGRAM, text(&image)]);
    let seen = said("skopeo", &["inspect", &format!("oci-archive:{}", text(&image))]);
    let seen: serde_json::Value = serde_json::from_str(&seen).expect("JSON");
    assert_eq!(seen["Os"], "linux");
    assert_eq!(seen["Labels"]["org.opencontainers.image.title"], "natgate");
    // Copying checks every checksum, including those of unpacked data.
    let copy = format!("dir:{}", text(&folder.file("copy")));
    said("skopeo", &["copy", "--insecure-policy", &format!("oci-archive:{}", text(&image)), &copy]);
    let digest =
        seen["Layers"][0].as_str().expect("a layer").trim_start_matches("sha256:").to_owned();
    let root = folder.file("root");
    fs::create_dir(&root).expect("it is ours");
    said(
        "tar",
        &[
            "--extract",
            "--gzip",
            "--directory",
            text(&root),
            "--file",
            text(&folder.file("copy").join(digest)),
        ],
    );
    let version = said("chroot", &[text(&root), "/usr/bin/natgate", "--version"]);
    assert!(version.starts_with("natgate "), "{version}");
    said("chroot", &[text(&root), "/usr/bin/natgate", "check", "/etc/natgate/natgate.toml"]);
    let config = fs::read_to_string(root.join("etc/natgate/natgate.toml")).expect("it is there");
    for path in paths::named(&config) {
        let exists = root.join(path.trim_start_matches('/')).exists();
        assert!(exists || paths::is_made_at_run_time(&path), "{path} is not in the image");
    }
    let again = folder.file("again.tar");
    said(&script, &[PROGRAM, text(&again)]);
    assert!(fs::read(&image).expect("it is there") == fs::read(&again).expect("it is there"));
}

#[test]
fn every_example_can_be_run_and_is_in_a_quick_start() {
    let examples = fs::read_dir(format!("{ROOT}/packaging/examples")).expect("there are some");
    let docs =
        ["quickstart-home", "quickstart-isp", "quickstart-cloud", "quickstart-dslite", "pair"];
    let docs =
        docs.map(|name| fs::read_to_string(format!("{ROOT}/docs/{name}.md")).expect("it is there"));
    let mut count = 0;
    for example in examples.flatten() {
        let output = run(PROGRAM, &["check", text(&example.path())]);
        let warnings = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && warnings.is_empty(), "{:?}: {warnings}", example.path());
        let shown = said(PROGRAM, &["check", text(&example.path())]);
        // This machine has no certificates of a pair.
        let is_of_example =
            |line: &str| line.starts_with("warning:") && !line.contains(" fleet: /etc/natgate/");
        assert!(!shown.lines().any(is_of_example), "{shown}");
        let name = example.file_name().into_string().expect("text");
        assert!(
            docs.iter().any(|doc| doc.contains(&format!("packaging/examples/{name}"))),
            "{name}"
        );
        count += 1;
    }
    // A pair has two.
    assert_eq!(count, docs.len() + 1);
    said(PROGRAM, &["check", &format!("{ROOT}/packaging/natgate.toml")]);
}
