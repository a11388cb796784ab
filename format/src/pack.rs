//! Rewriting a trace as one complete, compressed file with the same content.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File};
use std::io::{self, Seek, SeekFrom, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::codec::{self, Decode, Encode};
use crate::contents::{Contents, Named};
use crate::file_range::FileRange;
use crate::layout::{
    CHUNK_MAGIC, ChunkHead, FILE_HEAD_LENGTH, FILE_PACKED, FileHead, MAJOR, MINOR, chunk_kind,
};
use crate::ordered::for_each_ordered;
use crate::packed_file::{Stored, Temporary, Writer, exists};
use crate::payloads::PayloadPolicies;
use crate::reduce::{self, Reduction, Replaced};
use crate::trace::{Damage, Trace};

/// A caller's address and the symbol there.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Symbol {
    /// The address in the recorded process.
    pub address: u64,
    /// For people, e.g. `main+0x2f in saxpy`.
    pub text: String,
}

/// What the index says of a chunk. An index chunk holds a `Vec` of these; if there are several index chunks they follow each other at
/// the end of the file, and the file head names the first.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub(crate) struct IndexEntry {
    /// Where the chunk begins.
    pub(crate) position: u64,
    /// As in its head.
    pub(crate) kind: u16,
    /// As in its head.
    pub(crate) thread: u32,
    /// As in its head.
    pub(crate) sequence: u32,
    /// As in its head.
    pub(crate) first: u64,
    /// As in its head.
    pub(crate) ticks: u64,
    /// For a blob: every name (recorded position) that stands for its content.
    pub(crate) names: Vec<u64>,
}

/// What a packed trace says of a chunk of calls; in the order of the chunks.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub(crate) struct CallsEntry {
    /// Where the chunk begins.
    pub(crate) position: u64,
    /// How many calls are entered in it.
    pub(crate) calls: u64,
    /// When the first of them was entered; 0 if none is.
    pub(crate) ticks: u64,
    /// 1 if some call or note in it says what a handle stands for: makes an object, looks one up, gives its name; else 0.
    pub(crate) introduces: u32,
}

impl CallsEntry {
    fn of(position: u64, contents: &Contents) -> Self {
        Self {
            position,
            calls: contents.calls,
            ticks: contents.first_ticks.unwrap_or(0),
            introduces: u32::from(contents.introduces),
        }
    }

    /// Whether it says of a chunk what that holds.
    pub(crate) fn agrees(&self, contents: &Contents) -> bool {
        *self == Self::of(self.position, contents)
    }
}

/// So that an index chunk stays far below what can be decoded at once.
const ENTRIES_PER_INDEX: usize = 200_000;

/// What packing did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PackSummary {
    /// Bytes before.
    pub before: u64,
    /// Bytes after.
    pub after: u64,
    /// Blobs that were stored already.
    pub duplicate_blobs: u64,
    /// Parts of files that were brought in.
    pub files: u64,
    /// Those that could not be.
    pub missing: Vec<MissingFileRange>,
    /// PayloadPolicy of which less is kept than before.
    pub payloads: u64,
    /// Bytes of these.
    pub payload_bytes: u64,
}

/// Bytes that the trace names by a file, and that are no longer there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MissingFileRange {
    /// The file.
    pub path: PathBuf,
    /// Where they begin in it.
    pub offset: u64,
    /// How many they are.
    pub length: u64,
    /// Why they cannot be had, for people; begins with the path.
    pub why: String,
}

/// Writes `trace` to `target`, adding `meta` entries and `symbols`.
///
/// `target` must not exist, unless it is the trace's own file, which is then replaced in one step. The file is readable for its
/// owner only. Blobs that no record names are left out. Bytes that the trace names by a file are brought in from there;
/// the summary says which could not be. PayloadPolicy are kept as the recorder was told.
///
/// # Errors
/// `AlreadyExists`; `InvalidData` if the trace is damaged (see [`crate::repair`]); whatever writing meets. Nothing is left
/// behind then, and an existing file is as before.
pub fn pack(
    trace: &Trace,
    target: &Path,
    meta: &[(String, String)],
    symbols: &[Symbol],
) -> io::Result<PackSummary> {
    pack_with_policies(trace, target, meta, symbols, PayloadPolicies::default())
}

/// As [`pack`], with no more of the payloads than `kept` says; what is not there already does not come back. The meta entries
/// `payloads` and `outputs` say what is left.
///
/// # Errors
/// As [`pack`], and `InvalidData` if payloads are to be left out of a trace of a later minor version, which may have them where
/// this one does not look.
pub fn pack_with_policies(
    trace: &Trace,
    target: &Path,
    meta: &[(String, String)],
    symbols: &[Symbol],
    kept: PayloadPolicies,
) -> io::Result<PackSummary> {
    if let Some(first) = trace.damage().first() {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            format!(
                "{}: damaged at byte {}: {}; `repair` keeps what is good",
                trace.path().display(),
                first.position,
                first.what
            ),
        ));
    }
    rewrite(trace, target, meta, symbols, kept, true)
}

/// As [`pack_with_policies`], but of whatever the trace still has unless it is to be `whole`.
pub(crate) fn rewrite(
    trace: &Trace,
    target: &Path,
    meta: &[(String, String)],
    symbols: &[Symbol],
    kept: PayloadPolicies,
    whole: bool,
) -> io::Result<PackSummary> {
    let kept = reduce::kept_by_pack(trace, kept);
    let reduction = Reduction::of(trace, kept, whole).map_err(|why| {
        io::Error::new(
            io::ErrorKind::InvalidData,
            format!("{}: {why}", trace.path().display()),
        )
    })?;
    let meta = [meta, &reduce::meta(trace, kept)].concat();
    let source = trace.file_metadata()?;
    let in_place = match fs::metadata(target) {
        Ok(there) if (there.dev(), there.ino()) == (source.dev(), source.ino()) => true,
        Ok(_) => return Err(exists(target)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => false,
        Err(error) => return Err(error),
    };
    // A symbolic link stays what it is; the file that it names is replaced.
    let target = if in_place {
        fs::canonicalize(target)?
    } else {
        target.to_owned()
    };
    let temporary = Temporary::beside(&target)?;
    let file = &temporary.file;
    let summary = write_packed(trace, file, &meta, symbols, reduction.as_ref(), whole)?;
    if in_place {
        temporary.file.sync_data()?;
        temporary.replace(&target)?;
    } else {
        temporary.appear_as(&target)?;
    }
    Ok(PackSummary {
        before: source.len(),
        ..summary
    })
}

impl Trace {
    /// The bytes that the trace names by a file and that are not to be had any more: neither packed, nor in that file. Reads
    /// all of the files' parts.
    pub fn missing(&self) -> Vec<MissingFileRange> {
        let mut named = Named::default();
        self.each_contents(self.calls_chunks(), |_, outcome| {
            if let Ok((contents, _)) = outcome {
                named.append(contents.named);
            }
        });
        missing_ranges(self, &named)
    }
}

/// Those of the parts of files that are not to be had.
pub(crate) fn missing_ranges(trace: &Trace, named: &Named) -> Vec<MissingFileRange> {
    let ranges = ranges_outside(trace, named).into_iter();
    ranges
        .filter_map(|range| Some(MissingFileRange::new(&range, range.read().err()?)))
        .collect()
}

impl MissingFileRange {
    fn new(range: &FileRange<'_>, why: String) -> Self {
        Self {
            path: range.file().to_owned(),
            offset: range.offset,
            length: range.length,
            why,
        }
    }
}

/// The parts of files that records name and the trace does not hold, by file and place.
fn ranges_outside<'a>(trace: &Trace, named: &'a Named) -> Vec<FileRange<'a>> {
    let mut ranges: Vec<_> = named
        .ranges()
        .filter(|range| trace.blob_chunk(range.blob().position).is_none())
        .collect();
    ranges.sort_by_key(|range| (range.path, range.offset, range.length));
    ranges
}

/// A chunk head with nothing but a kind.
pub(crate) fn blank_head(kind: u16) -> ChunkHead {
    ChunkHead {
        magic: CHUNK_MAGIC,
        kind,
        flags: 0,
        length: 0,
        thread: 0,
        sequence: 0,
        used: 0,
        first: 0,
        ticks: 0,
        nanoseconds: 0,
        body_checksum: 0,
        head_checksum: 0,
    }
}

fn write_packed(
    trace: &Trace,
    file: &File,
    meta: &[(String, String)],
    symbols: &[Symbol],
    reduction: Option<&Reduction<'_>>,
    whole: bool,
) -> io::Result<PackSummary> {
    let mut writer = Writer::behind_head(file)?;
    let meta = whole_meta(trace, meta);
    writer.chunk(
        blank_head(chunk_kind::META),
        &codec::encode_to_vec(&meta),
        Vec::new(),
    )?;
    if !trace.mappings().is_empty() {
        let mappings = codec::encode_to_vec(trace.mappings());
        writer.chunk(blank_head(chunk_kind::MAPS), &mappings, Vec::new())?;
    }
    let symbols = whole_symbols(trace, symbols);
    if !symbols.is_empty() {
        let symbols = codec::encode_to_vec(&symbols);
        writer.chunk(blank_head(chunk_kind::SYMBOLS), &symbols, Vec::new())?;
    }
    let calls = write_calls(trace, &mut writer, reduction, whole)?;
    let mut summary = write_blobs(trace, &mut writer, &calls.named)?;
    summary.payloads = calls.replaced.payloads;
    summary.payload_bytes = calls.replaced.bytes;

    for (sequence, part) in (0..).zip(calls.counts.chunks(ENTRIES_PER_INDEX)) {
        let head = ChunkHead {
            sequence,
            ..blank_head(chunk_kind::CALL_COUNTS)
        };
        writer.chunk(head, &codec::encode_to_vec(part), Vec::new())?;
    }
    let index_position = writer.position;
    let entries = std::mem::take(&mut writer.index);
    for (sequence, part) in (0..).zip(entries.chunks(ENTRIES_PER_INDEX)) {
        let head = ChunkHead {
            sequence,
            ..blank_head(chunk_kind::INDEX)
        };
        writer.chunk(head, &codec::encode_to_vec(part), Vec::new())?;
    }
    summary.after = writer.position;
    writer.finish()?;
    let source = trace.head();
    let minor = source.minor.max(MINOR);
    let head = FileHead {
        major: MAJOR,
        minor,
        head_length: FILE_HEAD_LENGTH as u32,
        flags: source.flags | FILE_PACKED,
        index: index_position,
        ..*source
    };
    // Last, so that a half-written file is no trace.
    let mut file = file;
    file.seek(SeekFrom::Start(0))?;
    file.write_all(&head.encode())?;
    Ok(summary)
}

/// What is to be said of the chunks of calls that were written.
#[derive(Default)]
struct WrittenCalls {
    named: Named,
    counts: Vec<CallsEntry>,
    replaced: Replaced,
}

/// Writes the signature table, the calls, and chunks of later versions, in the order of the file.
fn write_calls(
    trace: &Trace,
    writer: &mut Writer<'_>,
    reduction: Option<&Reduction<'_>>,
    whole: bool,
) -> io::Result<WrittenCalls> {
    let mut written = WrittenCalls::default();
    // The rest is written anew, or elsewhere.
    let chunks = trace.chunks_by_sequence().filter(|&chunk| {
        !matches!(
            trace.chunk_head(chunk).kind,
            chunk_kind::META
                | chunk_kind::MAPS
                | chunk_kind::SYMBOLS
                | chunk_kind::BLOB
                | chunk_kind::CALL_COUNTS
                | chunk_kind::INDEX
                | chunk_kind::CONTROL
        )
    });
    for_each_ordered(
        chunks,
        |chunk| {
            let mut body = trace.load(chunk)?;
            let calls = trace.chunk_head(chunk).kind == chunk_kind::CALLS;
            let mut replaced = Replaced::default();
            if let Some(reduction) = reduction.filter(|_| calls) {
                let reduced = reduction.body(chunk, &body)?;
                (body, replaced) = (Cow::Owned(reduced.0), reduced.1);
            }
            let mut contents = calls.then(|| Contents::of(trace, &body));
            if let Some(contents) = &mut contents {
                // What a record that cannot be read may name is not kept where payloads are not.
                contents.named.unknown &= reduction.is_none();
            }
            let body = match (&contents, body) {
                (Some(contents), Cow::Borrowed(bytes)) => {
                    Cow::Borrowed(bytes.get(..contents.end).unwrap_or(bytes))
                }
                (Some(contents), Cow::Owned(mut bytes)) => {
                    bytes.truncate(contents.end);
                    Cow::Owned(bytes)
                }
                // Not known to this version: such a body is kept as it is.
                (None, body) => body,
            };
            Ok((chunk, contents, replaced, Stored::of(body)))
        },
        |outcome: Result<_, Damage>| {
            let (chunk, contents, replaced, stored) = match outcome {
                Ok(result) => result,
                Err(damage) if whole => return Err(unreadable(trace, &damage)),
                // A repair tells it.
                Err(_) => return Ok(()),
            };
            if let Some(contents) = contents {
                let entry = CallsEntry::of(writer.position, &contents);
                written.counts.push(entry);
                written.named.append(contents.named);
            }
            written.replaced.payloads += replaced.payloads;
            written.replaced.bytes += replaced.bytes;
            writer.stored(*trace.chunk_head(chunk), &stored, Vec::new())?;
            Ok(())
        },
    )?;
    Ok(written)
}

fn unreadable(trace: &Trace, damage: &Damage) -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        format!(
            "{}: damaged at byte {}: {}",
            trace.path().display(),
            damage.position,
            damage.what
        ),
    )
}

/// Names that stand for one chunk of the source, and how much of it they need.
#[derive(Default)]
struct Wanted {
    names: Vec<u64>,
    length: u64,
}

/// The blobs of the trace that are named, in the order of the file.
fn wanted_blobs(trace: &Trace, named: &Named) -> BTreeMap<usize, Wanted> {
    let mut wanted: BTreeMap<usize, Wanted> = BTreeMap::new();
    let mut want = |name: u64, length: u64| {
        if let Some(chunk) = trace.blob_chunk(name) {
            let entry = wanted.entry(chunk).or_default();
            entry.names.push(name);
            entry.length = entry.length.max(length);
        }
    };
    for blob in &named.blobs {
        want(blob.position, blob.length);
    }
    if named.unknown {
        for (name, length) in trace.blobs() {
            want(name, length);
        }
    }
    // Brought in by an earlier `pack`.
    for range in named.ranges() {
        want(range.blob().position, range.length);
    }
    for entry in wanted.values_mut() {
        entry.names.sort_unstable();
        entry.names.dedup();
    }
    wanted
}

/// Where the bytes of a blob are before it is packed.
enum Source<'a> {
    Chunk(usize, u64),
    File(FileRange<'a>),
}

/// A blob that is to be written.
struct Content<'a> {
    head: ChunkHead,
    source: Source<'a>,
    names: Vec<u64>,
}

impl Content<'_> {
    /// The error is of a part of a file, and says why it is not to be had.
    fn bytes<'t>(&self, trace: &'t Trace) -> Result<Cow<'t, [u8]>, Option<String>> {
        match &self.source {
            // Only a repair comes here with such a trace; the records then name a blob that is missing.
            Source::Chunk(chunk, length) => trace.blob_content(*chunk, *length).map_err(|_| None),
            Source::File(range) => range.read().map(Cow::Owned).map_err(Some),
        }
    }

    /// Large ones do not stay in memory until all is packed.
    fn let_go(&self, trace: &Trace) {
        if let Source::Chunk(chunk, LARGE..) = self.source {
            trace.let_go(chunk);
        }
    }
}

/// Bytes from which on it is worth a call to the system to have them out of memory.
const LARGE: u64 = 1 << 20;

/// Writes each distinct content once, in the order of the file, then what comes from other files.
fn write_blobs(trace: &Trace, writer: &mut Writer<'_>, named: &Named) -> io::Result<PackSummary> {
    let mut summary = PackSummary::default();
    let own = wanted_blobs(trace, named)
        .into_iter()
        .map(|(chunk, wanted)| Content {
            head: ChunkHead {
                first: wanted.names.first().copied().unwrap_or(0),
                ..*trace.chunk_head(chunk)
            },
            source: Source::Chunk(chunk, wanted.length),
            names: wanted.names,
        });
    // By name, so that equal content is named alike however often a trace is packed.
    let mut outside = ranges_outside(trace, named);
    outside.sort_by_key(|range| range.blob().position);
    let outside = outside.into_iter().map(|range| {
        let first = range.blob().position;
        Content {
            head: ChunkHead {
                first,
                ..blank_head(chunk_kind::BLOB)
            },
            source: Source::File(range),
            names: vec![first],
        }
    });
    // Contents by their hash; those that come again only add names.
    let mut places: HashMap<blake3::Hash, usize> = HashMap::new();
    let mut contents: Vec<Content<'_>> = Vec::new();
    let all: Vec<Content<'_>> = own.chain(outside).collect();
    for_each_ordered(
        all.into_iter(),
        |content| {
            let hash = content.bytes(trace).map(|bytes| blake3::hash(&bytes));
            content.let_go(trace);
            (content, hash)
        },
        |(mut content, hash)| -> io::Result<()> {
            let is_file = matches!(content.source, Source::File(_));
            let hash = match hash {
                Ok(hash) => hash,
                Err(why) => {
                    if let (Source::File(range), Some(why)) = (&content.source, why) {
                        summary.missing.push(MissingFileRange::new(range, why));
                    }
                    return Ok(());
                }
            };
            summary.files += u64::from(is_file);
            let known = places.get(&hash).and_then(|&place| contents.get_mut(place));
            let repeated = content.names.len() as u64 - u64::from(known.is_none());
            summary.duplicate_blobs += if is_file { 0 } else { repeated };
            match known {
                Some(known) => known.names.append(&mut content.names),
                None => {
                    places.insert(hash, contents.len());
                    contents.push(content);
                }
            }
            Ok(())
        },
    )?;
    for_each_ordered(
        contents.into_iter(),
        |content| {
            let stored = content.bytes(trace).map(Stored::of);
            (content, stored)
        },
        |(content, stored)| {
            match (stored, &content.source) {
                (Ok(stored), _) => {
                    let names = content.names.clone();
                    writer.stored(content.head, &stored, names)?;
                    drop(stored);
                    content.let_go(trace);
                }
                // It was there a moment ago.
                (Err(why), Source::File(range)) => {
                    summary.files -= 1;
                    let why = why.unwrap_or_default();
                    summary.missing.push(MissingFileRange::new(range, why));
                }
                (Err(_), Source::Chunk(..)) => {}
            }
            io::Result::Ok(())
        },
    )?;
    Ok(summary)
}

/// What the trace says, then what is added; an entry that would say the same again is not repeated.
fn whole_meta(trace: &Trace, added: &[(String, String)]) -> Vec<(String, String)> {
    let mut meta = trace.meta().to_vec();
    let rate = trace.ticks_per_second();
    let rate = (rate != 0).then(|| ("clock.ticks-per-second".to_owned(), rate.to_string()));
    for entry in rate.iter().chain(added) {
        let last = meta.iter().rev().find(|there| there.0 == entry.0);
        if last.is_none_or(|last| last.1 != entry.1) {
            meta.push(entry.clone());
        }
    }
    meta
}

/// The symbols that the trace has, overridden by those given; by address.
fn whole_symbols(trace: &Trace, added: &[Symbol]) -> Vec<Symbol> {
    let mut symbols: BTreeMap<u64, &str> = trace.symbols().collect();
    symbols.extend(
        added
            .iter()
            .map(|symbol| (symbol.address, symbol.text.as_str())),
    );
    symbols
        .into_iter()
        .map(|(address, text)| Symbol {
            address,
            text: text.to_owned(),
        })
        .collect()
}
