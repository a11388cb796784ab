//! Which work the host knows to be complete: stream order, events, waits. Where the order is not certain, the work counts
//! as complete, because a finding must be.

use std::collections::VecDeque;

use super::objects::HandleMap;

/// For each stream the last work that is ordered before something.
pub(crate) type Clock = Vec<(u32, u64)>;

/// How many destroyed streams keep their state.
const DEAD_STREAMS: usize = 1024;

/// Names a stream: a handle with its generation, or a default stream with its context and thread.
pub(crate) type StreamKey = (u64, u64);

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
    /// All work up to this number in streams that take part in the legacy default stream's order is complete.
    blocking: u64,
    /// Last work in the legacy default stream.
    legacy: u64,
}

/// The work of all streams.
#[derive(Debug, Default)]
pub(crate) struct Work {
    number: u64,
    next_stream: u32,
    streams: HandleMap<u32, StreamWork>,
    by_key: HandleMap<StreamKey, u32>,
    dead: VecDeque<u32>,
    contexts: HandleMap<u64, ContextWork>,
    /// Captures in progress: what is enqueued meanwhile may not run at all.
    captures: u32,
}

impl Work {
    /// The number of a stream, new if need be.
    pub(crate) fn stream(
        &mut self,
        key: StreamKey,
        context: u64,
        blocking: bool,
        legacy: bool,
    ) -> u32 {
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

    /// The stream is gone; what is in it goes on.
    pub(crate) fn destroyed(&mut self, key: StreamKey) {
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
    pub(crate) fn submit(&mut self, stream: u32) -> Option<u64> {
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
    pub(crate) fn is_done(&self, stream: u32, number: u64) -> bool {
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

    /// What has been enqueued to the stream so far, and what that waited for.
    pub(crate) fn clock(&self, stream: u32) -> Clock {
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

    /// Orders what comes to the stream behind an event.
    pub(crate) fn wait(&mut self, stream: u32, clock: &Clock) {
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

    /// The host has seen that all of this is complete.
    pub(crate) fn complete(&mut self, clock: &Clock) {
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
                // Behind the legacy default stream's work, and through it behind that of all blocking streams before.
                entry.blocking = entry.blocking.max(entry.legacy);
            }
        }
    }

    /// The host has seen the stream complete.
    pub(crate) fn complete_stream(&mut self, stream: u32) {
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

    /// All work of a context is complete.
    pub(crate) fn complete_context(&mut self, context: u64) {
        self.contexts.entry(context).or_default().all = self.number;
    }

    /// A call that is ordered on the legacy default stream has waited for its own work.
    pub(crate) fn complete_blocking(&mut self, context: u64) {
        self.contexts.entry(context).or_default().blocking = self.number;
    }

    /// A capture began.
    pub(crate) fn capture_began(&mut self) {
        self.captures += 1;
    }

    /// A capture ended.
    pub(crate) fn capture_ended(&mut self) {
        self.captures = self.captures.saturating_sub(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_waits_for_whom() {
        let mut work = Work::default();
        let a = work.stream((10, 1), 7, false, false);
        let b = work.stream((11, 2), 7, true, false);
        let c = work.stream((12, 3), 7, true, false);
        let legacy = work.stream((1, 7), 7, true, true);
        let first = work.submit(a).unwrap();
        let second = work.submit(b).unwrap();
        assert!(!work.is_done(a, first) && !work.is_done(b, second));
        // b waits for what a had; completing b completes that, not what a gets later.
        let clock = work.clock(a);
        work.wait(b, &clock);
        let later = work.submit(a).unwrap();
        work.complete_stream(b);
        assert!(work.is_done(a, first) && work.is_done(b, second) && !work.is_done(a, later));
        // The legacy default stream waits for blocking streams only.
        let third = work.submit(c).unwrap();
        work.submit(legacy);
        work.complete_stream(legacy);
        assert!(work.is_done(c, third) && !work.is_done(a, later));
        work.complete_context(7);
        assert!(work.is_done(a, later));
        // What a capture takes up does not run.
        work.capture_began();
        assert_eq!(work.submit(a), None);
    }
}
