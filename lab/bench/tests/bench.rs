//! `natgate bench` from the user's view: a small version of each experiment, its files, its JSON,
//! its error messages. Needs valgrind for the counts, and root for measurements over cables.

use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// The program.
const PROGRAM: &str = env!("CARGO_BIN_EXE_natgate-lab");

fn bench(arguments: &[&str]) -> Output {
    Command::new(PROGRAM)
        .arg("bench")
        .args(arguments)
        .current_dir(env!("CARGO_TARGET_TMPDIR"))
        .output()
        .expect("the program can be started")
}

fn json(arguments: &[&str]) -> Value {
    let output = bench(&[arguments, &["--json"]].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("standard output is JSON")
}

/// An empty folder of one test.
fn folder(name: &str) -> PathBuf {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("bench-{name}"));
    let _ = fs::remove_dir_all(&path);
    path
}

fn positive(value: &Value, fields: &[&str]) {
    for field in fields {
        assert!(value[field].as_f64().is_some_and(|it| it > 0.0), "{field} of {value:#}");
    }
}

#[test]
fn the_engine_has_its_figures() {
    let engine =
        json(&["engine", "--sessions", "3k", "--batch", "16", "--seconds", "0", "--quick"]);
    let fields = ["outbound_ns", "inbound_ns", "mixed_ns", "create_ns", "limit_ns"];
    positive(&engine, &fields);
    positive(&engine, &["bytes_per_session", "sessions", "cycles_per_ns"]);
    assert_eq!((&engine["sessions"], &engine["batch"]), (&3000.into(), &16.into()));
    assert_eq!(engine["benchmark"], "engine");
    positive(&engine["machine"], &["processors", "memory_bytes"]);

    let out = folder("engine");
    let path = |name: &str| out.join(name).display().to_string();
    let quick = ["engine", "--quick", "--seconds", "0", "--tcp", "--threads", "2"];
    let first = bench(&[&quick[..], &["--out", &path("one")]].concat());
    assert!(first.status.success());
    for file in ["engine.json", "engine.md", "engine-scarcity.svg"] {
        assert!(out.join("one").join(file).exists(), "{file}");
    }
    let earlier = path("one/engine.json");
    let second = bench(&[&quick[..], &["--out", &path("two"), "--compare", &earlier]].concat());
    let said = String::from_utf8_lossy(&second.stdout);
    assert!(said.contains("| mixed_ns |"), "{said}");
    let page = fs::read_to_string(out.join("two/engine.md")).expect("the page was written");
    assert!(page.contains("## Against the earlier run") && page.contains("## Threads"), "{page}");
}

#[test]
fn the_nat_in_p4_has_its_figures() {
    let found =
        json(&["p4", "--quick", "--entries", "200", "--frames", "64,512", "--seconds", "0"]);
    positive(&found["rows"][0], &["cycles", "frame"]);
    positive(&found["rows"][0]["ns"], &["median", "min", "max", "runs"]);
    positive(&found["ratios"][3], &["ratio"]);
    // Two sizes of frames, two ways; DPDK's SWX is one more subject.
    let subjects = if cfg!(feature = "dpdk") { 6 } else { 5 };
    assert_eq!(found["rows"].as_array().expect("rows").len(), 2 * 2 * subjects);
    assert_eq!(found["failed"], json!([]));
    let refused = bench(&["p4", "--entries", "2M"]);
    assert_eq!(refused.status.code(), Some(2));
}

/// Needs root and the programs that `make test` installs.
#[test]
fn the_nat_in_p4_has_its_figures_by_drivers() {
    let found = json(&[
        "p4",
        "--quick",
        "--drivers",
        "af-packet,af-xdp",
        "--entries",
        "50",
        "--frames",
        "64",
        "--seconds",
        "0.05",
        "--rounds",
        "2",
    ]);
    assert_eq!(found["failed"], json!([]), "{found:#}");
    let rows = found["rows"].as_array().expect("rows");
    let place = |row: &Value| {
        let text = ["driver", "subject", "way"].map(|field| row[field].as_str().expect("text"));
        text.join(", ")
    };
    let places: Vec<String> = rows.iter().map(place).collect();
    let expected: Vec<String> = ["af-packet", "af-xdp"]
        .iter()
        .flat_map(|driver| {
            let mut subjects = vec!["natgate", "P4 as Rust", "the devices alone", "P4 interpreted"];
            if cfg!(feature = "dpdk") {
                subjects.push("P4 by SWX");
            }
            subjects.into_iter().map(move |subject| format!("{driver}, {subject}"))
        })
        .flat_map(|place| ["upload", "download"].map(|way| format!("{place}, {way}")))
        .collect();
    assert_eq!(places, expected);
    for row in rows {
        positive(row, &["cycles", "mpps", "wall_pps", "busy"]);
        assert_eq!((&row["entries"], &row["wrong"]), (&50.into(), &0.0.into()), "{row}");
        assert_eq!(row["ns"]["runs"], 2, "{row}");
    }
    assert_eq!(found["ratios"].as_array().map(Vec::len), Some(4));
}

#[test]
fn rates_prices_rules_and_the_soak_have_their_figures() {
    let rates = json(&["rfc9693", "--quick", "--sessions", "2k", "--capacity", "4k"]);
    positive(&rates["sizes"][0]["establishment"], &["median", "min", "max", "runs"]);
    positive(&rates["capacity"], &["configured", "found"]);

    let prices = json(&["prices", "--quick", "--price", "3000", "--year", "2026", "--cores", "2"]);
    positive(&prices["basis"], &["mixed_ns", "sessions"]);
    let ours = &prices["rows"][1];
    let [mpps, each] = ["mpps", "price_per_mpps"].map(|field| ours[field].as_f64().unwrap());
    assert!((each - 3000.0 / mpps).abs() < 1e-6, "{ours}");

    let rules = json(&["rules", "--quick", "--rules", "50,1k", "--seconds", "0"]);
    positive(&rules["sizes"][0]["spread_ns"], &["median", "min", "max", "runs"]);
    positive(&rules["loads"][0], &["rules", "load_ms", "bytes_per_rule"]);

    let soak = json(&["soak", "--quick", "--sessions", "2k", "--packets", "20k", "--seed", "5"]);
    positive(&soak, &["most", "made", "removed", "packets", "forwarded", "looks"]);
    assert_eq!((&soak["seed"], &soak["most"]), (&5.into(), &2000.into()));
}

#[test]
fn a_day_has_its_figures() {
    let day = json(&["day", "--quick", "--subscribers", "200", "--hours", "1", "--seed", "3"]);
    let plan = ["subscribers", "hours", "sessions", "seed"].map(|field| day[field].as_u64());
    assert_eq!(plan, [Some(200), Some(1), Some(600), Some(3)]);
    let random = &day["schemes"][0];
    positive(random, &["sharing", "addresses", "subscribers_seen", "seconds"]);
    let hour = &random["hours"][0];
    positive(hour, &["sessions", "log_lines", "log_bytes"]);
    // A line of the log has the time, the event, and both endpoints.
    let [bytes, lines] = ["log_bytes", "log_lines"].map(|field| hour[field].as_u64().unwrap());
    let line = bytes / lines;
    assert!((120..250).contains(&line), "{line} bytes a line");
}

#[test]
fn instructions_are_counted_and_compared() {
    let out = folder("instructions");
    let directory = out.display().to_string();
    let first = bench(&["instructions", "--quick", "--out", &directory]);
    assert!(first.status.success(), "{}", String::from_utf8_lossy(&first.stderr));
    let file = out.join("instructions.json");
    let text = fs::read_to_string(&file).expect("the report was written");
    let mut counts: Value = serde_json::from_str(&text).expect("the report is JSON");
    for path in [
        "create_udp",
        "outbound_udp",
        "inbound_udp",
        "expire_udp",
        "inbound_tcp",
        "gateway_inbound",
        "alg_inbound",
        "sip_register",
        "sip_answer",
        "sip_invite",
    ] {
        positive(&counts["paths"][path], &["instructions", "accesses"]);
    }

    let half = counts["paths"]["inbound_udp"]["instructions"].as_f64().unwrap() / 2.0;
    counts["paths"]["inbound_udp"]["instructions"] = half.into();
    fs::write(&file, counts.to_string()).expect("the test may write its folder");
    let file = file.display().to_string();
    let second = bench(&["instructions", "--quick", "--compare", &file]);
    let said = String::from_utf8_lossy(&second.stdout);
    assert!(second.status.success(), "{said}");
    let line = |path: &str| said.lines().find(|line| line.starts_with(path)).unwrap_or_default();
    assert!(line("inbound udp:").contains("+100.0 %") && line("inbound udp:").contains("SLOWER"));
    assert!(line("outbound udp:").ends_with("+0.0 %"), "{said}");
}

/// Needs root and the programs that `make test` installs.
#[test]
fn packets_are_counted_beside_the_kernels_own() {
    let io = json(&[
        "io",
        "--quick",
        "--back-ends",
        "af-xdp",
        "--mappings",
        "50",
        "--frames",
        "64",
        "--ways",
        "both",
        "--seconds",
        "0.05",
    ]);
    assert_eq!(io["failed"], json!([]), "{io:#}");
    let rows = io["rows"].as_array().unwrap();
    let subjects: Vec<_> = rows.iter().map(|row| row["subject"].as_str().unwrap()).collect();
    let all = [
        "Linux forwarding",
        "Linux masquerade",
        "XDP forwarder",
        "XDP fast path (prototype)",
        "af-xdp forwarder",
        "natgate af-xdp",
    ];
    assert_eq!(subjects, all);
    for row in rows {
        assert_eq!(
            (&row["mappings"], &row["way"], &row["wrong"]),
            (&50.into(), &"both".into(), &0.0.into())
        );
        positive(&row["cpu_pps"], &["median", "runs"]);
        positive(&row["wall_pps"], &["median"]);
        assert!(row["busy"].as_f64().is_some_and(|busy| busy > 0.0 && busy < 2.5), "{row}");
    }
    let price = &io["fast_path"][0];
    positive(price, &["bytes_per_flow", "insert_ns", "read_ns", "found_ns", "missed_ns"]);
    assert_eq!(price["flows"], 50);
    // The targets are for a million mappings; this run has fewer.
    assert_eq!(io["targets"][0]["reached"], Value::Null);
}

/// Needs root and the programs that `make test` installs.
#[test]
fn a_router_has_its_figures() {
    let router =
        json(&["router", "--quick", "--back-end", "af-packet", "--trial", "0.05", "--fill", "2k"]);
    assert_eq!(router["failed"], json!([]), "{router:#}");
    for row in router["delay"].as_array().unwrap() {
        let delays = ["p50", "p99", "p999", "max"].map(|field| row["delay"][field].as_f64());
        assert!(delays[0] > Some(0.0) && delays.is_sorted(), "{row}");
        assert!(row["delay"]["packets"].as_u64() > Some(0), "{row}");
    }
    assert_eq!(router["delay"].as_array().map(Vec::len), Some(9));
    assert_eq!(router["throughput"].as_array().map(Vec::len), Some(2));
    positive(&router["processor"][0], &["entries", "ns_per_packet", "pps"]);
    positive(&router["memory"][0], &["before", "with"]);
    assert_eq!(router["creation"].as_array().map(Vec::len), Some(6));
    assert_eq!(router["latency"].as_array().map(Vec::len), Some(6));
}

/// Needs root and the programs that `make test` installs.
#[test]
fn a_pair_has_its_figures() {
    let pair = json(&["pair", "--quick", "--mappings", "2k", "--losses", "5"]);
    let run = &pair["runs"][0];
    assert_eq!((&pair["mappings"], &run["loss_percent"]), (&json!(2000), &json!(5)));
    assert_eq!(run["kept"], 2000, "{run}");
    positive(run, &["noticed_ms", "call_ms", "download_ms", "bytes_a_record", "copied_ms"]);
}

#[test]
fn the_engines_calls_have_their_figures() {
    let timings = json(&["timings", "--quick"]);
    assert_eq!(timings["benchmark"], "timings");
    assert_eq!((&timings["guests"], &timings["failed"]), (&json!([]), &json!([])));
    assert_eq!(timings["targets"][0]["reached"], Value::Null);
    let found = &timings["internal"][0]["timings"];
    assert_eq!(timings["internal"].as_array().map(Vec::len), Some(1));
    assert_eq!((&found[0]["entries"], &found[1]["entries"]), (&100.into(), &2000.into()));
    for call in ["add", "look_up", "forward"] {
        positive(&found[1][call], &["median_ns", "p99_ns", "calls"]);
    }

    let lines = bench(&["timings", "--lines", "--quick"]);
    let lines = String::from_utf8(lines.stdout).expect("it is text");
    let read = |line: &str| serde_json::from_str::<Value>(line).expect("each line is JSON");
    let entries: Vec<_> = lines.lines().map(|line| read(line)["entries"].as_u64()).collect();
    assert_eq!(entries, [Some(100), Some(2000)]);
}

/// Path of the image, which another crate builds.
fn image() -> String {
    let image = Path::new(PROGRAM).with_file_name("natgate-bare");
    assert!(
        image.is_file(),
        "{} is not there: `cargo build -p natgate-bare` builds it, as does `make test`",
        image.display()
    );
    image.display().to_string()
}

/// Needs root, the programs that `make test` installs, and Debian's packages for the guests.
#[test]
fn the_image_is_measured_beside_a_linux_guest() {
    let packages = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("../debian");
    assert!(packages.is_dir(), "{} is missing: `make guests` fetches it", packages.display());
    let packages = packages.display().to_string();
    let timings = json(&["timings", "--quick", "--image", &image(), "--packages", &packages]);
    assert_eq!(timings["failed"], json!([]), "{timings:#}");
    let places: Vec<_> = ["0", "1", "2"]
        .iter()
        .map(|at| timings.pointer(&format!("/internal/{at}/place")).and_then(Value::as_str))
        .collect();
    assert_eq!(places, [Some("Linux program"), Some("natgate image"), Some("Linux guest")]);
    for place in timings["internal"].as_array().expect("a list") {
        assert_eq!(place["timings"].as_array().map(Vec::len), Some(2), "{place}");
        positive(&place["timings"][1]["forward"], &["median_ns", "p99_ns"]);
    }
    let pairs = timings["guests"].as_array().expect("a list");
    for (pair, (card, kernel)) in pairs.iter().zip([
        ("virtio-net", "-cloud-amd64"),
        ("e1000", "-amd64"),
        ("e1000e", "-amd64"),
    ]) {
        assert_eq!(pair["card"], card);
        assert!(pair["kernel"].as_str().is_some_and(|name| name.ends_with(kernel)), "{pair:#}");
        let figures = pair["figures"].as_array().expect("a list");
        let names: Vec<_> = figures.iter().map(|figure| &figure["what"]).collect();
        let expected = json!([
            "first_packet", {"round_trip": 64}, "connection", "response", {"throughput": 1448},
            "tcp", "mixed", "udp_share",
        ]);
        assert_eq!(json!(names), expected);
        for figure in figures {
            for value in ["image", "linux", "ratio"] {
                positive(&figure[value], &["median", "runs"]);
            }
        }
        let share = &figures[figures.len() - 1]["image"]["median"];
        assert!(share.as_f64().is_some_and(|share| share <= 0.25), "{share} of them are UDP");
    }
    assert_eq!(pairs.len(), 3);
    let largest = &timings["largest"][0];
    assert!(largest["fill"]["entries"].as_u64() >= Some(100_000), "{largest}");
    assert!(timings["targets"].as_array().expect("a list").iter().all(|t| t["found"].is_number()));
}

#[test]
fn what_cannot_be_measured_is_refused_with_code_2() {
    for (arguments, wanted) in [
        (&["engine", "--sessions", "0"][..], "a number of sessions is"),
        (&["engine", "--batch", "257"], "257 is not in 1..=256"),
        (&["engine", "--sessions", "1000M"], "give fewer --sessions"),
        (&["engine", "--quick", "--compare", "nosuch.json"], "nosuch.json: cannot be read"),
        (&["ipv6", "--sessions", "66M"], "there are hosts for"),
        (&["rfc9693", "--sessions", "1000M"], "there are addresses for"),
        (&["prices", "--price", "0"], "a price is dollars"),
        (&["sharing", "--sessions", "1000M"], "give fewer --sessions"),
        (&["rules", "--rules", "5M"], "a number of rules is 1 to 4M"),
        (&["soak", "--sessions", "1000M"], "give fewer --sessions"),
        (&["day", "--subscribers", "2M"], "a number of subscribers is 1 to 1M"),
        (&["day", "--hours", "0"], "0 is not in 1..=168"),
        (&["io", "--frames", "63"], "frames have 64 to 1518 bytes, or are imix"),
        (&["io", "--back-ends", "dpkd"], "a back end is af-packet, af-xdp or dpdk"),
        (&["io", "--mappings", "20M"], "a number of mappings is 1 to"),
        (&["io", "--ways", "left"], "a way is up, down or both"),
        (&["router", "--back-end", "tun"], "a back end is af-packet or af-xdp"),
        (&["router", "--transition=nat46"], "a technology is one of nat64, siit, eam"),
        (&["router", "--transition", "--fill", "2k"], "cannot be used with"),
        (&["pair", "--mappings", "11M"], "a number of mappings is 1 to 10M here"),
        (&["pair", "--losses", "91"], "91 is not in 0..=90"),
        (&["payloads", "--rounds", "0"], "0 is not in 1..=10000"),
        (&["p4", "--drivers", "netmap"], "a driver is memory, af-packet, af-xdp or dpdk"),
        (&["p4", "--cores", "0"], "0 is not in 1..=64"),
        (&["p4", "--rounds", "0"], "0 is not in 1..=100"),
        (&["timings", "--image", "nosuch"], "`make bare` builds the image"),
        (&["timings", "--rounds", "2"], "--image"),
        (&["timings", "--lines", "--json"], "cannot be used with"),
    ] {
        let output = bench(arguments);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {said}");
        assert!(said.contains(wanted), "{arguments:?}: {said}");
    }
}

#[test]
fn every_help_has_an_example() {
    for name in [
        "engine",
        "ipv6",
        "structures",
        "sharing",
        "rules",
        "rfc9693",
        "prices",
        "instructions",
        "soak",
        "day",
        "io",
        "p4",
        "pair",
        "payloads",
        "router",
        "timings",
    ] {
        let help = bench(&[name, "--help"]);
        let said = String::from_utf8_lossy(&help.stdout).into_owned();
        let example = format!("natgate bench {name}");
        assert!(said.lines().any(|line| line.starts_with(&example)), "{said}");
    }
}
