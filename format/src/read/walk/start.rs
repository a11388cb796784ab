//! Where a walk to a call begins, by the call counts of a packed trace.

use crate::layout::CallCount;
use crate::read::trace::Trace;

pub(super) struct Start {
    /// For each thread the chunks that are walked over.
    pub(super) chunks: Vec<Vec<usize>>,
    /// For each thread the place among them of the first whose calls are counted.
    pub(super) first_counted: Vec<usize>,
    /// How many calls there are before those that are counted.
    pub(super) passed: u64,
}

impl Start {
    /// A walk over all chunks.
    pub(super) fn of_all(trace: &Trace) -> Self {
        Self {
            chunks: trace.threads.clone(),
            first_counted: vec![0; trace.threads.len()],
            passed: 0,
        }
    }

    /// A walk to the call of that index; `None` if the trace does not say which chunks to skip.
    pub(super) fn find(trace: &Trace, index: u64, passes_earlier: bool) -> Option<Self> {
        if index == 0 || trace.counts.is_empty() {
            return None;
        }
        let counts = counts_by_thread(trace)?;
        let mut order: Vec<(u64, usize, usize)> = Vec::new();
        for (thread, counts) in counts.iter().enumerate() {
            let with_calls = counts.iter().zip(0..).filter(|(count, _)| count.calls > 0);
            order.extend(with_calls.map(|(count, place)| (count.ticks, thread, place)));
        }
        order.sort_unstable();
        // In this order, the first call of a chunk is entered after all calls of the earlier
        // chunks, except those of each other thread's last one. So skipping is safe while all
        // earlier chunks together have at most `index` calls.
        let mut places = vec![0; counts.len()];
        let (mut passed, mut at_most) = (0_u64, 0_u64);
        for (_, thread, place) in order {
            let (counts, first) = (counts.get(thread)?, places.get_mut(thread)?);
            at_most = at_most.checked_add(counts.get(place)?.calls)?;
            if at_most > index {
                break;
            }
            let skipped = counts.get(*first..place)?.iter();
            passed += skipped.map(|count| count.calls).sum::<u64>();
            *first = place;
        }
        let mut start = Self {
            chunks: Vec::new(),
            first_counted: Vec::new(),
            passed,
        };
        for ((chunks, counts), &first) in trace.threads.iter().zip(&counts).zip(&places) {
            let introduces = |place: usize| {
                passes_earlier && counts.get(place).is_some_and(|c| c.introduces != 0)
            };
            // A call may return in the chunk behind the one that it was entered in.
            let is_needed = |place: usize| {
                place >= first || introduces(place) || place > 0 && introduces(place - 1)
            };
            let needed = chunks
                .iter()
                .zip(0..)
                .filter(|&(_, place)| is_needed(place));
            let (chunks, places): (Vec<usize>, Vec<usize>) = needed.unzip();
            start
                .first_counted
                .push(places.partition_point(|&place| place < first));
            start.chunks.push(chunks);
        }
        Some(start)
    }
}

impl Trace {
    /// How many calls there are, if the trace says so: a packed one does. For unpacked and older
    /// traces only a walk can count them.
    pub fn counted_calls(&self) -> Option<u64> {
        let calls = self.counts.iter().map(|count| count.calls);
        (!self.counts.is_empty()).then(|| calls.fold(0, u64::saturating_add))
    }
}

/// The call counts of each thread's chunks, in order; `None` if some are missing.
fn counts_by_thread(trace: &Trace) -> Option<Vec<Vec<&CallCount>>> {
    let mut counts: Vec<Vec<&CallCount>> = vec![Vec::new(); trace.threads.len()];
    for count in &trace.counts {
        let chunks = &trace.chunks;
        let at = chunks.partition_point(|chunk| chunk.position < count.position);
        let thread = chunks.get(at)?.head.thread as usize;
        counts.get_mut(thread)?.push(count);
    }
    // In a packed trace the chunks of a thread lie in their order.
    let all_match = trace.threads.iter().zip(&counts).all(|(chunks, counts)| {
        let positions = chunks.iter().map(|&chunk| trace.chunk(chunk).position);
        positions.eq(counts.iter().map(|count| count.position))
    });
    all_match.then_some(counts)
}
