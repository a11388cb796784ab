//! Stores each distinct stack, and each code object of Python, once.

use core::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering};

use cutape_format::layout::{FramesNote, chunk_kind, note_kind};
use cutape_format::write::Record;

use crate::file::shared_chunk::SharedChunk;
use crate::process::memory::Scratch;

/// Places for the hashes of what is stored; a process with more than three quarters of that many
/// distinct stacks and code objects gets no further ones.
const PLACES: usize = 1 << 18;
const MOST: usize = PLACES / 4 * 3;
/// Longer records are left out.
pub(super) const LONGEST: usize = 128 << 10;

/// The places; NULL before `begin`. Never freed.
static STORED: AtomicPtr<AtomicU64> = AtomicPtr::new(core::ptr::null_mut());
static COUNT: AtomicUsize = AtomicUsize::new(0);

static CHUNK: SharedChunk = SharedChunk::new(chunk_kind::STACKS, 256 << 10);

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
    CHUNK.forget();
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
    if length > LONGEST {
        return None;
    }
    CHUNK.put(kind, length, build)
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
