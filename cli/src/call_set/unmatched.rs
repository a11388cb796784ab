//! What a trace has instead, where no call matches a set.

use std::collections::{BTreeMap, BTreeSet};

use cutape_analyzer::demangle::{bare, demangle};
use cutape_analyzer::suggestion::did_you_mean;
use cutape_format::Trace;
use cutape_model::{Scope, TraceState};

use super::term::Term;
use cutape_render::quantity;

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
}

impl Contents {
    fn of(trace: &Trace) -> Self {
        let mut state = TraceState::new(Scope::Kernels);
        let mut contents = Self::default();
        for call in trace.calls() {
            state.observe(&call);
            contents.calls += 1;
            contents.threads.insert(call.thread);
            if !contents.functions.contains(&*call.signature.base) {
                contents.functions.insert(call.signature.base.to_string());
            }
            if let Some(kernel) = state.launched_kernel(&call) {
                let name = demangle(kernel);
                *contents.kernels.entry(bare(&name).to_owned()).or_default() += 1;
            }
        }
        contents
    }

    /// Why no call matches a term.
    fn lacks(&self, term: &Term) -> String {
        match term {
            Term::Range(..) => match self.calls {
                0 => "the trace has no calls".to_owned(),
                calls => format!("the trace has calls 0 to {}", calls - 1),
            },
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
            Term::Kernel(glob) => self.lacks_kernel(glob),
            Term::Marked(_) => "no call lies in what the markers enclose".to_owned(),
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
pub(crate) fn no_kernel(glob: &str, trace: &Trace) -> String {
    Contents::of(trace).lacks_kernel(glob)
}

/// Why no call of a trace matches any of the terms, in one line.
pub(super) fn no_match(terms: &[Term], trace: &Trace) -> String {
    let contents = Contents::of(trace);
    let mut reasons: Vec<String> = Vec::new();
    for term in terms {
        let reason = contents.lacks(term);
        if !reasons.contains(&reason) {
            reasons.push(reason);
        }
    }
    format!("no call matches: {}", reasons.join("; "))
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
            let terms: Result<Vec<Term>, _> = set.split(',').map(Term::parse).collect();
            let message = no_match(&terms.unwrap(), &trace);
            assert!(message.contains(expected), "{set}: {message}");
            assert!(message.starts_with("no call matches: "), "{set}: {message}");
        }
    }
}
