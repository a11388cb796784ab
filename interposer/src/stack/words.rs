//! The words of a stack that is being taken.

use core::mem::MaybeUninit;

use cutape_format::layout::{python_frame, stack_flag};

use super::store;

/// Deeper stacks are cut.
pub(super) const MOST_NATIVE: usize = 256;
pub(super) const MOST_PYTHON: usize = 160;
const MOST_WORDS: usize = 2 * MOST_PYTHON + MOST_NATIVE;

/// Where the words are. Not initialised before they are used, which would take longer than to follow
/// ten frames.
pub(super) type Space = [MaybeUninit<u64>; MOST_WORDS];

pub(super) const NO_WORDS: Space = [const { MaybeUninit::uninit() }; MOST_WORDS];

/// The words of the frames so far.
pub(super) struct Words<'s> {
    words: &'s mut Space,
    count: usize,
    /// The frames do not reach the thread's start.
    pub(super) is_cut: bool,
}

impl<'s> Words<'s> {
    #[inline]
    pub(super) fn new(space: &'s mut Space) -> Self {
        Self {
            words: space,
            count: 0,
            is_cut: false,
        }
    }

    /// Appends a word; false if there is no room.
    #[inline]
    pub(super) fn push(&mut self, word: u64) -> bool {
        let place = self.words.get_mut(self.count);
        let has_room = place.map(|place| place.write(word)).is_some();
        self.count += usize::from(has_room);
        has_room
    }

    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// Forgets the words behind the first `count`.
    pub(super) fn truncate(&mut self, count: usize) {
        self.count = count.min(self.count);
    }

    pub(super) fn all(&self) -> &[u64] {
        let words = self.words.get(..self.count).unwrap_or_default();
        // SAFETY: `push` has written the first `count`.
        unsafe { words.assume_init_ref() }
    }

    /// The next frame of Python runs in another native frame than the last one.
    pub(super) fn mark_last_of_native(&mut self) {
        if let Some(place) = self
            .count
            .checked_sub(2)
            .and_then(|at| self.words.get_mut(at))
        {
            // SAFETY: `push` has written it.
            let word = unsafe { place.assume_init() };
            place.write(word | python_frame::LAST_OF_NATIVE);
        }
    }

    pub(super) fn flags(&self) -> u64 {
        if self.is_cut { stack_flag::CUT } else { 0 }
    }

    pub(super) fn id(&self) -> u64 {
        store::hash(self.all().iter().copied().chain([self.flags(), 2]))
    }
}
