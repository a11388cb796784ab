//! Which findings count, and how they reach stdout.

use std::collections::HashMap;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use cutape_analyzer::output::{self as analyzer, Omitted, Style};
use cutape_analyzer::{
    Baseline, Class, Finding, FindingKey, FindingLimits, FindingList, RecordedProcess, Suppressions,
};
use cutape_format::{Call, Trace};

use super::measured::Measure;
use super::selection::{Rules, Selection};
use cutape_terminal::failure::Failure;
use cutape_terminal::input::Completeness;
use cutape_terminal::message;
use cutape_terminal::output::{self, Stdout};

/// Which findings count, as the user says.
#[derive(Clone, Copy, Default)]
pub(crate) struct Choice<'a> {
    /// `--rules`.
    pub(crate) rules: Option<&'a Rules>,
    /// `--calls`.
    pub(crate) calls: Option<&'a str>,
    /// `--allow`.
    pub(crate) allow: &'a [Suppressions],
    /// `--suppress`.
    pub(crate) suppress: Option<&'a Path>,
    /// `--baseline`.
    pub(crate) baseline: Option<&'a Path>,
    /// `--expect-errors`: the program tests errors.
    pub(crate) expects_errors: bool,
    /// `--all`, `--confidence` and `--most-repeats`.
    pub(crate) limits: FindingLimits,
}

/// What is taken back if a trace proves damaged.
#[derive(Default)]
struct Held {
    lines: Vec<HeldLine>,
    /// How many findings there were before.
    findings: usize,
    omitted: Omitted,
}

/// What is printed when a trace has proved undamaged.
enum HeldLine {
    Text(String),
    /// A finding, which may be repeated until then.
    Finding(usize),
}

/// Drops findings that the user suppressed or that a baseline contains, and prints the others.
pub(crate) struct FindingFilter {
    selection: Selection,
    suppressions: Suppressions,
    baseline: Option<Baseline>,
    expects_errors: bool,
    /// Prints text findings immediately, not in a report at the end.
    prints: bool,
    style: Style,
    /// Text held back until the trace proves undamaged.
    held: Option<Held>,
    /// The process that calls belong to, if several traces are checked together.
    process: Option<RecordedProcess>,
    /// The first error on stdout. The checked program runs on regardless.
    error: Option<io::Error>,
    /// The findings that count.
    pub(crate) list: FindingList,
    /// Whether the traces have all calls.
    pub(crate) state: Completeness,
    /// `--allow-incomplete`: a recording that ended early is no failure.
    pub(crate) allows_incomplete: bool,
    /// `--proven`: a report of `race`.
    pub(super) proven: Option<PathBuf>,
    /// `--measure`.
    pub(super) measure: Option<Measure>,
}

impl FindingFilter {
    /// Reads the files of `--suppress` and `--baseline`.
    ///
    /// # Errors
    /// If a file cannot be read or parsed, or another option is wrong.
    pub(crate) fn new(choice: &Choice<'_>, prints: bool, style: Style) -> Result<Self, Failure> {
        let suppressions = choice.suppress.map(|path| parse(path, Suppressions::parse));
        let mut suppressions = suppressions.transpose()?.unwrap_or_default();
        for allowed in choice.allow {
            suppressions.extend(allowed.clone());
        }
        let baseline = choice.baseline.map(|path| parse(path, Baseline::parse));
        let baseline = baseline.transpose()?;
        if baseline.as_ref().is_some_and(Baseline::is_without_keys) {
            message!(
                "the baseline was written by an earlier version, so it hides every finding of a \
                 rule at a call that it names; write it again with --write-baseline"
            );
        }
        Ok(Self {
            selection: Selection::new(choice.rules, choice.calls)?,
            suppressions,
            baseline,
            expects_errors: choice.expects_errors,
            prints,
            style,
            held: None,
            process: None,
            error: None,
            list: FindingList::new(choice.limits),
            state: Completeness::default(),
            allows_incomplete: false,
            proven: None,
            measure: None,
        })
    }

    /// Starts to hold back text.
    pub(crate) fn hold(&mut self) {
        self.held = Some(Held {
            lines: Vec::new(),
            findings: self.list.findings.len(),
            omitted: self.list.omitted.clone(),
        });
    }

    /// With `--measure`: adds what their advice gains to the findings since [`Self::hold`].
    pub(super) fn measure_findings(&mut self, trace: &Path) -> Result<(), Failure> {
        let Some((measure, held)) = self.measure.as_ref().zip(self.held.as_ref()) else {
            return Ok(());
        };
        measure.add_to(self.list.findings.iter_mut().skip(held.findings), trace)
    }

    /// Prints the text held back, and later text immediately.
    pub(crate) fn release(&mut self) {
        for line in self.held.take().into_iter().flat_map(|held| held.lines) {
            match line {
                HeldLine::Text(text) => self.print(&text),
                HeldLine::Finding(number) => self.print_finding(number),
            }
        }
    }

    /// Drops the text held back, and the findings since then.
    pub(crate) fn discard(&mut self) {
        if let Some(held) = self.held.take() {
            self.list.truncate(held.findings, held.omitted);
            if let Some(baseline) = &mut self.baseline {
                baseline.discard();
            }
        }
    }

    /// Says which process later findings belong to, if they do not say it.
    pub(crate) fn set_process(&mut self, process: Option<RecordedProcess>) {
        self.process = process;
    }

    /// Finds the calls of `--calls` in a trace, before its findings are added.
    pub(crate) fn choose_calls(&mut self, trace: &Trace) {
        self.selection.choose_calls(trace, self.process.clone());
    }

    /// Fails if no trace has calls of `--calls`.
    pub(crate) fn expect_calls(&mut self) -> Result<(), Failure> {
        self.selection.expect_calls()
    }

    /// Prints a line to stdout, until that fails.
    pub(crate) fn print(&mut self, text: &str) {
        if let Some(held) = &mut self.held {
            held.lines.push(HeldLine::Text(text.to_owned()));
            return;
        }
        self.write(output::stdout(), text);
    }

    fn write(&mut self, mut stdout: Stdout, text: &str) {
        if self.error.is_none() {
            self.error = writeln!(stdout, "{text}")
                .and_then(|()| stdout.flush())
                .err();
        }
    }

    fn print_finding(&mut self, number: usize) {
        if let Some(held) = &mut self.held {
            held.lines.push(HeldLine::Finding(number));
        } else if let Some(finding) = self.list.findings.get(number) {
            let text = analyzer::text(finding, &self.style);
            let is_coloured = !self.style.reset.is_empty();
            self.write(output::coloured_stdout(is_coloured), &text);
        }
    }

    /// Fails if something could not be printed; a closed pipe is fine.
    pub(crate) fn finish(&mut self) -> Result<(), Failure> {
        match self.error.take() {
            Some(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error.into()),
            _ => Ok(()),
        }
    }

    /// Keeps and prints the findings that count.
    pub(crate) fn add(&mut self, found: Vec<Finding>) {
        for mut finding in found {
            if let Some(process) = &self.process {
                finding.set_process(process);
            }
            let was_refused = |finding: &Finding| {
                let result = finding.call.as_ref().and_then(|call| call.result.as_ref());
                result.is_some_and(|result| result.code != 0)
            };
            if self.expects_errors && finding.class == Class::Misuse && was_refused(&finding) {
                finding.class = Class::ExpectedError;
            }
            if !self.selection.contains(&finding) {
                self.list.omitted.not_chosen += 1;
                continue;
            }
            if self.suppressions.matches(&finding) {
                self.list.omitted.suppressed += 1;
                continue;
            }
            let Some(baseline) = &mut self.baseline else {
                self.keep(finding);
                continue;
            };
            let (new, is_known) = baseline.judge(finding);
            self.list.omitted.known += u64::from(is_known);
            if let Some(finding) = new {
                self.keep(finding);
            }
        }
    }

    /// Keeps and prints a finding that neither a suppression nor the baseline has.
    fn keep(&mut self, finding: Finding) {
        if self.list.add(finding) && self.prints {
            self.print_finding(self.list.findings.len() - 1);
        }
    }

    /// At the end of a trace: the findings that the baseline knows at other lines are known, and
    /// `repeats` of the others were left out by the analyzer.
    pub(crate) fn settle(&mut self, repeats: HashMap<FindingKey, u64>) {
        if let Some(baseline) = &mut self.baseline {
            let (new, moved) = baseline.settle();
            self.list.omitted.known += moved;
            new.into_iter().for_each(|finding| self.keep(finding));
        }
        self.list.count_repeats(repeats);
    }

    /// Names a call in flight at the end, whether or not a rule explains it.
    pub(crate) fn add_call_in_flight(&mut self, trace: &Trace, call: &Call<'_>) {
        if !self.prints {
            return;
        }
        let signal = trace
            .meta_value("exit.signal")
            .map_or_else(String::new, |signal| format!(", killed by signal {signal}"));
        let process = self.process.as_ref();
        let process = process.map_or_else(String::new, |process| process.label() + " ");
        self.print(&format!(
            "{process}call {} {} {}\n",
            call.index,
            output::printable(&call.signature.name),
            match (trace.is_still_recorded(), trace.shortfall()) {
                (true, _) => "has not returned yet".to_owned(),
                (false, Some(shortfall)) if shortfall.lacks_calls =>
                    "had not returned when the recording ended".to_owned(),
                _ => format!("did not return: the program ended during the call{signal}"),
            }
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
