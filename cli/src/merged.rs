//! The calls of several processes of one recording, in one order.

use cutape_format::{Call, ClockStart, Cursor, Trace};

/// Whether the clocks of all traces read the same counter, as those of one machine do.
pub(crate) fn have_common_clock<'t>(traces: impl Iterator<Item = &'t Trace>) -> bool {
    let clocks: Option<Vec<ClockStart>> = traces.map(ClockStart::of).collect();
    clocks.is_some_and(|clocks| {
        let first = clocks.first();
        first.is_some_and(|first| clocks.iter().all(|other| first.has_counter_of(other)))
    })
}

/// The calls of several traces, by the time at which they were entered.
pub(crate) struct Merged<'t> {
    traces: Vec<&'t Trace>,
    cursors: Vec<Cursor>,
    next: Vec<Option<Call<'t>>>,
}

impl<'t> Merged<'t> {
    pub(crate) fn of(traces: impl Iterator<Item = &'t Trace>) -> Self {
        let traces: Vec<&Trace> = traces.collect();
        let mut cursors: Vec<Cursor> = traces.iter().map(|_| Cursor::new()).collect();
        let heads = cursors.iter_mut().zip(&traces);
        let next = heads.map(|(cursor, trace)| cursor.next(trace)).collect();
        Self {
            traces,
            cursors,
            next,
        }
    }

    /// The next call, and the position of its trace.
    pub(crate) fn next(&mut self) -> Option<(usize, Call<'t>)> {
        let known = self.next.iter().enumerate();
        let known = known.filter_map(|(at, call)| Some((call.as_ref()?.ticks, at)));
        let (_, at) = known.min()?;
        let (cursor, trace) = (self.cursors.get_mut(at)?, self.traces.get(at)?);
        let call = std::mem::replace(self.next.get_mut(at)?, cursor.next(trace));
        Some((at, call?))
    }
}
