//! The calls of a report: read again, when it is known which they are.

use std::collections::{BTreeMap, BTreeSet};

use cutape_analyzer::{TraceContext, own_frame};
use cutape_format::{Call, Trace};
use cutape_model::Scope;
use cutape_registry::Kind;
use cutape_render::{Limits, Renderer};
use cutape_symbols::{Resolver, SymbolContext};

use crate::report::{Line, Node};

/// Calls, names of streams and contexts, names of kernels.
#[derive(Debug)]
pub(crate) struct Lines {
    lines: BTreeMap<u64, Line>,
    streams: BTreeMap<u64, String>,
    contexts: BTreeMap<u64, String>,
}

/// What is to be read.
#[derive(Debug, Default)]
pub(crate) struct Wanted {
    pub(crate) calls: BTreeSet<u64>,
    /// Handles.
    pub(crate) streams: BTreeSet<u64>,
    pub(crate) contexts: BTreeSet<u64>,
    /// By the call that launches a graph: the calls that added its kernels, and their handles.
    pub(crate) nodes: BTreeMap<u64, Vec<(u64, u64)>>,
}

impl Lines {
    pub(crate) fn read(trace: &Trace, wanted: &Wanted) -> Self {
        let mut renderer = Renderer::new(trace, Limits::TEXT, Scope::All);
        let resolver = Resolver::default();
        let context = SymbolContext::new(trace, &resolver);
        let mut lines = BTreeMap::new();
        let (Some(&last), mut left) = (wanted.calls.last(), wanted.calls.iter().peekable()) else {
            return Self::named(&renderer, wanted, lines);
        };
        for call in trace.calls() {
            renderer.observe(&call);
            if left.next_if_eq(&&call.index).is_some() {
                let mut line = line(&mut renderer, &context, &call);
                let nodes = wanted.nodes.get(&call.index).into_iter().flatten();
                line.nodes = nodes
                    .map(|&(call, handle)| Node {
                        call,
                        kernel: renderer.state.kernel_name(handle).map(str::to_owned),
                    })
                    .collect();
                lines.insert(call.index, line);
            }
            if call.index >= last {
                break;
            }
        }
        Self::named(&renderer, wanted, lines)
    }

    fn named(renderer: &Renderer<'_>, wanted: &Wanted, lines: BTreeMap<u64, Line>) -> Self {
        let labels = |kind, handles: &BTreeSet<u64>| {
            let label = |&handle| Some((handle, renderer.label(kind, handle)?));
            handles.iter().filter_map(label).collect()
        };
        Self {
            lines,
            streams: labels(Kind::Stream, &wanted.streams),
            contexts: labels(Kind::Context, &wanted.contexts),
        }
    }

    /// A call that was wanted.
    pub(crate) fn line(&self, call: u64) -> Line {
        let line = self.lines.get(&call).cloned();
        line.unwrap_or_else(|| Line {
            call,
            ..Line::default()
        })
    }

    pub(crate) fn stream(&self, handle: u64) -> String {
        let label = self.streams.get(&handle).cloned();
        label.unwrap_or_else(|| format!("stream {handle:#x}"))
    }

    pub(crate) fn context(&self, handle: u64) -> Option<String> {
        self.contexts.get(&handle).cloned()
    }
}

fn line(renderer: &mut Renderer<'_>, context: &SymbolContext<'_>, call: &Call<'_>) -> Line {
    let rendered = renderer.render(call);
    let launch = rendered.launch.as_ref();
    let kernel = launch.and_then(cutape_render::Launch::kernel_name);
    let mut text = call.signature.base.clone();
    match &kernel {
        Some(kernel) => text.push_str(&format!(" {kernel}")),
        None => {
            text.push('(');
            rendered.write_arguments(&mut text);
            text.push(')');
        }
    }
    Line {
        call: call.index,
        text,
        kernel,
        place: place(context, call),
        nodes: Vec::new(),
    }
}

/// The program's line, or the function that makes the call.
fn place(context: &SymbolContext<'_>, call: &Call<'_>) -> Option<String> {
    let frames = call.stack().map(|id| context.frames(id));
    let own = frames.as_deref().and_then(own_frame);
    own.map(cutape_analyzer::Frame::in_full)
        .or_else(|| context.symbol(call.caller))
}
