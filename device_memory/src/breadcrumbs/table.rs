//! Which stream has which word.

use core::sync::atomic::{AtomicU32, Ordering};
use std::collections::HashMap;

use super::spacing;

/// Bytes of the words of a context, and the contexts that can have some.
pub(super) const PAGE: u64 = 16 << 10;
pub(super) const PAGES: u64 = 256;
/// Bytes from one word to the next.
const STRIDE: u64 = 8;

/// Context, and handle; that of a thread's default stream also has the thread.
pub(super) type StreamKey = (u64, u64);

/// A word in memory of the recorder, which is never unmapped.
#[derive(Clone, Copy, Debug)]
pub(super) struct Word {
    /// Where it is in the process.
    pub(super) address: u64,
    /// The address by which devices write it.
    pub(super) for_devices: u64,
}

impl Word {
    /// What it holds now.
    pub(super) fn read(self) -> u32 {
        // SAFETY: in the mapping of `Breadcrumbs::new`, which is never unmapped, and aligned.
        let word = unsafe { &*(self.address as *const AtomicU32) };
        word.load(Ordering::Acquire)
    }
}

/// The words of a context.
#[derive(Debug)]
struct Page {
    start: u64,
    for_devices: u64,
    /// Bytes that have been given to streams.
    used: u64,
    /// Words of streams that have ended, and their last values.
    retired: Vec<(Word, u32)>,
}

impl Page {
    /// A word that no stream has, and the value that it has or gets from its last one.
    fn take_word(&mut self) -> Option<(Word, u32)> {
        let mut retired = self.retired.iter();
        if let Some(at) = retired.position(|(word, last)| word.read() == *last) {
            return Some(self.retired.swap_remove(at));
        }
        let offset = self.used;
        if offset >= PAGE {
            return None;
        }
        self.used += STRIDE;
        let word = Word {
            address: self.start + offset,
            for_devices: self.for_devices + offset,
        };
        Some((word, 0))
    }
}

#[derive(Debug, Default)]
struct Stream {
    /// `None`: its context has no word left, or none yet.
    word: Option<Word>,
    /// The driver has refused to write it.
    is_refused: bool,
    /// A thread has taken a value that is not enqueued yet. Another one's could be enqueued before it,
    /// and the word would say that work is complete which is not.
    is_taken: bool,
    /// The last value that it is to write.
    last: u32,
    /// Launches since its last breadcrumb.
    launches: u32,
}

impl Stream {
    fn outstanding(&self) -> u32 {
        self.word
            .map_or(0, |word| self.last.wrapping_sub(word.read()))
    }
}

#[derive(Debug)]
pub(super) struct Table {
    start: u64,
    /// How many pages have been given to contexts.
    pages: u64,
    /// `None`: it has no words, or not yet.
    contexts: HashMap<u64, Option<Page>>,
    streams: HashMap<StreamKey, Stream>,
}

impl Table {
    /// With that memory of [`PAGES`] pages.
    pub(super) fn new(start: u64) -> Self {
        Self {
            start,
            pages: 0,
            contexts: HashMap::new(),
            streams: HashMap::new(),
        }
    }

    /// The page for a context that is not known yet, to be page-locked; none if all have been given
    /// away. A page stays with its context, because the device may still write there.
    pub(super) fn begin_context(&mut self, context: u64) -> Option<u64> {
        if context == 0 || self.contexts.contains_key(&context) {
            return None;
        }
        self.contexts.insert(context, None);
        let page = self.pages;
        if page >= PAGES {
            return None;
        }
        self.pages += 1;
        Some(self.start + page * PAGE)
    }

    pub(super) fn add_context(&mut self, context: u64, start: u64, for_devices: u64) {
        let page = Page {
            start,
            for_devices,
            used: 0,
            retired: Vec::new(),
        };
        self.contexts.insert(context, Some(page));
    }

    pub(super) fn end_context(&mut self, context: u64) {
        self.contexts.remove(&context);
        self.streams.retain(|key, _| key.0 != context);
    }

    pub(super) fn end_stream(&mut self, handle: u64) {
        let contexts = &mut self.contexts;
        self.streams.retain(|&(context, stream), state| {
            if stream != handle {
                return true;
            }
            if let (Some(word), Some(Some(page))) = (state.word, contexts.get_mut(&context)) {
                page.retired.push((word, state.last));
            }
            false
        });
    }

    fn stream(&mut self, key: StreamKey) -> &mut Stream {
        let stream = self.streams.entry(key).or_default();
        if stream.word.is_none()
            && !stream.is_refused
            && let Some(Some(page)) = self.contexts.get_mut(&key.0)
            && let Some((word, last)) = page.take_word()
        {
            (stream.word, stream.last) = (Some(word), last);
        }
        stream
    }

    /// Counts a launch; returns whether it gets a breadcrumb. `None` if the context is not known.
    pub(super) fn count_launch(&mut self, key: StreamKey, every: u32) -> Option<bool> {
        if !self.contexts.contains_key(&key.0) {
            return None;
        }
        let stream = self.stream(key);
        stream.launches = stream.launches.saturating_add(1);
        let is_due = spacing::is_due(stream.launches, stream.outstanding(), every);
        Some(stream.word.is_some() && is_due)
    }

    /// The next value of a stream's word, which is to be enqueued; `None` if it gets none now.
    pub(super) fn take(&mut self, key: StreamKey) -> Option<(Word, u32)> {
        let stream = self.stream(key);
        let word = stream.word?;
        if stream.is_taken || !spacing::has_room(stream.outstanding()) {
            return None;
        }
        stream.is_taken = true;
        stream.launches = 0;
        stream.last = stream.last.wrapping_add(1);
        Some((word, stream.last))
    }

    /// The value that was taken is enqueued.
    pub(super) fn enqueued(&mut self, key: StreamKey) {
        if let Some(stream) = self.streams.get_mut(&key) {
            stream.is_taken = false;
        }
    }

    /// The driver has refused to write the value that was taken.
    pub(super) fn refuse(&mut self, key: StreamKey) {
        let stream = self.stream(key);
        (stream.word, stream.is_refused) = (None, true);
    }

    /// The words of all streams.
    pub(super) fn words(&self) -> impl Iterator<Item = (StreamKey, Word)> + '_ {
        let streams = self.streams.iter();
        streams.filter_map(|(&key, stream)| Some((key, stream.word?)))
    }

    /// Whether a stream has not written its last value.
    pub(super) fn is_any_behind(&self) -> bool {
        self.streams
            .values()
            .any(|stream| stream.outstanding() != 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A table over memory of the test's, which stands for that which devices write.
    fn table(memory: &[AtomicU32]) -> Table {
        let mut table = Table::new(memory.as_ptr() as u64);
        let page = table.begin_context(7).expect("a page");
        table.add_context(7, page, page + 0x1000);
        table
    }

    #[test]
    fn words_are_reused_when_they_have_their_last_value() {
        let memory: Vec<AtomicU32> = (0..PAGE).map(|_| AtomicU32::new(0)).collect();
        let mut table = table(&memory);
        let (first, value) = table.take((7, 0x51)).expect("a word");
        assert_eq!((value, first.for_devices), (1, first.address + 0x1000));
        table.end_stream(0x51);
        // The old stream will still write.
        let (second, value) = table.take((7, 0x52)).expect("a word");
        assert_eq!((value, second.address), (1, first.address + STRIDE));
        memory[0].store(1, Ordering::Relaxed);
        let (third, value) = table.take((7, 0x53)).expect("a word");
        assert_eq!((value, third.address), (2, first.address));
        assert!(table.is_any_behind());
        assert_eq!(table.words().count(), 2);
        table.end_context(7);
        assert!(!table.is_any_behind());
        assert!(table.take((7, 0x54)).is_none());
    }

    #[test]
    fn values_are_enqueued_in_their_order() {
        let memory: Vec<AtomicU32> = (0..PAGE).map(|_| AtomicU32::new(0)).collect();
        let mut table = table(&memory);
        let one = (7, 0x51);
        assert_eq!(table.take(one).expect("a word").1, 1);
        // Another thread, before the first one has enqueued its value.
        assert_eq!(table.count_launch(one, 1), Some(true));
        assert!(table.take(one).is_none());
        assert!(table.take((7, 0x52)).is_some());
        table.enqueued(one);
        assert_eq!(table.count_launch(one, 1), Some(true));
        assert_eq!(table.take(one).expect("a word").1, 2);
        table.end_stream(one.1);
        table.enqueued(one);
        assert!(table.take(one).is_some());
    }

    #[test]
    fn contexts_and_streams_without_words_get_none() {
        let memory: Vec<AtomicU32> = (0..PAGE).map(|_| AtomicU32::new(0)).collect();
        let mut table = table(&memory);
        assert!(table.begin_context(7).is_none(), "it is known");
        assert!(table.begin_context(0).is_none());
        for stream in 0..PAGE / STRIDE {
            assert!(table.take((7, 0x1000 + stream)).is_some(), "{stream}");
        }
        assert!(table.take((7, 0x51)).is_none(), "the page is full");
        assert_eq!(table.count_launch((7, 0x51), 1), Some(false));
        table.refuse((7, 0x1000));
        assert_eq!(table.count_launch((7, 0x1000), 1), Some(false));
        assert_eq!(table.count_launch((7, 0x1001), 1), Some(true));
        assert_eq!(table.count_launch((6, 0x51), 1), None);
        // A word that comes later.
        let page = table.begin_context(6).expect("a page");
        assert_eq!(table.count_launch((6, 0x51), 1), Some(false));
        table.add_context(6, page, page);
        assert_eq!(table.count_launch((6, 0x51), 1), Some(true));
        for context in 8..6 + PAGES {
            assert!(table.begin_context(context).is_some(), "{context}");
        }
        assert!(table.begin_context(0xfff).is_none(), "no page is left");
    }
}
