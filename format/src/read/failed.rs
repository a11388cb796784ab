//! Calls that returned an error, found without reading the others.

use std::collections::HashMap;

use crate::layout::{LeaveHead, record_kind};
use crate::read::record::{Enter, records};
use crate::read::trace::Trace;

/// A call that returned an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FailedCall {
    /// The function's number in the signature table.
    pub function: u16,
    /// What it returned.
    pub result: i32,
    /// When it was entered, in ticks.
    pub entered: u64,
}

impl Trace {
    /// Calls `each` for the calls of an unpacked trace that returned an error. `seen` has when, in
    /// ticks, the last call of each thread returned that was looked at, and takes this in.
    pub fn each_failed(&self, seen: &mut HashMap<u32, u64>, each: &mut dyn FnMut(FailedCall)) {
        for thread in 0..self.thread_count() as u32 {
            let chunks = self.thread_chunks(thread);
            if chunks.is_empty() {
                // What it makes later is new, if it makes any calls.
                seen.remove(&thread);
                continue;
            }
            let seen = seen.entry(thread).or_default();
            let begun = chunks.partition_point(|&chunk| self.chunk(chunk).head.ticks <= *seen);
            // The first of the chunks that are left may begin within a call.
            let chunks = chunks.get(begun.saturating_sub(2)..);
            let mut entered: Option<(u16, u64)> = None;
            for &chunk in chunks.unwrap_or_default() {
                for (_, head, record) in records(self.body(chunk)) {
                    if record_kind::is_enter(head.kind) {
                        let function = self.signatures.function(head.function);
                        let enter = Enter::read(function, self.head().start_ticks, head, record);
                        entered = enter.map(|enter| (head.function, enter.head.ticks));
                    } else if head.kind == record_kind::LEAVE
                        && let Some(leave) = LeaveHead::read(record)
                        && leave.ticks > *seen
                    {
                        *seen = leave.ticks;
                        if let Some((function, entered)) = entered.filter(|_| leave.result != 0) {
                            each(FailedCall {
                                function,
                                result: leave.result,
                                entered,
                            });
                        }
                    }
                }
            }
        }
    }
}
