//! `natgate conform` from the user's view: its arguments, its reports, its laboratories.
//!
//! Tests of the suite in simulated time are in the conform crate. This file tests the two
//! laboratories live, without waits for timers: natgate between two cables, and the Linux kernel,
//! whose behavior is well known. They need root and `nft`, and fail without them.

use natgate_conform::Verdict::{self, Fail, NotApplicable, NotTested, Pass};
use natgate_conform::{Item, Report, comparison};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const PROGRAM: &str = env!("CARGO_BIN_EXE_natgate-lab");

fn conform(arguments: &[&str]) -> Output {
    Command::new(PROGRAM).arg("conform").args(arguments).output().expect("the program starts")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn documents() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/conform")
}

fn document(name: &str) -> String {
    let path = documents().join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn published(name: &str) -> Report {
    serde_json::from_str(&document(name)).expect("a report")
}

fn report(output: &Output) -> Report {
    serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", text(&output.stderr)))
}

fn configuration() -> String {
    documents().join("natgate.toml").to_str().expect("a readable path").to_owned()
}

/// Checks that these requirements have these verdicts.
fn expect(report: &Report, expected: &[(&str, Verdict)]) {
    for (id, verdict) in expected {
        let item = report.item(id).unwrap_or_else(|| panic!("{id} is not there"));
        assert_eq!(item.verdict, *verdict, "{id}: {}\n{:#?}", item.why, item.evidence);
    }
}

#[test]
fn the_exit_code_says_whether_a_must_failed() {
    let config = configuration();
    let good = conform(&["-c", &config, "--only", "rfc4787"]);
    assert_eq!(good.status.code(), Some(0), "{}", text(&good.stderr));
    assert!(text(&good.stdout).contains("pass       REQ-1 "), "{}", text(&good.stdout));

    let folder = tempfile("exit-code");
    let bad = folder.join("bad.toml");
    let without = format!("{}\n[nat]\nhairpinning = false\n", document("natgate.toml"));
    std::fs::write(&bad, without).unwrap();
    let bad = bad.to_str().unwrap();
    let output = conform(&["-c", bad, "--only", "rfc4787"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("MUSTs that are not met: 1"), "{}", text(&output.stderr));
    let allowed = conform(&["-c", bad, "--only", "rfc4787", "--allow", "rfc4787#REQ-9"]);
    assert_eq!(allowed.status.code(), Some(0));
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn wrong_arguments_are_told_with_what_would_be_right() {
    let config = configuration();
    for (arguments, told) in [
        (&["-c", "nowhere.toml"][..], "nowhere.toml"),
        (&["-c", &config, "--only", "rfc4787#REQ-99"], "--list has them"),
        (&["-c", &config, "--allow", "everything"], "--list has them"),
        (&["--inside", "nodevice0", "--outside", "nodevice1"], "nodevice0"),
        (&["--inside", "nodevice0"], "--outside"),
        (&["-c", &config, "--inside-hosts", "10.0.0.1-10.0.0.9"], "at least 150"),
        (&["-c", &config, "--patience", "soon"], "is no duration"),
        (&["-c", &config, "--udp", "1s"], "2s or more"),
        (&["--lab", "linux", "--backend", "af-xdp"], "--lab natgate"),
        (&["--compare", "Cargo.toml"], "natgate conform --json"),
        (&["--list", "--nat64", "64:ff9b::"], "--inside-gateway6"),
        (&["--list", "--inside-gateway6", "2001:db8::1"], "--nat64"),
        (
            &["--list", "--inside-gateway6", "2001:db8::1", "--siit", "2001:db8:64::"],
            "--siit-hosts",
        ),
        (&["--list", "--nat64", "64:ff9b::1"], "no prefix of 96 bits"),
        (&[], "--inside"),
    ] {
        let output = conform(arguments);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {said}");
        assert!(said.contains(told), "{arguments:?}: {said}");
    }
}

#[test]
fn every_requirement_is_listed_with_what_it_takes() {
    let output = conform(&["--list", "--udp", "10s"]);
    assert_eq!(output.status.code(), Some(0));
    let list = text(&output.stdout);
    let line = |id: &str| {
        let found = list.lines().find(|line| line.split_whitespace().next() == Some(id));
        found.unwrap_or_else(|| panic!("{id} is not in\n{list}"))
    };
    assert!(line("rfc4787#REQ-5").contains(" 10 s "));
    assert!(line("rfc5382#REQ-5").contains(" 7440 s "));
    assert!(line("rfc6888#REQ-12").contains(" not visible "));
}

/// On a phone nothing is wider than the screen, even with all evidence open. The report is a real
/// one with many failures. Needs Chromium, and fails without it.
/// one, of many failures. Needs Chromium, and fails without it.
#[test]
fn a_report_is_no_wider_than_a_phone() {
    let folder = tempfile("phone");
    let page = folder.join("report.html");
    std::fs::write(&page, published("linux-masquerade.json").html()).unwrap();
    let mut browser = natgate_browser::Chromium::start("conform");
    for (width, is_phone) in [(360, true), (390, true), (1280, false)] {
        browser.size(width, 844, is_phone);
        browser.open(&format!("file://{}", page.display()));
        browser.wait(&format!("innerWidth === {width}"));
        browser.value("document.querySelectorAll('details').forEach(one => one.open = true)");
        let widest = browser.value("document.documentElement.scrollWidth");
        assert!(widest.as_u64() <= Some(width.into()), "{widest} pixels on a screen of {width}");
        let cut = browser.value(
            "[...document.querySelectorAll('td, th, pre, h1, h2, p')].filter(one => \
             one.scrollWidth > one.clientWidth + 1 && one.clientWidth > 0).map(one => \
             one.outerHTML.slice(0, 200)).join('\\n')",
        );
        assert_eq!(cut, "", "wider than its place on a screen of {width}");
        browser.picture(&format!("conform-{width}"), false);
    }
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn reports_are_written_as_asked() {
    let folder = tempfile("reports");
    let (json, html) = (folder.join("report.json"), folder.join("report.html"));
    let config = configuration();
    let arguments = ["-c", &config, "--only", "rfc5382", "--quick", "--subject", "mine"];
    let files = ["--json", json.to_str().unwrap(), "--html", html.to_str().unwrap()];
    let output = conform(&[&arguments[..], &files].concat());
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let written: Report = serde_json::from_str(&std::fs::read_to_string(json).unwrap()).unwrap();
    assert_eq!(written.subject, "mine");
    expect(&written, &[("rfc5382#REQ-1", Pass), ("rfc5382#REQ-5", NotTested)]);
    let page = std::fs::read_to_string(html).unwrap();
    assert!(page.starts_with("<!DOCTYPE html>") && page.contains("Conformance: mine"));
    assert_eq!(report(&conform(&[&arguments[..], &["--json", "-"]].concat())), written);
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn shortened_timers_are_waited_for_and_said_to_be_so() {
    let folder = tempfile("timers");
    let short = folder.join("short.toml");
    let timers = "[timeouts]\nudp = \"40s\"\nicmp = \"10s\"\n";
    std::fs::write(&short, format!("{}\n{timers}", document("natgate.toml"))).unwrap();
    let short = short.to_str().unwrap();
    let only = ["-c", short, "--only", "rfc4787#REQ-5,rfc5508#REQ-2", "--json", "-"];
    expect(&report(&conform(&only)), &[("rfc4787#REQ-5", Fail), ("rfc5508#REQ-2", Fail)]);
    let told = report(&conform(&[&only[..], &["--udp", "40s", "--icmp", "10s"]].concat()));
    expect(&told, &[("rfc4787#REQ-5", Pass), ("rfc5508#REQ-2", Pass)]);
    let why = &told.item("rfc4787#REQ-5").unwrap().why;
    assert!(why.contains("said to be set so, instead of 2 min"), "{why}");
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn the_published_verdicts_are_todays() {
    let now = report(&conform(&["-c", &configuration(), "--json", "-"]));
    for (now, then) in now.items.iter().zip(&published("natgate.json").items) {
        let advice = "`make conform` writes the reports anew";
        assert_eq!((&now.id, now.verdict), (&then.id, then.verdict), "{}; {advice}", now.why);
    }
}

#[test]
fn the_published_table_is_that_of_the_published_reports() {
    let reports = ["natgate.json", "linux-masquerade.json"].map(published);
    let page = document("../conform.md");
    let (_, table) = page.split_once("<!-- table -->\n\n").expect("a place for the table");
    let advice = "`make conform` writes it anew";
    assert!(table == comparison(&reports), "docs/conform.md has another table; {advice}");
}

/// A laboratory finds the same failures as simulated time, except for requirements that it cannot
/// try.
#[test]
fn natgate_between_two_cables_fails_what_it_fails_in_simulated_time() {
    let simulated = published("natgate.json");
    let once = |backend| {
        report(&conform(&["--lab", "natgate", "--backend", backend, "--quick", "--json", "-"]))
    };
    let is_known = |item: &Item| {
        item.verdict != Fail || simulated.item(&item.id).is_some_and(|then| then.verdict == Fail)
    };
    // If the machine stopped for longer than a packet may take, the translator gets another try.
    let lab = |backend| match once(backend) {
        all if all.items.iter().all(is_known) => all,
        _ => once(backend),
    };
    let (live, by_xdp) = (lab("af-packet"), lab("af-xdp"));
    for (one, other) in live.items.iter().zip(&by_xdp.items) {
        let what = (&one.why, &other.why, &other.evidence);
        assert_eq!((&one.id, one.verdict), (&other.id, other.verdict), "by AF_XDP: {what:#?}");
    }
    for item in live.items.iter().filter(|item| item.verdict == Fail) {
        let then = simulated.item(&item.id).expect("it is there").verdict;
        assert_eq!(then, Fail, "{}: {}\n{:#?}", item.id, item.why, item.evidence);
    }
    let passed = live.items.iter().filter(|item| item.verdict == Pass).count();
    assert!(passed > 200, "only {passed} passed");
}

#[test]
fn the_kernel_is_found_to_be_as_it_is_known_to_be() {
    let output = conform(&["--lab", "linux", "--quick", "--json", "-"]);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    let linux = report(&output);
    expect(
        &linux,
        &[
            // The kernel preserves ports where possible, and takes another port only after a
            // collision.
            ("rfc4787#REQ-1", Fail),
            ("rfc5382#REQ-1", Fail),
            ("rfc4787#REQ-3", Pass),
            ("rfc4787#REQ-3a", Pass),
            ("rfc4787#REQ-4", Fail),
            ("rfc6056#section-4-preserve", Pass),
            // Filtering is by connection, and there is no hairpinning.
            ("rfc4787#REQ-8", Fail),
            ("rfc4787#REQ-9", Fail),
            ("rfc5382#REQ-8", Fail),
            ("rfc5508#REQ-7", Fail),
            // The kernel's own TCP answers for the external address.
            ("rfc5382#REQ-4", Fail),
            // The kernel follows connections and errors well.
            ("rfc5382#REQ-2", Pass),
            ("rfc5382#REQ-2a", Pass),
            ("rfc5508#REQ-4a", Pass),
            ("rfc5508#REQ-4c", Pass),
            ("rfc5508#REQ-5a", Pass),
            ("rfc4787#REQ-12", Pass),
            // The kernel reassembles fragments, and fragments packets with the sender's
            // identification.
            ("rfc4787#REQ-13", Pass),
            ("rfc4787#REQ-14", Pass),
            ("rfc1812#section-5.2.6-reassembly", Fail),
            ("rfc6864#section-5.3.1", Fail),
            // The kernel is a good router.
            ("rfc1812#section-5.3.1-decrement", Pass),
            ("rfc1812#section-5.3.1-error", Pass),
            ("rfc1812#section-4.3.3.1-host", Pass),
            ("rfc1812#section-4.3.3.6-echo", Pass),
            // The kernel is not configured as a carrier's NAT.
            ("rfc6888#REQ-9", Fail),
            ("rfc4787#REQ-5", NotTested),
            // The kernel is no translator between the families.
            ("rfc6146#section-3", NotApplicable),
            ("rfc7915#section-6-7757", NotApplicable),
        ],
    );
}

/// A folder of this test alone.
fn tempfile(name: &str) -> PathBuf {
    let folder =
        std::env::temp_dir().join(format!("natgate-conform-{}-{name}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder for the test");
    folder
}

#[test]
fn several_workers_conform_as_one_does() {
    let folder = tempfile("workers");
    let reports = [1, 2, 3, 5].map(|workers| {
        let file = folder.join(format!("{workers}.toml"));
        let text = format!("{}\n[workers]\ncount = {workers}\n", document("natgate.toml"));
        std::fs::write(&file, text).unwrap();
        let output = conform(&["-c", file.to_str().unwrap()]);
        text_of_verdicts(&output)
    });
    std::fs::remove_dir_all(folder).unwrap();
    assert!(reports[0].len() > 200, "{:?}", reports[0]);
    for report in &reports[1..] {
        assert_eq!(report, &reports[0]);
    }
}

/// Lines of the output with the verdicts.
fn text_of_verdicts(output: &Output) -> Vec<String> {
    text(&output.stdout).lines().map(str::to_owned).collect()
}
