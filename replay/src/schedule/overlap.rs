//! What a call waits for when recorded threads run at once: what had returned when it was entered.
//! So calls that overlapped may overlap again, and an order that was there is kept.
//!
//! A call that returns a handle also waits for one that was destroying the object with that handle:
//! it may have been entered before that one, and even have returned before it. Which handles end
//! with a context, a module or a library, the call does not say: any.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap};

use cutape_format::{Call, Trace};
use cutape_registry::{Function, Kind, Role};
use rustc_hash::FxBuildHasher;

use crate::calls::traits::{self, Traits};
use crate::plan::length::made_length;
use crate::player::current::Part;

/// A thread, and how many of its calls must be done.
pub(crate) type Done = (u32, u64);

/// A call, and what must be done before it apart from the earlier calls of its own thread.
#[derive(Debug)]
pub(crate) struct Step<'t> {
    pub call: Call<'t>,
    pub part: Part,
    /// `None` if this build does not know it.
    pub function: Option<&'static Function>,
    pub after: Vec<Done>,
}

/// A handle value that a call ends, with the length of the memory if it is an address.
type Ended = (Kind, u64, u64);

/// Lengths of memory by its recorded address.
#[derive(Debug, Default)]
struct Lengths(HashMap<u64, u64, FxBuildHasher>);

impl Lengths {
    /// Takes note of what a call makes.
    fn see(&mut self, call: &Call, function: &'static Function) {
        for (kind, value) in given(call, function) {
            if kind.is_address() {
                self.0.insert(value, made_length(call, function));
            }
        }
    }

    /// What a successful call ends.
    fn ended(&self, call: &Call, function: &'static Function) -> Vec<Ended> {
        if !call.succeeded() {
            return Vec::new();
        }
        let ends = function
            .params
            .iter()
            .enumerate()
            .filter_map(|(position, param)| {
                let Role::Destroy(kind) = param.role else {
                    return None;
                };
                let value = call.argument(position);
                let length = self.0.get(&value).copied().unwrap_or(0);
                Some((kind, value, if kind.is_address() { length } else { 0 }))
            });
        ends.collect()
    }
}

/// The handle values that a successful call returns.
fn given(call: &Call, function: &'static Function) -> impl Iterator<Item = (Kind, u64)> {
    let params = function.params.iter().enumerate();
    let succeeded = call.succeeded();
    params.filter_map(move |(position, param)| match param.role {
        Role::Make(kind, _) | Role::Find(kind, _) if succeeded => {
            call.out(position).map(|value| (kind, value))
        }
        _ => None,
    })
}

/// True if a call returns a handle that the other call destroyed.
fn recycles(call: &Call, function: &'static Function, ended: &[Ended]) -> bool {
    given(call, function).any(|(kind, value)| {
        ended.iter().any(
            |&(other, end, length)| match kind.is_address() && other.is_address() {
                true => {
                    let made = made_length(call, function).max(1);
                    value < end.saturating_add(length.max(1)) && end < value.saturating_add(made)
                }
                false => kind == other && value == end,
            },
        )
    })
}

/// A call that ends objects.
struct Destroy {
    entered: u64,
    returned: u64,
    ended: Vec<Ended>,
    /// It may end objects that it does not name.
    ends_others: bool,
    done: Done,
}

/// True if what ends owns objects, which end with it.
fn ends_owner(traits: &Traits, ended: &[Ended]) -> bool {
    let owns = |kind| matches!(kind, Kind::Context | Kind::Module | Kind::Library);
    traits.is_of_contexts || ended.iter().any(|&(kind, ..)| owns(kind))
}

/// The calls of one thread so far.
#[derive(Clone, Copy, Default)]
struct Progress {
    calls: u64,
    /// Of these, how many had returned.
    returned: u64,
    /// When the last of them returned, in the numbering of `Overlap::returns`.
    stamp: u64,
    /// The newest return of any thread that an earlier call of this thread waits for.
    seen: u64,
}

/// The time stamp counter is read without a fence, so a processor may read it before it has the
/// value of an earlier load, of which it has predicted what follows: at most as long as a load
/// takes that misses all caches, on a busy machine with several nodes (assumed).
const SKEW_NANOSECONDS: u64 = 500;

/// How many ticks too early a call may be entered by a trace's clock.
pub(crate) fn clock_skew(trace: &Trace) -> u64 {
    let is_counter = trace.head().clock != 0;
    let per_second = if is_counter {
        0
    } else {
        trace.ticks_per_second()
    };
    let ticks = u128::from(per_second) * u128::from(SKEW_NANOSECONDS) / 1_000_000_000;
    u64::try_from(ticks).unwrap_or(0)
}

/// What had returned when.
pub(crate) struct Overlap {
    /// Entered and not returned: moment of return, thread, how many of its calls are done then.
    open: BinaryHeap<Reverse<(u64, u32, u64)>>,
    threads: Vec<Progress>,
    /// The threads by when their last return was, in order.
    returns: BTreeMap<u64, u32>,
    stamp: u64,
    destroys: Vec<Destroy>,
    lengths: Lengths,
    /// How much later than it is the clock may say that a call returned, compared with the entry of
    /// a call of another thread.
    skew: u64,
}

impl Overlap {
    /// `skew` in ticks: see [`clock_skew`].
    pub(crate) fn new(threads: usize, skew: u64) -> Self {
        Self {
            skew,
            open: BinaryHeap::new(),
            threads: vec![Progress::default(); threads],
            returns: BTreeMap::new(),
            stamp: 0,
            destroys: Vec::new(),
            lengths: Lengths::default(),
        }
    }

    /// Notes the returns until a moment.
    fn pass(&mut self, moment: u64) {
        while let Some(&Reverse((returned, thread, calls))) = self.open.peek()
            && returned <= moment
        {
            self.open.pop();
            self.stamp += 1;
            let Some(progress) = self.threads.get_mut(thread as usize) else {
                continue;
            };
            self.returns.remove(&progress.stamp);
            progress.stamp = self.stamp;
            progress.returned = calls;
            self.returns.insert(self.stamp, thread);
        }
    }

    /// What a call waits for that the earlier calls of its thread have not waited for.
    ///
    /// `oldest` is when the oldest call was entered that is still held.
    pub(crate) fn enter(
        &mut self,
        call: &Call,
        function: Option<&'static Function>,
        oldest: Option<u64>,
    ) -> Vec<Done> {
        self.pass(call.ticks);
        let Some(progress) = self.threads.get_mut(call.thread as usize) else {
            return Vec::new();
        };
        progress.calls += 1;
        let done = (call.thread, progress.calls);
        let seen = std::mem::replace(&mut progress.seen, self.stamp);
        let returned = |&other: &u32| Some((other, self.threads.get(other as usize)?.returned));
        let newer = self.returns.range(seen + 1..).map(|(_, other)| other);
        let after = newer
            .filter(|&&other| other != call.thread)
            .filter_map(returned)
            .collect();
        let Some(leave) = call.leave else {
            return after;
        };
        let traits = function.map(traits::of);
        // What gives out handles keeps its place: it comes when it returned, and a call that waits
        // for it has to come later.
        let returned = match traits {
            Some(traits) if traits.gives => leave.ticks,
            _ => leave.ticks.saturating_sub(self.skew).max(call.ticks),
        };
        self.open.push(Reverse((returned, done.0, done.1)));
        let (Some(function), Some(traits)) = (function, traits) else {
            return after;
        };
        if traits.gives {
            self.lengths.see(call, function);
        } else if traits.destroys || traits.is_of_contexts {
            // Only what overlaps with a call that is held, or comes later, matters.
            let horizon = oldest.map_or(call.ticks, |oldest| oldest.min(call.ticks));
            self.destroys.retain(|old| old.returned >= horizon);
            let ended = self.lengths.ended(call, function);
            self.destroys.push(Destroy {
                entered: call.ticks,
                returned: leave.ticks,
                ends_others: ends_owner(traits, &ended),
                ended,
                done,
            });
        }
        after
    }

    /// Lets a call that returns handles wait for calls that were destroying objects with these
    /// handles.
    pub(crate) fn add_recycled(&self, step: &mut Step, returned: u64) {
        let Some(function) = step.function else {
            return;
        };
        for destroy in &self.destroys {
            let overlaps = destroy.entered < returned && destroy.returned > step.call.ticks;
            let own = destroy.done.0 == step.call.thread;
            let recycles = || recycles(&step.call, function, &destroy.ended);
            if overlaps && !own && (destroy.ends_others || recycles()) {
                step.after.push(destroy.done);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cutape_format::{NewCall, TraceBuilder};

    /// One thread's call is over when another's begins, which the clock says began somewhat
    /// earlier.
    #[test]
    fn a_return_within_the_skew_is_waited_for() {
        for (name, returned, skew, waits) in [
            ("cuMemFree_v2", 100, 0, true),
            ("cuMemFree_v2", 101, 0, false),
            ("cuMemFree_v2", 150, 50, true),
            ("cuMemFree_v2", 151, 50, false),
            ("cuStreamCreate", 101, 50, false),
        ] {
            let mut builder = TraceBuilder::new(cutape_registry::SIGNATURE_TEXT);
            let calls = [(0, name, 50, returned), (1, "cuMemFree_v2", 100, 200)];
            for (thread, name, entered, _) in calls {
                let count = if name == "cuStreamCreate" { 2 } else { 1 };
                builder.at(entered).call(NewCall {
                    thread,
                    name,
                    arguments: &[0; 2][..count],
                    ..NewCall::default()
                });
            }
            for (thread, _, _, returned) in calls {
                builder.at(returned).leave(thread, 0, &[]);
            }
            let file = format!("cutape-skew-{}.cutape", std::process::id());
            let path = std::env::temp_dir().join(file);
            builder.write(&path).unwrap();
            let trace = Trace::open(&path).unwrap();
            std::fs::remove_file(&path).unwrap();
            assert_eq!(clock_skew(&trace), 0, "its clock is a counter");
            let mut overlap = Overlap::new(2, skew);
            let mut functions = traits::Functions::default();
            let after = trace.calls().map(|call| {
                let function = functions.of(&call);
                overlap.enter(&call, function, None)
            });
            let expected = if waits { vec![(0, 1)] } else { vec![] };
            let after: Vec<_> = after.collect();
            assert_eq!(after, [vec![], expected], "{name} {returned} {skew}");
        }
    }
}
