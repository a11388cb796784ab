//! Digests of device memory that the recorder has kept: computed again at the same calls, by the
//! same kernel, and compared.
//!
//! The recorder orders the work of a context on the device (`interposer/src/digests`). A replay
//! makes the calls in the order in which they were entered, so waiting for all work before a digest
//! and for the digest before the next call comes to the same.

use cutape_format::Note;
use cutape_format::layout::{DigestNote, DigestSetupNote, ZeroedNote, digest_reach, digest_skip};
use cutape_registry::{Family, Kind, MemoryOp};

use crate::api::result_name;
use crate::issue::player::{Job, Player};
use crate::place::address::Found;
use crate::report::{DigestCounts, Divergence, Verdict, What};

/// Before a call goes to the driver.
pub(crate) fn before(job: &mut Job<'_, '_>) {
    for note in job.call.notes() {
        if let Note::Digest(note, ranges) = note
            && note.is_before != 0
        {
            compare(job, note, &ranges);
        }
    }
}

/// After a call was given to the driver.
pub(crate) fn after(job: &mut Job<'_, '_>) {
    for note in job.call.notes() {
        match note {
            Note::DigestSetup(note) => prepare(job, note),
            Note::Zeroed(note) => zero(job, note),
            Note::Digest(note, ranges) if note.is_before == 0 => compare(job, note, &ranges),
            Note::DigestSkipped(note) => job.report.note(skipped(note.reason)),
            _ => {}
        }
    }
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
        .while_lent(|api| api.in_context(context, |api| api.prepare_digests(context)));
    match prepared {
        Ok(prepared) => {
            job.digests.contexts.insert(note.context, prepared);
        }
        Err(code) => {
            job.digests.contexts.remove(&note.context);
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
            let mut prepared = job.digests.contexts.values();
            prepared
                .find(|prepared| prepared.context == context)
                .map(|prepared| prepared.zeroing)
        }
    };
    let per_thread = is_in_order && job.function.per_thread;
    let Some(stream) = stream else { return };
    let zeroed = job.player.while_lent(|api| {
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

/// Digests live ranges that were digested in the recording, and compares.
fn compare(job: &mut Job<'_, '_>, note: DigestNote, ranges: &[(u64, u64)]) {
    let count = ranges.len() as u64;
    job.report.digests.recorded += count;
    let before = job.report.digests.not_compared;
    if let Err(why) = try_compare(job, note, ranges) {
        job.report.digests.not_compared = before + count;
        job.report.note(format!("digests are not compared: {why}"));
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
    let Some(&prepared) = job.digests.contexts.get(&note.context) else {
        return Err("their context is not prepared".into());
    };
    let void = |number: u64| {
        let mut void = job.plan.void_digests.iter();
        void.any(|&(first, end)| (first..end).contains(&number))
    };
    if void(note.first) {
        return Err("a call of another thread overlapped with theirs".into());
    }
    let mut known = Vec::new();
    for (number, &(address, length)) in (note.first..).zip(ranges) {
        match live_range(job, address, length) {
            Some(live) => known.push((number, (address, length), live)),
            None => {
                job.report.digests.not_compared += 1;
                job.report
                    .note("digests are not compared: the memory is not in the replay");
            }
        }
    }
    let live: Vec<_> = known.iter().map(|known| known.2).collect();
    job.player.digests.mark += 1;
    let mark = job.player.digests.mark;
    let digests = job.player.while_lent(|api| {
        api.in_context(prepared.context, |api| api.digests(prepared, &live, mark))
    });
    let digests = digests.map_err(|code| format!("the driver returned {}", result_name(code)))?;
    for ((number, range, _), received) in known.into_iter().zip(digests) {
        let expected = job.plan.digests.get(&number).copied();
        let Some(expected) = expected else {
            job.report.digests.not_compared += 1;
            job.report.note(
                "digests are not compared: the recording ended before their values were read",
            );
            continue;
        };
        one(job, note, range, (expected, received));
    }
    Ok(())
}

/// Where a recorded range lies, if all of it is in the replay.
fn live_range(player: &Player<'_>, address: u64, length: u64) -> Option<(u64, u64)> {
    let Found::Live(range, offset) = player.ranges.find(address) else {
        return None;
    };
    let fits = offset.checked_add(length)? <= range.length;
    fits.then_some((range.live.wrapping_add(offset), length))
}

fn one(job: &mut Job<'_, '_>, note: DigestNote, range: (u64, u64), values: (u64, u64)) {
    let (address, length) = range;
    let (expected, received) = values;
    let DigestCounts {
        equal,
        bytes,
        differing,
        first_differing,
        unclear,
        ..
    } = &mut job.player.report.digests;
    if expected == received {
        *equal += 1;
        *bytes += length;
        return;
    }
    if job.player.ranges.any_translated() {
        // Pointers in memory differ where what they point at lies elsewhere.
        *unclear += 1;
        return;
    }
    *differing += 1;
    first_differing.get_or_insert(job.call.index);
    let equal = *equal;
    if !job.digests.differing.insert(address) {
        return;
    }
    let memory = match job.ranges.find(address) {
        Found::Live(range, _) => format!("memory {}", range.describe()),
        _ => String::new(),
    };
    let reach = match note.reach {
        digest_reach::PARAMETERS => "a parameter of the kernel points into it".to_owned(),
        _ => "digest of all memory of the context".to_owned(),
    };
    let history = vec![
        memory,
        reach,
        format!("{equal} digests before it are equal"),
    ];
    let divergence = Divergence {
        call: job.call.index,
        function: job.function.name.to_owned(),
        what: What::Digest,
        parameter: Some(format!("{address:#x}, {length} bytes")),
        expected: format!("digest {expected:#018x}"),
        received: format!("digest {received:#018x}"),
        verdict: Verdict::default(),
        received_hash: None,
        first_differing_byte: None,
        differing_bytes: None,
        enqueued_by: None,
        kernel: None,
        history,
    };
    job.report.diverge(divergence);
}
