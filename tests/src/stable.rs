//! A decoded trace without the values that differ between runs and compilers.

use serde_json::{Map, Value};

/// Keys that are removed: times, addresses in the program, ids of processes and threads.
const LEFT_OUT: [&str; 5] = [
    "time_ns",
    "duration_ns",
    "caller",
    "caller_symbol",
    "number",
];

/// Numbers up to this one are sizes and settings, larger ones addresses; the programs of the golden
/// tests are written so.
const LARGEST_PLAIN: u64 = 0xffff;

/// Longer texts are shortened.
const LONGEST: usize = 160;

/// The output of `cutape dump --format json`, one call a line, without volatile values: handles as
/// their labels, other addresses as `address`.
///
/// # Errors
/// Where the text is not an object a line.
pub fn stable_dump(text: &str) -> Result<String, String> {
    let mut out = String::new();
    for line in text.lines() {
        let value: Value =
            serde_json::from_str(line).map_err(|error| format!("not JSON: {error}: {line}"))?;
        let Value::Object(mut call) = value else {
            return Err(format!("not an object: {line}"));
        };
        mask_launch_parameters(&mut call);
        out += &stable(Value::Object(call)).to_string();
        out.push('\n');
    }
    Ok(out)
}

fn stable(value: Value) -> Value {
    match value {
        // How often the recorder notes the address space depends on how long calls take.
        Value::Array(list) => {
            let is_timed = |item: &Value| item["kind"] == "address_space";
            let kept = list.into_iter().filter(|item| !is_timed(item));
            kept.map(stable).collect()
        }
        Value::Object(map) => {
            let has_label = map.contains_key("label");
            let kept = map.into_iter().filter(|(key, _)| {
                !(LEFT_OUT.contains(&key.as_str()) || has_label && key == "value")
            });
            Value::Object(sorted(
                kept.map(|(key, value)| (key, stable(value))).collect(),
            ))
        }
        Value::String(text) if is_address(&text) => "address".into(),
        Value::String(text) if text.len() > LONGEST => shortened(&text).into(),
        other => other,
    }
}

/// Sorted by key.
fn sorted(mut entries: Vec<(String, Value)>) -> Map<String, Value> {
    entries.sort_by(|a, b| a.0.cmp(&b.0));
    entries.into_iter().collect()
}

/// The start of a long text, and a checksum of all of it.
fn shortened(text: &str) -> String {
    let start: String = text.chars().take(LONGEST / 2).collect();
    format!(
        "{start}… crc32 {:08x}",
        cutape_format::checksum(text.as_bytes())
    )
}

fn is_address(text: &str) -> bool {
    text.strip_prefix("0x")
        .and_then(|digits| u64::from_str_radix(digits, 16).ok())
        .is_some_and(|number| number > LARGEST_PLAIN)
}

/// Kernel parameters may contain addresses: only their number and size is kept.
fn mask_launch_parameters(call: &mut Map<String, Value>) {
    for (key, value) in call.iter_mut() {
        match value {
            _ if key == "launch" || key == "kernel_parameters" => mask_hex(value),
            Value::Object(inner) => mask_launch_parameters(inner),
            _ => {}
        }
    }
}

fn mask_hex(value: &mut Value) {
    match value {
        Value::Object(map) => {
            if map.contains_key("hex") {
                map.insert("hex".into(), "bytes".into());
            }
            map.values_mut().for_each(mask_hex);
        }
        Value::Array(list) => list.iter_mut().for_each(mask_hex),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn volatile_parts() {
        for (line, expected) in [
            (
                r#"{"function":"cuInit","call":0,"time_ns":5,"caller":"0x55e3d30aa2de","notes":[{"kind":"thread","number":7}]}"#,
                r#"{"call":0,"function":"cuInit","notes":[{"kind":"thread"}]}"#,
            ),
            (
                r#"{"a":{"value":"0x7f00aa0011"},"h":{"label":"context#1","value":"0x7f00"},"n":{"value":"0x10"}}"#,
                r#"{"a":{"value":"address"},"h":{"label":"context#1"},"n":{"value":"0x10"}}"#,
            ),
            (
                r#"{"launch":{"parameters":[{"hex":"00ff","size":2}]}}"#,
                r#"{"launch":{"parameters":[{"hex":"bytes","size":2}]}}"#,
            ),
            (
                r#"{"arguments":{"p":{"kernel_parameters":{"hex":"00ff"}},"q":{"hex":"00ff"}}}"#,
                r#"{"arguments":{"p":{"kernel_parameters":{"hex":"bytes"}},"q":{"hex":"00ff"}}}"#,
            ),
        ] {
            assert_eq!(stable_dump(line), Ok(format!("{expected}\n")));
        }
        assert!(stable_dump("no json").is_err());
    }
}
