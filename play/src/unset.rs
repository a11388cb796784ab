//! Bytes of kernel parameters that nothing has set: files that say which do not count.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;

use cutape_diff::{Masks, Unequal};
use serde_json::{Value, json};

/// The only member of a file, and of a line of an outcome.
const KERNELS: &str = "kernels";

/// Reads such a file.
///
/// # Errors
/// What is wrong with it.
pub fn read_unset(path: &Path) -> Result<Masks, String> {
    let failed = |what: String| format!("{}: {what}", path.display());
    let text = std::fs::read(path).map_err(|error| failed(error.to_string()))?;
    let mut masks = Masks::default();
    let value = serde_json::from_slice(&text).ok();
    let added = value.and_then(|value: Value| add_unset(&mut masks, &value));
    added.ok_or_else(|| failed("not written by cutape play --learn-unset".to_owned()))?;
    Ok(masks)
}

/// Adds what a value has, which is a file or of an outcome; `None` if it is neither.
pub fn add_unset(masks: &mut Masks, value: &Value) -> Option<()> {
    for (kernel, ranges) in value.get(KERNELS)?.as_object()? {
        for range in ranges.as_array()? {
            let [from, end] = &range.as_array()?[..] else {
                return None;
            };
            let [from, end] = [from, end].map(Value::as_u64);
            let range = u32::try_from(from?).ok()?..u32::try_from(end?).ok()?;
            // Kernels take at most 32,764 bytes (CUDA C++ Programming Guide, compute capabilities).
            (range.end <= 1 << 16).then(|| masks.add_bytes(kernel, range))?;
        }
    }
    Some(())
}

/// The file's text.
pub fn unset_text(masks: &Masks) -> String {
    let kernels = masks.bytes().into_iter();
    let kernels: BTreeMap<&str, Value> = kernels
        .map(|(kernel, bytes)| (kernel, pairs(&bytes)))
        .collect();
    format!("{:#}\n", json!({ KERNELS: kernels }))
}

/// What an outcome has of a launch.
pub(crate) fn line(unequal: &Unequal) -> Value {
    json!({ KERNELS: {&*unequal.kernel: pairs(&unequal.bytes)} })
}

fn pairs(bytes: &[Range<u32>]) -> Value {
    bytes
        .iter()
        .map(|range| json!([range.start, range.end]))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_read_as_it_was_written() {
        let mut masks = Masks::default();
        masks.add_bytes("k", 3..17);
        masks.add_bytes("k", 40..41);
        let text = unset_text(&masks);
        let mut again = Masks::default();
        let value = serde_json::from_str(&text).expect("JSON");
        add_unset(&mut again, &value).expect("a file");
        assert_eq!(again.bytes(), masks.bytes());
        assert_eq!(again.bytes()["k"], [3..17, 40..41]);
    }

    #[test]
    fn other_files_are_refused() {
        for text in [
            "{}",
            "[]",
            r#"{"kernels": []}"#,
            r#"{"kernels": {"k": 1}}"#,
            r#"{"kernels": {"k": [[1]]}}"#,
            r#"{"kernels": {"k": [[0, 4294967296]]}}"#,
            r#"{"kernels": {"k": [[0, 1000000]]}}"#,
        ] {
            let value = serde_json::from_str(text).expect("JSON");
            assert_eq!(add_unset(&mut Masks::default(), &value), None, "{text}");
        }
    }
}
