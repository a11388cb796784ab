//! Texts that take the place of paths and names: equal ones for equal ones, numbered in the order of
//! the trace.

use std::collections::HashMap;

use super::redaction::{Redaction, Secret, Subject};
use crate::layout::field;
use crate::read::error::Error;
use crate::read::note::Note;
use crate::read::signature::Signature;
use crate::read::snapshot::Snapshot;
use crate::read::trace::Trace;

/// Numbers by text.
#[derive(Debug, Default)]
pub(super) struct Texts {
    paths: HashMap<Vec<u8>, usize>,
    names: HashMap<Vec<u8>, usize>,
}

impl Texts {
    /// Those of the trace that are to be replaced.
    pub(super) fn of(trace: &Trace, redaction: &Redaction<'_>) -> Result<Self, Error> {
        let mut texts = Self::default();
        let takes_paths = redaction.secrets.has(Secret::Paths);
        if !takes_paths && !redaction.secrets.has(Secret::Names) {
            return Ok(texts);
        }
        for (_, value) in trace.meta().iter().filter(|entry| entry.0 == "program") {
            texts.add_path(value.as_bytes());
        }
        for mapping in trace.mappings() {
            texts.add_path(mapping.path.as_bytes());
        }
        trace.walk().run(|call| {
            for snapshot in call.snapshots() {
                texts.add_snapshot(redaction, call.signature, &snapshot);
            }
            for snapshot in call.leave.iter().flat_map(|leave| leave.snapshots()) {
                texts.add_snapshot(redaction, call.signature, &snapshot);
            }
            for note in call.notes() {
                match note {
                    Note::Origin(_, name) | Note::Memory(_, name, _) => {
                        texts.add_name(name.as_bytes());
                    }
                    Note::SharedMapping(_, path) => texts.add_path(path.as_bytes()),
                    _ => {}
                }
            }
            Ok::<_, Error>(())
        })?;
        for source in trace.sources_by_address() {
            texts.add_path(source.module.as_bytes());
            for frame in &source.frames {
                texts.add_path(frame.file.as_bytes());
                texts.add_name(frame.function.as_bytes());
            }
        }
        for code in trace.python_codes() {
            texts.add_path(code.file.as_bytes());
            texts.add_name(code.function.as_bytes());
        }
        for marker in trace.markers() {
            texts.add_name(marker.domain.as_bytes());
            texts.add_name(marker.text.as_bytes());
        }
        Ok(texts)
    }

    fn add_snapshot(
        &mut self,
        redaction: &Redaction<'_>,
        signature: &Signature,
        snapshot: &Snapshot<'_>,
    ) {
        let Some(bytes) = snapshot.bytes.inline() else {
            return;
        };
        let text = bytes.strip_suffix(b"\0").unwrap_or(bytes);
        let subject = match snapshot.field {
            field::POINTEE | field::TEXT => {
                (redaction.subject)(signature, snapshot.parameter.into())
            }
            field::DIRECTORY => Subject::Path,
            _ => Subject::Call,
        };
        match subject {
            Subject::Path => self.add_path(text),
            Subject::Name => self.add_name(text),
            _ => {}
        }
    }

    fn add_path(&mut self, path: &[u8]) {
        let next = self.paths.len() + 1;
        self.paths.entry(path.to_vec()).or_insert(next);
    }

    fn add_name(&mut self, name: &[u8]) {
        let next = self.names.len() + 1;
        self.names.entry(name.to_vec()).or_insert(next);
    }

    /// What takes the place of a path.
    pub(super) fn path(&self, path: &[u8]) -> String {
        // Files of the system are the same everywhere; `[heap]` and the like are no files.
        let is_of_system = [&b"/usr/lib"[..], b"/lib", b"["]
            .iter()
            .any(|start| path.starts_with(start));
        match is_of_system || path.is_empty() {
            true => String::from_utf8_lossy(path).into_owned(),
            false => numbered("path", self.paths.get(path)),
        }
    }

    /// What takes the place of a name.
    pub(super) fn name(&self, name: &[u8]) -> String {
        match name.is_empty() {
            true => String::new(),
            false => numbered("name", self.names.get(name)),
        }
    }
}

fn numbered(what: &str, number: Option<&usize>) -> String {
    format!("{what}-{}", number.copied().unwrap_or(0))
}
