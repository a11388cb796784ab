//! What is left of notes, in calls, stacks and markers.

use std::borrow::Cow;

use super::redaction::Secret;
use super::redactor::Redactor;
use crate::codec::{self, Encode};
use crate::layout::{
    MarkerNote, MemoryNote, OriginNote, PythonCodeNote, SharedMappingNote, TextHead, ThreadNote,
    marker_payload, note_kind,
};
use crate::pack::record::put_record;
use crate::read::note::text;
use crate::read::record::records;

/// What is left of a note.
pub(crate) enum ChangedNote<'n> {
    /// Its content, before its snapshots are changed.
    Kept(Cow<'n, [u8]>),
    Removed,
}

impl Redactor<'_> {
    /// What is left of a note. One that cannot be read is removed.
    pub(crate) fn note<'n>(&self, kind: u16, bytes: &'n [u8]) -> ChangedNote<'n> {
        let changed = match kind {
            // They have neither contents nor texts, or snapshots alone.
            note_kind::LAYOUT
            | note_kind::READBACK
            | note_kind::SNAPSHOTS
            | note_kind::HOST_CHANGED
            | note_kind::HOST_SEEN
            | note_kind::HOST_FUNCTION
            | note_kind::HOST_SKIPPED
            | note_kind::BUFFER
            | note_kind::ADDRESS_SPACE
            | note_kind::STACK
            | note_kind::FRAMES
            | note_kind::ZEROED
            | note_kind::DIGEST_SETUP
            | note_kind::SOURCE_CHANGED
            | note_kind::DESCRIPTOR
            | note_kind::EXCHANGE
            | note_kind::EXCHANGE_OUTPUT
            | note_kind::LOOKED
            | note_kind::LOOKED_BEFORE
            | note_kind::NESTED_CALL
            | note_kind::GAP
            | note_kind::BREADCRUMB
            | note_kind::MEMORY_SNAPSHOT
            // Texts of the recorder, and names of functions of the driver.
            | note_kind::STOPPED
            | note_kind::UNKNOWN_SYMBOL => Some(Cow::Borrowed(bytes)),
            note_kind::DIGEST
            | note_kind::DIGEST_VALUES
            | note_kind::DIGEST_SKIPPED
            | note_kind::DIGEST_VOID => {
                (!self.removes(Secret::Payloads)).then_some(Cow::Borrowed(bytes))
            }
            note_kind::DRIVER_MESSAGE => (!self.removes_texts()).then_some(Cow::Borrowed(bytes)),
            note_kind::THREAD if self.removes_texts() => {
                codec::decode::<ThreadNote>(bytes).map(|(note, _)| {
                    // It begins with the name of the program.
                    Cow::Owned(codec::encode_to_vec(ThreadNote {
                        name: [0; 16],
                        ..note
                    }))
                })
            }
            note_kind::ORIGIN if self.removes(Secret::Names) => {
                with_text::<OriginNote>(bytes, |name| self.texts.name(name))
            }
            note_kind::SHARED_MAPPING if self.removes(Secret::Paths) => {
                with_text::<SharedMappingNote>(bytes, |path| self.texts.path(path))
            }
            note_kind::THREAD | note_kind::ORIGIN | note_kind::SHARED_MAPPING => {
                Some(Cow::Borrowed(bytes))
            }
            note_kind::MEMORY => self.memory(bytes).map(Cow::Owned),
            note_kind::MARKER => self.marker(bytes).map(Cow::Owned),
            note_kind::PYTHON_CODE => self.python_code(bytes).map(Cow::Owned),
            _ => None,
        };
        changed.map_or(ChangedNote::Removed, ChangedNote::Kept)
    }

    /// The records of a chunk of notes.
    pub(crate) fn notes(&self, body: &[u8]) -> Vec<u8> {
        let mut out = Vec::with_capacity(body.len());
        for (_, head, record) in records(body).filter(|(_, head, _)| head.is_note()) {
            if let ChangedNote::Kept(record) = self.note(head.function, record) {
                put_record(&mut out, head, &record);
            }
        }
        out
    }

    fn memory(&self, bytes: &[u8]) -> Option<Vec<u8>> {
        let (mut note, used) = codec::decode::<MemoryNote>(bytes)?;
        let rest = bytes.get(used..)?;
        let (name, snapshots) = rest.split_at_checked(note.name_length.into())?;
        let name = match self.removes(Secret::Names) {
            true => self.texts.name(name).into_bytes(),
            false => name.to_vec(),
        };
        note.name_length = u16::try_from(name.len()).ok()?;
        if self.removes(Secret::Payloads) {
            note.fill = 0;
        }
        Some([&codec::encode_to_vec(note), &name, snapshots].concat())
    }

    fn marker(&self, bytes: &[u8]) -> Option<Vec<u8>> {
        if !self.removes(Secret::Names) {
            return Some(bytes.to_vec());
        }
        let (note, used) = codec::decode::<MarkerNote>(bytes)?;
        let rest = bytes.get(used..)?;
        let (domain, rest) = rest.split_at_checked(note.domain_length.into())?;
        let text = self.texts.name(rest.get(..note.text_length as usize)?);
        let domain = self.texts.name(domain);
        let note = MarkerNote {
            payload: 0,
            payload_type: marker_payload::NONE,
            domain_length: u16::try_from(domain.len()).ok()?,
            text_length: u32::try_from(text.len()).ok()?,
            ..note
        };
        Some(
            [
                &codec::encode_to_vec(note),
                domain.as_bytes(),
                text.as_bytes(),
            ]
            .concat(),
        )
    }

    fn python_code(&self, bytes: &[u8]) -> Option<Vec<u8>> {
        if !self.removes_texts() {
            return Some(bytes.to_vec());
        }
        let (note, used) = codec::decode::<PythonCodeNote>(bytes)?;
        let (file, rest) = encoded_text(bytes.get(used..)?)?;
        let (function, table) = encoded_text(rest)?;
        let replaced =
            |secret, (encoded, text): (&[u8], String), new: &dyn Fn(&[u8]) -> String| match self
                .removes(secret)
            {
                true => put_text(&new(text.as_bytes())),
                false => encoded.to_vec(),
            };
        let file = replaced(Secret::Paths, file, &|path| self.texts.path(path));
        let function = replaced(Secret::Names, function, &|name| self.texts.name(name));
        Some([&codec::encode_to_vec(note)[..], &file, &function, table].concat())
    }
}

/// A note whose text after the struct is another one.
fn with_text<'n, N: codec::Decode<()> + Encode>(
    bytes: &[u8],
    new: impl Fn(&[u8]) -> String,
) -> Option<Cow<'n, [u8]>> {
    let (note, used) = codec::decode::<N>(bytes)?;
    let new = new(text(bytes.get(used..)?).as_bytes());
    Some(Cow::Owned(
        [&codec::encode_to_vec(note), new.as_bytes()].concat(),
    ))
}

/// A text of a code object, as it is stored and decoded.
type StoredText<'n> = (&'n [u8], String);

/// A text, and what follows it.
fn encoded_text(bytes: &[u8]) -> Option<(StoredText<'_>, &[u8])> {
    let (text, rest) = crate::read::stack::text_and_rest(bytes)?;
    let encoded = bytes.get(..bytes.len() - rest.len())?;
    Some(((encoded, text), rest))
}

fn put_text(text: &str) -> Vec<u8> {
    let mut out = codec::encode_to_vec(TextHead {
        width: 1,
        length: text.len() as u32,
    });
    out.extend_from_slice(text.as_bytes());
    out
}
