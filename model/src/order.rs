//! Which work the host knows to be complete: stream order, events, waits. Work whose order is
//! uncertain counts as complete.

use std::collections::VecDeque;

use rustc_hash::FxHashMap;

/// For each stream the number of the last work that is ordered before something.
pub type Clock = Vec<(u32, u64)>;

/// How many destroyed streams keep their state.
const DEAD_STREAMS: usize = 1024;

/// Identifies a stream: a handle with its generation, or a default stream with its context and
/// thread.
pub type StreamKey = (u64, u64);

#[derive(Debug, Default)]
struct StreamWork {
    context: u64,
    blocking: bool,
    legacy: bool,
    last: u64,
    done: u64,
    /// Work of other streams that this one has waited for.
    before: Clock,
}

#[derive(Clone, Copy, Debug, Default)]
struct ContextWork {
    /// All work up to this number is complete.
    all: u64,
    /// All work up to this number in streams that take part in the legacy default stream's order is
    /// complete.
    blocking: u64,
    /// Last work in the legacy default stream.
    legacy: u64,
}

/// The work in all streams, numbered in the order in which it is enqueued.
#[derive(Debug, Default)]
pub struct Order {
    number: u64,
    next_stream: u32,
    streams: FxHashMap<u32, StreamWork>,
    by_key: FxHashMap<StreamKey, u32>,
    dead: VecDeque<u32>,
    contexts: FxHashMap<u64, ContextWork>,
    /// Captures in progress: what is enqueued meanwhile may never run.
    captures: u32,
}

impl Order {
    /// The number of a stream. A stream that is not known yet gets the other properties: its
    /// context's handle, whether it waits for the legacy default stream, and whether it is that
    /// stream.
    pub fn stream(&mut self, key: StreamKey, context: u64, blocking: bool, legacy: bool) -> u32 {
        if let Some(&stream) = self.by_key.get(&key) {
            return stream;
        }
        let stream = self.next_stream;
        self.next_stream += 1;
        self.by_key.insert(key, stream);
        self.streams.insert(
            stream,
            StreamWork {
                context,
                blocking,
                legacy,
                ..Default::default()
            },
        );
        stream
    }

    /// The stream is destroyed; its work still runs.
    pub fn destroyed(&mut self, key: StreamKey) {
        if let Some(stream) = self.by_key.remove(&key) {
            self.dead.push_back(stream);
            if self.dead.len() > DEAD_STREAMS
                && let Some(oldest) = self.dead.pop_front()
            {
                self.streams.remove(&oldest);
            }
        }
    }

    /// Enqueues work; `None` while a capture is in progress.
    pub fn submit(&mut self, stream: u32) -> Option<u64> {
        if self.captures > 0 {
            return None;
        }
        self.number += 1;
        let state = self.streams.get_mut(&stream)?;
        state.last = self.number;
        if state.legacy {
            self.contexts.entry(state.context).or_default().legacy = self.number;
        }
        Some(self.number)
    }

    /// Whether the host knows that this work is complete.
    pub fn is_done(&self, stream: u32, number: u64) -> bool {
        let Some(state) = self.streams.get(&stream) else {
            return true;
        };
        if state.done >= number {
            return true;
        }
        let Some(context) = self.contexts.get(&state.context) else {
            return false;
        };
        context.all >= number || ((state.blocking || state.legacy) && context.blocking >= number)
    }

    /// The stream's work so far, and what it has waited for.
    pub fn clock(&self, stream: u32) -> Clock {
        let Some(state) = self.streams.get(&stream) else {
            return Clock::new();
        };
        let mut clock: Clock = state
            .before
            .iter()
            .copied()
            .filter(|&(s, n)| !self.is_done(s, n))
            .collect();
        clock.push((stream, state.last));
        clock
    }

    /// The stream's later work waits for an event.
    pub fn wait(&mut self, stream: u32, clock: &Clock) {
        let Some(mut before) = self
            .streams
            .get_mut(&stream)
            .map(|state| std::mem::take(&mut state.before))
        else {
            return;
        };
        before.retain(|&(s, n)| !self.is_done(s, n));
        for &(other, number) in clock {
            if other == stream {
                continue;
            }
            match before.iter_mut().find(|entry| entry.0 == other) {
                Some(entry) => entry.1 = entry.1.max(number),
                None => before.push((other, number)),
            }
        }
        if let Some(state) = self.streams.get_mut(&stream) {
            state.before = before;
        }
    }

    /// A call has proved all of this complete.
    pub fn complete(&mut self, clock: &Clock) {
        for &(stream, number) in clock {
            let Some(state) = self.streams.get_mut(&stream) else {
                continue;
            };
            state.done = state.done.max(number);
            let (context, blocking, legacy) = (state.context, state.blocking, state.legacy);
            let entry = self.contexts.entry(context).or_default();
            if legacy {
                entry.blocking = entry.blocking.max(number);
            } else if blocking && entry.legacy <= number {
                // This work waited for the legacy default stream, which had waited for all blocking
                // streams.
                entry.blocking = entry.blocking.max(entry.legacy);
            }
        }
    }

    /// A call has proved the stream's work complete.
    pub fn complete_stream(&mut self, stream: u32) {
        let mut clock = self.clock(stream);
        if let Some(state) = self.streams.get(&stream)
            && state.legacy
        {
            // Waiting for the legacy default stream waits for the blocking streams as well.
            let context = state.context;
            let number = self.number;
            let entry = self.contexts.entry(context).or_default();
            entry.blocking = entry.blocking.max(number);
            clock.retain(|entry| entry.0 != stream);
        }
        self.complete(&clock);
    }

    /// A call has proved all work of a context complete.
    pub fn complete_context(&mut self, context: u64) {
        self.contexts.entry(context).or_default().all = self.number;
    }

    /// A call has proved the work of the legacy default stream, and of the streams that wait for
    /// it, complete.
    pub fn complete_blocking(&mut self, context: u64) {
        self.contexts.entry(context).or_default().blocking = self.number;
    }

    /// True while a stream capture is in progress.
    pub fn is_capturing(&self) -> bool {
        self.captures > 0
    }

    /// A stream capture began.
    pub fn capture_began(&mut self) {
        self.captures += 1;
    }

    /// A stream capture ended.
    pub fn capture_ended(&mut self) {
        self.captures = self.captures.saturating_sub(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_proves_what_was_enqueued_before_it() {
        let mut order = Order::default();
        let a = order.stream((10, 1), 7, false, false);
        let b = order.stream((11, 2), 7, true, false);
        let c = order.stream((12, 3), 7, true, false);
        let legacy = order.stream((1, 7), 7, true, true);
        let first = order.submit(a).unwrap();
        let second = order.submit(b).unwrap();
        assert!(!order.is_done(a, first) && !order.is_done(b, second));
        // b waits for what a had; completing b completes that, not what a gets later.
        let clock = order.clock(a);
        order.wait(b, &clock);
        let later = order.submit(a).unwrap();
        order.complete_stream(b);
        assert!(order.is_done(a, first) && order.is_done(b, second) && !order.is_done(a, later));
        // The legacy default stream waits for blocking streams only.
        let third = order.submit(c).unwrap();
        order.submit(legacy);
        order.complete_stream(legacy);
        assert!(order.is_done(c, third) && !order.is_done(a, later));
        order.complete_context(7);
        assert!(order.is_done(a, later));
        // Captured work does not run.
        order.capture_began();
        assert_eq!(order.submit(a), None);
    }
}
