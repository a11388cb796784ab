//! Stores each distinct stack, and each code object of Python, once: in chunks of the trace that
//! all threads write to, without a lock.

use core::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering};

use cutape_format::layout::{CHUNK_HEAD_LENGTH, FramesNote, note_kind, record_kind};
use cutape_format::write::Record;

use crate::file::stack_chunk;
use crate::process::memory::Scratch;

/// Places for the hashes of what is stored; a process with more than three quarters of that many
/// distinct stacks and code objects gets no further ones.
const PLACES: usize = 1 << 18;
const MOST: usize = PLACES / 4 * 3;
/// Longer records are left out.
pub(super) const LONGEST: usize = 128 << 10;

/// The kind of a record that could not be built; readers skip it.
const NOTHING: u16 = 0;

/// The places; NULL before `begin`. Never freed.
static STORED: AtomicPtr<AtomicU64> = AtomicPtr::new(core::ptr::null_mut());
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// The chunk that is being filled.
struct Region {
    start: *mut u8,
    length: usize,
    /// Bytes that are given out, and more if there were not enough.
    used: AtomicUsize,
}

static REGION: AtomicPtr<Region> = AtomicPtr::new(core::ptr::null_mut());

/// Makes the places. To be called before anything else here.
pub(super) fn begin() {
    if STORED.load(Ordering::Acquire).is_null()
        && let Some(mut scratch) = Scratch::new(PLACES * size_of::<AtomicU64>())
    {
        STORED.store(scratch.bytes().as_mut_ptr().cast(), Ordering::Release);
        core::mem::forget(scratch);
    }
}

/// In a forked child, whose trace is another file.
pub(super) fn forget() {
    REGION.store(core::ptr::null_mut(), Ordering::Relaxed);
    let is_clean = COUNT.swap(0, Ordering::Relaxed) == 0;
    for place in places().iter().filter(|_| !is_clean) {
        place.store(0, Ordering::Relaxed);
    }
}

fn places() -> &'static [AtomicU64] {
    let start = STORED.load(Ordering::Acquire);
    if start.is_null() {
        return &[];
    }
    // SAFETY: a mapping of that length, initialised by the kernel, never freed.
    unsafe { core::slice::from_raw_parts(start, PLACES) }
}

/// A hash of words, never 0.
pub(super) fn hash(words: impl IntoIterator<Item = u64>) -> u64 {
    let mut state = 0x243f_6a88_85a3_08d3_u64;
    for word in words {
        let product = u128::from(state ^ word) * 0x9e37_79b9_7f4a_7c15_u128;
        state = (product as u64) ^ (product >> 64) as u64 ^ word.rotate_left(32);
    }
    state.max(1)
}

/// Whether the caller is the first to ask about that hash; `None` if there is no room for it.
pub(super) fn is_new(hash: u64) -> Option<bool> {
    let places = places();
    let start = hash as usize % PLACES;
    for step in 0..PLACES {
        let place = places.get((start + step) % PLACES)?;
        let mut there = place.load(Ordering::Relaxed);
        if there == 0 {
            if COUNT.load(Ordering::Relaxed) >= MOST {
                return None;
            }
            match place.compare_exchange(0, hash, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => {
                    COUNT.fetch_add(1, Ordering::Relaxed);
                    return Some(true);
                }
                Err(now) => there = now,
            }
        }
        if there == hash {
            return Some(false);
        }
    }
    None
}

/// Stores a stack.
pub(super) fn put_stack(id: u64, flags: u64, words: &[u64]) {
    let length = 24 + 8 * words.len();
    put(note_kind::FRAMES, length, |record| {
        record.put_encoded(FramesNote { id, flags })?;
        words
            .iter()
            .try_for_each(|word| record.put_number(*word, 8))
    });
}

/// Writes a note of at most that many bytes, its head included.
pub(super) fn put(
    kind: u16,
    length: usize,
    build: impl FnOnce(&mut Record<'_>) -> Option<()>,
) -> Option<()> {
    let length = length.next_multiple_of(8);
    let space = space(length)?;
    let mut record = Record::new(space)?;
    let kind = match build(&mut record) {
        Some(()) => kind,
        None => NOTHING,
    };
    // A gap would hide all that follows.
    while record.length() < length {
        record.put_number(0, (length - record.length()).min(8))?;
    }
    record.commit(record_kind::NOTE, kind).map(|_| ())
}

/// That many bytes of a chunk, which are the caller's alone.
fn space(length: usize) -> Option<&'static mut [u8]> {
    if length > LONGEST {
        return None;
    }
    loop {
        let region = REGION.load(Ordering::Acquire);
        // SAFETY: NULL, or leaked below.
        if let Some(known) = unsafe { region.as_ref() } {
            let at = known.used.fetch_add(length, Ordering::Relaxed);
            if at
                .checked_add(length)
                .is_some_and(|end| end <= known.length)
            {
                // SAFETY: within the mapping, which is never unmapped; `used` gives these bytes to
                // this caller alone.
                return Some(unsafe {
                    core::slice::from_raw_parts_mut(known.start.add(at), length)
                });
            }
        }
        let (start, length) = stack_chunk::open()?;
        let new = Box::into_raw(Box::new(Region {
            start,
            length,
            used: AtomicUsize::new(CHUNK_HEAD_LENGTH),
        }));
        // If another thread was first, ours stays empty in the file.
        let _ = REGION.compare_exchange(region, new, Ordering::AcqRel, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_hash_is_new_once() {
        begin();
        let words = |last| hash([77, 1 << 40, last]);
        assert_eq!(
            (is_new(words(1)), is_new(words(1))),
            (Some(true), Some(false))
        );
        assert_eq!(is_new(words(2)), Some(true));
        assert_ne!(hash([0, 1]), hash([1, 0]));
        assert_ne!(hash([0]), hash([0, 0]));
    }
}
