//! Passes over calls: those of a scope, and searches.

use std::ops::{ControlFlow, Range};
use std::thread;
use std::time::Duration;

use cutape_analyzer::decode::function_of;
use cutape_calls::CallSet;
use cutape_format::{Call, Error, Trace, TraceClock};
use cutape_model::{ObjectId, Operands};
use cutape_registry::Kind;
use cutape_render::Renderer;

use super::object_pane;
use super::report_timer::ReportTimer;
use super::rows::row;
use super::shared::SharedTrace;
use super::worker::IsCancelled;
use crate::state::object_key::ObjectKey;
use crate::state::reply::{Reply, Scope, SendReply, Wanted};

const REPORT_INTERVAL: Duration = Duration::from_millis(50);
/// Time between two looks at a growing trace.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// The first matches come with their lines.
const WITH_LINES: u64 = 5000;

/// Whether a call is of a scope.
enum Test {
    All,
    Set(Box<CallSet>),
    Uses(UsesOf),
}

/// The calls that name an object.
struct UsesOf {
    key: ObjectKey,
    id: Option<ObjectId>,
    /// The addresses that it occupies.
    occupied: Range<u64>,
    /// It has ended.
    is_over: bool,
}

impl Test {
    /// The test, and the calls outside of which none matches.
    fn of(
        shared: &SharedTrace,
        trace: &Trace,
        scope: &Scope,
    ) -> Result<(Self, Range<u64>), String> {
        Ok(match scope {
            Scope::All => (Self::All, 0..u64::MAX),
            Scope::Set(text) => {
                let set = CallSet::parse(text)?.resolve(trace)?;
                let range = set.range().unwrap_or(0..u64::MAX);
                (Self::Set(Box::new(set)), range)
            }
            Scope::Uses(key) => {
                let uses = UsesOf::of(shared, trace, *key).map_err(|error| error.to_string())?;
                let created = uses.1;
                (Self::Uses(uses.0), created..u64::MAX)
            }
        })
    }

    fn matches(&mut self, renderer: &mut Renderer<'_>, call: &Call<'_>) -> bool {
        match self {
            Self::All => true,
            Self::Set(set) => set.contains_rendered(call, renderer),
            Self::Uses(uses) => uses.matches(renderer, call),
        }
    }

    /// Whether no later call matches.
    fn is_over(&self) -> bool {
        matches!(self, Self::Uses(uses) if uses.is_over)
    }
}

impl UsesOf {
    /// With the call that created the object.
    fn of(shared: &SharedTrace, trace: &Trace, key: ObjectKey) -> Result<(Self, u64), Error> {
        let mut found = (key.handle..key.handle.saturating_add(1), None, 0);
        shared.read(
            trace,
            key.call..key.call.saturating_add(1),
            &mut |renderer, _| {
                let id = object_pane::find(renderer, key);
                if let Some(object) = id.and_then(|id| renderer.state.state.objects.get(id)) {
                    let end = object.handle.saturating_add(object.size.max(1));
                    found = (object.handle..end, id, object.created.index);
                }
                ControlFlow::Break(())
            },
        )?;
        let (occupied, id, created) = found;
        let uses = Self {
            key,
            id,
            occupied,
            is_over: false,
        };
        Ok((uses, created))
    }

    fn matches(&mut self, renderer: &Renderer<'_>, call: &Call<'_>) -> bool {
        let objects = &renderer.state.state.objects;
        let is_ended = |id: ObjectId| objects.get(id).is_none() || objects.end_of(id).is_some();
        if let Some(id) = self.id
            && call.succeeded()
            && is_ended(id)
        {
            self.is_over = true;
            return true;
        }
        let created = self.id.and_then(|id| objects.get(id));
        if created.is_some_and(|object| object.created.index == call.index) {
            return true;
        }
        let Some(function) = function_of(call.signature) else {
            return false;
        };
        let operands = Operands::of(function, call);
        let Self { key, occupied, .. } = self;
        // A kernel may be launched by its own handle, cast to CUfunction.
        let is_kind = |kind: Kind| match (kind, key.kind) {
            (Kind::Function | Kind::Kernel, Kind::Function | Kind::Kernel) => true,
            (kind, wanted) => kind == wanted,
        };
        let mut handles = operands.handles.iter();
        if key.kind.is_address() {
            let mut words = operands.words.iter();
            operands
                .addresses()
                .any(|address| occupied.contains(&address))
                || words.any(|word| occupied.contains(word))
                || handles.any(|(kind, handle)| kind.is_address() && occupied.contains(handle))
        } else {
            handles.any(|&(kind, handle)| is_kind(kind) && handle == key.handle)
        }
    }
}

/// Sends the calls of a scope; of a growing trace until the recording ends.
pub(super) fn filter(
    shared: &SharedTrace,
    id: u64,
    scope: &Scope,
    is_cancelled: IsCancelled<'_>,
    send: &SendReply<'_>,
) {
    let test = {
        let trace = shared.trace();
        Test::of(shared, &trace, scope)
    };
    let (mut test, range) = match test {
        Ok(test) => test,
        Err(why) => return send(Reply::BadScope { id, why }),
    };
    let mut seen = range.start;
    let mut found = 0;
    loop {
        let is_counted = shared.is_counted();
        let until = shared.total().min(range.end);
        let (mut calls, mut rows) = (Vec::new(), Vec::new());
        let mut timer = ReportTimer::every(REPORT_INTERVAL);
        let trace = shared.trace();
        let clock = TraceClock::of(&trace);
        let outcome = shared.read(&trace, seen..until.max(seen), &mut |renderer, call| {
            seen = call.index + 1;
            if test.matches(renderer, call) {
                if found < WITH_LINES {
                    rows.push(row(renderer, call, clock));
                }
                found += 1;
                calls.push(call.index);
            }
            if timer.is_due(seen) {
                send(Reply::Matches {
                    id,
                    calls: std::mem::take(&mut calls),
                    rows: std::mem::take(&mut rows),
                    seen,
                    is_done: false,
                    is_ended: false,
                });
            }
            match test.is_over() || is_cancelled() {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            }
        });
        drop(trace);
        if is_cancelled() {
            return;
        }
        if let Err(error) = outcome {
            send(Reply::Failed(error.to_string()));
        }
        let is_done = test.is_over() || (is_counted && seen >= until) || seen >= range.end;
        if is_done || !calls.is_empty() {
            send(Reply::Matches {
                id,
                calls,
                rows,
                seen,
                is_done,
                is_ended: test.is_over(),
            });
        }
        if is_done {
            return;
        }
        thread::sleep(POLL_INTERVAL);
        if is_cancelled() {
            return;
        }
    }
}

/// A search.
pub(super) struct Search {
    pub(super) id: u64,
    pub(super) wanted: Wanted,
    pub(super) scope: Scope,
    pub(super) from: u64,
    pub(super) is_backward: bool,
}

impl Search {
    /// Searches, and beyond the end from the other end on.
    pub(super) fn run(
        &self,
        shared: &SharedTrace,
        is_cancelled: IsCancelled<'_>,
        send: &SendReply<'_>,
    ) {
        let trace = shared.trace();
        let total = shared.total();
        let parts = match self.is_backward {
            true => [0..self.from, self.from..total],
            false => {
                let from = self.from.wrapping_add(1);
                [from..total, 0..from]
            }
        };
        for (part, is_wrapped) in parts.into_iter().zip([false, true]) {
            match self.search(shared, &trace, part, is_cancelled, send) {
                _ if is_cancelled() => return,
                Ok(None) => {}
                Ok(call) => {
                    return send(Reply::Found {
                        id: self.id,
                        call,
                        is_wrapped,
                    });
                }
                Err(why) => return send(Reply::BadScope { id: self.id, why }),
            }
        }
        send(Reply::Found {
            id: self.id,
            call: None,
            is_wrapped: true,
        });
    }

    fn search(
        &self,
        shared: &SharedTrace,
        trace: &Trace,
        part: Range<u64>,
        is_cancelled: IsCancelled<'_>,
        send: &SendReply<'_>,
    ) -> Result<Option<u64>, String> {
        if part.is_empty() {
            return Ok(None);
        }
        let (named, text) = match &self.wanted {
            Wanted::Text(text) => (CallSet::of_text(text), Some(text)),
            Wanted::Failure => (CallSet::of_failures(), None),
        };
        let segments: Vec<Range<u64>> = match self.is_backward {
            true => shared.segments().into_iter().rev().collect(),
            false => std::iter::once(0..u64::MAX).collect(),
        };
        let clock = TraceClock::of(trace);
        let mut timer = ReportTimer::every(REPORT_INTERVAL);
        let mut seen = 0_u64;
        for segment in segments {
            let calls = part.start.max(segment.start)..part.end.min(segment.end);
            if calls.is_empty() {
                continue;
            }
            let (mut test, _) = Test::of(shared, trace, &self.scope)?;
            let mut found = None;
            let outcome = shared.read(trace, calls, &mut |renderer, call| {
                seen += 1;
                if timer.is_due(seen) {
                    send(Reply::Searching { id: self.id, seen });
                }
                let is_wanted = named.contains_rendered(call, renderer)
                    || text.is_some_and(|text| row(renderer, call, clock).contains(text));
                if is_wanted && test.matches(renderer, call) {
                    found = Some(call.index);
                }
                match is_cancelled() || (found.is_some() && !self.is_backward) {
                    true => ControlFlow::Break(()),
                    false => ControlFlow::Continue(()),
                }
            });
            outcome.map_err(|error| error.to_string())?;
            if found.is_some() || is_cancelled() {
                return Ok(found);
            }
        }
        Ok(None)
    }
}
