//! Which recorded call a call of the program is.

use cutape_format::{Call, MadeCall};
use cutape_registry::Family;
use rustc_hash::FxHashSet;

use crate::exchange::Exchange;
use crate::live::{Host, LiveCall};
use crate::mismatch::{Difference, Mismatch};
use crate::query::Sort;
use crate::state::{Found, OnMismatch, State};
use crate::threads::{LOOK_AHEAD, ends_object};
use crate::unset;

/// Why a call is no recorded one.
pub(crate) enum Unmatched {
    /// The threads of the program cannot be told apart before another one has returned from a call.
    Yet,
    /// It differs, and is taken for this one.
    GoesOn(Box<Mismatch>, Box<Found>),
    Never(Box<Mismatch>),
}

impl State {
    pub(crate) fn read(&self, live: LiveCall<'_>, recorded: &Call<'static>) -> MadeCall {
        let host = Host {
            live: &|address| self.copies.live(&self.comparison, recorded.index, address),
            reads_pending: self.copies.reads_pending(recorded.index),
        };
        live.read(recorded, &self.kernels, host)
    }

    /// The call of the program, if it is that recorded call.
    pub(crate) fn matched(
        &mut self,
        live: LiveCall<'_>,
        recorded: &Call<'static>,
    ) -> Option<MadeCall> {
        if recorded.signature.name != live.function.name {
            return None;
        }
        let made = self.read(live, recorded);
        let is_equal = self
            .comparison
            .are_equal(recorded.index, &made.at_place_of(recorded));
        is_equal.then_some(made)
    }

    /// The next call of a recorded thread, if the call of the program is that.
    pub(crate) fn next_if_matched(
        &mut self,
        at: usize,
        live: LiveCall<'_>,
    ) -> Option<(Call<'static>, MadeCall)> {
        let recorded = self.threads.all.get(at)?.next()?.clone();
        let made = self.matched(live, &recorded)?;
        Some((recorded, made))
    }

    /// The same of one of the calls that end objects and may come in any order; it is the next then.
    fn end_in_other_order(
        &mut self,
        at: usize,
        live: LiveCall<'_>,
    ) -> Option<(Call<'static>, MadeCall)> {
        if !ends_object(live.function) {
            return None;
        }
        let ends = self.threads.all.get(at)?.ends();
        let coming = self.threads.all.get(at)?.coming();
        let ends: Vec<Call<'static>> = coming.take(ends).cloned().collect();
        for (distance, recorded) in ends.into_iter().enumerate().skip(1) {
            if let Some(made) = self.matched(live, &recorded) {
                self.threads.all.get_mut(at)?.bring_forward(distance);
                return Some((recorded, made));
            }
        }
        None
    }

    /// The same of one of the launches that follow, if none before it shares memory with it; it is the
    /// next then.
    fn launch_in_other_order(
        &mut self,
        at: usize,
        live: LiveCall<'_>,
    ) -> Option<(Call<'static>, MadeCall)> {
        let Family::Launch(_) = live.function.family else {
            return None;
        };
        let launches = self.threads.all.get(at)?.launches().take(LOOK_AHEAD);
        let launches: Vec<(usize, Call<'static>)> = launches
            .map(|(distance, call)| (distance, call.clone()))
            .collect();
        let mut passed = FxHashSet::default();
        for (distance, recorded) in launches {
            let used = self.comparison.counterparts(recorded.index).into_iter();
            let memory = used.filter(|one| one.kind.has_memory());
            let memory: Vec<u32> = memory.map(|one| one.number).collect();
            // Another one behind it may be alike.
            let is_apart = distance > 0 && !memory.iter().any(|one| passed.contains(one));
            if is_apart && let Some(made) = self.matched(live, &recorded) {
                self.threads.all.get_mut(at)?.bring_forward(distance);
                return Some((recorded, made));
            }
            passed.extend(memory);
        }
        None
    }

    /// The same, if it differs in bytes of kernel parameters that are to be learned.
    fn next_with_unset(
        &mut self,
        at: usize,
        live: LiveCall<'_>,
    ) -> Option<(Call<'static>, MadeCall)> {
        let recorded = self.threads.all.get(at)?.next()?.clone();
        if !self.learns_unset || recorded.signature.name != live.function.name {
            return None;
        }
        let made = self.read(live, &recorded);
        let as_read = made.at_place_of(&recorded);
        let unequal = self.comparison.mask_unequal(recorded.index, &as_read)?;
        self.outcome.add(&unset::line(&unequal));
        Some((recorded, made))
    }

    /// Finds the recorded call that a call with an effect is: thread, call, and what was read. A
    /// thread without a recorded one gets the first whose next call it makes.
    pub(crate) fn find(
        &mut self,
        thread: Option<usize>,
        live: LiveCall<'_>,
        on_mismatch: OnMismatch,
    ) -> Result<(usize, Call<'static>, MadeCall), Unmatched> {
        let candidates = match thread {
            Some(thread) => vec![thread],
            None => {
                let all = self.threads.all.iter().enumerate();
                let free = all.filter(|(_, thread)| !thread.is_taken);
                free.map(|(at, _)| at).collect()
            }
        };
        for &at in &candidates {
            if let Some((recorded, made)) = self.next_if_matched(at, live) {
                self.begin(at);
                return Ok((at, recorded, made));
            }
        }
        if let Some(at) = thread
            && let Some((recorded, made)) = self
                .end_in_other_order(at, live)
                .or_else(|| self.launch_in_other_order(at, live))
        {
            self.begin(at);
            return Ok((at, recorded, made));
        }
        if let Some(thread) = thread {
            match self.exchange(thread, live) {
                Exchange::Done(at, recorded, made) => return Ok((at, *recorded, made)),
                Exchange::Wait => return Err(Unmatched::Yet),
                Exchange::None => {}
            }
        }
        let at = candidates.first().copied();
        if let Some(at) = at
            && let Some(found) = self.allowed(at, live)
        {
            return Ok(found);
        }
        if let Some(at) = at
            && let Some((recorded, made)) = self.next_with_unset(at, live)
        {
            self.begin(at);
            return Ok((at, recorded, made));
        }
        let mismatch = Box::new(self.mismatch(at, live));
        let found = at
            .filter(|_| thread.is_some())
            .and_then(|at| self.resume(at, live, on_mismatch));
        Err(match found {
            Some(found) => Unmatched::GoesOn(mismatch, Box::new(found)),
            None => Unmatched::Never(mismatch),
        })
    }

    /// The program makes the next call of a recorded thread.
    pub(crate) fn begin(&mut self, at: usize) {
        if let Some(thread) = self.threads.all.get_mut(at) {
            (thread.is_taken, thread.is_busy) = (true, true);
        }
    }

    pub(crate) fn mismatch(&mut self, at: Option<usize>, live: LiveCall<'_>) -> Mismatch {
        let next = at.and_then(|at| self.threads.all.get(at)?.next().cloned());
        let difference = match &next {
            None => Difference::NoMore(live.function.name.to_owned()),
            Some(recorded) if recorded.signature.name == live.function.name => {
                let made = self.read(live, recorded);
                let made = made.at_place_of(recorded);
                Difference::Arguments(self.comparison.changes(recorded.index, &made))
            }
            Some(recorded) => {
                Difference::Function(live.function.name.to_owned(), self.values(live, recorded))
            }
        };
        let at_trace = (self.trace, &self.comparison);
        Mismatch::new(difference, at.unwrap_or(0), next.as_ref(), at_trace)
    }

    /// The arguments of a call that the recording does not have in this place.
    fn values(&mut self, live: LiveCall<'_>, place: &Call<'static>) -> Vec<(String, String)> {
        let Some(signature) = self.trace.signatures().by_name(live.function.name) else {
            return Vec::new();
        };
        let made = MadeCall::new(signature, &live.arguments());
        let mut place = place.clone();
        place.signature = signature;
        self.comparison.live_values(&made.at_place_of(&place))
    }

    /// The recorded answer to a query.
    pub(crate) fn answer(&mut self, live: LiveCall<'_>, sort: Sort) -> Option<Call<'static>> {
        let thread = self.thread();
        let sample = self.threads.sample(live.function)?;
        let made = self.read(live, &sample);
        let request = self.comparison.live_request(&made.at_place_of(&sample))?;
        self.threads.answer(thread, request, sort)
    }

    /// Takes in a query that the recording has no answer to.
    pub(crate) fn take_own(&mut self, live: LiveCall<'_>, result: i32) {
        if result != 0 {
            return;
        }
        if let Some(sample) = self.threads.sample(live.function) {
            let mut made = MadeCall::new(sample.signature, &live.arguments());
            live.add_outputs(&mut made, &sample, result);
            let now = self.comparison.enter();
            self.comparison.take_live(&made.at_place_of(&sample), now);
        }
    }
}
