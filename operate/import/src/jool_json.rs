//! Jool's JSON: the file of an atomic configuration (`jool file handle`), NAT64 or SIIT.

use crate::ImportError;
use crate::jool::{Jool, Kind, Pool4};
use crate::plan::{MOST_ENTRIES, Origin, Plan};
use serde_json::Value;

pub(crate) fn read(text: &str, plan: &mut Plan) -> Result<(), ImportError> {
    let root: Value = serde_json::from_str(text).map_err(|error| ImportError::Malformed {
        line: error.line(),
        message: format!("is no JSON ({error})"),
    })?;
    let Some(object) = root.as_object() else {
        let message = "is no object, as Jool's file has one".to_owned();
        return Err(ImportError::Malformed { line: 1, message });
    };
    let finder = Lines { text };
    let known = ["pool4", "bib", "global", "eamt", "pool6", "denylist4", "blacklist4"];
    if !known.iter().any(|key| object.contains_key(*key)) {
        return Err(ImportError::Nothing("Jool's file has pool4, bib, eamt or global"));
    }
    let mut jool = Jool::new(plan);
    for (key, value) in object {
        let origin = finder.of(key, value);
        if value.as_array().is_some_and(|entries| entries.len() > MOST_ENTRIES) {
            let message = format!("has more than the {MOST_ENTRIES} entries that are imported");
            jool.plan.lost(&origin, message);
        }
        let entries = || value.as_array().into_iter().flatten().take(MOST_ENTRIES);
        match &key[..] {
            "instance" | "comment" => {}
            "framework" => jool.framework(value.as_str().unwrap_or_default(), &origin),
            "pool4" => {
                jool.is(Kind::Nat64);
                entries().for_each(|entry| pool4(entry, &finder, &mut jool));
            }
            "bib" => {
                jool.is(Kind::Nat64);
                entries().for_each(|entry| jool.bib(&finder.of_entry(entry)));
            }
            "eamt" => {
                jool.is(Kind::Siit);
                entries().for_each(|entry| eam(entry, &finder, &mut jool));
            }
            "denylist4" | "blacklist4" => {
                jool.is(Kind::Siit);
                entries().for_each(|entry| jool.deny(&finder.of_entry(entry)));
            }
            "global" => {
                for (key, value) in value.as_object().into_iter().flatten() {
                    jool.global(None, key, &word(value), &finder.of(key, value));
                }
            }
            // Files of Jool 3 have it here.
            "pool6" => {
                let prefix = value.get("prefix").unwrap_or(value);
                jool.pool6(None, &word(prefix), &origin);
            }
            other => {
                jool.plan.without(&origin, format!("`{other}` has no counterpart in natgate"));
            }
        }
    }
    jool.finish();
    Ok(())
}

/// The text of a value, as a command would have it.
fn word(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn pool4(entry: &Value, finder: &Lines<'_>, jool: &mut Jool<'_>) {
    let pool = Pool4 {
        prefix: entry["prefix"].as_str().unwrap_or_default(),
        ports: entry["port range"].as_str(),
        is_marked: entry["mark"].as_u64().is_some_and(|mark| mark != 0),
        has_iterations: ["max iterations", "max-iterations"]
            .iter()
            .any(|key| !entry[*key].is_null()),
    };
    jool.pool4(pool, &finder.of_entry(entry));
}

fn eam(entry: &Value, finder: &Lines<'_>, jool: &mut Jool<'_>) {
    let prefix = |key: &str| entry[key].as_str().unwrap_or_default();
    jool.eam(prefix("ipv4 prefix"), prefix("ipv6 prefix"), &finder.of_entry(entry));
}

/// Finds lines in the text: values of JSON do not know their lines.
struct Lines<'a> {
    text: &'a str,
}

impl Lines<'_> {
    /// The first line with this key.
    fn of(&self, key: &str, value: &Value) -> Origin {
        let wanted = format!("\"{key}\"");
        let line = self.text.lines().position(|line| line.contains(&wanted));
        Origin::new(line.map_or(0, |line| line + 1), &format!("{wanted}: {value}"))
    }

    /// The line with the entry's first address.
    fn of_entry(&self, entry: &Value) -> Origin {
        let words = entry.as_object().into_iter().flat_map(|entry| entry.values());
        let mut words = words.filter_map(Value::as_str).chain(entry.as_str());
        let address = words.find(|word| word.contains(['.', ':']));
        let quoted = address.map(|address| format!("\"{address}\""));
        let line =
            quoted.and_then(|quoted| self.text.lines().position(|line| line.contains(&quoted)));
        Origin::new(line.map_or(0, |line| line + 1), &entry.to_string())
    }
}
