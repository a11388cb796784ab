//! Follows the path back in time.
//!
//! Work began when the last of these was over: the work before it on its stream, work that its
//! stream waited for, work of the same graph, its call's entry. A wait returned because of the last
//! work that ended in it; another call came after the call that returned last before it, on
//! whichever thread.
//!
//! Not followed: that work waits for room on the device. Such work appears to come after the work
//! before it on its stream.

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;

use crate::path::{Link, RangeShare, Share};
use crate::record::{Profile, Run, Work};
use crate::timeline::{BETWEEN_CALLS, HostCalls};

/// The shares of the path by part, and by range.
pub(super) fn follow(profile: &Profile, run: &Run) -> (Vec<Share>, Vec<RangeShare>) {
    let mut walk = Walk::new(profile, run);
    let end = walk.end();
    walk.back(end, &|_| None);
    walk.shares()
}

/// Where the path is, going back in time.
#[derive(Clone, Copy, Debug)]
pub(crate) enum At {
    /// At the end of a piece of work.
    Work(usize),
    /// At the begin of one.
    BeginOf(usize),
    /// The host, before a time.
    Host,
}

/// Positions of work, in order of ends.
#[derive(Debug, Default)]
struct ByEnd(Vec<usize>);

impl ByEnd {
    /// The last that was over at `time`. Of work without duration at that time, it is one before
    /// `at`, so that a path through such work ends.
    fn last(&self, work: &[Work], time: u64, at: usize) -> Option<usize> {
        let end = |at: usize| work.get(at).map_or(0, |work| work.end_ns);
        let later = self
            .0
            .partition_point(|&other| (end(other), other) < (time, at));
        self.0.get(later.checked_sub(1)?).copied()
    }
}

/// The positions by a key of work.
fn by_end<K: Eq + Hash>(work: &[Work], key: impl Fn(&Work) -> Option<K>) -> HashMap<K, ByEnd> {
    let mut all: HashMap<K, ByEnd> = HashMap::new();
    for (at, one) in work.iter().enumerate() {
        if let Some(key) = key(one) {
            all.entry(key).or_default().0.push(at);
        }
    }
    for ByEnd(positions) in all.values_mut() {
        positions.sort_by_key(|&at| work.get(at).map(|work| (work.end_ns, at)));
    }
    all
}

pub(crate) struct Walk<'a> {
    profile: &'a Profile,
    work: &'a [Work],
    calls: HostCalls<'a>,
    /// Positions of calls in order of their ends; those from `later_calls` on come after the path.
    calls_by_end: Vec<usize>,
    later_calls: usize,
    all: ByEnd,
    by_stream: HashMap<(u32, u32), ByEnd>,
    by_call: HashMap<u64, ByEnd>,
    begin: u64,
    now: u64,
    /// The call of the part that was added last.
    call: Option<u64>,
    shares: BTreeMap<(Link, &'a str), Share>,
    ranges: BTreeMap<Option<&'a str>, RangeShare>,
}

impl<'a> Walk<'a> {
    pub(crate) fn new(profile: &'a Profile, run: &'a Run) -> Self {
        let (begin, now) = run.span();
        let work = &run.work[..];
        let mut calls_by_end: Vec<usize> = (0..run.host.len()).collect();
        calls_by_end.sort_by_key(|&at| run.host.get(at).map(|call| (call.end_ns, at)));
        Self {
            profile,
            work,
            calls: HostCalls::of(run),
            later_calls: calls_by_end.len(),
            calls_by_end,
            all: by_end(work, |_| Some(())).remove(&()).unwrap_or_default(),
            by_stream: by_end(work, |one| Some((one.device, one.stream))),
            by_call: by_end(work, |one| one.call),
            begin,
            now,
            call: None,
            shares: BTreeMap::new(),
            ranges: BTreeMap::new(),
        }
    }

    /// A part from `from` to where the path is.
    fn add(&mut self, from: u64, link: Link, name: &'a str, call: Option<u64>) {
        let from = from.clamp(self.begin, self.now);
        let lasted = self.now - from;
        self.now = from;
        self.call = call.or(self.call);
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
        let facts = self.call.and_then(|call| self.profile.calls.get(&call));
        let range = facts.and_then(|facts| facts.range.as_deref());
        let share = self.ranges.entry(range).or_insert_with(|| RangeShare {
            range: range.map(str::to_owned),
            total_ns: 0,
            work_ns: 0,
        });
        share.total_ns += lasted;
        if link.is_work() {
            share.work_ns += lasted;
        }
    }

    /// The end of the run.
    pub(crate) fn end(&self) -> At {
        let last = self.all.last(self.work, self.now, usize::MAX);
        let ends_now = |at: &usize| {
            let work = self.work.get(*at);
            work.is_some_and(|work| work.end_ns == self.now)
        };
        match last.filter(ends_now) {
            Some(work) => At::Work(work),
            None => At::Host,
        }
    }

    /// What the path has had so far: by part, and by range.
    pub(crate) fn shares(self) -> (Vec<Share>, Vec<RangeShare>) {
        let mut shares: Vec<Share> = self.shares.into_values().collect();
        shares.sort_by_key(|share| (std::cmp::Reverse(share.total_ns), share.link));
        let mut ranges: Vec<RangeShare> = self.ranges.into_values().collect();
        ranges.sort_by_key(|share| std::cmp::Reverse(share.total_ns));
        (shares, ranges)
    }

    /// Follows the path back to the begin of the run, or to work that `waits_until` says waited for
    /// others until a time of this run: that work's position. The path then goes on elsewhere.
    pub(crate) fn back(
        &mut self,
        mut at: At,
        waits_until: &dyn Fn(usize) -> Option<u64>,
    ) -> Option<usize> {
        if let At::BeginOf(work) = at {
            let begin = self.work.get(work).map(|work| work.begin_ns);
            self.now = begin.unwrap_or(self.now).min(self.now);
        }
        // Each step goes back in time, or from work to the host or to earlier work; the bound is for
        // times that a tool has got wrong.
        let mut steps = 6 * (self.work.len() + self.calls.all.len() + 1);
        while self.now > self.begin && steps > 0 {
            steps -= 1;
            at = match at {
                At::Work(work) => {
                    let waited = waits_until(work);
                    self.work_to(work, waited);
                    if waited.is_some() {
                        return Some(work);
                    }
                    At::BeginOf(work)
                }
                At::BeginOf(work) => self.before_work(work),
                At::Host => self.before_host(),
            };
        }
        let rest = self.begin;
        self.add(rest, Link::Between, BETWEEN_CALLS, None);
        None
    }

    /// The work itself, back to a time, or to its begin.
    fn work_to(&mut self, at: usize, time: Option<u64>) {
        if let Some(one) = self.work.get(at) {
            let from = time.unwrap_or(one.begin_ns);
            self.add(from, Link::of(one.kind), &one.name, one.call);
        }
    }

    /// The path is at the begin of work.
    fn before_work(&mut self, at: usize) -> At {
        let (work, profile) = (self.work, self.profile);
        let Some(one) = work.get(at) else {
            return At::Host;
        };
        let facts = one.call.and_then(|call| profile.calls.get(&call));
        let needed = facts.map_or(&[][..], |facts| &facts.needs).iter();
        // Nodes of one graph may be on several streams.
        let calls = needed.chain(one.node.and(one.call.as_ref()));
        let others = calls.filter_map(|call| self.by_call.get(call));
        let own = self.by_stream.get(&(one.device, one.stream));
        let ended = |at: &usize| work.get(*at).map(|work| work.end_ns);
        let last = others
            .chain(own)
            .filter_map(|earlier| earlier.last(work, one.begin_ns, at))
            .max_by_key(|at| (ended(at), *at));
        let entered = one.call.and_then(|call| self.calls.by_index.get(&call));
        let entered = entered.map(|call| call.begin_ns.min(one.begin_ns));
        match (last, entered) {
            (Some(last), entered) if ended(&last) >= entered => {
                // It comes after the work before it on its own stream.
                let is_own = work
                    .get(last)
                    .is_some_and(|last| (last.device, last.stream) == (one.device, one.stream));
                let facts = facts.filter(|_| is_own);
                let function = facts.and_then(|facts| facts.host_function);
                let end = ended(&last).unwrap_or(self.now);
                match function {
                    Some(call) => {
                        let name = profile.function(call);
                        self.add(end, Link::HostFunction, name, Some(call));
                    }
                    None => self.add(end, Link::Latency, &one.name, one.call),
                }
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
        let (all, now) = (self.calls.all, self.now);
        let end = |at: usize| all.get(at).map_or(0, |call| call.end_ns);
        let known = self
            .calls_by_end
            .get(..self.later_calls)
            .unwrap_or_default();
        let ended = known.partition_point(|&at| end(at) <= now);
        self.later_calls = ended.saturating_sub(1);
        let last = ended.checked_sub(1).and_then(|last| known.get(last));
        let Some(&call) = last.and_then(|&at| all.get(at)) else {
            self.add(self.begin, Link::Between, BETWEEN_CALLS, None);
            return At::Host;
        };
        self.add(call.end_ns, Link::Between, BETWEEN_CALLS, None);
        let profile = self.profile;
        let function = profile.function(call.call);
        let facts = profile.calls.get(&call.call);
        let awaited = facts
            .filter(|facts| facts.is_wait)
            .and_then(|_| self.all.last(self.work, self.now, usize::MAX))
            .and_then(|at| Some((at, self.work.get(at)?.end_ns)))
            .filter(|&(_, end)| end > call.begin_ns);
        match awaited {
            Some((work, end)) => {
                self.add(end, Link::Return, function, Some(call.call));
                At::Work(work)
            }
            None => {
                self.add(call.begin_ns, Link::Call, function, Some(call.call));
                At::Host
            }
        }
    }
}
