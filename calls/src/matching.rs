//! Whether a call is in a set.

use std::fmt;

use cutape_analyzer::decode::function_of;
use cutape_analyzer::demangle::{bare, demangle};
use cutape_analyzer::glob::matches;
use cutape_format::{Call, Trace, TraceClock};
use cutape_model::{Effects, Operands, Scope, TraceState};
use cutape_registry::Kind;
use cutape_render::Renderer;
use cutape_render::labels::{self, Labels};
use cutape_report::CallKind;

use cutape_symbols::{Resolver, stacks};

use super::expression::Expression;
use super::term::Term;

/// Some of a trace's calls.
pub struct CallSet {
    pub(super) expression: Expression<Term>,
    pub(super) clock: Option<TraceClock>,
    /// For call stacks.
    resolver: Resolver,
}

impl fmt::Debug for CallSet {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.expression.fmt(formatter)
    }
}

/// What is known when a set is asked about a call, which has been observed.
#[derive(Clone, Copy)]
pub(super) struct Seen<'a> {
    trace: &'a Trace,
    /// Those that `dump` shows.
    labels: &'a Labels,
    /// The one that the call launches, if known.
    pub(super) kernel: Option<&'a str>,
}

/// Finds the calls of a set while it observes all calls, in order.
pub struct Chooser<'s> {
    set: &'s CallSet,
    trace: &'s Trace,
    /// Empty unless the set names objects or memory.
    labels: Labels,
    needs_labels: bool,
    /// If the caller does not know the kernels of launches.
    state: Option<TraceState>,
}

impl<'s> Chooser<'s> {
    /// For a caller who knows the kernels of launches.
    pub fn new(set: &'s CallSet, trace: &'s Trace) -> Self {
        let is_labelled = |term: &Term| matches!(term, Term::Object(_) | Term::Memory(_));
        let terms = set.expression.terms();
        Self {
            set,
            trace,
            labels: Labels::default(),
            needs_labels: terms.into_iter().any(|(term, _)| is_labelled(term)),
            state: None,
        }
    }

    pub(super) fn with_kernels(set: &'s CallSet, trace: &'s Trace) -> Self {
        Self {
            state: Some(TraceState::new(Scope::Kernels)),
            ..Self::new(set, trace)
        }
    }

    /// Takes a call; expects every call, in order.
    pub fn observe(&mut self, call: &Call<'_>) {
        if let Some(state) = &mut self.state {
            state.observe(call);
        }
        if self.needs_labels
            && let Some(function) = function_of(call.signature)
        {
            self.labels.observe(&Effects::of(function), call);
        }
    }

    /// Whether the set contains the call observed last; `kernel` is the kernel that it launches, if
    /// known.
    pub fn contains(&self, call: &Call<'_>, kernel: Option<&str>) -> bool {
        let (trace, labels) = (self.trace, &self.labels);
        let seen = Seen {
            trace,
            labels,
            kernel,
        };
        self.set.contains(call, seen)
    }

    /// What is known about the call observed last, with the kernel that the chooser knows.
    pub(super) fn seen(&mut self, call: &Call<'_>) -> Seen<'_> {
        let state = self.state.as_mut();
        Seen {
            trace: self.trace,
            labels: &self.labels,
            kernel: state.and_then(|state| state.launched_kernel(call)),
        }
    }
}

impl CallSet {
    pub(super) fn new(expression: Expression<Term>) -> Self {
        Self {
            expression,
            clock: None,
            resolver: Resolver::default(),
        }
    }

    /// Whether the set contains a call that a renderer has observed.
    pub fn contains_rendered(&self, call: &Call<'_>, renderer: &mut Renderer<'_>) -> bool {
        let seen = Seen {
            trace: renderer.calls.trace,
            labels: &renderer.calls.labels,
            kernel: renderer.state.launched_kernel(call),
        };
        self.contains(call, seen)
    }

    pub(super) fn contains(&self, call: &Call<'_>, seen: Seen<'_>) -> bool {
        self.expression
            .holds(&mut |term| self.holds(term, call, seen))
    }

    pub(super) fn holds(&self, term: &Term, call: &Call<'_>, seen: Seen<'_>) -> bool {
        let (signature, kernel) = (call.signature, seen.kernel);
        match term {
            Term::Range(from, to) => (*from..*to).contains(&call.index),
            Term::Function(glob) => {
                matches(glob, &signature.name) || matches(glob, &signature.base)
            }
            Term::Kernel(glob, known) => {
                kernel.is_some_and(|kernel| known.of(kernel, || matches_kernel(glob, kernel)))
            }
            Term::Text(text, known) => {
                let contains = |name: &str| name.to_lowercase().contains(text);
                known.of(&*signature.name, || contains(&signature.name))
                    || kernel.is_some_and(|kernel| {
                        known.of(kernel, || contains(kernel) || contains(&demangle(kernel)))
                    })
                    || is_failed(call)
                        && result_name(call, seen.trace)
                            .is_some_and(|name| known.of(name, || contains(name)))
            }
            Term::Thread(thread) => call.thread == *thread,
            Term::Marked(_, moments) => moments.contain(call.ticks),
            Term::Failed => is_failed(call),
            Term::Result(glob) => {
                result_name(call, seen.trace).is_some_and(|name| matches_result(glob, name))
            }
            Term::Longer(bound) => self.duration(call).is_some_and(|time| time > *bound),
            Term::Shorter(bound) => self.duration(call).is_some_and(|time| time < *bound),
            Term::Kind(kind) => CallKind::of(function_of(signature)) == *kind,
            Term::Object(glob) => objects_of(call, seen.labels)
                .iter()
                .any(|label| matches(glob, label)),
            Term::Memory(address) => names_memory(call, seen.labels, *address),
            Term::Stack(glob, known) => call
                .stack()
                .is_some_and(|id| known.of(&id, || self.has_frame(glob, seen.trace, id))),
        }
    }

    /// In nanoseconds; `None` for a call that did not return.
    fn duration(&self, call: &Call<'_>) -> Option<f64> {
        let nanoseconds = self.clock?.between(call.ticks, call.leave?.ticks)?;
        Some(nanoseconds as f64)
    }

    fn has_frame(&self, glob: &str, trace: &Trace, stack: u64) -> bool {
        let frames = stacks::frames(trace, &self.resolver, stack);
        frames.into_iter().flatten().any(|frame| {
            let is = |text: &str| matches(glob, text);
            let of_file = |path: &str| {
                let name = path.rsplit('/').next().unwrap_or(path);
                let line = |path: &str| is(&format!("{path}:{}", frame.line));
                is(path) || is(name) || line(path) || line(name)
            };
            is(&frame.function)
                || is(bare(&frame.function))
                || of_file(&frame.file)
                || of_file(&frame.module)
        })
    }
}

/// Whether a call returned an error, or did not return.
pub(super) fn is_failed(call: &Call<'_>) -> bool {
    let is_error = |result| result != 0 && call.signature.returns == "CUresult";
    call.result().map_or(call.leave.is_none(), is_error)
}

/// The name of a call's result; `None` if it has none.
pub(super) fn result_name<'t>(call: &Call<'_>, trace: &'t Trace) -> Option<&'t str> {
    let results = trace.signatures().enumeration("CUresult")?;
    let result = call
        .result()
        .filter(|_| call.signature.returns == "CUresult")?;
    results.name_of(i64::from(result))
}

/// What a call names: objects by kind and handle, those that it creates too, and addresses.
struct Named {
    handles: Vec<(Kind, u64)>,
    addresses: Vec<u64>,
}

impl Named {
    fn of(call: &Call<'_>) -> Self {
        let Some(function) = function_of(call.signature) else {
            return Self {
                handles: Vec::new(),
                addresses: Vec::new(),
            };
        };
        let operands = Operands::of(function, call);
        let mut addresses: Vec<u64> = operands.addresses().collect();
        addresses.extend(&operands.words);
        let mut handles = operands.handles;
        handles.extend(labels::created(&Effects::of(function), call));
        // A kernel may be launched by its own handle, cast to CUfunction.
        let kernels: Vec<u64> = handles
            .iter()
            .filter(|(kind, _)| *kind == Kind::Function)
            .map(|(_, handle)| *handle)
            .collect();
        handles.extend(kernels.into_iter().map(|handle| (Kind::Kernel, handle)));
        let is_memory = |(kind, _): &(Kind, u64)| kind.is_address();
        addresses.extend(
            handles
                .iter()
                .filter(|named| is_memory(named))
                .map(|(_, at)| at),
        );
        Self { handles, addresses }
    }
}

/// The labels of the objects that a call names.
fn objects_of(call: &Call<'_>, labels: &Labels) -> Vec<String> {
    let Named { handles, addresses } = Named::of(call);
    let of_handles = handles.into_iter();
    let of_handles = of_handles.filter_map(|(kind, handle)| labels.label(kind, handle));
    let of_addresses = addresses.into_iter();
    let of_addresses = of_addresses.filter_map(|address| {
        let (range, kind) = labels.around(address)?;
        labels.label(kind, range.start)
    });
    of_handles.chain(of_addresses).collect()
}

/// Whether a call names an address in the memory that has `address`; where no call allocated such
/// memory, the address itself.
fn names_memory(call: &Call<'_>, labels: &Labels, address: u64) -> bool {
    let around = labels.around(address).map(|(range, _)| range);
    let mut addresses = Named::of(call).addresses.into_iter();
    match around {
        Some(range) => addresses.any(|named| range.contains(&named)),
        None => addresses.any(|named| named == address),
    }
}

/// Whether a glob matches a kernel's name: as in the image, or demangled with or without
/// parameters.
pub fn matches_kernel(glob: &str, kernel: &str) -> bool {
    let readable = demangle(kernel);
    matches(glob, kernel) || matches(glob, &readable) || matches(glob, bare(&readable))
}

/// `CUDA_ERROR_NOT_FOUND` as most people call it: `NOT_FOUND`.
pub(super) fn short_result(name: &str) -> &str {
    name.strip_prefix("CUDA_ERROR_").unwrap_or(name)
}

/// Whether a glob matches a result's name, whole or without `CUDA_ERROR_`.
pub(super) fn matches_result(glob: &str, name: &str) -> bool {
    matches(glob, name) || matches(glob, short_result(name))
}
