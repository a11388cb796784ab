//! Listings of what users and their programs rely on, in `tests/interface/`: options, members of
//! JSON, names of metrics and functions. `docs/compatibility.md` says what they promise.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use serde_json::Value;

use crate::parts::root;

/// Compares what this build offers with a listing. `UPDATE_GOLDEN=1` adds lines to the listing and
/// never removes one.
///
/// # Errors
/// If a line of the listing is no longer offered, or an offered one is not in it.
pub fn compare_interface(listing: &str, offered: &BTreeSet<String>) -> Result<(), String> {
    let path = root().join("tests/interface").join(listing);
    let text = fs::read_to_string(&path).unwrap_or_default();
    let promised: BTreeSet<String> = text.lines().map(str::to_owned).collect();
    let lines = |set: BTreeSet<&String>| -> String {
        let lines = set.into_iter().map(|line| format!("\n  {line}"));
        lines.collect()
    };
    let gone = lines(promised.difference(offered).collect());
    if !gone.is_empty() {
        return Err(format!(
            "{}: users rely on these lines, and this build offers them no longer:{gone}\nRestore \
             them. If that is impossible, docs/compatibility.md says which version may remove them \
             and what has to be announced before; then delete the lines from the file by hand",
            path.display()
        ));
    }
    let new = lines(offered.difference(&promised).collect());
    if new.is_empty() {
        return Ok(());
    }
    if std::env::var_os("UPDATE_GOLDEN").is_none() {
        return Err(format!(
            "{}: not listed:{new}\nUsers may rely on them from now on. If their names are final, \
             UPDATE_GOLDEN=1 adds them",
            path.display()
        ));
    }
    let text: String = offered.iter().map(|line| format!("{line}\n")).collect();
    fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()))
}

/// The members of JSON that a command prints, with the types of their values.
#[derive(Debug, Default)]
pub struct Members {
    types: BTreeMap<String, BTreeSet<&'static str>>,
}

impl Members {
    /// Adds those of a value that is printed at `path`. The members of objects at `maps` are data,
    /// such as names of parameters: they count as one, `*`.
    pub fn add(&mut self, path: &str, value: &Value, maps: &[&str]) {
        let kind = match value {
            // Whatever a trace does not show is null.
            Value::Null => return,
            Value::Bool(_) => "boolean",
            Value::Number(_) => "number",
            Value::String(_) => "string",
            Value::Array(list) => {
                for value in list {
                    self.add(&format!("{path}[]"), value, maps);
                }
                "array"
            }
            Value::Object(members) => {
                for (name, value) in members {
                    let name = if maps.contains(&path) { "*" } else { name };
                    self.add(&format!("{path}.{name}"), value, maps);
                }
                "object"
            }
        };
        self.types.entry(path.to_owned()).or_default().insert(kind);
    }

    /// A line for each member.
    pub fn lines(&self) -> BTreeSet<String> {
        let lines = self.types.iter().map(|(path, types)| {
            let types: Vec<_> = types.iter().copied().collect();
            format!("{path}: {}", types.join(" or "))
        });
        lines.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_have_types() {
        let mut members = Members::default();
        for text in [
            r#"{"a":[{"b":1},{"b":null,"c":true}],"m":{"x":1,"y":"t"}}"#,
            r#"{"a":[],"m":{}}"#,
        ] {
            members.add("v", &serde_json::from_str(text).unwrap(), &["v.m"]);
        }
        let expected = [
            "v.a: array",
            "v.a[]: object",
            "v.a[].b: number",
            "v.a[].c: boolean",
            "v.m.*: number or string",
            "v.m: object",
            "v: object",
        ];
        assert_eq!(members.lines(), expected.map(str::to_owned).into());
    }
}
