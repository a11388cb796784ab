//! Call stacks: what the chunks of stacks hold, and the sources that `pack` has added.

use std::sync::PoisonError;

use crate::codec;
use crate::layout::{
    FramesNote, PythonCodeNote, RECORD_HEAD_LENGTH, ResolvedAddress, TextHead, note_kind,
    python_frame, stack_flag,
};
use crate::read::record::{record_at, records as records_of};
use crate::read::stack_chunks::Found;
use crate::read::trace::Trace;

/// The stack of a call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stack {
    /// It ends with the thread's first function.
    pub is_complete: bool,
    /// The innermost first. Frames of Python come before all native ones.
    pub frames: Vec<StackFrame>,
}

/// A frame of a [`Stack`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StackFrame {
    /// The address to which it returns.
    Native(u64),
    /// A function of Python.
    Python {
        /// For [`Trace::python_code`].
        code: u64,
        /// Offset of the instruction in the bytecode.
        offset: u32,
        /// The frames above it run in another native frame of the interpreter.
        is_last_of_native: bool,
    },
}

/// A code object of Python.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PythonCode {
    /// The version of Python that made it: 0x030b for 3.11.
    pub version: u32,
    /// The first line of its source.
    pub first_line: u32,
    /// The path of its source.
    pub file: String,
    /// The qualified name, or the name before Python 3.11.
    pub function: String,
    /// The table that its lines are computed from, as Python stores it.
    pub line_table: Vec<u8>,
}

impl Trace {
    /// Whether the recorder kept call stacks.
    pub fn has_stacks(&self) -> bool {
        !self.stacks.chunks.is_empty()
    }

    /// How many distinct stacks there are.
    pub fn stack_count(&self) -> usize {
        self.look_for_records();
        let found = self.stacks.found.lock();
        let found = found.unwrap_or_else(PoisonError::into_inner);
        let is_stack = |key: &&(u16, u64)| key.0 == note_kind::FRAMES;
        found.records.keys().filter(is_stack).count()
    }

    /// All distinct stacks, in no order.
    pub fn stack_ids(&self) -> Vec<u64> {
        self.look_for_records();
        let found = self.stacks.found.lock();
        let found = found.unwrap_or_else(PoisonError::into_inner);
        let stacks = found
            .records
            .keys()
            .filter(|key| key.0 == note_kind::FRAMES);
        stacks.map(|key| key.1).collect()
    }

    /// The stack of an id, as [`crate::Note::Stack`] has it.
    pub fn stack(&self, id: u64) -> Option<Stack> {
        let record = self.stack_record(note_kind::FRAMES, id)?;
        let (note, used) = codec::decode::<FramesNote>(record)?;
        let (words, _) = record.get(used..)?.as_chunks::<8>();
        let mut words = words.iter().map(|word| u64::from_le_bytes(*word));
        let frame = std::iter::from_fn(|| {
            let word = words.next()?;
            if word & python_frame::MARK == 0 {
                return Some(StackFrame::Native(word));
            }
            Some(StackFrame::Python {
                code: words.next()?,
                offset: (word & python_frame::OFFSET) as u32,
                is_last_of_native: word & python_frame::LAST_OF_NATIVE != 0,
            })
        });
        Some(Stack {
            is_complete: note.flags & stack_flag::CUT == 0,
            frames: frame.collect(),
        })
    }

    /// The code object of a frame of Python.
    pub fn python_code(&self, id: u64) -> Option<PythonCode> {
        let record = self.stack_record(note_kind::PYTHON_CODE, id)?;
        let (note, used) = codec::decode::<PythonCodeNote>(record)?;
        let (file, rest) = text_and_rest(record.get(used..)?)?;
        let (function, rest) = text_and_rest(rest)?;
        let (head, used) = codec::decode::<TextHead>(rest)?;
        let line_table = rest.get(used..)?.get(..head.length as usize)?;
        Some(PythonCode {
            version: note.version,
            first_line: note.first_line,
            file,
            function,
            line_table: line_table.to_vec(),
        })
    }

    /// All code objects of Python, in the order of the file.
    pub(crate) fn python_codes(&self) -> Vec<PythonCode> {
        let records = self.stack_records();
        let codes = records_of(&records)
            .filter(|(_, head, _)| head.is_note() && head.function == note_kind::PYTHON_CODE);
        let ids = codes.filter_map(|(_, _, record)| record.first_chunk().copied());
        ids.filter_map(|id| self.python_code(u64::from_le_bytes(id)))
            .collect()
    }

    /// The source of an address of a stack, if `pack` or the caller resolved it.
    pub fn source_of(&self, address: u64) -> Option<&ResolvedAddress> {
        self.sources.get(&address)
    }

    /// Adds sources of addresses, which `pack` then writes.
    pub fn name_addresses(&mut self, sources: Vec<ResolvedAddress>) {
        let sources = sources.into_iter();
        self.sources
            .extend(sources.map(|source| (source.address, source)));
    }

    pub(crate) fn sources_by_address(&self) -> Vec<ResolvedAddress> {
        let mut sources: Vec<_> = self.sources.values().cloned().collect();
        sources.sort_unstable_by_key(|source| source.address);
        sources
    }

    /// Every stack and code object once, as records.
    pub(crate) fn stack_records(&self) -> Vec<u8> {
        self.look_for_records();
        let found = self.stacks.found.lock();
        let found = found.unwrap_or_else(PoisonError::into_inner);
        let mut places: Vec<_> = found.records.values().copied().collect();
        places.sort_unstable();
        let mut records = Vec::new();
        for (chunk, at) in places {
            let record = record_at(self.body(chunk), at);
            records.extend_from_slice(record.map_or(&[], |(_, record)| record));
        }
        records
    }

    /// The content of the record of that kind and id.
    fn stack_record(&self, kind: u16, id: u64) -> Option<&[u8]> {
        let find = || {
            let found = self.stacks.found.lock();
            let found = found.unwrap_or_else(PoisonError::into_inner);
            found.records.get(&(kind, id)).copied()
        };
        let place = find().or_else(|| {
            self.look_for_records();
            find()
        });
        let (chunk, at) = place?;
        let (_, record) = record_at(self.body(chunk), at)?;
        record.get(RECORD_HEAD_LENGTH..)
    }

    /// Looks at the records that were not there before: a recorder may still be writing them.
    fn look_for_records(&self) {
        let found = self.stacks.found.lock();
        let mut found = found.unwrap_or_else(PoisonError::into_inner);
        found.ends.resize(self.stacks.chunks.len(), 0);
        let Found { ends, records } = &mut *found;
        for (&chunk, end) in self.stacks.chunks.iter().zip(ends) {
            let body = self.body(chunk);
            while let Some((head, record)) = record_at(body, *end) {
                let id = record
                    .get(RECORD_HEAD_LENGTH..)
                    .and_then(|r| r.first_chunk());
                if let (true, Some(id)) = (head.is_note(), id) {
                    let key = (head.function, u64::from_le_bytes(*id));
                    records.entry(key).or_insert((chunk, *end));
                }
                *end += record.len();
            }
        }
    }
}

/// A text, and what follows it.
pub(crate) fn text_and_rest(bytes: &[u8]) -> Option<(String, &[u8])> {
    let (head, used) = codec::decode::<TextHead>(bytes)?;
    let (text, rest) = bytes.get(used..)?.split_at_checked(head.length as usize)?;
    let points = |width: usize| text.chunks_exact(width);
    let text = match head.width {
        1 => text.iter().copied().map(char::from).collect(),
        2 => {
            let words = points(2).filter_map(|p| p.first_chunk());
            words
                .map(|p| point(u16::from_le_bytes(*p).into()))
                .collect()
        }
        4 => {
            let words = points(4).filter_map(|p| p.first_chunk());
            words.map(|p| point(u32::from_le_bytes(*p))).collect()
        }
        _ => return None,
    };
    Some((text, rest))
}

fn point(value: u32) -> char {
    char::from_u32(value).unwrap_or(char::REPLACEMENT_CHARACTER)
}
