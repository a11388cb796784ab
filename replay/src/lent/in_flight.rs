//! Host memory that work in flight may still read or write: kept, or not touched, until the work
//! has been waited for.

use std::collections::{HashMap, VecDeque};

use rustc_hash::FxBuildHasher;

use crate::api::buffer::Buffer;

/// Host memory that is kept for copies in flight before the device is waited for.
const RETAINED_LIMIT: usize = 256 << 20;
/// Pieces of memory being read before the device is waited for.
const READS_LIMIT: usize = 1 << 16;

/// A moment: what was enqueued before it is done when a wait for all work that began then is over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Mark(u64);

/// What work in flight uses.
#[derive(Debug, Default)]
pub(crate) struct InFlight {
    /// Lent to asynchronous calls, in the order of their return.
    retained: VecDeque<(Mark, Buffer)>,
    retained_bytes: usize,
    /// Pinned bytes that copies may still read (first, behind the last), and when the last of them
    /// was enqueued.
    reads: HashMap<(u64, u64), Mark, FxBuildHasher>,
    now: u64,
}

impl InFlight {
    /// The present moment. A wait that begins later proves nothing about what is enqueued from here
    /// on.
    pub(crate) fn mark(&self) -> Mark {
        Mark(self.now)
    }

    /// Keeps memory that was lent to a call which has returned.
    pub(crate) fn retain(&mut self, buffers: impl IntoIterator<Item = Buffer>) {
        for buffer in buffers {
            self.retained_bytes += buffer.len();
            self.retained.push_back((Mark(self.now), buffer));
            self.now += 1;
        }
    }

    /// A copy that has been enqueued reads these bytes.
    pub(crate) fn reads(&mut self, start: u64, end: u64) {
        self.reads.insert((start, end), Mark(self.now));
        self.now += 1;
    }

    /// True if a copy in flight may read some of these bytes.
    pub(crate) fn may_read(&self, start: u64, end: u64) -> bool {
        self.reads
            .keys()
            .any(|&(first, behind)| start < behind && first < end)
    }

    /// All work of before that moment is done.
    pub(crate) fn done(&mut self, before: Mark) {
        while let Some((mark, buffer)) = self.retained.front() {
            if *mark >= before {
                break;
            }
            self.retained_bytes -= buffer.len();
            self.retained.pop_front();
        }
        if !self.reads.is_empty() {
            self.reads.retain(|_, mark| *mark >= before);
        }
    }

    /// True if so much is kept that the device should be waited for.
    pub(crate) fn is_full(&self) -> bool {
        self.retained_bytes > RETAINED_LIMIT || self.reads.len() > READS_LIMIT
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_enqueued_after_a_wait_began_is_kept() {
        let mut memory = InFlight::default();
        memory.retain([Buffer::zeroed(100), Buffer::zeroed(50)]);
        memory.reads(0x1000, 0x2000);
        memory.reads(0x5000, 0x6000);
        let mark = memory.mark();
        memory.retain([Buffer::zeroed(7)]);
        memory.reads(0x5000, 0x6000);
        assert_eq!(memory.retained_bytes, 157);
        memory.done(mark);
        assert_eq!(memory.retained_bytes, 7);
        for (start, end, expected) in [
            (0x1000, 0x1001, false),
            (0x5fff, 0x7000, true),
            (0x6000, 0x7000, false),
        ] {
            assert_eq!(memory.may_read(start, end), expected, "{start:#x}");
        }
        memory.done(memory.mark());
        assert_eq!(memory.retained_bytes, 0);
        assert!(!memory.may_read(0, u64::MAX) && !memory.is_full());
    }

    #[test]
    fn the_same_bytes_read_again_and_again_are_one_piece() {
        let mut memory = InFlight::default();
        for _ in 0..READS_LIMIT * 2 {
            memory.reads(8, 16);
        }
        assert!(!memory.is_full());
        memory.retain([Buffer::zeroed(RETAINED_LIMIT + 1)]);
        assert!(memory.is_full());
    }
}
