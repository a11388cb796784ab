//! The blobs of a packed trace: each distinct content once, and parts of files copied into it.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::io;

use crate::file_range::FileRange;
use crate::layout::{ChunkHead, chunk_kind};
use crate::pack::change::NewBytes;
use crate::pack::file::{StoredBody, Writer};
use crate::pack::memory::{EncodedMemory, ReadPiece};
use crate::pack::reduce::NewBlobs;
use crate::pack::summary::PackSummary;
use crate::pack::synthetic::Synthetic;
use crate::parallel::for_each_ordered;
use crate::read::contents::References;
use crate::read::trace::Trace;
use crate::read::verify::MissingFileRange;

/// Longer blobs are released from memory once they are read; for others the system call costs more
/// than it brings (assumed).
const LARGE: u64 = 1 << 20;

/// Where the bytes of a blob are before it is packed.
enum Origin<'a> {
    /// A chunk, and how much of it the records refer to.
    Chunk(usize, u64),
    File(FileRange<'a>),
    /// A piece of added memory.
    Memory(&'a ReadPiece<'a>, usize),
    /// Bytes that a changed call got.
    Changed(&'a [u8]),
    Synthetic(&'a Synthetic),
}

/// Why a blob could not be read.
enum Unread {
    Damaged,
    File(String),
    Memory(io::Error),
}

/// A blob that is to be written.
struct Blob<'a> {
    head: ChunkHead,
    origin: Origin<'a>,
    names: Vec<u64>,
}

impl Blob<'_> {
    /// Reads it and hands the bytes to `make`.
    fn read<'t, R>(
        &self,
        trace: &'t Trace,
        make: impl FnOnce(Cow<'t, [u8]>) -> R,
    ) -> Result<R, Unread> {
        match &self.origin {
            // Only a repair reads damaged blobs; the records then refer to a missing one.
            Origin::Chunk(chunk, length) => {
                let content = trace.blob_content(*chunk, *length);
                content.map_err(|_| Unread::Damaged)
            }
            Origin::File(range) => range.read().map(Cow::Owned).map_err(Unread::File),
            Origin::Memory(read, piece) => read(*piece).map(Cow::Owned).map_err(Unread::Memory),
            Origin::Changed(bytes) => Ok(Cow::Owned(bytes.to_vec())),
            Origin::Synthetic(synthetic) => {
                synthetic.bytes().map(Cow::Owned).map_err(Unread::Memory)
            }
        }
        .map(make)
    }

    fn release(&self, trace: &Trace) {
        if let Origin::Chunk(chunk, LARGE..) = self.origin {
            trace.release(chunk);
        }
    }

    /// A part of a file that is unavailable; `None` for a damaged chunk.
    fn missing(&self, why: Unread) -> io::Result<Option<MissingFileRange>> {
        match (&self.origin, why) {
            (_, Unread::Memory(error)) => Err(error),
            (Origin::File(range), Unread::File(why)) => Ok(Some(MissingFileRange::new(range, why))),
            _ => Ok(None),
        }
    }
}

/// Writes each distinct content once, in the order of the file, then what comes from other files
/// and from added memory.
pub(super) fn write_blobs(
    trace: &Trace,
    writer: &mut Writer<'_>,
    references: &References,
    memory: Option<&EncodedMemory<'_>>,
    new: &NewBlobs,
    embeds_files: bool,
) -> io::Result<PackSummary> {
    let mut summary = PackSummary::default();
    let mut blobs = blobs_in_trace(trace, references);
    blobs.extend(blobs_in_files(trace, references, embeds_files));
    blobs.extend(memory.into_iter().flat_map(blobs_of_memory));
    blobs.extend(
        new.iter()
            .filter_map(|(&name, bytes)| new_blob(trace, name, bytes)),
    );
    let mut places: HashMap<blake3::Hash, usize> = HashMap::new();
    let mut distinct: Vec<Blob<'_>> = Vec::new();
    for_each_ordered(
        blobs.into_iter(),
        |blob| {
            let hash = blob.read(trace, |bytes| blake3::hash(&bytes));
            blob.release(trace);
            (blob, hash)
        },
        |(mut blob, hash)| -> io::Result<()> {
            let hash = match hash {
                Ok(hash) => hash,
                Err(why) => {
                    summary.missing.extend(blob.missing(why)?);
                    return Ok(());
                }
            };
            let known = places.get(&hash).and_then(|&place| distinct.get_mut(place));
            match blob.origin {
                Origin::File(_) => summary.files += 1,
                Origin::Memory(..) | Origin::Changed(_) | Origin::Synthetic(_) => {}
                Origin::Chunk(..) => {
                    let first = u64::from(known.is_none());
                    summary.duplicate_blobs += blob.names.len() as u64 - first;
                }
            }
            match known {
                Some(known) => known.names.append(&mut blob.names),
                None => {
                    places.insert(hash, distinct.len());
                    distinct.push(blob);
                }
            }
            Ok(())
        },
    )?;
    for_each_ordered(
        distinct.into_iter(),
        |blob| {
            let stored = blob.read(trace, StoredBody::new);
            (blob, stored)
        },
        |(mut blob, stored)| -> io::Result<()> {
            match stored {
                Ok(stored) => {
                    writer.write(blob.head, &stored, std::mem::take(&mut blob.names))?;
                    blob.release(trace);
                }
                Err(why) => {
                    // The file has changed or been removed since it was hashed.
                    let missing = blob.missing(why)?;
                    summary.files -= u64::from(missing.is_some());
                    summary.missing.extend(missing);
                }
            }
            Ok(())
        },
    )?;
    Ok(summary)
}

/// The blobs of the trace that records refer to, in the order of the file.
fn blobs_in_trace<'a>(trace: &Trace, references: &References) -> Vec<Blob<'a>> {
    let mut wanted: BTreeMap<usize, (Vec<u64>, u64)> = BTreeMap::new();
    let mut want = |name: u64, length: u64| {
        if let Some(chunk) = trace.blob_chunk(name) {
            let (names, longest) = wanted.entry(chunk).or_default();
            names.push(name);
            *longest = length.max(*longest);
        }
    };
    for blob in &references.blobs {
        want(blob.position, blob.length);
    }
    if references.has_unknown {
        for (name, length) in trace.blobs() {
            want(name, length);
        }
    }
    // Parts of files that an earlier `pack` copied.
    for range in references.ranges() {
        want(range.blob().position, range.length);
    }
    let blobs = wanted.into_iter().map(|(chunk, (mut names, length))| {
        names.sort_unstable();
        names.dedup();
        Blob {
            head: ChunkHead {
                first: names.first().copied().unwrap_or(0),
                ..trace.chunk(chunk).head
            },
            origin: Origin::Chunk(chunk, length),
            names,
        }
    });
    blobs.collect()
}

/// The parts of files that the trace does not hold, and that it is to hold. By name, so that equal content gets the same
/// name however often a trace is packed.
fn blobs_in_files<'a>(
    trace: &Trace,
    references: &'a References,
    embeds_files: bool,
) -> Vec<Blob<'a>> {
    let ranges = trace.ranges_outside(references).into_iter();
    let ranges = ranges.filter(|range| embeds_files || range.digest.is_none());
    let mut blobs: Vec<_> = ranges
        .map(|range| {
            let first = range.blob().position;
            Blob {
                head: ChunkHead {
                    first,
                    ..ChunkHead::new(chunk_kind::BLOB)
                },
                origin: Origin::File(range),
                names: vec![first],
            }
        })
        .collect();
    blobs.sort_by_key(|blob| blob.head.first);
    blobs
}

/// The blobs of added memory.
fn blobs_of_memory<'a>(memory: &'a EncodedMemory<'a>) -> impl Iterator<Item = Blob<'a>> {
    memory.blobs.iter().map(|&(blob, piece)| Blob {
        head: ChunkHead {
            first: blob.position,
            ..ChunkHead::new(chunk_kind::BLOB)
        },
        origin: Origin::Memory(memory.read, piece),
        names: vec![blob.position],
    })
}

/// A blob that a snapshot got.
fn new_blob<'a>(trace: &Trace, name: u64, bytes: &'a NewBytes) -> Option<Blob<'a>> {
    let origin = match bytes {
        NewBytes::Other(bytes) => Origin::Changed(bytes),
        NewBytes::Synthetic(synthetic) => Origin::Synthetic(synthetic),
        NewBytes::OfFile(_, range) => {
            let range = FileRange::decode(range)?;
            // An earlier `pack` has copied it.
            let chunk = trace.blob_chunk(range.blob().position);
            chunk.map_or(Origin::File(range), |chunk| {
                Origin::Chunk(chunk, range.length)
            })
        }
        NewBytes::Omitted | NewBytes::First(_) => return None,
    };
    Some(Blob {
        head: ChunkHead {
            first: name,
            ..ChunkHead::new(chunk_kind::BLOB)
        },
        origin,
        names: vec![name],
    })
}
