//! Opening a trace: chunks, what is known of program and machine, threads, blobs, damage.

use std::borrow::Cow;
use std::collections::{HashMap, VecDeque};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{LazyLock, OnceLock};

use memmap2::{Mmap, MmapOptions, UncheckedAdvice};

use crate::call::{Bytes, Note};
use crate::codec::{self, Decode, Encode};
use crate::compress::{decompress, raw_length};
use crate::cursor::Calls;
use crate::file_range::FileRange;
use crate::layout::{
    BlobRef, CHUNK_CLOSED, CHUNK_COMPRESSED, ChunkHead, FILE_HEAD_ENCODED, FILE_HEAD_LENGTH,
    FileHead, MAGIC, MAJOR, RECORD_HEAD_LENGTH, chunk_kind,
};
use crate::pack::{CallsEntry, IndexEntry};
use crate::records::record_at;
use crate::signature::{Signature, Signatures};

/// Why a file cannot be used as a trace.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The file cannot be read.
    #[error("{}: {source}", path.display())]
    Io {
        /// Which file.
        path: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
    /// Something else than a trace.
    #[error("{}: not a cutape trace: {why}", path.display())]
    NotATrace {
        /// Which file.
        path: PathBuf,
        /// What is there instead.
        why: String,
    },
    /// Written by a later cutape.
    #[error("{}: trace format {found}, this cutape reads up to {MAJOR}; use a later cutape", path.display())]
    NewerVersion {
        /// Which file.
        path: PathBuf,
        /// The file's major version.
        found: u32,
    },
    /// Cut or changed.
    #[error(
        "{}: damaged at byte {}: {}{}; `cutape repair {0} -o FILE` keeps what is good",
        path.display(), first.position, first.what,
        if *more == 0 { String::new() } else { format!(" (and {more} more)") }
    )]
    Damaged {
        /// Which file.
        path: PathBuf,
        /// The first damage.
        first: Damage,
        /// How many further ones.
        more: usize,
    },
}

/// A part of the file that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// Byte in the file.
    pub position: u64,
    /// What is wrong there.
    pub what: String,
}

/// A mapping as it stands in the file, where a path is whatever bytes the system has.
#[derive(Decode)]
pub(crate) struct StoredMapping {
    start: u64,
    end: u64,
    offset: u64,
    path: Vec<u8>,
    build_id: Vec<u8>,
}

impl From<StoredMapping> for Mapping {
    fn from(stored: StoredMapping) -> Self {
        let StoredMapping {
            start,
            end,
            offset,
            path,
            build_id,
        } = stored;
        // Shown as well as it can be; such a file is not found again by its name.
        let path = String::from_utf8_lossy(&path).into_owned();
        Self {
            start,
            end,
            offset,
            path,
            build_id,
        }
    }
}

/// A mapping of the recorded process.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Mapping {
    /// First address.
    pub start: u64,
    /// Behind the last address.
    pub end: u64,
    /// Offset of `start` in the file.
    pub offset: u64,
    /// The file's path.
    pub path: String,
    /// Its GNU build id; empty if it has none.
    pub build_id: Vec<u8>,
}

/// A thread of the recorded process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Thread {
    /// The operating system's number; 0 if the trace does not say.
    pub number: u32,
    /// Its name.
    pub name: String,
}

#[derive(Debug)]
pub(crate) enum Body {
    /// From there to there in the file, as it counts, or a blob as it is stored.
    InFile(usize, usize),
    /// Compressed calls, from there to there in the file.
    Compressed(usize, usize),
    /// Decompressed.
    Owned(Vec<u8>),
    /// Only the index has been read.
    Unread,
}

#[derive(Debug)]
pub(crate) struct Chunk {
    pub(crate) head: ChunkHead,
    pub(crate) position: u64,
    pub(crate) body: Body,
    /// The checksum of this blob has been found right.
    pub(crate) checked: AtomicBool,
    /// What was compressed or unread, for those who want it as long as the trace is open.
    pub(crate) kept: OnceLock<Vec<u8>>,
}

impl Chunk {
    pub(crate) fn new(head: ChunkHead, position: u64, body: Body) -> Self {
        Self {
            head,
            position,
            body,
            checked: AtomicBool::new(false),
            kept: OnceLock::new(),
        }
    }
}

/// Where a thread writes its records, over and over.
#[derive(Debug)]
pub(crate) struct Stage {
    pub(crate) head: ChunkHead,
    pub(crate) position: usize,
    /// The chunk that stands for what is in it now, in a growing trace.
    pub(crate) chunk: Option<usize>,
    /// That chunk has all that its thread has written there.
    pub(crate) is_complete: bool,
}

/// How much of a growing trace is still to be found.
#[derive(Debug, Default)]
pub(crate) struct Growth {
    /// How often it was looked for what has come; 0 for a trace that does not grow.
    pub(crate) refreshed: u64,
    /// For each look that is not yet settled: where the file's last chunk ended when it began, and before which ticks all that
    /// was entered had been written by then.
    pub(crate) looks: VecDeque<(usize, u64)>,
    /// Before these ticks nothing was entered that was not where a later look has been.
    pub(crate) settled: u64,
    /// For each thread, one more than the highest sequence of a chunk of which there are records.
    pub(crate) begun: HashMap<u32, u32>,
    /// Chunks of calls that were taken in, those included that took the place of what their stage had shown.
    pub(crate) taken: usize,
}

/// An open trace.
#[derive(Debug)]
pub struct Trace {
    pub(crate) path: PathBuf,
    pub(crate) file: File,
    pub(crate) map: Mmap,
    /// Bytes of the map that exist.
    pub(crate) length: usize,
    pub(crate) head: FileHead,
    pub(crate) chunks: Vec<Chunk>,
    /// Where the search for further chunks goes on.
    pub(crate) scanned: usize,
    /// Chunks of a growing trace that are read once they are closed.
    pub(crate) pending: Vec<usize>,
    /// Not of a packed trace, and not once it is complete.
    pub(crate) stages: Vec<Stage>,
    /// What is known of how much of a growing trace is still to be found.
    pub(crate) growth: Growth,
    /// What the index of a packed trace says.
    pub(crate) index: Vec<IndexEntry>,
    /// For each thread its chunks of calls, in order.
    pub(crate) threads: Vec<Vec<usize>>,
    pub(crate) blobs: HashMap<u64, usize>,
    pub(crate) meta: Vec<(String, String)>,
    pub(crate) signatures: Signatures,
    pub(crate) mappings: Vec<Mapping>,
    pub(crate) symbols: HashMap<u64, String>,
    pub(crate) damage: Vec<Damage>,
    /// What a packed trace says of its chunks of calls, in their order.
    pub(crate) counts: Vec<CallsEntry>,
}

static UNKNOWN: LazyLock<Signature> = LazyLock::new(|| Signature {
    id: u16::MAX,
    name: "unknown".into(),
    base: "unknown".into(),
    section: String::new(),
    returns: "CUresult".into(),
    class: "opaque".into(),
    parameters: Vec::new(),
    arguments_length: 0,
    signed: 0,
});

/// How far the map of a growing trace reaches: address space, not memory.
const FOLLOW_LENGTH: usize = 1 << 40;

/// The process that recorded a trace, as its head says; `None` if there is no head of a trace.
pub fn recorded_process(path: &Path) -> Option<u32> {
    let mut bytes = [0; FILE_HEAD_ENCODED];
    File::open(path).ok()?.read_exact_at(&mut bytes, 0).ok()?;
    let (head, _) = codec::decode::<FileHead>(&bytes)?;
    (head.magic == MAGIC && head.major <= MAJOR).then_some(head.process)
}

impl Trace {
    /// Opens a trace, damaged or not; [`Trace::damage`] says what is missing.
    pub fn open_damaged(path: &Path) -> Result<Self, Error> {
        let mut trace = Self::open_head(path, None)?;
        trace.scan();
        trace.finish();
        Ok(trace)
    }

    /// Opens a trace by its index, if it is packed, so that the time does not depend on its length: chunks of calls and blobs are
    /// checked when they are read. Without a sound index it does what [`Trace::open`] does.
    ///
    /// # Errors
    /// As [`Trace::open`]; of damage only what the index and the short chunks show.
    pub fn open_indexed(path: &Path) -> Result<Self, Error> {
        let mut trace = Self::open_head(path, None)?;
        match trace.read_index() {
            true => Ok(trace),
            false => Self::open(path),
        }
    }

    /// Opens a trace; damage is an error.
    pub fn open(path: &Path) -> Result<Self, Error> {
        let trace = Self::open_damaged(path)?;
        match trace.damage.first() {
            None => Ok(trace),
            Some(first) => Err(Error::Damaged {
                path: path.to_owned(),
                first: first.clone(),
                more: trace.damage.len() - 1,
            }),
        }
    }

    /// Opens a trace that is being recorded; [`Trace::refresh`] looks for what has come.
    pub fn follow(path: &Path) -> Result<Self, Error> {
        let mut trace = Self::open_head(path, Some(FOLLOW_LENGTH))?;
        trace.take_what_has_come();
        Ok(trace)
    }

    /// Maps the file and reads its head.
    fn open_head(path: &Path, map_length: Option<usize>) -> Result<Self, Error> {
        let io = |source| Error::Io {
            path: path.to_owned(),
            source,
        };
        let not_a_trace = |why: String| Error::NotATrace {
            path: path.to_owned(),
            why,
        };
        let file = File::open(path).map_err(io)?;
        let metadata = file.metadata().map_err(io)?;
        if !metadata.is_file() {
            return Err(not_a_trace("not a regular file".into()));
        }
        let length = usize::try_from(metadata.len()).map_err(|_| not_a_trace("too long".into()))?;
        if length < FILE_HEAD_ENCODED {
            return Err(not_a_trace(format!(
                "{length} bytes, too short for a trace's head"
            )));
        }
        let mut options = MmapOptions::new();
        options.len(map_length.unwrap_or(length));
        // SAFETY: the map is only read, and only up to the length that the file had when it was last asked for; the
        // recorder never shortens its file. A file that somebody else cuts while it is read ends the reader.
        let map = unsafe { options.map(&file) }.map_err(io)?;
        let bytes = &map[..length];
        if bytes[..8] != MAGIC {
            let start: Vec<String> = bytes[..8].iter().map(|b| format!("{b:02x}")).collect();
            return Err(not_a_trace(format!("it begins with {}", start.join(" "))));
        }
        let Some((head, _)) = codec::decode::<FileHead>(bytes) else {
            return Err(not_a_trace("its head cannot be read".into()));
        };
        if head.major > MAJOR {
            return Err(Error::NewerVersion {
                path: path.to_owned(),
                found: head.major,
            });
        }
        let mut trace = Self {
            path: path.to_owned(),
            file,
            length,
            head,
            chunks: Vec::new(),
            scanned: head.head_length as usize,
            pending: Vec::new(),
            stages: Vec::new(),
            growth: Growth::default(),
            index: Vec::new(),
            threads: Vec::new(),
            blobs: HashMap::new(),
            meta: Vec::new(),
            signatures: Signatures::default(),
            mappings: Vec::new(),
            symbols: HashMap::new(),
            damage: Vec::new(),
            counts: Vec::new(),
            map,
        };
        if crc32fast::hash(&trace.map[..FILE_HEAD_ENCODED - 4]) != head.checksum {
            trace.damaged(0, "the file head's checksum is wrong".into());
        }
        if (head.head_length as usize) < FILE_HEAD_ENCODED
            || !(head.head_length as usize).is_multiple_of(trace.step())
        {
            trace.damaged(
                0,
                format!("the file head cannot be {} bytes long", head.head_length),
            );
            trace.scanned = FILE_HEAD_LENGTH;
        }
        Ok(trace)
    }

    pub(crate) fn damaged(&mut self, position: u64, what: String) {
        self.damage.push(Damage { position, what });
    }

    /// A chunk's body as it counts (decompressed, except blobs), which then stays in memory; empty if it cannot be had.
    pub(crate) fn body(&self, index: usize) -> &[u8] {
        match &self.chunks[index].body {
            Body::InFile(start, end) => &self.map[*start..*end],
            Body::Owned(bytes) => bytes,
            Body::Compressed(..) | Body::Unread => self.chunks[index]
                .kept
                .get_or_init(|| self.load(index).map(Cow::into_owned).unwrap_or_default()),
        }
    }

    /// A chunk's body as it counts (decompressed, except blobs), for as long as the caller keeps it.
    pub(crate) fn load(&self, index: usize) -> Result<Cow<'_, [u8]>, Damage> {
        let chunk = &self.chunks[index];
        if let Some(kept) = chunk.kept.get() {
            return Ok(Cow::Borrowed(kept));
        }
        if let Body::Owned(bytes) = &chunk.body {
            return Ok(Cow::Borrowed(bytes));
        }
        let (head, stored) = self.stored(index)?;
        if head.kind == chunk_kind::BLOB || head.flags & CHUNK_COMPRESSED == 0 {
            return Ok(Cow::Borrowed(stored));
        }
        decompress(stored).map(Cow::Owned).ok_or_else(|| Damage {
            position: chunk.position,
            what: "a chunk of calls cannot be decompressed".into(),
        })
    }

    /// Lets the system take back the memory that holds a chunk's part of the file; it comes back when it is looked at again.
    pub(crate) fn let_go(&self, index: usize) {
        let (Body::InFile(start, end) | Body::Compressed(start, end)) = self.chunks[index].body
        else {
            return;
        };
        // SAFETY: nobody writes through this map, so what is dropped is read from the file again.
        let advised = unsafe {
            self.map
                .unchecked_advise_range(UncheckedAdvice::DontNeed, start, end - start)
        };
        // A system that does not do so only has more in memory.
        let _ = advised;
    }

    /// A chunk's head and its body as it is stored; of what only the index was read, that is checked here.
    fn stored(&self, index: usize) -> Result<(ChunkHead, &[u8]), Damage> {
        let chunk = &self.chunks[index];
        match &chunk.body {
            Body::InFile(start, end) | Body::Compressed(start, end) => {
                Ok((chunk.head, &self.map[*start..*end]))
            }
            Body::Owned(bytes) => Ok((chunk.head, bytes)),
            Body::Unread => self.read_indexed(chunk).map_err(|what| Damage {
                position: chunk.position,
                what,
            }),
        }
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The file head.
    pub fn head(&self) -> &FileHead {
        &self.head
    }

    /// What is cut or changed; empty for a sound trace.
    pub fn damage(&self) -> &[Damage] {
        &self.damage
    }

    /// What is known of program and machine, in the order in which it was written.
    pub fn meta(&self) -> &[(String, String)] {
        &self.meta
    }

    /// The last value of a key of [`Trace::meta`].
    pub fn meta_value(&self, key: &str) -> Option<&str> {
        self.meta
            .iter()
            .rev()
            .find(|entry| entry.0 == key)
            .map(|entry| entry.1.as_str())
    }

    /// Functions that the program called and the recorder did not know, so that their calls are not in the trace: the name,
    /// and who called it first.
    pub fn forwarded(&self) -> impl Iterator<Item = (&str, &str)> {
        self.meta
            .iter()
            .filter_map(|(key, by)| Some((key.strip_prefix("forwarded.")?, by.as_str())))
    }

    /// The functions that the records name.
    pub fn signatures(&self) -> &Signatures {
        &self.signatures
    }

    /// The function of a number in records; one that is called `unknown` and has no parameters if the table lacks it.
    pub fn signature(&self, id: u16) -> &Signature {
        self.signatures.function(id).unwrap_or_else(|| &UNKNOWN)
    }

    /// All calls, in the order in which they were entered.
    pub fn calls(&self) -> Calls<'_> {
        Calls::new(self)
    }

    /// How many threads made calls.
    pub fn thread_count(&self) -> usize {
        self.threads.len()
    }

    /// Who the threads are, by ordinal; reads the first calls of each.
    pub fn threads(&self) -> Vec<Thread> {
        let mut threads = vec![Thread::default(); self.threads.len()];
        for (ordinal, thread) in threads.iter_mut().enumerate() {
            let Some(Ok(body)) = self.threads[ordinal].first().map(|&chunk| self.load(chunk))
            else {
                continue;
            };
            let body = &body[..];
            let mut offset = 0;
            while let Some((head, record)) = record_at(body, offset) {
                offset += head.length as usize;
                if head.kind == crate::layout::record_kind::NOTE
                    && let Note::Thread(note) =
                        Note::read(head.function, &record[RECORD_HEAD_LENGTH..])
                {
                    let end = note
                        .name
                        .iter()
                        .position(|&byte| byte == 0)
                        .unwrap_or(note.name.len());
                    thread.number = note.number;
                    thread.name = String::from_utf8_lossy(&note.name[..end]).into_owned();
                    break;
                }
            }
        }
        threads
    }

    /// The body of a thread's chunk of calls that is at a place in its order, `None` if there is none.
    pub(crate) fn calls_body(&self, thread: usize, place: usize) -> Option<&[u8]> {
        Some(self.body(*self.threads.get(thread)?.get(place)?))
    }

    /// The number in its thread of the first call that is entered in that chunk, as its head says.
    pub(crate) fn calls_first(&self, thread: usize, place: usize) -> Option<u64> {
        Some(
            self.chunks[*self.threads.get(thread)?.get(place)?]
                .head
                .first,
        )
    }

    /// The memory map of the recorded process, as far as it was seen.
    pub fn mappings(&self) -> &[Mapping] {
        &self.mappings
    }

    /// The symbol of a caller's address, if `pack` resolved it.
    pub fn symbol(&self, address: u64) -> Option<&str> {
        self.symbols.get(&address).map(String::as_str)
    }

    /// All symbols that `pack` resolved, in no order.
    pub fn symbols(&self) -> impl Iterator<Item = (u64, &str)> {
        self.symbols
            .iter()
            .map(|(&address, text)| (address, text.as_str()))
    }

    /// A blob's bytes; the error says what is wrong with it.
    pub fn blob(&self, blob: BlobRef) -> Result<Cow<'_, [u8]>, Damage> {
        let damage = |what: &str| Damage {
            position: blob.position,
            what: what.to_owned(),
        };
        let &index = self
            .blobs
            .get(&blob.position)
            .ok_or_else(|| damage("a blob is missing"))?;
        let length = usize::try_from(blob.length).map_err(|_| damage("a blob is too long"))?;
        match self.blob_bytes(index)? {
            Cow::Borrowed(bytes) => bytes.get(..length).map(Cow::Borrowed),
            Cow::Owned(mut bytes) => (bytes.len() >= length).then(|| {
                bytes.truncate(length);
                Cow::Owned(bytes)
            }),
        }
        .ok_or_else(|| damage("a blob is shorter than it should be"))
    }

    /// The bytes of a snapshot, wherever they are: in the record, in a blob, or, of a trace that is not packed, in the file that
    /// they were mapped from. The error says why they are not to be had; its position is 0 if the trace itself is sound.
    pub fn resolve<'a>(&'a self, bytes: Bytes<'a>) -> Result<Cow<'a, [u8]>, Damage> {
        let why = |what: String| Damage { position: 0, what };
        match bytes {
            Bytes::Inline(bytes) => Ok(Cow::Borrowed(bytes)),
            Bytes::Blob(blob) => self.blob(blob),
            Bytes::InFile(range) => self.file_range(range),
            Bytes::Omitted(_) => Err(why("not kept".into())),
            Bytes::Hashed(..) => Err(why("not kept, only hashed".into())),
            Bytes::Unreadable => Err(why("unreadable".into())),
        }
    }

    /// The bytes of a part of a file: those that `pack` brought in, else those in the file if it is still the same.
    pub fn file_range(&self, range: FileRange<'_>) -> Result<Cow<'_, [u8]>, Damage> {
        let blob = range.blob();
        if self.blobs.contains_key(&blob.position) {
            return self.blob(blob);
        }
        range.read().map(Cow::Owned).map_err(|what| Damage {
            position: 0,
            what: format!("the trace names it by its file, and that is not to be had: {what}"),
        })
    }

    /// All bytes of a blob's chunk, checked when they are asked for the first time.
    fn blob_bytes(&self, index: usize) -> Result<Cow<'_, [u8]>, Damage> {
        let chunk = &self.chunks[index];
        let damage = |what: &str| Damage {
            position: chunk.position,
            what: what.to_owned(),
        };
        let (head, body) = self.stored(index)?;
        let closed = head.flags & CHUNK_CLOSED != 0;
        if closed && !chunk.checked.load(Ordering::Relaxed) {
            if crc32fast::hash(body) != head.body_checksum {
                return Err(damage("the checksum of a blob is wrong"));
            }
            chunk.checked.store(true, Ordering::Relaxed);
        }
        if head.flags & CHUNK_COMPRESSED == 0 {
            return Ok(Cow::Borrowed(body));
        }
        decompress(body)
            .map(Cow::Owned)
            .ok_or_else(|| damage("a blob cannot be decompressed"))
    }

    /// The chunk that holds the blob of a name: its number.
    pub(crate) fn blob_chunk(&self, name: u64) -> Option<usize> {
        self.blobs.get(&name).copied()
    }

    /// What a chunk's blob holds: all of a closed one, `length` bytes of one that was never closed.
    pub(crate) fn blob_content(&self, chunk: usize, length: u64) -> Result<Cow<'_, [u8]>, Damage> {
        let bytes = self.blob_bytes(chunk)?;
        match bytes {
            Cow::Borrowed(bytes)
                if !self.packed() && self.chunks[chunk].head.flags & CHUNK_CLOSED == 0 =>
            {
                let length = usize::try_from(length)
                    .unwrap_or(usize::MAX)
                    .min(bytes.len());
                Ok(Cow::Borrowed(&bytes[..length]))
            }
            bytes => Ok(bytes),
        }
    }

    /// The head of a chunk.
    pub(crate) fn chunk_head(&self, chunk: usize) -> &ChunkHead {
        &self.chunks[chunk].head
    }

    /// The blobs' names and lengths, in the order of their names (which is the order of recording). An open blob's length is
    /// that of its chunk.
    pub fn blobs(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let mut names: Vec<(u64, usize)> = self
            .blobs
            .iter()
            .map(|(&name, &index)| (name, index))
            .collect();
        names.sort_unstable();
        names.into_iter().map(|(name, index)| {
            let length = match self.stored(index) {
                Ok((head, body)) if head.flags & CHUNK_COMPRESSED == 0 => body.len() as u64,
                Ok((_, body)) => raw_length(body).unwrap_or(0),
                Err(_) => 0,
            };
            (name, length)
        })
    }

    /// What the file is to the operating system.
    pub(crate) fn file_metadata(&self) -> io::Result<std::fs::Metadata> {
        self.file.metadata()
    }

    /// How many chunks there are.
    pub(crate) fn chunk_count(&self) -> usize {
        self.chunks.len()
    }

    /// Where a chunk begins in the file.
    pub(crate) fn chunk_position(&self, chunk: usize) -> u64 {
        self.chunks[chunk].position
    }

    /// All chunks in the order of the file, but the chunks of a thread change places so that they come in their own order: full
    /// stages are not always moved in that order.
    pub(crate) fn chunks_by_sequence(&self) -> impl Iterator<Item = usize> + '_ {
        let mut taken = vec![0; self.threads.len()];
        (0..self.chunks.len()).filter_map(move |chunk| {
            let head = &self.chunks[chunk].head;
            if head.kind != chunk_kind::CALLS {
                return Some(chunk);
            }
            let thread = head.thread as usize;
            let place = taken.get_mut(thread)?;
            *place += 1;
            self.threads.get(thread)?.get(*place - 1).copied()
        })
    }

    /// The chunks of calls, in the order of the file.
    pub(crate) fn calls_chunks(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.chunks.len()).filter(|&chunk| self.chunks[chunk].head.kind == chunk_kind::CALLS)
    }

    /// Nanoseconds from the start of the recording to a moment given in ticks; 0 where the clock is a mere counter.
    pub fn nanoseconds(&self, ticks: u64) -> u64 {
        let since = ticks.saturating_sub(self.head.start_ticks);
        let rate = self.ticks_per_second();
        if rate == 0 {
            return 0;
        }
        u64::try_from(u128::from(since) * 1_000_000_000 / u128::from(rate)).unwrap_or(u64::MAX)
    }

    /// The clock's rate: stated, or from the clock pairs that lie furthest apart; 0 if neither tells.
    pub fn ticks_per_second(&self) -> u64 {
        if let Some(rate) = self
            .meta_value("clock.ticks-per-second")
            .and_then(|text| text.parse().ok())
        {
            return rate;
        }
        if self.head.ticks_per_second != 0 || self.head.clock != 0 {
            return self.head.ticks_per_second;
        }
        let pairs = || {
            self.chunks
                .iter()
                .map(|c| (c.head.ticks, c.head.nanoseconds))
                .filter(|p| p.1 != 0)
        };
        let (Some(first), Some(last)) = (pairs().min(), pairs().max()) else {
            return 0;
        };
        let nanoseconds = last.1.saturating_sub(first.1);
        if nanoseconds == 0 {
            return 0;
        }
        let ticks = u128::from(last.0.saturating_sub(first.0));
        u64::try_from(ticks * 1_000_000_000 / u128::from(nanoseconds)).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_may_be_any_bytes() {
        let stored = codec::encode_to_vec((1u64, 2u64, 3u64, b"/tmp/\xff.so".to_vec(), vec![7u8]));
        let (mapping, used) = codec::decode::<StoredMapping>(&stored).unwrap();
        let mapping = Mapping::from(mapping);
        assert_eq!(used, stored.len());
        assert_eq!(mapping.path, "/tmp/\u{fffd}.so");
        // A path that is text is stored as it always was.
        let plain = Mapping {
            path: "/usr/lib/libx.so".to_owned(),
            ..mapping
        };
        let stored = codec::encode_to_vec(&plain);
        assert_eq!(
            Mapping::from(codec::decode::<StoredMapping>(&stored).unwrap().0),
            plain
        );
    }
}
