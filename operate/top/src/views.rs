//! The table of each view.

use crate::app::{App, Snapshot, View};
use crate::columns::{Column, Table, always, ranked};
use crate::source::{busiest_first, by_address, mappings};
use serde_json::Value;
use std::cmp::Reverse;

const DIRECTIONS: [&str; 4] = ["outbound", "inbound", "hairpin", "local"];
const VERDICTS: [&str; 3] = ["forwarded", "replied", "dropped"];

/// Longest line of a message, bytes.
const MESSAGE_WIDTH: usize = 78;

/// Width of a bar that stands for the whole, characters.
const BAR: f64 = 14.0;

/// The table of the view that is chosen.
pub(crate) fn table(app: &App) -> Table {
    let Some(now) = app.now() else { return Table::default() };
    match app.view {
        View::Rates => rates(app),
        View::Drops => drops(app, now),
        View::Pools => pools(app, now),
        View::Subscribers => subscribers(app, now),
        View::Workers => workers(app, now),
        View::Blocks => blocks(app, now),
    }
}

fn rates(app: &App) -> Table {
    let row = |(direction, verdict): (&str, &str)| {
        let count = |table: &str, snapshot: &Snapshot| {
            snapshot.counters[table][direction][verdict].as_u64().unwrap_or_default()
        };
        let packets = app.rate(|snapshot| count("packets", snapshot));
        let bits = app.rate(|snapshot| 8 * count("bytes", snapshot));
        let all = app.now().map(|now| count("packets", now) as f64);
        vec![direction.to_owned(), verdict.to_owned(), short(packets), short(bits), short(all)]
    };
    let both = DIRECTIONS.iter().flat_map(|&one| VERDICTS.map(|verdict| (one, verdict)));
    let columns = ["direction", "verdict", "packets/s", "bits/s", "packets"];
    Table {
        columns: columns.map(|title| always(title, 10)).to_vec(),
        rows: both.map(row).collect(),
    }
}

fn drops(app: &App, now: &Snapshot) -> Table {
    let count = |snapshot: &Snapshot, reason: &str| {
        snapshot.counters["drops"][reason].as_u64().unwrap_or_default()
    };
    let reasons = now.counters["drops"].as_object().into_iter().flatten();
    let mut all: Vec<(&String, Option<f64>, u64)> = reasons
        .map(|(reason, all)| {
            let rate = app.rate(|snapshot| count(snapshot, reason));
            (reason, rate, all.as_u64().unwrap_or_default())
        })
        .filter(|(.., all)| *all > 0)
        .collect();
    all.sort_by(|a, b| {
        let by_rate = b.1.unwrap_or_default().total_cmp(&a.1.unwrap_or_default());
        let by_count = b.2.cmp(&a.2);
        if app.sort == 0 { by_rate.then(by_count) } else { by_count.then(by_rate) }
    });
    let row = |(reason, rate, all): (&String, Option<f64>, u64)| {
        vec![reason.clone(), short(rate), short(Some(all as f64))]
    };
    let columns = vec![always("reason", 24), always("packets/s", 10), always("packets", 10)];
    let mut rows: Vec<_> = all.into_iter().map(row).collect();
    if rows.is_empty() {
        rows.push(["none", "", ""].map(str::to_owned).to_vec());
    }
    Table { columns, rows }
}

/// The share of a pool that is in use: of its blocks if it has blocks, otherwise of the ports of
/// the protocol with the largest share. The gateway counts ports as alerts do: ports in hold-down
/// and reserved ports are in nobody's use.
pub(crate) fn fullness(pool: &Value) -> f64 {
    let (used, free) = (pool["taken_blocks"].as_f64(), pool["free_blocks"].as_f64());
    if let (Some(used), Some(free)) = (used, free) {
        return if used + free > 0.0 { used / (used + free) } else { 0.0 };
    }
    let shares = pool["in_use"].as_object().into_iter().flatten();
    shares.filter_map(|(_, share)| share.as_f64()).fold(0.0, f64::max)
}

const POOLS: [Column; 9] = [
    always("pool", 8),
    ranked(2, "addresses", 9),
    always("tcp", 7),
    always("udp", 7),
    ranked(1, "icmp", 7),
    ranked(3, "held", 7),
    always("free blocks", 11),
    always("full", 7),
    ranked(4, "", BAR as usize),
];

fn pools(app: &App, now: &Snapshot) -> Table {
    let mut all: Vec<&Value> = now.pools.as_array().into_iter().flatten().collect();
    match app.sort {
        0 => all.sort_by(|a, b| {
            let by_name = || word(&a["name"]).cmp(&word(&b["name"]));
            fullness(b).total_cmp(&fullness(a)).then_with(by_name)
        }),
        _ => all.sort_by_key(|pool| word(&pool["name"])),
    }
    let row = |pool: &Value| {
        let share = fullness(pool);
        let used = |protocol: &str| short(pool["used"][protocol].as_f64());
        vec![
            pool["name"].as_str().unwrap_or_default().to_owned(),
            pool["addresses"].to_string(),
            used("tcp"),
            used("udp"),
            used("icmp"),
            short(Some(sum(&pool["held"]) as f64)),
            pool["free_blocks"].as_u64().map_or("-".to_owned(), |blocks| blocks.to_string()),
            format!("{:.1} %", 100.0 * share),
            "#".repeat((share.clamp(0.0, 1.0) * BAR).ceil() as usize),
        ]
    };
    Table { columns: POOLS.to_vec(), rows: all.into_iter().map(row).collect() }
}

const SUBSCRIBERS: [Column; 8] = [
    always("subscriber", 15),
    ranked(1, "realm", 10),
    always("mappings", 8),
    ranked(3, "tcp", 7),
    ranked(3, "udp", 7),
    ranked(4, "other", 7),
    always("sessions", 8),
    always("external", 15),
];

fn subscribers(app: &App, now: &Snapshot) -> Table {
    let Some(all) = &now.subscribers else { return only("being counted") };
    let mut all: Vec<&Value> = all.iter().collect();
    match app.sort {
        0 => all.sort_by_key(|one| Reverse(mappings(one))),
        _ => all.sort_by_key(|one| Reverse(one["sessions"].as_u64())),
    }
    let row = |one: &Value| {
        let of = |protocol: &str| short(one["mappings"][protocol].as_f64());
        vec![
            word(&one["subscriber"]),
            word(&one["realm"]),
            short(Some(mappings(one) as f64)),
            of("tcp"),
            of("udp"),
            of("other"),
            short(one["sessions"].as_f64()),
            word(&one["external"]),
        ]
    };
    with_realms(Table { columns: SUBSCRIBERS.to_vec(), rows: all.into_iter().map(row).collect() })
}

const WORKERS: [Column; 8] = [
    always("worker", 6),
    always("frames/s", 9),
    always("busy", 6),
    ranked(1, "asleep", 6),
    always("mappings", 9),
    ranked(2, "handed/s", 9),
    ranked(2, "taken/s", 9),
    always("lost", 8),
];

fn workers(app: &App, now: &Snapshot) -> Table {
    let row = |place: usize, worker: &Value| {
        let count = |snapshot: &Snapshot, key: &str| {
            snapshot.workers[place][key].as_u64().unwrap_or_default()
        };
        let rate = |key: &str| app.rate(|snapshot| count(snapshot, key));
        // Nanoseconds a second.
        let share = |key: &str| {
            rate(key).map_or("-".to_owned(), |nanos| format!("{:.0} %", (nanos / 1e7).min(100.0)))
        };
        vec![
            worker["worker"].to_string(),
            short(rate("frames")),
            share("busy_ns"),
            share("asleep_ns"),
            short(worker["mappings"].as_f64()),
            short(rate("handed_over")),
            short(rate("taken_over")),
            short(worker["hand_over_full"].as_f64()),
        ]
    };
    let all = now.workers.as_array().into_iter().flatten().enumerate();
    Table { columns: WORKERS.to_vec(), rows: all.map(|(place, one)| row(place, one)).collect() }
}

const BLOCKS: [Column; 9] = [
    always("external", 15),
    always("ports", 11),
    always("subscriber", 15),
    ranked(2, "realm", 10),
    always("kind", 13),
    ranked(4, "pool", 8),
    ranked(1, "used", 6),
    ranked(3, "held", 6),
    ranked(5, "age", 8),
];

/// Owners of blocks of ports, or of the endpoint that is looked for.
fn blocks(app: &App, now: &Snapshot) -> Table {
    let Some(owners) = &now.owners else { return only("being looked for") };
    if let Some(message) = &owners.message {
        return only(message);
    }
    let mut all: Vec<&Value> = owners.entries.iter().collect();
    match app.sort {
        0 => all.sort_by_cached_key(|one| busiest_first(one)),
        _ => all.sort_by_cached_key(|one| by_address(one)),
    }
    let row = |one: &Value| {
        let count = |ports: &Value| ports.is_object().then(|| sum(ports) as f64);
        let age = one["age_s"].as_f64().map_or("-".to_owned(), duration);
        vec![
            word(&one["external"]),
            word(&one["ports"]),
            word(&one["subscriber"]),
            word(&one["realm"]),
            word(&one["kind"]),
            word(&one["pool"]),
            short(count(&one["used"])),
            short(count(&one["held"])),
            age,
        ]
    };
    with_realms(Table { columns: BLOCKS.to_vec(), rows: all.into_iter().map(row).collect() })
}

/// The table without the column of realms, if no row has a realm.
fn with_realms(mut table: Table) -> Table {
    let place = table.columns.iter().position(|column| column.title == "realm");
    if let Some(place) = place.filter(|&place| table.rows.iter().all(|row| row[place] == "-")) {
        table.columns.remove(place);
        table.rows.iter_mut().for_each(|row| drop(row.remove(place)));
    }
    table
}

/// A table with a message in place of rows, in lines that every usual screen has room for.
fn only(message: &str) -> Table {
    let mut lines: Vec<String> = Vec::new();
    for word in message.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.len() + 1 + word.len() <= MESSAGE_WIDTH => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    Table { columns: vec![always("", 0)], rows: lines.into_iter().map(|line| vec![line]).collect() }
}

fn word(value: &Value) -> String {
    value.as_str().unwrap_or("-").to_owned()
}

/// The sum over all protocols.
fn sum(by_protocol: &Value) -> u64 {
    let counts = by_protocol.as_object().into_iter().flatten();
    counts.filter_map(|(_, count)| count.as_u64()).sum()
}

/// Seconds in two units at most.
fn duration(seconds: f64) -> String {
    let whole = seconds as u64;
    match whole {
        0..60 => format!("{whole} s"),
        60..3600 => format!("{} min", whole / 60),
        3600..86_400 => format!("{} h {} min", whole / 3600, whole / 60 % 60),
        _ => format!("{} d {} h", whole / 86_400, whole / 3600 % 24),
    }
}

/// A number in at most eight characters; `None`: it is not known yet.
pub(crate) fn short(number: Option<f64>) -> String {
    let Some(number) = number else { return "-".to_owned() };
    match number {
        n if n < 10_000.0 => format!("{n:.0}"),
        n if n < 10_000_000.0 => format!("{:.1} k", n / 1e3),
        n if n < 10_000_000_000.0 => format!("{:.1} M", n / 1e6),
        n => format!("{:.1} G", n / 1e9),
    }
}
