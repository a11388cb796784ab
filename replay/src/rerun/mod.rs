//! Repeats calls of a trace for a measurement, each time on the same memory.
//!
//! The trace is replayed as usual. `calls/steps.rs` keeps what the driver is given for the selected
//! calls. `snapshot` reads live memory before the first of them, finds what they changed after the
//! last, and restores that before each iteration. `work` runs and times iterations. From the first
//! selected call on, calls that end objects are deferred, so that the repeated calls find their
//! objects alive; calls that are neither work nor waits run once (`repeatable`). `replacement`
//! launches another kernel instead of a recorded one, and `outputs` compares the results of the
//! two.

mod outputs;
mod put_back;
mod repeatable;
mod replacement;
mod snapshot;
mod what_if;
mod work;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt::{self, Display};
use std::sync::Arc;

use cutape_format::Call;
use cutape_registry::Kind;
use serde::{Deserialize, Serialize};

use crate::api::buffer::Buffer;
use crate::api::{Code, result_name};
use crate::calls::prepared_steps::PreparedSteps;
use crate::calls::steps::{Recorder, Step, calls_of};
use crate::error::Error;
use crate::measure::clock;
use crate::objects::kernels::SharedParameters;
use crate::play::play;
use crate::player::Player;
use crate::player::current::Decoded;
use crate::process::position::Position;
use crate::report::{Report, Skipped, tally};

pub use outputs::{Element, Mismatch, Tolerance, compare};
pub use replacement::Replacement;
pub use what_if::{Applied, Other, Shape, Tried, WhatIf};
pub use work::{Clock, Work};

use outputs::{bytes_of, compare_regions};
use put_back::PutBack;
use repeatable::{ends_something, why_once};
use snapshot::{Region, Snapshot};
use what_if::Noted;

/// What to measure.
#[derive(Clone, Debug, Default)]
pub struct Job {
    /// Indices of the selected calls.
    pub calls: BTreeSet<u64>,
    /// Measure each of them by itself, at its place in the trace; all must be launches.
    pub each: bool,
    /// Put memory back before each iteration.
    pub restore: bool,
    /// Kernels to launch instead of recorded ones, by the index of the launch; only with `each`.
    pub replacements: HashMap<u64, Replacement>,
    /// By how much the results of a replacement may differ.
    pub tolerance: Tolerance,
    /// Measure the recorded kernels of replaced launches, too.
    pub recorded_too: bool,
    /// Compare the calls with edited ones, instead of measuring them.
    pub what_if: Option<WhatIf>,
}

/// What is being measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Subject {
    /// Index of the launch, or of the first call.
    pub call: u64,
    /// The kernel is a replacement.
    pub replaced: bool,
}

/// Measures one subject; an error ends the replay.
pub type Measure = Box<dyn FnMut(Subject, &mut Work<'_>) -> Result<(), String> + Send>;

/// The outcome of a job, without the measurements.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Outcome {
    /// The replay that built the state.
    pub report: Report,
    /// The measured subjects and their memory.
    pub subjects: Vec<Measured>,
    /// Selected calls that were not repeated, by reason and name.
    pub not_repeated: Vec<Skipped>,
    /// Selected calls that the replay did not issue, and why: with [`Job::each`] all launches, else
    /// the first call. The replay's report has all by reason.
    #[serde(default)]
    pub not_issued: Vec<(u64, String)>,
    /// Calls that were deferred because they end what the measured ones use.
    pub deferred: Vec<Skipped>,
    /// Calls between the selected ones, which were issued once.
    pub between: u64,
    /// Compared bytes of memory that a recorded kernel or its replacement changed.
    pub compared_bytes: u64,
    /// Memory that differs after the replacement and after the recorded kernel.
    pub mismatches: Vec<Differing>,
    /// What came of [`Job::what_if`].
    #[serde(default)]
    pub tried: Option<Tried>,
    /// Further notes, with how often each applies.
    pub notes: BTreeMap<String, u64>,
}

impl Outcome {
    /// The error if none of the selected calls can be repeated.
    pub(crate) fn nothing_repeated(&self) -> String {
        let once = self.not_repeated.iter().map(|skipped| {
            let why = format!(" {}: {}", skipped.function, skipped.reason);
            (skipped.first, why)
        });
        let issued = self.not_issued.iter();
        let never = issued.map(|(call, why)| (*call, format!(": {why}")));
        let first = once.chain(never).min_by_key(|first| first.0);
        let first = first.map(|(call, why)| format!(", the first is call {call}{why}"));
        format!(
            "none of the chosen calls can be repeated{}",
            first.unwrap_or_default()
        )
    }

    fn note(&mut self, text: impl Into<String>) {
        *self.notes.entry(text.into()).or_default() += 1;
    }
}

/// A measured subject and its memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Measured {
    /// Index of the launch, or of the first call.
    pub call: u64,
    /// Calls in one iteration.
    pub calls: u64,
    /// Bytes of live memory that were saved before the first call.
    pub saved_bytes: u64,
    /// Bytes that the calls change, which are restored before each iteration.
    pub restored_bytes: u64,
    /// Of these, bytes restored from host memory because the device has no room for a copy.
    pub spilled_bytes: u64,
    /// Bytes that exchanges had changed which are left out: they are put back in each iteration.
    pub put_bytes: u64,
    /// The copies that do so; their time is in the measurement.
    pub put_copies: u64,
    /// They read host memory because the device has no room.
    pub puts_from_host: bool,
}

/// Memory in which a replacement's results differ.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Differing {
    /// The launch.
    pub call: u64,
    /// The memory, described for a message.
    pub memory: String,
    /// Its first address, as recorded.
    pub address: u64,
    /// What differs there.
    pub mismatch: Mismatch,
}

/// A job in progress; the player passes each call to it.
pub(crate) struct Rerun {
    job: Job,
    measure: Measure,
    position: Arc<Position>,
    clock: clock::Clock,
    pub(crate) outcome: Outcome,
    begun: bool,
    left: usize,
    snapshot: Option<Snapshot>,
    steps: Vec<Step>,
    /// What arguments of the steps point into.
    buffers: Vec<Buffer>,
    parameters: SharedParameters,
    /// What edits need to know of the calls.
    noted: Noted,
}

impl fmt::Debug for Rerun {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Rerun")
            .field("job", &self.job)
            .field("begun", &self.begun)
            .field("left", &self.left)
            .finish_non_exhaustive()
    }
}

fn cannot(why: String) -> Error {
    Error::Measure { why }
}

/// What the driver returned instead of success.
fn returned(what: impl Display) -> impl Fn(Code) -> Error {
    move |code| cannot(format!("{what} returned {}", result_name(code)))
}

impl Rerun {
    pub(crate) fn new(job: Job, measure: Measure, position: Arc<Position>) -> Self {
        Self {
            left: job.calls.len(),
            job,
            measure,
            position,
            clock: clock::Clock::start(),
            outcome: Outcome::default(),
            begun: false,
            snapshot: None,
            steps: Vec::new(),
            buffers: Vec::new(),
            parameters: SharedParameters::default(),
            noted: Noted::default(),
        }
    }

    /// Plays one call of a replay that measures.
    pub(crate) fn play<'t>(
        &mut self,
        player: &mut Player<'t>,
        next: &Decoded<'t>,
    ) -> Result<(), Error> {
        match self.job.each {
            true => self.play_each(player, next),
            false => self.play_together(player, next),
        }
    }

    /// Measures all selected calls together, after the last of them was played.
    fn play_together<'t>(
        &mut self,
        player: &mut Player<'t>,
        next: &Decoded<'t>,
    ) -> Result<(), Error> {
        let call = &next.call;
        let wanted = self.job.calls.contains(&call.index);
        let once = match next.function {
            Some(function) if self.begun && call.succeeded() && ends_something(function) => {
                self.pause(call.index);
                let reason = "it ends what measured calls may use";
                tally(
                    &mut self.outcome.deferred,
                    function.name,
                    reason,
                    call.index,
                );
                return self.done_with(player, wanted);
            }
            Some(function) => why_once(call, function),
            None => Some("this build does not know the function"),
        };
        match once {
            None if wanted => {
                if !self.begun {
                    self.begun = true;
                    self.save(player, call)?;
                } else {
                    self.pause(call.index);
                }
                self.record(player, next)?;
                if self.job.what_if.is_some() {
                    self.noted.note(player, next, &self.steps);
                }
            }
            _ => {
                self.pause(call.index);
                if let Some(reason) = once.filter(|_| wanted) {
                    let name = &call.signature.name;
                    tally(&mut self.outcome.not_repeated, name, reason, call.index);
                }
                self.outcome.between += u64::from(self.begun && !wanted);
                play(player, next)?;
                self.save_new(player, call)?;
            }
        }
        self.done_with(player, wanted)
    }

    /// The time that the program took before a call is spent in each iteration, too.
    fn pause(&mut self, call: u64) {
        let pauses = self.job.what_if.as_ref().map(|what_if| &what_if.pauses);
        let pause = pauses.filter(|_| self.begun).and_then(|all| all.get(&call));
        self.steps.extend(pause.map(|&lasts| Step::Pause(lasts)));
    }

    /// Measures if that was the last selected call.
    fn done_with(&mut self, player: &mut Player<'_>, wanted: bool) -> Result<(), Error> {
        if !wanted {
            return Ok(());
        }
        self.left = self.left.saturating_sub(1);
        if self.left > 0 {
            return Ok(());
        }
        let Some(first) = calls_of(&self.steps).next().map(|issued| issued.index) else {
            return Err(cannot(self.outcome.nothing_repeated()));
        };
        let subject = Subject {
            call: first,
            replaced: false,
        };
        self.wait(player, first)?;
        let mut steps = std::mem::take(&mut self.steps);
        let mut snapshot = self.snapshot.take();
        if let Some(what_if) = self.job.what_if.take() {
            return self.try_edits(player, subject, &what_if, steps, snapshot);
        }
        let saved = snapshot.as_ref().map_or(0, Snapshot::bytes);
        if let Some(snapshot) = &mut snapshot {
            let changes = snapshot.changes(&player.api).map_err(cannot)?;
            let changed: Vec<usize> = changes.iter().map(|change| change.0).collect();
            snapshot.keep_only(&player.api, &changed);
        }
        let put = PutBack::prepare(&player.api, &mut steps);
        let mut put = put.map_err(returned("copying what exchanges changed"))?;
        self.measure(player, subject, &steps, snapshot.as_ref(), saved, &put)?;
        put.release(&player.api);
        if let Some(mut snapshot) = snapshot {
            snapshot.release(&player.api);
        }
        Ok(())
    }

    /// Compares the selected calls with edited ones.
    fn try_edits(
        &mut self,
        player: &Player<'_>,
        subject: Subject,
        what_if: &WhatIf,
        steps: Vec<Step>,
        snapshot: Option<Snapshot>,
    ) -> Result<(), Error> {
        let mut snapshot = snapshot.unwrap_or_default();
        let saved_bytes = snapshot.bytes();
        let calls = calls_of(&steps).count() as u64;
        let what = (steps, std::mem::take(&mut self.noted));
        let tolerance = &self.job.tolerance;
        let tried = what_if::run(
            player,
            (&self.position, &self.clock),
            what_if,
            tolerance,
            what,
            &mut snapshot,
        );
        self.outcome.tried = Some(tried.map_err(cannot)?);
        self.outcome.subjects.push(Measured {
            call: subject.call,
            calls,
            saved_bytes,
            restored_bytes: snapshot.bytes(),
            spilled_bytes: snapshot.spilled(),
            put_bytes: 0,
            put_copies: 0,
            puts_from_host: false,
        });
        snapshot.release(&player.api);
        Ok(())
    }

    /// Measures a selected launch by itself, on the memory that it has in the trace.
    fn play_each<'t>(&mut self, player: &mut Player<'t>, next: &Decoded<'t>) -> Result<(), Error> {
        let call = &next.call;
        if !self.job.calls.contains(&call.index) {
            play(player, next)?;
            return Ok(());
        }
        let once = match next.function {
            Some(function) => why_once(call, function),
            None => Some("this build does not know the function"),
        };
        let once = match player.captures.any_open() {
            true => Some("a stream is capturing at that call"),
            false => once,
        };
        if let Some(reason) = once {
            let name = &call.signature.name;
            tally(&mut self.outcome.not_repeated, name, reason, call.index);
            return play(player, next);
        }
        self.save(player, call)?;
        self.record(player, next)?;
        let steps = std::mem::take(&mut self.steps);
        let kept = (
            std::mem::take(&mut self.buffers),
            std::mem::take(&mut self.parameters),
        );
        let mut snapshot = self.snapshot.take();
        if calls_of(&steps).next().is_some() {
            self.wait(player, call.index)?;
            self.measure_launch(player, call.index, &steps, snapshot.as_mut())?;
        }
        if let Some(snapshot) = &mut snapshot {
            snapshot.release(&player.api);
        }
        drop(kept);
        Ok(())
    }

    /// Measures a launch that was played once, or its replacement, and leaves memory as one launch
    /// would.
    fn measure_launch(
        &mut self,
        player: &mut Player<'_>,
        call: u64,
        steps: &[Step],
        snapshot: Option<&mut Snapshot>,
    ) -> Result<(), Error> {
        let saved = snapshot.as_ref().map_or(0, |snapshot| snapshot.bytes());
        let replacement = self.job.replacements.get(&call).cloned();
        let replaced = match &replacement {
            Some(replacement) => Some(replacement.load(player, steps).map_err(cannot)?),
            None => None,
        };
        if let Some(note) = replaced.as_ref().and_then(|replaced| replaced.note.clone()) {
            self.outcome.note(note);
        }
        let snapshot = match snapshot {
            Some(snapshot) => {
                let changes = snapshot.changes(&player.api).map_err(cannot)?;
                let mut changed: BTreeSet<usize> = changes.iter().map(|change| change.0).collect();
                if let Some(replaced) = &replaced {
                    changed.extend(self.compare_outputs(
                        player,
                        call,
                        steps,
                        &replaced.steps,
                        snapshot,
                        &changes,
                    )?);
                }
                let changed: Vec<usize> = changed.into_iter().collect();
                snapshot.keep_only(&player.api, &changed);
                Some(&*snapshot)
            }
            None => None,
        };
        if replaced.is_none() || self.job.recorded_too {
            let subject = Subject {
                call,
                replaced: false,
            };
            self.measure(player, subject, steps, snapshot, saved, &PutBack::default())?;
        }
        if let Some(replaced) = &replaced {
            let subject = Subject {
                call,
                replaced: true,
            };
            self.measure(
                player,
                subject,
                &replaced.steps,
                snapshot,
                saved,
                &PutBack::default(),
            )?;
        }
        if snapshot.is_some() {
            // The rest of the trace needs the state after one launch.
            self.reissue(player, steps, snapshot)?;
        }
        if let Some(replaced) = replaced {
            replaced.release(&player.api);
        }
        Ok(())
    }

    /// Runs the replacement on the memory that the recorded kernel had, and compares what both
    /// wrote. Returns the regions that changed.
    fn compare_outputs(
        &mut self,
        player: &Player<'_>,
        call: u64,
        recorded: &[Step],
        replaced: &[Step],
        snapshot: &Snapshot,
        changes: &[(usize, Vec<u8>)],
    ) -> Result<Vec<usize>, Error> {
        // Bytes that the recorded kernel does not reproduce itself say nothing about the
        // replacement.
        self.reissue(player, recorded, Some(snapshot))?;
        let second = snapshot.changes(&player.api).map_err(cannot)?;
        let unsteady: Vec<usize> = (0..snapshot.pieces.len())
            .filter(|&number| bytes_of(changes, number) != bytes_of(&second, number))
            .collect();
        self.reissue(player, replaced, Some(snapshot))?;
        let other = snapshot.changes(&player.api).map_err(cannot)?;
        let before: Vec<&[u8]> = snapshot
            .pieces
            .iter()
            .map(|piece| &piece.bytes[..])
            .collect();
        for (number, mismatch) in compare_regions(&before, changes, &other, &self.job.tolerance) {
            let Some(piece) = snapshot.pieces.get(number) else {
                continue;
            };
            self.outcome.compared_bytes += piece.region.length;
            let Some(mismatch) = mismatch else {
                continue;
            };
            if unsteady.contains(&number) {
                let note = format!(
                    "call {call}: the recorded kernel itself writes other bytes each time to the memory at {:#x}",
                    piece.region.recorded
                );
                self.outcome.note(note);
            }
            self.outcome.mismatches.push(Differing {
                call,
                memory: piece.region.what.clone(),
                address: piece.region.recorded,
                mismatch,
            });
        }
        let mut changed: Vec<usize> = other.iter().map(|change| change.0).collect();
        changed.extend(second.iter().map(|change| change.0));
        Ok(changed)
    }

    /// Restores memory and issues the steps once.
    fn reissue(
        &self,
        player: &Player<'_>,
        steps: &[Step],
        snapshot: Option<&Snapshot>,
    ) -> Result<(), Error> {
        let api = &player.api;
        let before = api.current_context().map_err(returned("cuCtxGetCurrent"))?;
        if let Some(snapshot) = snapshot {
            // The legacy default stream.
            snapshot.restore(api, 0).map_err(cannot)?;
        }
        api.synchronize().map_err(returned("cuCtxSynchronize"))?;
        let mut current = before;
        let prepared = PreparedSteps::of(api, steps, &self.clock).map_err(cannot)?;
        prepared
            .issue(&mut current, &self.position)
            .map_err(cannot)?;
        let synchronized = api.synchronize();
        synchronized.map_err(returned("cuCtxSynchronize after a repeated launch"))?;
        api.set_current(before).map_err(returned("cuCtxSetCurrent"))
    }

    fn measure(
        &mut self,
        player: &Player<'_>,
        subject: Subject,
        steps: &[Step],
        snapshot: Option<&Snapshot>,
        saved: u64,
        put: &PutBack,
    ) -> Result<(), Error> {
        let api = &player.api;
        let work = Work::new(api, steps, snapshot, (&self.position, &self.clock));
        let mut work = work.map_err(cannot)?;
        if !work.is_busy_before() {
            let note = "the device has no room for scratch memory: times on its clock include the time that the host takes to enqueue the calls";
            self.outcome.note(note);
        }
        let measured = (self.measure)(subject, &mut work);
        // After a failure the context may be unusable, and the process ends anyway.
        measured.map_err(cannot)?;
        work.release();
        let restored = snapshot.map_or(0, Snapshot::bytes);
        let entry = Measured {
            call: subject.call,
            calls: calls_of(steps).count() as u64,
            saved_bytes: saved,
            restored_bytes: restored,
            spilled_bytes: snapshot.map_or(0, Snapshot::spilled),
            put_bytes: put.bytes,
            put_copies: put.copies,
            puts_from_host: put.is_from_host(),
        };
        if self.outcome.subjects.last() != Some(&entry) {
            self.outcome.subjects.push(entry);
        }
        Ok(())
    }

    /// Plays a call and keeps what the driver was given.
    fn record<'t>(&mut self, player: &mut Player<'t>, next: &Decoded<'t>) -> Result<(), Error> {
        let call = &next.call;
        player.issuer.recorder = Some(Recorder {
            parameters: std::mem::take(&mut self.parameters),
            ..Recorder::default()
        });
        let played = play(player, next);
        let recorder = player.issuer.recorder.take().unwrap_or_default();
        self.parameters = recorder.parameters;
        played?;
        let name = &call.signature.name;
        if let Some(code) = recorder.failed {
            return Err(cannot(format!(
                "call {} {name} returns {} here and cannot be measured",
                call.index,
                result_name(code)
            )));
        }
        let issued = calls_of(&recorder.steps).next().is_some();
        let is_captured = player.current.is_captured;
        // A graph uses its parameters as long as it exists.
        self.buffers.extend(recorder.buffers);
        let why = match recorder.skipped {
            _ if is_captured => "it is captured into a graph",
            Some(why) => {
                // What was put back of an exchange.
                self.steps.extend(recorder.steps);
                if self.job.each || self.outcome.not_issued.is_empty() {
                    self.outcome.not_issued.push((call.index, why));
                }
                return Ok(());
            }
            None if issued => {
                self.steps.extend(recorder.steps);
                return Ok(());
            }
            None => "the replay answers it itself",
        };
        tally(&mut self.outcome.not_repeated, name, why, call.index);
        Ok(())
    }

    /// Saves the memory that is live before a call.
    fn save(&mut self, player: &mut Player<'_>, call: &Call<'_>) -> Result<(), Error> {
        self.wait(player, call.index)?;
        if !self.job.restore {
            return Ok(());
        }
        let mut regions: Vec<Region> = player.ranges.all_live().filter_map(Region::of).collect();
        regions.extend(player.mapped.mappings.iter().map(|(bytes, _)| {
            let (start, length) = (bytes.start, bytes.end - bytes.start);
            Region {
                recorded: start,
                live: player.ranges.translate(start),
                length,
                is_host: false,
                what: format!("{start:#x}, {length} bytes, mapped by cuMemMap"),
            }
        }));
        let snapshot = Snapshot::take(&player.api, regions).map_err(cannot)?;
        if player.handles.any_array() {
            let note = "arrays (of textures and surfaces) are not restored";
            self.outcome.note(note);
        }
        for line in &snapshot.unreadable {
            let note = format!("memory that is not restored: {line}");
            self.outcome.note(note);
        }
        self.snapshot = Some(snapshot);
        Ok(())
    }

    /// For edits: saves the memory that a call has made, whose contents the repeated calls find.
    fn save_new(&mut self, player: &mut Player<'_>, call: &Call<'_>) -> Result<(), Error> {
        let Some(snapshot) = self
            .snapshot
            .as_mut()
            .filter(|_| self.job.what_if.is_some())
        else {
            return Ok(());
        };
        let new = player
            .ranges
            .all_live()
            .filter(|range| range.made == call.index);
        let new: Vec<Region> = new.filter_map(Region::of).collect();
        if new.is_empty() || player.captures.any_open() {
            return Ok(());
        }
        let waited = player.wait_for_contexts(calls_of(&self.steps).map(|issued| issued.context));
        waited.map_err(returned(format!(
            "cuCtxSynchronize after call {}",
            call.index
        )))?;
        let mut more = Snapshot::take(&player.api, new).map_err(cannot)?;
        snapshot.pieces.append(&mut more.pieces);
        Ok(())
    }

    /// Waits for all work in all live contexts that own memory.
    fn wait(&self, player: &Player<'_>, call: u64) -> Result<(), Error> {
        if player.captures.any_open() {
            return Err(cannot(format!(
                "a stream is capturing at call {call}: choose calls that begin and end outside of captures"
            )));
        }
        let contexts = calls_of(&self.steps).map(|issued| issued.context);
        let waited = player.wait_for_contexts(contexts);
        waited.map_err(returned(format!("cuCtxSynchronize before call {call}")))?;
        // Memory is read and written in some context, also where the program has left none current.
        let mut owners = player.ranges.all_live().map(|range| range.context);
        match owners.find(|&context| player.handles.is_taken(Kind::Context, context)) {
            Some(owner) if player.api.current_context().unwrap_or(0) == 0 => player
                .api
                .set_current(owner)
                .map_err(returned("cuCtxSetCurrent")),
            _ => Ok(()),
        }
    }
}
