//! What a call waits for when recorded threads run at once: what had returned when it was entered.
//! So calls that overlapped may overlap again, and an order that was there is kept.
//!
//! A call that returns a handle also waits for one that was destroying the object with that handle:
//! it may have been entered before that one, and even have returned before it.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap};

use cutape_format::Call;
use cutape_registry::{Function, Kind, Role};
use rustc_hash::FxBuildHasher;

use crate::issue::length::made_length;
use crate::issue::traits;

/// A thread, and how many of its calls must be done.
pub(crate) type Done = (u32, u64);

/// A call, and what must be done before it apart from the earlier calls of its own thread.
#[derive(Debug)]
pub(crate) struct Step<'t> {
    pub call: Call<'t>,
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
    done: Done,
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
}

impl Overlap {
    pub(crate) fn new(threads: usize) -> Self {
        Self {
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
        self.open.push(Reverse((leave.ticks, done.0, done.1)));
        let Some(function) = function else {
            return after;
        };
        let traits = traits::of(function);
        if traits.gives {
            self.lengths.see(call, function);
        } else if traits.destroys {
            // Only what overlaps with a call that is held, or comes later, matters.
            let horizon = oldest.map_or(call.ticks, |oldest| oldest.min(call.ticks));
            self.destroys.retain(|old| old.returned >= horizon);
            self.destroys.push(Destroy {
                entered: call.ticks,
                returned: leave.ticks,
                ended: self.lengths.ended(call, function),
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
            if overlaps && !own && recycles(&step.call, function, &destroy.ended) {
                step.after.push(destroy.done);
            }
        }
    }
}
