//! The order of a replay: what each call waits for.
//!
//! Calls come as they were entered, except those that give out a handle: they come when they
//! returned. Threads overlap, so one may enter a create that returns only after another thread has
//! destroyed the object that had the same handle. No thread can use a handle before the call that
//! gives it out returns, and none uses an object after its destroying call is entered.
//!
//! In lockstep each call waits for its predecessor, and calls that wait for the device also come
//! when they returned, and the recorder had read what they found. What it found behind other calls
//! is a step of its own. Otherwise a call waits for what
//! [`overlap`](super::overlap) says. Either way a call comes after everything it waits for, so the
//! first call that is not done can always run.

use std::collections::VecDeque;

use cutape_format::{Call, Calls, Note, Trace};
use cutape_model::looked;
use cutape_registry::{Function, Waits};

use super::overlap::{Done, Overlap, Step, clock_skew};
use crate::calls::traits::{self, CaptureStep, Functions, Traits};
use crate::player::current::Part;

/// A call between its enter and its return.
struct Held<'t> {
    /// When it returned, and the recorder had looked at what it found.
    returned: u64,
    step: Step<'t>,
}

/// The calls of a trace in the order of a replay.
pub(crate) struct Steps<'t> {
    calls: Calls<'t>,
    functions: Functions,
    /// Calls from that index on are left out.
    end: u64,
    next: Option<Call<'t>>,
    held: Vec<Held<'t>>,
    order: Order,
    moved: Moved<'t>,
    /// Steps that come next.
    due: VecDeque<Step<'t>>,
}

/// Calls that come before a call which comes first in the trace.
struct Moved<'t> {
    before: u64,
    calls: Vec<Call<'t>>,
}

/// What decides what a call waits for.
enum Order {
    Lockstep {
        /// How many calls of each thread have come.
        calls: Vec<u64>,
        last: Option<Done>,
    },
    Overlapping(Overlap),
}

impl<'t> Steps<'t> {
    /// The calls before the index `end`; one after the other, or overlapping as recorded.
    pub(crate) fn new(trace: &'t Trace, end: u64, overlapping: bool) -> Self {
        let threads = trace.thread_count();
        Self {
            calls: trace.calls(),
            functions: Functions::default(),
            end,
            next: None,
            held: Vec::new(),
            order: match overlapping {
                true => Order::Overlapping(Overlap::new(threads, clock_skew(trace))),
                false => Order::Lockstep {
                    calls: vec![0; threads],
                    last: None,
                },
            },
            moved: Moved {
                before: u64::MAX,
                calls: Vec::new(),
            },
            due: VecDeque::new(),
        }
    }

    /// In lockstep: calls, in the order of the trace, come before an earlier one.
    pub(crate) fn with_moved(self, trace: &'t Trace, (moved, before): (&[u64], u64)) -> Self {
        let is_moved = |call: &Call<'_>| moved.binary_search(&call.index).is_ok();
        let calls = trace.calls().filter(is_moved).take(moved.len());
        Self {
            moved: Moved {
                before,
                calls: calls.collect(),
            },
            ..self
        }
    }

    fn read(&mut self) -> Option<Call<'t>> {
        if let Some(next) = self.next.take() {
            return Some(next);
        }
        let moved = &self.moved.calls;
        let is_moved = |call: &Call<'_>| moved.iter().any(|moved| moved.index == call.index);
        let next = self.calls.by_ref().find(|call| !is_moved(call));
        next.filter(|call| call.index < self.end)
    }

    /// True for a call that comes when it returned.
    fn is_held(&self, traits: &Traits, function: &Function) -> bool {
        let waits = matches!(self.order, Order::Lockstep { .. }) && function.waits != Waits::No;
        traits.gives || waits
    }

    /// Takes the held call that returned first, if that was before `moment`. Before a capture
    /// begins, which may forbid it, also one that the driver has returned from.
    fn returned_before(&mut self, moment: u64, begins_capture: bool) -> Option<Step<'t>> {
        let is_over = |held: &Held<'_>| {
            let may_be_forbidden = begins_capture && held.step.part == Part::Whole;
            let leave = held.step.call.leave.filter(|_| may_be_forbidden);
            held.returned <= moment || leave.is_some_and(|leave| leave.ticks <= moment)
        };
        let held = self.held.iter().enumerate();
        let over = held.filter(|(_, held)| is_over(held));
        let first = over.min_by_key(|(_, held)| (held.returned, held.step.call.index))?;
        let mut held = self.held.swap_remove(first.0);
        if let Order::Overlapping(overlap) = &self.order {
            overlap.add_recycled(&mut held.step, held.returned);
        }
        Some(held.step)
    }

    /// What a call waits for that is about to come; in lockstep, what comes before it.
    fn follow(&mut self, mut step: Step<'t>) -> Step<'t> {
        if let Order::Lockstep { calls, last } = &mut self.order
            && let Some(count) = calls.get_mut(step.call.thread as usize)
        {
            *count += 1;
            let done = (step.call.thread, *count);
            step.after.extend(last.filter(|last| last.0 != done.0));
            *last = Some(done);
        }
        step
    }

    /// The next step in the order of the trace.
    fn take(&mut self) -> Option<Step<'t>> {
        loop {
            if !self.held.is_empty() {
                self.next = self.read();
                let entered = self.next.as_ref().map_or(u64::MAX, |call| call.ticks);
                let function = self.next.as_ref().and_then(|call| self.functions.of(call));
                let capture = function.map(|function| traits::of(function).capture);
                let begins_capture = capture == Some(CaptureStep::Begins);
                if let Some(step) = self.returned_before(entered, begins_capture) {
                    return Some(step);
                }
            }
            let call = self.read()?;
            if let Some(step) = self.enter(call) {
                return Some(step);
            }
        }
    }

    /// A call as it was entered; `None` if it comes later.
    fn enter(&mut self, call: Call<'t>) -> Option<Step<'t>> {
        let function = self.functions.of(&call);
        let oldest = self.held.iter().map(|held| held.step.call.ticks).min();
        let after = match &mut self.order {
            Order::Overlapping(overlap) => overlap.enter(&call, function, oldest),
            Order::Lockstep { .. } => Vec::new(),
        };
        let mut step = Step {
            call,
            part: Part::Whole,
            function,
            after,
        };
        let (Some(leave), Some(function)) = (step.call.leave, function) else {
            return Some(step);
        };
        // What memory held at the start of a part counts from when the call was entered.
        let has_contents =
            |call: &Call<'_>| call.notes().any(|note| matches!(note, Note::Memory(..)));
        // Calls of other threads until the recorder looked may have enqueued, or proved complete, what
        // it found. The program goes on behind that.
        let looked = looked(&step.call);
        if has_contents(&step.call) {
            return Some(step);
        }
        if !self.is_held(traits::of(function), function) {
            if let (Some(returned), Order::Lockstep { .. }) = (looked, &self.order) {
                step.part = Part::Call;
                let look = Step {
                    call: step.call.clone(),
                    part: Part::Look,
                    function: step.function,
                    after: Vec::new(),
                };
                self.held.push(Held {
                    returned,
                    step: look,
                });
            }
            return Some(step);
        }
        let returned = looked.unwrap_or(leave.ticks);
        self.held.push(Held { returned, step });
        None
    }
}

impl<'t> Iterator for Steps<'t> {
    type Item = Step<'t>;

    fn next(&mut self) -> Option<Step<'t>> {
        if let Some(step) = self.due.pop_front() {
            return Some(self.follow(step));
        }
        let step = self.take()?;
        if step.call.index != self.moved.before {
            return Some(self.follow(step));
        }
        self.moved.before = u64::MAX;
        let functions = &mut self.functions;
        let moved = self.moved.calls.iter().map(|call| Step {
            function: functions.of(call),
            call: call.clone(),
            part: Part::Whole,
            after: Vec::new(),
        });
        self.due.extend(moved);
        self.due.push_back(step);
        self.next()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cutape_format::layout::{LookedNote, MemoryNote, note_kind};
    use cutape_format::{NewCall, NewSnapshot, TraceBuilder};

    fn steps(
        builder: &TraceBuilder,
        name: &str,
        end: u64,
        overlapping: bool,
    ) -> Vec<(u64, Vec<Done>)> {
        let parts = parts(builder, name, end, overlapping);
        parts
            .into_iter()
            .map(|(at, _, after)| (at, after))
            .collect()
    }

    fn parts(
        builder: &TraceBuilder,
        name: &str,
        end: u64,
        overlapping: bool,
    ) -> Vec<(u64, Part, Vec<Done>)> {
        let file = format!("cutape-steps-{}-{name}.cutape", std::process::id());
        let path = std::env::temp_dir().join(file);
        builder.write(&path).unwrap();
        let trace = Trace::open(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        let steps = Steps::new(&trace, end, overlapping);
        steps
            .map(|step| (step.call.index, step.part, step.after))
            .collect()
    }

    fn overlapping(builder: &TraceBuilder, name: &str) -> Vec<(u64, Vec<Done>)> {
        steps(builder, name, u64::MAX, true)
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
        assert_eq!(overlapping(&builder, "returned"), expected);
    }

    /// The create begins before the destroy of what had its handle, and ends after it, or before.
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
            assert_eq!(overlapping(&builder, "recycled"), expected);
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
            assert_eq!(overlapping(&builder, "memory"), expected);
        }
    }

    /// A handle is given out again that ended with its module or context, which a call of another
    /// thread ends meanwhile.
    #[test]
    fn a_handle_waits_for_the_end_of_what_owned_it() {
        for (ender, argument, waits) in [
            ("cuModuleUnload", 0x5500, true),
            ("cuCtxDetach", 0x5600, true),
            ("cuCtxDestroy_v2", 0x5600, true),
            ("cuDevicePrimaryCtxRelease_v2", 0, true),
            ("cuStreamDestroy_v2", 0x5700, false),
        ] {
            let mut builder = TraceBuilder::new(cutape_registry::SIGNATURE_TEXT);
            let function = 0x5800_u64.to_le_bytes();
            enter(&mut builder, 0, "cuFuncSetBlockShape", &[0x5800, 1, 1, 1]);
            enter(&mut builder, 1, "cuModuleGetFunction", &[8, 0x5900, 8]);
            builder.leave(0, 0, &[]);
            enter(&mut builder, 0, ender, &[argument]);
            let made = NewSnapshot::pointee(0, &function);
            builder.leave(1, 0, &[made]).leave(0, 0, &[]);
            let mut after = Vec::new();
            after.extend(waits.then_some((0, 2)));
            let expected = [(0, vec![]), (2, vec![]), (1, after)];
            assert_eq!(overlapping(&builder, "owner"), expected, "{ender}");
        }
    }

    /// A part of a trace begins with a wait, and another thread's call is entered meanwhile.
    #[test]
    fn a_wait_with_contents_of_memory_comes_as_it_was_entered() {
        for (has_contents, expected) in [(false, [0, 2, 1]), (true, [0, 1, 2])] {
            let mut builder = TraceBuilder::new(cutape_registry::SIGNATURE_TEXT);
            enter(&mut builder, 0, "cuInit", &[0]);
            builder.leave(0, 0, &[]);
            enter(&mut builder, 0, "cuCtxSynchronize", &[]);
            if has_contents {
                builder.memory_note(0, MemoryNote::default(), "", None);
            }
            enter(&mut builder, 1, "cuMemsetD8_v2", &[0x1000, 0, 8]);
            builder.leave(1, 0, &[]).leave(0, 0, &[]);
            let order = steps(&builder, "contents", u64::MAX, false);
            assert_eq!(
                order.iter().map(|step| step.0).collect::<Vec<_>>(),
                expected
            );
        }
    }

    /// A call returns, then another thread's is entered, then the recorder looks at what it found.
    #[test]
    fn what_was_found_comes_when_the_recorder_has_looked() {
        use Part::{Call, Look, Whole};
        // The call, another thread's, and what comes when.
        type Case<'c> = (&'c str, &'c str, &'c [(u64, Part)]);
        let table: [Case<'_>; 3] = [
            (
                "cuCtxSynchronize_v2",
                "cuMemsetD8_v2",
                &[(0, Whole), (2, Whole), (1, Whole)],
            ),
            (
                "cuMemcpyDtoH_v2",
                "cuMemsetD8_v2",
                &[(0, Whole), (1, Call), (2, Whole), (1, Look)],
            ),
            // It may forbid the wait.
            (
                "cuCtxSynchronize_v2",
                "cuStreamBeginCapture_v2",
                &[(0, Whole), (1, Whole), (2, Whole)],
            ),
        ];
        for (name, other, expected) in table {
            let words = |name: &str| {
                let all = [0x2000, 0x1000, 8];
                all[..cutape_registry::function(name).unwrap().params.len()].to_vec()
            };
            let mut builder = TraceBuilder::new(cutape_registry::SIGNATURE_TEXT);
            builder.at(10);
            enter(&mut builder, 0, "cuInit", &[0]);
            builder.leave(0, 0, &[]);
            builder.at(20);
            enter(&mut builder, 0, name, &words(name));
            let note = LookedNote { ticks: 50 };
            builder.note(0, note_kind::LOOKED, note, &[]);
            builder.at(30).leave(0, 0, &[]);
            builder.at(40);
            enter(&mut builder, 1, other, &words(other));
            builder.at(60).leave(1, 0, &[]);
            let order = parts(&builder, "looked", u64::MAX, false);
            let order: Vec<(u64, Part)> = order.iter().map(|step| (step.0, step.1)).collect();
            assert_eq!(order, expected, "{name}, {other}");
        }
    }

    /// A load that gives out a handle, and thus comes when it returned, and another thread's.
    #[test]
    fn moved_calls_come_before_a_chosen_one() {
        let mut builder = TraceBuilder::new(cutape_registry::SIGNATURE_TEXT);
        let module = 0x5500_u64.to_le_bytes();
        enter(&mut builder, 0, "cuInit", &[0]); // 0
        builder.leave(0, 0, &[]);
        enter(&mut builder, 0, "cuMemsetD8_v2", &[0x1000, 0, 8]); // 1
        builder.leave(0, 0, &[]);
        enter(&mut builder, 1, "cuModuleLoadData", &[8, 0x6000]); // 2
        builder.leave(1, 0, &[NewSnapshot::pointee(0, &module)]);
        enter(&mut builder, 0, "cuCtxSynchronize", &[]); // 3
        builder.leave(0, 0, &[]);
        let path = std::env::temp_dir().join(format!("cutape-moved-{}", std::process::id()));
        builder.write(&path).unwrap();
        let trace = Trace::open(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        let order = |moved: &[u64]| {
            let steps = Steps::new(&trace, 3, false).with_moved(&trace, (moved, 1));
            let steps = steps.map(|step| (step.call.index, step.after));
            steps.collect::<Vec<_>>()
        };
        assert_eq!(
            order(&[2]),
            [(0, vec![]), (2, vec![(0, 1)]), (1, vec![(1, 1)])]
        );
        assert_eq!(order(&[]), [(0, vec![]), (1, vec![]), (2, vec![(0, 2)])]);
    }

    /// One thread's create is entered before, and returns after, another thread's destroy of the
    /// same handle.
    #[test]
    fn a_recycled_handle_is_given_out_after_it_was_given_back() {
        let mut builder = TraceBuilder::new(cutape_registry::SIGNATURE_TEXT);
        let handle = 0x5500_u64.to_le_bytes();
        enter(&mut builder, 0, "cuStreamCreate", &[8, 0]);
        builder.leave(0, 0, &[NewSnapshot::pointee(0, &handle)]);
        enter(&mut builder, 1, "cuStreamCreate", &[16, 0]);
        enter(&mut builder, 0, "cuStreamDestroy_v2", &[0x5500]);
        builder.leave(0, 0, &[]);
        builder.leave(1, 0, &[NewSnapshot::pointee(0, &handle)]);
        enter(&mut builder, 1, "cuStreamDestroy_v2", &[0x5500]);
        builder.leave(1, 0, &[]);
        enter(&mut builder, 0, "cuCtxSynchronize", &[]);
        // The call in flight at the end keeps its place.
        let all = [
            (0, vec![]),
            (2, vec![]),
            (1, vec![(0, 2)]),
            (3, vec![]),
            (4, vec![(1, 2)]),
        ];
        assert_eq!(steps(&builder, "lockstep", u64::MAX, false), all);
        let some = [(0, vec![]), (1, vec![(0, 1)])];
        assert_eq!(steps(&builder, "end", 2, false), some);
    }
}
