//! What a trace has instead, where no call matches a set.

use std::collections::{BTreeMap, BTreeSet};

use cutape_analyzer::demangle::{bare, demangle};
use cutape_analyzer::suggestion::did_you_mean;
use cutape_format::{Call, Trace};
use cutape_model::{Scope, TraceState};

use cutape_render::quantity;

use super::matching::{CallSet, Chooser, is_failed, result_name};
use super::term::Term;

/// How many names an error lists.
const SHOWN: usize = 4;
/// Longer names are not listed.
const LONGEST: usize = 80;

/// What a trace can be asked for.
#[derive(Debug, Default)]
struct Contents {
    calls: u64,
    threads: BTreeSet<u32>,
    functions: BTreeSet<String>,
    /// Launches of each kernel, by its name without result and parameters.
    kernels: BTreeMap<String, u64>,
    /// Of calls that failed.
    results: BTreeSet<String>,
}

impl Contents {
    fn add(&mut self, call: &Call<'_>, kernel: Option<&str>, trace: &Trace) {
        self.calls += 1;
        self.threads.insert(call.thread);
        if !self.functions.contains(&*call.signature.base) {
            self.functions.insert(call.signature.base.to_string());
        }
        if let Some(kernel) = kernel {
            let name = demangle(kernel);
            *self.kernels.entry(bare(&name).to_owned()).or_default() += 1;
        }
        if is_failed(call)
            && let Some(name) = result_name(call, trace)
            && !self.results.contains(name)
        {
            self.results.insert(name.to_owned());
        }
    }

    /// Why no call matches a term.
    fn lacks(&self, term: &Term) -> String {
        match term {
            Term::Range(..) => {
                format!("the trace has calls 0 to {}", self.calls.saturating_sub(1))
            }
            Term::Thread(_) => match (self.threads.first(), self.threads.last()) {
                (Some(first), Some(last)) if first < last => {
                    format!("the trace has threads {first} to {last}")
                }
                (Some(only), _) => format!("the trace has thread {only} alone"),
                _ => "the trace has no calls".to_owned(),
            },
            Term::Function(glob) => {
                let names = self.functions.iter().map(String::as_str);
                format!(
                    "the program does not call `{}`{}",
                    glob.escape_debug(),
                    did_you_mean(glob, names)
                )
            }
            Term::Kernel(glob, _) => self.lacks_kernel(glob),
            Term::Marked(..) => "no call lies in what the markers enclose".to_owned(),
            Term::Text(text, _) => {
                let names = self.functions.iter().map(String::as_str);
                let names = names.chain(self.kernels.keys().map(String::as_str));
                format!(
                    "no function, kernel or result contains `{}`{}",
                    text.escape_debug(),
                    did_you_mean(text, names)
                )
            }
            Term::Failed => "no call failed".to_owned(),
            Term::Result(glob) => {
                let others: Vec<&str> = self.results.iter().map(String::as_str).collect();
                let others = match others.is_empty() {
                    true => "no call failed".to_owned(),
                    false => format!("calls returned {}", others.join(", ")),
                };
                format!("no call returned `{}`; {others}", glob.escape_debug())
            }
            Term::Longer(_) => "no call takes that long".to_owned(),
            Term::Shorter(_) => "no call takes so little time".to_owned(),
            Term::Kind(kind) => format!("no call is of the kind {}", kind.key()),
            Term::Object(glob) => format!("no call names `{}`", glob.escape_debug()),
            Term::Memory(address) => format!("no call names memory at {address:#x}"),
            Term::Stack(glob, _) => {
                format!("no call stack has `{}`", glob.escape_debug())
            }
        }
    }

    fn lacks_kernel(&self, glob: &str) -> String {
        if self.kernels.is_empty() {
            return "the trace has no launches of named kernels".to_owned();
        }
        let mut what = format!("no kernel `{}` is launched", glob.escape_debug());
        let word = glob.trim_matches('*').to_lowercase();
        let contains = |name: &&String| name.to_lowercase().contains(&word);
        let containing = self.kernels.keys().filter(contains).count() as u64;
        if containing > 0 && !word.contains(['*', '?']) {
            let kernels = quantity::count(containing, "kernel");
            what += &format!("; `kernel:*{}*` matches {kernels}", word.escape_debug());
            return what;
        }
        // The last part of a path of namespaces is what people remember.
        let short = |name: &str| name.chars().count() <= LONGEST;
        let names = || self.kernels.keys().map(String::as_str).filter(|n| short(n));
        let suggestion = did_you_mean(glob, names());
        if !suggestion.is_empty() {
            return what + &suggestion;
        }
        let listed: Vec<String> = names()
            .take(SHOWN)
            .map(|name| format!("`{}`", name.escape_debug()))
            .collect();
        if listed.is_empty() {
            what += "; `cutape info` lists the kernels";
        } else {
            let more = if self.kernels.len() > listed.len() {
                ", ..."
            } else {
                ""
            };
            what += &format!("; the trace has {}{more}", listed.join(", "));
        }
        what
    }
}

/// Why no launch of a trace is of such a kernel.
pub fn no_kernel(glob: &str, trace: &Trace) -> String {
    let mut state = TraceState::new(Scope::Kernels);
    let mut contents = Contents::default();
    for call in trace.calls() {
        state.observe(&call);
        contents.add(&call, state.launched_kernel(&call), trace);
    }
    contents.lacks_kernel(glob)
}

/// Why no call of a trace is in a set, in one line.
pub(super) fn no_match(set: &CallSet, trace: &Trace) -> String {
    // The terms that hold for no call so far.
    let mut missing = set.expression.terms();
    missing.retain(|(_, is_negated)| !is_negated);
    let mut contents = Contents::default();
    let mut chooser = Chooser::with_kernels(set, trace);
    for call in trace.calls() {
        chooser.observe(&call);
        let seen = chooser.seen(&call);
        contents.add(&call, seen.kernel, trace);
        missing.retain(|(term, _)| !set.holds(term, &call, seen));
    }
    if contents.calls == 0 {
        return "no call matches: the trace has no calls".to_owned();
    }
    let mut reasons: Vec<String> = Vec::new();
    for (term, _) in missing {
        let reason = contents.lacks(term);
        if !reasons.contains(&reason) {
            reasons.push(reason);
        }
    }
    match reasons.is_empty() {
        true => "no call matches all of it, though its parts match some".to_owned(),
        false => format!("no call matches: {}", reasons.join("; ")),
    }
}

#[cfg(test)]
mod tests {
    use cutape_format::TraceBuilder;

    use super::*;
    use cutape_render::test_trace;

    #[test]
    fn what_a_trace_has_instead() {
        let mut builder = TraceBuilder::new(cutape_registry::SIGNATURE_TEXT);
        for (handle, name) in [(0x51, "_Z5saxpyifPfS_"), (0x52, "fill_zeros")] {
            test_trace::get_function(&mut builder, handle, name);
            test_trace::launch(&mut builder, handle, [1, 1, 1]);
        }
        let trace = test_trace::open(&builder, "unmatched");
        for (set, expected) in [
            ("7", "the trace has calls 0 to 3"),
            ("7,9..", "no call matches: the trace has calls 0 to 3"),
            ("thread:3", "the trace has thread 0 alone"),
            (
                "cuLaunchKernelEx",
                "does not call `cuLaunchKernelEx`; did you mean `cuLaunchKernel`",
            ),
            (
                "kernel:saxpi",
                "no kernel `saxpi` is launched; did you mean `saxpy`?",
            ),
            ("kernel:zeros", "`kernel:*zeros*` matches 1 kernel"),
            ("kernel:xyz", "the trace has `fill_zeros`, `saxpy`"),
        ] {
            let message = no_match(&CallSet::parse(set).unwrap(), &trace);
            assert!(message.contains(expected), "{set}: {message}");
            assert!(message.starts_with("no call matches: "), "{set}: {message}");
        }
        let parts = no_match(&CallSet::parse("0 1").unwrap(), &trace);
        assert_eq!(
            parts,
            "no call matches all of it, though its parts match some"
        );
        let builder = TraceBuilder::new(cutape_registry::SIGNATURE_TEXT);
        let empty = test_trace::open(&builder, "unmatched-empty");
        for set in ["not failed", "0", "thread:0", "kernel:saxpy"] {
            let message = no_match(&CallSet::parse(set).unwrap(), &empty);
            assert_eq!(message, "no call matches: the trace has no calls", "{set}");
        }
    }
}
