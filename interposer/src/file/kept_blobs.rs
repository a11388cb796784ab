//! Blobs of the trace by the memory that they were read from, and by a sample of their bytes: equal
//! bytes are not written again. A program that copies the same large buffers in a loop, or reads
//! them back, would otherwise spend most of its time in writing the trace.

use std::collections::HashMap;
use std::sync::OnceLock;

use cutape_driver::digest::digest;
use cutape_format::control::Control;
use cutape_format::layout::{BlobRef, CHUNK_HEAD_LENGTH};

use super::rows::{Memory, NotKept, Rows};
use super::{mapping, size_limit, trace_file};
use crate::hot::recording::Direction;
use crate::process::errno::Errno;
use crate::process::memory::{self, Scratch};
use crate::process::process_lock::ProcessLock;

/// Shorter blobs are always written: that takes hardly longer than a comparison.
const SHORTEST: u64 = 64 << 10;
/// Shorter ones are not looked for among others: the sample takes up to a tenth of their time.
const SHORTEST_SAMPLED: u64 = 256 << 10;
/// When there are as many by memory, or by sample, all of these are forgotten.
const MOST: usize = 1024;
const MOST_SAMPLES: usize = 16 << 10;
/// A sample has as many spots of a blob, each of as many bytes.
const SPOTS: usize = 4;
const SPOT: usize = 256;
/// Blobs with equal samples that are remembered, and compared as far as they are equal.
const ALIKE: usize = 4;
/// After as many comparisons in a row that found a difference, blobs with that sample are no longer
/// compared.
const MOST_MISSES: u8 = 8;
/// Memory is copied in pieces of this length, which the processor's cache holds.
const PIECE: usize = 64 << 10;
/// Memory is compared in place in pieces of this length: so long is it kept from being freed.
const HELD_PIECE: usize = 1 << 20;

/// Runs a function while that many bytes at an address cannot be freed; false if it cannot tell.
pub(crate) type Holder = fn(u64, u64, &mut dyn FnMut()) -> bool;

static HOLDER: OnceLock<Holder> = OnceLock::new();

static KEPT: ProcessLock<Table> = ProcessLock::new();

#[derive(Default)]
struct Table {
    /// By the memory that they were read from.
    by_memory: HashMap<Rows, Kept>,
    by_sample: HashMap<u64, Alike>,
}

/// The newest blobs with a sample, the last one first.
#[derive(Clone, Copy, Default)]
struct Alike {
    blobs: [Option<BlobRef>; ALIKE],
    /// Comparisons since one of them was equal.
    misses: u8,
}

struct Kept {
    blob: BlobRef,
    view: Option<View>,
}

/// A blob, mapped from the trace file: its bytes need no second copy in memory.
struct View {
    start: *const u8,
    length: usize,
}

// SAFETY: the mapping belongs to the value alone and is only read.
unsafe impl Send for View {}

impl View {
    fn of(blob: BlobRef) -> Option<Self> {
        let length = CHUNK_HEAD_LENGTH.checked_add(usize::try_from(blob.length).ok()?)?;
        let start = trace_file::map_to_read(blob.position, length)?;
        Some(Self { start, length })
    }

    fn bytes(&self) -> &[u8] {
        // SAFETY: mapped with that length as long as `self` lives. The chunk was written before the
        // blob became known, and nobody writes there again.
        let chunk = unsafe { core::slice::from_raw_parts(self.start, self.length) };
        chunk.get(CHUNK_HEAD_LENGTH..).unwrap_or_default()
    }
}

impl Drop for View {
    fn drop(&mut self) {
        let _errno = Errno::keep();
        // SAFETY: mapped by `of` with that length, and no reference to it is left.
        unsafe { mapping::unmap(self.start, self.length) };
    }
}

/// Sets how memory is kept from being freed. Without it, all memory is copied to be compared.
pub(crate) fn set_holder(holder: Holder) {
    HOLDER.get_or_init(|| holder);
}

/// In a forked child, whose trace is another one.
pub(crate) fn forget() {
    KEPT.forget();
}

impl Kept {
    /// The blob, if the memory holds the same bytes.
    fn with_bytes_of(mut self, memory: &(impl Memory + ?Sized)) -> Option<Self> {
        let view = self.view.take().or_else(|| View::of(self.blob))?;
        let is_same = holds(memory, view.bytes());
        self.view = Some(view);
        is_same.then_some(self)
    }
}

/// The blob with what the memory holds: the one that was last read from there if it still does,
/// else one with the same bytes from anywhere, else a new one. `payload` is the direction of bytes
/// that are copied to or from a device, for which there may be no room.
pub(crate) fn blob(
    memory: &(impl Memory + ?Sized),
    payload: Option<Direction>,
) -> Result<BlobRef, NotKept> {
    if memory.length() < SHORTEST {
        return new(memory, payload);
    }
    let key = memory.key();
    // Out of the table, so that other threads need not wait for the comparison.
    let known = key.and_then(|key| KEPT.lock().by_memory.remove(&key));
    let known = known.filter(|kept| can_be_reused(kept.blob));
    let known = known.and_then(|kept| kept.with_bytes_of(memory));
    let kept = match known {
        Some(kept) => kept,
        None => equal_or_new(memory, payload)?,
    };
    let blob = kept.blob;
    if let Some(key) = key {
        let mut all = KEPT.lock();
        if all.by_memory.len() >= MOST {
            all.by_memory.clear();
        }
        all.by_memory.insert(key, kept);
    }
    Ok(blob)
}

/// Whether the trace keeps a blob for as long as new ones.
fn can_be_reused(blob: BlobRef) -> bool {
    blob.position >= trace_file::control().map_or(0, Control::reuse_from)
}

/// A blob with the same bytes, else a new one.
fn equal_or_new(
    memory: &(impl Memory + ?Sized),
    payload: Option<Direction>,
) -> Result<Kept, NotKept> {
    let flat = memory.in_one_piece();
    let flat = flat.filter(|flat| flat.1 >= SHORTEST_SAMPLED);
    let Some((sample, flat)) = flat.and_then(|flat| Some((sample(flat)?, flat))) else {
        let blob = new(memory, payload)?;
        return Ok(Kept { blob, view: None });
    };
    let alike = KEPT.lock().by_sample.get(&sample).copied();
    let mut alike = alike.unwrap_or_default();
    if alike.misses < MOST_MISSES {
        let mut blobs = alike
            .blobs
            .iter()
            .flatten()
            .filter(|blob| can_be_reused(**blob));
        if let Some(&blob) = blobs.find(|blob| is_blob_of(**blob, flat)) {
            alike.misses = 0;
            KEPT.lock().by_sample.insert(sample, alike);
            return Ok(Kept { blob, view: None });
        }
        alike.misses += u8::from(alike.blobs != [None; ALIKE]);
    }
    let blob = new(memory, payload)?;
    alike.blobs.rotate_right(1);
    if let Some(first) = alike.blobs.first_mut() {
        *first = Some(blob);
    }
    let mut all = KEPT.lock();
    if all.by_sample.len() >= MOST_SAMPLES {
        all.by_sample.clear();
    }
    all.by_sample.insert(sample, alike);
    Ok(Kept { blob, view: None })
}

fn new(memory: &(impl Memory + ?Sized), payload: Option<Direction>) -> Result<BlobRef, NotKept> {
    match payload {
        Some(direction) if !size_limit::has_room(direction, memory.length()) => {
            Err(NotKept::NoRoom)
        }
        _ => trace_file::blob(memory),
    }
}

/// A number that equal bytes have, and few others: of the length, and of spots at equal distances
/// from the first byte to the last. It is much faster than reading all.
fn sample((address, length): (u64, u64)) -> Option<u64> {
    let last = length.checked_sub(SPOT as u64)?;
    let mut bytes = [0; SPOTS * SPOT];
    let places = (0..SPOTS as u64).map(|spot| last.saturating_mul(spot) / (SPOTS as u64 - 1));
    for (at, spot) in places.zip(bytes.chunks_exact_mut(SPOT)) {
        if !memory::read_all(address.wrapping_add(at), spot) {
            return None;
        }
    }
    Some(digest(&bytes) ^ length.rotate_left(32))
}

/// Whether a blob has the bytes of memory. It is read and not mapped: most differ soon.
fn is_blob_of(blob: BlobRef, (address, length): (u64, u64)) -> bool {
    let Some(mut scratch) = Scratch::new(2 * PIECE).filter(|_| blob.length == length) else {
        return false;
    };
    let (kept, here) = scratch.bytes().split_at_mut(PIECE);
    let start = blob.position + CHUNK_HEAD_LENGTH as u64;
    (0..length).step_by(PIECE).all(|at| {
        let count = (length - at).min(PIECE as u64) as usize;
        let pieces = kept.get_mut(..count).zip(here.get_mut(..count));
        pieces.is_some_and(|(kept, here)| {
            trace_file::read_at(start + at, kept)
                && memory::read_all(address.wrapping_add(at), here)
                && kept == here
        })
    })
}

/// Whether the rows hold these bytes.
fn holds(memory: &(impl Memory + ?Sized), mut bytes: &[u8]) -> bool {
    let mut scratch = None;
    for (address, length) in memory.pieces() {
        let Some((row, behind)) = bytes.split_at_checked(length as usize) else {
            return false;
        };
        let pieces = row.chunks(HELD_PIECE).zip((address..).step_by(HELD_PIECE));
        for (kept, address) in pieces {
            let is_same = holds_in_place(address, kept);
            if !is_same.unwrap_or_else(|| holds_copied(address, kept, &mut scratch)) {
                return false;
            }
        }
        bytes = behind;
    }
    bytes.is_empty()
}

/// The same of one piece, without a copy; `None` if it may be freed meanwhile.
fn holds_in_place(address: u64, kept: &[u8]) -> Option<bool> {
    let mut is_same = false;
    let length = kept.len() as u64;
    let mut compare = || {
        // SAFETY: all pages can be read, and the holder keeps them from being freed. No reference
        // to the memory is made: the program may write there.
        is_same = memory::are_readable(address, length)
            && unsafe { libc::memcmp(address as *const _, kept.as_ptr().cast(), kept.len()) } == 0;
    };
    let hold = HOLDER.get()?;
    hold(address, length, &mut compare).then_some(is_same)
}

/// The same of memory that another thread may free: a copy fails where reading would fault.
fn holds_copied(address: u64, kept: &[u8], scratch: &mut Option<Scratch>) -> bool {
    if scratch.is_none() {
        *scratch = Scratch::new(PIECE);
    }
    let Some(scratch) = scratch else {
        return false;
    };
    kept.chunks(PIECE)
        .zip((address..).step_by(PIECE))
        .all(|(kept, address)| {
            let here = scratch.bytes().get_mut(..kept.len());
            here.is_some_and(|here| memory::read_all(address, here) && here == kept)
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_hold_what_they_were_read_as() {
        let memory: Vec<u8> = (0..3 * PIECE + 100).map(|at| (at % 251) as u8).collect();
        let address = memory.as_ptr() as u64;
        let strided = Rows {
            row: 100,
            pitch: 1000,
            rows: 3,
            ..Rows::flat(address, 0)
        };
        let in_rows = [&memory[..100], &memory[1000..1100], &memory[2000..2100]].concat();
        for (rows, bytes) in [
            (Rows::flat(address, memory.len() as u64), memory.clone()),
            (Rows::flat(address + 5, 7), memory[5..12].to_vec()),
            (strided, in_rows),
        ] {
            assert!(holds(&rows, &bytes));
            assert!(!holds(&rows, &bytes[1..]));
            let mut changed = bytes;
            *changed.last_mut().expect("not empty") ^= 1;
            assert!(!holds(&rows, &changed));
        }
        assert!(!holds(&Rows::flat(8, 16), &[0; 16]), "cannot be read");
    }

    #[test]
    fn samples_are_of_bytes_and_not_of_memory() {
        let memory: Vec<u8> = (0..3 * PIECE + 100).map(|at| (at % 251) as u8).collect();
        let copy = memory.clone();
        let whole = |bytes: &[u8]| sample((bytes.as_ptr() as u64, bytes.len() as u64));
        assert!(whole(&memory).is_some());
        assert_eq!(whole(&memory), whole(&copy));
        assert_ne!(whole(&memory), whole(&memory[1..]));
        assert_ne!(whole(&memory), whole(&memory[..memory.len() - 1]));
        for at in [0, memory.len() - 1, memory.len() - SPOT] {
            let mut changed = copy.clone();
            changed[at] ^= 1;
            assert_ne!(whole(&changed), whole(&memory), "byte {at}");
        }
        assert_eq!(sample((8, 1 << 20)), None, "cannot be read");
    }

    #[test]
    fn held_memory_is_compared_in_place() {
        fn holder(address: u64, _: u64, compare: &mut dyn FnMut()) -> bool {
            let is_held = address.is_multiple_of(2);
            if is_held {
                compare();
            }
            is_held
        }
        set_holder(holder);
        let memory: Vec<u8> = (0..=255).cycle().take(9000).collect();
        let at = |offset: usize| memory[offset..].as_ptr() as u64;
        assert_eq!(holds_in_place(at(0), &memory), Some(true));
        assert_eq!(holds_in_place(at(2), &memory[1..]), Some(false));
        assert_eq!(holds_in_place(at(1), &memory[1..]), None);
        assert_eq!(holds_in_place(8, &memory), Some(false), "cannot be read");
    }
}
