//! Building a trace by hand, record by record, as a recorder would leave it: for tests of readers.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;

use crate::codec::{self, Encode};
use crate::control::{CONTROL_LENGTH, Incomplete};
use crate::file_range::FileRange;
use crate::layout::{
    BUFFER_NOTE_LENGTH, BlobRef, BufferNote, CHUNK_ALIGNMENT, CHUNK_CLOSED, CHUNK_HEAD_LENGTH,
    ChunkHead, EnterHead, ExchangeOutputNote, FILE_HEAD_LENGTH, FileHead, FramesNote,
    HostChangedNote, HostSkippedNote, INLINE_LIMIT, LayoutNote, LeaveHead, MAGIC, MAJOR, Mapping,
    MarkerNote, MemoryNote, OriginNote, PythonCodeNote, ReadbackNote, RecordHead, SHORT_TICKS_END,
    SnapshotHead, TextHead, ThreadNote, VALUE_TICKS_END, chunk_kind, field, note_kind, record_kind,
    short_enter, snapshot_flag,
};
use crate::read::signature::{Parameter, Signatures, ValueType};
use crate::write::Record;

/// Bytes behind a pointer, to go into a record; long ones become a blob.
#[derive(Clone, Copy, Debug)]
pub struct NewSnapshot<'a> {
    /// Position of the parameter.
    pub parameter: u8,
    /// A number of [`crate::layout::field`].
    pub field: u8,
    /// [`snapshot_flag`]; with `UNREADABLE`, `OMITTED` and `HASHED` the bytes go into the record as
    /// they are.
    pub flags: u16,
    /// The bytes.
    pub bytes: &'a [u8],
}

impl<'a> NewSnapshot<'a> {
    /// What a parameter points at.
    pub fn pointee(parameter: u8, bytes: &'a [u8]) -> Self {
        Self::piece(parameter, crate::layout::field::POINTEE, bytes)
    }

    /// A further piece.
    pub fn piece(parameter: u8, field: u8, bytes: &'a [u8]) -> Self {
        Self {
            parameter,
            field,
            flags: 0,
            bytes,
        }
    }
}

/// The enter part of a call.
#[derive(Clone, Copy, Debug, Default)]
pub struct NewCall<'a> {
    /// Ordinal of the thread.
    pub thread: u32,
    /// Exported name of the function.
    pub name: &'a str,
    /// A word for each parameter; a struct by value takes as many words as it fills.
    pub arguments: &'a [u64],
    /// Bytes behind pointers before the call.
    pub snapshots: &'a [NewSnapshot<'a>],
    /// The address in the program that the call returns to.
    pub caller: u64,
}

#[derive(Debug, Default)]
struct ThreadChunks {
    /// Bodies; the last one is being filled.
    bodies: Vec<OpenChunk>,
    entered: u64,
    /// Function and ticks of the call that it is in.
    in_flight: Option<(u16, u64)>,
}

#[derive(Debug)]
struct OpenChunk {
    body: Vec<u8>,
    first: u64,
    ticks: u64,
}

/// Builds a trace. Each enter and each leave takes 10 ticks of a shared counter.
///
/// ```
/// use cutape_format::{NewSnapshot, NewCall, Trace, TraceBuilder};
/// let signatures = "cutape-signatures\t1\n\
///     function\t0\tcuDeviceGet\tcuDeviceGet\tDEVICE\tCUresult\tplain\tdevice|CUdevice *|u8|Out\tordinal|int|i4|Value\n";
/// let path = std::env::temp_dir().join(format!("build-{}.cutape", std::process::id()));
/// TraceBuilder::new(signatures)
///     .meta("program", "/bin/example")
///     .call(NewCall { name: "cuDeviceGet", arguments: &[0x7000, 0], ..NewCall::default() })
///     .leave(0, 0, &[NewSnapshot::pointee(0, &[0; 4])])
///     .write(&path)?;
/// assert_eq!(Trace::open(&path)?.calls().next().unwrap().out(0), Some(0));
/// std::fs::remove_file(&path)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct TraceBuilder {
    signature_text: String,
    signatures: Signatures,
    meta: Vec<(String, String)>,
    mappings: Vec<Mapping>,
    /// Records of a chunk of stacks.
    stacks: Vec<u8>,
    /// Records of a chunk of markers.
    markers: Vec<u8>,
    /// The minor version of the latest notes and control chunk, from 1.4 on; otherwise 0.
    notes_minor: u32,
    process: u32,
    clock: u32,
    control: Option<Option<Incomplete>>,
    blobs: Vec<Vec<u8>>,
    blob_position: u64,
    threads: BTreeMap<u32, ThreadChunks>,
    ticks: u64,
    chunk_length: usize,
    closed: bool,
    short: bool,
}

/// Clock of the file head and the first record.
const START_TICKS: u64 = 1000;

impl TraceBuilder {
    /// Begins a trace with that signature table.
    ///
    /// # Panics
    /// If the table cannot be read. Other methods panic for a function that is not in it, a wrong
    /// number of arguments, or a `leave` without a call.
    pub fn new(signature_text: &str) -> Self {
        let signatures = match Signatures::parse(signature_text) {
            Ok(signatures) => signatures,
            Err(error) => panic!("{error}"),
        };
        Self {
            signature_text: signature_text.to_owned(),
            signatures,
            meta: Vec::new(),
            mappings: Vec::new(),
            stacks: Vec::new(),
            markers: Vec::new(),
            notes_minor: 0,
            process: 4242,
            clock: 1,
            control: None,
            blobs: Vec::new(),
            // Blobs follow the signature table, so their positions are known early.
            blob_position: FILE_HEAD_LENGTH as u64 + allocated(signature_text.len()),
            threads: BTreeMap::new(),
            ticks: START_TICKS,
            chunk_length: 1 << 20,
            closed: true,
            short: false,
        }
    }

    /// Adds a fact about program or machine.
    pub fn meta(&mut self, key: &str, value: &str) -> &mut Self {
        self.meta.push((key.to_owned(), value.to_owned()));
        self
    }

    /// Adds the recorder's control chunk, which says what the trace lacks. The chunk lies before
    /// all others.
    ///
    /// # Panics
    /// If the trace has a blob already: the chunk would move it.
    pub fn control(&mut self, incomplete: Option<Incomplete>) -> &mut Self {
        assert!(self.blobs.is_empty() && self.control.is_none());
        self.blob_position += CONTROL_LENGTH as u64;
        self.control = Some(incomplete);
        if let Some(incomplete) = incomplete {
            let is_later = incomplete.lacks_payloads || incomplete.is_limited;
            self.notes_minor = self.notes_minor.max(if is_later { 12 } else { 8 });
        }
        self
    }

    /// Names the recorded process, which otherwise is one that does not record.
    pub fn process(&mut self, number: u32) -> &mut Self {
        self.process = number;
        self
    }

    /// The clock is the processor's time stamp counter, otherwise another one.
    pub fn time_stamps(&mut self) -> &mut Self {
        self.clock = 0;
        self
    }

    /// Adds a mapping of the recorded process.
    pub fn mapping(&mut self, mapping: Mapping) -> &mut Self {
        self.mappings.push(mapping);
        self
    }

    /// Limits chunks of calls to that many bytes; otherwise 1 MiB.
    pub fn chunk_length(&mut self, length: usize) -> &mut Self {
        self.chunk_length = length.next_multiple_of(CHUNK_ALIGNMENT as usize);
        self
    }

    /// From now on writes as version 1.1: short records where possible, thread buffers for what is
    /// left open.
    pub fn short(&mut self) -> &mut Self {
        self.short = true;
        self
    }

    /// Leaves each thread's last chunk open, as a killed process does.
    pub fn leave_open(&mut self) -> &mut Self {
        self.closed = false;
        self
    }

    /// Sets the clock for the next record.
    pub fn at(&mut self, ticks: u64) -> &mut Self {
        self.ticks = ticks;
        self
    }

    /// Enters a call.
    pub fn call(&mut self, event: NewCall<'_>) -> &mut Self {
        let Some(signature) = self.signatures.by_name(event.name) else {
            panic!("{} is not in the signature table", event.name);
        };
        let id = signature.id;
        let has_digest = |snapshot: &NewSnapshot<'_>| {
            let range = FileRange::decode(snapshot.bytes);
            snapshot.flags & snapshot_flag::IN_FILE != 0
                && range.is_some_and(|range| range.digest.is_some())
        };
        if event.snapshots.iter().any(has_digest) {
            self.notes_minor = self.notes_minor.max(12);
        }
        let mut arguments = Vec::new();
        let mut words = event.arguments.iter();
        for parameter in &signature.parameters {
            let width = parameter.value_type.bytes();
            let from = arguments.len();
            while arguments.len() < from + width {
                let Some(word) = words.next() else {
                    panic!(
                        "{} takes more arguments (no {})",
                        event.name, parameter.name
                    );
                };
                arguments.extend_from_slice(&word.to_le_bytes());
            }
            arguments.truncate(from + width);
        }
        assert!(
            words.next().is_none(),
            "{} takes fewer arguments",
            event.name
        );
        let ticks = self.ticks;
        let by_value = signature
            .parameters
            .iter()
            .any(|parameter| matches!(parameter.value_type, ValueType::Memory(_)));
        let is_short =
            self.short && !by_value && signature.parameters.len() <= short_enter::MOST_ARGUMENTS;
        // One snapshot can be a record of its own.
        let own = match event.snapshots {
            [one] if is_short && one.flags == 0 && one.bytes.len() <= INLINE_LIMIT => Some(*one),
            _ => None,
        };
        let snapshots = if own.is_some() { &[] } else { event.snapshots };
        let mut body;
        let kind = if is_short {
            let words = masked(signature.parameters.iter(), event.arguments);
            let mut space = [0; 256];
            let length = Record::new(&mut space).and_then(|mut record| {
                record.put_short_enter(
                    ticks.wrapping_sub(START_TICKS),
                    event.caller,
                    words.into_iter(),
                )?;
                Some(record.length())
            });
            body = space[8..length.unwrap_or(8)].to_vec();
            record_kind::ENTER_SHORT
        } else {
            body = codec::encode_to_vec(EnterHead {
                ticks,
                caller: event.caller,
            });
            body.extend_from_slice(&arguments);
            record_kind::ENTER
        };
        body.extend(self.encoded_snapshots(snapshots));
        self.ticks += 10;
        self.record(event.thread, kind, id, &body);
        let thread = self.threads.entry(event.thread).or_default();
        thread.entered += 1;
        thread.in_flight = Some((id, ticks));
        if let Some(own) = own {
            self.put_record(event.thread, own.bytes.len(), |mut record| {
                record.put(own.bytes)?;
                record.commit_snapshot(own.parameter, own.field)
            });
        }
        self
    }

    /// Leaves the call that the thread is in.
    pub fn leave(&mut self, thread: u32, result: i32, snapshots: &[NewSnapshot<'_>]) -> &mut Self {
        let Some((id, entered)) = self.threads.entry(thread).or_default().in_flight.take() else {
            panic!("thread {thread} is in no call");
        };
        let spent = self.ticks.wrapping_sub(entered);
        if self.short && result == 0 && snapshots.is_empty() && spent < SHORT_TICKS_END {
            self.ticks += 10;
            return self.put_record(thread, 0, |record| record.commit_short_leave(spent));
        }
        if self.short
            && result == 0
            && spent < VALUE_TICKS_END
            && let [one] = snapshots
            && one.field == field::POINTEE
            && one.flags == 0
            && one.parameter < 16
            && matches!(one.bytes.len(), 4 | 8)
        {
            let mut number = [0; 8];
            number[..one.bytes.len()].copy_from_slice(one.bytes);
            self.ticks += 10;
            return self.put_record(thread, 8, |record| {
                let number = u64::from_le_bytes(number);
                record.commit_leave_value(spent, one.parameter, number, one.bytes.len() as u8)
            });
        }
        let mut body = codec::encode_to_vec(LeaveHead {
            ticks: self.ticks,
            result,
        });
        body.extend(self.encoded_snapshots(snapshots));
        self.ticks += 10;
        self.record(thread, record_kind::LEAVE, id, &body);
        self
    }

    /// Adds number and name of a thread.
    pub fn thread_note(&mut self, thread: u32, number: u32, name: &str) -> &mut Self {
        let mut padded = [0; 16];
        for (place, byte) in padded.iter_mut().zip(name.bytes()) {
            *place = byte;
        }
        let name = padded;
        self.note(thread, note_kind::THREAD, ThreadNote { number, name }, &[])
    }

    /// Adds how a kernel takes its parameters: `(offset, size)` of each.
    pub fn layout_note(&mut self, thread: u32, handle: u64, layout: &[(u32, u32)]) -> &mut Self {
        let count = layout.len() as u32;
        let pairs: Vec<u8> = layout.iter().flat_map(codec::encode_to_vec).collect();
        let note = LayoutNote { handle, count };
        self.note(thread, note_kind::LAYOUT, note, &pairs)
    }

    /// Adds the origin of a function that no recorded call returned.
    pub fn origin_note(&mut self, thread: u32, note: OriginNote, name: &str) -> &mut Self {
        self.note(thread, note_kind::ORIGIN, note, name.as_bytes())
    }

    /// Adds bytes of an earlier asynchronous copy.
    pub fn readback_note(
        &mut self,
        thread: u32,
        note: ReadbackNote,
        snapshot: NewSnapshot<'_>,
    ) -> &mut Self {
        let snapshot = self.encoded_snapshots(&[snapshot]);
        self.note(thread, note_kind::READBACK, note, &snapshot)
    }

    /// Adds bytes that an exchange has changed.
    pub fn exchange_output_note(
        &mut self,
        thread: u32,
        note: ExchangeOutputNote,
        bytes: &[u8],
    ) -> &mut Self {
        let snapshot = self.encoded_snapshots(&[NewSnapshot::pointee(0, bytes)]);
        self.note(thread, note_kind::EXCHANGE_OUTPUT, note, &snapshot)
    }

    /// Adds content of host memory that the device can read.
    pub fn host_changed_note(
        &mut self,
        thread: u32,
        note: HostChangedNote,
        snapshot: NewSnapshot<'_>,
    ) -> &mut Self {
        let snapshot = self.encoded_snapshots(&[snapshot]);
        self.note(thread, note_kind::HOST_CHANGED, note, &snapshot)
    }

    /// Adds what the program can have seen in host memory that the device writes.
    pub fn host_seen_note(
        &mut self,
        thread: u32,
        note: HostChangedNote,
        snapshot: NewSnapshot<'_>,
    ) -> &mut Self {
        let snapshot = self.encoded_snapshots(&[snapshot]);
        self.note(thread, note_kind::HOST_SEEN, note, &snapshot)
    }

    /// Adds what memory held before the call: the bytes, or none if it repeats one word.
    pub fn memory_note(
        &mut self,
        thread: u32,
        note: MemoryNote,
        name: &str,
        bytes: Option<&[u8]>,
    ) -> &mut Self {
        let name_length = u16::try_from(name.len()).unwrap_or(0);
        let snapshot = bytes.map(|bytes| NewSnapshot::pointee(0, bytes));
        let snapshot = self.encoded_snapshots(snapshot.as_slice());
        let rest = [name.as_bytes(), &snapshot].concat();
        let note = MemoryNote {
            name_length,
            ..note
        };
        self.note(thread, note_kind::MEMORY, note, &rest)
    }

    /// Adds host memory that is not compared.
    pub fn host_skipped_note(&mut self, thread: u32, note: HostSkippedNote) -> &mut Self {
        self.note(thread, note_kind::HOST_SKIPPED, note, &[])
    }

    /// Adds a note of text (`STOPPED`, `UNKNOWN_SYMBOL`).
    pub fn text_note(&mut self, thread: u32, kind: u16, text: &str) -> &mut Self {
        self.record(thread, record_kind::NOTE, kind, text.as_bytes())
    }

    /// Gives the call in progress a stack of [`TraceBuilder::stack`].
    pub fn stack_note(&mut self, thread: u32, id: u64) -> &mut Self {
        self.note(thread, note_kind::STACK, id, &[])
    }

    /// Adds a stack: the words of its frames, see [`crate::layout::python_frame`].
    pub fn stack(&mut self, note: FramesNote, words: &[u64]) -> &mut Self {
        let words: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let body = [codec::encode_to_vec(note), words].concat();
        put_note(&mut self.stacks, note_kind::FRAMES, &body);
        self
    }

    /// Adds a code object of Python.
    pub fn python_code(
        &mut self,
        note: PythonCodeNote,
        file: &str,
        function: &str,
        line_table: &[u8],
    ) -> &mut Self {
        let mut body = codec::encode_to_vec(note);
        let utf32 = |text: &str| -> Vec<u8> {
            let points = text.chars().map(u32::from);
            points.flat_map(u32::to_le_bytes).collect()
        };
        let (file, function) = (utf32(file), utf32(function));
        for (width, bytes) in [(4, &*file), (4, &*function), (1, line_table)] {
            let length = bytes.len() as u32;
            body.extend(codec::encode_to_vec(TextHead { width, length }));
            body.extend_from_slice(bytes);
        }
        put_note(&mut self.stacks, note_kind::PYTHON_CODE, &body);
        self
    }

    /// Adds a marker, which takes 10 ticks as calls do.
    pub fn marker(&mut self, note: MarkerNote, domain: &str, text: &str) -> &mut Self {
        let note = MarkerNote {
            ticks: self.ticks,
            domain_length: domain.len() as u16,
            text_length: text.len() as u32,
            ..note
        };
        self.ticks += 10;
        let head = codec::encode_to_vec(note);
        let body = [&*head, domain.as_bytes(), text.as_bytes()].concat();
        put_note(&mut self.markers, note_kind::MARKER, &body);
        self
    }

    /// Adds a note: one of the structs of [`crate::layout`], then what follows it.
    pub fn note(&mut self, thread: u32, kind: u16, head: impl Encode, rest: &[u8]) -> &mut Self {
        let minor = match kind {
            note_kind::DRIVER_MESSAGE => 4,
            note_kind::MEMORY => 5,
            note_kind::DESCRIPTOR | note_kind::SHARED_MAPPING => 6,
            note_kind::EXCHANGE | note_kind::EXCHANGE_OUTPUT => 7,
            note_kind::LOOKED => 9,
            note_kind::LOOKED_BEFORE => 10,
            note_kind::NESTED_CALL => 11,
            note_kind::GAP => 12,
            note_kind::BREADCRUMB => 12,
            note_kind::MEMORY_SNAPSHOT => 13,
            note_kind::HOST_SEEN => 14,
            note_kind::HOST_FUNCTION => 15,
            _ => 0,
        };
        self.notes_minor = self.notes_minor.max(minor);
        let body = [&codec::encode_to_vec(head), rest].concat();
        self.record(thread, record_kind::NOTE, kind, &body)
    }

    /// Adds a record, sound or not, to a thread's chunk.
    pub fn record(&mut self, thread: u32, kind: u8, function: u16, body: &[u8]) -> &mut Self {
        self.put_record(thread, body.len(), |mut record| {
            record.put(body)?;
            record.commit(kind, function)
        })
    }

    /// Adds a record with that many bytes behind its head.
    fn put_record(
        &mut self,
        thread: u32,
        content: usize,
        build: impl FnOnce(Record<'_>) -> Option<usize>,
    ) -> &mut Self {
        let length = (8 + content).next_multiple_of(8);
        let room = (self.chunk_length - CHUNK_HEAD_LENGTH).max(length);
        let ticks = self.ticks;
        let state = self.threads.entry(thread).or_default();
        if state
            .bodies
            .last()
            .is_none_or(|chunk| chunk.body.len() + length > room)
        {
            state.bodies.push(OpenChunk {
                body: Vec::new(),
                first: state.entered,
                ticks,
            });
        }
        // Words, so that the record head is aligned.
        let mut space = vec![0_u64; length / 8];
        // SAFETY: the bytes of the words, all of them, borrowed while `space` is.
        let bytes = unsafe {
            std::slice::from_raw_parts_mut(space.as_mut_ptr().cast::<u8>(), space.len() * 8)
        };
        let committed = Record::new(bytes).and_then(build);
        assert_eq!(committed, Some(length), "a record of {content} bytes");
        if let Some(chunk) = state.bodies.last_mut() {
            chunk
                .body
                .extend(space.iter().flat_map(|word| word.to_ne_bytes()));
        }
        self
    }

    fn encoded_snapshots(&mut self, snapshots: &[NewSnapshot<'_>]) -> Vec<u8> {
        let mut encoded = Vec::new();
        for snapshot in snapshots {
            let (mut flags, mut bytes) = (snapshot.flags, snapshot.bytes.to_vec());
            if bytes.len() > INLINE_LIMIT {
                let blob = BlobRef {
                    position: self.blob_position,
                    length: bytes.len() as u64,
                };
                self.blob_position += allocated(bytes.len());
                self.blobs.push(bytes);
                bytes = codec::encode_to_vec(blob);
                flags |= snapshot_flag::BLOB;
            }
            encoded.extend(codec::encode_to_vec(SnapshotHead {
                parameter: snapshot.parameter,
                field: snapshot.field,
                flags,
                length: bytes.len() as u32,
            }));
            encoded.extend(bytes);
        }
        encoded
    }

    /// The file's bytes.
    pub fn bytes(&self) -> Vec<u8> {
        let mut file = FileHead {
            magic: MAGIC,
            major: MAJOR,
            minor: match (self.stacks.is_empty(), self.markers.is_empty()) {
                _ if self.notes_minor > 0 => self.notes_minor,
                (true, true) => self.short.into(),
                (false, true) => 2,
                (_, false) => 3,
            },
            head_length: FILE_HEAD_LENGTH as u32,
            flags: 0,
            process: self.process,
            clock: self.clock,
            start_unix: 1_700_000_000_000_000_000,
            start_ticks: START_TICKS,
            ticks_per_second: 0,
            index: 0,
            checksum: 0,
        }
        .encode()
        .to_vec();
        file.resize(FILE_HEAD_LENGTH, 0);
        if self.control.is_some() {
            // Open; where the file ends is known last.
            put_chunk(
                &mut file,
                ChunkHead::new(chunk_kind::CONTROL),
                &[],
                0,
                false,
            );
        }
        let mut put = |kind: u16, body: &[u8]| {
            let head = ChunkHead {
                first: match kind {
                    chunk_kind::BLOB => file.len() as u64,
                    _ => 0,
                },
                ..ChunkHead::new(kind)
            };
            put_chunk(&mut file, head, body, 0, true);
        };
        put(chunk_kind::SIGNATURES, self.signature_text.as_bytes());
        for blob in &self.blobs {
            put(chunk_kind::BLOB, blob);
        }
        put(chunk_kind::META, &codec::encode_to_vec(&self.meta));
        if !self.mappings.is_empty() {
            put(chunk_kind::MAPS, &codec::encode_to_vec(&self.mappings));
        }
        if !self.stacks.is_empty() {
            // Open, as the recorder leaves it.
            let head = ChunkHead::new(chunk_kind::STACKS);
            put_chunk(&mut file, head, &self.stacks, 0, false);
        }
        if !self.markers.is_empty() {
            let head = ChunkHead::new(chunk_kind::MARKERS);
            put_chunk(&mut file, head, &self.markers, 0, false);
        }
        for (&thread, state) in &self.threads {
            for (sequence, chunk) in (0..).zip(&state.bodies) {
                let head = ChunkHead {
                    thread,
                    sequence,
                    first: chunk.first,
                    ticks: chunk.ticks,
                    ..ChunkHead::new(chunk_kind::CALLS)
                };
                let length = self.chunk_length as u64;
                let is_last = sequence as usize + 1 == state.bodies.len();
                if self.short && is_last && !self.closed {
                    put_buffer(&mut file, head, &chunk.body, length);
                } else {
                    let close = self.closed || !is_last;
                    put_chunk(&mut file, head, &chunk.body, length, close);
                }
            }
        }
        if let Some(incomplete) = self.control {
            let words = [file.len() as u64, incomplete.map_or(0, Incomplete::word)];
            let start = FILE_HEAD_LENGTH + CHUNK_HEAD_LENGTH;
            file[start..start + 16].copy_from_slice(&words.map(u64::to_le_bytes).concat());
        }
        file
    }

    /// Writes the trace as a recorder leaves it, not packed, over what is at `path`.
    ///
    /// # Errors
    /// Errors of writing the file.
    pub fn write(&self, path: &Path) -> io::Result<()> {
        fs::write(path, self.bytes())
    }
}

/// Appends a note to the records of a chunk.
fn put_note(records: &mut Vec<u8>, kind: u16, body: &[u8]) {
    let length = (8 + body.len()).next_multiple_of(8);
    let head = RecordHead {
        length: length as u32,
        kind: record_kind::NOTE,
        detail: 0,
        function: kind,
    };
    let end = records.len() + length;
    records.extend(head.word().to_le_bytes());
    records.extend_from_slice(body);
    records.resize(end, 0);
}

/// A word for each argument, zero above its width.
fn masked<'a>(parameters: impl Iterator<Item = &'a Parameter>, words: &[u64]) -> Vec<u64> {
    let widths = parameters.map(|parameter| parameter.value_type.bytes());
    words
        .iter()
        .zip(widths)
        .map(|(word, width)| word & (u64::MAX >> (64 - 8 * width.min(8))))
        .collect()
}

fn allocated(body: usize) -> u64 {
    ((CHUNK_HEAD_LENGTH + body) as u64).next_multiple_of(CHUNK_ALIGNMENT)
}

/// Appends a chunk of at least that length.
fn put_chunk(file: &mut Vec<u8>, head: ChunkHead, body: &[u8], least: u64, close: bool) {
    let length = least.max(allocated(body.len()));
    let end = file.len() + length as usize;
    let mut head = ChunkHead { length, ..head };
    if close {
        head.flags |= CHUNK_CLOSED;
        head.used = body.len() as u64;
        head.body_checksum = crc32fast::hash(body);
    }
    file.extend_from_slice(&head.encode());
    file.extend_from_slice(body);
    file.resize(end, 0);
}

/// Appends a thread buffer with the records of a chunk.
fn put_buffer(file: &mut Vec<u8>, head: ChunkHead, body: &[u8], least: u64) {
    let note = BufferNote {
        sequence: head.sequence,
        first: head.first,
        ticks: head.ticks,
        nanoseconds: head.nanoseconds,
    };
    let record = RecordHead {
        length: BUFFER_NOTE_LENGTH as u32,
        kind: record_kind::NOTE,
        detail: 0,
        function: note_kind::BUFFER,
    };
    let mut records = record.word().to_le_bytes().to_vec();
    records.extend(codec::encode_to_vec(note));
    records.resize(BUFFER_NOTE_LENGTH, 0);
    records.extend_from_slice(body);
    let head = ChunkHead {
        thread: head.thread,
        ..ChunkHead::new(chunk_kind::THREAD_BUFFER)
    };
    put_chunk(file, head, &records, least, false);
}
