//! The content of memory that host and device share, from look to look of the recorder; and what
//! work of the device has written by the call that proves it complete.
//!
//! That is what has changed since the recorder looked when the work was enqueued, whenever it found
//! that. The program may have written some of it, in other parts: what a running program has written
//! itself is left to it (`seen.rs`).

use std::collections::{BTreeSet, VecDeque};
use std::ops::Range;

use cutape_format::{Snapshot, Trace};
use cutape_model::{CompletedBy, CompletedWrite, ObjectId};
use rustc_hash::FxHashMap;

/// The unit in which it is decided who has written memory, in bytes.
pub(crate) const WORD: u64 = 8;

/// An allocation of the recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Memory {
    pub(crate) id: ObjectId,
    pub(crate) addresses: Range<u64>,
    /// A call with an address in it, and the address.
    pub(crate) named: (u64, u64),
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

/// What work has written to it.
pub(crate) struct Written {
    pub(crate) memory: Memory,
    /// Parts without gaps: address, bytes.
    pub(crate) parts: Vec<(u64, Vec<u8>)>,
}

/// Work whose bytes are only in what the recorder found.
pub(crate) struct Work {
    /// Where it may write.
    bytes: Range<u64>,
    /// When the recorder had looked before it, in ticks.
    begun: u64,
    /// The call that may have told the program that it is complete.
    told: Option<u64>,
    /// The call that proves it complete, and when.
    proof: Option<(u64, u64)>,
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
    /// That of all writes of calls for which `begun` knows when the recorder had looked.
    pub(crate) fn all(writes: &[CompletedWrite], begun: impl Fn(u64) -> Option<u64>) -> Vec<Self> {
        let proofs = writes.iter().filter_map(|one| match one.proof {
            CompletedBy::Call(call, time) => {
                Some(((one.write.call, one.write.bytes.start), (call, time)))
            }
            CompletedBy::With(_) | CompletedBy::None => None,
        });
        let proofs: FxHashMap<(u64, u64), (u64, u64)> = proofs.collect();
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
            proofs.get(&(call, start)).copied()
        };
        let works = writes.iter().filter_map(|CompletedWrite { write, .. }| {
            Some(Self {
                bytes: write.bytes.clone(),
                begun: begun(write.call)?,
                told: write.known_since,
                proof: proof(write.call, write.bytes.start),
            })
        });
        works.collect()
    }
}

/// The content of an allocation, and when each word was found to have changed.
struct Content {
    memory: Memory,
    bytes: Vec<u8>,
    changed: Vec<u64>,
    last_change: u64,
}

impl Content {
    fn of(memory: &Memory) -> Self {
        let Range { start, end } = memory.addresses;
        Self {
            memory: memory.clone(),
            // Bytes in no note are zero.
            bytes: vec![0; end.saturating_sub(start) as usize],
            changed: vec![0; end.div_ceil(WORD).saturating_sub(start / WORD) as usize],
            last_change: 0,
        }
    }

    /// The part of a word, from the start of the memory.
    fn word(&self, word: usize) -> Range<usize> {
        let Range { start, end } = self.memory.addresses;
        let address = (start / WORD + word as u64) * WORD;
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

    /// What has changed where works write, since each has begun.
    fn written<'w>(&self, works: impl Iterator<Item = &'w Work>) -> Option<Written> {
        self.changed_since(works, |work| work.begun.saturating_add(1))
    }

    /// What was found then to have changed where works write.
    fn written_at<'w>(&self, time: u64, works: impl Iterator<Item = &'w Work>) -> Option<Written> {
        self.changed_since(works, |_| time)
    }

    fn changed_since<'w>(
        &self,
        works: impl Iterator<Item = &'w Work>,
        since: impl Fn(&Work) -> u64,
    ) -> Option<Written> {
        let mut words = Vec::new();
        for work in works {
            let since = since(work);
            if since <= self.last_change {
                let is_changed =
                    |word: &usize| self.changed.get(*word).is_some_and(|&at| at >= since);
                words.extend(self.words(&work.bytes).filter(is_changed));
            }
        }
        words.sort_unstable();
        words.dedup();
        let mut parts: Vec<Range<usize>> = Vec::new();
        for part in words.into_iter().map(|word| self.word(word)) {
            match parts.last_mut() {
                Some(last) if last.end == part.start => last.end = part.end,
                _ => parts.push(part),
            }
        }
        let start = self.memory.addresses.start;
        let parts = parts.into_iter().filter_map(|part| {
            let address = start.saturating_add(part.start as u64);
            Some((address, self.bytes.get(part)?.to_vec()))
        });
        let parts: Vec<(u64, Vec<u8>)> = parts.collect();
        (!parts.is_empty()).then(|| Written {
            memory: self.memory.clone(),
            parts,
        })
    }
}

/// What happens at a time; looks come first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Look(usize),
    /// The work begins.
    Begin(usize),
    /// The work of a call may tell the program of that work.
    Telling(usize),
    Proof(u64),
}

/// So many proofs are remembered for looks of calls that return later.
const MOST_RECENT: usize = 256;

/// What work has written, by the time at which that is known. `looks` are those of the recorder;
/// `entered` says when a call was entered.
pub(crate) fn written(
    trace: &Trace,
    looks: &[Look],
    works: &[Work],
    entered: impl Fn(u64) -> u64,
) -> Vec<(At, Written)> {
    let mut events: Vec<(u64, Event)> = Vec::new();
    events.extend(
        (0..)
            .zip(looks)
            .map(|(at, look)| (look.time, Event::Look(at))),
    );
    let mut proofs: FxHashMap<u64, Vec<usize>> = FxHashMap::default();
    for (at, work) in works.iter().enumerate() {
        events.push((work.begun, Event::Begin(at)));
        events.extend(work.told.map(|call| (entered(call), Event::Telling(at))));
        if let Some((call, time)) = work.proof {
            let proved = proofs.entry(call).or_default();
            if proved.is_empty() {
                events.push((time, Event::Proof(call)));
            }
            proved.push(at);
        }
    }
    events.sort_unstable();
    let proved_by = |call| {
        let proved = proofs.get(&call).map_or(&[][..], Vec::as_slice);
        proved.iter().filter_map(|&at| works.get(at))
    };
    let mut contents: FxHashMap<ObjectId, Content> = FxHashMap::default();
    let mut found = Vec::new();
    // Work that the program may know to be complete, and of which nothing has shown what it has written.
    let mut told: Vec<usize> = Vec::new();
    let mut running: BTreeSet<usize> = BTreeSet::new();
    let mut recent: VecDeque<(u64, u64)> = VecDeque::new();
    for (time, event) in events {
        match event {
            Event::Look(at) => {
                let Some(look) = looks.get(at) else { continue };
                let memory = &look.memory;
                if !contents.contains_key(&memory.id) {
                    // What was there before has ended.
                    contents.retain(|_, other| other.words(&memory.addresses).is_empty());
                }
                let content = contents.entry(memory.id);
                let content = content.or_insert_with(|| Content::of(memory));
                if let Ok(bytes) = trace.resolve(look.bytes.bytes) {
                    content.look(look.address, &bytes, time);
                }
                // The work is complete since another call has returned, and this one has looked first.
                let since = |since| move |&&(time, _): &&(u64, u64)| time >= since;
                let since = look.waited.map(|(_, entered)| since(entered));
                let overtaken = since
                    .into_iter()
                    .flat_map(|is_since| recent.iter().filter(is_since));
                for &(_, call) in overtaken {
                    let written = content.written_at(time, proved_by(call));
                    found.extend(written.map(|written| (At::Proof(call), written)));
                }
                // The recorder looks after a call because some of the work is complete.
                if let Some((call, _)) = look.waited {
                    let running = running.iter().filter_map(|&at| works.get(at));
                    let written = content.written(running);
                    found.extend(written.map(|written| (At::Proof(call), written)));
                }
                told.retain(|&at| {
                    let written = works.get(at).and_then(|work| {
                        let written = content.written([work].into_iter())?;
                        Some((At::Told(work.told?), written))
                    });
                    let is_known = written.is_some();
                    found.extend(written);
                    !is_known
                });
            }
            Event::Begin(at) => _ = running.insert(at),
            Event::Telling(at) => told.push(at),
            Event::Proof(call) => {
                if recent.len() >= MOST_RECENT {
                    recent.pop_front();
                }
                recent.push_back((time, call));
                for at in proofs.get(&call).into_iter().flatten() {
                    running.remove(at);
                }
                for content in contents.values() {
                    if let Some(written) = content.written(proved_by(call)) {
                        found.push((At::Proof(call), written));
                    }
                    for work in proved_by(call) {
                        let call = work.told.filter(|_| {
                            told.iter()
                                .any(|&at| works.get(at).is_some_and(|one| std::ptr::eq(one, work)))
                        });
                        let told = call.and_then(|call| {
                            Some((At::Told(call), content.written([work].into_iter())?))
                        });
                        found.extend(told);
                    }
                }
                told.retain(|&at| {
                    works
                        .get(at)
                        .is_some_and(|work| work.proof.is_none_or(|proof| proof.0 != call))
                });
            }
        }
    }
    found
}
