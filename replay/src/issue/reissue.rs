//! How a call goes to the driver and back.

use cutape_registry::{ContextOp, Family, PrimaryOp, Role, Waits};

use crate::api::buffer::Buffer;
use crate::api::{Code, INVALID_VALUE};
use crate::calls::frame::{Frame, Presets};
use crate::calls::issuer::call_driver;
use crate::measure::clock;
use crate::measure::timing::Measure;
use crate::measure::tracer::{CallTracer, Tracer};
use crate::objects::skip::Skip;
use crate::plan::length::length_of;
use crate::player::{Job, Played};

impl Job<'_, '_> {
    /// Re-issues a call from the registry's roles alone.
    pub(crate) fn plain(&mut self) -> Played {
        let frame = self.marshal(&[])?;
        self.reissue(frame)
    }

    /// Gives a call to the driver, unless the replay knows the answer, and compares.
    pub(crate) fn reissue(&mut self, frame: Frame) -> Played {
        if self.call.result() == Some(INVALID_VALUE)
            && self.traits.names_memory
            && self.names_freed_memory()
        {
            return self.answer(frame, INVALID_VALUE);
        }
        let result = self.issue(&frame)?;
        self.conclude(frame, result)
    }

    /// Re-issues a call with these bytes behind one of its parameters.
    pub(crate) fn reissue_bytes(&mut self, position: usize, bytes: &[u8]) -> Played {
        let mut presets = Presets::default();
        presets.point(position, Buffer::of(bytes));
        self.reissue_with(presets)
    }

    /// Re-issues a call with these arguments.
    pub(crate) fn reissue_with(&mut self, presets: impl Into<Presets>) -> Played {
        let presets = presets.into();
        let mut frame = self.marshal(&presets.args)?;
        frame.adopt(presets);
        self.reissue(frame)
    }

    /// Builds the arguments and calls the driver; what it returned is still to be compared.
    pub(crate) fn issued(&mut self, presets: &[(usize, u64)]) -> Result<(Frame, Code), Skip> {
        let frame = self.marshal(presets)?;
        let result = self.issue(&frame)?;
        Ok((frame, result))
    }

    /// Answers a call for the driver, with these values behind some of its parameters.
    pub(crate) fn answer_with(&mut self, result: Code, values: &[(usize, u64)]) -> Played {
        let mut frame = self.marshal(&[])?;
        for &(position, value) in values {
            frame.answer(position, value);
        }
        self.answer(frame, result)
    }

    /// Takes the replay's own answer for the driver's.
    pub(crate) fn answer(&mut self, frame: Frame, result: Code) -> Played {
        self.player.issuer.count_answer(self.function);
        self.conclude(frame, result)
    }

    /// True if a device operand lies in placed memory that is freed, or that no allocation covers.
    /// The recorded driver saw that; this one may not, because granules are shared.
    fn names_freed_memory(&self) -> bool {
        self.function
            .params
            .iter()
            .enumerate()
            .any(|(position, param)| {
                let (Role::DeviceRead(length) | Role::DeviceWrite(length)) = param.role else {
                    return false;
                };
                let length = length_of(self.call, self.function, length);
                self.is_freed(self.call.argument(position), length)
            })
    }

    /// Calls the driver. If calls overlap, other threads play meanwhile.
    pub(crate) fn issue(&mut self, frame: &Frame) -> Result<Code, Skip> {
        self.issue_with(&frame.args)
    }

    /// As [`Self::issue`], for arguments that need no frame.
    #[inline]
    pub(crate) fn issue_with(&mut self, args: &[u64]) -> Result<Code, Skip> {
        let state = &mut **self.player;
        if let Some(observer) = &mut state.observer
            && observer.has_graph()
        {
            // cuGraphLaunch.
            let [exec, stream] = [0, 1].map(|at| args.get(at).copied().unwrap_or(0));
            let stream = (stream, self.function.per_thread);
            return Ok(observer.run_graph(&state.api, exec, stream));
        }
        if self.lease.is_some() {
            let position = &self.issuer.position;
            position.enters(self.call.thread as usize, self.call.index);
        }
        // The program went on because the work was done; the replay must not run ahead of it.
        let succeeded = self.call.succeeded();
        let waits = succeeded && self.traits.is_query;
        // A wait for a context ends all work: assumed that a rank has one context with work.
        let known = self.options.peers.is_some().then(|| self.count_work());
        let patience = self.issuer.patience();
        let result = match &self.issuer.measure {
            _ if self.options.tracer.is_some() => self.issue_traced(args, waits),
            Some(measure) if measure.is_of_calls() && self.is_compared() => {
                self.issue_timed(args, waits)
            }
            _ => self
                .player
                .while_lent(|api| call_driver(api, self.function, args, waits, patience)),
        };
        let result = result?;
        self.current.has_waited = result == 0 && succeeded && self.function.waits != Waits::No;
        if let Some(known) = known
            && result == 0
            && self.function.waits == Waits::Context
        {
            self.issuer.position.finish_work(known);
        }
        let is_compared = self.is_compared() && self.function.returns_result;
        let is_launch = self.traits.is_launch;
        let state = &mut **self.player;
        let report = &mut state.report;
        report.calls_replayed += 1;
        report.results_compared += u64::from(is_compared);
        report.launches += u64::from(is_launch);
        if let Some(recorder) = &mut state.issuer.recorder {
            let context = state.api.current_context().unwrap_or(0);
            recorder.issued(self.call, self.function, args, context, result);
        }
        Ok(result)
    }

    /// For other ranks: counts a call that enqueues work. How many such calls there were before.
    fn count_work(&self) -> u64 {
        let enqueues = self.function.stream.is_some() && self.function.waits == Waits::No;
        self.issuer.position.count_work(enqueues)
    }

    /// Tells the tracer of the call, and puts events around its work if the tracer wants them.
    #[cold]
    fn issue_traced(
        &mut self,
        args: &[u64],
        waits: bool,
    ) -> Result<Code, cutape_driver::CallError> {
        let patience = self.issuer.patience();
        let call = self.call.index;
        let options = self.options;
        let Some(Tracer(tracer)) = &options.tracer else {
            return self
                .player
                .while_lent(|api| call_driver(api, self.function, args, waits, patience));
        };
        let stream = match self.issuer.events.is_some() {
            true => self.begin_events(tracer.as_ref()),
            false => None,
        };
        let result = self.player.while_lent(|api| {
            tracer.enters(call);
            let result = call_driver(api, self.function, args, waits, patience);
            tracer.leaves(call);
            result
        });
        let state = &mut **self.player;
        if let Some(events) = &mut state.issuer.events {
            if let Some(stream) = stream {
                let is_after = events.after(&state.api, call, stream);
                is_after.unwrap_or_else(|| tracer.is_not_timed(call));
            }
            if self.function.waits != Waits::No {
                events.read(&state.api, tracer.as_ref(), false);
            }
        }
        result
    }

    /// Puts an event before the work of the call. The stream, for the one after it.
    fn begin_events(&mut self, tracer: &dyn CallTracer) -> Option<(u64, bool)> {
        let ends_context = match self.function.family {
            Family::Context(op) => matches!(op, ContextOp::Destroy | ContextOp::Detach),
            Family::PrimaryContext(op) => matches!(op, PrimaryOp::Release | PrimaryOp::Reset),
            _ => false,
        };
        if ends_context && self.wait_for_all_work().is_ok() {
            let state = &mut **self.player;
            if let Some(events) = &mut state.issuer.events {
                events.read(&state.api, tracer, true);
                events.forget_contexts();
            }
        }
        let is_work = self.traits.is_launch
            || matches!(self.function.family, Family::Copy(_) | Family::Memset);
        if !is_work || !self.call.succeeded() {
            return None;
        }
        // Captured work does not run.
        let stream = self.uncaptured_stream()?;
        let call = self.call.index;
        let state = &mut **self.player;
        let events = state.issuer.events.as_mut()?;
        let is_before = events.before(&state.api, call, stream);
        if is_before.is_none() {
            tracer.is_not_timed(call);
        }
        is_before.map(|()| stream)
    }

    #[cold]
    fn issue_timed(&mut self, args: &[u64], waits: bool) -> Result<Code, cutape_driver::CallError> {
        let patience = self.issuer.patience();
        let (result, ticks) = self.player.while_lent(|api| {
            let begin = clock::ticks();
            let result = call_driver(api, self.function, args, waits, patience);
            (result, clock::ticks().saturating_sub(begin))
        });
        let result = result?;
        if let Some(measure) = &mut self.player.issuer.measure {
            let recorded = Measure::returned_at(self.call).saturating_sub(self.call.ticks);
            measure.add(self.function, recorded, ticks);
        }
        Ok(result)
    }
}
