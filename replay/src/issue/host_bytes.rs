//! Host bytes that the user gives to copies, and takes from them.

use std::sync::Arc;

use cutape_format::layout::field;
use cutape_registry::Role;

use crate::api::result_name;
use crate::compare::payload::Payload;
use crate::compare::readbacks::gather;
use crate::player::Job;
use crate::report::{ReplacedInput, SavedOutput};

impl Job<'_, '_> {
    /// The bytes that the user gives to this copy in place of the recorded ones; it reads `length`.
    pub(crate) fn given_bytes(&mut self, length: u64) -> Option<Arc<[u8]>> {
        let inputs = &self.options.inputs;
        let (_, given) = inputs.iter().find(|(call, _)| *call == self.call.index)?;
        let given = given.clone();
        let error = if self.current.is_captured {
            Some("it is captured: each launch of the graph brings its own bytes".to_owned())
        } else if given.len() as u64 != length {
            Some(format!(
                "it reads {length} bytes, {} are given",
                given.len()
            ))
        } else {
            None
        };
        let is_used = error.is_none();
        let differs = is_used && !self.recorded_are(&given);
        let input = ReplacedInput {
            call: self.call.index,
            function: self.function.name.to_owned(),
            bytes: given.len() as u64,
            differs,
            error,
        };
        let report = &mut self.player.report;
        if report.replaced.last().map(|last| last.call) != Some(input.call) {
            report.replaced.push(input);
        }
        is_used.then_some(given)
    }

    /// Whether the recorded host bytes of the copy are these.
    fn recorded_are(&self, bytes: &[u8]) -> bool {
        let rows = || {
            let mut snapshots = self.call.snapshots();
            snapshots.find(|snapshot| snapshot.field == field::HOST_BYTES)
        };
        let params = self.function.params.iter();
        let reads_host = |param: &cutape_registry::Param| matches!(param.role, Role::HostRead(_));
        let found = match params.into_iter().position(reads_host) {
            Some(position) => self.call.snapshot(position, field::POINTEE),
            None => rows(),
        };
        match found.map(|snapshot| self.payload(&snapshot)) {
            Some(Payload::Here(recorded)) => *recorded == *bytes,
            _ => false,
        }
    }

    /// Gives the host bytes that this copy has brought to the user, if asked for: live address,
    /// length of each piece.
    pub(crate) fn save_bytes(&mut self, pieces: &[(u64, usize)]) {
        let Some(outputs) = &self.options.outputs else {
            return;
        };
        if !outputs.calls.contains(&self.call.index) || self.current.is_captured {
            return;
        }
        let take = outputs.take.clone();
        // The copy may still run, and what it waits for.
        let waited = self.wait_for_all_work();
        let bytes = gather(pieces);
        let taken = match waited {
            Ok(()) => take(self.call.index, &bytes),
            Err(code) => Err(format!("waiting for it returned {}", result_name(code))),
        };
        self.player.report.saved.push(SavedOutput {
            call: self.call.index,
            function: self.function.name.to_owned(),
            bytes: bytes.len() as u64,
            error: taken.err(),
        });
    }
}
