//! A decoded value, and how it is written as text and as JSON.

use std::fmt::Write;

use cutape_format::Bytes;
use serde_json::{Map, Value as Json, json};

/// How many bytes text shows of a block.
const SHOWN_BYTES: usize = 16;
/// How many characters text shows of a string.
const SHOWN_CHARACTERS: usize = 200;

/// How values are written as text.
#[derive(Clone, Copy, Debug)]
pub struct Form {
    is_finding: bool,
}

impl Form {
    /// Of lines of calls: `0x50 module#2`, `<2 bytes: 00ff>`, and all members of structs, `{x = 1,
    /// y = 0}`.
    pub const LINE: Self = Self { is_finding: false };
    /// Of the call in a finding: `0x50 (module#2)`, `(2 bytes: 00 ff)`, and of structs the members
    /// that are not zero, `{x: 1}`.
    pub const FINDING: Self = Self { is_finding: true };

    /// Around what is not a plain value.
    fn brackets(self) -> (char, char) {
        if self.is_finding {
            ('(', ')')
        } else {
            ('<', '>')
        }
    }
}

/// A value of an argument or behind it.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// A null pointer or handle.
    Null,
    /// A number.
    Unsigned(u64),
    /// A signed number.
    Signed(i64),
    /// A floating-point number.
    Float(f64),
    /// A string, without its NUL.
    Text(String),
    /// An enum's or a flag word's number and names.
    Named(i64, String),
    /// A pointer or handle, and its label.
    Address(u64, Option<String>),
    /// How many bytes there are, and the first of them.
    Bytes(u64, Vec<u8>),
    /// A description, as of a module image: as text, and as JSON.
    Described(String, Json),
    /// Bytes that the trace does not have: why, how many, and the start of their hash.
    Missing(&'static str, Option<u64>, Option<[u8; 16]>),
    /// Elements, and how many more there are.
    List(Vec<Value>, usize),
    /// A struct.
    Fields(Vec<(String, Value)>),
}

impl Value {
    /// For bytes that are not in the record.
    pub fn missing(bytes: Bytes<'_>) -> Self {
        let length = bytes.length();
        match bytes {
            Bytes::Hashed(_, hash) => Self::Missing("not kept", length, Some(hash)),
            Bytes::Omitted(_) => Self::Missing("not kept", length, None),
            Bytes::Unreadable => Self::Missing("unreadable", None, None),
            Bytes::InFile(_) => Self::Missing("not packed", length, None),
            Bytes::Inline(_) | Bytes::Blob(_) => Self::Missing("damaged", length, None),
        }
    }

    /// Appends it as text.
    pub fn write(&self, out: &mut String) {
        self.write_in(Form::LINE, out);
    }

    /// Whether all its bits are zero.
    fn is_zero(&self) -> bool {
        match self {
            Value::Null | Value::Unsigned(0) | Value::Signed(0) | Value::Named(0, _) => true,
            Value::Address(0, _) => true,
            Value::Float(value) => value.to_bits() == 0,
            Value::Bytes(length, start) => {
                *length == start.len() as u64 && start.iter().all(|&byte| byte == 0)
            }
            Value::List(elements, 0) => elements.iter().all(Value::is_zero),
            _ => false,
        }
    }

    /// Appends it as text of that form.
    pub fn write_in(&self, form: Form, out: &mut String) {
        // Writing to a String cannot fail.
        let _ = match self {
            Value::Null => write!(out, "NULL"),
            Value::Unsigned(value) => write!(out, "{value}"),
            Value::Signed(value) => write!(out, "{value}"),
            Value::Float(value) => write!(out, "{value:?}"),
            Value::Text(text) => write_quoted(text, out),
            Value::Named(_, name) => write!(out, "{name}"),
            Value::Address(value, None) => write!(out, "{value:#x}"),
            Value::Address(value, Some(label)) if form.is_finding => {
                write!(out, "{value:#x} ({label})")
            }
            Value::Address(value, Some(label)) => write!(out, "{value:#x} {label}"),
            Value::Bytes(length, start) => write_bytes(*length, start, form, out),
            Value::Described(text, _) => write!(out, "{text}"),
            Value::Missing(why, bytes, hash) => {
                out.push(form.brackets().0);
                if let Some(bytes) = bytes {
                    let _ = write!(out, "{bytes} bytes, ");
                }
                out.push_str(why);
                if let Some(hash) = hash {
                    let _ = write!(out, ", blake3 {}…", hexadecimal(&hash[..4]));
                }
                out.push(form.brackets().1);
                Ok(())
            }
            Value::List(elements, more) => {
                out.push('[');
                write_joined(elements, out, |value, out| value.write_in(form, out));
                if *more > 0 {
                    let _ = write!(out, ", … {more} more");
                }
                out.push(']');
                Ok(())
            }
            Value::Fields(fields) => {
                out.push('{');
                // Most members of structs are zero, and a finding is easier to read without them.
                let fields = fields.iter();
                let shown = fields.filter(|field| !form.is_finding || !field.1.is_zero());
                let is = if form.is_finding { ": " } else { " = " };
                write_joined(shown, out, |(name, value), out| {
                    let _ = write!(out, "{name}{is}");
                    value.write_in(form, out);
                });
                out.push('}');
                Ok(())
            }
        };
    }

    /// As an object with the plain value as `value` and its meaning under other keys.
    pub fn argument_json(&self) -> Map<String, Json> {
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
    pub fn json(&self) -> Json {
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
            Value::Described(_, json) => json.clone(),
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

/// Writes items with commas between them.
pub fn write_joined<T>(
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

fn write_bytes(length: u64, start: &[u8], form: Form, out: &mut String) -> std::fmt::Result {
    let shown = &start[..start.len().min(SHOWN_BYTES)];
    let plural = if length == 1 { "" } else { "s" };
    let are_all = shown.len() as u64 == length;
    if form.is_finding {
        let digits: String = shown.iter().map(|byte| format!(" {byte:02x}")).collect();
        let dots = if are_all { "" } else { " …" };
        return write!(out, "({length} byte{plural}:{digits}{dots})");
    }
    let dots = if are_all { "" } else { "…" };
    write!(out, "<{length} byte{plural}: {}{dots}>", hexadecimal(shown))
}

/// Two digits a byte.
pub fn hexadecimal(bytes: &[u8]) -> String {
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
    #[test]
    fn values_in_findings() {
        let member = |name: &str, value| (name.to_owned(), value);
        for (value, text) in [
            (
                Value::Address(0x50, Some("module#2".into())),
                "0x50 (module#2)",
            ),
            (Value::Bytes(2, vec![0, 255]), "(2 bytes: 00 ff)"),
            (Value::Bytes(9, vec![1]), "(9 bytes: 01 …)"),
            (Value::Missing("unreadable", None, None), "(unreadable)"),
            (
                Value::Missing("not kept", Some(9), Some([0xab; 16])),
                "(9 bytes, not kept, blake3 abababab…)",
            ),
            (
                Value::Fields(vec![
                    member("a", Value::Unsigned(1)),
                    member("b", Value::Null),
                    member("c", Value::Named(0, "NONE".into())),
                    member("d", Value::Bytes(2, vec![0; 2])),
                    member("e", Value::Float(-0.0)),
                ]),
                "{a: 1, e: -0.0}",
            ),
        ] {
            let mut written = String::new();
            value.write_in(Form::FINDING, &mut written);
            assert_eq!(written, text);
        }
    }
}
