//! Payloads that a loader has copied from a file of tensors to memory of its own, such as the
//! page-locked tensors of safetensors.
//!
//! Their address does not lead to the file. But what a loader uploads at once is a tensor, or what
//! follows its last upload in the file. These few places are compared as those of mapped memory
//! are: a reference is as certain, and any other payload is in the trace.
//!
//! Where there is no such file, that costs 1 us a payload, of 40 us for 64 KiB that the trace has
//! already, and every 16 MiB up to 2 ms, of 4 ms, if the mappings have changed (null driver, 1,500
//! mappings, medians).

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::ffi::{CStr, CString};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use cutape_driver::digest::digest;

use super::data_files::{BETWEEN_READINGS, FilePart, Place, SHORTEST};
use super::tensor_header::{Tensor, Tensors};
use super::tensor_paths::{self, Mapped};
use crate::process::errno::Errno;
use crate::process::memory;
use crate::process::process_lock::ProcessLock;
use crate::process::regular_file::{OpenFile, RegularFile};

/// The first bytes of a payload or tensor, by which most are told apart.
const SAMPLE: usize = 64;
/// Samples that are read of a file for one payload. They are kept, since the disk may be slow.
const MOST_READ: usize = 64;
/// Tensors that a loader may leave out, and the next payload is still in order.
const MOST_SKIPPED: usize = 8;
/// After as many payloads in a row that were not in a file, what follows the last one that was is
/// no longer tried: the file is then not opened for each payload.
const MOST_MISSES: u32 = 8;

static KNOWN: ProcessLock<Known> = ProcessLock::new();

#[derive(Default)]
struct Known {
    /// Files of tensors that were mapped or open when that was last looked up.
    files: Arc<[Arc<TensorFile>]>,
    /// The file of the last payload that was found.
    last: usize,
    /// Bytes that were looked for since; `None` if it was never looked up.
    since: Option<u64>,
    /// `None` if a payload was found since: a loader that unmaps a file and maps the next one may
    /// leave the extent as it was.
    mapped: Option<Arc<Mapped>>,
}

/// A file as it was when its header was read.
struct TensorFile {
    path: Arc<CStr>,
    length: u64,
    modified: u64,
    /// By offset.
    tensors: Vec<Tensor>,
    /// The digest of the first bytes of each; 0 if they were not read.
    samples: Vec<AtomicU64>,
    /// The end of the last payload that was found, at first that of the header.
    next: AtomicU64,
    misses: AtomicU32,
}

/// A payload whose file is looked for.
struct Payload {
    address: u64,
    length: u64,
    /// The digest of its first bytes.
    sample: u64,
}

/// In a forked child.
pub(crate) fn forget() {
    KNOWN.forget();
}

/// The part of a file of tensors that has the same bytes; `None` if none is found.
pub(crate) fn holding(address: u64, length: u64) -> Option<FilePart> {
    if length < SHORTEST {
        return None;
    }
    let _errno = Errno::keep();
    let mut sample = [0; SAMPLE];
    if !memory::read_all(address, &mut sample) {
        return None;
    }
    let payload = Payload {
        address,
        length,
        sample: digest(&sample),
    };
    // No lock is held while files are read: other threads have payloads, too.
    let (files, last) = KNOWN.lock().look(length);
    if let Some(part) = find(&files, last, &payload) {
        return Some(part);
    }
    let mapped = KNOWN.lock().begin_reading()?;
    let mapped = Mapped::now(mapped);
    let now: Arc<[_]> = read(&files, &mapped.paths).into();
    let is_new = |file: &Arc<TensorFile>| !files.iter().any(|known| Arc::ptr_eq(known, file));
    let first_new = now.iter().position(is_new);
    {
        let mut known = KNOWN.lock();
        known.mapped = Some(mapped);
        known.files = Arc::clone(&now);
    }
    find(&now, first_new?, &payload)
}

impl Known {
    /// The files, and the one to begin with, for a payload of that length.
    fn look(&mut self, length: u64) -> (Arc<[Arc<TensorFile>]>, usize) {
        self.since = self.since.map(|since| since.saturating_add(length));
        (Arc::clone(&self.files), self.last)
    }

    /// What was mapped, if it is time to look up again which files are mapped or open.
    fn begin_reading(&mut self) -> Option<Option<Arc<Mapped>>> {
        if self.since.is_some_and(|since| since < BETWEEN_READINGS) {
            return None;
        }
        self.since = Some(0);
        Some(self.mapped.clone())
    }
}

/// Looks for a payload in each file.
fn find(files: &[Arc<TensorFile>], first: usize, payload: &Payload) -> Option<FilePart> {
    let first = first.min(files.len());
    let (before, from) = files.split_at_checked(first)?;
    let places = (first..).zip(from).chain((0..).zip(before));
    for (at, file) in places {
        if let Some(part) = file.part(payload) {
            let mut known = KNOWN.lock();
            (known.last, known.mapped) = (at, None);
            return Some(part);
        }
    }
    None
}

/// The files of tensors that are mapped or open now. What is known of them stays known.
fn read(known: &[Arc<TensorFile>], mapped: &[CString]) -> Vec<Arc<TensorFile>> {
    let open = tensor_paths::open();
    let mut files: Vec<Arc<TensorFile>> = Vec::new();
    for path in mapped.iter().chain(&open) {
        if files.iter().any(|file| *file.path == **path) {
            continue;
        }
        let Some(now) = RegularFile::named(path) else {
            continue;
        };
        let is_it = |file: &&Arc<TensorFile>| {
            *file.path == **path && (file.length, file.modified) == (now.length, now.modified)
        };
        match known.iter().find(is_it) {
            Some(file) => files.push(Arc::clone(file)),
            None => files.extend(TensorFile::of(path).map(Arc::new)),
        }
    }
    files
}

impl TensorFile {
    fn of(path: &CStr) -> Option<Self> {
        let (file, now) = RegularFile::open(path)?;
        let tensors = Tensors::of(&file, now.length)?;
        Some(Self {
            path: path.into(),
            length: now.length,
            modified: now.modified,
            samples: tensors.all.iter().map(|_| AtomicU64::new(0)).collect(),
            tensors: tensors.all,
            next: AtomicU64::new(tensors.start),
            misses: AtomicU32::new(0),
        })
    }

    /// The part with the bytes of a payload.
    fn part(&self, payload: &Payload) -> Option<FilePart> {
        let is_in_order = self.misses.load(Ordering::Relaxed) < MOST_MISSES;
        let mut samples = Samples {
            path: &self.path,
            file: None,
            left: MOST_READ,
        };
        for (offset, sample) in self.places(payload.length, is_in_order) {
            let end = offset.checked_add(payload.length);
            let Some(end) = end.filter(|&end| end <= self.length) else {
                continue;
            };
            if samples.at(offset, sample) != Some(payload.sample) {
                continue;
            }
            let place = Place {
                path: Arc::clone(&self.path),
                offset,
            };
            if let Some(part) = place.part(payload.address, payload.length) {
                self.next.store(end, Ordering::Relaxed);
                self.misses.store(0, Ordering::Relaxed);
                return Some(part);
            }
        }
        if is_in_order {
            self.misses.fetch_add(1, Ordering::Relaxed);
        }
        None
    }

    /// Where in the file a payload of that length may be, and what is known there: if it is in
    /// order, at the end of the last one or at one of the next tensors; at any tensor of that
    /// length.
    fn places(
        &self,
        length: u64,
        is_in_order: bool,
    ) -> impl Iterator<Item = (u64, Option<&AtomicU64>)> {
        let next = self.next.load(Ordering::Relaxed);
        let after = self.tensors.partition_point(|tensor| tensor.offset < next);
        let tensors = || self.tensors.iter().zip(&self.samples);
        let following = tensors().skip(after).take(MOST_SKIPPED);
        let following = following.map(|(tensor, sample)| (tensor.offset, Some(sample)));
        let in_order = core::iter::once((next, None)).chain(following);
        let all = tensors().skip(after).chain(tensors().take(after));
        let same = all.filter(move |(tensor, _)| tensor.length == length);
        let same = same.map(|(tensor, sample)| (tensor.offset, Some(sample)));
        in_order.filter(move |_| is_in_order).chain(same)
    }
}

/// Samples of a file.
struct Samples<'a> {
    path: &'a CStr,
    /// Once one is read.
    file: Option<OpenFile>,
    /// As many may still be read.
    left: usize,
}

impl Samples<'_> {
    /// The sample there, which is then known.
    fn at(&mut self, offset: u64, known: Option<&AtomicU64>) -> Option<u64> {
        let sample = known.map_or(0, |known| known.load(Ordering::Relaxed));
        if sample != 0 {
            return Some(sample);
        }
        self.left = self.left.checked_sub(1)?;
        if self.file.is_none() {
            self.file = Some(RegularFile::open(self.path)?.0);
        }
        let mut bytes = [0; SAMPLE];
        self.file.as_ref()?.read_exact_at(&mut bytes, offset).ok()?;
        let sample = digest(&bytes);
        if let Some(known) = known {
            known.store(sample, Ordering::Relaxed);
        }
        Some(sample)
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    /// The offset of the part with these bytes.
    fn found(payload: &[u8]) -> Option<u64> {
        let part = holding(payload.as_ptr() as u64, payload.len() as u64)?;
        Some(part.range().offset)
    }

    #[test]
    fn files_are_found_while_they_are_open() {
        let length = SHORTEST as usize;
        let path = std::env::temp_dir().join(format!("cutape-open-{}", std::process::id()));
        // The parts differ in their first byte.
        let header = format!(r#"{{"a":{{"data_offsets":[{length},{}]}}}}"#, 2 * length);
        let data = (0..4).flat_map(|part: u8| vec![part; length]);
        let start = (header.len() as u64).to_le_bytes().into_iter();
        let content: Vec<u8> = start.chain(header.bytes()).chain(data).collect();
        let start = 8 + header.len();
        let part = |at: usize| &content[start + at * length..][..length];
        let offset = |at: usize| Some((start + at * length) as u64);
        let elsewhere = vec![7; BETWEEN_READINGS as usize];
        assert_eq!(found(part(1)), None, "no file");
        std::fs::write(&path, &content).unwrap();
        let open = File::open(&path).unwrap();
        assert_eq!(found(part(1)), None, "the descriptors were read before");
        assert_eq!(found(&elsewhere), None);
        // A tensor, what follows, no tensor; also when there were more files.
        KNOWN.lock().last = 5;
        assert_eq!(found(part(1)), offset(1));
        assert_eq!(found(&part(1)[1..]), None, "short");
        assert_eq!(found(part(2)), offset(2));
        assert_eq!(found(part(0)), None);
        // After misses, a tensor only, until it is found.
        for _ in 0..MOST_MISSES {
            assert_eq!(found(&elsewhere[..length]), None);
        }
        assert_eq!(found(part(3)), None);
        assert_eq!(found(part(1)), offset(1));
        assert_eq!(found(part(2)), offset(2));
        drop(open);
        assert_eq!(found(&elsewhere), None);
        assert_eq!(found(part(1)), None, "closed");
        std::fs::remove_file(&path).unwrap();
    }
}
