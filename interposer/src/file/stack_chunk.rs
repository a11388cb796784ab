//! Chunks of call stacks, which all threads fill.

use cutape_format::layout::{CHUNK_ALIGNMENT, chunk_kind};

use super::{thread_buffer, trace_file};
use crate::process::errno::Errno;

const LENGTH: u64 = 256 << 10;

/// Makes a chunk. Returns its start and its bytes, head included; `None` if the file cannot grow.
/// It stays mapped and open until the process ends.
pub(crate) fn open() -> Option<(*mut u8, usize)> {
    let _errno = Errno::keep();
    let (position, _) = trace_file::claim(LENGTH, CHUNK_ALIGNMENT)?;
    let start = trace_file::map(position, LENGTH as usize)?;
    if !thread_buffer::populate(start, LENGTH as usize) {
        // SAFETY: the mapping that was just made; no reference to it exists.
        unsafe { libc::munmap(start.cast(), LENGTH as usize) };
        return None;
    }
    let head = trace_file::head(chunk_kind::STACKS, LENGTH).encode();
    // SAFETY: the chunk is longer than its head, and ours.
    unsafe { core::ptr::copy_nonoverlapping(head.as_ptr(), start, head.len()) };
    Some((start, LENGTH as usize))
}
