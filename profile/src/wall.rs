//! What the wall time of a replay is made up of.

use serde::{Deserialize, Serialize};

use crate::record::{Profile, Run};
use crate::timeline::{AFTER_A_CALL, BEFORE_A_CALL, BETWEEN_CALLS, Timeline};

/// The time of a replay, from the start of its process to its end. The parts add up to `total_ns`;
/// where a device had work, that counts, whatever the host did meanwhile.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wall {
    /// The sum of all others.
    pub total_ns: u64,
    /// Before the first call: the process reads the trace, loads the driver, places memory. 0 if
    /// not known.
    pub start_ns: u64,
    /// A device had work.
    pub busy_ns: u64,
    /// No device had work, and the host was in the call that enqueues the next work.
    pub launch_ns: u64,
    /// No device had work although the next work was enqueued.
    pub latency_ns: u64,
    /// No device had work, and the host was in another call.
    pub call_ns: u64,
    /// No device had work, and no call was in the driver: the replay puts into place what the next
    /// call needs. 0 if it did not tell.
    pub before_calls_ns: u64,
    /// The same, and the replay takes over what the last call returned. 0 if it did not tell.
    pub after_calls_ns: u64,
    /// The same, and the replay does the rest of its work: it reads the trace.
    pub between_ns: u64,
    /// After the last call and the last work. 0 if not known.
    pub finish_ns: u64,
}

impl Wall {
    pub(crate) fn of(profile: &Profile, run: &Run) -> Self {
        let all = Timeline::of(profile, run, None);
        let within = |what: &str| all.idle_host_in.get(what).copied().unwrap_or(0);
        let own @ [before, after, between] =
            [BEFORE_A_CALL, AFTER_A_CALL, BETWEEN_CALLS].map(within);
        let (start, finish) = (run.start_ns.unwrap_or(0), run.finish_ns.unwrap_or(0));
        Self {
            total_ns: start.saturating_add(all.wall_ns).saturating_add(finish),
            start_ns: start,
            busy_ns: all.busy_ns,
            launch_ns: all.idle_launch_ns,
            latency_ns: all.idle_device_ns,
            call_ns: all.idle_host_ns - own.iter().sum::<u64>(),
            before_calls_ns: before,
            after_calls_ns: after,
            between_ns: between,
            finish_ns: finish,
        }
    }

    /// The parts with words for people, in order of time.
    pub fn parts(&self) -> [(u64, &'static str); 9] {
        [
            (
                self.start_ns,
                "before the first call: the replay reads the trace, loads the driver, places memory",
            ),
            (self.busy_ns, "the GPU had work"),
            (self.launch_ns, "no work: the host was enqueueing it"),
            (
                self.latency_ns,
                "no work, although it was enqueued: latency of the GPU",
            ),
            (self.call_ns, "no work: the host was in other calls"),
            (
                self.before_calls_ns,
                "no work, and no call: the replay puts into place what the next call needs",
            ),
            (
                self.after_calls_ns,
                "no work, and no call: the replay takes over what a call returned",
            ),
            (
                self.between_ns,
                "no work, and no call: the replay reads the trace, and the rest of its own work",
            ),
            (
                self.finish_ns,
                "after the last call and work: the replay gathers what was measured",
            ),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_profile::{host, kernel, profile};

    #[test]
    fn parts_add_up_over_devices() {
        let on_other = |work| crate::Work { device: 1, ..work };
        let work = vec![
            kernel("a", 1, 150, 200),
            on_other(kernel("b", 2, 190, 300)),
            kernel("c", 3, 400, 450),
        ];
        let calls = vec![
            host(0, 100, 120),
            host(1, 130, 140),
            host(2, 140, 150),
            host(3, 320, 360),
            host(9, 460, 470),
        ];
        let mut profile = profile(work, calls, &[]);
        let known = Wall::of(&profile, &profile.runs[0]);
        let expected = Wall {
            total_ns: 370,
            start_ns: 0,
            busy_ns: 200,
            launch_ns: 10 + 40,
            latency_ns: 10 + 40,
            call_ns: 20 + 10,
            before_calls_ns: 0,
            after_calls_ns: 0,
            between_ns: 10 + 20 + 10,
            finish_ns: 0,
        };
        assert_eq!(known, expected);
        (profile.runs[0].start_ns, profile.runs[0].finish_ns) = (Some(500), Some(30));
        let known = Wall::of(&profile, &profile.runs[0]);
        assert_eq!(known.total_ns, 900);
        let sum: u64 = known.parts().iter().map(|part| part.0).sum();
        assert_eq!(sum, known.total_ns);
    }
}
