//! A decoded value, and how it is written as text and as JSON.

use std::fmt::Write;

use serde_json::{Map, Value as Json, json};

use crate::info::images::ImageFacts;

/// How many bytes text shows of a block.
const SHOWN_BYTES: usize = 16;
/// How many characters text shows of a string.
const SHOWN_CHARACTERS: usize = 200;

/// What stands in an argument or behind it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Value {
    /// A null pointer or handle.
    Null,
    Unsigned(u64),
    Signed(i64),
    Float(f64),
    Text(String),
    /// An enum's or a flag word's number and names.
    Named(i64, String),
    /// A pointer or handle, and what it is known to stand for.
    Address(u64, Option<String>),
    /// How many bytes there are, and the first of them.
    Bytes(u64, Vec<u8>),
    /// A module image.
    Image(ImageFacts),
    /// Bytes that the trace does not have: why, how many, and the start of their hash.
    Missing(&'static str, Option<u64>, Option<[u8; 16]>),
    /// Elements, and how many more there are.
    List(Vec<Value>, usize),
    /// A struct.
    Fields(Vec<(String, Value)>),
}

impl Value {
    /// Appends it as text.
    pub(crate) fn write(&self, out: &mut String) {
        // Writing to a String cannot fail.
        let _ = match self {
            Value::Null => write!(out, "NULL"),
            Value::Unsigned(value) => write!(out, "{value}"),
            Value::Signed(value) => write!(out, "{value}"),
            Value::Float(value) => write!(out, "{value:?}"),
            Value::Text(text) => write_quoted(text, out),
            Value::Named(_, name) => write!(out, "{name}"),
            Value::Address(value, None) => write!(out, "{value:#x}"),
            Value::Address(value, Some(label)) => write!(out, "{value:#x} {label}"),
            Value::Bytes(length, start) => write_bytes(*length, start, out),
            Value::Image(facts) => write!(out, "{facts}"),
            Value::Missing(why, None, _) => write!(out, "<{why}>"),
            Value::Missing(why, Some(bytes), None) => write!(out, "<{bytes} bytes, {why}>"),
            Value::Missing(why, Some(bytes), Some(hash)) => {
                write!(
                    out,
                    "<{bytes} bytes, {why}, blake3 {}…>",
                    hexadecimal(&hash[..4])
                )
            }
            Value::List(elements, more) => {
                out.push('[');
                write_joined(elements, out, Value::write);
                if *more > 0 {
                    let _ = write!(out, ", … {more} more");
                }
                out.push(']');
                Ok(())
            }
            Value::Fields(fields) => {
                out.push('{');
                write_joined(fields, out, |(name, value), out| {
                    let _ = write!(out, "{name} = ");
                    value.write(out);
                });
                out.push('}');
                Ok(())
            }
        };
    }

    /// As an object whose key `value` is the plain value, the others what it means.
    pub(crate) fn argument_json(&self) -> Map<String, Json> {
        let mut object = Map::new();
        match self {
            Value::Named(number, name) => {
                object.insert("value".into(), json!(number));
                object.insert("name".into(), json!(name));
            }
            Value::Address(address, label) => {
                object.insert("value".into(), json!(format!("{address:#x}")));
                if let Some(label) = label {
                    object.insert("label".into(), json!(label));
                }
            }
            other => {
                object.insert("value".into(), other.json());
            }
        }
        object
    }

    /// As JSON; addresses are strings because many readers of JSON have no 64-bit integers.
    pub(crate) fn json(&self) -> Json {
        match self {
            Value::Null => Json::Null,
            Value::Unsigned(value) => json!(value),
            Value::Signed(value) => json!(value),
            // JSON has no infinities.
            Value::Float(value) if !value.is_finite() => json!(value.to_string()),
            Value::Float(value) => json!(value),
            Value::Text(text) => json!(text),
            Value::Named(..) | Value::Address(..) => Json::Object(self.argument_json()),
            Value::Bytes(length, start) => json!({
                "bytes": length,
                "hex": hexadecimal(start),
                "complete": start.len() as u64 == *length,
            }),
            Value::Image(facts) => json!(facts),
            Value::Missing(why, bytes, hash) => json!({
                "missing": why,
                "bytes": bytes,
                "blake3_start": hash.map(|hash| hexadecimal(&hash)),
            }),
            Value::List(elements, more) => {
                let mut list: Vec<Json> = elements.iter().map(Value::json).collect();
                if *more > 0 {
                    list.push(json!({ "omitted": more }));
                }
                Json::Array(list)
            }
            Value::Fields(fields) => Json::Object(
                fields
                    .iter()
                    .map(|(name, value)| (name.clone(), value.json()))
                    .collect(),
            ),
        }
    }
}

/// Items with commas between.
pub(crate) fn write_joined<T>(
    items: impl IntoIterator<Item = T>,
    out: &mut String,
    mut write: impl FnMut(T, &mut String),
) {
    for (place, item) in items.into_iter().enumerate() {
        if place > 0 {
            out.push_str(", ");
        }
        write(item, out);
    }
}

fn write_quoted(text: &str, out: &mut String) -> std::fmt::Result {
    match text.char_indices().nth(SHOWN_CHARACTERS) {
        None => write!(out, "\"{}\"", text.escape_debug()),
        Some((cut, _)) => {
            let start = text.get(..cut).unwrap_or("");
            write!(out, "\"{}\"… ({} bytes)", start.escape_debug(), text.len())
        }
    }
}

fn write_bytes(length: u64, start: &[u8], out: &mut String) -> std::fmt::Result {
    let shown = &start[..start.len().min(SHOWN_BYTES)];
    let dots = if shown.len() as u64 == length {
        ""
    } else {
        "…"
    };
    let plural = if length == 1 { "" } else { "s" };
    write!(out, "<{length} byte{plural}: {}{dots}>", hexadecimal(shown))
}

/// Two digits a byte.
pub(crate) fn hexadecimal(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        let _ = write!(text, "{byte:02x}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_json() {
        let long = "x".repeat(300);
        for (value, text, json) in [
            (Value::Null, "NULL".to_owned(), json!(null)),
            (Value::Signed(-3), "-3".into(), json!(-3)),
            (Value::Float(0.5), "0.5".into(), json!(0.5)),
            (Value::Float(f64::NAN), "NaN".into(), json!("NaN")),
            (
                Value::Text("a\"\n".into()),
                "\"a\\\"\\n\"".into(),
                json!("a\"\n"),
            ),
            (
                Value::Text(long.clone()),
                format!("\"{}\"… (300 bytes)", &long[..200]),
                json!(long),
            ),
            (
                Value::Named(1, "ONE".into()),
                "ONE".into(),
                json!({"value": 1, "name": "ONE"}),
            ),
            (
                Value::Address(0x50, Some("module#2".into())),
                "0x50 module#2".into(),
                json!({"value": "0x50", "label": "module#2"}),
            ),
            (
                Value::Bytes(2, vec![0, 255]),
                "<2 bytes: 00ff>".into(),
                json!({"bytes": 2, "hex": "00ff", "complete": true}),
            ),
            (
                Value::Bytes(100, vec![1; 20]),
                format!("<100 bytes: {}…>", "01".repeat(16)),
                json!({"bytes": 100, "hex": "01".repeat(20), "complete": false}),
            ),
            (
                Value::Missing("unreadable", None, None),
                "<unreadable>".into(),
                json!({"missing": "unreadable", "bytes": null, "blake3_start": null}),
            ),
            (
                Value::List(vec![Value::Unsigned(1), Value::Unsigned(2)], 3),
                "[1, 2, … 3 more]".into(),
                json!([1, 2, {"omitted": 3}]),
            ),
            (
                Value::Fields(vec![
                    ("a".into(), Value::Unsigned(1)),
                    ("b".into(), Value::Null),
                ]),
                "{a = 1, b = NULL}".into(),
                json!({"a": 1, "b": null}),
            ),
        ] {
            let mut written = String::new();
            value.write(&mut written);
            assert_eq!(written, text);
            assert_eq!(value.json(), json, "{text}");
        }
    }
}
