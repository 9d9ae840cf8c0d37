//! Random text as a configuration: as it is, or put together of the tables and keys that there are,
//! with values of which some fit. A configuration that is accepted can be explained; any other is
//! refused with sentences.

#![no_main]

use libfuzzer_sys::fuzz_target;
use natgate_control::config::{SECTIONS, read_text};
use natgate_control::meaning::Meaning;
use std::collections::BTreeMap;
use std::fmt::Write;

/// The tables that every configuration has.
const BASE: &str = "\
[inside]
device = \"eth1\"
address = \"10.0.0.1/8\"
[outside]
device = \"eth0\"
address = \"192.0.2.1/24\"
";

/// Tables of which there are several.
const LISTS: [&str; 8] = ["route", "realm", "pool", "class", "timeout", "log", "static", "rule"];

const VALUES: [&str; 64] = [
    "true",
    "false",
    "0",
    "1",
    "-1",
    "7",
    "80",
    "512",
    "65535",
    "65536",
    "4294967295",
    "9223372036854775807",
    "0.5",
    "nan",
    "1979-05-27",
    "\"\"",
    "\"eth2\"",
    "\"a\"",
    "\"default\"",
    "\"0s\"",
    "\"1s\"",
    "\"5m\"",
    "\"2h4m\"",
    "\"9999999d\"",
    "\"1KiB\"",
    "\"16MiB\"",
    "\"99999999TiB\"",
    "\"/tmp/a\"",
    "\"10.0.0.0/8\"",
    "\"10.1.0.0/16\"",
    "\"10.0.0.80\"",
    "\"10.0.0.80:8080\"",
    "\"203.0.113.1\"",
    "\"203.0.113.1:80\"",
    "\"203.0.113.1-203.0.113.9\"",
    "\"203.0.113.0/24\"",
    "\"198.51.100.0/24\"",
    "\"0.0.0.0/0\"",
    "\"255.255.255.255/32\"",
    "\"256.0.0.1\"",
    "\"::1\"",
    "\"1024-65535\"",
    "\"5000-4000\"",
    "\"random\"",
    "\"preserve\"",
    "\"block\"",
    "\"deterministic\"",
    "\"paired\"",
    "\"endpoint-independent\"",
    "\"address-and-port-dependent\"",
    "\"tcp\"",
    "\"udp\"",
    "\"inside\"",
    "\"snat\"",
    "\"dnat\"",
    "\"bypass\"",
    "\"drop\"",
    "[]",
    "[\"203.0.113.0/28\"]",
    "[\"203.0.113.1\", \"203.0.113.9-203.0.113.12\"]",
    "[\"10.0.0.0/8\", \"100.64.0.0/10\"]",
    "{ source = \"10.1.0.0/16\", port = 0 }",
    "{ destination = \"192.0.2.9\", port = 53 }",
    "{ tcp = 5, udp = 0, icmp = 4294967296 }",
];

fuzz_target!(|data: &[u8]| {
    let Some((kind, bytes)) = data.split_first() else { return };
    match kind % 8 {
        0 => read(&String::from_utf8_lossy(bytes)),
        1 => read(&format!("{BASE}{}", String::from_utf8_lossy(bytes))),
        _ => read(&composed(bytes)),
    }
});

fn read(text: &str) {
    match read_text(text, "fuzzed") {
        Ok(configuration) => {
            let meaning = Meaning::of(configuration);
            assert!(serde_json::to_value(&meaning).is_ok() && !meaning.to_string().is_empty());
        }
        Err(problems) => {
            assert!(!problems.is_empty());
            for problem in &problems {
                let sentence = problem.to_string();
                assert!(sentence.starts_with("fuzzed:"), "{sentence:?}");
                assert!(!sentence.contains(char::is_control), "{sentence:?}");
            }
        }
    }
}

/// Three bytes are a table, a key of it, and a value.
fn composed(bytes: &[u8]) -> String {
    type Table = BTreeMap<&'static str, &'static str>;
    let mut tables: BTreeMap<usize, Vec<Table>> = BTreeMap::new();
    // A pool that will do, so that the rest is looked at.
    let pool = SECTIONS.iter().position(|(name, _)| *name == "pool").unwrap_or_default();
    tables.insert(pool, vec![Table::from([("addresses", "[\"203.0.113.1\"]")])]);
    for three in bytes.chunks_exact(3) {
        let place = usize::from(three[0]) % SECTIONS.len();
        let (name, keys) = SECTIONS[place];
        let key = keys[usize::from(three[1]) % keys.len()];
        let value = VALUES[usize::from(three[2]) % VALUES.len()];
        let tables = tables.entry(place).or_insert_with(|| vec![Table::new()]);
        match tables.last_mut() {
            Some(last) if !LISTS.contains(&name) || !last.contains_key(key) => {
                last.insert(key, value);
            }
            _ => tables.push(Table::from([(key, value)])),
        }
    }
    let mut text = String::new();
    for (place, tables) in &tables {
        let (name, _) = SECTIONS[*place];
        for table in tables {
            let _ = match name {
                "" => Ok(()),
                name if LISTS.contains(&name) => writeln!(text, "[[{name}]]"),
                name => writeln!(text, "[{name}]"),
            };
            table.iter().for_each(|(key, value)| {
                let _ = writeln!(text, "{key} = {value}");
            });
        }
    }
    let sides = ["[inside]", "[outside]"].map(|side| text.contains(side));
    match sides {
        [false, false] => BASE.to_owned() + &text,
        [has_inside, has_outside] => {
            for (has, side) in [(has_inside, "inside"), (has_outside, "outside")] {
                if !has {
                    let _ = writeln!(text, "[{side}]\ndevice = \"{side}\"");
                }
            }
            text
        }
    }
}
