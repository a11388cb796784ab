//! Findings as JSON, the form that a baseline reads.

use serde_json::{Value, json};

use crate::finding::Finding;

/// An object with the version of this form and the array `findings`.
pub fn json(findings: &[Finding]) -> Value {
    json!({ "version": 1, "findings": findings })
}
