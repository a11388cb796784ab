//! Pauses between calls, as long as in the recorded program.

use crate::measure::clock;

/// Waits between calls. All times are in ticks of the processor.
#[derive(Debug)]
pub(crate) struct Pace {
    /// When the last call returned, if a pause follows.
    returned: u64,
    /// By how much the pauses so far were too long.
    late: u64,
    /// How much of that is caught up at most. A pause is a few clock reads too long; what the
    /// operating system took in between is not caught up.
    most_late: u64,
}

impl Pace {
    /// Begins now.
    #[inline]
    pub(crate) fn new(most_late: u64) -> Self {
        Self {
            returned: clock::ticks(),
            late: 0,
            most_late,
        }
    }

    /// A call has returned before a pause.
    #[inline]
    pub(crate) fn returned(&mut self) {
        self.returned = clock::ticks();
    }

    /// Waits until the pause after that has passed, less what earlier ones were too long.
    #[inline]
    pub(crate) fn pause(&mut self, lasts: u64) {
        self.pause_by(lasts, clock::ticks);
    }

    #[inline]
    fn pause_by(&mut self, lasts: u64, mut clock: impl FnMut() -> u64) {
        // As long as this is left, other threads of the processor core may work: longer than the
        // instruction takes (140 cycles; Intel 64 Optimization Manual, PAUSE in Skylake).
        const LONG: u64 = 1000;
        let ends = self.returned.saturating_add(lasts);
        let ends = ends.saturating_sub(self.late);
        loop {
            let now = clock();
            if now >= ends {
                self.late = (now - ends).min(self.most_late);
                return;
            }
            if ends - now > LONG {
                std::hint::spin_loop();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A clock whose reads take time.
    struct Slow {
        now: u64,
        read: u64,
    }

    impl Slow {
        fn read(&mut self) -> u64 {
            self.now += self.read;
            self.now
        }
    }

    #[test]
    fn a_loop_takes_its_calls_and_pauses() {
        const CALLS: u64 = 1000;
        const CALL: u64 = 300;
        const MOST_LATE: u64 = 200;
        // Pause, clock read, what the operating system takes once, and by how much the loop may be
        // longer beside that.
        for (pause, read, stolen, over) in [
            (1000, 7, 0, 7),
            (1000, 90, 0, 90),
            (13, 7, 0, 7),
            (0, 7, 0, 0),
            // It is caught up by no more than MOST_LATE: the pauses after it stay.
            (1000, 7, 50_000, 7),
        ] {
            let mut clock = Slow { now: 0, read };
            let mut pace = Pace {
                returned: 0,
                late: 0,
                most_late: MOST_LATE,
            };
            for call in 0..CALLS {
                if pause > 0 {
                    let before = clock.now;
                    pace.pause_by(pause, || {
                        clock.now += if call == 500 && clock.now == before {
                            stolen
                        } else {
                            0
                        };
                        clock.read()
                    });
                }
                clock.now += CALL;
                pace.returned = clock.now;
            }
            let expected = CALLS * (pause + CALL) + stolen.saturating_sub(pause);
            let least = expected - MOST_LATE.min(stolen);
            let case = (pause, read, stolen);
            assert!(clock.now >= least, "{case:?}: {} < {least}", clock.now);
            assert!(clock.now <= expected + over, "{case:?}: {}", clock.now);
        }
    }
}
