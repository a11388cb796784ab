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
        match is_of_system(path) || path.is_empty() {
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

/// Folders whose files are the same everywhere.
const FOLDERS: [&[u8]; 5] = [
    b"/lib/",
    b"/lib64/",
    b"/usr/lib/",
    b"/usr/lib64/",
    b"/usr/libexec/",
];

/// Whether a path says nothing about its user. `[heap]` and the like are no files; what a program
/// calls its memory has a colon.
fn is_of_system(path: &[u8]) -> bool {
    let is_letter = |byte: &u8| byte.is_ascii_lowercase();
    match path {
        [b'[', name @ .., b']'] => name.iter().all(is_letter),
        _ => {
            let leads_out = path.split(|&byte| byte == b'/').any(|part| part == b"..");
            !leads_out && FOLDERS.iter().any(|folder| path.starts_with(folder))
        }
    }
}

fn numbered(what: &str, number: Option<&usize>) -> String {
    format!("{what}-{}", number.copied().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_of_the_system_stay() {
        for (path, stays) in [
            ("/usr/lib/x86_64-linux-gnu/libm.so.6", true),
            ("/lib64/ld-linux-x86-64.so.2", true),
            ("[heap]", true),
            ("", true),
            ("/library/alice/app", false),
            ("/usr/library/alice/app", false),
            ("/usr/lib/../../home/alice/app", false),
            ("/lib/../home/alice/app", false),
            ("[secret]/kernel.cubin", false),
            ("[anon:secret]", false),
            ("relative/lib/kernel.cubin", false),
        ] {
            let mut texts = Texts::default();
            texts.add_path(path.as_bytes());
            let expected = if stays { path } else { "path-1" };
            assert_eq!(texts.path(path.as_bytes()), expected);
        }
    }
}
