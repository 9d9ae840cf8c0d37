//! A path into a JSON value: segments behind slashes.
//!
//! A segment is the name of a field, the index in an array, or conditions on an array's elements,
//! such as `rules=100,finder=QNS`. The conditions select the first element whose fields have these
//! values. In a value, `+` stands for a space.

use serde_json::Value;

/// Number at a path.
pub(crate) fn number(root: &Value, path: &str) -> Option<f64> {
    path.split('/').skip(1).try_fold(root, step)?.as_f64()
}

fn step<'a>(value: &'a Value, segment: &str) -> Option<&'a Value> {
    match value {
        Value::Object(fields) => fields.get(segment),
        Value::Array(elements) => match segment.parse::<usize>() {
            Ok(place) => elements.get(place),
            Err(_) => elements.iter().find(|element| fulfils(element, segment)),
        },
        _ => None,
    }
}

fn fulfils(element: &Value, conditions: &str) -> bool {
    conditions.split(',').all(|condition| {
        let Some((field, wanted)) = condition.split_once('=') else { return false };
        let wanted = wanted.replace('+', " ");
        match &element[field] {
            Value::String(text) => *text == wanted,
            other => wanted.parse().is_ok_and(|wanted: Value| wanted == *other),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn fields_places_and_conditions_lead_to_a_number() {
        let root = json!({
            "sizes": [
                { "rules": 100, "finder": "QNS", "batched": false, "ns": { "median": 38.8 } },
                { "rules": 100, "finder": "in lines", "batched": true, "ns": { "median": 2 } },
            ],
            "text": "no number",
        });
        assert_eq!(number(&root, "/sizes/0/ns/median"), Some(38.8));
        assert_eq!(number(&root, "/sizes/finder=QNS,batched=false/ns/median"), Some(38.8));
        assert_eq!(number(&root, "/sizes/finder=in+lines,rules=100/ns/median"), Some(2.0));
        for path in ["/sizes/2", "/sizes/finder=other/ns/median", "/text", "/text/x", "/absent"] {
            assert_eq!(number(&root, path), None, "{path}");
        }
    }
}
