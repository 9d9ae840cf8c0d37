//! The page for Prometheus, and what is made to work with it: the rules for alerts and the
//! dashboard in contrib/. Prometheus' own promtool judges all of it.

mod sample;

use natgate_metrics::prometheus_text;
use serde_json::Value;
use std::collections::{BTreeSet, HashSet};
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

fn page() -> String {
    prometheus_text(&sample::figures()).0
}

fn contrib(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../contrib").join(name)
}

fn promtool() -> Command {
    Command::new("promtool")
}

/// The output of a program, which must have succeeded.
fn content(output: std::io::Result<Output>) -> String {
    let output =
        output.expect("promtool is there (Debian package prometheus; make test installs it)");
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said).into_owned();
    assert!(output.status.success(), "{said}");
    said
}

#[test]
fn every_series_is_named_once_with_prefix_and_help() {
    let text = page();
    let mut seen = HashSet::new();
    for line in text.lines() {
        let name = line.strip_prefix("# HELP ").or_else(|| line.strip_prefix("# TYPE "));
        assert!(name.unwrap_or(line).starts_with("natgate_"), "{line}");
        assert!(seen.insert(line.rsplit_once(' ').map_or(line, |(series, _)| series)), "{line}");
    }
    let families = |kind| text.lines().filter(|line| line.starts_with(kind)).count();
    assert_eq!(families("# TYPE "), families("# HELP "));
}

#[test]
fn figures_are_found_where_they_belong() {
    let text = page();
    for line in [
        r#"natgate_packets_total{direction="outbound",verdict="forwarded"} 1000"#,
        r#"natgate_bytes_total{direction="inbound",verdict="dropped"} 300"#,
        r#"natgate_drops_total{reason="filtered"} 5"#,
        r#"natgate_drops_total{reason="pool_exhausted"} 0"#,
        r#"natgate_pool_ports{pool="default",protocol="udp",state="used"} 40"#,
        r#"natgate_pool_blocks{pool="default",state="free"} 116"#,
        r#"natgate_router6_events_total{kind="errors_made"} 15"#,
        r#"natgate_alg_expectations_total{alg="ftp"} 17"#,
        "natgate_server_up{external=\"203.0.113.1:80\",internal=\"10.0.0.5:8080\",\
         realm=\"default\"} 0",
        "natgate_server_checks_total{external=\"203.0.113.1:80\",internal=\"10.0.0.5:8080\",\
         realm=\"default\",result=\"failed\"} 28",
        "natgate_domain_packets_total{domain=\"2001:db8:8000::/40\",kind=\"map-e\",\
         direction=\"outbound\"} 21",
        r#"natgate_domain_bytes_total{domain="dslite",kind="dslite",direction="inbound"} 24"#,
        r#"natgate_domain_spoofed_packets_total{domain="dslite",kind="dslite"} 25"#,
        "natgate_lw4o6_bindings 26",
        r#"natgate_alg_refused_total{alg="ftp",reason="low_port"} 19"#,
        r#"natgate_alg_refused_total{alg="ftp",reason="flood"} 0"#,
        "natgate_mappings 41",
        "natgate_mappings_limit 1000",
        r#"natgate_mappings_created_total{protocol="tcp"} 7"#,
        r#"natgate_worker_busy_seconds_total{worker="0"} 1.5"#,
        r#"natgate_device_up{device="eth1",side="inside"} 1"#,
        "natgate_device_lost_frames_total{device=\"eth0\",reason=\"transmit_full\",\
         side=\"outside\"} 2",
        r#"natgate_log_gaps_total{sink="syslog \"a\""} 1"#,
        r#"natgate_connections_refused_total{listener="page"} 6"#,
        r#"natgate_reloads_total{result="failure"} 2"#,
        "natgate_fleet_connected 1",
        "natgate_fleet_fenced_ports 38",
        r#"natgate_fleet_slice_owned{slice="1"} 0"#,
        r#"natgate_fleet_slice_epoch{slice="0"} 6"#,
        r#"natgate_fleet_slice_lag_seconds{slice="0"} 0.25"#,
        r#"natgate_fleet_sent_bytes_total{slice="0"} 33"#,
        r#"natgate_fleet_gaps_total{slice="1"} 36"#,
        r#"natgate_fleet_slice_refused_mappings{slice="1"} 41"#,
        r#"natgate_fleet_records_without_realm_total{slice="1"} 42"#,
        r#"natgate_fleet_slice_ended_mappings_total{slice="0"} 43"#,
        "natgate_reload_last_success_timestamp_seconds 1700000005",
    ] {
        assert!(text.lines().any(|one| one == line), "no {line} in\n{text}");
    }
}

#[test]
fn the_number_of_series_does_not_grow_with_subscribers() {
    let few = sample::figures();
    let mut many = few.clone();
    many.subscribers.used = 1_000_000;
    many.mappings.used = 50_000_000;
    let lines = |figures| prometheus_text(figures).0.lines().count();
    assert_eq!(lines(&few), lines(&many));
}

#[test]
fn promtool_finds_nothing_to_say_about_the_page() {
    let mut check = promtool()
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("promtool is there (Debian package prometheus; make test installs it)");
    let mut input = check.stdin.take().expect("its input is ours");
    input.write_all(page().as_bytes()).expect("it reads");
    drop(input);
    assert_eq!(content(check.wait_with_output()), "");
}

#[test]
fn promtool_accepts_the_rules_and_they_do_what_they_are_to() {
    content(
        promtool().args(["check", "rules"]).arg(contrib("prometheus/natgate.rules.yml")).output(),
    );
    let tests = contrib("prometheus/natgate.rules.test.yml");
    content(promtool().args(["test", "rules"]).arg(tests).output());
}

#[test]
fn promtool_accepts_the_configuration_in_the_document() {
    let document = fs::read_to_string(contrib("../docs/metrics.md")).expect("it is there");
    let block = document.split("```yaml\n").nth(1).and_then(|rest| rest.split("```").next());
    let name = format!("natgate-prometheus-{}.yml", std::process::id());
    let file = std::env::temp_dir().join(name);
    fs::write(&file, block.expect("the document has a configuration")).expect("it can be written");
    content(promtool().args(["check", "config"]).arg(&file).output());
    fs::remove_file(&file).expect("it is ours");
}

#[test]
fn rules_and_dashboard_name_series_that_there_are() {
    let exported = exported();
    let read = |name| fs::read_to_string(contrib(name)).expect("it is there");
    let (rules, dashboard) = (read("prometheus/natgate.rules.yml"), read("grafana/natgate.json"));
    for (place, text) in [("rules", &rules), ("dashboard", &dashboard)] {
        let named = names(text);
        assert!(named.len() > 10, "{place} name series");
        for name in named {
            assert!(exported.contains(name), "{place} name {name}, which there is not");
        }
    }
}

/// Texts that operators read or run: documents, and files beside the program.
fn texts() -> Vec<(PathBuf, String)> {
    let root = contrib("..");
    let mut files = vec![root.join("README.md")];
    let folders = ["docs", "packaging", "packaging/debian", "packaging/systemd"];
    for folder in folders.into_iter().chain(["packaging/examples"]) {
        let entries = fs::read_dir(root.join(folder)).expect("the folder is there").flatten();
        files.extend(entries.map(|entry| entry.path()).filter(|path| path.is_file()));
    }
    let read = |path: PathBuf| Some((path.clone(), fs::read_to_string(path).ok()?));
    files.into_iter().filter_map(read).collect()
}

#[test]
fn documents_name_series_that_there_are() {
    let exported = exported();
    for (path, text) in texts() {
        // The list of requirements names tests; the prefix alone, and words with capitals, stand
        // for something else.
        let is_list = path.ends_with("docs/conformance.md");
        let is_series = |name: &&str| {
            *name != "natgate_" && !is_list && !name.contains(|c: char| c.is_ascii_uppercase())
        };
        for name in names(&text).into_iter().filter(is_series) {
            assert!(exported.contains(name), "{}: {name}, which there is not", path.display());
        }
    }
}

#[test]
fn the_document_lists_every_series() {
    let text = fs::read_to_string(contrib("../docs/metrics.md")).expect("it is there");
    let rows = text.lines().filter_map(|line| line.strip_prefix("| `"));
    let mut listed = BTreeSet::new();
    for row in rows {
        let cell = row.split(" |").next().unwrap_or_default();
        let names: Vec<&str> = cell.split('`').step_by(2).filter(|it| !it.is_empty()).collect();
        let limits = cell.contains("each with");
        for name in names.into_iter().filter(|name| !name.starts_with('_')) {
            let full = format!("natgate_{name}");
            listed.extend(limits.then(|| format!("{full}_limit")));
            listed.insert(full);
        }
    }
    // A histogram is three series.
    let base = |name: &String| {
        let endings = ["_bucket", "_sum", "_count"];
        let cut = endings.iter().find_map(|ending| name.strip_suffix(ending));
        cut.unwrap_or(name).to_owned()
    };
    let exported: BTreeSet<String> = exported().iter().map(base).collect();
    assert_eq!(listed, exported);
}

#[test]
fn the_dashboard_is_complete_json_without_overlaps() {
    let text = fs::read_to_string(contrib("grafana/natgate.json")).expect("it is there");
    let dashboard: Value = serde_json::from_str(&text).expect("it is JSON");
    let panels = dashboard["panels"].as_array().expect("it has panels");
    let (mut ids, mut cells) = (HashSet::new(), HashSet::new());
    for panel in panels {
        let title = panel["title"].as_str().expect("a panel has a title");
        assert!(ids.insert(panel["id"].as_u64()), "{title} has a number of its own");
        let place = |key: &str| panel["gridPos"][key].as_u64().expect("a panel has a place");
        for x in place("x")..place("x") + place("w") {
            for y in place("y")..place("y") + place("h") {
                assert!(x < 24 && cells.insert((x, y)), "{title} lies over another");
            }
        }
        let queries = panel["targets"].as_array().map_or(0, Vec::len);
        assert_eq!(queries == 0, panel["type"] == "row", "{title} shows something");
    }
}

/// The names of all series on the page.
fn exported() -> BTreeSet<String> {
    let text = page();
    let name = |line: &str| line.split(['{', ' ']).next().map(str::to_owned);
    text.lines().filter(|line| !line.starts_with('#')).filter_map(name).collect()
}

/// Every word of a text that begins as series do.
fn names(text: &str) -> BTreeSet<&str> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words.filter(|word| word.starts_with("natgate_")).collect()
}
