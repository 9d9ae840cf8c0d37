//! The difference between two texts of a configuration, key by key, for the log.
//!
//! Tables with names (pools, realms, classes) are compared by name. Of tables without names (rules,
//! logs) the difference lists the tables that only one text has. The texts contain no secrets: the
//! configuration names key files and holds no keys.

use std::collections::{BTreeMap, BTreeSet};
use toml::{Table, Value};

/// Most differences that are listed; further ones are counted.
const MOST: usize = 24;

/// Most characters of a value that are shown.
const LONGEST: usize = 80;

/// Largest text that is stored for comparison, bytes.
pub(crate) const MOST_TEXT: usize = 1 << 20;

/// Stands for an absent value.
const NONE: &str = "(none)";

/// Lists the differences as `key: old -> new`. Empty if a text is not TOML.
pub(crate) fn difference(old: &str, new: &str) -> Vec<String> {
    let (Ok(old), Ok(new)) = (old.parse::<Table>(), new.parse::<Table>()) else {
        return Vec::new();
    };
    let mut found = Differences::default();
    found.tables("", &old, &new);
    let Differences { mut told, further } = found;
    if further > 0 {
        told.push(format!("and {further} more"));
    }
    told
}

#[derive(Default)]
struct Differences {
    told: Vec<String>,
    further: usize,
}

impl Differences {
    fn tell(&mut self, key: &str, old: Option<&Value>, new: Option<&Value>) {
        match self.told.len() < MOST {
            true => self.told.push(format!("{key}: {} -> {}", shown(old), shown(new))),
            false => self.further += 1,
        }
    }

    fn tables(&mut self, path: &str, old: &Table, new: &Table) {
        let keys: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
        for key in keys {
            let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
            self.values(&path, old.get(key), new.get(key));
        }
    }

    fn values(&mut self, path: &str, old: Option<&Value>, new: Option<&Value>) {
        let (empty, none) = (Table::new(), Vec::new());
        match (old, new) {
            (old, new) if old == new => {}
            (Some(Value::Table(old)), Some(Value::Table(new))) => self.tables(path, old, new),
            (Some(Value::Table(old)), None) => self.tables(path, old, &empty),
            (None, Some(Value::Table(new))) => self.tables(path, &empty, new),
            (old, new) => match (tables_of(old, &none), tables_of(new, &none)) {
                (Some(old), Some(new)) => self.lists(path, &old, &new),
                _ => self.tell(path, old, new),
            },
        }
    }

    fn lists(&mut self, path: &str, old: &[&Table], new: &[&Table]) {
        match (by_name(old), by_name(new)) {
            (Some(old), Some(new)) => {
                let names: BTreeSet<&&str> = old.keys().chain(new.keys()).collect();
                for name in names {
                    let (old, new) = (old.get(*name), new.get(*name));
                    match (old, new) {
                        (Some(old), Some(new)) => self.tables(&format!("{path}.{name}"), old, new),
                        _ => self.whole(&format!("{path}.{name}"), old.copied(), new.copied()),
                    }
                }
            }
            _ => self.unnamed(path, old, new),
        }
    }

    /// Compares tables without names: lists the tables that only one text has.
    fn unnamed(&mut self, path: &str, old: &[&Table], new: &[&Table]) {
        let mut surplus: BTreeMap<String, (isize, &Table)> = BTreeMap::new();
        for (list, step) in [(old, -1), (new, 1)] {
            for &table in list {
                surplus.entry(table.to_string()).or_insert((0, table)).0 += step;
            }
        }
        let of = |sign: isize| -> Vec<&Table> {
            let tables = surplus.values().filter(|(count, _)| count.signum() == sign);
            tables.flat_map(|(count, table)| vec![*table; count.unsigned_abs()]).collect()
        };
        match (&of(-1)[..], &of(1)[..]) {
            ([], []) => self.order(path),
            ([old], [new]) => self.tables(path, old, new),
            (gone, come) => {
                gone.iter().for_each(|table| self.whole(path, Some(table), None));
                come.iter().for_each(|table| self.whole(path, None, Some(table)));
            }
        }
    }

    fn order(&mut self, path: &str) {
        match self.told.len() < MOST {
            true => self.told.push(format!("{path}: in another order")),
            false => self.further += 1,
        }
    }

    fn whole(&mut self, path: &str, old: Option<&Table>, new: Option<&Table>) {
        let value = |table: Option<&Table>| table.map(|table| Value::Table(table.clone()));
        self.tell(path, value(old).as_ref(), value(new).as_ref());
    }
}

/// The tables of an array of tables. An absent array has none.
fn tables_of<'v>(value: Option<&'v Value>, none: &'v Vec<Value>) -> Option<Vec<&'v Table>> {
    let items = match value {
        None => none,
        Some(Value::Array(items)) if !items.is_empty() => items,
        Some(_) => return None,
    };
    items.iter().map(Value::as_table).collect()
}

/// Indexes tables by name. `None` if a table has no name or two have the same.
fn by_name<'t>(tables: &[&'t Table]) -> Option<BTreeMap<&'t str, &'t Table>> {
    let named = tables.iter().map(|table| Some((table.get("name")?.as_str()?, *table)));
    let named: BTreeMap<&str, &Table> = named.collect::<Option<_>>()?;
    (named.len() == tables.len()).then_some(named)
}

/// Formats a value on one line; a long value is cut.
fn shown(value: Option<&Value>) -> String {
    let Some(value) = value else { return NONE.to_owned() };
    let text = match value {
        Value::Table(table) => inline(table),
        other => other.to_string(),
    };
    let plain: String =
        text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(LONGEST + 1).collect();
    match plain.char_indices().nth(LONGEST) {
        None => plain,
        Some((end, _)) => format!("{}...", &plain[..end]),
    }
}

fn inline(table: &Table) -> String {
    let entries = table.iter().map(|(key, value)| match value {
        Value::Table(inner) => format!("{key} = {}", inline(inner)),
        other => format!("{key} = {other}"),
    });
    format!("{{ {} }}", entries.collect::<Vec<_>>().join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(old: &str, new: &str) -> Vec<String> {
        difference(old, new)
    }

    #[test]
    fn keys_are_told_with_both_values() {
        let old = "[limits]\nmappings = 1000\n[nat]\nsubscribers = [\"10.0.0.0/8\"]\n";
        let new = "[limits]\nmappings = 2000\nsessions = 5\n";
        let expected = [
            "limits.mappings: 1000 -> 2000",
            "limits.sessions: (none) -> 5",
            "nat.subscribers: [\"10.0.0.0/8\"] -> (none)",
        ];
        assert_eq!(told(old, new), expected);
        assert_eq!(told(old, old), [""; 0]);
        assert_eq!(told(old, "no toml ="), [""; 0]);
    }

    #[test]
    fn named_tables_are_compared_by_name_and_others_as_a_whole() {
        let old = "[[pool]]\nname = \"a\"\nports = 1\n[[pool]]\nname = \"b\"\n\
                   [[rule]]\nkind = \"drop\"\n[[rule]]\nkind = \"bypass\"\n";
        let new = "[[pool]]\nname = \"c\"\n[[pool]]\nname = \"a\"\nports = 2\n\
                   [[rule]]\nkind = \"bypass\"\n[[rule]]\nkind = \"snat\"\nx = 1\n\
                   [[rule]]\nkind = \"snat\"\nx = 1\n";
        let expected = [
            "pool.a.ports: 1 -> 2",
            "pool.b: { name = \"b\" } -> (none)",
            "pool.c: (none) -> { name = \"c\" }",
            "rule: { kind = \"drop\" } -> (none)",
            "rule: (none) -> { kind = \"snat\", x = 1 }",
            "rule: (none) -> { kind = \"snat\", x = 1 }",
        ];
        assert_eq!(told(old, new), expected);
        let one =
            |x: u8| format!("[[rule]]\nkind = \"drop\"\n[[rule]]\nkind = \"snat\"\nx = {x}\n");
        assert_eq!(told(&one(1), &one(2)), ["rule.x: 1 -> 2"]);
        let turned = "[[rule]]\nkind = \"snat\"\nx = 1\n[[rule]]\nkind = \"drop\"\n";
        assert_eq!(told(&one(1), turned), ["rule: in another order"]);
    }

    #[test]
    fn many_and_long_differences_are_cut() {
        let many = |value: u8| (0..100).map(|at| format!("k{at} = {value}\n")).collect::<String>();
        let told_of_many = told(&many(1), &many(2));
        assert_eq!(told_of_many.len(), MOST + 1);
        assert_eq!(told_of_many[MOST], "and 76 more");
        let long = told("a = 1", &format!("a = \"\"\"x\n{}\"\"\"", "y".repeat(500)));
        assert_eq!(long.len(), 1);
        assert!(long[0].len() < 120 && !long[0].contains('\n') && long[0].ends_with("..."));
    }
}
