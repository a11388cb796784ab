//! The order in which calls are re-issued when threads take turns: as they were entered, but a call that gives out a handle or
//! waits, when it returned.
//!
//! Threads overlap: one may enter a create that returns only after another thread has destroyed the object that had the same
//! handle before. Nobody can use a handle before the call that gives it out has returned, so that moment is its place; an
//! object that is being destroyed is used by nobody from the moment that the destroying call is entered.

use cutape_format::{Call, Calls, Trace};
use cutape_registry::Waits;

use crate::issue::traits::{self, Functions};

/// The calls of a trace in the order of a replay.
pub(crate) struct Ordered<'t> {
    calls: Calls<'t>,
    functions: Functions,
    /// The next in the order of enter.
    next: Option<Call<'t>>,
    /// Entered already, with the moment of their return.
    held: Vec<(u64, Call<'t>)>,
    /// Calls from that index on are left out.
    end: u64,
}

impl<'t> Ordered<'t> {
    /// The calls before the index `end`.
    pub(crate) fn new(trace: &'t Trace, end: u64) -> Self {
        Self {
            calls: trace.calls(),
            functions: Functions::default(),
            next: None,
            held: Vec::new(),
            end,
        }
    }

    /// True for a call whose place is where it returned.
    fn is_late(&mut self, call: &Call<'t>) -> bool {
        self.functions
            .of(call)
            .is_some_and(|function| traits::of(function).gives || function.waits != Waits::No)
    }

    /// Takes the held call that returned first, if that was before `moment`.
    fn returned_before(&mut self, moment: u64) -> Option<Call<'t>> {
        let (at, &(ticks, _)) = self
            .held
            .iter()
            .enumerate()
            .min_by_key(|(_, (ticks, call))| (*ticks, call.index))?;
        (ticks <= moment).then(|| self.held.swap_remove(at).1)
    }
}

impl<'t> Iterator for Ordered<'t> {
    type Item = Call<'t>;

    #[inline]
    fn next(&mut self) -> Option<Call<'t>> {
        // Nearly always: nothing is held, and the call keeps its place.
        while self.held.is_empty() && self.next.is_none() {
            let call = self.calls.next().filter(|call| call.index < self.end)?;
            match call.leave.filter(|_| self.is_late(&call)) {
                Some(leave) => self.held.push((leave.ticks, call)),
                None => return Some(call),
            }
        }
        loop {
            if self.next.is_none() {
                self.next = self.calls.next().filter(|call| call.index < self.end);
            }
            let Some(entered) = self.next.as_ref().map(|call| call.ticks) else {
                return self.returned_before(u64::MAX);
            };
            if !self.held.is_empty()
                && let Some(call) = self.returned_before(entered)
            {
                return Some(call);
            }
            let call = self.next.take()?;
            match call.leave.filter(|_| self.is_late(&call)) {
                Some(leave) => self.held.push((leave.ticks, call)),
                None => return Some(call),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cutape_format::{NewCall, NewSnapshot, TraceBuilder};

    fn event<'a>(thread: u32, name: &'a str, arguments: &'a [u64]) -> NewCall<'a> {
        NewCall {
            thread,
            name,
            arguments,
            ..NewCall::default()
        }
    }

    fn indices(builder: &TraceBuilder, name: &str, end: u64) -> Vec<u64> {
        let file = format!("cutape-order-{}-{name}.cutape", std::process::id());
        let path = std::env::temp_dir().join(file);
        builder.write(&path).unwrap();
        let trace = Trace::open(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        Ordered::new(&trace, end).map(|call| call.index).collect()
    }

    /// One thread's create is entered before, and returns after, another thread's destroy of the same handle.
    #[test]
    fn a_recycled_handle_is_given_out_after_it_was_given_back() {
        let mut builder = TraceBuilder::new(cutape_registry::SIGNATURE_TEXT);
        let handle = 0x5500_u64.to_le_bytes();
        builder.call(event(0, "cuStreamCreate", &[8, 0])).leave(
            0,
            0,
            &[NewSnapshot::pointee(0, &handle)],
        );
        builder.call(event(1, "cuStreamCreate", &[16, 0]));
        builder.call(event(0, "cuStreamDestroy_v2", &[0x5500]));
        builder.leave(0, 0, &[]);
        builder.leave(1, 0, &[NewSnapshot::pointee(0, &handle)]);
        builder
            .call(event(1, "cuStreamDestroy_v2", &[0x5500]))
            .leave(1, 0, &[]);
        builder.call(event(0, "cuCtxSynchronize", &[]));
        // The call in flight at the end keeps its place.
        assert_eq!(indices(&builder, "handle", u64::MAX), [0, 2, 1, 3, 4]);
        assert_eq!(indices(&builder, "handle", 2), [0, 1]);
    }
}
