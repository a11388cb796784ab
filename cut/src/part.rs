//! The part of a trace that chosen calls need.

use cutape_format::{Error, Trace};
use cutape_model::{Need, Needs, NeedsBuilder, PartReads};

/// Begins a walk over a trace; returns what is called for each of its calls, to show progress.
pub type Walks<'a> = dyn Fn(&Trace) -> Box<dyn FnMut()> + 'a;

/// Calls of a trace that can be replayed without the others.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Part {
    /// By call index: whether the call is in the part.
    pub calls: Vec<bool>,
    /// How many of them were chosen; the others are there because these need them.
    pub chosen: u64,
    /// The call before which memory is read in the source, and restored in the part, if the part does
    /// not compute it anew; otherwise 0. The call itself may not be in the part.
    pub start: u64,
}

impl Part {
    /// How many calls there are.
    pub fn count(&self) -> u64 {
        self.calls.iter().filter(|&&is_in| is_in).count() as u64
    }

    /// Whether a call is in the part.
    pub fn contains(&self, call: u64) -> bool {
        self.calls.get(call as usize) == Some(&true)
    }

    /// The first call from `start` on.
    pub fn first(&self) -> u64 {
        let mut calls = self.indices();
        calls.find(|&call| call >= self.start).unwrap_or(self.start)
    }

    /// Whether a call before `start` needs what memory holds.
    pub(crate) fn reads_memory_before_start(&self, needs: &Needs) -> bool {
        let mut before = self.indices().take_while(|&call| call < self.start);
        before.any(|call| needs.reads_memory(call))
    }

    /// Their indices in the source.
    pub fn indices(&self) -> impl Iterator<Item = u64> + '_ {
        let calls = (0..).zip(&self.calls);
        calls.filter(|&(_, &is_in)| is_in).map(|(index, _)| index)
    }
}

/// Reads what each call of a trace needs.
///
/// # Errors
/// Damage of the trace.
pub fn needs(trace: &Trace, progress: &mut dyn FnMut()) -> Result<Needs, Error> {
    Ok(read(trace, NeedsBuilder::default(), progress)?.finish())
}

/// Reads what these calls need, in order, and what those need. The needs of others are not kept.
///
/// # Errors
/// Damage of the trace.
pub(crate) fn needs_of(
    trace: &Trace,
    chosen: &[u64],
    progress: &mut dyn FnMut(),
) -> Result<Needs, Error> {
    Ok(read(trace, NeedsBuilder::of_chosen(chosen), progress)?.finish())
}

/// The same if memory is restored before these calls, and what they read of it. The call in
/// `also_used` also uses memory at these addresses.
///
/// # Errors
/// Damage of the trace.
pub(crate) fn needs_of_state(
    trace: &Trace,
    chosen: &[u64],
    also_used: (u64, Vec<u64>),
    walks: &Walks<'_>,
) -> Result<(Part, Needs, PartReads), Error> {
    let find = |keeps_contents, also_used| {
        let builder = NeedsBuilder::of_state(chosen, keeps_contents, also_used);
        let (needs, reads) = read(trace, builder, &mut *walks(trace))?.finish_with_reads();
        let part = part_from_state(&needs, reads.start, chosen);
        Ok::<_, Error>((part, needs, reads))
    };
    let found = find(false, also_used.clone())?;
    // Few traces fill arrays from device memory.
    match found.0.reads_memory_before_start(&found.1) {
        false => Ok(found),
        true => find(true, also_used),
    }
}

fn read(
    trace: &Trace,
    mut builder: NeedsBuilder,
    progress: &mut dyn FnMut(),
) -> Result<NeedsBuilder, Error> {
    let read = |bytes: cutape_format::Bytes<'_>| {
        let bytes = trace.resolve(bytes).ok()?;
        Some(std::borrow::Cow::Owned(bytes.into_owned()))
    };
    trace.walk().run(|call| {
        builder.push(call, &read);
        progress();
        Ok::<_, Error>(())
    })?;
    Ok(builder)
}

/// The chosen calls with all that they need. What memory held before them is computed again: the
/// copies, memsets and launches that wrote it are in the part.
pub fn part(needs: &Needs, chosen: &[u64]) -> Part {
    let in_trace = |&&call: &&u64| call < needs.calls();
    Part {
        calls: needs.closure(chosen.iter().copied(), |_, _, _: Need| true),
        chosen: chosen.iter().filter(in_trace).count() as u64,
        start: 0,
    }
}

/// The chosen calls with what they need, except calls that only wrote memory before the first of
/// them: what memory held at `start` is to be restored.
fn part_from_state(needs: &Needs, start: u64, chosen: &[u64]) -> Part {
    let calls = needs.closure(chosen.iter().copied(), |call, needed, need| {
        if needed >= start {
            return true;
        }
        match need {
            Need::Existence | Need::Setting => true,
            // Objects that are not memory, such as arrays, hold what earlier calls gave them.
            Need::Content | Need::Order => call < start && needs.reads_memory(call),
            // All earlier work is complete where memory is restored.
            Need::Completion => !needs.reads_memory(needed),
        }
    });
    let in_trace = |&&call: &&u64| call < needs.calls();
    Part {
        calls,
        chosen: chosen.iter().filter(in_trace).count() as u64,
        start,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn earlier_calls_stay_only_for_what_is_not_memory() {
        use Need::{Completion, Content, Existence, Order, Setting};
        let needs = Needs::of_lists([
            vec![],                                                          // 0 creates memory
            vec![(0, Existence)],                                            // 1 writes it
            vec![(0, Existence), (1, Content)], // 2 writes it from itself
            vec![],                             // 3 creates an array
            vec![(3, Existence), (2, Content)], // 4 writes the array from memory
            vec![(1, Order)],                   // 5 waits
            vec![(0, Existence), (2, Content), (5, Order), (8, Completion)], // 6 reads memory
            vec![(3, Existence), (4, Setting), (6, Content)], // 7 reads the array
            vec![(2, Content)],                 // 8 ends 6
        ]);
        for (chosen, expected, start) in [
            (&[6][..], &[0, 6, 8][..], 6),
            (&[7], &[0, 1, 2, 3, 4, 7], 7),
            (&[6, 7], &[0, 1, 2, 3, 4, 6, 7, 8], 6),
            (&[5, 99], &[5], 5),
            (&[0], &[0], 0),
        ] {
            let part = part_from_state(&needs, start, chosen);
            assert_eq!(part.indices().collect::<Vec<_>>(), expected, "{chosen:?}");
            assert_eq!(part.first(), start, "{chosen:?}");
        }
        // Memory that an array is written from is read before the part, too.
        assert!(part_from_state(&needs, 7, &[7]).reads_memory_before_start(&needs));
        assert!(!part_from_state(&needs, 6, &[6]).reads_memory_before_start(&needs));
    }
}
