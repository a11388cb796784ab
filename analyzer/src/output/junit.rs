//! Findings as the cases of a JUnit report; the caller writes the XML.

use crate::finding::Finding;
use crate::output::{Style, text};

/// A failed test case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JunitCase {
    /// The rule's id and the call.
    pub name: String,
    /// Severity.
    pub kind: String,
    /// The first line.
    pub message: String,
    /// The whole finding as text.
    pub description: String,
}

/// One case for each finding.
pub fn junit_cases(findings: &[Finding]) -> Vec<JunitCase> {
    findings
        .iter()
        .map(|finding| JunitCase {
            name: match &finding.call {
                Some(call) => format!("{} {}", finding.rule, call.position()),
                None => finding.rule.to_owned(),
            },
            kind: finding.severity.word().to_owned(),
            message: finding.title.clone(),
            description: text(
                finding,
                &Style {
                    stacks: true,
                    ..Style::PLAIN
                },
            ),
        })
        .collect()
}
