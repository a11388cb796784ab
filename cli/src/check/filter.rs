//! Which findings count, and how they reach stdout.

use std::fs;
use std::io::{self, Write};
use std::path::Path;

use cutape_analyzer::output::{self as analyzer, Style};
use cutape_analyzer::{Baseline, Finding, Suppressions};
use cutape_format::{Call, Trace};

use crate::failure::Failure;

/// Drops findings that the user suppressed or that a baseline contains, and prints the others.
pub(super) struct FindingFilter {
    suppressions: Option<Suppressions>,
    baseline: Option<Baseline>,
    /// Prints text findings immediately, not in a report at the end.
    prints: bool,
    style: Style,
    /// Text held back until the trace proves undamaged.
    held: Option<String>,
    /// The first error on stdout. The checked program runs on regardless.
    error: Option<io::Error>,
    /// The findings that count.
    pub(super) findings: Vec<Finding>,
}

impl FindingFilter {
    /// Reads the files of `--suppress` and `--baseline`.
    ///
    /// # Errors
    /// If a file cannot be read or parsed.
    pub(super) fn new(
        suppress: Option<&Path>,
        baseline: Option<&Path>,
        prints: bool,
        style: Style,
    ) -> Result<Self, Failure> {
        let suppressions = suppress.map(|path| parse(path, Suppressions::parse));
        let baseline = baseline.map(|path| parse(path, Baseline::parse));
        Ok(Self {
            suppressions: suppressions.transpose()?,
            baseline: baseline.transpose()?,
            prints,
            style,
            held: None,
            error: None,
            findings: Vec::new(),
        })
    }

    /// Starts to hold back text.
    pub(super) fn hold(&mut self) {
        self.held = Some(String::new());
    }

    /// Prints the text held back, and later text immediately.
    pub(super) fn release(&mut self) {
        if let Some(held) = self.held.take().filter(|held| !held.is_empty()) {
            self.print(held.strip_suffix('\n').unwrap_or(&held));
        }
    }

    /// Prints a line to stdout, until that fails.
    pub(super) fn print(&mut self, text: &str) {
        if let Some(held) = &mut self.held {
            held.push_str(text);
            held.push('\n');
            return;
        }
        if self.error.is_none() {
            let mut stdout = io::stdout().lock();
            self.error = writeln!(stdout, "{text}")
                .and_then(|()| stdout.flush())
                .err();
        }
    }

    /// Fails if something could not be printed; a closed pipe is fine.
    pub(super) fn finish(&mut self) -> Result<(), Failure> {
        match self.error.take() {
            Some(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error.into()),
            _ => Ok(()),
        }
    }

    /// Keeps and prints the findings that count.
    pub(super) fn add(&mut self, found: Vec<Finding>) {
        for finding in found {
            let suppressions = self.suppressions.as_ref();
            let baseline = self.baseline.as_ref();
            if suppressions.is_some_and(|list| list.matches(&finding))
                || baseline.is_some_and(|list| list.contains(&finding))
            {
                continue;
            }
            if self.prints {
                let text = analyzer::text(&finding, &self.style);
                self.print(&text);
            }
            self.findings.push(finding);
        }
    }

    /// Names a call in flight at the end, whether or not a rule explains it.
    pub(super) fn add_call_in_flight(&mut self, trace: &Trace, call: &Call<'_>) {
        if !self.prints {
            return;
        }
        let signal = trace
            .meta_value("exit.signal")
            .map_or_else(String::new, |signal| format!(", killed by signal {signal}"));
        self.print(&format!(
            "call {} {} did not return: the program ended during the call{signal}\n",
            call.index, call.signature.name
        ));
    }
}

fn parse<T, E: std::fmt::Display>(
    path: &Path,
    parse: impl Fn(&str) -> Result<T, E>,
) -> Result<T, Failure> {
    let text = fs::read_to_string(path)
        .map_err(|error| Failure::unusable(format!("cannot read {}: {error}", path.display())))?;
    parse(&text).map_err(|error| Failure::unusable(format!("{}: {error}", path.display())))
}
