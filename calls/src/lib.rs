//! Sets of calls: one language for all verbs, which docs/calls.md describes. The report page has the
//! same one (`report/page/script/call_set.js`); `tests/call_sets.json` has cases for both.
//!
//! [`CallSet`] parses and resolves a set; [`Chooser`] asks it about the calls of a trace, in order.
//!
//! Invariant: an error is one line that says what is wrong, where, and what is allowed.
#![forbid(unsafe_code)]

pub mod expression;
mod marked;
mod matching;
mod nested_names;
mod number;
mod term;
#[cfg(test)]
mod tests;
mod unmatched;

use std::fmt;
use std::ops::Range;

use cutape_analyzer::glob::matches;
use cutape_analyzer::suggestion::did_you_mean;
use cutape_format::{Trace, TraceClock};

use self::expression::Expression;
pub use self::marked::Markers;
pub use self::matching::{CallSet, Chooser, matches_kernel};
use self::matching::{matches_result, short_result};
use self::term::Term;
pub use self::unmatched::no_kernel;
use self::unmatched::no_match;

/// What is wrong with the value of `--calls`, in one line.
#[derive(Debug)]
pub struct Error(String);

impl fmt::Display for Error {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl std::error::Error for Error {}

/// The language, for errors.
const SYNTAX: &str = "a call number (120), a range (100..200 without 200, 100..=200, \
     100.., ..200), a function (cuLaunchKernel, cuMem*), kernel:NAME (launches, saxpy*), \
     range:NAME (calls in ranges of NVTX, step*, train/step, step[0]), mark:A..mark:B, thread:N, \
     failed, result:NAME, >1ms, <1ms, kind:copy, object:module#2, memory:0x7f00, stack:train.py, or \
     a part of a name; a comma or `or` joins several, a space or `and` takes those in both, `not` \
     or - takes the others, with parentheses and \"quotes\"";

/// The language, for `--help`.
const HELP: &str = "\
SET is 120, 100..200, cuMem*, kernel:saxpy*, range:step*, mark:A..mark:B,
thread:3, failed, result:NAME, '>1ms', kind:copy, object:module#2,
memory:0x7f00, stack:train.py, or a part of a name. A comma joins several, a
space takes the calls in both, `not` the others; ( ) and \" \" as usual.";

/// The help of an option that takes a set: what it does, and the language.
pub fn help(what: &str) -> String {
    format!("{what}\n\n{HELP}")
}

impl CallSet {
    /// Parses a set; the error is one line: what is wrong, where, what is allowed.
    pub fn parse(text: &str) -> Result<Self, String> {
        match Expression::parse(text, &mut Term::parse) {
            Ok(expression) => Ok(Self::new(expression)),
            Err(what) => {
                let set = format!("`{}`", text.escape_debug());
                // A word that is the whole set is named by what is wrong with it.
                Err(match what.starts_with(&set) {
                    true => format!("{what}; allowed: {SYNTAX}"),
                    false => format!("{set}: {what}; allowed: {SYNTAX}"),
                })
            }
        }
    }

    /// The calls of a thread.
    pub fn of_thread(ordinal: u32) -> Self {
        Self::new(Expression::Term(Term::Thread(ordinal)))
    }

    /// The calls with a text in function, kernel or result.
    pub fn of_text(text: &str) -> Self {
        Self::new(Expression::Term(Term::of_text(text)))
    }

    /// The calls that failed or did not return.
    pub fn of_failures() -> Self {
        Self::new(Expression::Term(Term::Failed))
    }

    /// Parses the value of `--calls` and checks it against a trace.
    pub fn for_trace(text: &str, trace: &Trace) -> Result<Self, Error> {
        Self::parse(text)
            .and_then(|set| set.resolve(trace))
            .map_err(|error| Error(format!("--calls: {error}")))
    }

    /// The set for a trace, whose functions, results, markers, times and stacks it names.
    pub fn resolve(mut self, trace: &Trace) -> Result<Self, String> {
        let mut markers: Option<Markers> = None;
        self.clock = Some(TraceClock::of(trace));
        self.expression.for_each_mut(&mut |term| {
            match term {
                Term::Function(glob) => known_function(glob, trace)?,
                Term::Result(glob) => known_result(glob, trace)?,
                Term::Marked(marked, moments) => {
                    let markers = markers.get_or_insert_with(|| Markers::of(trace));
                    *moments = marked.moments(markers)?;
                }
                Term::Longer(_) | Term::Shorter(_) if trace.ticks_per_second() == 0 => {
                    return Err("the trace does not have the times of its calls".to_owned());
                }
                Term::Stack(..) if !trace.has_stacks() && !trace.is_still_recorded() => {
                    return Err(
                        "the trace has no call stacks; `record --stacks=all` takes them".to_owned(),
                    );
                }
                _ => {}
            }
            Ok(())
        })?;
        Ok(self)
    }

    /// Whether a moment, in ticks, lies in a range that the set names.
    pub fn contains_moment(&self, ticks: u64) -> bool {
        let terms = self.expression.terms().into_iter();
        let mut wanted = terms.filter(|(_, is_negated)| !is_negated);
        wanted.any(|(term, _)| matches!(term, Term::Marked(_, moments) if moments.contain(ticks)))
    }

    /// The range from the first to the last call, if the set consists of numbers only.
    pub fn range(&self) -> Option<Range<u64>> {
        range_of(&self.expression)
    }

    /// The indices of the trace's calls in the set, in order.
    pub fn calls<'s>(&'s self, trace: &'s Trace) -> impl Iterator<Item = u64> + use<'s> {
        let mut chooser = Chooser::with_kernels(self, trace);
        let calls = trace.calls().filter(move |call| {
            chooser.observe(call);
            self.contains(call, chooser.seen(call))
        });
        calls.map(|call| call.index)
    }

    /// Why no call of a trace matches, in one line, with the nearest names that it has. Walks over
    /// the trace.
    pub fn no_match(&self, trace: &Trace) -> String {
        no_match(self, trace)
    }

    /// As [`Self::calls`]; an error that names `--calls` if there is none.
    pub fn some_calls(&self, text: &str, trace: &Trace) -> Result<Vec<u64>, Error> {
        let calls: Vec<u64> = self.calls(trace).collect();
        match calls.is_empty() {
            false => Ok(calls),
            true => Err(self.unmatched(text, trace)),
        }
    }

    /// That no call matches `--calls`.
    pub fn unmatched(&self, text: &str, trace: &Trace) -> Error {
        let text = text.escape_debug();
        Error(format!("--calls {text}: {}", self.no_match(trace)))
    }
}

/// Rejects a function that the trace's table does not have.
fn known_function(glob: &str, trace: &Trace) -> Result<(), String> {
    let functions = || trace.signatures().functions();
    if functions().any(|f| matches(glob, &f.name) || matches(glob, &f.base)) {
        return Ok(());
    }
    Err(format!(
        "no function of the trace's signature table matches `{}`{}",
        glob.escape_debug(),
        did_you_mean(glob, functions().map(|function| &*function.base))
    ))
}

/// Rejects a result that the driver does not have.
fn known_result(glob: &str, trace: &Trace) -> Result<(), String> {
    let results = trace.signatures().enumeration("CUresult");
    let names = || {
        results
            .iter()
            .flat_map(|all| &all.values)
            .map(|(name, _)| &**name)
    };
    if results.is_none() || names().any(|name| matches_result(glob, name)) {
        return Ok(());
    }
    let short = names().map(short_result);
    Err(format!(
        "no result of the driver matches `{}`{}",
        glob.escape_debug(),
        did_you_mean(glob, names().chain(short))
    ))
}

fn range_of(expression: &Expression<Term>) -> Option<Range<u64>> {
    let join = |parts: &[Expression<Term>], join: fn(Range<u64>, Range<u64>) -> Range<u64>| {
        let ranges: Option<Vec<Range<u64>>> = parts.iter().map(range_of).collect();
        ranges?.into_iter().reduce(join)
    };
    match expression {
        Expression::Term(Term::Range(from, to)) => Some(*from..*to),
        Expression::Term(_) => None,
        Expression::Not(inner) => range_of(inner).map(|_| 0..u64::MAX),
        Expression::Any(parts) => join(parts, |a, b| a.start.min(b.start)..a.end.max(b.end)),
        Expression::All(parts) => join(parts, |a, b| {
            let start = a.start.max(b.start);
            start..a.end.min(b.end).max(start)
        }),
    }
}

/// Parses a number or a range of numbers as sets have them: `120`, `100..200`, `100..=200`,
/// `100..`, `..200`.
pub fn number_range(text: &str) -> Result<Range<u64>, String> {
    let is_range = |first: char| first.is_ascii_digit() || first == '.';
    let term = text.starts_with(is_range).then(|| Term::parse_number(text));
    match term {
        Some(Ok(Term::Range(from, to))) => Ok(from..to),
        Some(Err(what)) => Err(what),
        _ => Err("not a range of numbers, e.g. 3..5".into()),
    }
}
