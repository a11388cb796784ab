//! Compares output with what a page shows of it. A line `...` stands for any lines, `...` in a
//! line for any text. What differs from run to run is not compared: the kinds in `KINDS`.

use std::sync::OnceLock;

use regex::Regex;

/// What differs from run to run, and what it becomes before the comparison.
const KINDS: [(&str, &str); 13] = [
    // Colours, which nothing should print here, are left for the comparison to find.
    (r"0x[0-9a-f]{5,16}", "ADDRESS"),
    // Places in a program depend on the compiler.
    (r"\+0x[0-9a-f]+ in ", "+OFFSET in "),
    (r"\+[0-9]+\.[0-9]+(ms|s|us)", "+TIME"),
    (r"[0-9][0-9,]*(\.[0-9]+)?( ?)(ns|us|µs|ms|s)\b", "TIME"),
    // Compressed addresses make traces larger or smaller.
    (r"[0-9]+\.[0-9] (KiB|MiB|GiB)", "SIZE"),
    (r"thread ([0-9]+) \([0-9]+\)", "thread $1 (ID)"),
    (r"process [0-9]+", "process ID"),
    (r"\.[0-9]{3,}\.cutape", ".ID.cutape"),
    (r"[+-][0-9]+\.[0-9]( %)?", "CHANGE"),
    (r"\(([0-9]+) %\)", "(SHARE)"),
    (r"20[0-9][0-9]-[0-9][0-9]-[0-9][0-9][ T][0-9:.]+Z?", "DATE"),
    (r"--+", "--"),
    (r"  +", " "),
];

/// The text without what differs from run to run.
pub fn stable(line: &str) -> String {
    static KINDS_READ: OnceLock<Vec<(Regex, &str)>> = OnceLock::new();
    let kinds = KINDS_READ.get_or_init(|| {
        let read = |&(pattern, name): &(&str, &'static str)| {
            // Without tables of Unicode: `\b` is that of ASCII.
            let pattern = pattern.replace(r"\b", r"(?-u:\b)");
            (Regex::new(&pattern).expect("a valid pattern"), name)
        };
        KINDS.iter().map(read).collect()
    });
    let mut text = line.trim_end().to_owned();
    for (pattern, name) in kinds {
        text = pattern.replace_all(&text, *name).into_owned();
    }
    text
}

/// What is different; nothing if the output is what the page shows.
pub fn differences(shown: &[&str], raw: &[&str]) -> Option<String> {
    let (shown, output) = (paragraphs(shown), paragraphs(raw));
    let shown: Vec<&str> = shown.iter().map(String::as_str).collect();
    let output: Vec<&str> = output.iter().map(String::as_str).collect();
    let reason = parts_differ(&shown, &output)?;
    Some(format!("{reason}--- output\n{}\n---", raw.join("\n")))
}

/// The lines of a finding without its line breaks, whose places depend on the length of what
/// differs from run to run: ` -->` with the lines `  | `, and `  = ` with the indented ones.
fn paragraphs(lines: &[&str]) -> Vec<String> {
    let mut joined: Vec<String> = Vec::new();
    for line in lines {
        let continues = |last: &&mut String| {
            last.starts_with(" -->") && line.starts_with("  |")
                || last.starts_with("  = ") && line.starts_with("      ")
        };
        match joined.last_mut().filter(continues) {
            Some(last) => {
                let text = line.trim_start().trim_start_matches('|').trim_start();
                *last += &format!(" {text}");
            }
            None => joined.push((*line).to_owned()),
        }
    }
    joined
}

fn parts_differ(shown: &[&str], output: &[&str]) -> Option<String> {
    let mut parts = shown.split(|line| line.trim() == "...").peekable();
    let mut rest = output;
    let mut is_first = true;
    while let Some(part) = parts.next() {
        let is_last = parts.peek().is_none();
        let last_start = rest.len().checked_sub(part.len());
        let start = match (is_first, is_last) {
            (true, true) if rest.len() != part.len() => None,
            (true, _) => Some(0),
            (false, true) => last_start,
            (false, false) => {
                (0..=last_start.unwrap_or(0)).find(|&start| matches(part, rest, start))
            }
        };
        match start.filter(|&start| matches(part, rest, start)) {
            Some(start) => rest = &rest[start + part.len()..],
            None => return Some(describe(part, rest)),
        }
        is_first = false;
    }
    None
}

fn matches(part: &[&str], output: &[&str], start: usize) -> bool {
    let lines = output.get(start..).unwrap_or_default();
    part.len() <= lines.len()
        && part
            .iter()
            .zip(lines)
            .all(|(shown, line)| is_line(&stable(shown), &stable(line)))
}

/// Whether a line is the shown one, in which `...` is any text.
fn is_line(shown: &str, line: &str) -> bool {
    let mut parts = shown.split("...");
    let Some(mut rest) = parts.next().and_then(|first| line.strip_prefix(first)) else {
        return false;
    };
    let mut parts = parts.peekable();
    if parts.peek().is_none() {
        return rest.is_empty();
    }
    while let Some(part) = parts.next() {
        if parts.peek().is_none() {
            return rest.ends_with(part);
        }
        let Some(found) = rest.find(part) else {
            return false;
        };
        rest = &rest[found + part.len()..];
    }
    false
}

fn describe(part: &[&str], output: &[&str]) -> String {
    let found = part.iter().position(|shown| {
        let shown = stable(shown);
        !output.iter().any(|line| is_line(&shown, &stable(line)))
    });
    match found {
        Some(index) => format!("the output has no line\n  {}\n", part[index]),
        None => "the lines are in another order, or there are others\n".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_differs_from_run_to_run() {
        for (a, b) in [
            ("call 9 at main+0x183 in app", "call 9 at main+0x9 in app"),
            ("in 0.00 s: x", "in 12.31 s: x"),
            (
                "12 @0 +4.448933ms f(p = 0x7a04d60c3800)",
                "12 @0 +4.4ms f(p = 0x7a04d60c0000)",
            ),
            ("[253.3 us] 1,024 ns", "[1.2 ms] 7 ns"),
            ("app.cutape (553.9 KiB)", "app.cutape (1.2 MiB)"),
            (
                "thread 0 (12922) a.30260.cutape",
                "thread 0 (7) a.302.cutape",
            ),
            (
                "a    5.1 us  +5.3 % [+1.0 .. +2.0]",
                "a 215.0 us +5069.3 % [+1.1 .. +9.9]",
            ),
        ] {
            assert_eq!(stable(a), stable(b));
        }
        for (a, b) in [
            ("call 9", "call 10"),
            ("1472 bytes", "1473 bytes"),
            ("--fill 0xa5", "--fill 0xa6"),
            ("8 of 9 calls", "9 of 9 calls"),
            ("launch 1 of 1: f", "launch 1 of 2: f"),
        ] {
            assert_ne!(stable(a), stable(b));
        }
    }

    #[test]
    fn parts_of_the_output() {
        let output = ["a", "b in 5 ms", "c", "d(x = 1, y = 2)"];
        for (shown, equal) in [
            (&["a", "b in 9 ms", "c", "d(x = 1, y = 2)"][..], true),
            (&["a", "..."], true),
            (&["...", "d(x = 1, ...)"], true),
            (&["...", "c", "..."], true),
            (&["a", "...", "c", "d(...)"], true),
            (&["..."], true),
            (&["a", "c", "..."], false),
            (&["a"], false),
            (&["...", "c"], false),
            (&["...", "d(x = 1, ...) = 3"], false),
            (&[], false),
            (&["...", "c", "...", "b in 5 ms", "..."], false),
        ] {
            let found = differences(shown, &output);
            assert_eq!(found.is_none(), equal, "{shown:?}: {found:?}");
        }
        assert_eq!(differences(&[], &[]), None);
    }

    #[test]
    fn line_breaks_of_findings() {
        let shown = [
            "error[a]: b",
            " --> call 1: f(p: 1, ...) = 0 thread 0 (7)",
            "  | f is called, ... again",
            "  = help: Do not",
            "      do it.",
            "",
        ];
        let output = [
            "error[a]: b",
            " --> call 1: f(p: 1,",
            "  |   q: 2) = 0 thread 0",
            "  |   (12345)",
            "  | f is",
            "  | called, and",
            "  | again",
            "  = help: Do",
            "      not do it.",
            "",
        ];
        assert_eq!(differences(&shown, &output), None);
        assert!(differences(&shown, &output[..9]).is_some());
    }
}
