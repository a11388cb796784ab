//! A finding in full.

use cutape_analyzer::output::{self as analyzer, Style};
use cutape_analyzer::{Finding, Severity};

use super::pane_line::{PaneLine, Role, linked};

/// The role of a severity.
pub(crate) fn role(severity: Severity) -> Role {
    match severity {
        Severity::Error => Role::Failure,
        Severity::Warning => Role::Warning,
        Severity::Advice => Role::Link,
    }
}

/// A finding as `check` prints it.
pub(super) fn lines(finding: &Finding, width: usize) -> Vec<PaneLine> {
    let style = Style {
        width,
        stacks: true,
        ..Style::PLAIN
    };
    let text = analyzer::text(finding, &style);
    let mut lines = linked(&text, width);
    if let Some(first) = lines.first_mut() {
        for part in &mut first.parts {
            part.1 = role(finding.severity);
        }
    }
    lines
}
