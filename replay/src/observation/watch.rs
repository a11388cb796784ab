//! Watched memory: what it held last, and which calls have changed it.

use cutape_driver::dirty::{self, PAGE};

use crate::api::{Api, Code, result_name};
use crate::observation::dirty_table::Tables;
use crate::observation::job::{
    Change, MemoryKind, Moment, ObservedLaunch, Seen, WatchedRange, Writer,
};
use crate::observation::memory::Region;

/// Up to that many bytes are read after every call that may change them. Of more, the device finds
/// the pages that have changed.
pub const EXACT: u64 = 64 << 10;
/// The most bytes of a change that are kept, from the first changed one on.
const SHOWN: usize = 256;
/// The most parts of a change that are told apart: as many as `EXACT` bytes can have.
const MOST_PARTS: usize = EXACT as usize / 2;

/// What a range held when it was looked at last.
#[derive(Debug, Default)]
enum Held {
    /// It was not looked at.
    #[default]
    Unknown,
    Bytes(Vec<u8>),
    /// It has pages in the table of a live context, from a position on.
    Pages(u64, u64),
}

#[derive(Debug)]
struct Watched {
    seen: Seen,
    region: Option<Region>,
    held: Held,
    /// Why it could not be looked at last.
    failed: Option<String>,
}

/// Which changes of a range are kept.
#[derive(Clone, Copy, Debug, Default)]
struct Keep {
    most: usize,
    /// The first ones from this call on, instead of the last ones.
    first: Option<u64>,
}

/// The memory that an observation watches.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    watched: Vec<Watched>,
    keep: Keep,
    /// The first call with work after which nobody has looked.
    pub(crate) since: Option<u64>,
    /// Host memory may have changed since somebody looked.
    pub(crate) is_host_due: bool,
    /// Of long ranges in device memory.
    tables: Tables,
    /// The number of the last look at them.
    number: u64,
    has_begun: bool,
    /// What could not be looked at, and why.
    pub(crate) left_out: Vec<String>,
}

impl Held {
    /// Looks at a region; what has changed since it was looked at last.
    fn look(
        &mut self,
        api: &Api,
        region: &Region,
        (tables, number): (&mut Tables, u64),
    ) -> Result<Option<Change>, Code> {
        if region.length <= EXACT || region.kind != MemoryKind::Device {
            let mut now = Vec::new();
            region.read(api, 0, &mut now, region.length as usize)?;
            let change = match &*self {
                Self::Bytes(before) => difference(before, &now),
                _ => None,
            };
            *self = Self::Bytes(now);
            return Ok(change);
        }
        let context = match region.context {
            0 => api.current_context()?,
            context => context,
        };
        let at = match *self {
            Self::Pages(of, at) if of == context => Some(at),
            _ => None,
        };
        api.in_context(context, |api| {
            let table = tables.make(api, context)?;
            let Some(at) = at else {
                *self = Self::Pages(context, table.add(api, region.live, region.length)?);
                return Ok(None);
            };
            let pages = at..at + region.length.div_ceil(PAGE);
            if table.look_at(api, pages.clone(), number)?.pages == 0 {
                return Ok(None);
            }
            let changed = table.changed(api, pages, number)?;
            let mut parts = Vec::new();
            for page in changed {
                add_part(&mut parts, page.address - region.live, page.length.into());
            }
            Ok(Some(Change {
                parts,
                in_pages: true,
                ..Change::default()
            }))
        })
    }

    /// Forgets what was there, which has ended.
    fn forget(&mut self, length: u64, tables: &mut Tables) {
        if let Self::Pages(context, at) = *self
            && let Some(table) = tables.get(context)
        {
            table.release(at, length);
        }
        *self = Self::Unknown;
    }
}

impl Watched {
    /// It lies in that memory from now on, a part of a whole; true if that begins.
    fn place(
        &mut self,
        call: u64,
        found: Option<(Region, Region)>,
        keep: Keep,
        tables: &mut Tables,
    ) -> bool {
        let identity = |region: &Region| (region.made, region.live, region.length);
        let known = self.region.as_ref().map(identity);
        if found.as_ref().map(|(part, _)| identity(part)) == known {
            return false;
        }
        let parts = vec![(0, self.seen.range.length)];
        let change = |by| Change {
            call,
            since: call,
            by,
            parts: parts.clone(),
            ..Change::default()
        };
        if let Some((_, _, length)) = known {
            self.held.forget(length, tables);
            self.seen.add(change(Writer::Ends), keep);
        }
        if let Some((_, whole)) = &found {
            self.seen.add(change(Writer::Begins), keep);
            self.seen.kind = Some(whole.kind);
            self.seen.made = Some((whole.name.clone(), whole.made, whole.recorded, whole.length));
        }
        self.region = found.map(|(part, _)| part);
        self.region.as_ref().is_some_and(|part| part.length > 0)
    }
}

impl Watch {
    /// Watches ranges, and keeps the last changes of each; or the first ones from a call on.
    pub(crate) fn new(ranges: &[WatchedRange], most: usize, first: Option<u64>) -> Self {
        let watched = |&range: &WatchedRange| Watched {
            seen: Seen {
                range,
                ..Seen::default()
            },
            region: None,
            held: Held::Unknown,
            failed: None,
        };
        Self {
            watched: ranges.iter().map(watched).collect(),
            keep: Keep {
                most: most.max(1),
                first,
            },
            tables: Tables::new([dirty::NEVER; 4]),
            ..Self::default()
        }
    }

    /// Whether anything is watched.
    #[inline]
    pub(crate) fn is_active(&self) -> bool {
        !self.watched.is_empty()
    }

    /// Whether one of the ranges lies in memory that lives.
    pub(crate) fn has_memory(&self) -> bool {
        self.watched.iter().any(|one| one.region.is_some())
    }

    /// Whether changes by a call are wanted.
    pub(crate) fn is_wanted(&self, call: u64) -> bool {
        self.keep.first.is_none_or(|first| call >= first)
    }

    /// Whether nobody has looked yet, and the changes that are wanted begin with a call.
    pub(crate) fn begins_with(&self, call: u64) -> bool {
        let is_wanted = self.keep.first.is_some_and(|first| call >= first);
        is_wanted && !self.has_begun && self.has_memory()
    }

    /// Contexts have ended.
    pub(crate) fn end_contexts(&mut self, lives: impl Fn(u64) -> bool) {
        for one in &mut self.watched {
            if matches!(one.held, Held::Pages(context, _) if !lives(context)) {
                one.held = Held::Unknown;
            }
        }
        self.tables.retain(lives);
    }

    /// Whether one of the ranges lies in some memory.
    pub(crate) fn is_in(&self, whole: &Region) -> bool {
        self.watched.iter().any(|one| whole.has(one.seen.range))
    }

    /// Finds the ranges again after a call that may have made or ended memory; true if one begins,
    /// so that it has to be looked at.
    pub(crate) fn place(
        &mut self,
        call: u64,
        find: impl Fn(WatchedRange) -> Option<(Region, Region)>,
    ) -> bool {
        let mut begins = false;
        for one in &mut self.watched {
            if !one.seen.range.is_over(Writer::Begins.moment(call)) {
                begins |= one.place(call, find(one.seen.range), self.keep, &mut self.tables);
            }
        }
        begins
    }

    /// Some memory begins in a call.
    pub(crate) fn begin(&mut self, call: u64, whole: &Region) {
        for one in &mut self.watched {
            let range = one.seen.range;
            // What a later node reads of it is wanted, too.
            if whole.has(range) && !range.is_over(Writer::Host.moment(call)) {
                let found = Some((whole.of_range(range), whole.clone()));
                one.place(call, found, self.keep, &mut self.tables);
            }
        }
    }

    /// Some memory ends in a call.
    pub(crate) fn end(&mut self, call: u64, whole: &Region) {
        for one in &mut self.watched {
            let is_in = one
                .region
                .as_ref()
                .is_some_and(|region| region.is_in(whole));
            if is_in && !one.seen.range.is_over(Writer::Ends.moment(call)) {
                one.place(call, None, self.keep, &mut self.tables);
            }
        }
    }

    /// Looks at all ranges, or at those in host memory; what has changed was changed by `by`.
    /// Returns whether something has. All work must be done.
    pub(crate) fn look(&mut self, api: &Api, call: u64, by: &Writer, is_host_only: bool) -> bool {
        let mut has_changed = false;
        let since = self.since.unwrap_or(call);
        self.has_begun = true;
        self.number += 1;
        for one in &mut self.watched {
            let Some(region) = &one.region else { continue };
            if one.seen.range.is_over(by.moment(call)) {
                continue;
            }
            if is_host_only && !matches!(region.kind, MemoryKind::Host | MemoryKind::Managed) {
                continue;
            }
            match one.held.look(api, region, (&mut self.tables, self.number)) {
                Ok(change) => {
                    // Mapped memory can be read once access to it is set.
                    one.failed = None;
                    has_changed |= change.is_some();
                    let change = change.map(|change| Change {
                        call,
                        since,
                        by: by.clone(),
                        ..change
                    });
                    if let Some(change) = change {
                        one.seen.add(change, self.keep);
                    }
                }
                Err(code) => {
                    let (what, why) = (region.describe(), result_name(code));
                    one.failed = Some(format!(
                        "{what}: looking at it after call {call} returned {why}"
                    ));
                    one.held.forget(region.length, &mut self.tables);
                }
            }
        }
        has_changed
    }

    /// Gives the last changes, which a kernel has made, its parameters: numbers and live words.
    pub(crate) fn add_parameters(&mut self, call: u64, by: &Writer, launch: &ObservedLaunch) {
        let is_of = |change: &&mut Change| change.call == call && change.by == *by;
        let last = self
            .watched
            .iter_mut()
            .filter_map(|one| one.seen.last.back_mut());
        for change in last.filter(is_of) {
            change.pointers = words(launch).collect();
        }
    }

    /// Keeps of the words of parameters those that point into memory, as recorded.
    pub(crate) fn resolve_parameters(&mut self, call: u64, recorded: impl Fn(u64) -> Option<u64>) {
        for one in &mut self.watched {
            let changes = one.seen.last.iter_mut().rev();
            for change in changes.take_while(|change| change.call == call) {
                let pointers = change.pointers.iter();
                let pointers = pointers.filter_map(|&(at, live)| Some((at, recorded(live)?)));
                change.pointers = pointers.collect();
            }
        }
    }

    /// The call of the last change.
    pub(crate) fn last_change(&self) -> Option<u64> {
        let last = self.watched.iter().filter_map(|one| one.seen.last.back());
        last.map(|change| change.call).max()
    }

    /// Keeps what was seen of memory that began with a call, after looking at it.
    pub(crate) fn keep_first(&mut self, call: u64) {
        for one in &mut self.watched {
            let held = match &one.held {
                Held::Bytes(bytes) => bytes.get(..SHOWN).unwrap_or(bytes).to_vec(),
                _ => Vec::new(),
            };
            if let Some(last) = one.seen.last.back_mut()
                && last.by == Writer::Begins
                && last.call == call
            {
                last.after = held;
            }
        }
    }

    /// Forgets the changes so far.
    pub(crate) fn forget(&mut self) {
        for one in &mut self.watched {
            one.seen.count = 0;
            one.seen.last.clear();
        }
    }

    /// What was seen of each range, and what was left out.
    pub(crate) fn finish(self) -> (Vec<Seen>, Vec<String>) {
        let mut left_out = self.left_out;
        left_out.extend(self.since.map(|call| {
            format!(
                "changes by call {call} and later ones: a stream was capturing, may wait for values in \
                 memory, or its work did not end"
            )
        }));
        let seen = self.watched.into_iter().map(|one| {
            left_out.extend(one.failed);
            one.seen
        });
        let seen = seen.collect();
        (seen, left_out)
    }
}

impl WatchedRange {
    fn is_over(&self, moment: Moment) -> bool {
        self.until.is_some_and(|until| moment >= until)
    }
}

impl Seen {
    fn add(&mut self, change: Change, keep: Keep) {
        self.count += 1;
        let is_full = self.last.len() >= keep.most;
        match keep.first {
            Some(first) => {
                let is_of_contents = !matches!(change.by, Writer::Begins | Writer::Ends);
                if is_full || change.call < first || !is_of_contents {
                    return;
                }
            }
            None if is_full => {
                self.last.pop_front();
            }
            None => {}
        }
        self.last.push_back(change);
    }
}

/// What differs between two looks; `None` if nothing.
fn difference(before: &[u8], after: &[u8]) -> Option<Change> {
    let parts = changed_parts(before, after);
    // Numbers of all types are whole.
    let at = parts.first()?.0 & !7;
    let shown = |bytes: &[u8]| {
        let end = bytes.len().min(at as usize + SHOWN);
        bytes.get(at as usize..end).unwrap_or_default().to_vec()
    };
    Some(Change {
        at,
        before: shown(before),
        after: shown(after),
        parts,
        ..Change::default()
    })
}

/// The words of a kernel's parameters, with the numbers of these.
fn words(launch: &ObservedLaunch) -> impl Iterator<Item = (u32, u64)> {
    (0..).zip(&launch.layout).flat_map(|(at, &(offset, size))| {
        let end = offset.saturating_add(size) as usize;
        let bytes = launch.parameters.get(offset as usize..end);
        let words = bytes.unwrap_or_default().as_chunks::<8>().0;
        words
            .iter()
            .map(move |word| (at, u64::from_le_bytes(*word)))
    })
}

/// The parts that differ, as offset and length.
fn changed_parts(before: &[u8], after: &[u8]) -> Vec<(u64, u64)> {
    let mut parts = Vec::new();
    for (at, _) in (0..)
        .zip(before.iter().zip(after))
        .filter(|(_, (a, b))| a != b)
    {
        add_part(&mut parts, at, 1);
    }
    parts
}

/// Adds a part after all others, and joins it to one that it follows; the last one takes what is too
/// many.
fn add_part(parts: &mut Vec<(u64, u64)>, at: u64, length: u64) {
    let is_full = parts.len() >= MOST_PARTS;
    match parts.last_mut() {
        Some((start, known)) if is_full || *start + *known == at => *known = at + length - *start,
        _ => parts.push((at, length)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changed_bytes_are_told_apart() {
        for (before, after, expected) in [
            (&b"abc"[..], &b"abc"[..], &[][..]),
            (b"abcdef", b"xbcyyf", &[(0, 1), (3, 2)]),
            (b"", b"", &[]),
        ] {
            assert_eq!(changed_parts(before, after), expected);
        }
        let many = changed_parts(&[0; 1000], &[1, 0].repeat(500));
        assert_eq!((many.len(), many.last()), (500, Some(&(998, 1))));
        let many = changed_parts(&[0; 2 * MOST_PARTS + 8], &[1, 0].repeat(MOST_PARTS + 4));
        let last = (2 * MOST_PARTS as u64 - 2, 9);
        assert_eq!((many.len(), many.last()), (MOST_PARTS, Some(&last)));
    }

    #[test]
    fn changes_are_wanted_from_a_call_on() {
        let range = WatchedRange {
            address: 0x1010,
            length: 8,
            until: None,
        };
        for (first, call, expected) in [(None, 0, true), (Some(8), 7, false), (Some(8), 8, true)] {
            let mut watch = Watch::new(&[range], 1, first);
            assert!(!watch.begins_with(call), "without memory");
            let whole = Region::mapped((0x1000, 0x1000), 0x100, 1);
            watch.place(1, |_| Some((whole.part(0x1010, 0x1018), whole.clone())));
            assert_eq!(watch.is_wanted(call), expected);
            assert_eq!(watch.begins_with(call), expected && first.is_some());
        }
    }

    #[test]
    fn the_last_changes_are_kept_and_all_are_counted() {
        let mut seen = Seen::default();
        for call in 0..5 {
            let change = Change {
                call,
                ..Change::default()
            };
            let keep = Keep {
                most: 2,
                first: None,
            };
            seen.add(change, keep);
        }
        let calls: Vec<u64> = seen.last.iter().map(|change| change.call).collect();
        assert_eq!((seen.count, calls), (5, vec![3, 4]));
    }

    #[test]
    fn memory_begins_and_ends() {
        let range = WatchedRange {
            address: 0x1010,
            length: 8,
            until: None,
        };
        let mut watch = Watch::new(&[range], 9, None);
        let whole = Region::mapped((0x1000, 0x1000), 0x100, 7);
        let part = whole.part(0x1010, 0x1018);
        let find = |_| Some((part.clone(), whole.clone()));
        assert!(watch.place(7, find));
        assert!(!watch.place(8, find), "nothing new");
        assert!(!watch.place(9, |_| None));
        let (seen, _) = watch.finish();
        let by: Vec<_> = seen[0]
            .last
            .iter()
            .map(|change| (change.call, &change.by))
            .collect();
        assert_eq!(by, [(7, &Writer::Begins), (9, &Writer::Ends)]);
        assert_eq!(seen[0].made, Some(("cuMemMap".into(), 7, 0x1000, 0x100)));
    }
}
