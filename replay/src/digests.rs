//! Digests of device memory: those that the recorder has kept are computed again at the same calls,
//! by the same kernel, and compared.
//!
//! The work of a context is ordered on the device, as the recorder orders it
//! (`interposer/src/digests`). No call is waited for: what is complete is compared after each call,
//! and the rest at the end.

pub(crate) mod launches;

use cutape_format::Note;
use cutape_format::layout::{DigestNote, DigestSetupNote, ZeroedNote, digest_reach, digest_skip};
use cutape_registry::{
    ContextOp, Family, Function, Kind, MemoryOp, PrimaryOp, StreamMemoryOp, VirtualMemoryOp,
};

use crate::api::{Api, result_name};
use crate::compare::digest_kernel::{Awaited, Prepared, Recorded};
use crate::place::address::{Found, Range};
use crate::player::{Job, Player};
use crate::report::{DigestCounts, Divergence, Verdict, What};

/// Before a call goes to the driver.
pub(crate) fn before(job: &mut Job<'_, '_>) {
    for note in job.call.notes() {
        if let Note::Digest(note, ranges) = note
            && note.is_before != 0
        {
            compare(job, note, &ranges, true);
        }
    }
    // Behind them, because the call may end their context.
    order_before(job);
}

/// After a call, which was given to the driver if `is_issued`.
pub(crate) fn after(job: &mut Job<'_, '_>, is_issued: bool) {
    let is_deep = job
        .call
        .notes()
        .any(|note| matches!(note, Note::Memory(..)));
    for note in job.call.notes() {
        match note {
            Note::DigestSetup(note) => prepare(job, note),
            Note::Zeroed(note) => zero(job, note),
            // The recorder has digested what the call reaches on the CPU.
            Note::Digest(note, _) if is_deep && job.digests.of_recorded(note.context).is_none() => {
                let context = note.context;
                prepare(job, DigestSetupNote { context, result: 0 });
            }
            _ => {}
        }
    }
    order_after(job);
    for note in job.call.notes() {
        match note {
            Note::Digest(note, ranges) if note.is_before == 0 => {
                // What a launch writes is not there without it.
                let is_there = is_issued || !job.traits.is_launch;
                compare(job, note, &ranges, is_there);
            }
            Note::DigestSkipped(note) => {
                job.report.note(skipped(note.reason));
                if job.traits.is_launch {
                    let launch = job.call.index;
                    job.launch_digests
                        .leave_out(launch, "the recorder has no digest of them");
                }
            }
            _ => {}
        }
    }
}

/// Lets the work that a call enqueues wait for the digests before it. Memory that is being digested
/// stays until they are complete.
fn order_before(job: &mut Job<'_, '_>) {
    if !job.digests.is_active() {
        return;
    }
    if ends_memory(job.function) {
        let captures = job.captures.any_open();
        let awaiting = job.digests.awaiting();
        for prepared in awaiting.into_iter().filter(|_| !captures) {
            job.player.while_lent(|api| api.wait_for_digests(prepared));
        }
        collect(job.player);
    } else if job.function.changes_device_memory()
        && let Some(prepared) = ordered(job)
        && job.digests.is_pending(prepared.context)
        && let Some(stream) = job.uncaptured_stream()
    {
        // A stream that cannot wait cannot take the program's work either.
        let _ = job.player.while_lent(|api| api.hold_back(prepared, stream));
    }
}

/// Lets later digests wait for the work that a call has enqueued.
fn order_after(job: &mut Job<'_, '_>) {
    if !job.digests.is_active()
        || !job.function.changes_device_memory()
        || !job.call.succeeded()
        || job.current.is_captured
    {
        return;
    }
    if let Family::StreamMemory(StreamMemoryOp::Wait | StreamMemoryOp::Batch) = job.function.family
    {
        let context = job.api.current_context().unwrap_or(0);
        job.player.digests.waits_for_memory(context);
        return;
    }
    if let Some(prepared) = ordered(job)
        && let Some(stream) = job.uncaptured_stream()
    {
        let followed = job.player.while_lent(|api| api.follow(prepared, stream));
        if let Err(code) = followed {
            let result = result_name(code);
            job.report.note(format!(
                "digests could not be ordered behind the work of a call: {result}"
            ));
        }
    }
}

/// What is prepared in the current context, if its work is ordered.
fn ordered(job: &Job<'_, '_>) -> Option<Prepared> {
    job.digests.ordered(job.api.current_context().ok()?)
}

/// Whether a call may end memory of a context, or the context.
fn ends_memory(function: &Function) -> bool {
    matches!(
        function.family,
        Family::Memory(MemoryOp::Free)
            | Family::VirtualMemory(VirtualMemoryOp::Unmap { .. })
            | Family::Context(ContextOp::Destroy | ContextOp::Detach)
            | Family::PrimaryContext(PrimaryOp::Release | PrimaryOp::Reset)
    )
}

/// Takes the digests that are complete, and compares them.
pub(crate) fn collect(player: &mut Player<'_>) {
    for (awaited, value) in player.digests.take_complete() {
        match awaited {
            Awaited::Recorded(recorded) => one(player, *recorded, value),
            Awaited::OfLaunch(call, range) => {
                player.launch_digests.add(call, range, value);
            }
            Awaited::Piece(memory, piece) => player.launch_digests.set_piece(memory, piece, value),
            Awaited::Memory(memory, is_before) => {
                player.launch_digests.set_memory(memory, is_before, value);
            }
        }
    }
    let lost = player.digests.take_lost();
    if !lost.is_empty() {
        give_up(
            player,
            lost,
            "their context ended before they were complete",
        );
    }
}

/// After the last call: takes the digests that are on their way.
pub(crate) fn finish(player: &mut Player<'_>) {
    for prepared in player.digests.awaiting() {
        player.api.wait_for_digests(prepared);
    }
    collect(player);
    let left = player.digests.give_up();
    give_up(
        player,
        left,
        "their work was not complete at the end of the replay",
    );
}

/// Digests that will not be taken.
fn give_up(player: &mut Player<'_>, awaited: Vec<Awaited>, why: &str) {
    for awaited in awaited {
        match awaited {
            Awaited::Recorded(recorded) => {
                player.report.digests.not_compared += 1;
                player
                    .report
                    .note(format!("digests are not compared: {why}"));
                if recorded.is_launch {
                    player.launch_digests.leave_out(recorded.call, why);
                }
            }
            Awaited::OfLaunch(call, _) => player.launch_digests.leave_out(call, why),
            Awaited::Piece(..) | Awaited::Memory(..) => {}
        }
    }
}

/// Enqueues digests of live ranges in a prepared context, behind all its work.
pub(crate) fn enqueue(
    player: &mut Player<'_>,
    prepared: Prepared,
    (ranges, awaited): (&[(u64, u64)], Vec<Awaited>),
) {
    if ranges.is_empty() {
        return;
    }
    let reserved = match player.digests.can_reserve(prepared.context, ranges.len()) {
        true => player.digests.reserve(prepared.context, awaited),
        false => {
            player.while_lent(|api| api.wait_for_digests(prepared));
            collect(player);
            match player.digests.can_reserve(prepared.context, ranges.len()) {
                true => player.digests.reserve(prepared.context, awaited),
                false => return give_up(player, awaited, "too many are on their way"),
            }
        }
    };
    let Some(first) = reserved else { return };
    let enqueued = player.while_lent(|api| {
        let enqueue = |api: &Api| Ok(api.enqueue_digests(prepared, ranges, first));
        api.in_context(prepared.context, enqueue)
    });
    let refused = match enqueued {
        Ok(Ok(())) => return,
        Ok(Err(refused)) => refused,
        Err(code) => (first.1, code),
    };
    let withdrawn = player.digests.withdraw(prepared.context, refused.0);
    let why = format!("the driver returned {}", result_name(refused.1));
    give_up(player, withdrawn, &why);
}

fn skipped(reason: u8) -> String {
    let why = match reason {
        digest_skip::CONCURRENT => "another thread was in a call that enqueues work",
        digest_skip::REFUSED => "the driver refused a call of the recorder",
        digest_skip::WAITS_FOR_MEMORY => "streams wait for values in memory",
        digest_skip::UNPREPARED => "the context was not prepared",
        digest_skip::PARAMETERS => "the kernel's parameters were not known",
        _ => "for an unknown reason, given by a later cutape",
    };
    format!("no digest was recorded where one was due: {why}")
}

fn prepare(job: &mut Job<'_, '_>, note: DigestSetupNote) {
    if note.result != 0 {
        let result = result_name(note.result);
        return job.report.note(format!(
            "the recorder could not prepare a context for digests: {result}"
        ));
    }
    // A context from a private table of the driver is the current one.
    let context = match job.live_handle(Kind::Context, note.context) {
        Ok(context) => context,
        Err(_) => job.api.current_context().unwrap_or(0),
    };
    let prepared = job
        .player
        .while_relaxed(|api| api.in_context(context, |api| api.prepare_digests(context)));
    match prepared {
        Ok(prepared) => job.digests.insert(Some(note.context), prepared),
        Err(code) => {
            job.digests.refused(note.context);
            let result = result_name(code);
            job.report.note(format!(
                "a context could not be prepared for digests, which are not compared: {result}"
            ));
        }
    }
}

/// Sets new memory to zeros, as the recorder did.
fn zero(job: &mut Job<'_, '_>, note: ZeroedNote) {
    if job.options.fill.is_some_and(|byte| byte != 0) {
        return;
    }
    let Found::Live(range, offset) = job.ranges.find(note.address) else {
        return;
    };
    let live = (range.live.wrapping_add(offset), note.length);
    let is_in_order = job.function.family == Family::Memory(MemoryOp::AllocateAsync);
    let stream = match is_in_order {
        true => {
            let at = job.function.stream.map_or(0, usize::from);
            let stream = job.call.argument(at);
            job.live_handle(Kind::Stream, stream).ok()
        }
        false => {
            let context = job.api.current_context().unwrap_or(0);
            job.digests.of(context).map(|prepared| prepared.zeroing)
        }
    };
    let per_thread = is_in_order && job.function.per_thread;
    let Some(stream) = stream else { return };
    let zeroed = job.player.while_relaxed(|api| {
        api.fill_memory(live, 0, (stream, per_thread))?;
        match is_in_order {
            true => Ok(()),
            false => api.synchronize_stream(stream, false),
        }
    });
    if let Err(code) = zeroed {
        let result = result_name(code);
        job.report.note(format!(
            "new memory could not be set to zeros, as the recorder did: {result}"
        ));
    }
}

/// Digests live ranges that were digested in the recording, to compare them when they are complete.
fn compare(job: &mut Job<'_, '_>, note: DigestNote, ranges: &[(u64, u64)], is_there: bool) {
    let count = ranges.len() as u64;
    job.report.digests.recorded += count;
    let compared = match is_there {
        true => try_compare(job, note, ranges),
        false => Err("their launch was not re-issued".into()),
    };
    if let Err(why) = compared {
        job.report.digests.not_compared += count;
        job.report.note(format!("digests are not compared: {why}"));
        if job.traits.is_launch {
            let launch = job.call.index;
            job.launch_digests.leave_out(launch, &why);
        }
    }
}

fn try_compare(
    job: &mut Job<'_, '_>,
    note: DigestNote,
    ranges: &[(u64, u64)],
) -> Result<(), String> {
    if !job.is_compared() {
        return Err("the selection leaves their calls out".into());
    }
    if !job.comparer.bytes_comparable {
        return Err("bytes from the device cannot be what they were".into());
    }
    if let Some(byte) = job.options.fill.filter(|&byte| byte != 0) {
        return Err(format!(
            "new memory was filled with {byte:#04x}, in the recording with zeros"
        ));
    }
    if job.captures.any_open() {
        return Err("a stream captures".into());
    }
    let Some(prepared) = job.digests.of_recorded(note.context) else {
        return Err("their context is not prepared".into());
    };
    let void = |number: u64| {
        let mut void = job.plan.void_digests.iter();
        void.any(|&(first, end)| (first..end).contains(&number))
    };
    if void(note.first) {
        return Err("a call of another thread overlapped with theirs".into());
    }
    if note.is_before != 0 {
        // As the recorder does before a context may end: work that is not ordered is complete then.
        let wait = |api: &Api| api.in_context(prepared.context, Api::synchronize);
        let waited = job.player.while_lent(wait);
        waited.map_err(|code| format!("the driver returned {}", result_name(code)))?;
    }
    let is_in_place = !job.ranges.any_translated();
    let (mut known, mut awaited) = (Vec::new(), Vec::new());
    for (number, &range) in (note.first..).zip(ranges) {
        let Some((memory, live)) = live_range(job, range) else {
            job.report.digests.not_compared += 1;
            job.report
                .note("digests are not compared: the memory is not in the replay");
            continue;
        };
        if job.exchanges.may_have_changed(range.0, range.1) {
            job.report.digests.not_compared += 1;
            job.report
                .note("digests are not compared: other ranks or exchanges may write the memory");
            continue;
        }
        known.push((live, range.1));
        awaited.push(Awaited::Recorded(Box::new(Recorded {
            number,
            call: job.call.index,
            function: job.function.name,
            is_launch: job.traits.is_launch,
            reach: note.reach,
            range,
            memory,
            is_in_place,
            follows: job.consequences.of_memory(range.0, range.1),
        })));
    }
    enqueue(job.player, prepared, (&known, awaited));
    collect(job.player);
    Ok(())
}

/// The memory that a recorded range lies in, and where it is, if all of it is in the replay.
fn live_range(player: &Player<'_>, (address, length): (u64, u64)) -> Option<(Range, u64)> {
    let Found::Live(range, offset) = player.ranges.find(address) else {
        return None;
    };
    let fits = offset.checked_add(length)? <= range.length;
    fits.then(|| (range.clone(), range.live.wrapping_add(offset)))
}

fn one(player: &mut Player<'_>, recorded: Recorded, received: u64) {
    let (address, length) = recorded.range;
    let Some(&expected) = player.plan.digests.get(&recorded.number) else {
        let why = "the recording ended before their values were read";
        return give_up(player, vec![Awaited::Recorded(Box::new(recorded))], why);
    };
    if recorded.is_launch {
        let launches = &mut player.launch_digests;
        launches.add_recorded(&recorded, received, expected);
    }
    let DigestCounts {
        equal,
        bytes,
        differing,
        first_differing,
        unclear,
        ..
    } = &mut player.report.digests;
    if expected == received {
        *equal += 1;
        *bytes += length;
        return;
    }
    if !recorded.is_in_place {
        // Pointers in memory differ where what they point at lies elsewhere.
        *unclear += 1;
        return;
    }
    *differing += 1;
    let first = first_differing.get_or_insert(recorded.call);
    *first = recorded.call.min(*first);
    let equal = *equal;
    if !player.digests.differing.insert(address) {
        return;
    }
    let reach = match recorded.reach {
        digest_reach::PARAMETERS => "a parameter of the kernel points into it".to_owned(),
        _ => "digest of all memory of the context".to_owned(),
    };
    let history = vec![
        format!("memory {}", recorded.memory.describe()),
        reach,
        format!("{equal} digests before it are equal"),
    ];
    let follows = recorded.follows;
    let divergence = Divergence {
        call: recorded.call,
        function: recorded.function.to_owned(),
        what: What::Digest,
        parameter: Some(format!("{address:#x}, {length} bytes")),
        expected: format!("digest {expected:#018x}"),
        received: format!("digest {received:#018x}"),
        verdict: match follows {
            Some(_) => Verdict::Consequence,
            None => Verdict::default(),
        },
        received_hash: None,
        first_differing_byte: None,
        differing_bytes: None,
        enqueued_by: None,
        kernel: None,
        history,
    };
    match follows {
        Some(cause) => player.consequences.add(cause, divergence),
        None => player.report.diverge(divergence),
    }
}
