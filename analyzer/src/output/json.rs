//! Findings as JSON, the form that a baseline reads. `docs/findings.md` describes it.

use serde_json::{Value, json};

use crate::finding::Finding;
use crate::output::omitted::Omitted;

/// The version of this form; within it, members are only added.
const VERSION: u32 = 1;

/// An object with the version of this form, the array `findings`, and what was left out.
pub fn json(findings: &[Finding], omitted: &Omitted) -> Value {
    json!({ "version": VERSION, "findings": findings, "omitted": omitted })
}
