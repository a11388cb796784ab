//! Which calls of other ranks come before a call.
//!
//! Ranks of one machine read the same counter, so of two calls it is known which had returned
//! before the other was entered. A replay keeps that order: what made the program wait (a barrier,
//! a message, a flag in shared memory) is not in the traces. Ranks whose clocks differ are only
//! ordered by what they hand to each other.

use cutape_format::Trace;
use serde::{Deserialize, Serialize};

/// Before a call: all calls of another rank up to one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Before {
    /// The call.
    pub(crate) call: u64,
    /// The other rank.
    pub(crate) rank: usize,
    /// All its calls below this index come before.
    pub(crate) end: u64,
}

/// Ticks of one rank's calls, in order of their index.
#[derive(Debug, Default)]
pub(crate) struct Times {
    /// When each was entered.
    entered: Vec<u64>,
    /// When it and all calls before it had returned.
    returned: Vec<u64>,
}

impl Times {
    pub(crate) fn of(trace: &Trace) -> Self {
        let mut times = Self::default();
        for call in trace.calls() {
            // A call in flight is not replayed.
            times.add(
                call.ticks,
                call.leave.map_or(call.ticks, |leave| leave.ticks),
            );
        }
        times
    }

    fn add(&mut self, entered: u64, returned: u64) {
        let before = self.returned.last().copied().unwrap_or(0);
        self.entered.push(entered);
        self.returned.push(returned.max(before));
    }
}

/// What comes before the calls of a rank, in order of its calls. Each entry says more about a rank
/// than the entry before.
pub(crate) fn before_calls_of(rank: usize, all: &[Times]) -> Vec<Before> {
    let mut found = Vec::new();
    let mut ends = vec![0_u64; all.len()];
    let Some(own) = all.get(rank) else {
        return found;
    };
    for (call, &entered) in own.entered.iter().enumerate() {
        for (other, times) in all.iter().enumerate().filter(|&(other, _)| other != rank) {
            let Some(end) = ends.get_mut(other) else {
                continue;
            };
            let known = *end;
            while times
                .returned
                .get(*end as usize)
                .is_some_and(|&at| at < entered)
            {
                *end += 1;
            }
            if *end != known {
                found.push(Before {
                    call: call as u64,
                    rank: other,
                    end: *end,
                });
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_that_had_returned_come_before() {
        let times = |calls: &[(u64, u64)]| {
            let mut times = Times::default();
            for &(entered, returned) in calls {
                times.add(entered, returned);
            }
            times
        };
        let all = [
            times(&[(10, 20), (21, 22), (30, 31)]),
            // The second lasts longer than what another thread does meanwhile.
            times(&[(1, 2), (5, 29), (6, 7)]),
        ];
        let before = |call, rank, end| Before { call, rank, end };
        assert_eq!(before_calls_of(0, &all), [before(0, 1, 1), before(2, 1, 3)]);
        assert_eq!(before_calls_of(1, &all), []);
        assert_eq!(before_calls_of(2, &all), []);
    }
}
