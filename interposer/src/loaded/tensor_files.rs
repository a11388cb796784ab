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

use core::ffi::c_int;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::ffi::{CStr, CString};
use std::fs::File;
use std::mem::ManuallyDrop;
use std::os::fd::FromRawFd;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::Arc;

use cutape_maps::{Mapping, mappings};

use super::data_files::{BETWEEN_READINGS, FilePart, Place, SHORTEST, is_of_data};
use super::tensor_header::{SIGNATURE, Tensor, Tensors, has_tensors};
use crate::process::errno::Errno;
use crate::process::memory;
use crate::process::process_lock::ProcessLock;
use crate::process::regular_file::RegularFile;

/// The first bytes of a payload, by which most other places are told apart.
const SAMPLE: usize = 64;
/// Tensors of a payload's length that are tried in a file.
const MOST_TRIED: usize = 64;
/// Tensors that a loader may leave out, and the next payload is still in order.
const MOST_SKIPPED: usize = 8;
/// After as many payloads in a row that were not in a file, what follows the last one that was is
/// no longer tried: the file is then opened only for payloads as long as one of its tensors.
const MOST_MISSES: u32 = 8;
/// Later descriptors are not looked at.
const MOST_DESCRIPTORS: usize = 1024;

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

/// Files that begin as files of tensors do and are mapped from their beginning.
struct Mapped {
    /// What the system said of all mappings when the list of them was read.
    extent: Option<Extent>,
    paths: Vec<CString>,
}

/// Pages that are mapped, and pages of files that are in memory: to map a file and to read it
/// changes them (proc_pid_statm(5)).
#[derive(Clone, Copy, PartialEq, Eq)]
struct Extent {
    size: u64,
    shared: u64,
}

/// A file as it was when its header was read.
struct TensorFile {
    path: Arc<CStr>,
    length: u64,
    modified: u64,
    /// By offset.
    tensors: Vec<Tensor>,
    /// The end of the last payload that was found, at first that of the header.
    next: AtomicU64,
    misses: AtomicU32,
}

/// A payload whose file is looked for.
struct Payload {
    address: u64,
    length: u64,
    sample: [u8; SAMPLE],
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
    let mut payload = Payload {
        address,
        length,
        sample: [0; SAMPLE],
    };
    if !memory::read_all(address, &mut payload.sample) {
        return None;
    }
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

impl Mapped {
    /// Reads the list of mappings, unless it is known and as it was.
    fn now(known: Option<Arc<Self>>) -> Arc<Self> {
        let extent = Extent::now();
        let known = known.filter(|known| extent.is_some() && extent == known.extent);
        if let Some(known) = known {
            return known;
        }
        let maps = std::fs::read("/proc/self/maps").unwrap_or_default();
        let mappings: Vec<_> = mappings(&maps).collect();
        let of_files = mappings.chunk_by(|one, next| one.path == next.path);
        // Libraries need not be looked at.
        let of_data =
            of_files.filter(|file| !file.iter().any(|part| part.permissions.contains(&b'x')));
        let paths = of_data.filter_map(|file| {
            let begins = |part: &&Mapping<'_>| part.offset == 0 && is_of_data(part);
            let first = file.iter().find(begins)?;
            let mut signature = [0; SIGNATURE];
            if !memory::read_all(first.start, &mut signature) || !has_tensors(&signature) {
                return None;
            }
            CString::new(first.path).ok()
        });
        let paths = paths.collect();
        Arc::new(Self { extent, paths })
    }
}

impl Extent {
    fn now() -> Option<Self> {
        let text = std::fs::read_to_string("/proc/self/statm").ok()?;
        let mut numbers = text.split(' ').map(str::parse);
        let size = numbers.next()?.ok()?;
        let shared = numbers.nth(1)?.ok()?;
        Some(Self { size, shared })
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
    let open: Vec<_> = descriptors()
        .into_iter()
        .filter_map(path_of_tensors)
        .collect();
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

/// The first descriptors of this process.
fn descriptors() -> Vec<c_int> {
    let Ok(all) = std::fs::read_dir("/proc/self/fd") else {
        return Vec::new();
    };
    let number =
        |entry: std::io::Result<std::fs::DirEntry>| entry.ok()?.file_name().to_str()?.parse().ok();
    all.filter_map(number).take(MOST_DESCRIPTORS).collect()
}

/// The name of an open file that begins as a file of tensors does.
fn path_of_tensors(descriptor: c_int) -> Option<CString> {
    // It is read through the program's descriptor: to open and close a file that the program is
    // about to lock would end its locks (fcntl(2)).
    // SAFETY: the program's descriptor is not closed here. If it is another file meanwhile, that
    // one is read at a position, which changes nothing.
    let file = ManuallyDrop::new(unsafe { File::from_raw_fd(descriptor) });
    let status = file.metadata().ok()?;
    if !status.is_file() || status.size() < SHORTEST {
        return None;
    }
    let mut signature = [0; SIGNATURE];
    file.read_exact_at(&mut signature, 0).ok()?;
    if !has_tensors(&signature) {
        return None;
    }
    let path = std::fs::read_link(format!("/proc/self/fd/{descriptor}")).ok()?;
    let path = path.into_os_string().into_vec();
    if !path.starts_with(b"/") || path.ends_with(b" (deleted)") {
        return None;
    }
    CString::new(path).ok()
}

impl TensorFile {
    fn of(path: &CStr) -> Option<Self> {
        let (file, now) = RegularFile::open(path)?;
        let tensors = Tensors::of(&file, now.length)?;
        Some(Self {
            path: path.into(),
            length: now.length,
            modified: now.modified,
            tensors: tensors.all,
            next: AtomicU64::new(tensors.start),
            misses: AtomicU32::new(0),
        })
    }

    /// The part with the bytes of a payload.
    fn part(&self, payload: &Payload) -> Option<FilePart> {
        let is_in_order = self.misses.load(Ordering::Relaxed) < MOST_MISSES;
        let mut places = self.places(payload.length, is_in_order).peekable();
        // Without a place, the file need not be opened.
        places.peek()?;
        let (file, _) = RegularFile::open(&self.path)?;
        let mut sample = [0; SAMPLE];
        let part = places.find_map(|offset| {
            let is_read = file.read_exact_at(&mut sample, offset).is_ok();
            let place = || Place {
                path: Arc::clone(&self.path),
                offset,
            };
            let part = (is_read && sample == payload.sample)
                .then(|| place().part(payload.address, payload.length))??;
            self.next.store(offset + payload.length, Ordering::Relaxed);
            Some(part)
        });
        if part.is_some() {
            self.misses.store(0, Ordering::Relaxed);
        } else if is_in_order {
            self.misses.fetch_add(1, Ordering::Relaxed);
        }
        part
    }

    /// Where in the file a payload of that length may be: if it is in order, at the end of the last
    /// one or at one of the next tensors; at any tensor of that length.
    fn places(&self, length: u64, is_in_order: bool) -> impl Iterator<Item = u64> {
        let next = self.next.load(Ordering::Relaxed);
        let after = self.tensors.partition_point(|tensor| tensor.offset < next);
        let (before, from) = self.tensors.split_at_checked(after).unwrap_or_default();
        let following = from.iter().map(|tensor| tensor.offset);
        let following = following.filter(move |&offset| offset != next);
        let in_order = Some(next).into_iter().chain(following.take(MOST_SKIPPED));
        let same = from
            .iter()
            .chain(before)
            .filter(move |tensor| tensor.length == length);
        let places = in_order.filter(move |_| is_in_order);
        let places = places.chain(same.map(|tensor| tensor.offset).take(MOST_TRIED));
        let most = self.length.checked_sub(length);
        places.filter(move |&offset| most.is_some_and(|most| offset <= most))
    }
}

#[cfg(test)]
mod tests {
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
