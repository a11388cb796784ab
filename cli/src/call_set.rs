//! Sets of calls: one syntax for all verbs.

mod marked;
mod term;
mod unmatched;

use std::cell::RefCell;
use std::collections::HashMap;
use std::ops::Range;

use cutape_analyzer::glob::matches;
use cutape_analyzer::suggestion::did_you_mean;
use cutape_format::{Call, Signatures, Trace};

pub(crate) use self::marked::Markers;
pub(crate) use self::unmatched::no_kernel;

use self::term::Term;
use self::unmatched::no_match;

use crate::failure::Failure;
use cutape_analyzer::demangle::{bare, demangle};
use cutape_model::{Scope, TraceState};

/// The syntax, for errors.
const SYNTAX: &str = "a call number (120), a range (100..200 without 200, 100..=200, \
     100.., ..200), a function (cuLaunchKernel, cuMem*), kernel:NAME (launches, saxpy*), \
     range:NAME (calls in ranges of NVTX, step*, train/step, step[0]), mark:A..mark:B, thread:N; \
     a comma joins several";

/// Some of a trace's calls: the union of its terms.
#[derive(Debug)]
pub(crate) struct CallSet {
    terms: Vec<Term>,
    /// The moments of the terms that markers decide, in ticks, by begin.
    moments: Vec<Range<u64>>,
    /// Matches by kernel name: demangling at every launch would dominate the time (assumed).
    kernels: RefCell<HashMap<String, bool>>,
}

impl CallSet {
    /// Parses a set; the error is one line: what is wrong, where, what is allowed.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let terms = text
            .split(',')
            .map(|word| {
                Term::parse(word.trim()).map_err(|what| {
                    let set = format!("`{}`", text.escape_debug());
                    // A word that is the whole set is named by what is wrong with it.
                    match what.starts_with(&set) {
                        true => format!("{what}; allowed: {SYNTAX}"),
                        false => format!("{set}: {what}; allowed: {SYNTAX}"),
                    }
                })
            })
            .collect::<Result<_, _>>()?;
        Ok(Self {
            terms,
            moments: Vec::new(),
            kernels: RefCell::default(),
        })
    }

    /// The calls of a thread.
    pub(crate) fn of_thread(ordinal: u32) -> Self {
        Self {
            terms: vec![Term::Thread(ordinal)],
            moments: Vec::new(),
            kernels: RefCell::default(),
        }
    }

    /// Parses the value of `--calls` and checks it against a trace.
    pub(crate) fn for_trace(text: &str, trace: &Trace) -> Result<Self, Failure> {
        Self::parse(text)
            .and_then(|set| set.resolve(trace))
            .map_err(|error| Failure::unusable(format!("--calls: {error}")))
    }

    /// The set for a trace, whose functions and markers it names.
    pub(crate) fn resolve(mut self, trace: &Trace) -> Result<Self, String> {
        self.check(trace.signatures())?;
        let marked = || {
            self.terms.iter().filter_map(|term| match term {
                Term::Marked(marked) => Some(marked),
                _ => None,
            })
        };
        if marked().next().is_none() {
            return Ok(self);
        }
        let markers = Markers::of(trace);
        let mut moments: Vec<Range<u64>> = Vec::new();
        for term in marked() {
            if let Some(error) = term.no_match(&markers) {
                return Err(error);
            }
            moments.extend(term.moments(&markers)?);
        }
        moments.sort_by_key(|moments| moments.start);
        // Nested and overlapping ranges become one.
        self.moments = Vec::new();
        for next in moments {
            match self.moments.last_mut() {
                Some(last) if next.start <= last.end => last.end = last.end.max(next.end),
                _ => self.moments.push(next),
            }
        }
        Ok(self)
    }

    /// Whether a moment, in ticks, lies in a range that the set names.
    pub(crate) fn contains_moment(&self, ticks: u64) -> bool {
        let behind = self.moments.partition_point(|range| range.start <= ticks);
        let last = behind.checked_sub(1).and_then(|at| self.moments.get(at));
        last.is_some_and(|range| ticks < range.end)
    }

    /// The range from the first to the last call, if the set consists of numbers only.
    pub(crate) fn range(&self) -> Option<Range<u64>> {
        let mut whole: Option<Range<u64>> = None;
        for term in &self.terms {
            let Term::Range(from, to) = *term else {
                return None;
            };
            whole = Some(match whole {
                Some(known) => known.start.min(from)..known.end.max(to),
                None => from..to,
            });
        }
        whole
    }

    /// Rejects function names that match no function of the table.
    fn check(&self, signatures: &Signatures) -> Result<(), String> {
        for term in &self.terms {
            if let Term::Function(glob) = term
                && !signatures
                    .functions()
                    .any(|f| matches(glob, &f.name) || matches(glob, &f.base))
            {
                let names = signatures.functions().map(|function| &*function.base);
                return Err(format!(
                    "no function of the trace's signature table matches `{}`{}",
                    glob.escape_debug(),
                    did_you_mean(glob, names)
                ));
            }
        }
        Ok(())
    }

    /// The indices of the trace's calls in the set, in order.
    pub(crate) fn calls<'t>(&self, trace: &'t Trace) -> impl Iterator<Item = u64> + use<'_, 't> {
        let mut state = TraceState::new(Scope::Kernels);
        let calls = trace.calls().filter(move |call| {
            state.observe(call);
            self.contains(call, state.launched_kernel(call))
        });
        calls.map(|call| call.index)
    }

    /// Why no call of a trace matches, in one line, with the nearest names that it has. Walks over
    /// the trace.
    pub(crate) fn no_match(&self, trace: &Trace) -> String {
        no_match(&self.terms, trace)
    }

    /// As [`Self::calls`]; an error that names `--calls` if there is none.
    pub(crate) fn some_calls(&self, text: &str, trace: &Trace) -> Result<Vec<u64>, Failure> {
        let calls: Vec<u64> = self.calls(trace).collect();
        match calls.is_empty() {
            false => Ok(calls),
            true => Err(self.unmatched(text, trace)),
        }
    }

    /// No call matches `--calls`.
    pub(crate) fn unmatched(&self, text: &str, trace: &Trace) -> Failure {
        let text = text.escape_debug();
        Failure::unusable(format!("--calls {text}: {}", self.no_match(trace)))
    }

    /// Whether the set contains a call; `kernel` is the kernel that it launches, if known.
    pub(crate) fn contains(&self, call: &Call<'_>, kernel: Option<&str>) -> bool {
        self.terms.iter().any(|term| match term {
            Term::Range(from, to) => (*from..*to).contains(&call.index),
            Term::Function(glob) => {
                matches(glob, &call.signature.name) || matches(glob, &call.signature.base)
            }
            Term::Kernel(_) | Term::Marked(_) => false,
            Term::Thread(thread) => call.thread == *thread,
        }) || self.contains_moment(call.ticks)
            || kernel.is_some_and(|kernel| self.has_kernel(kernel))
    }

    fn has_kernel(&self, kernel: &str) -> bool {
        let globs = || {
            self.terms.iter().filter_map(|term| match term {
                Term::Kernel(glob) => Some(glob.as_str()),
                _ => None,
            })
        };
        if globs().next().is_none() {
            return false;
        }
        if let Some(&known) = self.kernels.borrow().get(kernel) {
            return known;
        }
        let verdict = globs().any(|glob| matches_kernel(glob, kernel));
        self.kernels.borrow_mut().insert(kernel.to_owned(), verdict);
        verdict
    }
}

/// Whether a glob matches a kernel's name: as in the image, or demangled with or without
/// parameters.
pub(crate) fn matches_kernel(glob: &str, kernel: &str) -> bool {
    let readable = demangle(kernel);
    matches(glob, kernel) || matches(glob, &readable) || matches(glob, bare(&readable))
}

/// Parses a number or a range of numbers as sets have them: `120`, `100..200`, `100..=200`,
/// `100..`, `..200`.
pub(crate) fn number_range(text: &str) -> Result<Range<u64>, String> {
    let is_range = |first: char| first.is_ascii_digit() || first == '.';
    match text.starts_with(is_range).then(|| Term::parse(text)) {
        Some(Ok(Term::Range(from, to))) => Ok(from..to),
        Some(Err(what)) => Err(what),
        _ => Err("not a range of numbers, e.g. 3..5".into()),
    }
}

#[cfg(test)]
mod tests {
    use cutape_format::{NewCall, TraceBuilder};

    use super::marked::Marked;
    use super::*;
    use cutape_render::test_trace;

    #[test]
    fn terms() {
        for (text, expected) in [
            ("120", Term::Range(120, 121)),
            ("100..200", Term::Range(100, 200)),
            ("100..=200", Term::Range(100, 201)),
            ("100..", Term::Range(100, u64::MAX)),
            ("..7", Term::Range(0, 7)),
            ("..", Term::Range(0, u64::MAX)),
            ("cuMem*", Term::Function("cuMem*".into())),
            ("kernel:saxpy*", Term::Kernel("saxpy*".into())),
            ("thread:3", Term::Thread(3)),
            (
                "range:step",
                Term::Marked(Marked::parse("range:step").unwrap().unwrap()),
            ),
        ] {
            assert_eq!(CallSet::parse(text).unwrap().terms, [expected], "{text}");
        }
    }

    #[test]
    fn ranges_of_sets() {
        for (text, expected) in [
            ("120", Some(120..121)),
            ("100..200,7", Some(7..200)),
            ("5..,2", Some(2..u64::MAX)),
            ("cuMem*", None),
            ("7,thread:1", None),
        ] {
            assert_eq!(CallSet::parse(text).unwrap().range(), expected, "{text}");
        }
    }

    #[test]
    fn errors_say_what_where_and_what_is_allowed() {
        for (text, what) in [
            ("", "an empty term"),
            ("1,,2", "an empty term"),
            ("12x", "`12x` is not a call number"),
            ("-5", "no function name contains '-'"),
            ("5..x", "`x` is not a call number"),
            ("9..9", "the range is empty"),
            ("9..=8", "the range is empty"),
            ("+1..2", "`+1` is not a call number"),
            ("99999999999999999999", "not a call number"),
            ("18446744073709551615", "too large"),
            ("thread:", "no thread number"),
            ("thread:-1", "no thread number"),
            ("kernel:", "no name after"),
            ("range:", "no name after `range:`"),
            ("mark:x", "a mark is a moment"),
            ("mark:x..7", "ends with a mark"),
            ("cuMem*,cu Foo", "no function name contains ' '"),
            (
                "kernl:foo",
                "no term begins with `kernl:`; did you mean `kernel`?",
            ),
            ("foo:bar", "no term begins with `foo:`"),
            ("a\nb", "no function name contains '\\n'"),
        ] {
            let error = CallSet::parse(text).unwrap_err();
            assert!(error.contains(what), "{text:?}: {error}");
            assert!(
                error.contains(&text.escape_debug().to_string()),
                "{text:?}: {error}"
            );
            assert!(
                error.contains(SYNTAX) && !error.contains('\n'),
                "{text:?}: {error}"
            );
        }
    }

    #[test]
    fn unknown_function_names_are_rejected() {
        let signatures = Signatures::parse(cutape_registry::SIGNATURE_TEXT).unwrap();
        for (text, good) in [
            ("cuMemAlloc", true),
            ("cuMemAlloc_v2", true),
            ("cuLaunch*", true),
            ("cuLaunchKernl", false),
            ("3,thread:1,kernel:nothing", true),
        ] {
            assert_eq!(
                CallSet::parse(text).unwrap().check(&signatures).is_ok(),
                good,
                "{text}"
            );
        }
    }

    #[test]
    fn calls_of_a_set() {
        let mut builder = TraceBuilder::new(cutape_registry::SIGNATURE_TEXT);
        builder
            .call(NewCall {
                name: "cuInit",
                arguments: &[0],
                ..NewCall::default()
            })
            .leave(0, 0, &[]);
        test_trace::get_function(&mut builder, 0x51, "_Z5saxpyifPfS_");
        test_trace::launch(&mut builder, 0x51, [1, 1, 1]);
        test_trace::get_function(&mut builder, 0x52, "fill");
        test_trace::launch(&mut builder, 0x52, [1, 1, 1]);
        builder
            .call(NewCall {
                thread: 2,
                name: "cuMemAlloc_v2",
                arguments: &[0x7000, 16],
                ..NewCall::default()
            })
            .leave(2, 2, &[]);
        let trace = test_trace::open(&builder, "call-set");
        for (text, expected) in [
            ("0", vec![0]),
            ("1..3,5", vec![1, 2, 5]),
            ("cuLaunchKernel", vec![2, 4]),
            ("cuMemAlloc", vec![5]),
            ("cuMemAlloc_v2", vec![5]),
            ("thread:2", vec![5]),
            ("thread:0", vec![0, 1, 2, 3, 4]),
            ("kernel:saxpy", vec![2]),
            ("kernel:saxpy(int*", vec![2]),
            ("kernel:_Z5saxpy*", vec![2]),
            ("kernel:fill", vec![4]),
            ("kernel:f,thread:9", vec![]),
            ("kernel:*,0", vec![0, 2, 4]),
        ] {
            let set = CallSet::parse(text).unwrap();
            let found: Vec<u64> = set.calls(&trace).collect();
            assert_eq!(found, expected, "{text}");
        }
    }

    /// A launch in each step of an epoch, one after it, and marks.
    fn marked() -> Trace {
        let mut builder = TraceBuilder::new(cutape_registry::SIGNATURE_TEXT);
        let builder = &mut builder;
        test_trace::get_function(builder, 0x51, "saxpy");
        let run = |builder: &mut TraceBuilder, what: &[&str]| {
            for what in what {
                match *what {
                    "launch" => test_trace::launch(builder, 0x51, [1, 1, 1]),
                    other => test_trace::marker(builder, other),
                }
            }
        };
        run(builder, &["push epoch", "push step 0", "launch", "pop"]);
        run(
            builder,
            &["mark a", "push step 1", "launch", "launch", "pop", "launch"],
        );
        run(
            builder,
            &["start 5 lib@load", "pop", "launch", "end 5", "mark b"],
        );
        run(builder, &["launch", "mark a", "push step 0", "launch"]);
        test_trace::open(builder, "call-set-marked")
    }

    #[test]
    fn calls_in_ranges_and_between_marks() {
        let trace = marked();
        for (text, expected) in [
            ("range:epoch", vec![1, 2, 3, 4]),
            ("range:step*", vec![1, 2, 3, 7]),
            ("range:step 0", vec![1, 7]),
            ("range:step 0[0]", vec![1]),
            ("range:step*[-1]", vec![7]),
            ("range:step*[1..3]", vec![2, 3, 7]),
            ("range:epoch/step*", vec![1, 2, 3]),
            ("range:*/step 1", vec![2, 3]),
            ("range:lib@load", vec![5]),
            ("range:load", vec![5]),
            ("range:l*@*,0", vec![0, 5]),
            ("mark:a..", vec![2, 3, 4, 5, 6, 7]),
            ("mark:a[1]..", vec![7]),
            ("mark:a..mark:b", vec![2, 3, 4, 5]),
            ("mark:a..mark:a", vec![2, 3, 4, 5, 6]),
            ("..mark:a[0]", vec![0, 1]),
            ("..mark:b,range:step 0[1]", vec![0, 1, 2, 3, 4, 5, 7]),
        ] {
            let set = CallSet::for_trace(text, &trace).unwrap();
            let found: Vec<u64> = set.calls(&trace).collect();
            assert_eq!(found, expected, "{text}");
        }
        for (text, what) in [
            (
                "range:stp",
                "no range `stp`; the trace has epoch, step 0, step 1, load",
            ),
            ("range:other@*", "no range `other@*`"),
            (
                "range:step*[3]",
                "the trace has 3 such ranges, numbered from 0",
            ),
            ("mark:c..", "no mark `c`; the trace has a, b"),
            ("mark:b..mark:b", "no mark `b` follows the begin"),
        ] {
            let failure = CallSet::for_trace(text, &trace).unwrap_err();
            assert!(
                failure.message.contains(what),
                "{text}: {}",
                failure.message
            );
            assert!(!failure.message.contains('\n'), "{text}");
        }
        let mut builder = TraceBuilder::new(cutape_registry::SIGNATURE_TEXT);
        test_trace::get_function(&mut builder, 0x51, "saxpy");
        let bare = test_trace::open(&builder, "call-set-unmarked");
        let failure = CallSet::for_trace("range:step", &bare).unwrap_err();
        assert!(failure.message.contains("the trace has no ranges"));
    }
}
