//! An open trace: what is known of program and machine, threads, functions, time.

use std::collections::HashMap;
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::{LazyLock, OnceLock};

use crate::layout::{
    CallCount, ChunkHead, FileHead, IndexEntry, Mapping, ResolvedAddress, chunk_kind,
};
use crate::read::error::{Damage, Error};
use crate::read::growth::Growth;
use crate::read::note::{Note, text};
use crate::read::record::records;
use crate::read::signature::{Signature, Signatures};
use crate::read::source::Source;
use crate::read::stack_chunks::StackChunks;

/// A thread of the recorded process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Thread {
    /// The operating system's number; 0 if the trace does not have it.
    pub number: u32,
    /// Its name.
    pub name: String,
}

/// Where the body of a chunk is.
#[derive(Debug)]
pub(crate) enum Body {
    /// In the file; a blob as it is stored.
    InFile(Range<usize>),
    /// Calls, compressed in the file.
    Compressed(Range<usize>),
    /// In memory.
    Owned(Vec<u8>),
    /// In the file, where only the index has been read.
    Unread,
}

#[derive(Debug)]
pub(crate) struct Chunk {
    pub(crate) head: ChunkHead,
    pub(crate) position: u64,
    pub(crate) body: Body,
    /// This blob's checksum is known to be right.
    pub(crate) is_checked: AtomicBool,
    /// The decompressed body, if it stays in memory while the trace is open.
    pub(crate) loaded: OnceLock<Vec<u8>>,
}

impl Chunk {
    pub(crate) fn new(head: ChunkHead, position: u64, body: Body) -> Self {
        Self {
            head,
            position,
            body,
            is_checked: AtomicBool::new(false),
            loaded: OnceLock::new(),
        }
    }
}

/// An open trace.
#[derive(Debug)]
pub struct Trace {
    pub(crate) source: Source,
    pub(crate) chunks: Vec<Chunk>,
    /// For each thread its chunks of calls, in order.
    pub(crate) threads: Vec<Vec<usize>>,
    /// The chunk of each blob, by name.
    pub(crate) blobs: HashMap<u64, usize>,
    pub(crate) meta: Vec<(String, String)>,
    pub(crate) signatures: Signatures,
    pub(crate) mappings: Vec<Mapping>,
    pub(crate) symbols: HashMap<u64, String>,
    pub(crate) stacks: StackChunks,
    /// By address.
    pub(crate) sources: HashMap<u64, ResolvedAddress>,
    /// Of a packed trace.
    pub(crate) index: Vec<IndexEntry>,
    /// Of a packed trace: of its chunks of calls, in their order.
    pub(crate) counts: Vec<CallCount>,
    pub(crate) damage: Vec<Damage>,
    pub(crate) growth: Growth,
    /// The process that was recording to it when it was opened.
    recorded_by: Option<u32>,
    /// Calls that were entered after these ticks, while the trace was opened, were left out.
    pub(crate) moment: Option<u64>,
}

static UNKNOWN: LazyLock<Signature> = LazyLock::new(|| Signature {
    id: u16::MAX,
    name: "unknown".into(),
    base: "unknown".into(),
    returns: "CUresult".into(),
    class: "opaque".into(),
    ..Signature::default()
});

impl Trace {
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

    /// Opens a trace, damaged or not; [`Trace::damage`] lists what is missing. Of a trace that a
    /// process is recording, all that is read belongs to one moment.
    pub fn open_damaged(path: &Path) -> Result<Self, Error> {
        loop {
            let mut trace = Self::of_source(Source::open(path, false)?);
            if trace.source.is_packed() {
                trace.scan();
            } else {
                trace.recorded_by = trace.writer();
                let read = trace.read_raw(trace.recorded_by.is_some());
                read.map_err(|source| Error::Io {
                    path: path.to_owned(),
                    source,
                })?;
                // The program ended meanwhile: the trace is complete now.
                if trace.recorded_by.is_some() && trace.writer().is_none() {
                    continue;
                }
            }
            trace.finish();
            return Ok(trace);
        }
    }

    /// Opens a packed trace by its index, in a time that does not depend on its length: chunks of
    /// calls and blobs are checked when they are read. A trace without a sound index is opened as
    /// by [`Trace::open`].
    ///
    /// # Errors
    /// As [`Trace::open`]; of damage only what the index and the short chunks show.
    pub fn open_indexed(path: &Path) -> Result<Self, Error> {
        let mut trace = Self::of_source(Source::open(path, false)?);
        if trace.read_index().is_some() {
            Ok(trace)
        } else {
            Self::open(path)
        }
    }

    /// Whether a process was still recording to the trace when it was opened: calls in flight may
    /// return, and others follow.
    pub fn is_still_recorded(&self) -> bool {
        self.recorded_by.is_some() || self.moment.is_some()
    }

    /// When the last call of an unpacked trace was entered, in ticks; `None` if it has none.
    pub fn last_entered(&self) -> Option<u64> {
        Some(self.growth.last_entered).filter(|&ticks| ticks > 0)
    }

    /// Follows a trace that is being recorded; [`Trace::refresh`] takes in what is added.
    pub fn follow(path: &Path) -> Result<Self, Error> {
        let mut trace = Self::of_source(Source::open(path, true)?);
        trace.take_additions();
        Ok(trace)
    }

    fn of_source(source: Source) -> Self {
        let (start, damage) = source.first_chunk();
        Self {
            source,
            chunks: Vec::new(),
            threads: Vec::new(),
            blobs: HashMap::new(),
            meta: Vec::new(),
            signatures: Signatures::default(),
            mappings: Vec::new(),
            symbols: HashMap::new(),
            stacks: StackChunks::default(),
            sources: HashMap::new(),
            index: Vec::new(),
            counts: Vec::new(),
            damage,
            growth: Growth {
                scanned: start,
                ..Growth::default()
            },
            recorded_by: None,
            moment: None,
        }
    }

    pub(crate) fn add_damage(&mut self, position: u64, what: impl Into<String>) {
        self.damage.push(Damage::new(position, what));
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.source.path
    }

    /// The file head.
    pub fn head(&self) -> &FileHead {
        &self.source.head
    }

    /// What is cut or changed; empty for a sound trace.
    pub fn damage(&self) -> &[Damage] {
        &self.damage
    }

    /// Facts about program and machine, in the order in which they were written.
    pub fn meta(&self) -> &[(String, String)] {
        &self.meta
    }

    /// The last value of a key of [`Trace::meta`].
    pub fn meta_value(&self, key: &str) -> Option<&str> {
        let mut entries = self.meta.iter().rev();
        let (_, value) = entries.find(|entry| entry.0 == key)?;
        Some(value)
    }

    /// Functions that the program called and the recorder did not know, so that their calls are not
    /// in the trace: the name, and its first caller.
    pub fn forwarded(&self) -> impl Iterator<Item = (&str, &str)> {
        self.meta
            .iter()
            .filter_map(|(key, by)| Some((key.strip_prefix("forwarded.")?, by.as_str())))
    }

    /// The functions that the records name.
    pub fn signatures(&self) -> &Signatures {
        &self.signatures
    }

    /// The function of a number in records; if the table lacks it, a function called `unknown`
    /// without parameters.
    pub fn signature(&self, id: u16) -> &Signature {
        self.signatures.function(id).unwrap_or_else(|| &UNKNOWN)
    }

    /// The memory map of the recorded process, as far as it is known.
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

    /// How many threads made calls.
    pub fn thread_count(&self) -> usize {
        self.threads.len()
    }

    /// Numbers and names of the threads, by ordinal; reads the first chunk of each.
    pub fn threads(&self) -> Vec<Thread> {
        let thread = |chunks: &Vec<usize>| {
            let body = self.load(*chunks.first()?).ok()?;
            let mut notes = records(&body).filter(|(_, head, _)| head.is_note());
            notes.find_map(
                |(_, head, record)| match Note::read(head.function, record) {
                    Note::Thread(note) => Some(Thread {
                        number: note.number,
                        name: text(&note.name),
                    }),
                    _ => None,
                },
            )
        };
        let threads = self.threads.iter();
        threads
            .map(|chunks| thread(chunks).unwrap_or_default())
            .collect()
    }

    /// A chunk by its number, which is never read from a file.
    #[allow(
        clippy::indexing_slicing,
        reason = "all numbers of chunks are indices of this vector, which only grows"
    )]
    pub(crate) fn chunk(&self, number: usize) -> &Chunk {
        &self.chunks[number]
    }

    /// The chunks of a thread, in order.
    pub(crate) fn thread_chunks(&self, thread: u32) -> &[usize] {
        self.threads.get(thread as usize).map_or(&[], Vec::as_slice)
    }

    /// The chunks of calls, in the order of the file.
    pub(crate) fn calls_chunks(&self) -> impl Iterator<Item = usize> + '_ {
        self.chunks_of_kind(chunk_kind::CALLS)
    }

    pub(crate) fn chunks_of_kind(&self, kind: u16) -> impl Iterator<Item = usize> + '_ {
        let chunks = self.chunks.iter().zip(0..);
        chunks
            .filter(move |(chunk, _)| chunk.head.kind == kind)
            .map(|(_, number)| number)
    }

    /// Nanoseconds from the start of the recording to a moment given in ticks; 0 where the clock is
    /// a mere counter.
    pub fn nanoseconds(&self, ticks: u64) -> u64 {
        let since = u128::from(ticks.saturating_sub(self.head().start_ticks));
        let nanoseconds = since * 1_000_000_000;
        nanoseconds
            .checked_div(self.ticks_per_second().into())
            .map_or(0, |nanoseconds| {
                u64::try_from(nanoseconds).unwrap_or(u64::MAX)
            })
    }

    /// The clock's rate: as recorded, or from the clock pairs that are furthest apart; 0 if
    /// unknown.
    pub fn ticks_per_second(&self) -> u64 {
        let recorded = self.meta_value("clock.ticks-per-second");
        if let Some(rate) = recorded.and_then(|text| text.parse().ok()) {
            return rate;
        }
        if self.head().ticks_per_second != 0 || self.head().clock != 0 {
            return self.head().ticks_per_second;
        }
        let pairs = || {
            let chunks = self.chunks.iter().filter(|c| c.head.nanoseconds != 0);
            chunks.map(|chunk| (chunk.head.ticks, chunk.head.nanoseconds))
        };
        let (Some(first), Some(last)) = (pairs().min(), pairs().max()) else {
            return 0;
        };
        let ticks = u128::from(last.0.saturating_sub(first.0)) * 1_000_000_000;
        let nanoseconds = u128::from(last.1.saturating_sub(first.1));
        ticks
            .checked_div(nanoseconds)
            .map_or(0, |rate| u64::try_from(rate).unwrap_or(0))
    }
}
