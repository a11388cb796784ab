//! The calls of each recorded thread, and how far the program's thread has come.

use std::collections::VecDeque;
use std::ops::Range;

use cutape_diff::OneByOne;
use cutape_format::{Call, Trace};
use cutape_registry::{Family, Function, Role, function};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::kernels::Kernels;
use crate::outcome::has_effect;
use crate::query::{Sort, sort_of};

/// How many recorded calls are looked at for one that matches, when the next one does not.
pub(crate) const LOOK_AHEAD: usize = 64;

/// A recorded thread.
#[derive(Default)]
pub(crate) struct Thread<'t> {
    calls: Vec<Call<'t>>,
    /// The next call with an effect; the calls before it have been passed.
    next: usize,
    /// Queries between the last call with an effect and the next one, by what they ask for.
    queries: FxHashMap<u64, VecDeque<usize>>,
    /// Calls that show something of memory.
    to_see: FxHashSet<u64>,
    /// Those of the queries that the program has not seen.
    unseen: Vec<usize>,
    /// How many calls the program has made here that only ask.
    pub(crate) asked: u64,
    /// A thread of the program makes its calls.
    pub(crate) is_taken: bool,
    /// The driver is at work on its next call.
    pub(crate) is_busy: bool,
    /// The first calls that the program has made.
    pub(crate) made: Vec<Made>,
}

/// A recorded call that the program has made.
pub(crate) struct Made {
    pub(crate) function: &'static Function,
    /// The objects that it has created in the program.
    pub(crate) created: Range<u32>,
}

/// All of them.
pub(crate) struct Threads<'t> {
    pub(crate) all: Vec<Thread<'t>>,
    /// The thread of each call.
    of_calls: Vec<u32>,
    /// The last answer to each question, by what it asks for.
    latest: FxHashMap<u64, Call<'t>>,
    /// A call of each function, which says what of the program's memory belongs to it.
    samples: FxHashMap<u16, Call<'t>>,
}

impl<'t> Threads<'t> {
    /// Reads the calls of a trace.
    pub(crate) fn of(
        trace: &'t Trace,
        kernels: &mut Kernels,
        is_seen: impl Fn(u64) -> bool,
    ) -> Self {
        let mut all: Vec<Thread<'t>> = Vec::new();
        let mut samples = FxHashMap::default();
        let mut of_calls = Vec::new();
        for call in trace.calls() {
            kernels.learn(&call);
            of_calls.resize(call.index as usize, 0);
            of_calls.push(call.thread);
            let place = call.thread as usize;
            if all.len() <= place {
                all.resize_with(place + 1, Thread::default);
            }
            if let Some(function) = known(&call) {
                samples.entry(function.id).or_insert_with(|| call.clone());
            }
            if let Some(thread) = all.get_mut(place) {
                if is_seen(call.index) {
                    thread.to_see.insert(call.index);
                }
                thread.calls.push(call);
            }
        }
        Self {
            all,
            of_calls,
            latest: FxHashMap::default(),
            samples,
        }
    }

    /// Index of the first call with an effect that the program has not made.
    pub(crate) fn first_left(&self) -> u64 {
        let next = self.all.iter().filter_map(Thread::next);
        next.map(|call| call.index).min().unwrap_or(u64::MAX)
    }

    /// A recorded call of that function.
    pub(crate) fn sample(&self, function: &Function) -> Option<Call<'t>> {
        self.samples.get(&function.id).cloned()
    }

    /// The thread of the call with that index.
    fn of_call(&self, index: u64) -> Option<&Thread<'t>> {
        let thread = *self.of_calls.get(usize::try_from(index).ok()?)?;
        self.all.get(thread as usize)
    }

    /// The call with that index.
    pub(crate) fn with_index(&self, index: u64) -> Option<Call<'t>> {
        self.of_call(index)?.with_index(index).cloned()
    }

    /// Whether the program has made the call with that index, and the driver has returned from it.
    pub(crate) fn is_made(&self, index: u64) -> bool {
        let next = self.of_call(index).and_then(Thread::next);
        next.is_none_or(|next| next.index > index)
    }

    /// The answer to a question of a thread: the recorded one of this place, else the last one.
    pub(crate) fn answer(
        &mut self,
        thread: Option<usize>,
        request: u64,
        sort: Sort,
    ) -> Option<Call<'t>> {
        let here = thread.and_then(|thread| self.all.get_mut(thread));
        let here = here.and_then(|thread| thread.answer(request));
        if let Some(call) = &here {
            self.latest.insert(request, call.clone());
        }
        // A loop that polls ends only if some answer is that the work is complete.
        here.or_else(|| match sort {
            Sort::Poll => None,
            _ => self.latest.get(&request).cloned(),
        })
    }
}

/// Whether calls of a function end the object that they are given.
pub(crate) fn ends_object(function: &Function) -> bool {
    let mut params = function.params.iter();
    params.any(|param| matches!(param.role, Role::Destroy(_)))
}

/// The function of a recorded call, if this build knows it.
pub(crate) fn known(call: &Call<'_>) -> Option<&'static Function> {
    function(&call.signature.name)
}

impl<'t> Thread<'t> {
    /// The call with an effect that the program's thread must make next.
    pub(crate) fn next(&self) -> Option<&Call<'t>> {
        self.calls.get(self.next)
    }

    /// How many calls, from the next one on, end objects with nothing between them: garbage collectors
    /// and destructors make them in any order.
    pub(crate) fn ends(&self) -> usize {
        let coming = self.calls.iter().skip(self.next);
        let ends = |call: &&Call<'t>| known(call).is_some_and(ends_object);
        coming.take_while(ends).count()
    }

    /// Makes the call that is so many behind the next one the next.
    pub(crate) fn bring_forward(&mut self, distance: usize) {
        if let Some(calls) = self.calls.get_mut(self.next..=self.next + distance) {
            calls.rotate_right(1);
        }
    }

    /// The launches that follow the next call, which is one, with no other call with an effect between
    /// them: how far behind it they are.
    pub(crate) fn launches(&self) -> impl Iterator<Item = (usize, &Call<'t>)> {
        let is_launch = |call: &Call<'t>| {
            let family = known(call).map(|function| function.family);
            matches!(family, Some(Family::Launch(_))) && call.succeeded()
        };
        let coming = self.calls.iter().skip(self.next).enumerate();
        let coming = coming.filter(|(_, call)| has_effect(call));
        coming.take_while(move |(_, call)| is_launch(call))
    }

    /// Begins again, as if no thread of the program had made its calls.
    pub(crate) fn begin_again(&mut self, comparison: &OneByOne<'t>) {
        (self.next, self.is_taken) = (0, false);
        self.unseen.clear();
        self.made.clear();
        self.pass_queries(comparison);
    }

    /// The call with that index.
    pub(crate) fn with_index(&self, index: u64) -> Option<&Call<'t>> {
        self.calls.iter().find(|call| call.index == index)
    }

    /// All calls with an effect.
    pub(crate) fn all_effects(&self) -> impl Iterator<Item = &Call<'t>> {
        self.calls.iter().filter(|call| has_effect(call))
    }

    /// The calls with an effect from the next one on.
    pub(crate) fn coming(&self) -> impl Iterator<Item = &Call<'t>> {
        self.calls
            .iter()
            .skip(self.next)
            .filter(|call| has_effect(call))
    }

    /// Goes past the next call with an effect, and past the queries behind it.
    pub(crate) fn advance(&mut self, comparison: &OneByOne<'t>) {
        self.next += 1;
        self.pass_queries(comparison);
    }

    /// Passes the queries before the next call with an effect.
    pub(crate) fn pass_queries(&mut self, comparison: &OneByOne<'t>) {
        self.queries.clear();
        while let Some(call) = self.calls.get(self.next)
            && !has_effect(call)
        {
            if known(call).is_some_and(|function| sort_of(function) != Sort::Own) {
                let request = comparison.recorded_request(call.index);
                self.queries
                    .entry(request)
                    .or_default()
                    .push_back(self.next);
            }
            if self.to_see.contains(&call.index) {
                self.unseen.push(self.next);
            }
            self.next += 1;
        }
    }

    /// As [`Thread::take_unseen`]; they stay unseen.
    pub(crate) fn unseen(&self) -> impl Iterator<Item = &Call<'t>> {
        self.unseen.iter().filter_map(|&at| self.calls.get(at))
    }

    /// When the last recorded call before the next one had returned; 0 if there is none.
    pub(crate) fn last_left(&self) -> u64 {
        let last = self.next.checked_sub(1).and_then(|at| self.calls.get(at));
        let leave = last.and_then(|call| call.leave);
        leave.map_or(0, |leave| leave.ticks)
    }

    /// The calls that were passed and whose notes the program has not seen.
    pub(crate) fn take_unseen(&mut self) -> Vec<Call<'t>> {
        let unseen = std::mem::take(&mut self.unseen).into_iter();
        unseen
            .filter_map(|at| self.calls.get(at).cloned())
            .collect()
    }

    /// The next answer to a question between the last call with an effect and the next one.
    fn answer(&mut self, request: u64) -> Option<Call<'t>> {
        let at = self.queries.get_mut(&request)?.pop_front()?;
        self.calls.get(at).cloned()
    }

    /// Index of the first call whose notes the program has not seen.
    pub(crate) fn first_open(&self) -> Option<u64> {
        let first = self.unseen.first().copied().unwrap_or(self.next);
        self.calls.get(first).map(|call| call.index)
    }

    /// Whether the notes of that call are yet to be seen.
    pub(crate) fn has_unseen(&self, call: &Call<'_>) -> bool {
        self.unseen().any(|other| other.index == call.index)
    }

    /// The program has seen what the notes of that call show.
    pub(crate) fn saw(&mut self, call: &Call<'_>) {
        let calls = &self.calls;
        self.unseen
            .retain(|&at| calls.get(at).is_none_or(|other| other.index != call.index));
    }
}
