//! The gateway's answers as tables for people.

use super::What;
use serde_json::Value;
use std::fmt::Write;
use std::time::{SystemTime, UNIX_EPOCH};

/// A column: its title, the key of its values, its width. Numbers are aligned to the right. The
/// last column has no width.
#[derive(Clone, Copy)]
struct Column {
    title: &'static str,
    key: &'static str,
    width: usize,
}

impl Column {
    fn is(&self, other: &Self) -> bool {
        (self.title, self.key) == (other.title, other.key)
    }
}

const fn column(title: &'static str, key: &'static str, width: usize) -> Column {
    Column { title, key, width }
}

const MAPPINGS: &[Column] = &[
    column("protocol", "protocol", 8),
    column("internal", "internal", 21),
    column("external", "external", 21),
    column("kind", "kind", 13),
    column("sessions", "sessions", 8),
    column("age", "age_s", 9),
    column("expires in", "expires_in_s", 10),
    column("packets out", "packets_out", 12),
    column("packets in", "packets_in", 12),
    column("realm", "realm", 0),
];

const SESSIONS: &[Column] = &[
    column("protocol", "protocol", 8),
    column("internal", "internal", 21),
    column("external", "external", 21),
    column("remote", "remote", 21),
    column("state", "state", 11),
    column("expires in", "expires_in_s", 10),
    column("packets out", "packets_out", 12),
    column("packets in", "packets_in", 12),
    column("realm", "realm", 0),
];

const SUBSCRIBERS: &[Column] = &[
    column("subscriber", "subscriber", 15),
    column("external", "external", 15),
    column("tcp", "mappings/tcp", 8),
    column("udp", "mappings/udp", 8),
    column("other", "mappings/other", 8),
    column("sessions", "sessions", 9),
    column("realm", "realm", 0),
];

const BLOCKS: &[Column] = &[
    column("pool", "pool", 12),
    column("external", "external", 15),
    column("ports", "ports", 11),
    column("subscriber", "subscriber", 15),
    column("kind", "kind", 13),
    column("tcp used", "used/tcp", 8),
    column("udp used", "used/udp", 8),
    column("icmp used", "used/icmp", 9),
    column("tcp held", "held/tcp", 8),
    column("udp held", "held/udp", 8),
    column("icmp held", "held/icmp", 9),
    column("age", "age_s", 9),
    column("released in", "released_in_s", 11),
    column("realm", "realm", 0),
];

const RULES: &[Column] = &[
    column("kind", "kind", 7),
    column("priority", "priority", 8),
    column("source", "match/source", 18),
    column("destination", "match/destination", 18),
    column("port", "match/port", 5),
    column("pool", "pool", 12),
    column("to", "to", 21),
    column("realm", "realm", 0),
];

const ROUTES: &[Column] = &[
    column("prefix", "prefix", 18),
    column("via", "via", 15),
    column("side", "side", 7),
    column("origin", "origin", 10),
    column("realm", "realm", 0),
];

const NEIGHBORS: &[Column] = &[
    column("side", "side", 7),
    column("address", "address", 15),
    column("hardware", "mac", 17),
    column("state", "state", 10),
    column("asking", "asking", 6),
    column("held", "held", 5),
    column("realm", "realm", 0),
];

const POOLS: &[Column] = &[
    column("pool", "name", 12),
    column("addresses", "addresses", 9),
    column("draining", "draining", 8),
    column("ports", "ports", 12),
    column("tcp used", "used/tcp", 10),
    column("udp used", "used/udp", 10),
    column("icmp used", "used/icmp", 10),
    column("udp held", "held/udp", 10),
    column("icmp held", "held/icmp", 10),
    column("reserved", "reserved/udp", 10),
    column("blocks free", "free_blocks", 11),
    column("mappings", "mappings", 10),
    column("subscribers", "subscribers", 11),
];

const BINDINGS: &[Column] = &[
    column("ipv4", "ipv4", 15),
    column("psid", "psid", 5),
    column("of bits", "psid_length", 7),
    column("offset", "psid_offset", 6),
    column("b4", "b4", 24),
    column("br", "br", 24),
    column("ports", "ports", 0),
];

const DOMAINS: &[Column] = &[
    column("kind", "kind", 6),
    column("ipv4", "ipv4", 18),
    column("ipv6", "ipv6", 24),
    column("end", "end", 24),
    column("ea bits", "ea_length", 7),
    column("offset", "psid_offset", 6),
    column("bindings", "bindings", 9),
    column("packets out", "packets_out", 12),
    column("packets in", "packets_in", 12),
    column("spoofed", "spoofed", 9),
];

const EXPECTATIONS: &[Column] = &[
    column("alg", "kind", 4),
    column("protocol", "protocol", 8),
    column("internal", "internal", 21),
    column("external", "external", 21),
    column("remote", "remote", 21),
    column("once", "once", 4),
    column("expires in", "expires_in_s", 10),
    column("realm", "realm", 0),
];

const SERVERS: &[Column] = &[
    column("external", "external", 21),
    column("protocol", "protocol", 8),
    column("internal", "internal", 21),
    column("weight", "weight", 6),
    column("drains", "drain", 6),
    column("backup", "backup", 6),
    column("state", "state", 9),
    column("since", "since_s", 9),
    column("succeeded", "succeeded", 9),
    column("failed", "failed", 9),
    column("failure", "failure", 19),
    column("realm", "realm", 0),
];

/// The column behind that of internal endpoints, if there are subscribers of DS-Lite.
const B4: Column = column("b4", "subscriber", 15);

const COPY: Column = column("copy", "copy", 4);

/// The B4, or its prefix, of an entry whose host is behind the B4 of DS-Lite.
pub(crate) fn b4(entry: &Value) -> Option<&str> {
    let is_ipv4 = entry["internal"].as_str().is_some_and(|internal| !internal.starts_with('['));
    entry["subscriber"].as_str().filter(|subscriber| is_ipv4 && subscriber.contains(':'))
}

/// A table that gets its rows one by one. A column grows with the longest of its values so far,
/// such as an IPv6 address.
pub(super) struct Table(Vec<Column>);

impl Table {
    /// The table of a list.
    pub(super) fn of(what: What) -> Self {
        let columns = match what {
            What::Sessions => SESSIONS,
            What::Subscribers => SUBSCRIBERS,
            What::Blocks => BLOCKS,
            What::Rules => RULES,
            What::Routes => ROUTES,
            What::Neighbors => NEIGHBORS,
            What::Pools => POOLS,
            What::Bindings => BINDINGS,
            What::Domains => DOMAINS,
            What::Expectations => EXPECTATIONS,
            What::Servers => SERVERS,
            What::Mappings | What::Counters | What::Health | What::Workers => MAPPINGS,
        };
        Self(columns.to_vec())
    }

    /// Adds columns before the first row that needs them: B4s, and copies of a pair. Returns true
    /// if the head changes.
    pub(super) fn prepare(&mut self, entry: &Value) -> bool {
        let of_b4 = self.place("internal").filter(|_| b4(entry).is_some()).map(|at| (at + 1, B4));
        let is_wider = self.add(of_b4);
        let of_copy = self.place("realm").filter(|_| entry["copy"].is_boolean());
        self.add(of_copy.map(|at| (at, COPY))) || is_wider
    }

    fn place(&self, key: &str) -> Option<usize> {
        self.0.iter().position(|column| column.key == key)
    }

    /// Adds a column at a place, if the table does not have it. Returns true if so.
    fn add(&mut self, column: Option<(usize, Column)>) -> bool {
        let is_there = |new: &Column| self.0.iter().any(|known| known.is(new));
        let Some((place, column)) = column.filter(|(_, new)| !is_there(new)) else { return false };
        self.0.insert(place, column);
        true
    }

    pub(super) fn head(&self) -> String {
        let cells = self.0.iter().map(|column| (column, column.title.to_owned(), false));
        line(cells)
    }

    pub(super) fn row(&mut self, entry: &Value) -> String {
        let cells = self.0.iter_mut().map(|column| {
            let value = column.key.split('/').fold(entry, |value, key| &value[key]);
            let text = match column.is(&B4) {
                true => b4(entry).unwrap_or_default().to_owned(),
                false => cell(column.key, value),
            };
            if column.width > 0 {
                column.width = column.width.max(text.chars().count());
            }
            (&*column, text, value.is_number())
        });
        line(cells)
    }
}

fn line<'c>(cells: impl Iterator<Item = (&'c Column, String, bool)>) -> String {
    let mut line = String::new();
    for (column, text, is_number) in cells {
        let width = column.width;
        // Writing to a string does not fail.
        let _ = match is_number {
            true => write!(line, "{text:>width$}  "),
            false => write!(line, "{text:<width$}  "),
        };
    }
    line.truncate(line.trim_end().len());
    line.push('\n');
    line
}

fn cell(key: &str, value: &Value) -> String {
    match value {
        Value::Null if key == "expires_in_s" => "never".into(),
        Value::Null => String::new(),
        Value::Bool(yes) => if *yes { "yes" } else { "no" }.into(),
        // A rule with port 0 applies to every port.
        Value::Number(number) if key == "match/port" && number.as_u64() == Some(0) => "any".into(),
        Value::Number(number) if key.ends_with("_s") => {
            duration(number.as_f64().unwrap_or_default())
        }
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// Seconds in a short form for people.
pub(crate) fn duration(seconds: f64) -> String {
    let whole = seconds as u64;
    match whole {
        0..60 => format!("{seconds:.1}s"),
        60..3600 => format!("{}m{:02}s", whole / 60, whole % 60),
        3600..86_400 => format!("{}h{:02}m", whole / 3600, whole / 60 % 60),
        _ => format!("{}d{:02}h", whole / 86_400, whole / 3600 % 24),
    }
}

/// The text of an answer that arrives as one object.
pub(super) fn text(what: What, object: &Value) -> String {
    match what {
        What::Counters => return counters(object),
        What::Health => return health(object),
        _ => {}
    }
    let mut table = Table::of(what);
    let entries = object[what.name()].as_array().map(Vec::as_slice).unwrap_or_default();
    for entry in entries {
        table.prepare(entry);
    }
    let rows: Vec<String> = entries.iter().map(|entry| table.row(entry)).collect();
    match entries.is_empty() {
        true => format!("no {}\n", what.name()),
        false => std::iter::once(table.head()).chain(rows).collect(),
    }
}

/// Health: first the parts that need attention, then each part with its state.
pub(crate) fn health(object: &Value) -> String {
    let word = |value: &Value| match value {
        Value::String(text) => text.clone(),
        Value::Null => "-".to_owned(),
        other => other.to_string(),
    };
    let list = |key: &str| object[key].as_array().cloned().unwrap_or_default();
    let running = object["running_s"].as_f64().unwrap_or_default();
    let mut text = format!(
        "{}: natgate {}, running for {running:.0} s: {}\n",
        word(&object["host"]),
        word(&object["version"]),
        if object["ok"] == true { "well" } else { "not well" }
    );
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
    for alarm in list("alarms") {
        let age = duration((now - alarm["since"].as_f64().unwrap_or(now)).max(0.0));
        let (severity, problem) = (word(&alarm["severity"]), word(&alarm["text"]));
        text += &format!("  {severity} for {age}, problem: {problem}\n");
    }
    let mut row = |kind: &str, name: String, state: String| {
        text += &format!("{kind:<9} {name:<40} {state}\n");
    };
    for link in list("links") {
        let place = [&link["device"], &link["side"]].map(word).join(" ");
        row("link", place, word(&link["state"]));
    }
    for hop in list("next_hops") {
        let place = [&hop["address"], &hop["side"]].map(word).join(" ");
        row("next hop", place, word(&hop["state"]));
    }
    for server in list("servers") {
        let place = [&server["internal"], &server["external"]].map(word).join(" of ");
        row("server", place, word(&server["state"]));
    }
    for log in list("logs") {
        let [waiting, lost] = ["waiting", "lost"].map(|key| word(&log[key]));
        let state = format!("{}, {waiting} wait, {lost} lost", word(&log["state"]));
        row("log", word(&log["name"]), state);
    }
    for which in ["announced", "learnt"] {
        row("routes", which.to_owned(), word(&object["routes"][which]));
    }
    for worker in list("workers") {
        let busy = worker["busy"].as_f64().map(|busy| format!(", {:.0} % busy", 100.0 * busy));
        let state = word(&worker["state"]) + &busy.unwrap_or_default();
        row("worker", word(&worker["worker"]), state);
    }
    if let Some((partner, state)) = of_pair(&object["pair"]) {
        row("pair", partner, state);
    }
    text
}

/// The partner of a node of a pair, and what the node knows about the pair.
fn of_pair(pair: &Value) -> Option<(String, String)> {
    let [node, partner, state] =
        ["node", "partner", "state"].map(|key| pair[key].as_str().unwrap_or_default());
    let owned = pair["owned"].as_array()?;
    let numbers: Vec<String> = owned.iter().map(Value::to_string).collect();
    let are_owned = pair["unowned"].as_array().is_some_and(Vec::is_empty);
    let is_standby = state == "connected" && are_owned;
    let mut text = state.to_owned();
    text += &match &numbers[..] {
        [] if is_standby => format!(", node {node} is standby: owns no slice"),
        [] => format!(", node {node} owns no slice"),
        [one] => format!(", node {node} owns slice {one}"),
        some if some.len() <= 8 => format!(", node {node} owns slices {}", some.join(", ")),
        many => format!(", node {node} owns {} slices", many.len()),
    };
    for slice in pair["resting"].as_array().into_iter().flatten() {
        let time = duration(slice["rests_s"].as_f64().unwrap_or_default());
        text += &format!(", slice {} rests for {time}", slice["slice"]);
    }
    Some((format!("with node {partner}"), text))
}

/// Counters: packets and bytes of each direction, then drops by reason, largest first.
fn counters(object: &Value) -> String {
    let mut text = format!(
        "{:<10} {:>14} {:>14} {:>14} {:>18}\n",
        "direction", "forwarded", "replied", "dropped", "bytes forwarded"
    );
    let count = |table: &str, direction: &str, verdict: &str| {
        object[table][direction][verdict].as_u64().unwrap_or_default()
    };
    for direction in ["outbound", "inbound", "hairpin", "local"] {
        let [forwarded, replied, dropped] =
            ["forwarded", "replied", "dropped"].map(|verdict| count("packets", direction, verdict));
        let bytes = count("bytes", direction, "forwarded");
        let _ = writeln!(
            text,
            "{direction:<10} {forwarded:>14} {replied:>14} {dropped:>14} {bytes:>18}"
        );
    }
    let drops = object["drops"].as_object().into_iter().flatten();
    let mut drops: Vec<(&str, u64)> = drops
        .filter_map(|(reason, count)| Some((&reason[..], count.as_u64().filter(|n| *n > 0)?)))
        .collect();
    drops.sort_by_key(|&(reason, count)| (std::cmp::Reverse(count), reason));
    if let Some(overrun) = object["frames_too_fast"].as_u64().filter(|count| *count > 0) {
        drops.push(("frames that came too fast", overrun));
    }
    text += if drops.is_empty() { "\nnothing was dropped\n" } else { "\ndropped because of\n" };
    for (reason, count) in drops {
        let _ = writeln!(text, "{count:>14}  {reason}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn rows_stand_under_their_heads() {
        let mut table = Table::of(What::Mappings);
        let row = table.row(&json!({
            "protocol": "udp", "internal": "10.0.0.5:4000", "external": "203.0.113.1:5000",
            "kind": "dynamic", "sessions": 2, "age_s": 75.2, "expires_in_s": null,
            "packets_out": 12, "packets_in": 7,
        }));
        let head = table.head();
        for (title, value) in [("internal", "10.0.0.5:4000"), ("external", "203.0.113.1:5000")] {
            assert_eq!(head.find(title), row.find(value));
        }
        let shown: Vec<&str> = row.split_whitespace().collect();
        let expected = "udp 10.0.0.5:4000 203.0.113.1:5000 dynamic 2 1m15s never 12 7".split(' ');
        assert_eq!(shown, expected.collect::<Vec<_>>());
    }

    #[test]
    fn health_tells_what_a_node_of_a_pair_owns() {
        let told = |owned: &[u32], state: &str, resting: Value, unowned: &[u32]| {
            let pair = json!({
                "node": "a", "partner": "b", "state": state, "owned": owned, "unowned": unowned,
                "resting": resting,
            });
            let text = health(&json!({ "ok": true, "pair": pair }));
            let line = text.lines().find(|line| line.starts_with("pair ")).expect("a line");
            line.split_whitespace().collect::<Vec<_>>().join(" ")
        };
        let standby = told(&[], "connected", json!([]), &[]);
        assert_eq!(standby, "pair with node b connected, node a is standby: owns no slice");
        let away = told(&[], "away", json!([]), &[]);
        assert_eq!(away, "pair with node b away, node a owns no slice");
        let unknown = told(&[], "connected", json!([]), &[1]);
        assert_eq!(unknown, "pair with node b connected, node a owns no slice");
        let resting = told(&[0, 3], "ended", json!([{ "slice": 3, "rests_s": 87.2 }]), &[]);
        let expected = "pair with node b ended, node a owns slices 0, 3, slice 3 rests for 1m27s";
        assert_eq!(resting, expected);
        assert!(!health(&json!({ "ok": true, "pair": null })).contains("pair"));
    }

    #[test]
    fn mappings_of_a_pair_tell_which_are_copies() {
        let mut table = Table::of(What::Mappings);
        let mapping = |copy: bool| json!({ "protocol": "udp", "copy": copy, "realm": "homes" });
        assert!(!table.prepare(&json!({ "protocol": "udp" })));
        assert!(table.prepare(&mapping(false)) && !table.prepare(&mapping(true)));
        let head = table.head();
        for (copy, expected) in [(false, "no"), (true, "yes")] {
            let row = table.row(&mapping(copy));
            let last: Vec<&str> = row.split_whitespace().rev().take(2).collect();
            assert_eq!(last, ["homes", expected]);
            assert_eq!(row.find(expected), head.find("copy"), "{head}{row}");
        }
    }

    #[test]
    fn columns_grow_with_addresses_of_ipv6() {
        let external = "203.0.113.1:5000";
        let mapping = |internal: &str| json!({ "internal": internal, "external": external });
        let mut table = Table::of(What::Mappings);
        let row = table.row(&mapping("[2001:db8:1234:5678:9abc:def0:1234:5678]:40000"));
        assert_eq!(table.head().find("external"), row.find("203.0.113.1"));
        assert_eq!(table.row(&mapping("10.0.0.5:4000")).find("203"), row.find("203.0.113.1"));
    }

    #[test]
    fn the_column_of_b4s_comes_with_the_first_one() {
        let entry = |internal: &str, subscriber: &str| {
            let external = "203.0.113.1:5000";
            json!({ "internal": internal, "subscriber": subscriber, "external": external })
        };
        let plain = entry("10.0.0.5:4000", "10.0.0.5");
        let nat64 = entry("[2001:db8::5]:4000", "2001:db8::5");
        let tunneled = entry("192.168.1.2:4000", "2001:db8:b4::1");
        let mut table = Table::of(What::Mappings);
        assert!(!table.prepare(&plain) && !table.prepare(&nat64));
        assert!(!table.head().contains("b4"));
        assert!(table.prepare(&tunneled) && !table.prepare(&tunneled));
        let row = table.row(&tunneled);
        let words: Vec<&str> = row.split_whitespace().collect();
        assert_eq!(words[..3], ["192.168.1.2:4000", "2001:db8:b4::1", "203.0.113.1:5000"]);
        assert_eq!(table.head().find("b4"), row.find("2001:db8:b4::1"));
        for other in [&plain, &nat64] {
            let words: Vec<String> =
                table.row(other).split_whitespace().map(str::to_owned).collect();
            assert_eq!(words[1], "203.0.113.1:5000");
        }
        let all = text(What::Expectations, &json!({ "expectations": [plain, tunneled] }));
        assert!(all.lines().next().is_some_and(|head| head.contains(" b4 ")), "{all}");
        // Other lists name subscribers in columns of their own.
        assert!(!Table::of(What::Subscribers).prepare(&tunneled));
    }

    #[test]
    fn a_rule_without_a_port_applies_to_any() {
        let rule = |port: u16| {
            let matched = json!({ "source": "10.1.0.0/16", "port": port });
            json!({ "kind": "snat", "match": matched })
        };
        let shown = |port| Table::of(What::Rules).row(&rule(port));
        assert!(shown(0).ends_with(" any\n"), "{}", shown(0));
        assert!(shown(80).ends_with(" 80\n"), "{}", shown(80));
    }

    #[test]
    fn durations_are_short() {
        for (seconds, shown) in [
            (0.25, "0.2s"),
            (59.9, "59.9s"),
            (61.0, "1m01s"),
            (7440.0, "2h04m"),
            (90_000.0, "1d01h"),
        ] {
            assert_eq!(duration(seconds), shown);
        }
    }

    #[test]
    fn counters_name_what_was_dropped_most_first() {
        let text = counters(&json!({
            "packets": { "outbound": { "forwarded": 7, "replied": 0, "dropped": 12 } },
            "bytes": { "outbound": { "forwarded": 700 } },
            "drops": { "no_route": 2, "filtered": 10, "no_mapping": 0 },
            "frames_too_fast": 5,
        }));
        let order = ["700", "filtered", "no_route", "frames that came too fast"];
        let places: Vec<_> = order.iter().map(|word| text.find(word)).collect();
        assert!(places.is_sorted() && places.iter().all(Option::is_some), "{text}");
        assert!(!text.contains("no_mapping"), "{text}");
    }

    #[test]
    fn health_is_told_in_words_with_problems_first() {
        let object = json!({
            "ok": false, "problems": ["log spool /x cannot be written"], "host": "nat1",
            "alarms": [{ "severity": "critical", "text": "log spool /x cannot be written" }],
            "version": "1.2.3", "running_s": 7.4,
            "links": [{ "device": "eth1", "side": "inside", "state": "up" }],
            "next_hops": [{ "address": "192.0.2.9", "side": "outside", "state": "resolved" }],
            "logs": [{ "name": "spool /x", "state": "failed", "waiting": 3, "lost": 0 }],
            "routes": { "announced": 2, "learnt": null },
            "workers": [{ "worker": 0, "state": "alive", "busy": 0.25 }],
        });
        let lines: Vec<String> = text(What::Health, &object)
            .lines()
            .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
            .collect();
        let expected = [
            "nat1: natgate 1.2.3, running for 7 s: not well",
            "critical for 0.0s, problem: log spool /x cannot be written",
            "link eth1 inside up",
            "next hop 192.0.2.9 outside resolved",
            "log spool /x failed, 3 wait, 0 lost",
            "routes announced 2",
            "routes learnt -",
            "worker 0 alive, 25 % busy",
        ];
        assert_eq!(lines, expected);
    }
}
