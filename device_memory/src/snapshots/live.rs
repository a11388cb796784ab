//! The device memory that a snapshot reads: what the process has allocated, and variables of
//! modules whose addresses it has asked for.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

/// Live memory, and the contexts in which work may run.
#[derive(Debug, Default)]
pub(super) struct Live {
    /// By address.
    ranges: BTreeMap<u64, Range>,
    /// Mapped physical memory of this process: bytes by address.
    mapped: BTreeMap<u64, u64>,
    /// Handles of physical memory that this process has created.
    physical: HashSet<u64>,
    pub(super) contexts: BTreeSet<u64>,
    /// The context in which the memory is page-locked that device memory is copied to. It is as long
    /// as the context lives.
    pub(super) staging_of: Option<u64>,
    /// What calls in progress end, by thread.
    ending: HashMap<u64, Ending>,
}

/// Memory by address, and a context.
#[derive(Debug)]
struct Ending {
    ranges: Vec<(u64, Range)>,
    context: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Range {
    pub(super) length: u64,
    pub(super) context: u64,
    /// The module or library of a variable; else 0.
    pub(super) owner: u64,
}

impl Live {
    /// Addresses and lengths of memory, by context.
    pub(super) fn by_context(&self) -> BTreeMap<u64, Vec<(u64, u64)>> {
        let mut all = BTreeMap::<_, Vec<_>>::new();
        for (&start, range) in &self.ranges {
            all.entry(range.context)
                .or_default()
                .push((start, range.length));
        }
        all
    }

    /// The memory that words point into, by context: all of it, or if it is longer, so many bytes from
    /// the addresses on. Variables are left out.
    pub(super) fn reached(&self, words: &[u64], long: u64) -> BTreeMap<u64, Vec<(u64, u64)>> {
        /// Starts of parts are multiples of this.
        const PART: u64 = 256;
        let mut parts = BTreeMap::<_, Vec<(u64, u64)>>::new();
        for &word in words {
            let Some((&start, range)) = self.ranges.range(..=word).next_back() else {
                continue;
            };
            let end = start.saturating_add(range.length);
            if word >= end || range.owner != 0 {
                continue;
            }
            let part = match range.length <= long {
                true => (start, end),
                false => {
                    let first = start + (word - start) / PART * PART;
                    (first, first.saturating_add(long).min(end))
                }
            };
            parts.entry(range.context).or_default().push(part);
        }
        for parts in parts.values_mut() {
            parts.sort_unstable();
            parts.dedup_by(|later, earlier| {
                let joins = later.0 < earlier.1;
                if joins {
                    earlier.1 = earlier.1.max(later.1);
                }
                joins
            });
            for (start, end) in parts {
                *end -= *start;
            }
        }
        parts
    }

    pub(super) fn insert(&mut self, start: u64, range: Range) {
        if start != 0 && range.length != 0 {
            self.ranges.insert(start, range);
        }
    }

    /// Memory that a call of a thread is about to free. Before the call returns, the driver may give
    /// its address to another thread.
    pub(super) fn begin_free(&mut self, thread: u64, start: u64) {
        let ranges = self.ranges.remove_entry(&start).into_iter().collect();
        let context = None;
        self.ending.insert(thread, Ending { ranges, context });
    }

    /// The same for the variables of a module or a library.
    pub(super) fn begin_unload(&mut self, thread: u64, owner: u64) {
        let ranges = self.take(|range| range.owner == owner);
        let context = None;
        self.ending.insert(thread, Ending { ranges, context });
    }

    /// The same for a context.
    pub(super) fn begin_end(&mut self, thread: u64, context: u64) {
        let ranges = self.take(|range| range.context == context);
        self.staging_of.take_if(|of| *of == context);
        let context = self.contexts.take(&context);
        self.ending.insert(thread, Ending { ranges, context });
    }

    fn take(&mut self, is_it: impl Fn(&Range) -> bool) -> Vec<(u64, Range)> {
        let taken = self.ranges.extract_if(.., |_, range| is_it(range));
        taken.collect()
    }

    /// The call of a thread has returned: what it was to end has ended, or is there as before.
    pub(super) fn returned(&mut self, thread: u64, has_succeeded: bool) {
        let ending = self.ending.remove(&thread);
        if let Some(ending) = ending.filter(|_| !has_succeeded) {
            self.ranges.extend(ending.ranges);
            self.contexts.extend(ending.context);
        }
    }

    /// A context has ended, whose handle no other gets: a primary one.
    pub(super) fn end_context(&mut self, context: u64) {
        self.contexts.remove(&context);
        self.staging_of.take_if(|of| *of == context);
        self.ranges.retain(|_, range| range.context != context);
    }

    pub(super) fn created(&mut self, handle: u64) {
        self.physical.insert(handle);
    }

    /// A handle that may be that of memory which was released is now another process's memory.
    pub(super) fn imported(&mut self, handle: u64) {
        self.physical.remove(&handle);
    }

    pub(super) fn map(&mut self, start: u64, length: u64, handle: u64) {
        if self.physical.contains(&handle) {
            self.mapped.insert(start, length);
        }
    }

    /// The device of a context can access these addresses.
    pub(super) fn set_access(&mut self, start: u64, length: u64, context: u64) {
        let end = start.saturating_add(length);
        for (&start, &length) in self.mapped.range(start..end) {
            let owner = 0;
            self.ranges.entry(start).or_insert(Range {
                length,
                context,
                owner,
            });
        }
    }

    pub(super) fn unmap(&mut self, start: u64, length: u64) {
        let is_inside = |at: &u64| (start..start.saturating_add(length)).contains(at);
        self.mapped.retain(|at, _| !is_inside(at));
        self.ranges.retain(|at, _| !is_inside(at));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONTEXT: u64 = 7;
    const THREAD: u64 = 3;

    fn starts(live: &Live) -> Vec<(u64, u64)> {
        live.by_context().into_values().flatten().collect()
    }

    fn range(length: u64, context: u64, owner: u64) -> Range {
        Range {
            length,
            context,
            owner,
        }
    }

    #[test]
    fn memory_lives_as_long_as_its_allocation_module_and_context() {
        let mut live = Live::default();
        live.insert(0, range(16, CONTEXT, 0));
        live.insert(0x1000, range(0, CONTEXT, 0));
        live.insert(0x2000, range(16, CONTEXT, 0));
        live.insert(0x3000, range(4, CONTEXT, 5));
        live.insert(0x4000, range(8, CONTEXT + 1, 0));
        assert_eq!(starts(&live), [(0x2000, 16), (0x3000, 4), (0x4000, 8)]);
        let ends: [fn(&mut Live); 3] = [
            |live| live.begin_unload(THREAD, 5),
            |live| live.begin_free(THREAD, 0x2000),
            |live| live.begin_end(THREAD, CONTEXT + 1),
        ];
        for end in ends {
            let before = starts(&live);
            end(&mut live);
            assert_eq!(starts(&live).len() + 1, before.len());
            live.returned(THREAD, false);
            assert_eq!(starts(&live), before, "the call failed");
            end(&mut live);
            live.returned(THREAD, true);
            assert_eq!(starts(&live).len() + 1, before.len());
        }
        live.insert(0x5000, range(8, CONTEXT, 0));
        live.end_context(CONTEXT);
        assert_eq!(starts(&live), []);
    }

    #[test]
    fn words_reach_memory() {
        let mut live = Live::default();
        live.insert(0x1000, range(0x100, CONTEXT, 0));
        live.insert(0x1100, range(0x10, CONTEXT, 0));
        live.insert(0x2000, range(0x10, CONTEXT, 5));
        live.insert(0x10000, range(0x10000, CONTEXT + 1, 0));
        let reached = |words: &[u64]| live.reached(words, 0x1000);
        assert_eq!(reached(&[0, 0xfff, 0x1110, 0x2008]), BTreeMap::new());
        let parts = vec![(0x1000, 0x100), (0x1100, 0x10)];
        let words = [0x1100, 0x10ff, 7, 0x1000];
        assert_eq!(reached(&words), BTreeMap::from([(CONTEXT, parts)]));
        // Of long memory, what follows each address.
        let words = [0x1f_fff, 0x10_180, 0x11_0ff, 0x15_000];
        let parts = vec![(0x10_100, 0x1f00), (0x15_000, 0x1000), (0x1f_f00, 0x100)];
        assert_eq!(reached(&words), BTreeMap::from([(CONTEXT + 1, parts)]));
    }

    #[test]
    fn an_address_and_a_handle_are_used_again_before_the_call_returns() {
        let mut live = Live::default();
        live.insert(0x1000, range(16, CONTEXT, 0));
        live.begin_free(THREAD, 0x1000);
        // Another thread gets it.
        live.insert(0x1000, range(32, CONTEXT, 0));
        live.returned(THREAD, true);
        assert_eq!(starts(&live), [(0x1000, 32)]);
        live.contexts.insert(CONTEXT);
        live.begin_end(THREAD, CONTEXT);
        assert!(live.contexts.is_empty());
        live.contexts.insert(CONTEXT);
        live.returned(THREAD, true);
        assert!(live.contexts.contains(&CONTEXT));
    }

    #[test]
    fn mapped_memory_is_read_if_this_process_has_created_it_and_can_access_it() {
        let mut live = Live::default();
        let page = 2 << 20;
        live.created(5);
        live.created(6);
        live.imported(6);
        live.map(page, page, 5);
        live.map(2 * page, page, 6);
        assert_eq!(starts(&live), []);
        live.set_access(page, 2 * page, CONTEXT);
        assert_eq!(starts(&live), [(page, page)]);
        live.unmap(page, page);
        assert_eq!(starts(&live), []);
        live.set_access(page, page, CONTEXT);
        assert_eq!(starts(&live), [], "it is no longer mapped");
    }
}
