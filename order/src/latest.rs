//! When threads last did something, as far as it takes to know whether another one has since.

use crate::Moment;

/// The latest moments of two different threads, the later one first.
#[derive(Clone, Copy, Debug, Default)]
pub struct Latest([(Moment, u32); 2]);

impl Latest {
    /// A thread has done it then.
    pub fn note(&mut self, thread: u32, moment: Moment) {
        let [last, other] = self.0;
        self.0 = if last.1 == thread {
            [(moment.max(last.0), thread), other]
        } else if moment > last.0 {
            [(moment, thread), last]
        } else if moment > other.0 {
            [last, (moment, thread)]
        } else {
            [last, other]
        };
    }

    /// When another thread did it last; 0 if none has.
    pub fn of_others(&self, thread: u32) -> Moment {
        let others = self.0.iter().filter(|latest| latest.1 != thread);
        others.map(|latest| latest.0).max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_another_thread_did_last_is_known() {
        // Moments and threads in the order in which they are noted, and a thread that asks.
        type Case = (&'static [(Moment, u32)], u32, Moment);
        let table: [(&str, Case); 6] = [
            ("nothing", (&[], 1, 0)),
            ("only its own", (&[(7, 1), (9, 1)], 1, 0)),
            ("another's", (&[(7, 2)], 1, 7)),
            ("the later of two", (&[(4, 2), (7, 3)], 1, 7)),
            ("and then its own", (&[(6, 2), (7, 1), (8, 1)], 1, 6)),
            ("noted out of order", (&[(9, 1), (7, 2), (8, 1)], 1, 7)),
        ];
        for (what, (noted, thread, expected)) in table {
            let mut latest = Latest::default();
            for &(moment, of) in noted {
                latest.note(of, moment);
            }
            assert_eq!(latest.of_others(thread), expected, "{what}");
        }
    }
}
