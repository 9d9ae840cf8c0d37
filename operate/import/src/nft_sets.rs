//! Sets and maps of nftables: rules that use them are expanded.
//!
//! A rule with a look-up in a map, or with several fields together, stands for one rule for each
//! element. The alternatives of all rules together, and the elements that they read, are limited.

use crate::address::{Ports, Range};
use crate::netfilter::{Action, Condition};
use crate::nft_rule::{StatementArguments, action, apply};
use std::cell::Cell;
use std::collections::BTreeMap;

/// Most rules that result from maps and fields together, in a whole file.
const MOST_ALTERNATIVES: usize = 50_000;

/// Most elements of sets that rules read, in a whole file, each as often as it is read.
const MOST_LOOKS: usize = 2_000_000;

/// An element of a set: one value, or one for each field.
pub(crate) type Element = Vec<String>;

/// An element of a map, and its value.
#[derive(Clone, Debug)]
pub(crate) struct Pair {
    pub(crate) key: Element,
    pub(crate) value: Element,
}

/// Key fields of a look-up in a map, and the map's elements.
#[derive(Debug)]
pub(crate) struct Lookup {
    /// Names such as `ip saddr`.
    pub(crate) fields: Vec<String>,
    pub(crate) pairs: Vec<Pair>,
}

/// Named sets and maps, by table and name.
#[derive(Debug, Default)]
pub(crate) struct Sets {
    pub(crate) sets: BTreeMap<String, Vec<Element>>,
    pub(crate) maps: BTreeMap<String, Vec<Pair>>,
    alternatives: Cell<usize>,
    looks: Cell<usize>,
}

impl Sets {
    /// Elements of a named set; `None` if there is no set of this name.
    pub(crate) fn set(&self, table: &str, name: &str) -> Result<Option<&[Element]>, String> {
        let set = self.sets.get(&format!("{table} {name}"));
        set.map(|set| self.look(set.len()).map(|()| &set[..])).transpose()
    }

    /// Elements of a named map.
    pub(crate) fn map(&self, table: &str, name: &str) -> Result<Vec<Pair>, String> {
        let map = self.maps.get(&format!("{table} {name}"));
        let map = map.ok_or_else(|| format!("looks into map {name}, which is not there"))?;
        self.look(map.len())?;
        Ok(map.clone())
    }

    fn look(&self, count: usize) -> Result<(), String> {
        self.looks.set(self.looks.get().saturating_add(count));
        match self.looks.get() > MOST_LOOKS {
            true => Err(format!("is beyond {MOST_LOOKS} elements of sets that are looked at")),
            false => Ok(()),
        }
    }

    fn alternatives(&self, count: usize) -> Result<(), String> {
        self.alternatives.set(self.alternatives.get().saturating_add(count));
        match self.alternatives.get() > MOST_ALTERNATIVES {
            true => {
                Err(format!("is beyond {MOST_ALTERNATIVES} rules that maps are written out as"))
            }
            false => Ok(()),
        }
    }
}

/// A rule that is being read: its conditions and actions.
pub(crate) struct RuleDraft<'a> {
    sets: &'a Sets,
    table: &'a str,
    conditions: Vec<Condition>,
    /// Actions, each with its condition.
    pub(crate) ends: Vec<(Condition, Action)>,
}

impl<'a> RuleDraft<'a> {
    pub(crate) fn new(sets: &'a Sets, table: &'a str) -> Self {
        Self { sets, table, conditions: vec![Condition::default()], ends: Vec::new() }
    }

    /// Adds a part that natgate's rules do not support.
    pub(crate) fn odd(&mut self, what: &str) {
        self.conditions.iter_mut().for_each(|one| one.odd.push(what.to_owned()));
    }

    /// Adds the condition that fields have one of these values, or none of them if `negated`.
    pub(crate) fn compare(
        &mut self,
        fields: &[String],
        negated: bool,
        elements: &[Element],
    ) -> Result<(), String> {
        if elements.is_empty() && !negated {
            return Err("never applies: its set is empty".to_owned());
        }
        if let [field] = fields {
            let values: Vec<String> = elements.iter().map(|element| element.join(" . ")).collect();
            self.conditions.iter_mut().for_each(|one| apply(field, negated, &values, one));
            return Ok(());
        }
        if negated {
            self.odd(&format!("{} together", fields.join(" . ")));
            return Ok(());
        }
        self.sets.alternatives(self.conditions.len().saturating_mul(elements.len()))?;
        let all = self.conditions.iter().flat_map(|condition| {
            elements.iter().map(move |element| with(condition, fields, element))
        });
        self.conditions = all.collect();
        Ok(())
    }

    /// Sets the rule's action.
    pub(crate) fn end(&mut self, action: &Action) {
        let ends = self.conditions.iter().map(|condition| (condition.clone(), action.clone()));
        self.ends = ends.collect();
    }

    /// Sets the action that a map selects.
    pub(crate) fn end_by(
        &mut self,
        name: &str,
        said: &StatementArguments,
        map: &Lookup,
    ) -> Result<(), String> {
        let fields = &map.fields;
        if matches!(name, "snat" | "dnat") && is_drawn(fields) {
            return self.end_by_chance(name, said, map);
        }
        self.sets.alternatives(self.conditions.len().saturating_mul(map.pairs.len()))?;
        let mut ends = Vec::new();
        for Pair { key, value } in &map.pairs {
            let Some(action) = chosen(name, said, value, self.table)? else { continue };
            for condition in &self.conditions {
                ends.push((with(condition, fields, key), action.clone()));
            }
        }
        self.ends = ends;
        Ok(())
    }

    /// Sets an action with a random or hashed choice between addresses, which a pool replaces.
    fn end_by_chance(
        &mut self,
        name: &str,
        said: &StatementArguments,
        map: &Lookup,
    ) -> Result<(), String> {
        if name != "snat" {
            let message = "spreads over several addresses; write [[static]] with servers = [...]";
            return Err(message.to_owned());
        }
        let mut addresses = Vec::new();
        for Pair { value, .. } in &map.pairs {
            let (range, _) = target(value)?;
            if !addresses.contains(&range) {
                addresses.push(range);
            }
        }
        self.end(&Action::Snat(addresses, said.ports));
        Ok(())
    }
}

/// True if the choice does not depend on the packet's meaning: random numbers or hashes.
fn is_drawn(fields: &[String]) -> bool {
    fields.iter().any(|field| {
        let name = field.split(' ').next().unwrap_or_default();
        matches!(name, "numgen" | "jhash" | "symhash")
    })
}

/// A condition that also requires the values of an element in fields.
fn with(condition: &Condition, fields: &[String], element: &[String]) -> Condition {
    let mut condition = condition.clone();
    if fields.len() != element.len() {
        condition.odd.push(format!("{} together", fields.join(" . ")));
        return condition;
    }
    for (field, value) in fields.iter().zip(element) {
        // The key `*` stands for all values without an element of their own.
        if value != "*" {
            apply(field, false, std::slice::from_ref(value), &mut condition);
        }
    }
    condition
}

/// Action of a statement with a map's value; `None` if the next rule decides.
fn chosen(
    name: &str,
    said: &StatementArguments,
    value: &[String],
    table: &str,
) -> Result<Option<Action>, String> {
    if !matches!(name, "snat" | "dnat") {
        let verdict = value.first().map_or("", String::as_str);
        let (verdict, chain) = verdict.split_once(' ').unwrap_or((verdict, ""));
        let said = StatementArguments { chain: chain.to_owned(), ..StatementArguments::default() };
        return match verdict {
            "continue" => Ok(None),
            _ => action(verdict, said, table),
        };
    }
    let (range, ports) = target(value)?;
    let ports = ports.or(said.ports);
    action(
        name,
        StatementArguments {
            to: Some(range),
            ports,
            prefix: said.prefix,
            ..StatementArguments::default()
        },
        table,
    )
}

/// Target that a map's value names: an address, and perhaps ports.
fn target(value: &[String]) -> Result<(Range, Option<Ports>), String> {
    let wrong = || format!("has {:?} in its map, which is no IPv4 address", value.join(" . "));
    let range = value.first().and_then(|text| Range::parse(text)).ok_or_else(wrong)?;
    let ports = value.get(1).map(|text| Ports::parse(text, '-').ok_or_else(wrong));
    Ok((range, ports.transpose()?))
}
