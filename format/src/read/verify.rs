//! Checking everything in a trace, blobs and records included, which opening it leaves for later.

use std::collections::HashSet;
use std::convert::Infallible;
use std::path::PathBuf;

use crate::file_range::FileRange;
use crate::layout::{CallCount, chunk_kind};
use crate::parallel::for_each_ordered;
use crate::read::contents::{Contents, References};
use crate::read::error::Damage;
use crate::read::trace::Trace;

/// Bytes that the trace refers to by a file, and that are unavailable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MissingFileRange {
    /// The file.
    pub path: PathBuf,
    /// Where they begin in it.
    pub offset: u64,
    /// How many they are.
    pub length: u64,
    /// They are a payload, otherwise an image.
    pub is_payload: bool,
    /// Why they are unavailable, for people; begins with the path.
    pub why: String,
}

impl MissingFileRange {
    pub(crate) fn new(range: &FileRange<'_>, why: String) -> Self {
        Self {
            path: range.file().to_owned(),
            offset: range.offset,
            length: range.length,
            is_payload: range.digest.is_some(),
            why,
        }
    }
}

/// A file that has payloads of the trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PayloadFile {
    /// The file.
    pub path: PathBuf,
    /// How many different parts of it the trace refers to and does not hold.
    pub parts: u64,
    /// Bytes of these.
    pub bytes: u64,
    /// Why the file does not look as it did, for people; begins with the path.
    pub changed: Option<String>,
}

/// Size of a trace's records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecordSizes {
    /// Chunks that hold calls.
    pub chunks: u64,
    /// Bytes of records in them, not compressed.
    pub bytes: u64,
}

/// What the records of all chunks refer to, and what is wrong with them.
#[derive(Debug, Default)]
pub struct WalkSummary {
    references: References,
    malformed: Vec<Damage>,
    unknown_function: Option<Damage>,
    /// For each chunk its number and what a packed trace should store of it.
    counts: Vec<(usize, CallCount)>,
}

impl WalkSummary {
    /// Adds a chunk of calls; chunks may come in any order.
    pub(crate) fn add(&mut self, trace: &Trace, chunk: usize, contents: Contents) {
        let position = trace.chunk(chunk).position;
        self.counts.push((chunk, contents.count(position)));
        self.malformed.extend(contents.malformed_record(position));
        if let Some(found) = contents.unknown_function(position)
            && self
                .unknown_function
                .as_ref()
                .is_none_or(|first| first.position > position)
        {
            self.unknown_function = Some(found);
        }
        self.references.append(contents.references);
    }

    /// What is wrong with the records: malformed ones, chunks that do not begin with the call that
    /// their head names, blobs that are missing. With [`Trace::verify_blobs`] this is all that
    /// [`Trace::verify`] finds.
    pub fn damage(&self, trace: &Trace) -> Vec<Damage> {
        let mut damage = self.malformed.clone();
        damage.extend(self.misnumbered_chunks(trace));
        let blobs = self.references.blobs.iter();
        damage.extend(blobs.filter_map(|&blob| trace.blob(blob).err()));
        damage.sort_by_key(|damage| damage.position);
        damage
    }

    /// Chunks whose head, or whose entry in the call counts, does not agree with their records.
    fn misnumbered_chunks(&self, trace: &Trace) -> Vec<Damage> {
        // What follows a gap is numbered by its head.
        let may_have_gaps = trace.may_lack_numbers();
        let mut counts: Vec<_> = self
            .counts
            .iter()
            .map(|(chunk, count)| (&trace.chunk(*chunk).head, count))
            .collect();
        counts.sort_by_key(|(head, _)| (head.thread, head.sequence));
        let mut damage = Vec::new();
        for chunks in counts.chunk_by(|(head, _), (next, _)| head.thread == next.thread) {
            let mut entered = 0;
            for (head, count) in chunks {
                let (thread, first) = (head.thread, head.first);
                let is_gap = may_have_gaps && entered < first;
                if entered != first && !is_gap {
                    let what = format!(
                        "a chunk of calls begins with call {entered} of thread {thread}, \
                         its head names call {first}"
                    );
                    damage.push(Damage::new(count.position, what));
                } else if let Some(stored) = trace.call_count(count.position)
                    && stored != *count
                {
                    let what = format!(
                        "the call counts name {} calls in a chunk that holds {}",
                        stored.calls, count.calls
                    );
                    damage.push(Damage::new(count.position, what));
                }
                entered = first.max(entered).saturating_add(count.calls);
            }
        }
        damage
    }

    /// As [`Trace::unknown_function`].
    pub fn unknown_function(&self) -> Option<&Damage> {
        self.unknown_function.as_ref()
    }

    /// The bytes of images that the trace refers to by a file and that are unavailable: neither
    /// packed nor in that file. Reads all these parts of files.
    pub fn missing_file_ranges(&self, trace: &Trace) -> Vec<MissingFileRange> {
        let ranges = trace.ranges_outside(&self.references).into_iter();
        ranges
            .filter(|range| range.digest.is_none())
            .filter_map(|range| Some(MissingFileRange::new(&range, range.read().err()?)))
            .collect()
    }

    /// The files that have payloads of the trace, by path. They are not read.
    pub fn payload_files(&self, trace: &Trace) -> Vec<PayloadFile> {
        let mut files: Vec<PayloadFile> = Vec::new();
        for range in trace.ranges_outside(&self.references) {
            if range.digest.is_none() {
                continue;
            }
            if files.last().is_none_or(|last| last.path != range.file()) {
                files.push(PayloadFile {
                    path: range.file().to_owned(),
                    parts: 0,
                    bytes: 0,
                    changed: None,
                });
            }
            if let Some(file) = files.last_mut() {
                file.parts += 1;
                file.bytes += range.length;
                // Parts may be of several versions of the file, of which one may be there.
                file.changed = file.changed.take().or_else(|| range.look().err());
            }
        }
        files
    }
}

impl Trace {
    /// Reads the whole file and lists all that is wrong with it, [`Trace::damage`] first; empty for
    /// a sound trace.
    pub fn verify(&self) -> Vec<Damage> {
        let (summary, mut found) = self.summarize();
        found.extend(self.verify_blobs());
        found.extend(summary.damage(self));
        found.sort_by_key(|damage| damage.position);
        // A damaged blob is found as a chunk as well as by its name.
        let mut known = HashSet::new();
        let opened = self.damage().iter().cloned();
        opened
            .chain(found)
            .filter(|damage| known.insert((damage.position, damage.what.clone())))
            .collect()
    }

    /// Reads all blobs; what is wrong with them, in their order.
    pub fn verify_blobs(&self) -> Vec<Damage> {
        let mut damage = Vec::new();
        let Ok(()) = for_each_ordered(
            self.chunks_of_kind(chunk_kind::BLOB),
            |chunk| {
                let damage = self.blob_content(chunk, u64::MAX).err();
                self.release(chunk);
                damage
            },
            |found| -> Result<(), Infallible> {
                damage.extend(found);
                Ok(())
            },
        );
        damage
    }

    /// The first record of a call whose function the trace's own signature table lacks, or a chunk
    /// of calls that cannot be read. No recorder writes such a record; readers get it as a call of
    /// a function `unknown`.
    pub fn unknown_function(&self) -> Option<Damage> {
        let (summary, unreadable) = self.summarize();
        let first = unreadable.into_iter().chain(summary.unknown_function);
        first.min_by_key(|damage| damage.position)
    }

    /// The size of the records of all threads; reads all of them.
    pub fn record_sizes(&self) -> RecordSizes {
        let mut sizes = RecordSizes::default();
        self.for_each_contents(|_, contents| {
            sizes.chunks += u64::from(contents.is_ok());
            sizes.bytes += contents.map_or(0, |contents| contents.end as u64);
        });
        sizes
    }

    /// Reads all chunks of calls: their summary, and those that cannot be read.
    fn summarize(&self) -> (WalkSummary, Vec<Damage>) {
        let (mut summary, mut unreadable) = (WalkSummary::default(), Vec::new());
        self.for_each_contents(|chunk, contents| match contents {
            Ok(contents) => summary.add(self, chunk, contents),
            Err(damage) => unreadable.push(damage),
        });
        (summary, unreadable)
    }

    /// Searches the chunks of calls on all processors, and takes what they hold in their order.
    fn for_each_contents(&self, mut take: impl FnMut(usize, Result<Contents, Damage>)) {
        let Ok(()) = for_each_ordered(
            self.calls_chunks(),
            |chunk| {
                let contents = self.load(chunk).map(|body| Contents::of(self, &body));
                (chunk, contents)
            },
            |(chunk, contents)| -> Result<(), Infallible> {
                take(chunk, contents);
                Ok(())
            },
        );
    }

    /// What the call counts of a packed trace have of the chunk that begins there.
    fn call_count(&self, position: u64) -> Option<&CallCount> {
        let at = self
            .counts
            .binary_search_by_key(&position, |count| count.position);
        self.counts.get(at.ok()?)
    }

    /// The parts of files that records refer to and the trace does not hold, by file and place.
    pub(crate) fn ranges_outside<'a>(&self, references: &'a References) -> Vec<FileRange<'a>> {
        let ranges = references.ranges();
        let mut ranges: Vec<_> = ranges
            .filter(|range| self.blob_chunk(range.blob().position).is_none())
            .collect();
        ranges.sort_by_key(|range| (range.path, range.offset, range.length));
        ranges
    }
}
