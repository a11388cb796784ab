//! Calls that load code, and that can come before work which the program enqueues earlier.

use std::borrow::Cow;

use cutape_format::{Bytes, Call, Trace};
use cutape_model::{Needs, NeedsBuilder, function_of};
use cutape_registry::{Family, FunctionOp};

/// The calls of a trace that load code.
#[derive(Debug, Default)]
pub(crate) struct Loads {
    calls: Vec<u64>,
    needs: Needs,
}

impl Loads {
    /// Those between two calls of a window.
    pub(crate) fn of(trace: &Trace, windows: &[(u64, u64)]) -> Self {
        let is_inside = |call: u64| {
            windows
                .iter()
                .any(|&(first, last)| first < call && call < last)
        };
        let loads = trace
            .calls()
            .filter(|call| is_inside(call.index) && loads_code(call));
        let calls: Vec<u64> = loads.map(|call| call.index).collect();
        let Some(&last) = calls.last() else {
            return Self::default();
        };
        let read = |bytes: Bytes<'_>| Some(Cow::Owned(trace.resolve(bytes).ok()?.into_owned()));
        let mut builder = NeedsBuilder::of_chosen(&calls);
        for call in trace.calls().take_while(|call| call.index <= last) {
            builder.push(&call, &read);
        }
        Self {
            calls,
            needs: builder.finish(),
        }
    }

    /// Those between two calls that need no other call between them.
    pub(crate) fn between(&self, (first, last): (u64, u64)) -> Vec<u64> {
        let mut found: Vec<u64> = Vec::new();
        for &call in self
            .calls
            .iter()
            .filter(|&&call| first < call && call < last)
        {
            let mut needs = self.needs.of(call).map(|(needed, _)| u64::from(needed));
            if needs.all(|needed| needed < first || needed > call || found.contains(&needed)) {
                found.push(call);
            }
        }
        found
    }
}

/// Whether a call loads code, or finds some of it.
fn loads_code(call: &Call<'_>) -> bool {
    let family = function_of(call.signature).map(|function| function.family);
    call.succeeded()
        && matches!(
            family,
            Some(
                Family::ModuleLoad(_)
                    | Family::LibraryLoad(_)
                    | Family::LibraryModule
                    | Family::Function(FunctionOp::Find { .. } | FunctionOp::OfKernel { .. })
                    | Family::Kernel(FunctionOp::Find { .. })
            )
        )
}
