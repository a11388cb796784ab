//! What the calls of an answer are: one walk over the trace for all of them.

use std::collections::{BTreeMap, BTreeSet};

use cutape_analyzer::decode::Names;
use cutape_analyzer::own_frame;
use cutape_format::Trace;
use cutape_model::Scope;
use cutape_render::{Limits, Renderer};
use cutape_symbols::{Resolver, stacks};
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

/// A call, as people know it.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct CallFacts {
    /// The function.
    pub function: String,
    /// The kernel that it launches, demangled.
    pub kernel: Option<String>,
    /// The call with its arguments.
    pub text: String,
    /// The thread, numbered in the order of first calls.
    pub thread: u32,
    /// Where the program makes it: `train.py:42 in step`; the caller without a call stack.
    pub from: Option<String>,
}

/// The facts of some calls.
#[derive(Debug, Default)]
pub struct Facts(FxHashMap<u64, CallFacts>);

/// Walks over the trace as far as the last of these calls.
pub fn facts(trace: &Trace, wanted: BTreeSet<u64>) -> Facts {
    let mut found = FxHashMap::default();
    let Some(&last) = wanted.last() else {
        return Facts(found);
    };
    let mut renderer = Renderer::new(trace, Limits::TEXT, Scope::Kernels);
    let resolver = Resolver::default();
    for call in trace.calls().take_while(|call| call.index <= last) {
        renderer.observe(&call);
        if !wanted.contains(&call.index) {
            continue;
        }
        let Renderer { calls, state } = &mut renderer;
        let text = calls.call_text(&call, |handle| state.kernel_name(handle));
        let kernel = renderer
            .render(&call)
            .launch
            .and_then(|launch| launch.kernel_name());
        let stack = call
            .stack()
            .and_then(|id| stacks::frames(trace, &resolver, id));
        let own = stack.as_deref().and_then(own_frame);
        let caller = || match trace.symbol(call.caller) {
            Some(symbol) => Some(symbol.to_owned()),
            None => resolver.resolve(trace, call.caller),
        };
        found.insert(
            call.index,
            CallFacts {
                function: call.signature.name.to_string(),
                kernel,
                text,
                thread: call.thread,
                from: own.map(|frame| frame.place(None)).or_else(caller),
            },
        );
    }
    Facts(found)
}

impl Facts {
    /// Those of one call.
    pub fn of(&self, call: u64) -> CallFacts {
        self.0.get(&call).cloned().unwrap_or_default()
    }

    /// The labels of addresses before calls, or at the end.
    pub fn label(
        &self,
        trace: &Trace,
        addresses: Vec<(Option<u64>, u64)>,
    ) -> BTreeMap<(Option<u64>, u64), String> {
        let mut wanted = addresses;
        wanted.sort_by_key(|&(before, _)| before.unwrap_or(u64::MAX));
        let mut found = BTreeMap::new();
        let mut renderer = Renderer::new(trace, Limits::TEXT, Scope::Kernels);
        let mut wanted = wanted.into_iter().peekable();
        let mut take = |end: u64, renderer: &Renderer<'_>| {
            let is_due = |&(before, _): &(Option<u64>, u64)| before.unwrap_or(u64::MAX) <= end;
            while let Some((before, address)) = wanted.next_if(is_due) {
                if let Some(label) = renderer.calls.labels.place(address) {
                    found.insert((before, address), label);
                }
            }
            wanted.peek().is_some()
        };
        for call in trace.calls() {
            if !take(call.index, &renderer) {
                break;
            }
            renderer.observe(&call);
        }
        take(u64::MAX, &renderer);
        found
    }
}
