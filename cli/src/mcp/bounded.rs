//! Answers of a size that an assistant can read.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

/// How many elements of an array may stay, from the first try on.
const ELEMENTS: [usize; 9] = [200, 100, 50, 20, 10, 5, 2, 1, 0];
/// How many bytes of a text may stay for each element.
const TEXT_FOR_EACH: usize = 200;

/// What was left out of an answer: elements by member, or bytes of texts.
pub(super) type LeftOut = BTreeMap<String, u64>;

/// Shortens arrays and texts until the value has at most `most` bytes, the same number of elements
/// everywhere.
pub(super) fn shorten(value: Value, most: usize) -> (Value, LeftOut) {
    let is_short = |value: &Value| value.to_string().len() <= most;
    if is_short(&value) {
        return (value, LeftOut::new());
    }
    for elements in ELEMENTS {
        let mut left_out = LeftOut::new();
        let text = (elements * TEXT_FOR_EACH).max(TEXT_FOR_EACH);
        let short = cut(&value, (elements, text), "", &mut left_out);
        if is_short(&short) {
            return (short, left_out);
        }
    }
    (
        Value::Object(Map::new()),
        LeftOut::from([("all".to_owned(), 1)]),
    )
}

fn cut(value: &Value, most: (usize, usize), path: &str, left_out: &mut LeftOut) -> Value {
    let mut lacks = |count: usize| {
        *left_out.entry(path.to_owned()).or_default() += count as u64;
    };
    match value {
        Value::Array(all) => {
            let kept = &all[..all.len().min(most.0)];
            if kept.len() < all.len() {
                lacks(all.len() - kept.len());
            }
            let path = format!("{path}[]");
            let kept = kept.iter().map(|value| cut(value, most, &path, left_out));
            kept.collect()
        }
        Value::Object(members) => {
            let members = members.iter().map(|(name, value)| {
                let path = match path {
                    "" => name.clone(),
                    _ => format!("{path}.{name}"),
                };
                (name.clone(), cut(value, most, &path, left_out))
            });
            Value::Object(members.collect())
        }
        Value::String(text) if text.len() > most.1 => {
            let end = text.floor_char_boundary(most.1);
            lacks(text.len() - end);
            format!("{}…", &text[..end]).into()
        }
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn long_answers_are_cut() {
        let calls: Vec<Value> = (0..1000)
            .map(|call| json!({"call": call, "rows": [1, 2, 3]}))
            .collect();
        let answer = json!({"total": 1000, "calls": calls, "name": "short"});
        for (most, kept, rows) in [
            (100_000, 1000, 3),
            (20_000, 200, 3),
            (400, 10, 3),
            (100, 2, 2),
            (70, 1, 1),
        ] {
            let (short, left_out) = shorten(answer.clone(), most);
            assert!(short.to_string().len() <= most);
            assert_eq!(short["total"], 1000);
            assert_eq!(short["name"], "short");
            let calls = short["calls"].as_array().unwrap();
            assert_eq!(calls.len(), kept, "{most}");
            assert_eq!(calls[0]["rows"].as_array().unwrap().len(), rows);
            assert_eq!(
                left_out.get("calls").copied().unwrap_or(0),
                1000 - kept as u64
            );
            let of_rows = (3 - rows as u64) * kept as u64;
            assert_eq!(left_out.get("calls[].rows").copied().unwrap_or(0), of_rows);
        }
        let (short, left_out) = shorten(json!({"text": "ä".repeat(10_000)}), 1000);
        let text = short["text"].as_str().unwrap();
        assert!(text.len() < 1000 && text.ends_with('…'));
        assert_eq!(
            left_out["text"] as usize + text.len() - '…'.len_utf8(),
            20_000
        );
        // Nothing in it can be cut.
        let members: Map<String, Value> = (0..100).map(|n| (n.to_string(), n.into())).collect();
        let (short, left_out) = shorten(members.into(), 50);
        assert_eq!((short, left_out["all"]), (json!({}), 1));
    }
}
