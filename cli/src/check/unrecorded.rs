//! Functions whose calls are missing from the trace.

use std::collections::BTreeSet;

use cutape_format::{Call, Note, Trace};

/// Functions that the program called or requested with cuGetProcAddress, and that the recorder
/// does not know.
#[derive(Default)]
pub(super) struct UnrecordedFunctions(BTreeSet<String>);

impl UnrecordedFunctions {
    pub(super) fn observe(&mut self, call: &Call<'_>) {
        for note in call.notes() {
            if let Note::UnknownSymbol(name) = note {
                self.0.insert(name);
            }
        }
    }

    /// Lists them on stderr.
    pub(super) fn report(mut self, trace: &Trace) {
        let forwarded = trace.forwarded().map(|(name, _)| name.to_owned());
        self.0.extend(forwarded);
        if self.0.is_empty() {
            return;
        }
        let names: Vec<_> = self
            .0
            .iter()
            .map(|name| name.escape_debug().to_string())
            .collect();
        eprintln!(
            "cutape: not checked: calls of {}, which the recorder does not know and did not record",
            names.join(", ")
        );
    }
}
