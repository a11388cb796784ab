//! Playing one call: what is looked at before and after it goes to the driver.

mod lost;
mod set_up;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use cutape_format::{Call, Note};
use cutape_registry::{Family, Kind, Role};

use crate::alone::stand_in;
use crate::api::{DEINITIALIZED, NOT_INITIALIZED, result_name};
use crate::calls::traits::{self, CaptureStep};
use crate::digests;
use crate::error::Error;
use crate::measure::timing::Measure;
use crate::measure::tracer::Tracer;
use crate::objects::skip::{Skip, skip};
use crate::observe::act;
use crate::overrides;
use crate::plan::length::made_length;
use crate::player::current::{Current, Decoded, Part};
use crate::player::stream::stream_argument;
use crate::player::{Job, Played, Player, ReplayState};
use crate::process::strategy::PlacementStrategy;
use crate::ranks::peers::NotAwaited;
use crate::report::ErrorCause;

#[inline]
fn current(player: &Player<'_>, decoded: &Decoded<'_>) -> Current {
    Current {
        is_compared: decoded.compared,
        enqueued_before: player.lent.in_flight.mark(),
        is_captured: false,
        has_waited: false,
    }
}

/// A call is taken up.
#[inline]
pub(crate) fn begin(player: &mut Player<'_>, decoded: &Decoded<'_>) {
    if let Some(Tracer(tracer)) = &player.options.tracer {
        tracer.takes_up();
    }
    let position = &player.issuer.position;
    position.call.store(decoded.call.index, Ordering::Relaxed);
    player.current = current(player, decoded);
    if !decoded.compared {
        player.report.calls_not_compared += 1;
    } else if let Some(measure) = &mut player.issuer.measure {
        measure.begin(decoded.call.index, decoded.call.ticks);
    }
}

/// It is done.
#[inline]
pub(crate) fn end(player: &mut Player<'_>, call: &Call<'_>) {
    if let Some(peers) = &player.options.peers {
        peers.is_done(call.index);
    }
    if player.is_compared()
        && let Some(measure) = &mut player.issuer.measure
    {
        measure.end(call.index, Measure::returned_at(call));
    }
    if let Some(Tracer(tracer)) = &player.options.tracer {
        tracer.is_done();
    }
}

/// Plays the call that was taken up. Its steps, each a function, and why they are in this order:
///
/// | step | what it does |
/// |---|---|
/// | [`restore`] | memory is where it was and holds what the recorded call found; all that follows sees that |
/// | [`open`] | who looks at the call looks before it is issued |
/// | [`issue`] | the driver gets it, once the work is complete that the program knew of |
/// | [`is_made`] or [`is_left_out`] | what its success or absence means for later calls |
/// | [`close`] | who looked before it looks again; then what the recorder found behind it is compared and put |
///
/// # Errors
/// Memory is where it cannot stay, or the replay cannot be set up.
pub(crate) fn play<'t>(player: &mut Player<'t>, decoded: &Decoded<'t>) -> Result<(), Error> {
    let call = &decoded.call;
    if player.options.peers.is_some() {
        wait_for_peers(player, call.index);
    }
    let Some(function) = decoded.function else {
        let name = &call.signature.name;
        let reason = "this build does not know the function";
        player.report.skip(name, reason, call.index);
        return Ok(());
    };
    let mut job = Job {
        player,
        decoded,
        call,
        function,
        traits: traits::of(function),
    };
    restore(&mut job);
    let Some(opened) = open(&mut job) else {
        return Ok(());
    };
    let issued = issue(&mut job);
    let is_issued = issued.is_ok();
    match issued {
        Ok(()) => is_made(&mut job),
        Err(skip) => is_left_out(&mut job, skip),
    }
    close(&mut job, opened, is_issued);
    finish(job)
}

/// What was opened for a call, to be closed after it.
#[derive(Clone, Copy)]
struct Opened {
    has_digests: bool,
    expects_late_writes: bool,
}

/// Before a call: memory is where it was, and holds what the recorded call found.
#[inline]
fn restore(job: &mut Job<'_, '_>) {
    if job.is_natural() {
        let later = &job.player.plan.device_slots;
        job.player.fillers.before(job.call.index, later);
    }
    if job.decoded.has_notes {
        take_notes(job);
        job.await_readers();
        job.put_host_memory(false);
        job.put_memory();
    }
    if job.traits.places && job.is_natural() {
        open_recorded_place(job);
    }
}

/// Before a call: who looks at it begins to. `None` if an observer takes its place.
#[inline]
fn open(job: &mut Job<'_, '_>) -> Option<Opened> {
    digests::launches::before(job);
    let has_notes = job.decoded.has_notes;
    let has_digests = has_notes || job.digests.is_active();
    if has_digests {
        digests::before(job);
    }
    let expects_late_writes = has_notes && job.expect_late_writes();
    if !act::before(job) {
        return None;
    }
    lost::before(job);
    Some(Opened {
        has_digests,
        expects_late_writes,
    })
}

/// Issues a call, behind the work that the program knew to be complete.
#[inline]
fn issue(job: &mut Job<'_, '_>) -> Played {
    if job.lent.host_signals.any() {
        job.await_host_signals();
    }
    let mark = job.begin_mark();
    let attempted = attempt(job);
    if attempted.is_ok() && job.call.succeeded() {
        // The table of handles has the allocations.
        job.player.mapped.apply(job.function, job.call, None);
    }
    if let Some(mark) = mark {
        job.end_mark(mark);
    }
    act::after(job, attempted.as_ref().err().map(|skip| &*skip.reason));
    attempted
}

/// A call was issued.
#[inline]
fn is_made(job: &mut Job<'_, '_>) {
    job.note_host_signal();
    job.wait_as_for_host_memory();
    lost::after(job);
    if job.traits.is_launch && job.options.sync_each {
        wait_for_launch(job);
    }
}

/// A call was not issued.
fn is_left_out(job: &mut Job<'_, '_>, Skip { reason, root }: Skip) {
    let (call, function) = (job.call, job.function);
    lost::left_out(job, &reason, root);
    if let Some(peers) = &job.options.peers {
        peers.withhold(call.index, &reason);
    }
    job.report.skip(function.name, &reason, call.index);
    if let Some(recorder) = &mut job.issuer.recorder {
        recorder.skip(&reason);
    }
    let state = &mut **job.player;
    state.unavailable.note(call, function, &state.handles);
    job.forgo();
}

/// After a call: who looked before it looks again, and what the recorder found behind it is compared
/// and put.
#[inline]
fn close(job: &mut Job<'_, '_>, opened: Opened, is_issued: bool) {
    if let Some(alone) = &job.player.options.alone {
        let ReplayState {
            exchanges, ranges, ..
        } = &mut **job.player;
        exchanges.note((job.call, job.function), is_issued, alone, ranges);
    }
    if opened.expects_late_writes {
        job.withdraw_late_writes();
    }
    if opened.has_digests {
        digests::after(job, is_issued);
    }
    digests::launches::after(job, is_issued);
    if opened.has_digests {
        digests::collect(job.player);
    }
    if job.decoded.has_notes && job.decoded.part == Part::Whole {
        job.read_back();
        job.put_host_memory(true);
    }
}

/// A call is over: whether the replay can go on.
#[inline]
fn finish(job: Job<'_, '_>) -> Result<(), Error> {
    let (player, is_init) = (job.player, job.traits.is_init && job.call.succeeded());
    if player.options.refuse_conflicts
        && let Some(misplaced) = &player.fillers.misplaced
    {
        return Err(Error::Misplaced(misplaced.clone()));
    }
    if is_init && !player.machine.is_ready && player.api.device_count().is_ok() {
        player.set_up()?;
    }
    Ok(())
}

/// Plays what the recorder found behind a call, which has been played.
pub(crate) fn look<'t>(player: &mut Player<'t>, decoded: &Decoded<'t>) {
    let Some(function) = decoded.function else {
        return;
    };
    player.current = current(player, decoded);
    let mut job = Job {
        player,
        decoded,
        call: &decoded.call,
        function,
        traits: traits::of(function),
    };
    job.read_back();
    job.put_host_memory(true);
}

/// Takes fillers away from where the driver placed memory of the call in the recording.
fn open_recorded_place(job: &mut Job<'_, '_>) {
    if !job.call.succeeded() {
        return;
    }
    let length = made_length(job.call, job.function);
    for (position, param) in job.function.params.iter().enumerate() {
        if let Role::Make(kind, _) = param.role
            && kind.is_address()
            && let Some(recorded) = job.call.out(position)
        {
            job.player.fillers.open(kind, recorded, length);
        }
    }
}

/// Waits for the calls of other ranks that come before a call.
#[cold]
fn wait_for_peers(player: &mut Player<'_>, call: u64) {
    let Some(peers) = player.options.peers.clone() else {
        return;
    };
    let position = Arc::clone(&player.issuer.position);
    let missed = player.while_lent(|_| peers.wait_for_turn(call, &position));
    for why in missed {
        player.report.note(match why {
            NotAwaited::Ended { label, calls } => format!(
                "{label} ended after {calls} calls: from call {call} on, nothing waits for it, and \
                 what it would have done is missing"
            ),
            NotAwaited::Circle(circle) => format!(
                "ranks waited for each other ({circle}): call {call} went on without the recorded \
                 order"
            ),
        });
    }
}

#[cold]
fn take_notes(job: &mut Job<'_, '_>) {
    for note in job.call.notes() {
        match note {
            Note::Layout(handle, layout) => job.issuer.kernels.note(handle, layout),
            Note::Origin(origin, name) => overrides::origin::adopt(job, origin, &name),
            Note::UnknownSymbol(name) => job.report.unknown(&name),
            Note::Gap(gap) => {
                job.report.calls_left_out += gap.calls;
                // Otherwise memory has what the calls before a pause left there.
                if job.consequences.apply_gap(&gap) && gap.pause == 0 {
                    job.put_zeros();
                }
            }
            Note::NestedCall(nested) => {
                let nested = &job.player.trace.signature(nested.function).name;
                let outer = &job.call.signature.name;
                let text = format!("{nested} inside {outer} was not recorded and is not re-issued");
                job.report.note(text);
            }
            Note::AddressSpace(recorded)
                if job.is_natural()
                    && !job.plan.mixed_address_spaces.contains(&job.call.index)
                    && !job.has_later_contexts() =>
            {
                job.player.follow(job.call.index, recorded);
            }
            _ => {}
        }
    }
}

impl Job<'_, '_> {
    /// After a synchronous copy or memset: the driver takes granules for no memory of the host, and
    /// waits for less than it did in the recording.
    fn wait_as_for_host_memory(&mut self) {
        let is_synchronous = self.function.stream.is_none()
            && matches!(self.function.family, Family::Copy(_) | Family::Memset);
        if is_synchronous
            && self.options.placement == PlacementStrategy::Granules
            && !self.plan.host_regions.is_empty()
            && self.call.succeeded()
        {
            self.wait_for_own_stream();
        }
    }

    /// Whether the replay has made the contexts already that the program makes after the call.
    fn has_later_contexts(&self) -> bool {
        let made = self.plan.primary_contexts.iter().map(|primary| primary.2);
        self.machine.is_ready && made.min().is_some_and(|first| self.call.index < first)
    }
}

#[inline]
fn attempt(job: &mut Job<'_, '_>) -> Played {
    let (call, function, traits) = (job.call, job.function, job.traits);
    if call.leave.is_none() && !job.options.reissue_fatal {
        return skip("in flight when the recording ended");
    }
    follow_captures(job, traits.capture)?;
    if call.result() == Some(DEINITIALIZED) && function.returns_result {
        return skip(
            "the recorded driver was shutting down with its process (CUDA_ERROR_DEINITIALIZED)",
        );
    }
    // Only a forked child gets this answer, and a replay is none.
    if call.result() == Some(NOT_INITIALIZED) && function.family == Family::Init {
        return skip(
            "the recorded process was forked after its parent had initialized the driver, which a \
             child cannot use (CUDA_ERROR_NOT_INITIALIZED)",
        );
    }
    let is_of_ranks = job.options.peers.is_some() || job.options.alone.is_some();
    let is_shared = is_of_ranks && matches!(function.family, Family::Sharing(_));
    if !traits.reissued && !is_shared {
        return skip(function.reason);
    }
    if job.unavailable.may_exist() || job.options.alone.is_some() {
        job.needs_nothing_unavailable()?;
    }
    if job.options.alone.is_some()
        && let Family::Multicast(op) = function.family
    {
        return stand_in::multicast(job, op);
    }
    let issuer = &mut job.issuer;
    if issuer.polls_again(call, function, traits.is_query) {
        issuer.count_answer(function);
        return Ok(());
    }
    match overrides::of(function) {
        Some(play) => play(job),
        None => job.plain(),
    }
}

/// Before a call: follows which captures are open, and finds out whether the call is captured.
#[inline]
fn follow_captures(job: &mut Job<'_, '_>, step: CaptureStep) -> Result<(), Skip> {
    let (call, captures) = (job.call, &mut job.captures);
    match step {
        CaptureStep::Begins => {
            if call.succeeded() {
                captures.open.insert(call.argument(0));
            }
        }
        // A capture that failed has ended, too.
        CaptureStep::Ends => {
            captures.open.remove(&call.argument(0));
        }
        CaptureStep::Other if !captures.any_open() => {}
        CaptureStep::Other => {
            if let Some(stream) = stream_argument(call, job.function) {
                let live = job.live_handle(Kind::Stream, stream)?;
                job.current.is_captured = !job.api.is_not_captured(live, job.function.per_thread);
            }
        }
    }
    Ok(())
}

/// Waits for a launch, and names the first whose work fails.
fn wait_for_launch(job: &mut Job<'_, '_>) {
    if job.report.error_cause.is_some() || !job.call.succeeded() {
        return;
    }
    let Some((stream, per_thread)) = job.uncaptured_stream() else {
        return;
    };
    let waited = job.while_relaxed(|api| api.synchronize_stream(stream, per_thread));
    if let Err(code) = waited {
        job.report.error_cause = Some(ErrorCause {
            call: job.call.index,
            function: job.function.name.to_owned(),
            kernel: None,
            error: result_name(code),
        });
    }
}
