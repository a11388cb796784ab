//! Calls by their number in their thread, in memory for the calls that there are: calls that were
//! lost with damaged chunks keep their numbers, and a damaged head may claim any number.

/// Where calls are among those of their thread that were read.
#[derive(Clone, Debug, Default)]
pub struct CallPositions {
    threads: Vec<Thread>,
}

#[derive(Clone, Debug, Default)]
struct Thread {
    /// Calls with consecutive numbers: the number and the position of the first.
    runs: Vec<(u64, usize)>,
    /// The number that continues the last run.
    next: u64,
    count: usize,
}

impl Thread {
    /// How many calls have a smaller number.
    fn before(&self, number: u64) -> usize {
        let after = self.runs.partition_point(|&(first, _)| first <= number);
        let end = self.runs.get(after).map_or(self.count, |&(_, start)| start);
        let Some(&(first, start)) = after.checked_sub(1).and_then(|run| self.runs.get(run)) else {
            return 0;
        };
        let offset = usize::try_from(number - first).unwrap_or(usize::MAX);
        start.saturating_add(offset).min(end)
    }
}

impl CallPositions {
    /// Adds a call, of a thread's calls the one with the highest number so far. Its position.
    pub fn add(&mut self, thread: u32, number: u64) -> usize {
        let thread = thread as usize;
        if self.threads.len() <= thread {
            self.threads.resize_with(thread + 1, Thread::default);
        }
        let Some(thread) = self.threads.get_mut(thread) else {
            return 0;
        };
        let position = thread.count;
        if thread.runs.is_empty() || thread.next != number {
            thread.runs.push((number, position));
        }
        thread.next = number.saturating_add(1);
        thread.count += 1;
        position
    }

    /// How many calls of a thread were added that have a smaller number.
    pub fn before(&self, thread: u32, number: u64) -> usize {
        let thread = self.threads.get(thread as usize);
        thread.map_or(0, |thread| thread.before(number))
    }

    /// The position of a call, if it was added.
    pub fn of(&self, thread: u32, number: u64) -> Option<usize> {
        let position = self.before(thread, number);
        let next = self.before(thread, number.saturating_add(1));
        (next > position).then_some(position)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lost_calls_have_no_position() {
        let mut positions = CallPositions::default();
        let numbers = [3, 4, 5, 9, 1 << 62, (1 << 62) + 1];
        for (position, number) in numbers.into_iter().enumerate() {
            assert_eq!(positions.add(1, number), position);
        }
        for (number, before, of) in [
            (0, 0, None),
            (3, 0, Some(0)),
            (5, 2, Some(2)),
            (6, 3, None),
            (9, 3, Some(3)),
            (10, 4, None),
            ((1 << 62) + 1, 5, Some(5)),
            (u64::MAX, 6, None),
        ] {
            assert_eq!(positions.before(1, number), before, "{number}");
            assert_eq!(positions.of(1, number), of, "{number}");
        }
        assert_eq!((positions.of(0, 3), positions.of(2, 3)), (None, None));
    }
}
