//! What has to be recorded anew, since the program does something else.

use std::collections::BTreeMap;
use std::path::Path;

use cutape_render::quantity;
use serde_json::{Value, json};

/// Calls that differ, of one function and one kernel.
pub(super) struct Differing {
    function: String,
    kernel: Option<String>,
    calls: u64,
    /// Index of the first recorded one; `None` if the recording has none.
    first: Option<u64>,
}

impl Differing {
    pub(super) fn json(&self) -> Value {
        json!({
            "function": self.function,
            "kernel": self.kernel,
            "calls": self.calls,
            "first": self.first,
        })
    }

    fn text(&self) -> String {
        let calls = match &self.kernel {
            Some(kernel) if self.calls == 1 => format!("1 launch of {kernel}"),
            Some(kernel) => format!("{} launches of {kernel}", self.calls),
            None => format!(
                "{} of {}",
                quantity::count(self.calls, "call"),
                self.function
            ),
        };
        match self.first {
            Some(first) => format!("{calls}, the first in place of the recorded call {first}"),
            None => calls,
        }
    }
}

/// The calls of mismatches, without those that could not get bytes because of others.
pub(super) fn differing(mismatches: &[Value]) -> Vec<Differing> {
    let mut found: BTreeMap<(String, Option<String>), Differing> = BTreeMap::new();
    for mismatch in mismatches.iter().filter(|one| one["kind"] != "bytes") {
        let made = &mismatch["made"];
        let expected = &mismatch["expected"];
        let is_made = made["function"].is_string();
        let call = if is_made { made } else { expected };
        let Some(function) = call["function"].as_str() else {
            continue;
        };
        let mut arguments = call["arguments"].as_array().into_iter().flatten();
        let kernel = arguments.find(|one| one["name"] == "kernel");
        let kernel = kernel
            .and_then(|one| one["value"].as_str())
            .map(str::to_owned);
        let first = expected["call"].as_u64().filter(|_| !is_made);
        let one = found.entry((function.to_owned(), kernel.clone()));
        let one = one.or_insert_with(|| Differing {
            function: function.to_owned(),
            kernel,
            calls: 0,
            first,
        });
        one.calls += 1;
    }
    found.into_values().collect()
}

/// The list, for people.
pub(super) fn update_lines(trace: &Path, differing: &[Differing]) -> Vec<String> {
    if differing.is_empty() {
        return vec![format!(
            "{}: nothing has to be recorded anew",
            trace.display()
        )];
    }
    let head = format!("{}: record it anew; these calls differ:", trace.display());
    let lines = differing.iter().map(|one| format!("  {}", one.text()));
    std::iter::once(head).chain(lines).collect()
}
