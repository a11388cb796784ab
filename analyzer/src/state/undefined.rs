//! Follows calls that failed and left their output undefined, and what uses that output.

use cutape_format::Call;
use cutape_model::{Capture, Effect, Lookup, Site};
use cutape_registry::{ContextOp, Family, Kind, Length, LinkOp, is_default_stream, is_sticky};

use super::State;
use super::failures::{Failure, Output, UndefinedUse};
use crate::plan::{Plan, Step};
use crate::rules::code;

/// How many failed outputs a thread remembers.
const FAILURES: usize = 16;

/// Whether NULL as a context stands for the current one.
fn takes_current(family: Family) -> bool {
    !matches!(
        family,
        Family::Context(ContextOp::Push | ContextOp::EnablePeer | ContextOp::DisablePeer)
    )
}

impl State {
    /// A value that no call has returned, in the place of what an earlier call of the thread failed
    /// to return. Of calls that did not succeed: a value that the driver accepts may be right.
    pub(crate) fn undefined_use(&self, plan: &Plan, call: &Call<'_>) -> Option<UndefinedUse<'_>> {
        let thread = self.threads.get(call.thread as usize)?;
        // These results are not about the arguments.
        let is_elsewhere = |code| code == code::NOT_READY || is_sticky(code);
        if call.succeeded() || thread.failures.is_empty() || call.result().is_some_and(is_elsewhere)
        {
            return None;
        }
        let steps = plan.steps.iter().filter_map(|&(position, step)| {
            let kind = match step {
                Step::Use(Kind::Context)
                    if call.argument(position) == 0 && takes_current(plan.function.family) =>
                {
                    return None;
                }
                Step::Use(kind) | Step::Destroy(kind) => kind,
                Step::Device(length) if length != Length::Fixed(0) => Kind::Memory,
                _ => return None,
            };
            Some((Output::Handle(kind), call.argument(position)))
        });
        let image = plan.image.map(|at| (Output::Image, call.argument(at)));
        steps.chain(image).find_map(|(taken, value)| {
            if self.is_known(taken, value) {
                return None;
            }
            let mut failures = thread.failures.iter().rev();
            let failure = failures.find(|failure| failure.output.may_be(taken))?;
            Some(UndefinedUse {
                failure,
                taken,
                value,
            })
        })
    }

    /// True for a value that a call has returned, or that needs no call.
    fn is_known(&self, taken: Output, value: u64) -> bool {
        match taken {
            // What lies at an address may be an image of the program's own.
            Output::Image => value != 0,
            Output::Handle(Kind::Memory) => {
                self.place_at(value).is_some() || self.freed_at(value).is_some()
            }
            Output::Handle(Kind::Stream) if is_default_stream(value) => true,
            Output::Handle(kind) => self.objects.resolve(kind, value) != Lookup::Unknown,
        }
    }

    /// A call failed, `reported` if there is a finding about it. Returns whether there is one about
    /// it or about what made it fail.
    pub(super) fn follow_undefined(
        &mut self,
        plan: &Plan,
        call: &Call<'_>,
        reported: bool,
    ) -> bool {
        let used = self.undefined_use(plan, call);
        let Some((cause, was_reported)) =
            used.map(|used| (used.failure.site.index, used.failure.reported))
        else {
            return reported;
        };
        self.consequences += u64::from(was_reported && !reported);
        let mut failures = self.thread_mut(call.thread).failures.iter_mut();
        if let Some(failure) = failures.find(|failure| failure.site.index == cause) {
            failure.reported |= reported;
            failure.is_used = true;
        }
        reported || was_reported
    }

    /// The capture that a call is most likely refused for: its stream's, its thread's, one that
    /// forbids calls in all threads, the oldest.
    pub(crate) fn concerned_capture(&self, thread: u32) -> Option<&Capture> {
        let of_stream = self
            .ordering
            .stream
            .and_then(|stream| self.captures.of(stream));
        let of_thread = || {
            self.captures
                .iter()
                .find(|capture| capture.thread == thread)
        };
        // CU_STREAM_CAPTURE_MODE_GLOBAL.
        let of_all = || self.captures.iter().find(|capture| capture.mode == 0);
        of_stream
            .or_else(of_thread)
            .or_else(of_all)
            .or_else(|| self.captures.iter().next())
    }

    /// A call failed, `reported` if there is a finding about it. Returns whether there is one about
    /// it or about the call that broke its capture.
    pub(super) fn follow_capture(&mut self, call: &Call<'_>, result: i32, reported: bool) -> bool {
        if !(code::CAPTURE_UNSUPPORTED..=code::CAPTURE_WRONG_THREAD).contains(&result) {
            return reported;
        }
        let Some(begun) = self.concerned_capture(call.thread) else {
            return reported;
        };
        let begun = begun.begun.index;
        if self.broken_captures.contains(&begun) {
            self.consequences += u64::from(!reported);
            return true;
        }
        // The manual says of these that they invalidate the capture.
        const BREAKS: [i32; 4] = [
            code::CAPTURE_UNSUPPORTED,
            code::CAPTURE_MERGE,
            code::CAPTURE_ISOLATION,
            code::CAPTURE_IMPLICIT,
        ];
        if reported && BREAKS.contains(&result) {
            self.broken_captures.push(begun);
            let drop = self.broken_captures.len().saturating_sub(FAILURES);
            self.broken_captures.drain(..drop);
        }
        reported
    }

    /// A call failed: what it would have written is undefined.
    pub(super) fn failed(&mut self, plan: &Plan, call: &Call<'_>, site: Site, reported: bool) {
        let mut effects = plan.effects.objects.iter();
        let output = effects.find_map(|&(position, effect)| match effect {
            Effect::Create(kind, parent) | Effect::Find(kind, parent) => Some((
                position,
                Output::Handle(kind),
                self.model.parent(&plan.effects, call, parent),
            )),
            _ => None,
        });
        let linked = match plan.function.family {
            Family::Link(LinkOp::Complete { cubin, .. }) => {
                Some((usize::from(cubin), Output::Image, None))
            }
            _ => None,
        };
        let Some((position, output, parent)) = output.or(linked) else {
            return;
        };
        self.allocation_failed |= output.is_memory();
        let failure = Failure {
            output,
            location: call.argument(position),
            site,
            name: plan.at("name").and_then(|position| call.string(position)),
            parent,
            is_followed: false,
            is_used: false,
            reported,
        };
        let failures = &mut self.thread_mut(call.thread).failures;
        failures.retain(|old| old.location != failure.location || old.output != output);
        if failures.len() >= FAILURES {
            failures.remove(0);
        }
        failures.push(failure);
    }

    /// A call succeeded: what it returned is no longer undefined.
    pub(super) fn defined(&mut self, plan: &Plan, call: &Call<'_>) {
        let failures = &mut self.thread_mut(call.thread).failures;
        if failures.is_empty() {
            return;
        }
        for &(position, effect) in &plan.effects.objects {
            let (Effect::Create(kind, _) | Effect::Find(kind, _)) = effect else {
                continue;
            };
            if call.out(position).is_some_and(|handle| handle != 0) {
                let location = call.argument(position);
                // A lookup may succeed for another name; an allocation was tried again.
                let is_again = matches!(effect, Effect::Create(..)) || plan.at("name").is_none();
                let made = Output::Handle(kind);
                for failure in failures.iter_mut() {
                    failure.is_followed |= made.is_memory() && failure.output.is_memory();
                }
                failures.retain(|failure| {
                    failure.location != location && !(is_again && failure.output == made)
                });
            }
        }
        if matches!(plan.function.family, Family::Link(LinkOp::Complete { .. })) {
            failures.retain(|failure| failure.output != Output::Image);
        }
    }
}
