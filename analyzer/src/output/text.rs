//! A finding as a compiler would print it.

use std::fmt::Write as _;

use crate::finding::{CallSite, Finding, Severity};
use crate::output::printable;

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
    /// Red, magenta and bright blue: of a terminal's colours these can be read on light and on dark.
    pub const COLOUR: Style = Style {
        error: "\u{1b}[1;31m",
        warning: "\u{1b}[1;35m",
        advice: "\u{1b}[1;94m",
        strong: "\u{1b}[1m",
        dim: "\u{1b}[94m",
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
        printable(&finding.title)
    );
    match &finding.call {
        Some(call) => write_call(&mut out, call, "-->", "", style, inner),
        None => {
            let _ = writeln!(out, " {dim}-->{reset} end of the trace");
        }
    }
    for line in wrap(&finding.message, inner) {
        let _ = writeln!(out, "  {dim}|{reset} {line}");
    }
    for related in &finding.related {
        let what = format!("{}: ", related.what);
        write_call(&mut out, &related.call, ":::", &what, style, inner);
    }
    for object in &finding.objects {
        let process = object.process.as_ref();
        let process = process.map_or_else(String::new, |process| process.label() + " ");
        let _ = writeln!(
            out,
            "  {dim}|{reset} {strong}{process}{}{reset}",
            printable(&object.label)
        );
        let _ = writeln!(
            out,
            "  {dim}|{reset}   created: {}",
            printable(&object.created)
        );
        if let Some(destroyed) = &object.destroyed {
            let _ = writeln!(out, "  {dim}|{reset}   ended:   {}", printable(destroyed));
        }
        if !object.parents.is_empty() {
            let _ = writeln!(
                out,
                "  {dim}|{reset}   part of: {}",
                printable(&object.parents.join(", part of "))
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
            &format!("{} more times by the same code", finding.repeats),
        );
    }
    part("chain", &finding.chain.join(" -> "));
    part("confidence", finding.confidence.explained());
    part("help", &finding.advice);
    let is_defect = cutape_registry::erratum(finding.rule).is_some();
    part(if is_defect { "source" } else { "manual" }, &finding.manual);
    out
}

/// A call with its place, and its call stack if the style has it.
fn write_call(
    out: &mut String,
    call: &CallSite,
    arrow: &str,
    what: &str,
    style: &Style,
    inner: usize,
) {
    let Style {
        strong, dim, reset, ..
    } = *style;
    let number = match call.thread_number {
        0 => String::new(),
        number => format!(" ({number})"),
    };
    let mut mark = format!(" {dim}{arrow}{reset}");
    // The line of the program's source, if it is known, as a compiler would.
    let mut at = format!(" at {}", call.place);
    if !call.frames.is_empty() {
        let _ = writeln!(out, "{mark} {strong}{}{reset}", printable(&call.place));
        mark = format!("  {dim}|{reset}");
        at.clear();
    }
    let line = format!(
        "{what}{}: {} = {}  thread {}{number}{at}",
        call.position(),
        call.text,
        call.result_text(),
        call.thread,
    );
    for line in wrap(&line, inner - 1) {
        let _ = writeln!(out, "{mark} {line}");
        mark = format!("  {dim}|{reset}  ");
    }
    for (number, frame) in (0..).zip(&call.frames).filter(|_| style.stacks) {
        let _ = writeln!(
            out,
            "  {dim}|{reset} #{number} {}",
            printable(&frame.in_full())
        );
    }
}

/// Printable lines of at most `width` characters, broken at blanks.
fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    let mut length = 0;
    for word in printable(text).split_whitespace() {
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

#[cfg(test)]
mod tests {
    use super::*;

    /// The code of a colour, and what xterm, the Linux console, GNOME's terminal and Visual Studio
    /// Code show for it.
    const SHOWN: [(&str, [u32; 4]); 6] = [
        ("31", [0xcd0000, 0xaa0000, 0xcc0000, 0xcd3131]),
        ("32", [0x00cd00, 0x00aa00, 0x4e9a06, 0x0dbc79]),
        ("33", [0xcdcd00, 0xaa5500, 0xc4a000, 0xe5e510]),
        ("34", [0x0000ee, 0x0000aa, 0x3465a4, 0x2472c8]),
        ("35", [0xcd00cd, 0xaa00aa, 0x75507b, 0xbc3fbc]),
        ("94", [0x5c5cff, 0x5555ff, 0x729fcf, 0x3b8eea]),
    ];
    /// Less contrast strains the eyes; WCAG asks for 3 for large or bold text, which bold letters
    /// of GNOME's palette miss.
    const CONTRAST: f64 = 2.5;

    /// As WCAG 2 defines it, from 0 to 1.
    fn luminance(colour: u32) -> f64 {
        let part = |shift: u32| {
            let share = f64::from((colour >> shift) & 0xff) / 255.0;
            match share <= 0.04045 {
                true => share / 12.92,
                false => ((share + 0.055) / 1.055).powf(2.4),
            }
        };
        0.2126 * part(16) + 0.7152 * part(8) + 0.0722 * part(0)
    }

    /// Whether a colour can be read on black and on white in all palettes.
    fn is_readable(code: &str) -> bool {
        let (_, shown) = SHOWN.iter().find(|(known, _)| *known == code).unwrap();
        shown.iter().all(|&colour| {
            let light = luminance(colour);
            (light + 0.05) / 0.05 >= CONTRAST && 1.05 / (light + 0.05) >= CONTRAST
        })
    }

    #[test]
    fn colours_are_readable_on_light_and_dark() {
        for (code, expected) in [("32", false), ("33", false), ("34", false)] {
            assert_eq!(is_readable(code), expected, "{code}");
        }
        let Style {
            error,
            warning,
            advice,
            dim,
            ..
        } = Style::COLOUR;
        for style in [error, warning, advice, dim] {
            let codes = style.trim_start_matches("\u{1b}[").trim_end_matches('m');
            let code = codes.rsplit(';').next().unwrap();
            assert!(is_readable(code), "{codes}");
        }
    }
}
