//! Runs the calls as recorded and edited, compares, and times both in turns.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;
use std::time::Instant;

use super::edited::{Edited, Known};
use super::hazards::NonBlocking;
use super::host_side::{HostSide, share_sources};
use super::job::{Other, Tried, WhatIf};
use super::noted::Noted;
use super::{edits, hazards};
use crate::api::result_name;
use crate::calls::prepared_steps::PreparedSteps;
use crate::calls::steps::{Step, issued_by};
use crate::compare::received::read_memory;
use crate::measure::clock::Clock;
use crate::player::Player;
use crate::process::position::Position;
use crate::rerun::outputs::{Tolerance, compare, compare_regions};
use crate::rerun::snapshot::Snapshot;

/// How long the calls run in a round at least, in nanoseconds, and how often at most: short ones
/// vary too much.
const ROUND_NS: f64 = 20e6;
const MOST_ITERATIONS: f64 = 200.0;
/// What host memory holds before copies bring bytes.
const UNTOUCHED: u8 = 0xa5;

/// Calls to run, and how.
struct Runner<'a, 't> {
    player: &'a Player<'t>,
    position: &'a Position,
    /// The context of the first call.
    context: u64,
    /// Those of all calls.
    contexts: BTreeSet<u64>,
}

/// Tries the edits on steps that were played, on the memory that they had.
///
/// # Errors
/// A call that fails when it is repeated as recorded.
pub(in crate::rerun) fn run(
    player: &Player<'_>,
    (position, clock): (&Position, &Clock),
    job: &WhatIf,
    tolerance: &Tolerance,
    (mut steps, mut noted): (Vec<Step>, Noted),
    snapshot: &mut Snapshot,
) -> Result<Tried, String> {
    let api = &player.api;
    share_sources(&mut steps, &mut noted.host);
    let (steps, noted) = (&*steps, &noted);
    let contexts: BTreeSet<u64> = issued_by(steps)
        .map(|issued| issued.context)
        .filter(|&context| context != 0)
        .collect();
    let current = api.current_context().unwrap_or(0);
    let first = issued_by(steps).map(|issued| issued.context).next();
    let runner = Runner {
        player,
        position,
        context: first.filter(|&context| context != 0).unwrap_or(current),
        contexts,
    };
    let mut tried = Tried::default();
    let recorded = noted.host.clone();
    let prepared = PreparedSteps::of(api, steps, clock)?;
    runner.run(&prepared, snapshot, &recorded)?;
    let (before, once) = (copied(&recorded), snapshot.changes(api)?);
    runner.run(&prepared, snapshot, &recorded)?;
    let (after, twice) = (copied(&recorded), snapshot.changes(api)?);
    let known = Known { player, noted };
    let mut edited = Edited::new(steps, &recorded, NonBlocking::of(api, steps));
    let possible = edits::apply(&mut edited, known, job).and_then(|applied| {
        tried.applied = applied;
        let sides = [&recorded, &edited.host];
        let unproven = hazards::unproven(steps, sides, &job.drop_sync, &edited.non_blocking);
        edited.conditions.extend(unproven);
        hazard(known, steps, &recorded, &edited).map_or(Ok(()), Err)
    });
    tried.conditions = std::mem::take(&mut edited.conditions);
    let is_possible = possible.is_ok();
    let ran = possible.and_then(|()| {
        let prepared = PreparedSteps::of(api, &edited.steps, clock)?;
        runner.run(&prepared, snapshot, &edited.host)?;
        Ok(prepared)
    });
    match ran {
        Ok(prepared_edited) => {
            let compared = Compared {
                copies: [before, after],
                memory: [once, twice],
                tolerance,
            };
            runner.compare(&edited, &recorded, snapshot, compared, &mut tried)?;
            runner.time(job, [&prepared, &prepared_edited], snapshot, &mut tried)?;
        }
        Err(why) => {
            tried.refused = Some(why);
            if is_possible {
                // A call has failed: the context may be unusable, and the process ends anyway.
                return Ok(tried);
            }
        }
    }
    runner.wait()?;
    edited.made.release(api);
    let restored = api.set_current(current);
    restored.map_err(|code| format!("cuCtxSetCurrent returned {}", result_name(code)))?;
    Ok(tried)
}

/// Host memory that the edited calls use while a copy may be on its way or a kernel may use it, and
/// the recorded ones do not.
fn hazard(
    Known { noted, .. }: Known<'_, '_>,
    steps: &[Step],
    recorded: &BTreeMap<u64, HostSide>,
    edited: &Edited,
) -> Option<String> {
    let of = |steps, host| hazards::of(steps, host, &noted.shared, &edited.non_blocking);
    let (before, after) = (of(steps, recorded), of(&edited.unjoined, &edited.host));
    let mut new = after.difference(&before);
    let first = new.next()?;
    let others = new.count();
    let others = match others {
        0 => String::new(),
        others => format!(" (and {others} other pairs of calls)"),
    };
    Some(format!(
        "the program uses the host memory of call {} again before call {}, and no wait before that \
         is left{others}",
        first.first, first.second
    ))
}

/// What the copies to pageable memory have brought.
fn copied(host: &BTreeMap<u64, HostSide>) -> BTreeMap<u64, Vec<u8>> {
    let written = host.iter().filter(|(_, side)| side.is_written);
    let bytes = |side: &HostSide| read_memory(side.live, usize::try_from(side.length).unwrap_or(0));
    written.map(|(&call, side)| (call, bytes(side))).collect()
}

/// What the recorded calls leave, of two runs.
struct Compared<'a> {
    copies: [BTreeMap<u64, Vec<u8>>; 2],
    memory: [Vec<(usize, Vec<u8>)>; 2],
    tolerance: &'a Tolerance,
}

impl Runner<'_, '_> {
    /// Waits for all work.
    fn wait(&self) -> Result<(), String> {
        let api = &self.player.api;
        let failed = |what: &'static str| {
            move |code| {
                format!(
                    "{what} after the edited calls returned {}",
                    result_name(code)
                )
            }
        };
        for &context in &self.contexts {
            api.set_current(context)
                .map_err(failed("cuCtxSetCurrent"))?;
            api.synchronize().map_err(failed("cuCtxSynchronize"))?;
        }
        let entered = api.set_current(self.context);
        entered.map_err(failed("cuCtxSetCurrent"))?;
        api.synchronize().map_err(failed("cuCtxSynchronize"))
    }

    /// Runs the steps once on restored memory; nanoseconds until all work is done.
    fn run(
        &self,
        steps: &PreparedSteps<'_>,
        snapshot: &Snapshot,
        host: &BTreeMap<u64, HostSide>,
    ) -> Result<f64, String> {
        // What a copy has not brought must not pass for what it brought the last time.
        for side in host.values().filter(|side| side.is_written) {
            let length = usize::try_from(side.length).unwrap_or(0);
            // SAFETY: the memory is kept with the steps or is what an edit has made, or lies in a
            // live range of host memory; no work is in progress.
            unsafe { std::ptr::write_bytes(side.live as *mut u8, UNTOUCHED, length) };
        }
        self.once(steps, snapshot)
    }

    fn once(&self, steps: &PreparedSteps<'_>, snapshot: &Snapshot) -> Result<f64, String> {
        let api = &self.player.api;
        self.wait()?;
        // The legacy default stream.
        snapshot.restore(api, 0)?;
        self.wait()?;
        let mut current = self.context;
        let begin = Instant::now();
        steps.issue(&mut current, self.position)?;
        if self.contexts.len() > 1 {
            self.wait()?;
        } else {
            let waited = api.synchronize();
            waited.map_err(|code| format!("the calls' work ended with {}", result_name(code)))?;
        }
        let lasted = begin.elapsed().as_nanos() as f64;
        // The watchdog sees progress.
        self.position.done.fetch_add(1, Ordering::Relaxed);
        Ok(lasted)
    }

    /// Compares what the edited calls have left.
    fn compare(
        &self,
        edited: &Edited,
        recorded: &BTreeMap<u64, HostSide>,
        snapshot: &mut Snapshot,
        compared: Compared<'_>,
        tried: &mut Tried,
    ) -> Result<(), String> {
        let api = &self.player.api;
        let Compared {
            copies: [before, after],
            memory: [once, twice],
            tolerance,
        } = compared;
        let copies = copied(&edited.host);
        let memory = snapshot.changes(api)?;
        let mut add = |what: String, length: usize, is_steady: bool, mismatch| {
            if !is_steady {
                tried.unsteady += 1;
                return;
            }
            tried.compared += 1;
            tried.compared_bytes += length as u64;
            if let Some(mismatch) = mismatch {
                tried.differing.push(Other { what, mismatch });
            }
        };
        for (call, expected) in &after {
            // Page-locked memory of the program is among the pieces of memory.
            if recorded.get(call).is_none_or(|side| side.is_pinned) {
                continue;
            }
            let received = copies.get(call).map(Vec::as_slice).unwrap_or_default();
            let what = format!("what call {call} copies to the host");
            let mismatch = compare(expected, received, tolerance);
            add(
                what,
                expected.len(),
                before.get(call) == Some(expected),
                mismatch,
            );
        }
        let pieces: Vec<&[u8]> = snapshot
            .pieces
            .iter()
            .map(|piece| &piece.bytes[..])
            .collect();
        let bytes = |changes: &[(usize, Vec<u8>)], number: usize| {
            let change = changes.iter().find(|change| change.0 == number);
            change.map(|change| change.1.clone())
        };
        for (number, mismatch) in compare_regions(&pieces, &twice, &memory, tolerance) {
            let Some(piece) = snapshot.pieces.get(number) else {
                continue;
            };
            let is_steady = bytes(&once, number) == bytes(&twice, number);
            let what = format!("memory at {}", piece.region.what);
            add(what, piece.bytes.len(), is_steady, mismatch);
        }
        let changes = [&once, &twice, &memory].into_iter().flatten();
        let changed: BTreeSet<usize> = changes.map(|change| change.0).collect();
        // All as it was: what only the copies on the device have is restored from them from now on.
        self.wait()?;
        snapshot.restore(api, 0)?;
        self.wait()?;
        snapshot.keep_only(api, &changed.into_iter().collect::<Vec<_>>());
        Ok(())
    }

    /// Times both in turns.
    fn time(
        &self,
        job: &WhatIf,
        [recorded, edited]: [&PreparedSteps<'_>; 2],
        snapshot: &Snapshot,
        tried: &mut Tried,
    ) -> Result<(), String> {
        let lasts = self.once(recorded, snapshot)?;
        self.once(edited, snapshot)?;
        let iterations = (ROUND_NS / lasts.max(1.0))
            .ceil()
            .clamp(1.0, MOST_ITERATIONS);
        tried.iterations = iterations as u64;
        for round in 0..job.rounds {
            let mut both = [(recorded, Vec::new()), (edited, Vec::new())];
            for _ in 0..tried.iterations {
                // Neither is always the second one.
                let order = if round % 2 == 0 { [0, 1] } else { [1, 0] };
                for which in order {
                    if let Some((steps, times)) = both.get_mut(which) {
                        times.push(self.once(steps, snapshot)?);
                    }
                }
            }
            let [(_, recorded), (_, edited)] = both;
            tried.recorded_ns.push(median(recorded));
            tried.edited_ns.push(median(edited));
        }
        Ok(())
    }
}

/// The median of some times.
fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    let middle = [times.len().saturating_sub(1) / 2, times.len() / 2];
    let [one, other] = middle.map(|at| times.get(at).copied().unwrap_or(0.0));
    f64::midpoint(one, other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians() {
        for (times, expected) in [
            (&[][..], 0.0),
            (&[3.0], 3.0),
            (&[9.0, 1.0], 5.0),
            (&[9.0, 1.0, 2.0], 2.0),
            (&[4.0, 1.0, 2.0, 9.0], 3.0),
        ] {
            assert_eq!(median(times.to_vec()), expected, "{times:?}");
        }
    }
}
