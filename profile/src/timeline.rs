//! When a device had work, and what it waited for otherwise.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

use crate::record::{HostCall, Profile, Run, Work, WorkKind};

/// What the host does while no call is in the driver: the replay's own work, which in the program is
/// the program's. Where the replay tells them apart, it brings memory and arguments into place before
/// a call, and looks at what came back after it; what remains is reading the trace.
pub(crate) const BETWEEN_CALLS: &str = "between calls";
pub(crate) const BEFORE_A_CALL: &str = "between calls: what a call needs is put into place";
pub(crate) const AFTER_A_CALL: &str = "between calls: what a call returned is taken over";

/// The most stretches that are listed.
const STRETCHES: usize = 10;
/// Work that the device waits for this often in a row is a stretch.
const STRETCH_WORK: u64 = 3;

/// How the wall time of a run is made up on one device. `busy_ns` and the three `idle_` parts add up
/// to `wall_ns`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Timeline {
    /// The ordinal of the device.
    pub device: u32,
    /// From the first call to the end of the last call or work.
    pub wall_ns: u64,
    /// At least one kernel, copy or memset ran.
    pub busy_ns: u64,
    /// Nothing ran, and the host had not entered the call that enqueues the next work.
    pub idle_host_ns: u64,
    /// Nothing ran, and the host was in the call that enqueues the next work.
    pub idle_launch_ns: u64,
    /// Nothing ran although the next work was enqueued: latency of the device.
    pub idle_device_ns: u64,
    /// A kernel ran.
    pub kernel_ns: u64,
    /// A copy or memset ran.
    pub copy_ns: u64,
    /// At least two pieces of work ran.
    pub overlap_ns: u64,
    /// Where the host was while the device waited for it: by function, or `between calls`.
    pub idle_host_in: BTreeMap<String, u64>,
    /// The streams, by number.
    pub streams: Vec<StreamUse>,
    /// Where the device waited for the host again and again, the longest waits first.
    pub stretches: Vec<Stretch>,
}

/// What ran on a stream.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamUse {
    /// The stream, by number.
    pub stream: u32,
    /// As the trace names it.
    pub name: String,
    /// Kernels, copies and memsets.
    pub work: u64,
    /// At least one of them ran.
    pub busy_ns: u64,
    /// None ran, between the first and the last.
    pub gaps_ns: u64,
    /// The longest time without work between the first and the last.
    pub longest_gap_ns: u64,
    /// The call whose work came after that.
    pub longest_gap_before: Option<u64>,
}

/// Work that each time waited for the host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stretch {
    /// The first call.
    pub first: u64,
    /// The last.
    pub last: u64,
    /// Kernels, copies and memsets.
    pub work: u64,
    /// From the begin of the first to the end of the last.
    pub wall_ns: u64,
    /// Nothing ran.
    pub idle_ns: u64,
}

/// Intervals as they come, in order of their begins.
#[derive(Debug, Default)]
struct Union {
    total: u64,
    end: Option<u64>,
}

impl Union {
    /// Adds an interval; the gap before it, if nothing covers that.
    fn add(&mut self, begin: u64, end: u64) -> Option<(u64, u64)> {
        let covered = self.end.unwrap_or(begin);
        let gap = (covered < begin).then_some((covered, begin));
        self.total += end.saturating_sub(begin.max(covered));
        self.end = Some(covered.max(end));
        gap
    }
}

impl Timeline {
    /// Of one device in a run; of all together for `None`.
    pub(crate) fn of(profile: &Profile, run: &Run, device: Option<u32>) -> Self {
        let (begin, end) = run.span();
        let of_device = |work: &&Work| device.is_none_or(|device| work.device == device);
        let mut timeline = Self {
            device: device.unwrap_or(0),
            wall_ns: end - begin,
            ..Self::default()
        };
        let calls = HostCalls::of(run);
        let mut all = Union {
            end: Some(begin),
            ..Union::default()
        };
        let (mut kernels, mut copies) = (Union::default(), Union::default());
        let mut streams: BTreeMap<u32, (StreamUse, Union)> = BTreeMap::new();
        let mut stretch = Stretch::default();
        for work in run.work.iter().filter(of_device) {
            let gap = all.add(work.begin_ns, work.end_ns);
            if let Some(gap) = gap {
                let call = work.call.and_then(|call| calls.by_index.get(&call));
                timeline.add_idle(profile, &calls, gap, call.copied());
            }
            timeline.follow(&mut stretch, work, gap, &calls);
            match work.kind {
                WorkKind::Copy | WorkKind::Memset => copies.add(work.begin_ns, work.end_ns),
                WorkKind::Kernel | WorkKind::Graph => kernels.add(work.begin_ns, work.end_ns),
            };
            let (stream, union) = streams.entry(work.stream).or_default();
            stream.work += 1;
            if let Some((from, to)) = union.add(work.begin_ns, work.end_ns) {
                stream.gaps_ns += to - from;
                if to - from > stream.longest_gap_ns {
                    stream.longest_gap_ns = to - from;
                    stream.longest_gap_before = work.call;
                }
            }
        }
        timeline.close(&mut stretch);
        let last = all.end.unwrap_or(begin);
        timeline.add_idle(profile, &calls, (last.min(end), end), None);
        timeline.busy_ns = all.total;
        (timeline.kernel_ns, timeline.copy_ns) = (kernels.total, copies.total);
        timeline.overlap_ns = overlap(run.work.iter().filter(of_device));
        timeline.streams = streams
            .into_iter()
            .map(|(number, (stream, union))| StreamUse {
                stream: number,
                name: profile.stream(number),
                busy_ns: union.total,
                ..stream
            })
            .collect();
        timeline
            .stretches
            .sort_by_key(|stretch| std::cmp::Reverse(stretch.idle_ns));
        timeline.stretches.truncate(STRETCHES);
        timeline
    }

    /// Nothing ran in a gap; the work after it is of `call`.
    fn add_idle(
        &mut self,
        profile: &Profile,
        calls: &HostCalls<'_>,
        (from, to): (u64, u64),
        call: Option<&HostCall>,
    ) {
        // Without the call, nothing says that the work was enqueued earlier.
        let entered = call.map_or(to, |call| call.begin_ns.clamp(from, to));
        let returned = call.map_or(to, |call| call.end_ns.clamp(entered, to));
        self.idle_host_ns += entered - from;
        self.idle_launch_ns += returned - entered;
        self.idle_device_ns += to - returned;
        let mut add = |name: &str, time: u64| {
            if time == 0 {
                return;
            }
            match self.idle_host_in.get_mut(name) {
                Some(sum) => *sum += time,
                None => {
                    self.idle_host_in.insert(name.to_owned(), time);
                }
            }
        };
        let mut covered = from;
        for part in calls.within(from, entered) {
            if covered >= entered {
                break;
            }
            let begin = part.begin.clamp(covered, entered);
            let end = part.end.clamp(begin, entered);
            add(BETWEEN_CALLS, begin - covered);
            add(part.name(profile), end - begin);
            covered = end;
        }
        add(BETWEEN_CALLS, entered - covered);
    }

    /// Work comes next, after a gap if there was one.
    fn follow(
        &mut self,
        stretch: &mut Stretch,
        work: &Work,
        gap: Option<(u64, u64)>,
        calls: &HostCalls<'_>,
    ) {
        let host = work.call.and_then(|call| calls.by_index.get(&call));
        let waited = host.zip(gap).filter(|(call, gap)| call.begin_ns > gap.0);
        let Some(((host, gap), call)) = waited.zip(work.call) else {
            // A second kernel of the same call neither waits nor ends the stretch.
            if work.call.is_none_or(|call| call != stretch.last) {
                self.close(stretch);
            }
            return;
        };
        if stretch.work == 0 {
            // What was before it belongs to no stretch.
            *stretch = Stretch {
                first: call,
                ..Stretch::default()
            };
        } else {
            stretch.idle_ns += gap.1 - gap.0;
            stretch.wall_ns += gap.1 - gap.0;
        }
        debug_assert!(host.call == call);
        stretch.last = call;
        stretch.work += 1;
        stretch.wall_ns += work.lasted();
    }

    fn close(&mut self, stretch: &mut Stretch) {
        let ended = std::mem::take(stretch);
        if ended.work >= STRETCH_WORK {
            self.stretches.push(ended);
        }
    }
}

/// The time in which at least two pieces of work ran; they come in order of their begins.
fn overlap<'a>(work: impl Iterator<Item = &'a Work>) -> u64 {
    // The latest end so far, and the latest until which two ran.
    let (mut latest, mut doubled, mut total) = (0, 0, 0);
    for work in work {
        let begin = work.begin_ns.max(doubled);
        let end = work.end_ns.min(latest);
        total += end.saturating_sub(begin);
        doubled = doubled.max(end);
        latest = latest.max(work.end_ns);
    }
    total
}

/// What the host did in a time.
#[derive(Clone, Copy, Debug)]
struct HostPart {
    begin: u64,
    end: u64,
    doing: Doing,
}

#[derive(Clone, Copy, Debug)]
enum Doing {
    Before,
    Call(u64),
    After,
}

impl HostPart {
    fn name<'p>(&self, profile: &'p Profile) -> &'p str {
        match self.doing {
            Doing::Before => BEFORE_A_CALL,
            Doing::Call(call) => profile.function(call),
            Doing::After => AFTER_A_CALL,
        }
    }
}

/// The calls of a run, by index and by time.
#[derive(Debug)]
pub(crate) struct HostCalls<'a> {
    /// In order of their begins.
    pub(crate) all: &'a [HostCall],
    pub(crate) by_index: FxHashMap<u64, &'a HostCall>,
    /// What the host did before, in and after calls, in order of begins.
    parts: Vec<HostPart>,
    /// The latest end of each part and those before it.
    latest: Vec<u64>,
}

impl<'a> HostCalls<'a> {
    pub(crate) fn of(run: &'a Run) -> Self {
        let mut parts = Vec::with_capacity(3 * run.host.len());
        for call in &run.host {
            let (taken, done) = (call.taken_ns, call.done_ns);
            for (begin, end, doing) in [
                (taken.unwrap_or(call.begin_ns), call.begin_ns, Doing::Before),
                (call.begin_ns, call.end_ns, Doing::Call(call.call)),
                (call.end_ns, done.unwrap_or(call.end_ns), Doing::After),
            ] {
                if begin < end {
                    parts.push(HostPart { begin, end, doing });
                }
            }
        }
        parts.sort_by_key(|part| part.begin);
        let ends = parts.iter().scan(0, |latest: &mut u64, part| {
            *latest = (*latest).max(part.end);
            Some(*latest)
        });
        Self {
            all: &run.host,
            by_index: run.host.iter().map(|call| (call.call, call)).collect(),
            latest: ends.collect(),
            parts,
        }
    }

    /// What the host did that may overlap a time.
    fn within(&self, from: u64, to: u64) -> impl Iterator<Item = &HostPart> {
        let first = self.latest.partition_point(|&latest| latest <= from);
        let last = self.parts.partition_point(|part| part.begin < to);
        self.parts.get(first..last).unwrap_or_default().iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_profile::{host, kernel, profile};

    fn timeline(work: Vec<Work>, calls: Vec<HostCall>) -> Timeline {
        let profile = profile(work, calls, &[9]);
        let timeline = Timeline::of(&profile, &profile.runs[0], Some(0));
        let parts = [
            timeline.busy_ns,
            timeline.idle_host_ns,
            timeline.idle_launch_ns,
            timeline.idle_device_ns,
        ];
        assert_eq!(parts.iter().sum::<u64>(), timeline.wall_ns);
        let host: u64 = timeline.idle_host_in.values().sum();
        assert_eq!(host, timeline.idle_host_ns);
        timeline
    }

    #[test]
    fn parts_of_the_wall_time() {
        // Call 1 is entered at 100, its kernel runs from 150; the host waits in call 9.
        let known = timeline(
            vec![kernel("a", 1, 150, 200), kernel("b", 2, 230, 300)],
            vec![
                host(0, 0, 40),
                host(1, 100, 130),
                host(2, 210, 220),
                host(9, 225, 310),
            ],
        );
        assert_eq!(
            (known.wall_ns, known.busy_ns, known.overlap_ns),
            (310, 120, 0)
        );
        // 0..100, 200..210, 300..310.
        assert_eq!(known.idle_host_ns, 120);
        // 100..130, 210..220.
        assert_eq!(known.idle_launch_ns, 40);
        // 130..150, 220..230.
        assert_eq!(known.idle_device_ns, 30);
        let in_calls = BTreeMap::from([
            (BETWEEN_CALLS.to_owned(), 70),
            ("cuCtxSynchronize".to_owned(), 10),
            ("cuLaunchKernel".to_owned(), 40),
        ]);
        assert_eq!(known.idle_host_in, in_calls);
    }

    /// What the replay does before and after a call has a name of its own.
    #[test]
    fn the_replays_own_work() {
        let mut call = host(1, 100, 130);
        (call.taken_ns, call.done_ns) = (Some(80), Some(145));
        let known = timeline(
            vec![kernel("b", 2, 200, 300)],
            vec![host(0, 0, 40), call, host(2, 190, 195)],
        );
        let expected = BTreeMap::from([
            (BETWEEN_CALLS.to_owned(), 40 + 45),
            (BEFORE_A_CALL.to_owned(), 20),
            (AFTER_A_CALL.to_owned(), 15),
            ("cuLaunchKernel".to_owned(), 40 + 30),
        ]);
        assert_eq!(known.idle_host_in, expected);
    }

    #[test]
    fn overlap_on_streams() {
        let on = |stream, work| Work { stream, ..work };
        let known = timeline(
            vec![
                kernel("a", 1, 10, 50),
                on(2, kernel("b", 2, 20, 30)),
                on(2, kernel("c", 3, 25, 60)),
                kernel("d", 4, 100, 110),
            ],
            vec![host(1, 0, 1), host(2, 1, 2), host(3, 2, 3), host(4, 3, 4)],
        );
        assert_eq!((known.busy_ns, known.overlap_ns), (60, 30));
        let [first, second] = &known.streams[..] else {
            panic!("{known:?}")
        };
        assert_eq!((first.busy_ns, first.gaps_ns, first.work), (50, 50, 2));
        assert_eq!(first.longest_gap_before, Some(4));
        assert_eq!((second.busy_ns, second.gaps_ns), (40, 0));
        // Enqueued long before: the device's latency.
        assert_eq!(known.idle_device_ns, 9 + 40);
    }

    #[test]
    fn stretches_that_wait_for_the_host() {
        let each = |call: u64| {
            (
                kernel("k", call, call * 100 + 10, call * 100 + 20),
                host(call, call * 100, call * 100 + 5),
            )
        };
        let (mut work, mut calls): (Vec<_>, Vec<_>) = (0..5).map(each).unzip();
        let known = timeline(work.clone(), calls.clone());
        let expected = Stretch {
            first: 0,
            last: 4,
            work: 5,
            wall_ns: 410,
            idle_ns: 360,
        };
        assert_eq!(
            known.stretches,
            [Stretch {
                first: 1,
                work: 4,
                wall_ns: 310,
                idle_ns: 270,
                ..expected
            }]
        );
        // Work that was enqueued in time ends a stretch.
        (work[2].begin_ns, calls[2]) = (121, host(2, 106, 110));
        assert!(timeline(work, calls).stretches.is_empty());
    }
}
