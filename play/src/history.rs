//! The content of memory that host and device share, from look to look of the recorder; and what
//! work of the device has written by the call that proves it complete.
//!
//! That is what has changed since the recorder looked when the work was enqueued, whenever it found
//! that. The program may have written some of it, in other parts: what a running program has written
//! itself is left to it (`seen.rs`).

use std::cmp::Reverse;
use std::collections::{BTreeSet, VecDeque};
use std::ops::Range;

use cutape_format::{Call, Snapshot, Trace};
use cutape_model::{CompletedBy, CompletedWrite, ObjectId, WrittenValue, looked, looked_before};
use rustc_hash::{FxHashMap, FxHashSet};

/// The unit in which it is decided who has written memory, in bytes: the shortest value that a stream
/// writes.
pub(crate) const WORD: u64 = 4;

/// An allocation of the recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Memory {
    pub(crate) id: ObjectId,
    pub(crate) addresses: Range<u64>,
    /// A call with an address in it, and the address.
    pub(crate) named: (u64, u64),
}

/// Whether there can be memory for the content of an allocation and what is known of its words: a
/// recorder had it, a damaged trace may name any length.
pub(crate) fn fits(addresses: &Range<u64>) -> bool {
    let length = addresses.end.saturating_sub(addresses.start);
    let all = usize::try_from(length.saturating_mul(2 + 16 / WORD));
    all.is_ok_and(|all| Vec::<u8>::new().try_reserve_exact(all).is_ok())
}

/// What the recorder found in it.
#[derive(Clone)]
pub(crate) struct Look {
    pub(crate) memory: Memory,
    /// Where.
    pub(crate) address: u64,
    pub(crate) bytes: Snapshot<'static>,
    /// When it had read the bytes, in ticks.
    pub(crate) time: u64,
    /// The call and when it was entered; of looks after it.
    pub(crate) waited: Option<(u64, u64)>,
}

/// When the recorder had read the bytes that it found before a call, or after it, in ticks.
pub(crate) fn time_of_look(call: &Call<'_>, is_after: bool) -> u64 {
    let left = call.leave.map_or(u64::MAX, |leave| leave.ticks);
    match is_after {
        true => looked(call).unwrap_or(left),
        false => looked_before(call).unwrap_or(call.ticks),
    }
}

/// Bytes without gaps that the recorder found at one time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) address: u64,
    pub(crate) bytes: Vec<u8>,
    /// When it had read them, in ticks.
    pub(crate) found: u64,
}

/// What work has written to it.
#[derive(Clone)]
pub(crate) struct Written {
    pub(crate) memory: Memory,
    pub(crate) parts: Vec<Part>,
    /// Why the bytes are not known.
    pub(crate) missing: Option<String>,
    /// The last call whose work may have written it.
    pub(crate) call: u64,
}

/// A call that enqueues work.
#[derive(Clone, Copy, Default)]
pub(crate) struct Begun {
    /// When the recorder had looked before it, in ticks.
    pub(crate) looked: u64,
    /// The bytes are known without the recorder's looks.
    pub(crate) is_known: bool,
    /// It launches a graph.
    pub(crate) is_graph: bool,
}

/// Work that may write such memory.
pub(crate) struct Work {
    /// The call that enqueues it.
    call: u64,
    /// Its stream, by a number.
    stream: Option<u32>,
    /// Where it may write.
    bytes: Range<u64>,
    /// When the recorder had looked before it, in ticks.
    begun: u64,
    /// When the recorder had taken it in at the latest, in ticks.
    followed: u64,
    /// The call that may have told the program that it is complete.
    told: Option<u64>,
    /// The calls that prove it complete, and when.
    proofs: Vec<(u64, u64)>,
    /// The bytes are known without the recorder's looks.
    is_known: bool,
    /// It is of a graph, of which the recorder takes any memory to be written.
    is_graph: bool,
    /// It writes all of these bytes; before or after other work of the same call, of a graph.
    is_exact: bool,
}

/// Since when it is known what work has written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum At {
    /// Since that call, which proves it.
    Proof(u64),
    /// The program may know since the work of that call.
    Told(u64),
}

impl Work {
    /// That of all writes; `followed` says of a call when the recorder had taken it in.
    pub(crate) fn all(
        writes: &[CompletedWrite],
        begun: impl Fn(u64) -> Option<Begun>,
        followed: impl Fn(u64) -> u64,
    ) -> Vec<Self> {
        let mut proofs: FxHashMap<(u64, u64), Vec<(u64, u64)>> = FxHashMap::default();
        for one in writes {
            if let CompletedBy::Call(call, time) | CompletedBy::Also(call, time) = one.proof {
                let work = (one.write.call, one.write.bytes.start);
                proofs.entry(work).or_default().push((call, time));
            }
        }
        let mut later: FxHashMap<(u64, u64), u64> = FxHashMap::default();
        for one in writes {
            if let CompletedBy::With(call) = one.proof {
                later.insert((one.write.call, one.write.bytes.start), call);
            }
        }
        let proof = |mut call: u64, start: u64| {
            // Each is later than the one before.
            while let Some(&with) = later.get(&(call, start)).filter(|&&with| with > call) {
                call = with;
            }
            proofs.get(&(call, start)).cloned().unwrap_or_default()
        };
        let works = writes.iter();
        let works = works.filter(|one| !matches!(one.proof, CompletedBy::Also(..)));
        let works = works.filter_map(|CompletedWrite { write, stream, .. }| {
            let Begun {
                looked,
                is_known,
                is_graph,
            } = begun(write.call)?;
            Some(Self {
                call: write.call,
                stream: *stream,
                is_known,
                is_exact: write.is_exact,
                bytes: write.bytes.clone(),
                begun: looked,
                is_graph,
                followed: followed(write.call),
                told: write.known_since,
                proofs: proof(write.call, write.bytes.start),
            })
        });
        works.collect()
    }
}

impl Work {
    /// What has changed since then, it may have changed.
    fn since(&self) -> u64 {
        self.begun.saturating_add(1)
    }
}

fn overlap(one: &Range<u64>, other: &Range<u64>) -> bool {
    one.start < other.end && other.start < one.end
}

fn covers(one: &Range<u64>, other: &Range<u64>) -> bool {
    one.start <= other.start && other.end <= one.end
}

/// The content of an allocation, and when each word was found to have changed.
struct Content {
    memory: Memory,
    bytes: Vec<u8>,
    changed: Vec<u64>,
    last_change: u64,
    /// When the last work on each word began whose bytes are known.
    known: Vec<u64>,
    /// Why some of the bytes are not known.
    missing: Option<String>,
}

impl Content {
    fn of(memory: &Memory) -> Self {
        let Range { start, end } = memory.addresses;
        let words = end.div_ceil(WORD).saturating_sub(start / WORD) as usize;
        Self {
            memory: memory.clone(),
            // Bytes in no note are zero.
            bytes: vec![0; end.saturating_sub(start) as usize],
            changed: vec![0; words],
            known: vec![0; words],
            last_change: 0,
            missing: None,
        }
    }

    /// The address of a word.
    fn address(&self, word: usize) -> u64 {
        (self.memory.addresses.start / WORD + word as u64) * WORD
    }

    /// The part of a word, from the start of the memory.
    fn word(&self, word: usize) -> Range<usize> {
        let Range { start, end } = self.memory.addresses;
        let address = self.address(word);
        let offset = |address: u64| address.clamp(start, end).saturating_sub(start) as usize;
        offset(address)..offset(address.saturating_add(WORD))
    }

    /// The words that lie in a range of addresses, at least in part.
    fn words(&self, addresses: &Range<u64>) -> Range<usize> {
        let Range { start, end } = self.memory.addresses;
        let first = addresses.start.max(start);
        let end = addresses.end.min(end);
        if first >= end {
            return 0..0;
        }
        let word = |address: u64| address.saturating_sub(start / WORD * WORD);
        (word(first) / WORD) as usize..word(end).div_ceil(WORD) as usize
    }

    /// A stream has written a value: its first bytes, as many as there are.
    fn write(&mut self, bytes: &Range<u64>, value: u64) {
        let Range { start, end } = self.memory.addresses;
        if start <= bytes.start && bytes.end <= end {
            let at = bytes.start.saturating_sub(start) as usize;
            let there = self.bytes.get_mut(at..).unwrap_or_default();
            let length = bytes.end.saturating_sub(bytes.start) as usize;
            let there = there.iter_mut().take(length);
            there
                .zip(value.to_le_bytes())
                .for_each(|(to, from)| *to = from);
        }
    }

    /// Whether a value is there.
    fn has(&self, (bytes, value): &WrittenValue) -> bool {
        let offset = bytes.start.checked_sub(self.memory.addresses.start);
        let there = offset.and_then(|at| self.bytes.get(at as usize..));
        let length = bytes.end.saturating_sub(bytes.start) as usize;
        let there = there.and_then(|there| there.get(..length));
        there.is_some_and(|there| value.to_le_bytes().starts_with(there))
    }

    /// The recorder found bytes that the recording lacks, and why.
    fn miss(&mut self, look: &Look, why: String) {
        let end = look
            .address
            .saturating_add(look.bytes.bytes.length().unwrap_or(0));
        for word in self.words(&(look.address..end)) {
            if let Some(changed) = self.changed.get_mut(word) {
                *changed = look.time;
            }
        }
        self.last_change = look.time;
        self.missing = Some(why);
    }

    /// The recorder found these bytes.
    fn look(&mut self, address: u64, found: &[u8], time: u64) {
        let start = address.saturating_sub(self.memory.addresses.start) as usize;
        let all = start..start.saturating_add(found.len());
        for word in self.words(&(address..address.saturating_add(found.len() as u64))) {
            let Range { start, end } = self.word(word);
            let part = start.max(all.start)..end.min(all.end);
            let new =
                found.get(part.start.wrapping_sub(all.start)..part.end.wrapping_sub(all.start));
            if self.bytes.get(part) != new
                && let Some(changed) = self.changed.get_mut(word)
            {
                *changed = time;
                self.last_change = time;
            }
        }
        if let Some(old) = self.bytes.get_mut(all) {
            old.copy_from_slice(found);
        }
    }

    /// Something has been written there by that time, whatever there is now.
    fn rewrite(&mut self, bytes: &Range<u64>, time: u64) {
        let words = self.words(bytes);
        if let Some(changed) = self.changed.get_mut(words)
            && !changed.is_empty()
        {
            changed.fill(time);
            self.last_change = time;
        }
    }

    /// The words that were found to have changed where work writes, since a time.
    fn changed_since(&self, work: &Work, since: u64) -> impl Iterator<Item = usize> {
        let words = match since <= self.last_change {
            true => self.words(&work.bytes),
            false => 0..0,
        };
        // What later work writes is its own.
        let is_its = |word| self.known.get(word).is_some_and(|&at| at <= work.begun);
        let is_changed = move |word| self.changed.get(word).is_some_and(|&at| at >= since);
        words.filter(move |&word| is_changed(word) && is_its(word))
    }

    /// The words that work has changed, as far as that is known.
    fn changed_by(&self, work: &Work) -> impl Iterator<Item = usize> {
        self.changed_since(work, work.since())
    }

    /// What pieces of work have written since a time, as far as that is known: each word by the last of
    /// them that may write it.
    fn written_by<'w>(
        &self,
        works: impl Iterator<Item = &'w Work>,
        since: impl Fn(&Work) -> u64,
    ) -> Vec<Written> {
        let mut works: Vec<&Work> = works.filter(|work| !work.is_known).collect();
        works.sort_by_key(|work| Reverse(work.call));
        let mut taken = FxHashSet::default();
        let written = works.into_iter().filter_map(|work| {
            let words = self.changed_since(work, since(work));
            self.written(words.filter(|&word| taken.insert(word)), work.call)
        });
        written.collect()
    }

    /// What words hold that the work of a call has written; `None` of none.
    fn written(&self, words: impl Iterator<Item = usize>, call: u64) -> Option<Written> {
        let words: BTreeSet<usize> = words.collect();
        let mut parts: Vec<(Range<usize>, u64)> = Vec::new();
        for word in words {
            let found = self.changed.get(word).copied().unwrap_or_default();
            let part = self.word(word);
            match parts.last_mut() {
                Some((last, time)) if last.end == part.start && *time == found => {
                    last.end = part.end;
                }
                _ => parts.push((part, found)),
            }
        }
        let start = self.memory.addresses.start;
        let parts = parts.into_iter().filter_map(|(part, found)| {
            Some(Part {
                address: start.saturating_add(part.start as u64),
                bytes: self.bytes.get(part)?.to_vec(),
                found,
            })
        });
        let parts: Vec<Part> = parts.collect();
        (!parts.is_empty()).then(|| Written {
            memory: self.memory.clone(),
            parts,
            missing: self.missing.clone(),
            call,
        })
    }
}

/// A value that a stream writes to memory.
pub(crate) struct Value {
    pub(crate) value: WrittenValue,
    /// When the recorder had looked before the call that enqueues that, in ticks.
    pub(crate) begun: u64,
    /// When it is proved to be there.
    pub(crate) written: u64,
}

/// What happens at a time, in this order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// A stream has written a value, which the recorder takes for granted.
    Value(usize),
    Look(usize),
    /// Work begins.
    Begin(usize),
    /// The program may know from now on that work is complete.
    Told(usize),
    /// A call proves work complete.
    Proof(u64),
}

/// So many proofs are remembered for looks of calls that return later.
const MOST_RECENT: usize = 256;

/// Work that the program may know to be complete before the recorder has looked.
struct Told {
    work: usize,
    /// Since when.
    at: At,
    /// Of these words it is known what it has written.
    words: FxHashSet<(ObjectId, usize)>,
    /// Addresses that later work writes: what changes there is not known to be of this.
    others: Vec<Range<u64>>,
}

/// What is known at a time.
struct Account<'a> {
    works: &'a [Work],
    /// When a call was entered.
    entered: &'a dyn Fn(u64) -> u64,
    /// By call that proves it.
    proved_by: FxHashMap<u64, Vec<usize>>,
    contents: FxHashMap<ObjectId, Content>,
    /// Work that is not proved complete.
    running: BTreeSet<usize>,
    told: Vec<Told>,
    /// Work that a call has proved complete before the recorder had taken it in, in memory where it has
    /// not looked after a call since; and that call.
    unlooked: VecDeque<(usize, u64)>,
    /// The last proofs: time, call.
    recent: VecDeque<(u64, u64)>,
    found: Vec<(At, Written)>,
}

/// What work has written, by the time at which that is known. `looks` are those of the recorder;
/// `entered` says when a call was entered; `values` are those that streams write.
pub(crate) fn written(
    trace: &Trace,
    looks: &[Look],
    works: &[Work],
    values: &[Value],
    entered: impl Fn(u64) -> u64,
) -> Vec<(At, Written)> {
    let mut events: Vec<(u64, Event)> = Vec::new();
    let of_values = values.iter().enumerate();
    events.extend(of_values.map(|(at, value)| (value.written, Event::Value(at))));
    let mut begun: Vec<usize> = (0..values.len()).collect();
    begun.sort_by_key(|&at| Reverse(values.get(at).map(|value| value.begun)));
    let (mut awaited, mut are_found) = (Vec::new(), FxHashSet::default());
    let of_looks = looks.iter().enumerate();
    events.extend(of_looks.map(|(at, look)| (look.time, Event::Look(at))));
    let mut proved_by: FxHashMap<u64, Vec<usize>> = FxHashMap::default();
    // What a call does itself, it has done when the driver returns; what it waits for is known when the
    // recorder has looked.
    let mut proofs: FxHashMap<u64, u64> = FxHashMap::default();
    for (at, work) in works.iter().enumerate() {
        events.push((work.begun, Event::Begin(at)));
        if !work.is_known {
            events.extend(work.told.map(|call| (entered(call), Event::Told(at))));
        }
        for &(call, time) in &work.proofs {
            proved_by.entry(call).or_default().push(at);
            let last = proofs.entry(call).or_default();
            *last = time.max(*last);
        }
    }
    events.extend(
        proofs
            .iter()
            .map(|(&call, &time)| (time, Event::Proof(call))),
    );
    events.sort_unstable();
    let mut account = Account {
        works,
        entered: &entered,
        proved_by,
        contents: FxHashMap::default(),
        running: BTreeSet::new(),
        told: Vec::new(),
        unlooked: VecDeque::new(),
        recent: VecDeque::new(),
        found: Vec::new(),
    };
    for (time, event) in events {
        match event {
            Event::Value(at) => {
                if let Some(one) = values.get(at).filter(|_| !are_found.contains(&at)) {
                    let (bytes, value) = &one.value;
                    let contents = account.contents.values_mut();
                    contents.for_each(|content| content.write(bytes, *value));
                }
            }
            Event::Look(at) => {
                let Some(look) = looks.get(at) else { continue };
                account.look(trace, look);
                // The recorder takes no value for granted that it has found.
                while let Some(at) =
                    begun.pop_if(|at| values.get(*at).is_some_and(|one| one.begun < time))
                {
                    awaited.push(at);
                }
                awaited.retain(|&at| {
                    let Some(one) = values.get(at).filter(|one| one.written >= time) else {
                        return false;
                    };
                    let content = account.contents.get(&look.memory.id);
                    let is_found = content.is_some_and(|content| content.has(&one.value));
                    if is_found {
                        are_found.insert(at);
                    }
                    !is_found
                });
            }
            Event::Begin(at) => account.begin(at),
            Event::Told(at) => {
                let told = works.get(at).and_then(|work| work.told);
                account.told.push(Told {
                    work: at,
                    at: At::Told(told.unwrap_or_default()),
                    words: FxHashSet::default(),
                    others: Vec::new(),
                });
                account.tell(None);
            }
            Event::Proof(call) => account.prove(call, time),
        }
    }
    account.found
}

impl Account<'_> {
    fn begin(&mut self, at: usize) {
        let Some(work) = self.works.get(at) else {
            return;
        };
        if work.is_known {
            for content in self.contents.values_mut() {
                let words = content.words(&work.bytes);
                let is_whole = |word: &usize| {
                    let address = content.address(*word);
                    work.bytes.start <= address && address + WORD <= work.bytes.end
                };
                let first = words.clone().find(is_whole).unwrap_or(words.end);
                let last = words.clone().rfind(is_whole);
                let words = first..last.map_or(first, |last| last + 1);
                let known = content.known.get_mut(words).unwrap_or_default();
                known.fill(work.begun);
            }
        }
        self.running.insert(at);
        // Before it the recorder has looked: at what it writes, or if that is not known at all.
        self.unlooked.retain(|&(other, _)| {
            let other = self.works.get(other);
            other.is_some_and(|other| match work.is_known {
                true => !covers(&work.bytes, &other.bytes),
                false => !overlap(&other.bytes, &work.bytes),
            })
        });
        self.told.retain_mut(|one| {
            let Some(told) = self.works.get(one.work) else {
                return false;
            };
            // The work that tells of it comes after it.
            if told.told != Some(work.call) {
                one.others.push(work.bytes.clone());
            }
            !one.others.iter().any(|other| covers(other, &told.bytes))
        });
    }

    fn look(&mut self, trace: &Trace, look: &Look) {
        let memory = &look.memory;
        if !self.contents.contains_key(&memory.id) {
            // What was there before has ended.
            let count = self.contents.len();
            self.contents
                .retain(|_, other| other.words(&memory.addresses).is_empty());
            let is_other = self.contents.len() != count;
            for one in &mut self.told {
                one.others.push(memory.addresses.clone());
            }
            let works = self.works;
            self.unlooked.retain(|&(at, _)| {
                let work = works.get(at);
                work.is_some_and(|work| !is_other || !overlap(&work.bytes, &memory.addresses))
            });
        }
        let content = self.contents.entry(memory.id);
        let content = content.or_insert_with(|| Content::of(memory));
        match trace.resolve(look.bytes.bytes) {
            Ok(bytes) => content.look(look.address, &bytes, look.time),
            Err(damage) => content.miss(look, damage.what.clone()),
        }
        if let Some((call, entered)) = look.waited {
            // The recorder looks after a call because some of the work is complete.
            let proved = |call: u64, all: Vec<Written>| {
                all.into_iter().map(move |one| (At::Proof(call), one))
            };
            let running = self.running.iter().filter_map(|&at| self.works.get(at));
            let written = content.written_by(running, Work::since);
            self.found.extend(proved(call, written));
            // The recorder did not know of the proofs that the trace has, as calls overlap.
            let is_there = |work: &&Work| !work.is_known && overlap(&work.bytes, &memory.addresses);
            let mut running = self.running.iter().filter_map(|&at| self.works.get(at));
            let is_late = !running.any(|work| is_there(&work));
            for &(at, call) in self.unlooked.iter().filter(|_| is_late) {
                let work = self.works.get(at).filter(is_there).into_iter();
                let written = content.written_by(work, |_| look.time);
                self.found.extend(proved(call, written));
            }
            self.unlooked
                .retain(|&(at, _)| !self.works.get(at).is_some_and(|work| is_there(&work)));
            // Work that another call has proved complete meanwhile; this one has looked first.
            let overtaken = self.recent.iter().filter(|&&(time, _)| time >= entered);
            for &(_, call) in overtaken {
                let works = self.proved_by.get(&call).into_iter().flatten();
                let works = works.filter_map(|&at| self.works.get(at));
                let written = content.written_by(works, |_| look.time);
                self.found.extend(proved(call, written));
            }
        }
        self.tell(Some(memory.id));
        if look.waited.is_some() {
            let is_elsewhere = |one: &Told| {
                let bytes = self.works.get(one.work).map(|work| &work.bytes);
                bytes.is_none_or(|bytes| !overlap(bytes, &memory.addresses))
            };
            self.told
                .retain(|one| matches!(one.at, At::Told(_)) || is_elsewhere(one));
        }
    }

    /// What the program may know of work, in memory that has changed or in all.
    fn tell(&mut self, memory: Option<ObjectId>) {
        let Self {
            works,
            contents,
            told,
            found,
            ..
        } = self;
        for one in told {
            let Some(work) = works.get(one.work) else {
                continue;
            };
            let contents = contents
                .iter()
                .filter(|(id, _)| memory.is_none_or(|memory| memory == **id));
            for (&id, content) in contents {
                let words = content.changed_by(work).filter(|&word| {
                    let address = content.address(word);
                    let is_own = !one.others.iter().any(|other| other.contains(&address));
                    is_own && one.words.insert((id, word))
                });
                let written = content.written(words, work.call);
                found.extend(written.map(|written| (one.at, written)));
            }
        }
    }

    fn prove(&mut self, call: u64, time: u64) {
        if self.recent.len() >= MOST_RECENT {
            self.recent.pop_front();
        }
        self.recent.push_back((time, call));
        let proved = self.proved_by.get(&call).map_or(&[][..], Vec::as_slice);
        for content in self.contents.values_mut() {
            // The player writes these bytes, too; what other work made of them may be what was there.
            let works = proved.iter().filter_map(|&at| self.works.get(at));
            for work in works.filter(|work| work.is_exact && !work.is_known) {
                content.rewrite(&work.bytes, time);
            }
            let works = proved.iter().filter_map(|&at| self.works.get(at));
            let written = content.written_by(works, Work::since);
            let written = written.into_iter().map(|one| (At::Proof(call), one));
            self.found.extend(written);
        }
        self.told
            .retain(|one| matches!(one.at, At::Proof(_)) || !proved.contains(&one.work));
        for &at in proved {
            self.running.remove(&at);
            // The recorder did not know of it yet.
            let is_late = |work: &Work| work.followed > (self.entered)(call);
            if !self.works.get(at).is_some_and(is_late) {
                continue;
            }
            if self.unlooked.len() >= MOST_RECENT {
                self.unlooked.pop_front();
            }
            self.unlooked.push_back((at, call));
        }
        // Of several pieces of work on an allocation the recorder remembers the last of each stream, and
        // looks when that is complete.
        for &at in proved {
            let Some(work) = self.works.get(at).filter(|work| !work.is_known) else {
                continue;
            };
            if work.proofs.first().is_none_or(|first| first.0 != call) {
                continue;
            }
            let is_later = |other: &Work| {
                let of_both = |content: &&Content| {
                    let memory = &content.memory.addresses;
                    overlap(memory, &work.bytes) && overlap(memory, &other.bytes)
                };
                let is_behind = other.stream == work.stream && other.begun > work.begun;
                is_behind && (other.is_graph || self.contents.values().any(|one| of_both(&one)))
            };
            let mut running = self.running.iter().filter_map(|&at| self.works.get(at));
            if running.any(is_later) {
                let words = self.contents.iter().flat_map(|(&id, content)| {
                    content.changed_by(work).map(move |word| (id, word))
                });
                self.told.push(Told {
                    work: at,
                    at: At::Proof(call),
                    words: words.collect(),
                    others: Vec::new(),
                });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn allocations_of_any_length_are_no_fault() {
        for (addresses, expected) in [
            (0x1000..0x1000, true),
            (0x1000..0x9000, true),
            (0x1000..1 << 60, false),
            (0..u64::MAX, false),
        ] {
            assert_eq!(fits(&addresses), expected, "{addresses:x?}");
        }
    }
}
