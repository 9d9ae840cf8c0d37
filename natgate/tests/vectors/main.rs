//! The vectors. Every folder of `vectors/` has a configuration, input packets and the expected
//! output.
//!
//! Each vector passes through the program, from file to file and again from stream to stream. Its
//! output, events and counters are compared with those in the folder. With NATGATE_BLESS=1 the test
//! writes them instead; read them before you trust them. vectors/README.md has the details.

mod capture;
mod read;
mod words;
mod write;

use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Once;
use words::Words;

const VECTORS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../vectors");

/// The folders, by name. If requested, the first test that runs writes the expected output.
fn cases() -> Vec<PathBuf> {
    static BLESSING: Once = Once::new();
    let cases = folders();
    if std::env::var_os("NATGATE_BLESS").is_some_and(|value| value == "1") {
        BLESSING.call_once(|| cases.iter().for_each(|case| bless(case)));
    }
    cases
}

fn folders() -> Vec<PathBuf> {
    let entries = fs::read_dir(VECTORS).expect("the vectors are there");
    let paths = entries.map(|entry| entry.expect("a readable folder").path());
    let mut folders: Vec<_> = paths.filter(|path| path.is_dir()).collect();
    folders.sort();
    assert!(folders.len() >= 50, "only {} vectors in {VECTORS}", folders.len());
    folders
}

/// Writes the output of the program for a case.
fn bless(case: &Path) {
    match replay(case, "blessed") {
        Ok(results) => {
            for (file, actual) in results {
                fs::write(case.join(file), actual).expect("vectors can be written");
            }
        }
        Err(error) => eprintln!("{}: {error}", name(case)),
    }
}

fn name(path: &Path) -> &str {
    path.file_name().and_then(|name| name.to_str()).expect("names are ASCII")
}

/// Input of a case.
enum Input {
    /// Text that becomes a capture.
    Text(String),
    /// One capture of both sides.
    Both(PathBuf),
    /// A capture of each side.
    Pair(PathBuf, PathBuf),
}

impl Input {
    fn of(case: &Path) -> Self {
        let (both, inside) = (case.join("in.pcapng"), case.join("inside.pcap"));
        if both.exists() {
            Self::Both(both)
        } else if inside.exists() {
            Self::Pair(inside, case.join("outside.pcap"))
        } else {
            Self::Text(read_text(&case.join("in.txt")))
        }
    }

    fn is_text(&self) -> bool {
        matches!(self, Self::Text(_))
    }

    /// The packets as text, in the order of time.
    fn frames(&self, made: &Path) -> Vec<capture::Frame> {
        let read = |path: &Path| fs::read(path).expect("the capture can be read");
        match self {
            Self::Text(_) => capture::frames(&read(made), None),
            Self::Both(path) => capture::frames(&read(path), None),
            Self::Pair(inside, outside) => {
                let mut frames = capture::frames(&read(inside), Some(0));
                frames.extend(capture::frames(&read(outside), Some(1)));
                frames.sort_by_key(|frame| frame.time());
                frames
            }
        }
    }
}

/// Files that the program wrote about a case, in the compared form.
type Results = BTreeMap<&'static str, String>;

/// Runs the program on a case; `purpose` names the working folder.
fn replay(case: &Path, purpose: &str) -> Result<Results, String> {
    let work = &Path::new(env!("CARGO_TARGET_TMPDIR")).join(purpose).join(name(case));
    let _ = fs::remove_dir_all(work);
    fs::create_dir_all(work).map_err(|error| error.to_string())?;
    let input = Input::of(case);
    let made = work.join("in.pcapng");
    if let Input::Text(text) = &input {
        let bytes = capture::from_text(text).map_err(|error| format!("in.txt: {error}"))?;
        fs::write(&made, bytes).map_err(|error| error.to_string())?;
    }
    let mut command = program(case);
    match &input {
        Input::Text(_) => command.arg("--in").arg(&made),
        Input::Both(path) => command.arg("--in").arg(path),
        Input::Pair(inside, outside) => {
            command.arg("--inside").arg(inside).arg("--outside").arg(outside)
        }
    };
    for (option, file) in
        [("--out", "out.pcapng"), ("--events", "events.jsonl"), ("--stats", "stats.json")]
    {
        command.arg(option).arg(work.join(file));
    }
    run(&mut command)?;
    match &input {
        Input::Text(_) => stream(case, &made, work)?,
        Input::Both(path) => stream(case, path, work)?,
        // Standard input has room for one capture only.
        Input::Pair(..) => {}
    }
    results(&input, &made, work)
}

fn program(case: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_natgate"));
    command.arg("replay").arg("-c").arg(case.join("config.toml"));
    command
}

fn run(command: &mut Command) -> Result<Vec<u8>, String> {
    let output = command.output().map_err(|error| error.to_string())?;
    let said = String::from_utf8_lossy(&output.stderr);
    match output.status.code() {
        Some(0) if said.is_empty() => Ok(output.stdout),
        code => Err(format!("the program ended with {code:?} and said: {said}")),
    }
}

/// The run from stream to stream must give equal bytes.
fn stream(case: &Path, input: &Path, work: &Path) -> Result<(), String> {
    let file = fs::File::open(input).map_err(|error| error.to_string())?;
    let mut command = program(case);
    let streamed = run(command.args(["--in", "-", "--out", "-"]).stdin(Stdio::from(file)))?;
    let written = fs::read(work.join("out.pcapng")).map_err(|error| error.to_string())?;
    if streamed == written { Ok(()) } else { Err("streams and files differ".into()) }
}

fn results(input: &Input, made: &Path, work: &Path) -> Result<Results, String> {
    let frames = input.frames(made);
    let begin = if input.is_text() { capture::BEGIN } else { capture::begin(&frames) };
    let output = fs::read(work.join("out.pcapng")).map_err(|error| error.to_string())?;
    let stats: Value =
        serde_json::from_str(&read_text(&work.join("stats.json"))).map_err(|e| e.to_string())?;
    let counted: u64 = leaves(&stats["packets"]);
    if counted != frames.len() as u64 {
        return Err(format!("{} packets went in, {counted} are counted", frames.len()));
    }
    let counters =
        serde_json::to_string_pretty(&without_zeros(&stats)).map_err(|e| e.to_string())?;
    let mut results = Results::from([
        ("out.txt", capture::to_text(&capture::frames(&output, None), begin)),
        ("events.jsonl", in_order(&read_text(&work.join("events.jsonl")))?),
        ("counters.json", counters + "\n"),
    ]);
    if !input.is_text() {
        results.insert("in.txt", capture::to_text(&frames, begin));
    }
    Ok(results)
}

/// Events in order of time. Events of one instant are in alphabetical order, because their order is
/// not specified.
fn in_order(events: &str) -> Result<String, String> {
    let mut lines = Vec::new();
    for line in events.lines() {
        let event: Value = serde_json::from_str(line).map_err(|error| error.to_string())?;
        lines.push((event["time"].as_f64().ok_or("an event without time")?, line));
    }
    if !lines.is_sorted_by(|one, other| one.0 <= other.0) {
        return Err("events are not in order of time".into());
    }
    lines.sort_by(|one, other| one.0.total_cmp(&other.0).then_with(|| one.1.cmp(other.1)));
    Ok(lines.iter().map(|(_, line)| format!("{line}\n")).collect())
}

fn read_text(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Sum of all numbers in a value.
fn leaves(value: &Value) -> u64 {
    match value {
        Value::Object(fields) => fields.values().map(leaves).sum(),
        value => value.as_u64().unwrap_or(0),
    }
}

/// A value without zeros, and without objects that are empty then.
fn without_zeros(value: &Value) -> Value {
    let Value::Object(fields) = value else { return value.clone() };
    let kept = fields.iter().map(|(name, value)| (name.clone(), without_zeros(value)));
    Value::Object(
        kept.filter(|(_, value)| *value != 0 && *value != Value::Object(Default::default()))
            .collect(),
    )
}

/// Differences of two texts, line by line; `None` if they are equal.
fn difference(expected: &str, actual: &str) -> Option<String> {
    if expected == actual {
        return None;
    }
    let (old, new): (Vec<_>, Vec<_>) = (expected.lines().collect(), actual.lines().collect());
    // Lengths of the longest common subsequences behind each pair of lines.
    let mut common = vec![vec![0_u32; new.len() + 1]; old.len() + 1];
    for i in (0..old.len()).rev() {
        for j in (0..new.len()).rev() {
            common[i][j] = match old[i] == new[j] {
                true => common[i + 1][j + 1] + 1,
                false => common[i + 1][j].max(common[i][j + 1]),
            };
        }
    }
    let (mut i, mut j, mut text) = (0, 0, String::new());
    while i < old.len() || j < new.len() {
        if i < old.len() && j < new.len() && old[i] == new[j] {
            text += &format!("      {}\n", old[i]);
            (i, j) = (i + 1, j + 1);
        } else if j == new.len() || i < old.len() && common[i + 1][j] >= common[i][j + 1] {
            text += &format!("    - {}\n", old[i]);
            i += 1;
        } else {
            text += &format!("    + {}\n", new[j]);
            j += 1;
        }
    }
    Some(text)
}

#[test]
fn every_vector_comes_to_what_it_says() {
    let mut failures = String::new();
    for case in cases() {
        let results = replay(&case, "vectors").unwrap_or_else(|error| {
            failures += &format!("{}: {error}\n", name(&case));
            Results::new()
        });
        for (file, actual) in results {
            let expected = fs::read_to_string(case.join(file)).unwrap_or_default();
            if let Some(lines) = difference(&expected, &actual) {
                failures += &format!("{}/{file} (- expected, + is):\n{lines}", name(&case));
            }
        }
    }
    assert!(failures.is_empty(), "\n{failures}(make vectors-bless accepts what is)");
}

#[test]
fn every_vector_is_complete_and_its_configuration_good() {
    const FILES: [&str; 10] = [
        "README.md",
        "bindings.csv",
        "config.toml",
        "counters.json",
        "events.jsonl",
        "in.pcapng",
        "in.txt",
        "inside.pcap",
        "out.txt",
        "outside.pcap",
    ];
    for case in cases() {
        let mut names: Vec<String> = fs::read_dir(&case)
            .expect("a folder")
            .map(|entry| name(&entry.expect("an entry").path()).to_owned())
            .collect();
        names.sort();
        for file in
            ["README.md", "config.toml", "counters.json", "events.jsonl", "in.txt", "out.txt"]
        {
            assert!(names.iter().any(|name| name == file), "{} has no {file}", case.display());
        }
        for file in &names {
            assert!(FILES.contains(&file.as_str()), "{}: what is {file}?", case.display());
        }
        let mut check = Command::new(env!("CARGO_BIN_EXE_natgate"));
        check.arg("check").arg(case.join("config.toml"));
        run(&mut check).unwrap_or_else(|error| panic!("{}: {error}", name(&case)));
    }
}

/// Reading written text, and writing read packets, gives the original packet.
#[test]
fn the_notation_loses_nothing() {
    for case in cases() {
        for (number, line) in read_text(&case.join("in.txt")).lines().enumerate() {
            let packet = |line: &str| {
                // The time, the side, and the bytes around the packet are left out.
                let line = if line.starts_with('#') { "" } else { line };
                let described = line.splitn(3, char::is_whitespace).nth(2).unwrap_or("");
                let described = described.split(" eth=").next().unwrap_or("");
                let described = described.split(" cooked=").next().unwrap_or("");
                let mut words = Words::new(described)?;
                if words.plain.is_empty() { Ok(Vec::new()) } else { write::packet(&mut words) }
            };
            let at = format!("{} line {}", name(&case), number + 1);
            let bytes = packet(line).unwrap_or_else(|error| panic!("{at}: {error}"));
            if !bytes.is_empty() {
                let shown = read::packet(&bytes);
                let again = packet(&format!("0 inside {shown}"));
                assert_eq!(again.as_ref(), Ok(&bytes), "{at}: {shown}");
            }
        }
    }
}

#[test]
fn the_notation_is_checked() {
    for (line, complaint) in [
        ("", "a protocol is missing"),
        ("udp 10.0.0.5:1", "> is missing"),
        ("udp 10.0.0.5 > 10.0.0.6:1", "a port is missing"),
        ("udp 10.0.0.5:1 > 10.0.0.6:1 ttl=900", "900 is too large"),
        ("udp 10.0.0.5:1 > 10.0.0.6:1 tll=9", "nobody knows what tll means here"),
        ("udp 10.0.0.5:1 > 10.0.0.6:1 \"x", "a \" without its end"),
        ("icmp 10.0.0.5 > 10.0.0.6 exceeded { udp", "a { without }"),
        ("icmp 10.0.0.5 > 10.0.0.6", "an ICMP type is missing"),
        ("raw 4", "4: hexadecimal bytes have two digits each"),
        ("udp [2001:db8::1]:1 > 10.0.0.6:1", "an address of IPv6 is in brackets"),
        ("udp [2001:db8::1 > [2001:db8::2]:1", "a [ without ]"),
        ("udp [2001:db8::1]:1 > [2001:db8::2]", "a port is missing"),
        ("icmp6 [2001:db8::1] > [2001:db8::2] quench", "nobody knows what quench means here"),
    ] {
        let result = Words::new(line).and_then(|mut words| write::packet(&mut words));
        assert_eq!(result, Err(complaint.to_owned()), "{line}");
    }
}

#[test]
fn differences_are_shown_line_by_line() {
    assert_eq!(difference("a\nb\n", "a\nb\n"), None);
    let shown = difference("a\nb\nc\n", "a\nx\nc\nd\n").expect("they differ");
    assert_eq!(shown, "      a\n    - b\n    + x\n      c\n    + d\n");
}
