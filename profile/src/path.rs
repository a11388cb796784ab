//! The critical path: the chain of work and calls that bounds the time of a run.
//!
//! It is followed back from the end: work began when the last of these was over: the work before it
//! on its stream, work that its stream waited for by events or as a node of its graph, its call's
//! entry. A wait returned because of the last work that ended in it; another call came after the one
//! before it. The parts meet, so they add up to the wall time.
//!
//! Not followed: that the legacy default stream waits for others, and that work waits for room on
//! the device. Such work appears to come after the work before it on its stream.

use std::collections::{BTreeMap, HashMap};

use serde::{Deserialize, Serialize};

use crate::record::{Profile, Run, Work, WorkKind};
use crate::timeline::{BETWEEN_CALLS, HostCalls};

/// What a part of the path is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Link {
    /// A kernel ran.
    Kernel,
    /// A copy ran.
    Copy,
    /// A memset ran.
    Memset,
    /// A graph ran.
    Graph,
    /// From the end of the work before, or the entry of the call, to the begin of work.
    Latency,
    /// The host was in a call.
    Call,
    /// From the end of the awaited work to the return of the wait.
    Return,
    /// The host was between calls.
    Between,
}

impl Link {
    /// The word for people and in data.
    pub fn word(self) -> &'static str {
        match self {
            Self::Kernel => "kernel",
            Self::Copy => "copy",
            Self::Memset => "memset",
            Self::Graph => "graph",
            Self::Latency => "latency",
            Self::Call => "call",
            Self::Return => "return",
            Self::Between => "between",
        }
    }

    fn of(kind: WorkKind) -> Self {
        match kind {
            WorkKind::Kernel => Self::Kernel,
            WorkKind::Copy => Self::Copy,
            WorkKind::Memset => Self::Memset,
            WorkKind::Graph => Self::Graph,
        }
    }
}

/// What all parts of the same kind and name contribute.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Share {
    /// What they are.
    pub link: Link,
    /// The kernel, the copy or the function.
    pub name: String,
    /// How many there are on the path.
    pub count: u64,
    /// Their time.
    pub total_ns: u64,
    /// The call of the longest.
    pub longest_call: Option<u64>,
    /// The time of the longest.
    pub longest_ns: u64,
}

/// The path, by what contributes to it. The parts add up to `wall_ns`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CriticalPath {
    /// From the first call or work to the end of the last.
    pub wall_ns: u64,
    /// The part in which a device ran work.
    pub work_ns: u64,
    /// Those that contribute most come first.
    pub shares: Vec<Share>,
}

/// Where the path is, going back in time.
#[derive(Clone, Copy, Debug)]
enum At {
    /// At the end of a piece of work.
    Work(usize),
    /// The host, before a time.
    Host,
}

/// Follows a path back.
struct Walk<'a> {
    profile: &'a Profile,
    work: &'a [Work],
    calls: HostCalls<'a>,
    /// Positions of work, by the time of its end.
    ends: Vec<usize>,
    /// The work before it on the same stream.
    before: Vec<Option<usize>>,
    by_call: HashMap<u64, Vec<usize>>,
    begin: u64,
    now: u64,
    shares: BTreeMap<(Link, &'a str), Share>,
}

impl CriticalPath {
    pub(crate) fn of(profile: &Profile, run: &Run) -> Self {
        let (begin, end) = run.span();
        let mut walk = Walk::new(profile, run, (begin, end));
        walk.back();
        let mut shares: Vec<Share> = walk.shares.into_values().collect();
        shares.sort_by_key(|share| (std::cmp::Reverse(share.total_ns), share.link));
        let is_work = |share: &&Share| {
            matches!(
                share.link,
                Link::Kernel | Link::Copy | Link::Memset | Link::Graph
            )
        };
        Self {
            wall_ns: end - begin,
            work_ns: shares
                .iter()
                .filter(is_work)
                .map(|share| share.total_ns)
                .sum(),
            shares,
        }
    }
}

impl<'a> Walk<'a> {
    fn new(profile: &'a Profile, run: &'a Run, (begin, end): (u64, u64)) -> Self {
        let work = &run.work[..];
        let mut ends: Vec<usize> = (0..work.len()).collect();
        ends.sort_by_key(|&at| work.get(at).map(|work| work.end_ns));
        let mut last: HashMap<(u32, u32), usize> = HashMap::new();
        let mut by_call: HashMap<u64, Vec<usize>> = HashMap::new();
        let mut before = Vec::with_capacity(work.len());
        for (at, one) in work.iter().enumerate() {
            before.push(last.insert((one.device, one.stream), at));
            if let Some(call) = one.call {
                by_call.entry(call).or_default().push(at);
            }
        }
        Self {
            profile,
            work,
            calls: HostCalls::of(run),
            ends,
            before,
            by_call,
            begin,
            now: end,
            shares: BTreeMap::new(),
        }
    }

    /// A part from `from` to where the path is.
    fn add(&mut self, from: u64, link: Link, name: &'a str, call: Option<u64>) {
        let from = from.clamp(self.begin, self.now);
        let lasted = self.now - from;
        self.now = from;
        if lasted == 0 {
            return;
        }
        let share = self.shares.entry((link, name)).or_insert_with(|| Share {
            link,
            name: name.to_owned(),
            count: 0,
            total_ns: 0,
            longest_call: None,
            longest_ns: 0,
        });
        share.count += 1;
        share.total_ns += lasted;
        if lasted > share.longest_ns {
            (share.longest_ns, share.longest_call) = (lasted, call);
        }
    }

    fn back(&mut self) {
        let last = self.ended_within(self.begin, self.now);
        let is_work_last = |at: &usize| {
            self.work
                .get(*at)
                .is_some_and(|work| work.end_ns == self.now)
        };
        let mut at = match last.filter(is_work_last) {
            Some(work) => At::Work(work),
            None => At::Host,
        };
        // Each step goes back in time, or from work to the host or to earlier work; the bound is for
        // times that a tool has got wrong.
        let mut steps = 4 * (self.work.len() + self.calls.all.len() + 1);
        while self.now > self.begin && steps > 0 {
            steps -= 1;
            at = match at {
                At::Work(work) => self.before_work(work),
                At::Host => self.before_host(),
            };
        }
        let rest = self.begin;
        self.add(rest, Link::Between, BETWEEN_CALLS, None);
    }

    /// The path is at the end of work.
    fn before_work(&mut self, at: usize) -> At {
        let (work, profile) = (self.work, self.profile);
        let Some(one) = work.get(at) else {
            return At::Host;
        };
        self.add(one.begin_ns, Link::of(one.kind), &one.name, one.call);
        let earlier = |other: &usize| {
            *other != at
                && work
                    .get(*other)
                    .is_some_and(|work| work.end_ns <= one.begin_ns)
        };
        let facts = one.call.and_then(|call| profile.calls.get(&call));
        let needed = facts.map_or(&[][..], |facts| &facts.needs).iter();
        // Nodes of one graph may be on several streams.
        let calls = needed.chain(one.node.and(one.call.as_ref()));
        let others = calls
            .filter_map(|call| self.by_call.get(call))
            .flatten()
            .copied();
        let before = self.before.get(at).copied().flatten();
        let ended = |at: &usize| work.get(*at).map(|work| work.end_ns);
        let last = others.chain(before).filter(earlier).max_by_key(ended);
        let entered = one.call.and_then(|call| self.calls.by_index.get(&call));
        let entered = entered.map(|call| call.begin_ns.min(one.begin_ns));
        match (last, entered) {
            (Some(last), entered) if ended(&last) >= entered => {
                let end = ended(&last).unwrap_or(self.now);
                self.add(end, Link::Latency, &one.name, one.call);
                At::Work(last)
            }
            (_, Some(entered)) => {
                self.add(entered, Link::Latency, &one.name, one.call);
                At::Host
            }
            (_, None) => At::Host,
        }
    }

    /// The path is on the host.
    fn before_host(&mut self) -> At {
        let now = self.now;
        let last = self.calls.all.partition_point(|call| call.begin_ns < now);
        let Some(&call) = last.checked_sub(1).and_then(|at| self.calls.all.get(at)) else {
            self.add(self.begin, Link::Between, BETWEEN_CALLS, None);
            return At::Host;
        };
        self.add(call.end_ns, Link::Between, BETWEEN_CALLS, None);
        let profile = self.profile;
        let function = profile.function(call.call);
        let waits = profile
            .calls
            .get(&call.call)
            .is_some_and(|facts| facts.is_wait);
        let awaited = waits.then(|| self.ended_within(call.begin_ns, self.now));
        match awaited.flatten() {
            Some(work) => {
                let end = self
                    .work
                    .get(work)
                    .map_or(call.begin_ns, |work| work.end_ns);
                self.add(end, Link::Return, function, Some(call.call));
                At::Work(work)
            }
            None => {
                self.add(call.begin_ns, Link::Call, function, Some(call.call));
                At::Host
            }
        }
    }

    /// The work that ended last after `from` and not after `to`.
    fn ended_within(&self, from: u64, to: u64) -> Option<usize> {
        let end = |&at: &usize| self.work.get(at).map_or(0, |work| work.end_ns);
        let later = self.ends.partition_point(|at| end(at) <= to);
        let last = *self.ends.get(later.checked_sub(1)?)?;
        (end(&last) > from).then_some(last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::HostCall;
    use crate::test_profile::{host, kernel, profile};

    fn path(profile: &Profile) -> Vec<(Link, &'static str, u64)> {
        let path = CriticalPath::of(profile, &profile.runs[0]);
        let sum: u64 = path.shares.iter().map(|share| share.total_ns).sum();
        assert_eq!(sum, path.wall_ns);
        let names = [
            "a",
            "b",
            "c",
            "cuLaunchKernel",
            "cuCtxSynchronize",
            BETWEEN_CALLS,
        ];
        let known = |name: &str| names.into_iter().find(|known| *known == name).unwrap();
        let mut parts: Vec<_> = path
            .shares
            .iter()
            .map(|share| (share.link, known(&share.name), share.total_ns))
            .collect();
        parts.sort();
        parts
    }

    fn on(stream: u32, work: Work) -> Work {
        Work { stream, ..work }
    }

    #[test]
    fn a_chain_on_one_stream() {
        // Both kernels are enqueued at once; the host waits for the second.
        let calls = vec![host(1, 0, 10), host(2, 12, 20), host(9, 20, 220)];
        let work = vec![kernel("a", 1, 15, 100), kernel("b", 2, 102, 210)];
        let expected = [
            (Link::Kernel, "a", 85),
            (Link::Kernel, "b", 108),
            (Link::Latency, "a", 15),
            (Link::Latency, "b", 2),
            (Link::Return, "cuCtxSynchronize", 10),
        ];
        assert_eq!(path(&profile(work, calls, &[9])), expected);
    }

    #[test]
    fn the_host_bounds_short_kernels() {
        let calls: Vec<HostCall> = (1..4)
            .map(|call| host(call, call * 100, call * 100 + 40))
            .collect();
        let work = (1..4).map(|call| kernel("a", call, call * 100 + 30, call * 100 + 60));
        let expected = [
            (Link::Kernel, "a", 30),
            (Link::Latency, "a", 30),
            (Link::Call, "cuLaunchKernel", 80),
            (Link::Between, BETWEEN_CALLS, 120),
        ];
        assert_eq!(path(&profile(work.collect(), calls, &[])), expected);
    }

    #[test]
    fn two_streams_and_an_event() {
        // The kernel of call 3 waits, by an event, for that of call 2 on another stream.
        let calls = vec![host(1, 0, 1), host(2, 1, 2), host(3, 2, 3), host(9, 3, 130)];
        let work = vec![
            kernel("a", 1, 5, 40),
            on(2, kernel("b", 2, 6, 90)),
            kernel("c", 3, 95, 120),
        ];
        let mut profile = profile(work, calls, &[9]);
        profile.calls.get_mut(&3).unwrap().needs = vec![2];
        let expected = [
            (Link::Kernel, "b", 84),
            (Link::Kernel, "c", 25),
            (Link::Latency, "b", 5),
            (Link::Latency, "c", 5),
            (Link::Call, "cuLaunchKernel", 1),
            (Link::Return, "cuCtxSynchronize", 10),
        ];
        assert_eq!(path(&profile), expected);
    }

    #[test]
    fn nodes_of_a_graph() {
        let node = |node, work| Work {
            node: Some(node),
            ..work
        };
        let calls = vec![host(1, 0, 4), host(9, 4, 100)];
        let work = vec![
            node(1, kernel("a", 1, 10, 20)),
            node(2, on(2, kernel("b", 1, 22, 60))),
            node(3, on(1, kernel("c", 1, 61, 95))),
        ];
        let expected = [
            (Link::Kernel, "a", 10),
            (Link::Kernel, "b", 38),
            (Link::Kernel, "c", 34),
            (Link::Latency, "a", 10),
            (Link::Latency, "b", 2),
            (Link::Latency, "c", 1),
            (Link::Return, "cuCtxSynchronize", 5),
        ];
        assert_eq!(path(&profile(work, calls, &[9])), expected);
    }

    #[test]
    fn times_that_are_wrong_end_all_the_same() {
        let calls = vec![host(1, 50, 40), host(2, 40, 90), host(3, 41, 60)];
        let work = vec![
            kernel("a", 1, 70, 60),
            kernel("a", 2, 10, 95),
            kernel("a", 3, 95, 95),
        ];
        assert!(!path(&profile(work, calls, &[2])).is_empty());
        assert!(path(&profile(Vec::new(), Vec::new(), &[])).is_empty());
    }
}
