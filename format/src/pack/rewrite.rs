//! Writing a trace as one packed file.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File};
use std::io::{self, Seek, SeekFrom, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::atomic::AtomicU64;

use crate::codec::{self, Encode};
use crate::layout::{
    CallCount, ChunkHead, FILE_HEAD_LENGTH, FILE_PACKED, FileHead, MAJOR, MINOR, Symbol, chunk_kind,
};
use crate::pack::blobs::write_blobs;
use crate::pack::file::{StoredBody, TemporaryFile, Writer, already_exists};
use crate::pack::memory::{AddedMemory, EncodedMemory};
use crate::pack::redact::{Redaction, Redactor, Secret};
use crate::pack::reduce::{self, Reduction, Replaced};
use crate::pack::selection::{CallSelection, Selection};
use crate::pack::summary::PackSummary;
use crate::parallel::for_each_ordered;
use crate::payload_policy::{PayloadPolicies, PayloadPolicy};
use crate::read::contents::{Contents, References};
use crate::read::error::Damage;
use crate::read::incomplete;
use crate::read::left_out::LeftOut;
use crate::read::trace::Trace;

/// So that an index chunk stays far below what can be decoded at once.
const ENTRIES_PER_CHUNK: usize = 200_000;

/// Writes `trace` to `target`, adding `meta` entries and `symbols`.
///
/// `target` must not exist, unless it is the trace's own file, which is then replaced in one step.
/// The file is readable for its owner only. Blobs that no record names are left out. Bytes that the
/// trace refers to by a file are copied from it, but for payloads, unless `policies` say so; the
/// summary lists those that are unavailable.
/// Payloads are kept by the recorder's policies.
///
/// # Errors
/// `AlreadyExists`; `InvalidData` if the trace is damaged (see [`crate::repair`]); errors of
/// writing. Nothing is left behind then, and an existing file is unchanged.
pub fn pack(
    trace: &Trace,
    target: &Path,
    meta: &[(String, String)],
    symbols: &[Symbol],
) -> io::Result<PackSummary> {
    pack_with_policies(trace, target, meta, symbols, PayloadPolicies::default())
}

/// As [`pack_with_policies`]; keeps the number of bytes written so far in `written`.
///
/// # Errors
/// As [`pack_with_policies`].
pub fn pack_counting(
    trace: &Trace,
    target: &Path,
    meta: &[(String, String)],
    symbols: &[Symbol],
    policies: PayloadPolicies,
    written: &AtomicU64,
) -> io::Result<PackSummary> {
    expect_undamaged(trace)?;
    let changes = Changes {
        symbols,
        policies,
        written: Some(written),
        ..Changes::new(meta)
    };
    rewrite(trace, target, &changes)
}

/// As [`pack`], keeping no more of the payloads than `policies` allow. What the trace has already
/// lost does not come back. The meta entries `payloads` and `outputs` name what is left.
///
/// # Errors
/// As [`pack`], and `InvalidData` if payloads are to be left out of a trace of a later minor
/// version, which may have them where this one does not look.
pub fn pack_with_policies(
    trace: &Trace,
    target: &Path,
    meta: &[(String, String)],
    symbols: &[Symbol],
    policies: PayloadPolicies,
) -> io::Result<PackSummary> {
    let written = AtomicU64::new(0);
    pack_counting(trace, target, meta, symbols, policies, &written)
}

/// Writes some calls of `trace` to `target`, with what they refer to, adding `meta` entries and
/// contents of memory.
///
/// The records of these calls stay as they are; notes about other calls' digests are left out.
/// Otherwise as [`pack_with_policies`].
///
/// # Errors
/// As [`pack_with_policies`].
pub fn pack_calls(
    trace: &Trace,
    target: &Path,
    meta: &[(String, String)],
    wanted: &CallSelection<'_>,
    memory: Option<&AddedMemory<'_>>,
) -> io::Result<PackSummary> {
    expect_undamaged(trace)?;
    let encoded = memory.map(EncodedMemory::new).transpose()?;
    let notes = memory.zip(encoded.as_ref());
    let notes = notes.map(|(memory, encoded)| (memory.call, &*encoded.notes));
    let selection =
        Selection::new(trace, wanted, notes).map_err(|error| invalid_data(error.to_string()))?;
    let changes = Changes {
        selection: Some(&selection),
        memory: encoded.as_ref(),
        ..Changes::new(meta)
    };
    let summary = rewrite(trace, target, &changes)?;
    let calls = selection.count();
    Ok(PackSummary { calls, ..summary })
}

/// As [`pack_counting`], without what `redaction` removes. The meta entry [`REDACTED`] names that.
///
/// # Errors
/// As [`pack_with_policies`]; any later minor version is refused.
///
/// [`REDACTED`]: crate::REDACTED
pub fn pack_redacted(
    trace: &Trace,
    target: &Path,
    meta: &[(String, String)],
    symbols: &[Symbol],
    redaction: &Redaction<'_>,
    written: &AtomicU64,
) -> io::Result<PackSummary> {
    expect_undamaged(trace)?;
    let policies = match redaction.secrets.has(Secret::Payloads) {
        true => PayloadPolicies {
            payloads: PayloadPolicy::None,
            outputs: PayloadPolicy::None,
            ..redaction.policies
        },
        false => redaction.policies,
    };
    let changes = Changes {
        symbols,
        policies,
        redaction: Some(redaction),
        written: Some(written),
        ..Changes::new(meta)
    };
    rewrite(trace, target, &changes)
}

fn expect_undamaged(trace: &Trace) -> io::Result<()> {
    match trace.damage().first() {
        Some(first) => Err(damaged(trace, first, "; `repair` keeps the readable part")),
        None => Ok(()),
    }
}

/// How a trace is changed when it is written anew.
#[derive(Clone, Copy)]
pub(super) struct Changes<'a> {
    meta: &'a [(String, String)],
    symbols: &'a [Symbol],
    policies: PayloadPolicies,
    selection: Option<&'a Selection>,
    memory: Option<&'a EncodedMemory<'a>>,
    redaction: Option<&'a Redaction<'a>>,
    /// Bytes written so far.
    written: Option<&'a AtomicU64>,
    /// Damage is an error; otherwise what cannot be read is left out.
    is_whole: bool,
}

impl<'a> Changes<'a> {
    /// Entries are added to the table of facts.
    pub(super) fn new(meta: &'a [(String, String)]) -> Self {
        Self {
            meta,
            symbols: &[],
            policies: PayloadPolicies::default(),
            selection: None,
            memory: None,
            redaction: None,
            written: None,
            is_whole: true,
        }
    }

    /// What cannot be read is left out.
    pub(super) fn without_damage(self) -> Self {
        Self {
            is_whole: false,
            ..self
        }
    }
}

/// Writes the trace with these changes.
pub(super) fn rewrite(
    trace: &Trace,
    target: &Path,
    changes: &Changes<'_>,
) -> io::Result<PackSummary> {
    let policies = reduce::effective(trace, changes.policies);
    let calls = changes.selection.map(|selection| &selection.changes);
    let redactor = changes
        .redaction
        .map(|redaction| Redactor::new(trace, redaction));
    let redactor = redactor
        .transpose()
        .map_err(|error| invalid_data(error.to_string()))?;
    let reduction = Reduction::new(trace, policies, calls, redactor, changes.is_whole)
        .map_err(|why| invalid_data(format!("{}: {why}", trace.path().display())))?;
    // A selection has all the calls that it is of.
    let shortfall = trace.shortfall().filter(|_| changes.selection.is_none());
    let shortfall = shortfall.map(|shortfall| shortfall.meta());
    let left_out = trace.left_out().map(LeftOut::meta);
    let meta = [
        changes.meta,
        &reduce::meta(trace, policies),
        shortfall.as_ref().map_or(&[], |meta| &meta[..]),
        left_out.as_ref().map_or(&[], |meta| &meta[..]),
    ]
    .concat();
    let source = trace.source.metadata()?;
    let is_in_place = match fs::metadata(target) {
        Ok(there) if (there.dev(), there.ino()) == (source.dev(), source.ino()) => true,
        Ok(_) => return Err(already_exists(target)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => false,
        Err(error) => return Err(error),
    };
    // A symbolic link stays; the file that it names is replaced.
    let target = if is_in_place {
        fs::canonicalize(target)?
    } else {
        target.to_owned()
    };
    let temporary = TemporaryFile::beside(&target)?;
    let file = &temporary.file;
    let changes = Changes {
        meta: &meta,
        ..*changes
    };
    let summary = write_packed(trace, file, &changes, reduction.as_ref())?;
    if is_in_place {
        temporary.file.sync_data()?;
        temporary.replace(&target)?;
    } else {
        temporary.publish(&target)?;
    }
    Ok(PackSummary {
        before: source.len(),
        ..summary
    })
}

pub(super) fn invalid_data(what: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

fn damaged(trace: &Trace, damage: &Damage, advice: &str) -> io::Error {
    let path = trace.path().display();
    let Damage { position, what } = damage;
    invalid_data(format!(
        "{path}: damaged at byte {position}: {what}{advice}"
    ))
}

fn write_packed(
    trace: &Trace,
    file: &File,
    changes: &Changes<'_>,
    reduction: Option<&Reduction<'_>>,
) -> io::Result<PackSummary> {
    let mut writer = Writer::behind_head(file)?.counting(changes.written);
    let mut meta = merged_meta(trace, changes);
    let mut mappings = match changes.selection {
        Some(selection) => selection.mappings(trace.mappings()),
        None => trace.mappings().to_vec(),
    };
    let mut symbols = merged_symbols(trace, changes.symbols);
    let mut stacks = trace.stack_records();
    let mut markers = trace.marker_records();
    let mut sources = trace.sources_by_address();
    if let Some(selection) = changes.selection {
        stacks = selection.stack_records(&stacks);
        symbols.retain(|symbol| selection.has_address(symbol.address));
        sources.retain(|source| selection.has_address(source.address));
    }
    if let Some(redactor) = reduction.and_then(Reduction::redactor) {
        meta = redactor.meta(meta);
        mappings = redactor.mappings(mappings);
        symbols = redactor.symbols(symbols);
        stacks = redactor.notes(&stacks);
        markers = redactor.notes(&markers);
        sources = redactor.sources(sources);
    }
    write_table(&mut writer, chunk_kind::META, meta)?;
    if !mappings.is_empty() {
        write_table(&mut writer, chunk_kind::MAPS, mappings)?;
    }
    if !symbols.is_empty() {
        write_table(&mut writer, chunk_kind::SYMBOLS, symbols)?;
    }
    if !stacks.is_empty() {
        let body = StoredBody::new(Cow::Owned(stacks));
        writer.write(ChunkHead::new(chunk_kind::STACKS), &body, Vec::new())?;
    }
    if !markers.is_empty() {
        let body = StoredBody::new(Cow::Owned(markers));
        writer.write(ChunkHead::new(chunk_kind::MARKERS), &body, Vec::new())?;
    }
    if !sources.is_empty() {
        write_table(&mut writer, chunk_kind::SOURCES, sources)?;
    }
    let calls = write_calls(trace, &mut writer, changes, reduction)?;
    let new = reduction.map(Reduction::take_blobs).unwrap_or_default();
    let embeds_files = changes.policies.embeds_files;
    let mut summary = write_blobs(
        trace,
        &mut writer,
        &calls.references,
        changes.memory,
        &new,
        embeds_files,
    )?;
    summary.payloads = calls.replaced.payloads;
    summary.payload_bytes = calls.replaced.bytes;
    write_list(&mut writer, chunk_kind::CALL_COUNTS, &calls.counts)?;
    let index = writer.position;
    let entries = std::mem::take(&mut writer.index);
    write_list(&mut writer, chunk_kind::INDEX, &entries)?;
    summary.after = writer.position;
    writer.finish()?;
    let source = trace.head();
    let head = FileHead {
        major: MAJOR,
        minor: source.minor.max(MINOR),
        head_length: FILE_HEAD_LENGTH as u32,
        flags: source.flags | FILE_PACKED,
        index,
        ..*source
    };
    // Last, so that a file that is only half written is no trace.
    let mut file = file;
    file.seek(SeekFrom::Start(0))?;
    file.write_all(&head.encode())?;
    Ok(summary)
}

fn write_table(writer: &mut Writer<'_>, kind: u16, table: impl Encode) -> io::Result<()> {
    let body = StoredBody::new(Cow::Owned(codec::encode_to_vec(table)));
    writer.write(ChunkHead::new(kind), &body, Vec::new())
}

/// Writes a list as several chunks if it is long.
fn write_list(writer: &mut Writer<'_>, kind: u16, list: &[impl Encode]) -> io::Result<()> {
    for (sequence, part) in (0..).zip(list.chunks(ENTRIES_PER_CHUNK)) {
        let body = StoredBody::new(Cow::Owned(codec::encode_to_vec(part)));
        let head = ChunkHead {
            sequence,
            ..ChunkHead::new(kind)
        };
        writer.write(head, &body, Vec::new())?;
    }
    Ok(())
}

/// What the chunks of calls that were written hold.
#[derive(Default)]
struct WrittenCalls {
    references: References,
    counts: Vec<CallCount>,
    replaced: Replaced,
}

/// Writes the signature table, the calls, and chunks of later versions, in the order of the file.
fn write_calls(
    trace: &Trace,
    writer: &mut Writer<'_>,
    changes: &Changes<'_>,
    reduction: Option<&Reduction<'_>>,
) -> io::Result<WrittenCalls> {
    let Changes {
        selection,
        is_whole,
        ..
    } = *changes;
    let mut written = WrittenCalls::default();
    // By thread: how many chunks of calls were written.
    let mut sequences: HashMap<u32, u32> = HashMap::new();
    for_each_ordered(
        kept_chunks(trace),
        |chunk| {
            let mut body = trace.load(chunk)?;
            // A chunk of a later version is kept as it is.
            if trace.chunk(chunk).head.kind != chunk_kind::CALLS {
                // Without the erased ones, calls would seem to be lost.
                let kind = trace.chunk(chunk).head.kind;
                let is_known = matches!(kind, chunk_kind::SIGNATURES | chunk_kind::ERASED);
                if !is_known && changes.redaction.is_some() {
                    return Ok(None);
                }
                if let Some(selection) = selection {
                    body = selection.table(kind, body);
                }
                return Ok(Some((chunk, StoredBody::new(body), None)));
            }
            let mut replaced = Replaced::default();
            if let Some(reduction) = reduction {
                let reduced;
                (reduced, replaced) = reduction.body(chunk, &body)?;
                body = Cow::Owned(reduced);
            }
            if let Some(selection) = selection {
                body = Cow::Owned(selection.calls(&trace.chunk(chunk).head, &body));
                if body.is_empty() {
                    return Ok(None);
                }
            }
            let mut contents = Contents::of(trace, &body);
            // A blob that an unknown record may name is not kept where payloads are not.
            contents.references.has_unknown &= reduction.is_none();
            match &mut body {
                Cow::Borrowed(bytes) => *bytes = bytes.get(..contents.end).unwrap_or(bytes),
                Cow::Owned(bytes) => bytes.truncate(contents.end),
            }
            Ok(Some((
                chunk,
                StoredBody::new(body),
                Some((contents, replaced)),
            )))
        },
        |outcome: Result<_, Damage>| {
            let (chunk, body, calls) = match outcome {
                Ok(Some(outcome)) => outcome,
                Ok(None) => return Ok(()),
                Err(damage) if is_whole => return Err(damaged(trace, &damage, "")),
                // A repair reports it.
                Err(_) => return Ok(()),
            };
            let mut head = trace.chunk(chunk).head;
            if let Some((contents, replaced)) = calls {
                if let Some(selection) = selection {
                    let sequence = sequences.entry(head.thread).or_default();
                    head.first = selection.kept_before(head.thread, head.first);
                    head.sequence = *sequence;
                    *sequence += 1;
                }
                written.counts.push(contents.count(writer.position));
                written.references.append(contents.references);
                written.replaced.payloads += replaced.payloads;
                written.replaced.bytes += replaced.bytes;
            }
            writer.write(head, &body, Vec::new())
        },
    )?;
    Ok(written)
}

/// The chunks that are not written anew, in the order of the file, except that the chunks of a
/// thread are in their own order: full thread buffers are not always copied in that order.
fn kept_chunks(trace: &Trace) -> impl Iterator<Item = usize> {
    let mut threads: Vec<_> = trace.threads.iter().map(|chunks| chunks.iter()).collect();
    let chunks = trace.chunks.iter().zip(0..);
    chunks.filter_map(move |(chunk, number)| match chunk.head.kind {
        chunk_kind::CALLS => threads.get_mut(chunk.head.thread as usize)?.next().copied(),
        chunk_kind::META
        | chunk_kind::MAPS
        | chunk_kind::SYMBOLS
        | chunk_kind::STACKS
        | chunk_kind::MARKERS
        | chunk_kind::SOURCES
        | chunk_kind::BLOB
        | chunk_kind::CALL_COUNTS
        | chunk_kind::INDEX
        | chunk_kind::CONTROL => None,
        _ => Some(number),
    })
}

/// The entries of the trace, then those added; an added entry that changes nothing is left out.
/// Of a trace cut several times only the last source is named.
fn merged_meta(trace: &Trace, changes: &Changes<'_>) -> Vec<(String, String)> {
    let added = changes.meta;
    let mut meta = trace.meta().to_vec();
    if changes.selection.is_some() {
        meta.retain(|there| {
            let of_source = there.0.starts_with("cut.") || incomplete::is_meta(&there.0);
            !of_source && added.iter().all(|entry| entry.0 != there.0)
        });
    }
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

/// The symbols of the trace, overridden by those given; by address.
fn merged_symbols(trace: &Trace, added: &[Symbol]) -> Vec<Symbol> {
    let mut symbols: BTreeMap<u64, &str> = trace.symbols().collect();
    symbols.extend(added.iter().map(|added| (added.address, &*added.text)));
    let symbols = symbols.into_iter().map(|(address, text)| Symbol {
        address,
        text: text.to_owned(),
    });
    symbols.collect()
}
