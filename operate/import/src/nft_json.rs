//! Reader of the output of `nft -j list ruleset` (libnftables-json(5)): a list of objects, each a
//! table, a chain, a set or a rule with its expressions. Remarks give the number of the object
//! instead of a line.

use crate::ImportError;
use crate::address::{Ports, Range};
use crate::netfilter::Chains;
use crate::nft_rule::{self, IPV6, SEGMENT_SIZE, StatementArguments, Unreadable, hook_of, policy};
use crate::nft_sets::{Element, Lookup, Pair, RuleDraft, Sets};
use crate::plan::{Origin, Plan};
use serde_json::Value;

pub(crate) fn read(text: &str, plan: &mut Plan) -> Result<(), ImportError> {
    let root: Value = serde_json::from_str(text).map_err(|error| ImportError::Malformed {
        line: error.line(),
        message: format!("is no JSON ({error})"),
    })?;
    let Some(objects) = root["nftables"].as_array() else {
        let message = "has no list \"nftables\", as `nft -j list ruleset` prints it".to_owned();
        return Err(ImportError::Malformed { line: 1, message });
    };
    let (mut chains, sets) = (Chains::new(), sets(objects));
    for (number, object) in objects.iter().enumerate() {
        if let Some(chain) = object.get("chain") {
            let entry =
                chains.entry(format!("{} {}", table(chain), word(&chain["name"]))).or_default();
            if let Some(hook) = chain["hook"].as_str() {
                entry.hook = Some(hook_of(&word(&chain["type"]), hook, &table(chain)));
            }
            if let Some(named) = chain["policy"].as_str() {
                let origin = Origin::new(number + 1, &chain.to_string());
                policy(named, origin, entry, plan);
            }
        }
        if let Some(rule) = object.get("rule") {
            let (comment, expr) = (rule["comment"].as_str(), rule["expr"].to_string());
            let origin = Origin::with_comment(number + 1, comment, &expr);
            if rule["family"] == "ip6" {
                plan.without(&origin, IPV6);
                continue;
            }
            let table = table(rule);
            let entries = nft_rule::entries(&origin, read_rule(rule, &table, &sets), plan);
            let name = format!("{table} {}", word(&rule["chain"]));
            chains.entry(name).or_default().entries.extend(entries);
        }
    }
    nft_rule::finish(&chains, "`nft -j list ruleset` prints all of them, as root", plan)
}

fn word(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// Table of an object.
fn table(object: &Value) -> String {
    format!("{} {}", word(&object["family"]), word(&object["table"]))
}

fn sets(objects: &[Value]) -> Sets {
    let mut sets = Sets::default();
    for object in objects {
        if let Some(set) = object.get("set") {
            let elements = list(&set["elem"]).iter().filter_map(element).collect();
            sets.sets.insert(format!("{} {}", table(set), word(&set["name"])), elements);
        }
        if let Some(map) = object.get("map") {
            let pairs = list(&map["elem"]).iter().filter_map(pair).collect();
            sets.maps.insert(format!("{} {}", table(map), word(&map["name"])), pairs);
        }
    }
    sets
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

/// Writes a value as `nft` writes it in text.
fn value(value: &Value) -> Option<String> {
    if let Some(prefix) = value.get("prefix") {
        return Some(format!("{}/{}", word(&prefix["addr"]), prefix["len"]));
    }
    if let Some([first, last]) = value.get("range").and_then(Value::as_array).map(Vec::as_slice) {
        return Some(format!("{}-{}", word(first), word(last)));
    }
    match value {
        Value::String(_) | Value::Number(_) => Some(word(value)),
        _ => None,
    }
}

/// An element of a set, without its comment, timeout and counters.
fn element(one: &Value) -> Option<Element> {
    let inner = one.get("elem").map_or(one, |outer| &outer["val"]);
    match inner.get("concat").and_then(Value::as_array) {
        Some(parts) => parts.iter().map(value).collect(),
        None => Some(vec![value(inner)?]),
    }
}

/// An element of a map.
fn pair(one: &Value) -> Option<Pair> {
    let [key, target] = list(one) else { return None };
    let key = element(key)?;
    let verdict = |target: &Value| {
        let (name, inner) = target.as_object()?.iter().next()?;
        match &inner["target"] {
            Value::String(chain) => Some(format!("{name} {chain}")),
            _ => Some(name.clone()),
        }
    };
    let value = element(target).or_else(|| Some(vec![verdict(target)?]))?;
    Some(Pair { key, value })
}

/// Elements of an anonymous or a named set.
fn elements(right: &Value, table: &str, sets: &Sets) -> Result<Option<Vec<Element>>, String> {
    if let Some(all) = right.get("set").and_then(Value::as_array).or_else(|| right.as_array()) {
        return Ok(all.iter().map(element).collect());
    }
    match right.as_str().and_then(|text| text.strip_prefix('@')) {
        Some(name) => Ok(sets.set(table, name)?.map(<[Element]>::to_vec)),
        None => Ok(element(right).map(|one| vec![one])),
    }
}

/// A map that selects a value.
fn lookup(map: &Value, table: &str, sets: &Sets) -> Result<Lookup, String> {
    let fields = fields(&map["key"]).ok_or("looks into a map by what natgate does not know")?;
    let data = &map["data"];
    let pairs = match data.as_str().and_then(|text| text.strip_prefix('@')) {
        Some(name) => sets.map(table, name)?,
        None => list(&data["set"]).iter().filter_map(pair).collect(),
    };
    Ok(Lookup { fields, pairs })
}

/// Fields that are matched together.
fn fields(left: &Value) -> Option<Vec<String>> {
    match left.get("concat").and_then(Value::as_array) {
        Some(parts) => parts.iter().map(field).collect(),
        None => Some(vec![field(left)?]),
    }
}

/// Field on the left side of a match, as `nft` writes it in text.
fn field(left: &Value) -> Option<String> {
    if let Some(payload) = left.get("payload") {
        return Some(format!("{} {}", payload["protocol"].as_str()?, payload["field"].as_str()?));
    }
    if let Some(fib) = left.get("fib") {
        let keys = match &fib["flags"] {
            Value::Array(keys) => keys.iter().map(word).collect::<Vec<_>>().join(" . "),
            key => word(key),
        };
        return Some(format!("fib {keys} {}", fib["result"].as_str()?));
    }
    for name in ["meta", "ct"] {
        if let Some(key) = left.get(name).and_then(|inner| inner["key"].as_str()) {
            return Some(format!("{name} {key}"));
        }
    }
    let drawn = ["numgen", "jhash", "symhash"].into_iter();
    drawn.into_iter().find(|name| left.get(name).is_some()).map(str::to_owned)
}

/// Reads the rule's matches and its action.
fn read_rule<'a>(
    rule: &Value,
    table: &'a str,
    sets: &'a Sets,
) -> Result<RuleDraft<'a>, Unreadable> {
    let mut draft = RuleDraft::new(sets, table);
    for expression in list(&rule["expr"]) {
        let Some((name, inner)) = expression.as_object().and_then(|all| all.iter().next()) else {
            continue;
        };
        let done = match &name[..] {
            "match" => compare(inner, table, sets, &mut draft),
            name => statement(name, inner, table, sets, &mut draft),
        };
        done.map_err(Unreadable::at(name))?;
    }
    Ok(draft)
}

fn compare(
    matched: &Value,
    table: &str,
    sets: &Sets,
    draft: &mut RuleDraft<'_>,
) -> Result<(), String> {
    let left = &matched["left"];
    let negated = matched["op"] == "!=";
    match (fields(left), elements(&matched["right"], table, sets)?) {
        (Some(fields), Some(elements)) => draft.compare(&fields, negated, &elements)?,
        (Some(fields), None) => draft.odd(&fields.join(" . ")),
        (None, _) if left.get("&").is_some() => draft.odd("tcp flags"),
        (None, _) => {
            let what = left.as_object().and_then(|left| left.keys().next());
            draft.odd(what.map_or("something", String::as_str));
        }
    }
    Ok(())
}

/// Reads the action of an expression, if it is one.
fn statement(
    mut name: &str,
    inner: &Value,
    table: &str,
    sets: &Sets,
    draft: &mut RuleDraft<'_>,
) -> Result<(), String> {
    let mut said = StatementArguments::default();
    match name {
        "jump" | "goto" => said.chain = word(&inner["target"]),
        "masquerade" | "redirect" => said.ports = ports(&inner["port"])?,
        "vmap" => return draft.end_by(name, &said, &lookup(inner, table, sets)?),
        "snat" | "dnat" => {
            said.ports = ports(&inner["port"])?;
            said.prefix = inner["flags"] == "netmap" || inner["type_flags"] == "prefix";
            if let Some(map) = inner["addr"].get("map") {
                return draft.end_by(name, &said, &lookup(map, table, sets)?);
            }
            said.to = inner.get("addr").and_then(value).as_deref().and_then(Range::parse);
        }
        "mangle" if inner["key"]["tcp option"]["name"] == "maxseg" => {
            name = SEGMENT_SIZE;
            said.size = inner["value"].as_u64().and_then(|size| u16::try_from(size).ok());
        }
        _ => {}
    }
    if let Some(action) = nft_rule::action(name, said, table)? {
        draft.end(&action);
    }
    Ok(())
}

fn ports(inner: &Value) -> Result<Option<Ports>, String> {
    if inner.is_null() {
        return Ok(None);
    }
    let text = value(inner);
    let ports = text.as_deref().and_then(|text| Ports::parse(text, '-'));
    ports.map(Some).ok_or_else(|| format!("{inner} are no ports"))
}
