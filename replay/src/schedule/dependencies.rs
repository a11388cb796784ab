//! What each call has to wait for when recorded threads replay at once: what had returned in the recording when it was
//! entered, so that calls which overlapped may overlap again, and an order that was there is kept.
//!
//! Besides, a call that gives out a handle waits for one that was destroying what had the same handle (see [`crate::schedule::order`]):
//! it may have been entered before that one, and even have returned before it.
//! Every call is placed behind all that it waits for, so that whatever is first among those not done can always be played.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap};

use cutape_format::{Call, Calls, Trace};
use cutape_registry::{Function, Kind, Role};
use rustc_hash::FxBuildHasher;

use crate::issue::frame::is_address_kind;
use crate::issue::traits::{self, Functions};
use crate::plan::made_length;

/// So many calls of that thread are done.
pub(crate) type Done = (u32, u64);

/// A call and what must be done before it, apart from the earlier calls of its own thread.
#[derive(Debug)]
pub(crate) struct Step<'t> {
    pub call: Call<'t>,
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
            if is_address_kind(kind) {
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
                Some((kind, value, if is_address_kind(kind) { length } else { 0 }))
            });
        ends.collect()
    }
}

/// The handle values that a successful call gives out.
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

/// True if a call gives out again what the other call has given back.
fn recycles(call: &Call, function: &'static Function, ended: &[Ended]) -> bool {
    given(call, function).any(|(kind, value)| {
        ended.iter().any(|&(other, end, length)| {
            match is_address_kind(kind) && is_address_kind(other) {
                true => {
                    let made = made_length(call, function).max(1);
                    value < end.saturating_add(length.max(1)) && end < value.saturating_add(made)
                }
                false => kind == other && value == end,
            }
        })
    })
}

/// A call that gives out handles, between its enter and its return.
struct Held<'t> {
    returned: u64,
    step: Step<'t>,
    function: &'static Function,
}

/// A call that ends objects.
struct Destroy {
    entered: u64,
    returned: u64,
    ended: Vec<Ended>,
    done: Done,
}

/// What one thread has seen.
#[derive(Clone, Copy, Default)]
struct Progress {
    /// Calls so far.
    calls: u64,
    /// Of these, how many had returned.
    returned: u64,
    /// When the last of them returned, in the numbering of `Schedule::returns`.
    stamp: u64,
    /// The newest return of any thread that an earlier call of this thread waits for.
    seen: u64,
}

/// The calls of a trace with what they wait for.
pub(crate) struct Schedule<'t> {
    calls: Calls<'t>,
    functions: Functions,
    end: u64,
    next: Option<Call<'t>>,
    held: Vec<Held<'t>>,
    /// Entered and not returned: moment of return, thread, how many calls of the thread are done then.
    open: BinaryHeap<Reverse<(u64, u32, u64)>>,
    threads: Vec<Progress>,
    /// The threads by when their last return was, in order.
    returns: BTreeMap<u64, u32>,
    stamp: u64,
    destroys: Vec<Destroy>,
    lengths: Lengths,
}

impl<'t> Schedule<'t> {
    /// The calls before the index `end`.
    pub(crate) fn new(trace: &'t Trace, end: u64) -> Self {
        Self {
            calls: trace.calls(),
            functions: Functions::default(),
            end,
            next: None,
            held: Vec::new(),
            open: BinaryHeap::new(),
            threads: vec![Progress::default(); trace.thread_count()],
            returns: BTreeMap::new(),
            stamp: 0,
            destroys: Vec::new(),
            lengths: Lengths::default(),
        }
    }

    /// Books the returns until a moment.
    fn pass(&mut self, moment: u64) {
        while let Some(&Reverse((returned, thread, calls))) = self.open.peek()
            && returned <= moment
        {
            self.open.pop();
            self.stamp += 1;
            let progress = &mut self.threads[thread as usize];
            self.returns.remove(&progress.stamp);
            progress.stamp = self.stamp;
            progress.returned = calls;
            self.returns.insert(self.stamp, thread);
        }
    }

    /// What the next call of a thread waits for, that its earlier calls have not waited for.
    fn after(&mut self, thread: u32) -> Vec<Done> {
        let seen = self.threads[thread as usize].seen;
        self.threads[thread as usize].seen = self.stamp;
        self.returns
            .range(seen + 1..)
            .filter(|&(_, &other)| other != thread)
            .map(|(_, &other)| (other, self.threads[other as usize].returned))
            .collect()
    }

    /// Takes the held call that returned first, if that was before `moment`.
    fn returned_before(&mut self, moment: u64) -> Option<Step<'t>> {
        let first = self
            .held
            .iter()
            .enumerate()
            .min_by_key(|(_, held)| (held.returned, held.step.call.index))
            .map(|(at, _)| at)?;
        if self.held[first].returned > moment {
            return None;
        }
        let Held {
            returned,
            mut step,
            function,
        } = self.held.swap_remove(first);
        for destroy in &self.destroys {
            let overlaps = destroy.entered < returned && destroy.returned > step.call.ticks;
            let own = destroy.done.0 == step.call.thread;
            if overlaps && !own && recycles(&step.call, function, &destroy.ended) {
                step.after.push(destroy.done);
            }
        }
        Some(step)
    }

    fn visit(&mut self, call: Call<'t>) -> Option<Step<'t>> {
        self.pass(call.ticks);
        let after = self.after(call.thread);
        let progress = &mut self.threads[call.thread as usize];
        progress.calls += 1;
        let done = (call.thread, progress.calls);
        let Some(leave) = call.leave else {
            return Some(Step { call, after });
        };
        self.open.push(Reverse((leave.ticks, done.0, done.1)));
        if let Some(function) = self.functions.of(&call) {
            let traits = traits::of(function);
            if traits.gives {
                self.lengths.see(&call, function);
                self.held.push(Held {
                    returned: leave.ticks,
                    step: Step { call, after },
                    function,
                });
                return None;
            }
            if traits.destroys {
                // Only what overlaps with a call that may still be held, or come, matters.
                let entered = self.held.iter().map(|held| held.step.call.ticks);
                let horizon = entered.chain([call.ticks]).min().unwrap_or(0);
                self.destroys.retain(|old| old.returned >= horizon);
                self.destroys.push(Destroy {
                    entered: call.ticks,
                    returned: leave.ticks,
                    ended: self.lengths.ended(&call, function),
                    done,
                });
            }
        }
        Some(Step { call, after })
    }
}

impl<'t> Iterator for Schedule<'t> {
    type Item = Step<'t>;

    fn next(&mut self) -> Option<Step<'t>> {
        loop {
            if self.next.is_none() {
                self.next = self.calls.next().filter(|call| call.index < self.end);
            }
            let Some(entered) = self.next.as_ref().map(|call| call.ticks) else {
                return self.returned_before(u64::MAX);
            };
            if !self.held.is_empty()
                && let Some(step) = self.returned_before(entered)
            {
                return Some(step);
            }
            let call = self.next.take()?;
            if let Some(step) = self.visit(call) {
                return Some(step);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cutape_format::{NewCall, NewSnapshot, TraceBuilder};

    fn schedule(builder: &TraceBuilder, name: &str) -> Vec<(u64, Vec<Done>)> {
        let file = format!("cutape-schedule-{}-{name}.cutape", std::process::id());
        let path = std::env::temp_dir().join(file);
        builder.write(&path).unwrap();
        let trace = Trace::open(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        Schedule::new(&trace, u64::MAX)
            .map(|step| (step.call.index, step.after))
            .collect()
    }

    fn enter(builder: &mut TraceBuilder, thread: u32, name: &str, arguments: &[u64]) {
        builder.call(NewCall {
            thread,
            name,
            arguments,
            ..NewCall::default()
        });
    }

    #[test]
    fn a_call_waits_for_what_had_returned_and_for_nothing_else() {
        let mut builder = TraceBuilder::new(cutape_registry::SIGNATURE_TEXT);
        enter(&mut builder, 0, "cuInit", &[0]); // 0
        builder.leave(0, 0, &[]);
        enter(&mut builder, 1, "cuCtxSynchronize", &[]); // 1, overlaps with 2 and 3
        enter(&mut builder, 0, "cuCtxSynchronize", &[]); // 2
        builder.leave(0, 0, &[]);
        enter(&mut builder, 0, "cuCtxSynchronize", &[]); // 3
        builder.leave(1, 0, &[]);
        enter(&mut builder, 1, "cuCtxSynchronize", &[]); // 4: 2 had returned, 3 had not
        builder.leave(0, 0, &[]);
        builder.leave(1, 0, &[]);
        enter(&mut builder, 0, "cuCtxSynchronize", &[]); // 5
        builder.leave(0, 0, &[]);
        enter(&mut builder, 2, "cuCtxSynchronize", &[]); // 6: a thread that is new
        builder.leave(2, 0, &[]);
        let expected = [
            (0, vec![]),
            (1, vec![(0, 1)]),
            (2, vec![]),
            (3, vec![]),
            (4, vec![(0, 2)]),
            (5, vec![(1, 2)]),
            (6, vec![(1, 2), (0, 4)]),
        ];
        assert_eq!(schedule(&builder, "returned"), expected);
    }

    /// As in `order`: the create begins before the destroy of what had its handle, and ends after it, or before.
    #[test]
    fn a_recycled_handle_waits_for_its_end() {
        for destroy_returns_first in [true, false] {
            let mut builder = TraceBuilder::new(cutape_registry::SIGNATURE_TEXT);
            let handle = 0x5500_u64.to_le_bytes();
            let made = [NewSnapshot::pointee(0, &handle)];
            enter(&mut builder, 0, "cuStreamCreate", &[8, 0]);
            builder.leave(0, 0, &made);
            enter(&mut builder, 1, "cuStreamCreate", &[16, 0]);
            enter(&mut builder, 0, "cuStreamDestroy_v2", &[0x5500]);
            if destroy_returns_first {
                builder.leave(0, 0, &[]);
                builder.leave(1, 0, &made);
            } else {
                builder.leave(1, 0, &made);
                builder.leave(0, 0, &[]);
            }
            let expected = [(0, vec![]), (2, vec![]), (1, vec![(0, 1), (0, 2)])];
            assert_eq!(schedule(&builder, "recycled"), expected);
        }
    }

    /// Memory that is freed by a call which returns after another thread has been given some of it.
    #[test]
    fn memory_that_is_given_out_again_waits_for_its_end() {
        for (given, waits) in [(0x7000_0f00, true), (0x7000_1000, false)] {
            let mut builder = TraceBuilder::new(cutape_registry::SIGNATURE_TEXT);
            let (first, second) = (0x7000_0000_u64.to_le_bytes(), u64::to_le_bytes(given));
            enter(&mut builder, 0, "cuMemAlloc_v2", &[8, 0x1000]);
            builder.leave(0, 0, &[NewSnapshot::pointee(0, &first)]);
            enter(&mut builder, 0, "cuMemFree_v2", &[0x7000_0000]);
            enter(&mut builder, 1, "cuMemAlloc_v2", &[8, 0x100]);
            builder.leave(1, 0, &[NewSnapshot::pointee(0, &second)]);
            builder.leave(0, 0, &[]);
            let mut after = vec![(0, 1)];
            after.extend(waits.then_some((0, 2)));
            let expected = [(0, vec![]), (1, vec![]), (2, after)];
            assert_eq!(schedule(&builder, "memory"), expected);
        }
    }
}
