//! What `nft -j list ruleset` prints (libnftables-json(5)): a list of objects, each a table, a chain, a set or a
//! rule with its expressions. In remarks the number of the object stands where other formats have a line.

use crate::ImportError;
use crate::address::{Ports, Range};
use crate::netfilter::{Action, Chains, Condition};
use crate::nft_rule::{self, IPV6, SEGMENT_SIZE, Said, Sets, apply, hook_of, policy};
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
                policy(named, &Origin::new(number + 1, &chain.to_string()), plan);
            }
        }
        if let Some(rule) = object.get("rule") {
            let origin = Origin::new(number + 1, &rule["expr"].to_string());
            if rule["family"] == "ip6" {
                plan.without(&origin, IPV6);
                continue;
            }
            let entry = nft_rule::entry(origin, read_rule(rule, &sets), plan);
            let name = format!("{} {}", table(rule), word(&rule["chain"]));
            chains.entry(name).or_default().entries.extend(entry);
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

/// The table that something is in.
fn table(object: &Value) -> String {
    format!("{} {}", word(&object["family"]), word(&object["table"]))
}

fn sets(objects: &[Value]) -> Sets {
    let sets = objects.iter().filter_map(|object| object.get("set"));
    let named = sets.map(|set| {
        let elements = set["elem"].as_array().map(Vec::as_slice).unwrap_or_default();
        let elements = elements.iter().filter_map(value).collect();
        (format!("{} {}", table(set), word(&set["name"])), elements)
    });
    named.collect()
}

/// A value as `nft` writes it in text.
fn value(value: &Value) -> Option<String> {
    if let Some(prefix) = value.get("prefix") {
        return Some(format!("{}/{}", word(&prefix["addr"]), prefix["len"]));
    }
    if let Some([first, last]) = value.get("range").and_then(Value::as_array).map(Vec::as_slice) {
        return Some(format!("{}-{}", word(first), word(last)));
    }
    match value {
        Value::String(_) | Value::Number(_) => Some(word(value)),
        Value::Object(element) => element.get("elem").and_then(|inner| inner.get("val")).map(word),
        _ => None,
    }
}

/// What stands on the right of a comparison.
fn values(right: &Value, table: &str, sets: &Sets) -> Option<Vec<String>> {
    if let Some(elements) = right.get("set").and_then(Value::as_array) {
        return elements.iter().map(value).collect();
    }
    let one = value(right)?;
    match one.strip_prefix('@') {
        Some(name) => sets.get(&format!("{table} {name}")).cloned(),
        None => Some(vec![one]),
    }
}

/// The field that stands on the left, as `nft` writes it in text.
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
    let key = left.get("meta").and_then(|meta| meta["key"].as_str())?;
    Some(format!("meta {key}"))
}

/// What a rule matches and does.
fn read_rule(rule: &Value, sets: &Sets) -> Result<(Condition, Option<Action>), String> {
    let (mut condition, mut action, table) = (Condition::default(), None, table(rule));
    for expression in rule["expr"].as_array().map(Vec::as_slice).unwrap_or_default() {
        if let Some(matched) = expression.get("match") {
            compare(matched, &table, sets, &mut condition);
        } else if let Some(done) = done(expression, &table)? {
            action = Some(done);
        }
    }
    Ok((condition, action))
}

fn compare(matched: &Value, table: &str, sets: &Sets, condition: &mut Condition) {
    let left = &matched["left"];
    let negated = matched["op"] == "!=";
    match (field(left), values(&matched["right"], table, sets)) {
        (Some(field), Some(values)) => apply(&field, negated, &values, condition),
        (Some(field), None) => condition.odd.push(field),
        (None, _) if left.get("&").is_some() => condition.odd.push("tcp flags".into()),
        (None, _) => {
            let what = left.as_object().and_then(|left| left.keys().next());
            condition.odd.push(what.map_or_else(|| "something".into(), Clone::clone));
        }
    }
}

/// What a rule does, if this expression says it.
fn done(expression: &Value, table: &str) -> Result<Option<Action>, String> {
    let Some((name, inner)) = expression.as_object().and_then(|object| object.iter().next()) else {
        return Ok(None);
    };
    let (mut name, mut said) = (&name[..], Said::default());
    match name {
        "jump" | "goto" => said.chain = word(&inner["target"]),
        "masquerade" | "redirect" => said.ports = ports(&inner["port"])?,
        "snat" | "dnat" => {
            said.to = inner.get("addr").and_then(value).as_deref().and_then(Range::parse);
            said.ports = ports(&inner["port"])?;
            said.prefix = inner["flags"] == "netmap" || inner["type_flags"] == "prefix";
        }
        "mangle" if inner["key"]["tcp option"]["name"] == "maxseg" => {
            name = SEGMENT_SIZE;
            said.size = inner["value"].as_u64().and_then(|size| u16::try_from(size).ok());
        }
        _ => {}
    }
    nft_rule::action(name, said, table)
}

fn ports(inner: &Value) -> Result<Option<Ports>, String> {
    if inner.is_null() {
        return Ok(None);
    }
    let text = value(inner);
    let ports = text.as_deref().and_then(|text| Ports::parse(text, '-'));
    ports.map(Some).ok_or_else(|| format!("{inner} are no ports"))
}
