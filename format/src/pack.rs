//! Rewriting a trace as one complete, compressed file with the same content.

use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Seek, SeekFrom, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::codec::{self, Decode, Encode};
use crate::compress::compress;
use crate::file_range::FileRange;
use crate::layout::{
    CHUNK_CLOSED, CHUNK_COMPRESSED, CHUNK_HEAD_LENGTH, CHUNK_MAGIC, ChunkHead, FILE_HEAD_LENGTH,
    FILE_PACKED, FileHead, MAJOR, MINOR, chunk_kind,
};
use crate::records::{Named, records_end};
use crate::trace::Trace;

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
    pub missing: Vec<Missing>,
}

/// Bytes that the trace names by a file, and that are no longer there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Missing {
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
/// the summary says which could not be.
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
    rewrite(trace, target, meta, symbols)
}

/// As [`pack`], but of whatever the trace still has.
pub(crate) fn rewrite(
    trace: &Trace,
    target: &Path,
    meta: &[(String, String)],
    symbols: &[Symbol],
) -> io::Result<PackSummary> {
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
    let summary = write_packed(trace, &temporary.file, meta, symbols)?;
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
    pub fn missing(&self) -> Vec<Missing> {
        let mut named = Named::default();
        for (head, _, body) in self.raw_chunks() {
            if head.kind == chunk_kind::CALLS {
                named.add(body, self.signatures());
            }
        }
        let ranges = ranges_outside(self, &named).into_iter();
        ranges
            .filter_map(|range| Some(Missing::new(&range, range.read().err()?)))
            .collect()
    }
}

impl Missing {
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
fn ranges_outside<'a>(trace: &Trace, named: &Named<'a>) -> Vec<FileRange<'a>> {
    let mut ranges: Vec<_> = named
        .ranges
        .iter()
        .filter(|range| trace.blob_chunk(range.blob().position).is_none())
        .copied()
        .collect();
    ranges.sort_by_key(|range| (range.path, range.offset, range.length));
    ranges
}

fn exists(target: &Path) -> io::Error {
    io::Error::new(
        io::ErrorKind::AlreadyExists,
        format!(
            "{}: exists already; choose another name or remove it",
            target.display()
        ),
    )
}

/// A file being written under another name; removed unless it gets its own.
struct Temporary {
    path: PathBuf,
    file: File,
}

impl Temporary {
    fn beside(target: &Path) -> io::Result<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = target.file_name().ok_or_else(|| {
            io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("{}: not a file name", target.display()),
            )
        })?;
        loop {
            let mut hidden = std::ffi::OsString::from(".");
            hidden.push(name);
            let number = NEXT.fetch_add(1, Ordering::Relaxed);
            hidden.push(format!(".{}-{number}.part", std::process::id()));
            let path = target.with_file_name(hidden);
            match OpenOptions::new()
                .write(true)
                .create_new(true)
                .mode(0o600)
                .open(&path)
            {
                Ok(file) => return Ok(Self { path, file }),
                // Left by an earlier process of the same number.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn replace(self, target: &Path) -> io::Result<()> {
        // Dropping `self` afterwards finds nothing to remove.
        fs::rename(&self.path, target)
    }

    fn appear_as(self, target: &Path) -> io::Result<()> {
        // Unlike a rename, a link never replaces what somebody else has created meanwhile.
        match fs::hard_link(&self.path, target) {
            Ok(()) => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Err(exists(target)),
            // A file system without hard links.
            Err(_) if fs::symlink_metadata(target).is_err() => fs::rename(&self.path, target),
            Err(_) => Err(exists(target)),
        }
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        // Gone already if it was renamed.
        let _ = fs::remove_file(&self.path);
    }
}

/// Writes chunks one behind the other and keeps their index.
struct Writer<'f> {
    file: BufWriter<&'f File>,
    position: u64,
    index: Vec<IndexEntry>,
}

impl Writer<'_> {
    /// Writes a chunk with the identity of `head` and that body; returns its place in the index.
    fn chunk(&mut self, head: ChunkHead, body: &[u8], names: Vec<u64>) -> io::Result<usize> {
        self.stored(head, body, compress(body), names)
    }

    fn stored(
        &mut self,
        head: ChunkHead,
        body: &[u8],
        compressed: Option<Vec<u8>>,
        names: Vec<u64>,
    ) -> io::Result<usize> {
        let flags = CHUNK_CLOSED
            | if compressed.is_some() {
                CHUNK_COMPRESSED
            } else {
                0
            };
        let stored = compressed.as_deref().unwrap_or(body);
        let used = stored.len() as u64;
        let length = (CHUNK_HEAD_LENGTH as u64 + used).next_multiple_of(8);
        let body_checksum = crc32fast::hash(stored);
        let head = ChunkHead {
            magic: CHUNK_MAGIC,
            flags,
            length,
            used,
            body_checksum,
            ..head
        };
        self.file.write_all(&head.encode())?;
        self.file.write_all(stored)?;
        let padding = usize::try_from(length - CHUNK_HEAD_LENGTH as u64 - used).unwrap_or(0);
        self.file.write_all([0; 8].get(..padding).unwrap_or(&[]))?;
        let ChunkHead {
            kind,
            thread,
            sequence,
            first,
            ticks,
            ..
        } = head;
        let position = self.position;
        self.index.push(IndexEntry {
            position,
            kind,
            thread,
            sequence,
            first,
            ticks,
            names,
        });
        self.position += length;
        Ok(self.index.len() - 1)
    }
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
) -> io::Result<PackSummary> {
    let mut writer = Writer {
        file: BufWriter::with_capacity(1 << 18, file),
        position: 0,
        index: Vec::new(),
    };
    writer.file.write_all(&[0; FILE_HEAD_LENGTH])?;
    writer.position = FILE_HEAD_LENGTH as u64;

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
    let mut named = Named::default();
    for (head, _, body) in trace.raw_chunks() {
        match head.kind {
            chunk_kind::SIGNATURES => {
                writer.chunk(head, body, Vec::new())?;
            }
            chunk_kind::CALLS => {
                let body = body.get(..records_end(body)).unwrap_or(body);
                named.add(body, trace.signatures());
                writer.chunk(head, body, Vec::new())?;
            }
            // Written anew, or not known to this version: such a body is kept as it is.
            chunk_kind::META
            | chunk_kind::MAPS
            | chunk_kind::SYMBOLS
            | chunk_kind::BLOB
            | chunk_kind::INDEX => {}
            _ => {
                writer.chunk(head, body, Vec::new())?;
            }
        }
    }
    let mut summary = write_blobs(trace, &mut writer, &named)?;

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
    writer.file.flush()?;
    drop(writer);
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

/// Writes each distinct content once, in the order of the file, then what comes from other files.
fn write_blobs(
    trace: &Trace,
    writer: &mut Writer<'_>,
    named: &Named<'_>,
) -> io::Result<PackSummary> {
    /// Names that stand for one chunk of the source, and how much of it they need.
    #[derive(Default)]
    struct Wanted {
        names: Vec<u64>,
        length: u64,
    }
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
    for range in &named.ranges {
        want(range.blob().position, range.length);
    }
    let mut places: HashMap<blake3::Hash, usize> = HashMap::new();
    let mut summary = PackSummary::default();
    let duplicates = &mut summary.duplicate_blobs;
    for (chunk, mut entry) in wanted {
        entry.names.sort_unstable();
        entry.names.dedup();
        let content = match trace.blob_content(chunk, entry.length) {
            Ok(content) => content,
            // Only a repair comes here with such a trace; the records then name a blob that is missing.
            Err(_) => continue,
        };
        match places.entry(blake3::hash(&content)) {
            std::collections::hash_map::Entry::Occupied(place) => {
                *duplicates += entry.names.len() as u64;
                if let Some(there) = writer.index.get_mut(*place.get()) {
                    there.names.append(&mut entry.names);
                }
            }
            std::collections::hash_map::Entry::Vacant(place) => {
                *duplicates += entry.names.len() as u64 - 1;
                let first = entry.names.first().copied().unwrap_or(0);
                let head = ChunkHead {
                    first,
                    ..*trace.chunk_head(chunk)
                };
                place.insert(writer.chunk(head, &content, entry.names)?);
            }
        }
    }
    // By name, so that equal content is named alike however often a trace is packed.
    let mut outside = ranges_outside(trace, named);
    outside.sort_by_key(|range| range.blob().position);
    for range in outside {
        let content = match range.read() {
            Ok(content) => content,
            Err(why) => {
                summary.missing.push(Missing::new(&range, why));
                continue;
            }
        };
        summary.files += 1;
        let name = range.blob().position;
        match places.entry(blake3::hash(&content)) {
            std::collections::hash_map::Entry::Occupied(place) => {
                if let Some(there) = writer.index.get_mut(*place.get()) {
                    there.names.push(name);
                }
            }
            std::collections::hash_map::Entry::Vacant(place) => {
                let head = ChunkHead {
                    first: name,
                    ..blank_head(chunk_kind::BLOB)
                };
                place.insert(writer.chunk(head, &content, vec![name])?);
            }
        }
    }
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
