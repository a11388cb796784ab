//! The state of a session: where it is, and how it moves.

use cutape_analyzer::Frame;
use cutape_calls::Markers;
use cutape_format::{MarkedRange, Trace};
use cutape_history::{Bytes, CallFacts, Target, numbers, written_by};
use cutape_replay::{Change, Stop, Writer};
use cutape_symbols::{Resolver, stacks};

use crate::command::{Place, What};
use crate::memory::{Changes, Memory};
use crate::points::Points;
use crate::tape::Tape;

/// Why it stopped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Stopped {
    /// It has gone where it was to go.
    Moved,
    /// At these breakpoints.
    Breakpoints(Vec<u32>),
    /// At a change of the bytes of a watchpoint: its number, and what changed them.
    Watchpoint(u32, String),
    /// At the begin of the trace.
    Begin,
    /// At its end.
    End,
}

/// A session on a trace. It is before a call, or at the end; it moves without a replay unless bytes
/// are watched.
pub struct Debugger<'t> {
    pub(crate) tape: Tape<'t>,
    pub(crate) memory: Box<dyn Memory + 't>,
    pub(crate) points: Points,
    pub(crate) markers: Markers,
    pub(crate) resolver: Resolver,
    /// The call before which it is.
    pub(crate) position: u64,
    /// What a replay could not look at since the last answer.
    pub(crate) notes: Vec<String>,
}

impl<'t> Debugger<'t> {
    /// Before the first call.
    ///
    /// # Errors
    /// The trace cannot be read.
    pub fn new(trace: &'t Trace, memory: impl Memory + 't) -> Result<Self, cutape_format::Error> {
        Ok(Self {
            tape: Tape::new(trace)?,
            memory: Box::new(memory),
            points: Points::default(),
            markers: Markers::of(trace),
            resolver: Resolver::default(),
            position: 0,
            notes: Vec::new(),
        })
    }

    /// The call before which it is; the number of calls at the end.
    pub(crate) fn position(&self) -> u64 {
        self.position
    }

    /// The thread of that call; at the end that of the last one.
    pub(crate) fn thread(&self) -> u32 {
        let at = self.position.min(self.tape.len().saturating_sub(1));
        self.tape.thread(at).unwrap_or(0)
    }

    /// Where a replay stops for a position.
    pub(crate) fn stop(&self, position: u64) -> Stop {
        let is_after = position >= self.tape.len();
        Stop {
            call: position - u64::from(is_after && position > 0),
            is_after,
        }
    }

    /// Goes on or back to a breakpoint or a change, or as far as it can.
    pub(crate) fn resume(&mut self, is_back: bool) -> Result<Stopped, String> {
        match is_back {
            false => self.forward(self.tape.len()),
            true => self.back(0),
        }
    }

    /// To the next or last call of a thread, or of any.
    pub(crate) fn step(&mut self, is_back: bool, thread: Option<u32>) -> Result<Stopped, String> {
        let at = self.position;
        match (is_back, thread) {
            (false, None) => self.forward(at + 1),
            (true, None) => self.back(at.saturating_sub(1)),
            (false, Some(thread)) => {
                let next = self.tape.next_of(thread, at + 1);
                self.forward(next.unwrap_or(self.tape.len()))
            }
            (true, Some(thread)) => self.back(self.tape.previous_of(thread, at).unwrap_or(0)),
        }
    }

    /// To the end or the begin of the innermost range of this thread that is not there already.
    pub(crate) fn finish(&mut self, is_back: bool) -> Result<Stopped, String> {
        let ends = |range: &MarkedRange| match (is_back, range.end) {
            (true, _) => self.tape.first_since(range.begin),
            (false, Some(end)) => self.tape.first_since(end),
            (false, None) => self.tape.len(),
        };
        let targets = self.ranges_around().into_iter().map(|at| {
            let range = self.markers.ranges.get(at);
            range.map_or(self.position, ends)
        });
        let target = match is_back {
            true => targets.filter(|&target| target < self.position).max(),
            false => targets.filter(|&target| target > self.position).min(),
        };
        let none = || "no range of NVTX of this thread is around this call".to_owned();
        let target = target.ok_or_else(none)?;
        match is_back {
            true => self.back(target),
            false => self.forward(target),
        }
    }

    /// To a call, or the end, past breakpoints.
    pub(crate) fn jump(&mut self, call: u64) -> Result<Stopped, String> {
        let count = self.tape.len();
        if call > count {
            return Err(format!("the trace has {count} calls, numbered from 0"));
        }
        self.position = call;
        Ok(self.reason())
    }

    /// The numbers of the ranges of this thread around the call, from the outermost.
    pub(crate) fn ranges_around(&self) -> Vec<usize> {
        let (ticks, thread) = (self.tape.ticks(self.position), self.thread());
        let ranges = self.markers.ranges.iter().enumerate();
        let around = ranges.filter(|(_, range)| range.contains(ticks));
        let of_thread = around.filter(|(_, range)| range.thread.is_none_or(|of| of == thread));
        of_thread.map(|(at, _)| at).collect()
    }

    fn forward(&mut self, limit: u64) -> Result<Stopped, String> {
        let (at, count) = (self.position, self.tape.len());
        if at >= count {
            return Err("this is the end of the trace".to_owned());
        }
        let next = self.points.next_after(at).unwrap_or(count);
        let to = next.min(limit);
        let ranges = self.points.watched();
        if !ranges.is_empty() {
            let (from, end) = (self.stop(at), self.stop(to));
            let changes = self.memory.first_change(from, end, &ranges)?;
            if let Some((call, stopped)) = self.changed(changes, false) {
                self.position = call + 1;
                return Ok(stopped);
            }
        }
        self.position = to;
        Ok(self.reason())
    }

    fn back(&mut self, limit: u64) -> Result<Stopped, String> {
        let at = self.position;
        if at == 0 {
            return Err("this is the begin of the trace".to_owned());
        }
        let to = self.points.last_before(at).unwrap_or(0).max(limit);
        let ranges = self.points.watched();
        if !ranges.is_empty() {
            let changes = self.memory.last_change(self.stop(at), &ranges)?;
            if let Some((call, stopped)) = self.changed(changes, true)
                && call >= to
            {
                self.position = call;
                return Ok(stopped);
            }
        }
        self.position = to;
        Ok(self.reason())
    }

    /// The first or last of some changes: the call during or after which it happened.
    fn changed(&mut self, (seen, left_out): Changes, is_last: bool) -> Option<(u64, Stopped)> {
        self.notes.extend(left_out);
        // What CPU code does before a call, it does after the one before.
        let moment = |change: &Change| match change.by {
            Writer::Host => change.call.saturating_sub(1),
            _ => change.call,
        };
        let watchpoints = self.points.watchpoints().iter().zip(&seen);
        let changes = watchpoints.filter_map(|(point, seen)| Some((point, seen.last.back()?)));
        let (point, change) = match is_last {
            true => changes.max_by_key(|(_, change)| moment(change))?,
            false => changes.min_by_key(|(_, change)| moment(change))?,
        };
        let (number, element, text) = (point.number, point.element, point.text.clone());
        let by = written_by(&change.by, change.call, &self.facts(change.call));
        let numbers = numbers(change, element);
        let colon = if numbers.is_empty() { "" } else { ": " };
        let text = format!("{text}{colon}{numbers}, {by}");
        Some((moment(change), Stopped::Watchpoint(number, text)))
    }

    fn facts(&mut self, call: u64) -> CallFacts {
        let Some((found, renderer)) = self.tape.call(call) else {
            return CallFacts::default();
        };
        let launch = renderer.render(&found).launch;
        CallFacts {
            function: found.signature.name.to_string(),
            kernel: launch.and_then(|launch| launch.kernel_name()),
            ..CallFacts::default()
        }
    }

    /// Why it is where it is.
    fn reason(&self) -> Stopped {
        let at = self.points.at(self.position);
        match self.position {
            _ if !at.is_empty() => Stopped::Breakpoints(at),
            0 => Stopped::Begin,
            position if position >= self.tape.len() => Stopped::End,
            _ => Stopped::Moved,
        }
    }

    /// The bytes that a user names, before or after the call.
    pub(crate) fn bytes(&self, place: &Place, is_after: bool) -> Result<Bytes, String> {
        const SIZE: u64 = 16;
        let size = place.element.map_or(SIZE, |element| element.bytes);
        let (target, size) = match &place.what {
            What::Target(target) => (target.clone(), size),
            What::Parameter(number, length) => {
                let target = Target::Parameter(self.position, *number);
                (target, length.unwrap_or(size))
            }
        };
        let before = self.position + u64::from(is_after);
        let found = target.resolve(self.tape.trace(), Some(before))?;
        match found.before.filter(|&end| end < before) {
            Some(end) => {
                let text = &place.text;
                Err(format!(
                    "{text}: other memory has its address since call {end}"
                ))
            }
            None => Ok(found.bytes(size)),
        }
    }

    /// Watches bytes; its number, and where they are.
    pub(crate) fn add_watchpoint(&mut self, place: &Place) -> Result<(u32, Bytes), String> {
        let bytes = self.bytes(place, false)?;
        let points = &mut self.points;
        let number = points.add_watchpoint(&place.text, bytes, place.element);
        Ok((number, bytes))
    }

    /// The stack of a call, the innermost frame first; empty if the trace does not have it.
    pub(crate) fn frames(&mut self, call: u64) -> Vec<Frame> {
        let trace = self.tape.trace();
        let stack = self.tape.call(call).and_then(|(call, _)| call.stack());
        let frames = stack.and_then(|id| stacks::frames(trace, &self.resolver, id));
        frames.unwrap_or_default()
    }
}
