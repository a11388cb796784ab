//! Findings as JSON, the form that a baseline reads. `docs/findings.md` describes it.

use serde_json::{Value, json};

use crate::finding::Finding;
use crate::output::omitted::Omitted;
use crate::output::text::{Style, text};

/// The version of this form; within it, members are only added.
const VERSION: u32 = 1;

/// An object with the version of this form, the array `findings`, and what was left out.
pub fn json(findings: &[Finding], omitted: &Omitted) -> Value {
    let findings: Vec<Value> = findings.iter().map(with_text).collect();
    json!({ "version": VERSION, "findings": findings, "omitted": omitted })
}

/// The members of a finding, and how it reads as text.
fn with_text(finding: &Finding) -> Value {
    let mut value = json!(finding);
    if let Some(members) = value.as_object_mut() {
        members.insert("text".into(), text(finding, &Style::PLAIN).into());
    }
    value
}
