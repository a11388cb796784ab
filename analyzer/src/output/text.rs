//! A finding as a compiler would print it.

use std::fmt::Write as _;

use crate::finding::{Finding, Severity};

/// What is written around the parts that are emphasized, e.g. terminal colours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Style {
    /// Before `error[rule]`.
    pub error: &'static str,
    /// Before `warning[rule]`.
    pub warning: &'static str,
    /// Before `advice[rule]`.
    pub advice: &'static str,
    /// Before titles and marks.
    pub strong: &'static str,
    /// Before arrows and margins.
    pub dim: &'static str,
    /// After each of them.
    pub reset: &'static str,
    /// Whether the whole call stack is written.
    pub stacks: bool,
    /// Columns of a line.
    pub width: usize,
}

/// Columns where nobody says how many there are.
const WIDTH: usize = 115;
/// Columns that text has beside its margin, however narrow the terminal is.
const NARROWEST: usize = 40;

impl Style {
    /// No emphasis.
    pub const PLAIN: Style = Style {
        error: "",
        warning: "",
        advice: "",
        strong: "",
        dim: "",
        reset: "",
        stacks: false,
        width: WIDTH,
    };
    /// The usual terminal colours.
    pub const COLOUR: Style = Style {
        error: "\u{1b}[1;31m",
        warning: "\u{1b}[1;33m",
        advice: "\u{1b}[1;36m",
        strong: "\u{1b}[1m",
        dim: "\u{1b}[34m",
        reset: "\u{1b}[0m",
        stacks: false,
        width: WIDTH,
    };
}

/// The finding as several lines.
pub fn text(finding: &Finding, style: &Style) -> String {
    let Style {
        strong, dim, reset, ..
    } = *style;
    let colour = match finding.severity {
        Severity::Error => style.error,
        Severity::Warning => style.warning,
        Severity::Advice => style.advice,
    };
    let inner = style.width.saturating_sub(5).max(NARROWEST);
    let mut out = String::new();
    // Writing to a string cannot fail.
    let _ = writeln!(
        out,
        "{colour}{}[{}]{reset}{strong}: {}{reset}",
        finding.severity.word(),
        finding.rule,
        finding.title
    );
    match &finding.call {
        Some(call) => {
            let number = match call.thread_number {
                0 => String::new(),
                number => format!(" ({number})"),
            };
            let mut mark = format!(" {dim}-->{reset}");
            // The line of the program's source, if it is known, as a compiler would.
            let mut at = format!(" at {}", call.place);
            if !call.frames.is_empty() {
                let _ = writeln!(out, "{mark} {strong}{}{reset}", call.place);
                mark = format!("  {dim}|{reset}");
                at.clear();
            }
            let line = format!(
                "call {}: {} = {}  thread {}{number}{at}",
                call.index,
                call.text,
                call.result_text(),
                call.thread,
            );
            for line in wrap(&line, inner - 1) {
                let _ = writeln!(out, "{mark} {line}");
                mark = format!("  {dim}|{reset}  ");
            }
            for (number, frame) in (0..).zip(&call.frames).filter(|_| style.stacks) {
                let _ = writeln!(out, "  {dim}|{reset} #{number} {}", frame.in_full());
            }
        }
        None => {
            let _ = writeln!(out, " {dim}-->{reset} end of the trace");
        }
    }
    for line in wrap(&finding.message, inner) {
        let _ = writeln!(out, "  {dim}|{reset} {line}");
    }
    for object in &finding.objects {
        let _ = writeln!(out, "  {dim}|{reset} {strong}{}{reset}", object.label);
        let _ = writeln!(out, "  {dim}|{reset}   created: {}", object.created);
        if let Some(destroyed) = &object.destroyed {
            let _ = writeln!(out, "  {dim}|{reset}   ended:   {destroyed}");
        }
        if !object.parents.is_empty() {
            let _ = writeln!(
                out,
                "  {dim}|{reset}   part of: {}",
                object.parents.join(", part of ")
            );
        }
    }
    let mut part = |mark: &str, content: &str| {
        if !content.is_empty() {
            for (position, line) in wrap(content, inner.saturating_sub(10).max(NARROWEST))
                .into_iter()
                .enumerate()
            {
                let lead = if position == 0 {
                    format!("= {strong}{mark}{reset}: ")
                } else {
                    "    ".to_owned()
                };
                let _ = writeln!(out, "  {lead}{line}");
            }
        }
    };
    for message in finding.call.iter().flat_map(|call| &call.driver_messages) {
        part("driver", message);
    }
    if finding.repeats > 0 {
        part(
            "repeated",
            &format!("{} more times at this place", finding.repeats),
        );
    }
    part("chain", &finding.chain.join(" -> "));
    part("help", &finding.advice);
    part("manual", &finding.manual);
    out
}

/// Lines of at most `width` characters, broken at blanks.
fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    let mut length = 0;
    for word in text.split_whitespace() {
        let letters = word.chars().count();
        if length > 0 && length + 1 + letters > width {
            lines.push(String::new());
            length = 0;
        }
        if let Some(line) = lines.last_mut() {
            if length > 0 {
                line.push(' ');
                length += 1;
            }
            line.push_str(word);
        }
        length += letters;
    }
    lines
}
