//! The part of a trace that chosen calls need.

use cutape_format::{Error, Trace};
use cutape_model::{MemoryReads, Need, Needs, NeedsBuilder};

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

/// Reads what each call of a trace needs, if the first call of the part also uses memory at these
/// addresses, and which memory the part reads as earlier calls left it.
///
/// # Errors
/// Damage of the trace.
pub fn reads(
    trace: &Trace,
    part: &Part,
    also_used: Vec<u64>,
    progress: &mut dyn FnMut(),
) -> Result<(Needs, MemoryReads), Error> {
    let also_used = (part.first(), also_used);
    let builder = NeedsBuilder::of_part(part.start, &part.calls, also_used);
    Ok(read(trace, builder, progress)?.finish_with_reads())
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
/// them: what memory held there is to be restored.
pub fn part_from_state(needs: &Needs, chosen: &[u64]) -> Part {
    let first = chosen.iter().copied().min().unwrap_or(0);
    let start = needs.outside_captures(first);
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
