//! The calls of a trace, from any one on, with what is known before each.

use cutape_format::{Call, Cursor, Trace};
use cutape_model::Scope;
use cutape_render::{Known, Limits, Renderer};

/// Calls between checkpoints, at least.
const SPACING: u64 = 1 << 11;
/// About so many checkpoints are kept of a long trace.
const CHECKPOINTS: u64 = 32;

/// The calls of a trace.
pub(crate) struct Tape<'t> {
    trace: &'t Trace,
    /// By call: its thread, and when it was entered, in ticks.
    calls: Vec<(u32, u64)>,
    cursor: Cursor,
    renderer: Renderer<'t>,
    /// The call observed last.
    last: Option<Call<'t>>,
    /// What is known before every so many calls, as far as they have been observed.
    checkpoints: Vec<(Cursor, Known)>,
}

impl<'t> Tape<'t> {
    /// Walks over the trace once.
    pub(crate) fn new(trace: &'t Trace) -> Result<Self, cutape_format::Error> {
        let mut calls = Vec::new();
        trace.walk().run(|call| {
            calls.push((call.thread, call.ticks));
            Ok::<_, cutape_format::Error>(())
        })?;
        Ok(Self {
            trace,
            calls,
            cursor: Cursor::new(),
            renderer: Renderer::new(trace, Limits::TEXT, Scope::All),
            last: None,
            checkpoints: Vec::new(),
        })
    }

    pub(crate) fn trace(&self) -> &'t Trace {
        self.trace
    }

    /// How many calls there are.
    pub(crate) fn len(&self) -> u64 {
        self.calls.len() as u64
    }

    /// The thread of a call.
    pub(crate) fn thread(&self, call: u64) -> Option<u32> {
        self.calls.get(call as usize).map(|&(thread, _)| thread)
    }

    /// When a call was entered; the largest number past the last.
    pub(crate) fn ticks(&self, call: u64) -> u64 {
        let call = self.calls.get(call as usize);
        call.map_or(u64::MAX, |&(_, ticks)| ticks)
    }

    /// The first call that was entered then or later.
    pub(crate) fn first_since(&self, ticks: u64) -> u64 {
        self.calls.partition_point(|&(_, entered)| entered < ticks) as u64
    }

    /// The next call of a thread from a call on.
    pub(crate) fn next_of(&self, thread: u32, from: u64) -> Option<u64> {
        let mut later = (from..).zip(self.calls.get(from as usize..)?);
        let found = later.find(|(_, (of, _))| *of == thread);
        found.map(|(call, _)| call)
    }

    /// The last call of a thread before a call.
    pub(crate) fn previous_of(&self, thread: u32, before: u64) -> Option<u64> {
        let earlier = self.calls.get(..before as usize)?;
        let found = earlier.iter().rposition(|&(of, _)| of == thread);
        found.map(|call| call as u64)
    }

    /// What is known before a call.
    pub(crate) fn before(&mut self, call: u64) -> &mut Renderer<'t> {
        let known = self.checkpoints.get((call / self.spacing()) as usize);
        let at = self.cursor.index();
        let is_better = |known: &&(Cursor, Known)| at > call || known.0.index() > at;
        if let Some((cursor, known)) = known.or(self.checkpoints.last()).filter(is_better) {
            self.cursor = cursor.clone();
            self.renderer = Renderer::resume(self.trace, Limits::TEXT, known.clone());
            self.last = None;
        }
        while self.cursor.index() < call && self.step().is_some() {}
        &mut self.renderer
    }

    /// A call, and what is known after it.
    pub(crate) fn call(&mut self, call: u64) -> Option<(Call<'t>, &mut Renderer<'t>)> {
        let is_call = |last: &Call<'_>| last.index == call;
        if !self.last.as_ref().is_some_and(is_call) {
            self.before(call);
            self.step()?;
        }
        let last = self.last.clone().filter(is_call)?;
        Some((last, &mut self.renderer))
    }

    /// Observes the next call.
    fn step(&mut self) -> Option<()> {
        if self.cursor.index() == self.checkpoints.len() as u64 * self.spacing() {
            let known = (self.cursor.clone(), self.renderer.known());
            self.checkpoints.push(known);
        }
        let next = self.cursor.next(self.trace)?;
        self.renderer.observe(&next);
        self.last = Some(next);
        Some(())
    }

    fn spacing(&self) -> u64 {
        SPACING.max(self.len() / CHECKPOINTS)
    }
}

#[cfg(test)]
mod tests {
    use cutape_format::{NewCall, TraceBuilder};
    use cutape_render::test_trace;

    use super::*;

    #[test]
    fn calls_are_found_forward_and_back() {
        let mut builder = TraceBuilder::new(cutape_registry::SIGNATURE_TEXT);
        let count = 5 * SPACING + 7;
        for index in 0..count {
            builder.call(NewCall {
                name: "cuCtxSynchronize",
                thread: (index % 3) as u32,
                ..NewCall::default()
            });
            builder.leave((index % 3) as u32, 0, &[]);
        }
        let trace = test_trace::open(&builder, "tape");
        let mut tape = Tape::new(&trace).unwrap();
        assert_eq!(tape.len(), count);
        let last = count - 1;
        let middle = 2 * SPACING;
        for call in [
            0,
            last,
            0,
            middle,
            middle - 1,
            middle - 1,
            middle + 1,
            SPACING,
            last,
            3,
        ] {
            let (found, _) = tape.call(call).unwrap();
            assert_eq!((found.index, found.thread), (call, (call % 3) as u32));
            assert_eq!(tape.first_since(tape.ticks(call)), call);
        }
        assert!(tape.call(count).is_none() && tape.call(u64::MAX).is_none());
        assert_eq!(tape.next_of(1, 2), Some(4));
        assert_eq!(tape.next_of(9, 0), None);
        assert_eq!(tape.previous_of(1, 4), Some(1));
        assert_eq!(tape.previous_of(1, 1), None);
        assert_eq!(tape.next_of(0, count + 1), None);
    }
}
