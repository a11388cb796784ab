//! When functions of the program ran that streams call, which a program learns without a call.
//!
//! A function runs after the calls that had returned before it began in the recording, and calls that
//! were entered after it had ended wait for it: as `order.rs` says, only for what has a lesser time.

use cutape_format::{Note, Trace};
use rustc_hash::FxHashMap;

use crate::call_id::CallId;

/// A function that ran in the recording.
struct Ran {
    begun: u64,
    ended: u64,
    has_run: bool,
}

/// All of them.
#[derive(Default)]
pub(crate) struct HostFunctions {
    /// In the order in which they ended.
    all: Vec<Ran>,
    /// By thread and number of the call that has enqueued it.
    of_calls: FxHashMap<(u32, u64), usize>,
    /// Those before have run.
    first_left: usize,
}

impl HostFunctions {
    /// Reads the notes of a trace; only one with `--cassette` has them.
    pub(crate) fn of(trace: &Trace) -> Self {
        let mut found = Vec::new();
        if trace.meta_value("cassette").is_some() {
            let notes = trace.calls().filter(|call| call.has_notes());
            for note in notes.flat_map(|call| call.notes().collect::<Vec<_>>()) {
                if let Note::HostFunction(note) = note {
                    found.push(note);
                }
            }
        }
        found.sort_unstable_by_key(|note| note.ended);
        Self {
            of_calls: found
                .iter()
                .zip(0..)
                .map(|(note, at)| ((note.thread, note.number), at))
                .collect(),
            all: found
                .into_iter()
                .map(|note| Ran {
                    begun: note.begun,
                    ended: note.ended,
                    has_run: false,
                })
                .collect(),
            first_left: 0,
        }
    }

    /// When the function of a call began.
    pub(crate) fn begun(&self, call: CallId) -> Option<u64> {
        let at = *self.of_calls.get(&(call.thread, call.number))?;
        Some(self.all.get(at)?.begun)
    }

    /// The function of a call has run.
    pub(crate) fn ran(&mut self, call: CallId) {
        let at = self.of_calls.get(&(call.thread, call.number)).copied();
        if let Some(ran) = at.and_then(|at| self.all.get_mut(at)) {
            ran.has_run = true;
        }
        let left = self.all.iter().skip(self.first_left);
        self.first_left += left.take_while(|ran| ran.has_run).count();
    }

    /// Whether a function has still to run that had ended at a time.
    pub(crate) fn are_awaited(&self, time: u64) -> bool {
        let first = self.all.get(self.first_left);
        first.is_some_and(|ran| ran.ended < time)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_are_awaited_by_what_came_after_them() {
        let ran = |begun, ended| Ran {
            begun,
            ended,
            has_run: false,
        };
        let call = |number| CallId {
            index: number,
            thread: 1,
            number,
            address: None,
        };
        let mut functions = HostFunctions {
            all: vec![ran(10, 20), ran(5, 30), ran(40, 50)],
            of_calls: [((1, 3), 0), ((1, 2), 1), ((1, 7), 2)]
                .into_iter()
                .collect(),
            first_left: 0,
        };
        let awaited = |functions: &HostFunctions| {
            let times = [20, 21, 31, 51].into_iter();
            times
                .map(|time| functions.are_awaited(time))
                .collect::<Vec<_>>()
        };
        let begun = [2, 3, 4, 7].map(|number| functions.begun(call(number)));
        assert_eq!(begun, [Some(5), Some(10), None, Some(40)]);
        assert_eq!(awaited(&functions), [false, true, true, true]);
        // One of which the recording knows nothing.
        functions.ran(call(4));
        // That which ended second runs first.
        functions.ran(call(2));
        assert_eq!(awaited(&functions), [false, true, true, true]);
        functions.ran(call(3));
        assert_eq!(awaited(&functions), [false, false, false, true]);
        functions.ran(call(7));
        assert_eq!(awaited(&functions), [false; 4]);
    }
}
