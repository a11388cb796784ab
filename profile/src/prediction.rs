//! What a run would take if calls were left out, joined or ordered in another way: it is played
//! again with the measured time of each call and of each piece of work.
//!
//! The host makes calls one after the other, each takes its time, and a wait ends with the work that
//! it waits for. Work begins after its call has been entered, after the work before it on its
//! stream, and after work that it needs by events.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use serde::{Deserialize, Serialize};

use crate::occupancy::Occupancy;
use crate::record::{CallFacts, HostCall, Profile, Run, Work, WorkKind};
use crate::statistics::median;

/// How names of copies of pageable memory end.
pub(crate) const PAGEABLE: &str = " (pageable)";
/// How fast page-locked memory is copied, in bytes a second, where a run has no such copy: what PCI
/// Express of generation 4 with 16 lanes reaches (assumed).
const PINNED_BYTES_PER_SECOND: f64 = 25e9;
/// From the end of work to the begin of the next on its stream, in nanoseconds, where no work was
/// enqueued early enough to tell (assumed).
const GAP_NS: u64 = 500;
/// Gaps that fewer than one in so many pieces of work show are not those of the device.
const FEW_OF: usize = 20;
/// How much of the device kernels may fill that run at the same time.
const WHOLE: f64 = 1.0;
/// How much work of a stream may be beside other work at the same time.
const MOST_BESIDE: usize = 256;

/// What is different from the run that was measured. Calls by index.
#[derive(Clone, Debug, Default)]
pub struct Change {
    /// Only these calls count, from the first to the last; all if `None`.
    pub calls: Option<(u64, u64)>,
    /// Waits of the host that are left out.
    pub dropped: BTreeSet<u64>,
    /// Copies whose host memory is page-locked.
    pub pinned: BTreeSet<u64>,
    /// Work that needs not wait for other such work on its stream.
    pub overlapped: BTreeSet<u64>,
    /// Copies that are joined with those before them.
    pub batched: BTreeSet<u64>,
    /// Work that graphs launch: calls that follow each other are one graph.
    pub graphed: BTreeSet<u64>,
    /// Kernels are others, so that the time of their work is not known.
    pub other_kernels: bool,
    /// The time that the program takes for itself before a call.
    pub pauses_ns: BTreeMap<u64, u64>,
}

/// What a profile lets expect of a change.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Prediction {
    /// From the first call to the end of all work, without the change.
    pub recorded_ns: u64,
    /// With it; `None` if it depends on what was not measured.
    pub edited_ns: Option<u64>,
    /// What the prediction assumes.
    pub assumptions: Vec<String>,
}

impl Prediction {
    /// By the run with the median time.
    pub fn of(profile: &Profile, change: &Change) -> Self {
        let nothing = Run::default();
        let run = profile.runs.get(profile.median_run()).unwrap_or(&nothing);
        let model = Model::of(profile, run);
        let unchanged = Change {
            calls: change.calls,
            pauses_ns: change.pauses_ns.clone(),
            ..Change::default()
        };
        Self {
            recorded_ns: model.play(&unchanged),
            edited_ns: (!change.other_kernels).then(|| model.play(change)),
            assumptions: model.assumptions(change),
        }
    }
}

/// A run, taken apart.
pub(crate) struct Model<'a> {
    profile: &'a Profile,
    calls: Vec<Step<'a>>,
    /// From the entry of a call to the begin of its work on an idle stream.
    latency: u64,
    /// From the end of work to the begin of the next on its stream.
    gap: u64,
    /// What a call that enqueues work takes.
    enqueuing: u64,
    /// Bytes a second of copies with page-locked memory, by name.
    pinned: HashMap<&'a str, f64>,
}

/// A call and its work.
struct Step<'a> {
    call: u64,
    /// What it takes on the host.
    takes: u64,
    /// Of a wait: from its entry or the end of the awaited work, whichever is later, to its return.
    returns: u64,
    facts: Option<&'a CallFacts>,
    work: Vec<&'a Work>,
}

impl<'a> Model<'a> {
    pub(crate) fn of(profile: &'a Profile, run: &'a Run) -> Self {
        let mut work: HashMap<u64, Vec<&Work>> = HashMap::new();
        for one in &run.work {
            if let Some(call) = one.call {
                work.entry(call).or_default().push(one);
            }
        }
        let calls = run.host.iter().map(|call| {
            let facts = profile.calls.get(&call.call);
            Step {
                call: call.call,
                takes: takes(call, facts),
                returns: 0,
                facts,
                work: work.remove(&call.call).unwrap_or_default(),
            }
        });
        let mut calls: Vec<Step<'_>> = calls.collect();
        calls.sort_by_key(|step| step.call);
        let mut model = Self {
            profile,
            calls,
            latency: 0,
            gap: 0,
            enqueuing: 0,
            pinned: HashMap::new(),
        };
        model.measure(run);
        model
    }

    /// Latencies, as they are in the run.
    fn measure(&mut self, run: &'a Run) {
        let host: HashMap<u64, &HostCall> = run.host.iter().map(|call| (call.call, call)).collect();
        let mut ends: HashMap<u32, u64> = HashMap::new();
        // When the work before ended, when the call was entered, when the work began.
        let mut followed: Vec<(u64, u64, u64)> = Vec::new();
        let (mut latencies, mut apart) = (Vec::new(), Vec::new());
        for work in &run.work {
            let before = ends.insert(work.stream, work.end_ns).unwrap_or(0);
            let Some(call) = work.call.and_then(|call| host.get(&call)) else {
                continue;
            };
            match before > call.begin_ns {
                true => followed.push((before, call.begin_ns, work.begin_ns)),
                // Without what the tool adds to the call.
                false => {
                    let called = call.end_ns.saturating_sub(call.begin_ns);
                    let added = called - takes(call, self.profile.calls.get(&call.call));
                    let began = work.begin_ns.saturating_sub(call.begin_ns);
                    latencies.push(began.saturating_sub(added));
                }
            }
            if before > 0 {
                apart.push(work.begin_ns.saturating_sub(before));
            }
            let is_pageable = work.name.ends_with(PAGEABLE);
            if let (WorkKind::Copy, Some(bytes), false) = (work.kind, work.bytes, is_pageable) {
                let speed = bytes as f64 / (work.lasted().max(1) as f64 / 1e9);
                let known = self.pinned.entry(&work.name).or_default();
                *known = known.max(speed);
            }
        }
        let ends = ends_of_awaited(self.profile, run);
        let mut enqueues = Vec::new();
        for step in &mut self.calls {
            if let Some((call, end)) = host.get(&step.call).zip(ends.get(&step.call)) {
                let returns = call.end_ns - (*end).clamp(call.begin_ns, call.end_ns);
                step.returns = returns.min(step.takes);
            } else if !step.work.is_empty() {
                enqueues.push(step.takes);
            }
        }
        // The first launches of kernels take longer, since the driver loads code.
        latencies.sort_unstable();
        self.latency = latencies.get(latencies.len() / 4).copied().unwrap_or(0);
        // Otherwise the work may have waited for its own call.
        let late = |one: &&(u64, u64, u64)| one.0 >= one.1 + self.latency;
        let gaps = followed.iter().filter(late);
        let gaps: Vec<u64> = gaps.map(|one| one.2.saturating_sub(one.0)).collect();
        // A few may have waited for their calls all the same.
        let are_few = gaps.len() * FEW_OF < followed.len() || gaps.is_empty();
        self.gap = match are_few {
            // No more than where it was seen.
            true => apart
                .into_iter()
                .min()
                .map_or(GAP_NS, |seen| seen.min(GAP_NS)),
            false => middle(gaps),
        };
        self.enqueuing = middle(enqueues);
    }

    /// From the first call to the end of all, in nanoseconds.
    pub(crate) fn play(&self, change: &Change) -> u64 {
        let mut device = Device::default();
        let mut now = 0u64;
        let mut earlier: Option<(u64, u32)> = None;
        let mut entered = 0;
        for step in self.within(change) {
            let call = step.call;
            let waits = step.facts.is_some_and(|facts| facts.is_wait);
            if change.dropped.contains(&call) && waits && step.work.is_empty() {
                now = now.saturating_add(pause(change, call));
                continue;
            }
            let stream = step.work.first().map(|work| work.stream);
            let joins = |set: &BTreeSet<u64>| {
                let follows =
                    earlier.is_some_and(|(before, on)| set.contains(&before) && Some(on) == stream);
                set.contains(&call) && follows
            };
            let is_joined = joins(&change.graphed) || joins(&change.batched);
            if !is_joined {
                now = now.saturating_add(pause(change, call));
                entered = now;
            }
            let is_pinned = change.pinned.contains(&call);
            let mut done = 0;
            for work in &step.work {
                let lasts = self.lasts(step, work, is_pinned);
                let areas = step.facts.map_or(&[][..], |facts| &facts.areas);
                let beside = change.overlapped.contains(&call).then(|| Beside {
                    end: 0,
                    share: self.share(work),
                    areas,
                });
                let after = device.needed(step.facts);
                done = device.run(self, work.stream, (entered, after), lasts, beside);
            }
            if let Some(&stream) = stream.as_ref() {
                device.calls.insert(call, done);
                earlier = Some((call, stream));
            } else {
                earlier = None;
            }
            let spent = match is_joined {
                true => 0,
                false => self.spent(step, is_pinned, change),
            };
            now = now.saturating_add(spent);
            if waits {
                let awaited = match step.work.is_empty() {
                    true => device.awaited(step.facts),
                    false => done,
                };
                let returns = awaited.max(entered).saturating_add(step.returns);
                now = match step.work.is_empty() {
                    true => returns,
                    false => now.max(returns),
                };
            }
        }
        now.max(device.last())
    }

    fn within<'s>(&'s self, change: &Change) -> impl Iterator<Item = &'s Step<'a>> + use<'s, 'a> {
        let calls = change.calls;
        self.calls.iter().filter(move |step| {
            calls.is_none_or(|(first, last)| (first..=last).contains(&step.call))
        })
    }

    /// What a call takes on the host, without its wait.
    fn spent(&self, step: &Step<'_>, is_pinned: bool, change: &Change) -> u64 {
        let is_copy = step.work.iter().any(|work| work.kind == WorkKind::Copy);
        if is_pinned && is_copy || change.graphed.contains(&step.call) {
            return step.takes.min(self.enqueuing);
        }
        // A synchronous copy waits for its work, whose time counts by itself.
        match step.facts {
            Some(facts) if facts.is_wait && !step.work.is_empty() => step.takes.min(self.enqueuing),
            _ => step.takes,
        }
    }

    /// How long work runs.
    fn lasts(&self, step: &Step<'_>, work: &Work, is_pinned: bool) -> u64 {
        let Some(name) = work.name.strip_suffix(PAGEABLE) else {
            return work.lasted();
        };
        // The driver copies it piece by piece within the call, which the program may have done from
        // memory in its caches.
        let lasted = work.lasted().min(step.takes);
        let (true, Some(bytes)) = (is_pinned, work.bytes) else {
            return lasted;
        };
        let speed = self.pinned.get(name).copied();
        let copied = bytes as f64 / speed.unwrap_or(PINNED_BYTES_PER_SECOND).max(1.0) * 1e9;
        lasted.min(copied as u64)
    }

    /// How much of the device work fills: 0 to 1.
    fn share(&self, work: &Work) -> f64 {
        let devices = self.profile.devices.iter();
        let mut device = devices.filter(|device| device.ordinal == work.device);
        let filled = device.next().and_then(|device| Occupancy::of(work, device));
        match (work.kind, filled) {
            (WorkKind::Kernel, Some(filled)) => filled.waves.min(WHOLE),
            (WorkKind::Kernel, None) => WHOLE,
            // Copies have hardware of their own.
            _ => 0.0,
        }
    }

    fn assumptions(&self, change: &Change) -> Vec<String> {
        let mut all = Vec::new();
        let mut add = |holds: bool, text: String| {
            if holds {
                all.push(text);
            }
        };
        add(
            !change.pinned.is_empty() && self.pinned.is_empty(),
            format!(
                "page-locked memory is copied with {:.0} GB/s",
                PINNED_BYTES_PER_SECOND / 1e9
            ),
        );
        add(
            !change.graphed.is_empty(),
            "a graph is launched in the time of one kernel".to_owned(),
        );
        add(
            !change.overlapped.is_empty(),
            "kernels overlap as far as their blocks leave room on the device".to_owned(),
        );
        all
    }
}

/// Work that runs beside other work of its stream.
struct Beside<'a> {
    end: u64,
    /// How much of the device it fills.
    share: f64,
    /// The allocations that it uses; not known if there are none.
    areas: &'a [u64],
}

impl Beside<'_> {
    fn uses_memory_of(&self, other: &Self) -> bool {
        let shared = |area| other.areas.contains(area);
        self.areas.is_empty() || other.areas.is_empty() || self.areas.iter().any(shared)
    }
}

fn pause(change: &Change, call: u64) -> u64 {
    change.pauses_ns.get(&call).copied().unwrap_or(0)
}

/// What the device has done.
#[derive(Default)]
struct Device<'a> {
    /// When the last work of each stream ends that others on it wait for.
    streams: HashMap<u32, u64>,
    /// Work beside that.
    beside: HashMap<u32, Vec<Beside<'a>>>,
    /// When the work of each call ends.
    calls: HashMap<u64, u64>,
}

impl<'a> Device<'a> {
    fn end(&self, stream: u32) -> u64 {
        self.streams.get(&stream).copied().unwrap_or(0)
    }

    /// When the work ends that a call's work needs on other streams.
    fn needed(&self, facts: Option<&CallFacts>) -> u64 {
        let needs = facts.map_or(&[][..], |facts| &facts.needs).iter();
        let ends = needs.filter_map(|call| self.calls.get(call)).copied();
        ends.max().unwrap_or(0)
    }

    /// When the work ends that a wait is for; all if that is not known.
    fn awaited(&self, facts: Option<&CallFacts>) -> u64 {
        let awaits = facts.map_or(&[][..], |facts| &facts.awaits);
        // Work beside a stream is awaited with it.
        if awaits.is_empty() || self.beside.values().any(|beside| !beside.is_empty()) {
            return self.last();
        }
        let ends = awaits.iter().filter_map(|call| self.calls.get(call));
        ends.copied().max().unwrap_or(0)
    }

    fn last(&self) -> u64 {
        let beside = self.beside.values().flatten().map(|one| one.end);
        beside
            .chain(self.streams.values().copied())
            .max()
            .unwrap_or(0)
    }

    /// Runs work, beside other such work of its stream or after all; when it ends.
    fn run(
        &mut self,
        model: &Model<'_>,
        stream: u32,
        (entered, needed): (u64, u64),
        lasts: u64,
        own: Option<Beside<'a>>,
    ) -> u64 {
        let mut ready = self.end(stream).max(needed);
        let beside = self.beside.entry(stream).or_default();
        match &own {
            None => ready = ready.max(beside.drain(..).map(|one| one.end).max().unwrap_or(0)),
            Some(own) => {
                let used = beside.iter().filter(|one| one.uses_memory_of(own));
                ready = ready.max(used.map(|one| one.end).max().unwrap_or(0));
                beside.sort_by_key(|one| one.end);
                let running = |one: &&Beside<'_>| one.end > ready.max(entered);
                let mut filled: f64 = beside.iter().filter(running).map(|one| one.share).sum();
                let mut room = ready;
                for one in beside.iter().filter(running) {
                    if filled + own.share <= WHOLE {
                        break;
                    }
                    room = room.max(one.end);
                    filled -= one.share;
                }
                ready = room;
            }
        }
        let follows = match ready {
            0 => 0,
            ready => ready.saturating_add(model.gap),
        };
        let begin = follows.max(entered.saturating_add(model.latency));
        let end = begin.saturating_add(lasts);
        match own {
            None => {
                self.streams.insert(stream, end);
            }
            Some(own) => {
                let beside = self.beside.entry(stream).or_default();
                // Later work is not entered before this one.
                beside.retain(|one| one.end > entered);
                if beside.len() >= MOST_BESIDE {
                    beside.remove(0);
                }
                beside.push(Beside { end, ..own });
            }
        }
        end
    }
}

/// Of the waits of a run: when the work was over that they wait for; 0 for none.
fn ends_of_awaited(profile: &Profile, run: &Run) -> HashMap<u64, u64> {
    let mut of_call: HashMap<u64, u64> = HashMap::new();
    for work in &run.work {
        if let Some(call) = work.call {
            let end = of_call.entry(call).or_default();
            *end = work.end_ns.max(*end);
        }
    }
    let mut calls: Vec<&HostCall> = run.host.iter().collect();
    calls.sort_by_key(|call| call.call);
    let mut last = 0;
    let mut ends = HashMap::new();
    for call in calls {
        let own = of_call.get(&call.call).copied();
        last = last.max(own.unwrap_or(0));
        let Some(facts) = profile.calls.get(&call.call).filter(|facts| facts.is_wait) else {
            continue;
        };
        let awaited = facts.awaits.iter().filter_map(|call| of_call.get(call));
        let end = match own {
            Some(own) => own,
            None if facts.awaits.is_empty() => last,
            None => awaited.max().copied().unwrap_or(0),
        };
        ends.insert(call.call, end);
    }
    ends
}

/// What a call takes on the host: as in the recording, if that is less, since measuring takes time.
fn takes(call: &HostCall, facts: Option<&CallFacts>) -> u64 {
    let here = call.end_ns.saturating_sub(call.begin_ns);
    let recorded = facts.and_then(|facts| {
        let end = facts.recorded_end_ns?;
        Some(end.saturating_sub(facts.recorded_begin_ns?))
    });
    recorded.map_or(here, |recorded| recorded.min(here))
}

/// The median; 0 for none.
fn middle(times: Vec<u64>) -> u64 {
    let mut times: Vec<f64> = times.into_iter().map(|time| time as f64).collect();
    times.sort_by(f64::total_cmp);
    median(&times) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_profile::{host, kernel, profile};

    /// Launches of 10 us each with a kernel of 100 us that begins 20 us after the entry of its call,
    /// and a wait that returns 5 us after it.
    fn waits_in_a_loop() -> Profile {
        let (mut work, mut calls, mut waits) = (Vec::new(), Vec::new(), Vec::new());
        for turn in 0..4 {
            let (call, begin) = (turn * 2, turn * 125_000);
            calls.push(host(call, begin, begin + 10_000));
            calls.push(host(call + 1, begin + 10_000, begin + 125_000));
            work.push(kernel("k", call, begin + 20_000, begin + 120_000));
            waits.push(call + 1);
        }
        profile(work, calls, &waits)
    }

    fn set(calls: &[u64]) -> BTreeSet<u64> {
        calls.iter().copied().collect()
    }

    #[test]
    fn unchanged_calls_take_what_they_took() {
        let predicted = Prediction::of(&waits_in_a_loop(), &Change::default());
        let times = (predicted.recorded_ns, predicted.edited_ns);
        assert_eq!(times, (500_000, Some(500_000)));
    }

    #[test]
    fn changes_of_a_loop_with_waits() {
        let waits = waits_in_a_loop();
        for (what, change, expected) in [
            (
                "kernels follow each other, the last wait is left",
                Change {
                    dropped: set(&[1, 3, 5]),
                    ..Change::default()
                },
                20_000 + 4 * 100_000 + 3 * GAP_NS + 5_000,
            ),
            (
                "a part of the calls",
                Change {
                    calls: Some((2, 5)),
                    ..Change::default()
                },
                250_000,
            ),
            (
                "the program's own time",
                Change {
                    pauses_ns: BTreeMap::from([(2, 1000)]),
                    ..Change::default()
                },
                501_000,
            ),
        ] {
            let predicted = Prediction::of(&waits, &change);
            assert_eq!(predicted.edited_ns, Some(expected), "{what}");
        }
        let unknown = Change {
            other_kernels: true,
            ..Change::default()
        };
        assert_eq!(Prediction::of(&waits, &unknown).edited_ns, None);
    }

    #[test]
    fn launches_that_take_longer_than_their_kernels() {
        let work: Vec<Work> = (0..10)
            .map(|call| kernel("k", call, call * 100 + 20, call * 100 + 30))
            .collect();
        let calls = (0..10).map(|call| host(call, call * 100, call * 100 + 100));
        let profile = profile(work, calls.collect(), &[]);
        let all: Vec<u64> = (0..10).collect();
        let graph = Change {
            graphed: set(&all),
            ..Change::default()
        };
        let predicted = Prediction::of(&profile, &graph);
        // One launch, and kernels with the least gap that was seen.
        let graph = 20 + 10 * 10 + 9 * 90;
        assert_eq!(
            (predicted.recorded_ns, predicted.edited_ns),
            (1000, Some(graph))
        );
        assert_eq!(predicted.assumptions.len(), 1);
    }

    /// Nobody vouches for a profile's times.
    #[test]
    fn extreme_latencies_overflow_nothing() {
        let far = i64::MAX as u64 - 10;
        let (mut work, mut calls, mut waits) = (Vec::new(), Vec::new(), Vec::new());
        for call in 0..8 {
            work.push(kernel("k", call * 2, far, far + 1));
            calls.push(host(call * 2, call, call));
            calls.push(host(call * 2 + 1, call, call));
            waits.push(call * 2 + 1);
        }
        let predicted = Prediction::of(&profile(work, calls, &waits), &Change::default());
        assert_eq!(predicted.recorded_ns, u64::MAX);
    }
}
