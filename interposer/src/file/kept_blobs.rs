//! Blobs of the trace by the memory that they were read from: bytes that have not changed since are
//! not written again. A program that copies the same large buffers in a loop would otherwise spend
//! most of its time in writing the trace.

use std::collections::HashMap;
use std::sync::OnceLock;

use cutape_format::control::Control;
use cutape_format::layout::{BlobRef, CHUNK_HEAD_LENGTH};

use super::rows::{Memory, NotKept, Rows};
use super::{mapping, trace_file};
use crate::process::errno::Errno;
use crate::process::memory::{self, Scratch};
use crate::process::process_lock::ProcessLock;

/// Shorter blobs are always written: that takes hardly longer than a comparison.
const SHORTEST: u64 = 64 << 10;
/// When there are as many, all are forgotten.
const MOST: usize = 1024;
/// Memory is copied in pieces of this length, which the processor's cache holds.
const PIECE: usize = 64 << 10;
/// Memory is compared in place in pieces of this length: so long is it kept from being freed.
const HELD_PIECE: usize = 1 << 20;

/// Runs a function while that many bytes at an address cannot be freed; false if it cannot tell.
pub(crate) type Holder = fn(u64, u64, &mut dyn FnMut()) -> bool;

static HOLDER: OnceLock<Holder> = OnceLock::new();

/// By the memory that they were read from.
static KEPT: ProcessLock<HashMap<Rows, Kept>> = ProcessLock::new();

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

/// The blob with what the memory holds: the one that was last read from there if it still does,
/// else a new one.
pub(crate) fn blob(memory: &(impl Memory + ?Sized)) -> Result<BlobRef, NotKept> {
    if memory.length() < SHORTEST {
        return trace_file::blob(memory);
    }
    let Some(key) = memory.key() else {
        return trace_file::blob(memory);
    };
    // Out of the table, so that other threads need not wait for the comparison.
    let known = KEPT.lock().remove(&key);
    let reuse_from = trace_file::control().map_or(0, Control::reuse_from);
    let known = known.filter(|kept| kept.blob.position >= reuse_from);
    let known = known.and_then(|mut kept| {
        let view = kept.view.take().or_else(|| View::of(kept.blob))?;
        let is_same = holds(memory, view.bytes());
        kept.view = Some(view);
        is_same.then_some(kept)
    });
    let kept = match known {
        Some(kept) => kept,
        None => Kept {
            blob: trace_file::blob(memory)?,
            view: None,
        },
    };
    let blob = kept.blob;
    let mut all = KEPT.lock();
    if all.len() >= MOST {
        all.clear();
    }
    all.insert(key, kept);
    Ok(blob)
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
