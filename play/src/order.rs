//! Which calls of other threads a call waits for.
//!
//! What the recorder found in memory that host and device share, it found at one moment, whichever
//! thread's call it was. So a call after which it found what the device had written waits for the
//! calls that had returned by then, and later calls wait for it. So does a call that tells the program
//! of work of other threads, for the calls that enqueue that.
//!
//! Functions of the program that streams call have their place among the calls, too
//! (`host_functions.rs`).
//!
//! No calls wait for each other: each waits only for calls of a lesser time, that of what the recorder
//! found or, without that, of the entry. For this a call has returned only after the recorder has
//! looked.

use cutape_format::Call;
use cutape_registry::{ImplicitWait, Waits};

use crate::history::time_of_look;
use crate::state::State;
use crate::threads::known;

impl State {
    /// Whether calls that other threads had made before a recorded call, as far as that matters, are
    /// still to come.
    pub(crate) fn is_early(&self, thread: usize, recorded: &Call<'_>) -> bool {
        if self.host_functions.are_awaited(recorded.ticks) {
            return true;
        }
        // Otherwise other calls could wait for the function that did not in the recording.
        let number = (recorded.thread, recorded.number);
        if self.host_functions.begun(number).is_some() && self.awaits_calls_before(recorded.ticks) {
            return true;
        }
        let copies = &self.copies;
        // What it has passed, it sees with this call.
        let passed = self.threads.all.get(thread).into_iter();
        let passed = passed.flat_map(|own| own.unseen()).chain([recorded]);
        let found = passed.filter_map(|call| copies.proof(call.thread, call.index));
        let found = found.max();
        let mut others = self.threads.all.iter().enumerate();
        others.any(|(at, other)| {
            if at == thread {
                return false;
            }
            let next = other.next();
            let returned = next.map(|next| time_of_look(next, true));
            let is_awaited = found.is_some_and(|found| returned.is_some_and(|at| at < found));
            let finds = |from: u64| {
                let found = copies.proof_from(at as u32, from);
                found.is_some_and(|(_, time)| time < recorded.ticks)
            };
            let is_told = next.is_some_and(|next| copies.tells_of(recorded.index, next));
            is_awaited || is_told || other.first_open().is_some_and(finds)
        })
    }

    /// Whether threads are still to make calls that had returned at a time.
    pub(crate) fn awaits_calls_before(&self, time: u64) -> bool {
        let mut others = self.threads.all.iter().filter(|thread| !thread.is_busy);
        others.any(|other| {
            let next = other.next();
            next.is_some_and(|next| time_of_look(next, true) < time)
        })
    }

    /// Whether the driver is at work on a call that may wait for what has been enqueued: it was entered
    /// later than in the recording, and may wait for more.
    pub(crate) fn is_waiting(&self) -> bool {
        let busy = self.threads.all.iter().filter(|thread| thread.is_busy);
        let mut functions = busy.filter_map(|thread| known(thread.next()?));
        functions.any(|function| {
            function.waits != Waits::No
                || function.implicit_wait != ImplicitWait::No
                || function.waits_for_default_stream()
        })
    }
}

#[cfg(test)]
mod tests {
    use cutape_format::layout::{HostChangedNote, HostFunctionNote, LookedNote, field, note_kind};
    use cutape_format::{NewCall, NewSnapshot, Trace, TraceBuilder};

    use crate::allowed::Allowed;
    use crate::outcome::OutcomeFile;
    use crate::player::Options;
    use crate::state::{OnMismatch, State};

    const CONTEXT: u64 = 0x77;
    const PINNED: u64 = 0x10_0000;
    const STREAMS: [u64; 2] = [0x5000, 0x6000];

    fn call(builder: &mut TraceBuilder, thread: u32, name: &str, arguments: &[u64]) {
        builder.call(NewCall {
            thread,
            name,
            arguments,
            ..NewCall::default()
        });
    }

    /// Two threads wait for a memset each. What a wait found was read until a time, in ticks; the
    /// driver had returned at 35 and 41.
    fn recorded(looked: [u64; 2]) -> &'static Trace {
        let mut builder = TraceBuilder::new(cutape_registry::SIGNATURE_TEXT);
        let at = |builder: &mut TraceBuilder, ticks| _ = builder.at(ticks);
        at(&mut builder, 1);
        call(&mut builder, 0, "cuCtxSetCurrent", &[CONTEXT]);
        builder.leave(0, 0, &[]);
        call(&mut builder, 0, "cuMemHostAlloc", &[PINNED, 64, 0]);
        builder.leave(0, 0, &[NewSnapshot::pointee(0, &PINNED.to_le_bytes())]);
        for stream in STREAMS {
            call(&mut builder, 0, "cuStreamCreate", &[stream, 1]);
            builder.leave(0, 0, &[NewSnapshot::pointee(0, &stream.to_le_bytes())]);
        }
        for (at, stream) in (0..).zip(STREAMS) {
            let arguments = [PINNED + 8 * at, 7, 2, stream];
            call(&mut builder, 0, "cuMemsetD32Async", &arguments);
            builder.leave(0, 0, &[]);
        }
        let begins = [30, 40];
        let ends = [35, 41];
        for (thread, begin) in (0..).zip(begins) {
            at(&mut builder, begin);
            let stream = STREAMS[thread as usize];
            call(&mut builder, thread, "cuStreamSynchronize", &[stream]);
        }
        for (thread, (end, ticks)) in (0..).zip(ends.into_iter().zip(looked)) {
            at(&mut builder, end);
            let note = HostChangedNote {
                address: PINNED + 8 * u64::from(thread),
                is_after: 1,
            };
            let bytes = NewSnapshot::piece(0, field::POINTEE, &[7; 8]);
            builder.host_changed_note(thread, note, bytes);
            builder.note(thread, note_kind::LOOKED, LookedNote { ticks }, &[]);
            builder.leave(thread, 0, &[]);
        }
        opened(&builder, &format!("{looked:?}"))
    }

    fn opened(builder: &TraceBuilder, name: &str) -> &'static Trace {
        let name = format!("cutape-order-{}-{name}", std::process::id());
        let path = std::env::temp_dir().join(name);
        builder.write(&path).unwrap();
        let trace = Trace::open(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        Box::leak(Box::new(trace))
    }

    fn state(trace: &'static Trace) -> State {
        let options = Options {
            trace: Default::default(),
            unset: None,
            learns_unset: false,
            outcome: None,
            parent: None,
            on_mismatch: OnMismatch::Stop,
            allowed: Allowed::default(),
        };
        State::of(trace, &options, OutcomeFile::create(None).unwrap()).unwrap()
    }

    /// The one that found its bytes first goes first, whichever had returned first from the driver.
    #[test]
    fn waits_that_overlap_do_not_wait_for_each_other() {
        for (looked, first) in [([60, 50], 1), ([50, 60], 0), ([36, 60], 0)] {
            let mut state = state(recorded(looked));
            let waits = |state: &State, thread: usize| {
                let next = state.threads.all[thread].next().unwrap();
                assert_eq!(next.signature.name, "cuStreamSynchronize");
                state.is_early(thread, next)
            };
            while state.threads.all[0].next().unwrap().signature.name != "cuStreamSynchronize" {
                state.threads.all[0].advance(&state.comparison);
            }
            let early = [0, 1].map(|thread| waits(&state, thread));
            assert_eq!(early, [first != 0, first != 1], "{looked:?}");
            state.threads.all[first].advance(&state.comparison);
            assert!(!waits(&state, 1 - first), "{looked:?}");
        }
    }

    /// Thread 0 enqueues a function, which runs from 25 to 28; calls of thread 1 return at 21 and 26, and
    /// thread 0 enters its next call at 30.
    #[test]
    fn functions_run_between_the_calls_of_the_recording() {
        let mut builder = TraceBuilder::new(cutape_registry::SIGNATURE_TEXT);
        builder.meta("cassette", "1");
        let at = |builder: &mut TraceBuilder, ticks| _ = builder.at(ticks);
        at(&mut builder, 10);
        call(&mut builder, 0, "cuLaunchHostFunc", &[STREAMS[0], 1, 2]);
        builder.leave(0, 0, &[]);
        for entered in [20, 25] {
            at(&mut builder, entered);
            call(&mut builder, 1, "cuMemFree_v2", &[PINNED]);
            at(&mut builder, entered + 1);
            builder.leave(1, 0, &[]);
        }
        at(&mut builder, 30);
        call(&mut builder, 0, "cuMemFree_v2", &[PINNED]);
        let note = HostFunctionNote {
            thread: 0,
            number: 0,
            begun: 25,
            ended: 28,
        };
        builder.note(0, note_kind::HOST_FUNCTION, note, &[]);
        builder.leave(0, 0, &[]);
        let mut state = state(opened(&builder, "functions"));
        let enqueues = (0, 0);
        let begun = state.host_functions.begun(enqueues).unwrap();
        let advance = |state: &mut State, thread: usize| {
            state.threads.all[thread].advance(&state.comparison);
        };
        let is_early = |state: &State| {
            let next = state.threads.all[0].next().unwrap();
            state.is_early(0, next)
        };
        assert!(!is_early(&state), "nothing is before what enqueues it");
        advance(&mut state, 0);
        assert!(state.awaits_calls_before(begun) && is_early(&state));
        assert!(!state.is_waiting());
        state.threads.all[1].is_busy = true;
        assert!(!state.awaits_calls_before(begun) && state.is_waiting());
        state.threads.all[1].is_busy = false;
        advance(&mut state, 1);
        assert!(
            !state.awaits_calls_before(begun),
            "the other returned later"
        );
        assert!(is_early(&state), "the function has not run");
        state.host_functions.ran(enqueues);
        assert!(!is_early(&state));
    }
}
