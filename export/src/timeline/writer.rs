//! Tracks and events, as writers of timelines take them.

use std::io;

use cutape_model::MemoryKind;

use crate::rows::TraceRow;

/// A track of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Track {
    /// The calls of a thread, by ordinal.
    Thread(u32),
    /// The pushed ranges of a thread, of no thread for `None`, in the NVTX domain of that number.
    Ranges(Option<u32>, u32),
    /// A range that may overlap others, by its number.
    Range(u32),
    /// The marks of a thread; of no thread for `None`.
    Marks(Option<u32>),
    /// What is enqueued in a stream, by its number.
    Stream(u32),
    /// The bytes of a kind of memory.
    Memory(MemoryKind),
    /// What is wrong.
    Findings,
    /// A track of a replay, by its number.
    Replay(u32),
}

/// A further fact about an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Annotation<'a> {
    /// A number.
    Number(u64),
    /// A text.
    Text(&'a str),
    /// True or false.
    Flag(bool),
}

/// Something that lasts, or a moment.
#[derive(Clone, Copy, Debug)]
pub struct Slice<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its category: `call`, `launch`, `graph-launch`, `graph-kernel`, `copy`, `wait`, `range`,
    /// `mark`, `finding`; `gpu-kernel`, `gpu-copy`, `gpu-memset`, `gpu-graph` for what a GPU ran.
    pub category: &'static str,
    /// When it begins, ns since 1970.
    pub begin: u64,
    /// When it ends; `None` for a moment.
    pub end: Option<u64>,
    /// Facts by name.
    pub annotations: &'a [(&'static str, Annotation<'a>)],
    /// Flows that begin in it, and flows that end in it.
    pub flows: (&'a [u64], &'a [u64]),
}

/// Takes tracks and events.
pub trait TimelineWriter {
    /// The events that follow are of this trace.
    ///
    /// # Errors
    /// If writing fails.
    fn begin(&mut self, trace: &TraceRow) -> io::Result<()>;

    /// A track, before its first event.
    ///
    /// # Errors
    /// If writing fails.
    fn track(&mut self, track: Track, name: &str) -> io::Result<()>;

    /// An event.
    ///
    /// # Errors
    /// If writing fails.
    fn slice(&mut self, track: Track, slice: &Slice<'_>) -> io::Result<()>;

    /// A value of a counter, from that time on.
    ///
    /// # Errors
    /// If writing fails.
    fn counter(&mut self, track: Track, ns: u64, value: u64) -> io::Result<()>;
}
