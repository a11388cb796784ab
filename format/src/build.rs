//! Building a trace by hand, record by record, as a recorder would leave it: for tests of what reads traces.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;

use crate::codec;
use crate::layout::{
    BUFFER_NOTE_LENGTH, BlobRef, BufferNote, CHUNK_ALIGNMENT, CHUNK_HEAD_LENGTH, CHUNK_MAGIC,
    ChunkHead, EnterHead, FILE_HEAD_LENGTH, FileHead, HostChangedNote, HostSkippedNote,
    INLINE_LIMIT, LayoutNote, LeaveHead, MAGIC, MAJOR, Mapping, OriginNote, ReadbackNote,
    RecordHead, SHORT_TICKS_END, ThreadNote, VALUE_TICKS_END, chunk_kind, field, note_kind,
    record_kind, short_enter, snapshot_flag,
};
use crate::read::signature::{Parameter, Signatures, ValueType};
use crate::write::{Record, close_chunk};

/// Bytes behind a pointer, as they go into a record; long ones become a blob.
#[derive(Clone, Copy, Debug)]
pub struct NewSnapshot<'a> {
    /// Position of the parameter.
    pub parameter: u8,
    /// A number of [`crate::layout::field`].
    pub field: u8,
    /// [`snapshot_flag`]; with `UNREADABLE`, `OMITTED` and `HASHED` the bytes are what the record is to hold.
    pub flags: u16,
    /// What stands there.
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
    /// What stood behind pointers before the call.
    pub snapshots: &'a [NewSnapshot<'a>],
    /// Where the program continues after the call.
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

/// A trace in the making. Time goes on by 10 ticks of a shared counter with each enter and each leave.
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
    blobs: Vec<Vec<u8>>,
    blob_position: u64,
    threads: BTreeMap<u32, ThreadChunks>,
    ticks: u64,
    chunk_length: usize,
    closed: bool,
    short: bool,
}

/// The file head's; the first record is later.
const START_TICKS: u64 = 1000;

impl TraceBuilder {
    /// Begins a trace with that signature table.
    ///
    /// # Panics
    /// If the table cannot be read: this is for tests, which want to know at once. So do the other functions for a function that is
    /// not in it, a wrong number of arguments, or a `leave` without a call.
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
            blobs: Vec::new(),
            // Blobs follow the signature table, so their places are known while records are made.
            blob_position: FILE_HEAD_LENGTH as u64 + allocated(signature_text.len()),
            threads: BTreeMap::new(),
            ticks: START_TICKS,
            chunk_length: 1 << 20,
            closed: true,
            short: false,
        }
    }

    /// Adds what is known of program or machine.
    pub fn meta(&mut self, key: &str, value: &str) -> &mut Self {
        self.meta.push((key.to_owned(), value.to_owned()));
        self
    }

    /// Adds a mapping of the recorded process.
    pub fn mapping(&mut self, mapping: Mapping) -> &mut Self {
        self.mappings.push(mapping);
        self
    }

    /// How long a chunk of calls may become, in bytes; 1 MiB unless told.
    pub fn chunk_length(&mut self, length: usize) -> &mut Self {
        self.chunk_length = length.next_multiple_of(CHUNK_ALIGNMENT as usize);
        self
    }

    /// From now on writes what version 1.1 has: short records where they can say all, and what is left open as a stage.
    pub fn short(&mut self) -> &mut Self {
        self.short = true;
        self
    }

    /// Leaves each thread's last chunk open, as a process that was killed does.
    pub fn leave_open(&mut self) -> &mut Self {
        self.closed = false;
        self
    }

    /// Sets the clock; the next record takes that time.
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
        self.put_snapshots(&mut body, snapshots);
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
        self.put_snapshots(&mut body, snapshots);
        self.ticks += 10;
        self.record(thread, record_kind::LEAVE, id, &body);
        self
    }

    /// Says who a thread is.
    pub fn thread_note(&mut self, thread: u32, number: u32, name: &str) -> &mut Self {
        let mut padded = [0; 16];
        for (place, byte) in padded.iter_mut().zip(name.bytes()) {
            *place = byte;
        }
        let body = codec::encode_to_vec(ThreadNote {
            number,
            name: padded,
        });
        self.record(thread, record_kind::NOTE, note_kind::THREAD, &body);
        self
    }

    /// Says how a kernel takes its parameters: `(offset, size)` of each.
    pub fn layout_note(&mut self, thread: u32, handle: u64, layout: &[(u32, u32)]) -> &mut Self {
        let mut body = codec::encode_to_vec(LayoutNote {
            handle,
            count: layout.len() as u32,
        });
        for &pair in layout {
            body.extend_from_slice(&codec::encode_to_vec(pair));
        }
        self.record(thread, record_kind::NOTE, note_kind::LAYOUT, &body);
        self
    }

    /// Says where a function comes from that no recorded call gave.
    pub fn origin_note(&mut self, thread: u32, note: OriginNote, name: &str) -> &mut Self {
        let mut body = codec::encode_to_vec(note);
        body.extend_from_slice(name.as_bytes());
        self.record(thread, record_kind::NOTE, note_kind::ORIGIN, &body);
        self
    }

    /// Says that bytes of an earlier copy have arrived.
    pub fn readback_note(
        &mut self,
        thread: u32,
        note: ReadbackNote,
        snapshot: NewSnapshot<'_>,
    ) -> &mut Self {
        let mut body = codec::encode_to_vec(note);
        self.put_snapshots(&mut body, &[snapshot]);
        self.record(thread, record_kind::NOTE, note_kind::READBACK, &body);
        self
    }

    /// Says what host memory held that the device can read.
    pub fn host_changed_note(
        &mut self,
        thread: u32,
        note: HostChangedNote,
        snapshot: NewSnapshot<'_>,
    ) -> &mut Self {
        let mut body = codec::encode_to_vec(note);
        self.put_snapshots(&mut body, &[snapshot]);
        self.record(thread, record_kind::NOTE, note_kind::HOST_CHANGED, &body);
        self
    }

    /// Says which host memory is not looked at.
    pub fn host_skipped_note(&mut self, thread: u32, note: HostSkippedNote) -> &mut Self {
        let body = codec::encode_to_vec(note);
        self.record(thread, record_kind::NOTE, note_kind::HOST_SKIPPED, &body);
        self
    }

    /// Adds a note of text (`STOPPED`, `UNKNOWN_SYMBOL`).
    pub fn text_note(&mut self, thread: u32, kind: u16, text: &str) -> &mut Self {
        self.record(thread, record_kind::NOTE, kind, text.as_bytes());
        self
    }

    /// Adds any record, sound or not, to a thread's chunk.
    pub fn record(&mut self, thread: u32, kind: u8, function: u16, body: &[u8]) -> &mut Self {
        self.put_record(thread, body.len(), |mut record| {
            record.put(body)?;
            record.commit(kind, function)
        })
    }

    /// Adds a record with so many bytes behind its head.
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
        // The writer that the recorder uses, in words so that the place of the head is aligned.
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

    fn put_snapshots(&mut self, body: &mut Vec<u8>, snapshots: &[NewSnapshot<'_>]) {
        for snapshot in snapshots {
            let mut flags = snapshot.flags;
            let blob;
            let mut bytes = snapshot.bytes;
            if bytes.len() > INLINE_LIMIT {
                blob = codec::encode_to_vec(BlobRef {
                    position: self.blob_position,
                    length: bytes.len() as u64,
                });
                self.blob_position += allocated(bytes.len());
                self.blobs.push(bytes.to_vec());
                bytes = &blob;
                flags |= snapshot_flag::BLOB;
            }
            body.extend_from_slice(&codec::encode_to_vec(crate::layout::SnapshotHead {
                parameter: snapshot.parameter,
                field: snapshot.field,
                flags,
                length: bytes.len() as u32,
            }));
            body.extend_from_slice(bytes);
        }
    }

    /// The file's bytes.
    pub fn bytes(&self) -> Vec<u8> {
        let mut file = FileHead {
            magic: MAGIC,
            major: MAJOR,
            minor: self.short.into(),
            head_length: FILE_HEAD_LENGTH as u32,
            flags: 0,
            process: 4242,
            clock: 1,
            start_unix: 1_700_000_000_000_000_000,
            start_ticks: START_TICKS,
            ticks_per_second: 0,
            index: 0,
            checksum: 0,
        }
        .encode()
        .to_vec();
        file.resize(FILE_HEAD_LENGTH, 0);
        let head = ChunkHead::new(chunk_kind::SIGNATURES);
        put_chunk(&mut file, head, self.signature_text.as_bytes(), None, true);
        for blob in &self.blobs {
            let head = ChunkHead {
                first: file.len() as u64,
                ..ChunkHead::new(chunk_kind::BLOB)
            };
            put_chunk(&mut file, head, blob, None, true);
        }
        let meta = codec::encode_to_vec(&self.meta);
        put_chunk(
            &mut file,
            ChunkHead::new(chunk_kind::META),
            &meta,
            None,
            true,
        );
        if !self.mappings.is_empty() {
            let mappings = codec::encode_to_vec(&self.mappings);
            put_chunk(
                &mut file,
                ChunkHead::new(chunk_kind::MAPS),
                &mappings,
                None,
                true,
            );
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
                let last = sequence as usize + 1 == state.bodies.len();
                let length = (self.chunk_length as u64).max(allocated(chunk.body.len()));
                if self.short && last && !self.closed {
                    put_stage(&mut file, head, &chunk.body, length);
                    continue;
                }
                put_chunk(
                    &mut file,
                    head,
                    &chunk.body,
                    Some(length),
                    self.closed || !last,
                );
            }
        }
        file
    }

    /// Writes the trace as a recorder leaves it, not packed, over what is at `path`.
    ///
    /// # Errors
    /// What writing the file meets.
    pub fn write(&self, path: &Path) -> io::Result<()> {
        fs::write(path, self.bytes())
    }
}

/// A word for each argument, with nothing above its width.
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

fn put_chunk(file: &mut Vec<u8>, head: ChunkHead, body: &[u8], length: Option<u64>, close: bool) {
    let length = length.unwrap_or_else(|| allocated(body.len()));
    let start = file.len();
    let mut place = AlignedHead(
        ChunkHead {
            magic: CHUNK_MAGIC,
            length,
            ..head
        }
        .encode(),
    );
    if close {
        let closed = close_chunk(&mut place.0, body.len() as u64, crc32fast::hash(body));
        assert!(closed.is_some(), "a fresh head is sound and aligned");
    }
    file.extend_from_slice(&place.0);
    file.extend_from_slice(body);
    file.resize(start + length as usize, 0);
}

/// Writes the records of `body` as they stand in the stage of their thread.
fn put_stage(file: &mut Vec<u8>, head: ChunkHead, body: &[u8], length: u64) {
    let note = BufferNote {
        sequence: head.sequence,
        first: head.first,
        ticks: head.ticks,
        nanoseconds: head.nanoseconds,
    };
    let mut records = RecordHead {
        length: BUFFER_NOTE_LENGTH as u32,
        kind: record_kind::NOTE,
        detail: 0,
        function: note_kind::BUFFER,
    }
    .word()
    .to_le_bytes()
    .to_vec();
    records.extend_from_slice(&codec::encode_to_vec(note));
    records.resize(BUFFER_NOTE_LENGTH, 0);
    records.extend_from_slice(body);
    let head = ChunkHead {
        thread: head.thread,
        ..ChunkHead::new(chunk_kind::THREAD_BUFFER)
    };
    let length = length.max(allocated(records.len()));
    put_chunk(file, head, &records, Some(length), false);
}

#[repr(align(8))]
struct AlignedHead([u8; CHUNK_HEAD_LENGTH]);
