//! Tries smaller traces, as long as they still show it.

use std::collections::{BTreeMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::Path;
use std::time::{Duration, Instant};

use cutape_format::{CallChange, Provenance, Ranges, Trace, file_hash};
use cutape_model::{Need, Needs};
use cutape_replay::CallImage;

use crate::error::Error;
use crate::minimize::environment::Environment;
use crate::minimize::files::{Best, Files};
use crate::minimize::judge::{Judge, Kept};
use crate::minimize::reduce::{Ended, Verdict, reduce};
use crate::minimize::simplify::{Stage, changes, simplifications};
use crate::part::{Part, needs};
use crate::write::{provenance, write};

/// Attempts on a trace of this many calls take so little time that a smaller one is no better.
const SMALL: u64 = 64;

/// What is searched for.
#[derive(Clone, Debug)]
pub struct Wanted<'a> {
    /// What the result still shows.
    pub kept: Kept,
    /// Images that all replays load instead of the recorded ones, by call of the source.
    pub images: Vec<CallImage>,
    /// The trace to write.
    pub target: &'a Path,
    /// How long the search takes at most; then the smallest trace so far is the result.
    pub time_limit: Option<Duration>,
}

/// Why a search ended early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// The user wants it to end.
    Interrupted,
    /// [`Wanted::time_limit`].
    TimeLimit,
}

impl Stop {
    /// In words.
    pub fn words(self) -> &'static str {
        match self {
            Self::Interrupted => "interrupted",
            Self::TimeLimit => "the time is over",
        }
    }
}

/// The result, which is in its place.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The number of its calls.
    pub calls: u64,
    /// That of the source.
    pub of: u64,
    /// How many attempts were judged.
    pub attempts: u64,
    /// Whether the last run of the result showed it.
    pub is_verified: bool,
    /// What a trace that does not show it is like.
    pub absence: String,
    /// The options with which `replay` shows it, each after a blank.
    pub replay_options: String,
    /// Why the search ended early.
    pub stopped: Option<Stop>,
}

/// The search for a small trace.
pub struct Search<'t> {
    environment: &'t dyn Environment,
    source: &'t Trace,
    /// How many calls it has.
    calls: u64,
    hash: String,
    choice: String,
    judge: Judge<'t>,
    files: Files<'t>,
    end: Option<Instant>,
    tests: u64,
    /// Digests of attempts that did not show it.
    failed: HashSet<u64>,
    stopped: Option<Stop>,
}

/// A trace that attempts are cut from: the source, or the smallest trace so far.
struct Base<'t> {
    trace: &'t Trace,
    needs: Needs,
    /// The index of each of its calls in the source.
    original: Vec<u64>,
    /// Those that were made smaller, by these indices.
    changed: Ranges,
}

impl<'t> Search<'t> {
    /// Makes the folder of the search, or finds that of an earlier search for the same.
    ///
    /// # Errors
    /// If an image cannot be read, or the output not be written.
    pub fn new(
        source: &'t Trace,
        wanted: Wanted<'_>,
        environment: &'t dyn Environment,
    ) -> Result<Self, Error> {
        let judge = Judge::new(environment, wanted.kept, wanted.images);
        let path = source.path();
        let hash = file_hash(path).map_err(|error| Error::unreadable(path, &error))?;
        let choice = format!("minimize {}", judge.words());
        let images = judge.image_hashes(source)?;
        let files = Files::open(environment, wanted.target, &hash, &choice, images)?;
        Ok(Self {
            environment,
            source,
            calls: source.calls().count() as u64,
            hash,
            choice,
            judge,
            files,
            end: wanted.time_limit.map(|limit| Instant::now() + limit),
            tests: 0,
            failed: HashSet::new(),
            stopped: None,
        })
    }

    /// Searches, and puts the smallest trace into its place.
    ///
    /// # Errors
    /// If the source does not show it, or nothing was found in time; errors of reading and writing.
    pub fn run(mut self) -> Result<Outcome, Error> {
        let found = match self.files.best()? {
            Some(best) => {
                let folder = self.files.folder();
                self.environment.goes_on(folder, best.calls.count());
                self.look_at_source()?;
                true
            }
            None => self.first_part()?,
        };
        while found && self.stopped.is_none() {
            let before = self.files.best()?.map(|best| best.calls);
            // What was needed for a call that is gone may not be needed any more.
            let is_minimal = self.reduce()? == Ended::Minimal;
            if is_minimal && self.files.best()?.map(|best| best.calls) == before {
                break;
            }
        }
        for stage in Stage::ALL {
            if found && self.stopped.is_none() && self.judge.permits_changes() {
                self.simplify(stage)?;
            }
        }
        self.finish()
    }

    /// Whether the search is to end now.
    fn is_over(&mut self) -> bool {
        if self.environment.is_interrupted() {
            self.stopped = Some(Stop::Interrupted);
        } else if self.end.is_some_and(|end| Instant::now() >= end) {
            self.stopped = Some(Stop::TimeLimit);
        }
        self.stopped.is_some()
    }

    /// What each call of a trace needs.
    fn needs(&self, trace: &Trace) -> Result<Needs, Error> {
        Ok(needs(trace, &mut *self.environment.walk(trace))?)
    }

    /// All calls of the source.
    fn whole(&self) -> Result<Base<'t>, Error> {
        let needs = self.needs(self.source)?;
        Ok(Base {
            trace: self.source,
            original: (0..needs.calls()).collect(),
            changed: Ranges::default(),
            needs,
        })
    }

    /// The calls of the source that show it, if there are such.
    fn look_at_source(&mut self) -> Result<Vec<u64>, Error> {
        let found = self.calls_that_show_it();
        // What Ctrl-C has ended says nothing.
        if self.is_over() {
            return Ok(Vec::new());
        }
        found
    }

    fn calls_that_show_it(&mut self) -> Result<Vec<u64>, Error> {
        let name = self.source.path();
        if !self.judge.leaves_digests_out(self.source) {
            return self.judge.look_at_source(self.source, name);
        }
        let base = self.whole()?;
        let all = vec![true; base.original.len()];
        let path = self.files.candidate()?;
        self.write(&base, &all, &path, &BTreeMap::new())?;
        let trace = self.environment.open(&path)?;
        self.judge.look_at_source(&trace, name)
    }

    /// Looks at the source, then tries what the calls that show it need; else all calls. False if
    /// there was no time.
    fn first_part(&mut self) -> Result<bool, Error> {
        let targets = self.look_at_source()?;
        if self.stopped.is_some() {
            return Ok(false);
        }
        let base = self.whole()?;
        let calls = base.needs.calls();
        let hard = self.judge.hard();
        let soft = |need| need == Need::Setting || hard(need);
        let guess = |chosen: &[u64], follows: &dyn Fn(Need) -> bool| {
            base.needs
                .closure(chosen.iter().copied(), |_, _, need| follows(need))
        };
        let mut guesses = Vec::new();
        if let Some(&last) = targets.iter().max() {
            guesses.push(guess(&targets, &soft));
            guesses.push(guess(&targets, &|need| need != Need::Completion));
            guesses.push(guess(&targets, &|_| true));
            // A pattern that repeats.
            let alike = self.calls_alike(last);
            guesses.push(guess(&alike, &soft));
            guesses.push(guess(&alike, &|_| true));
            guesses.push((0..calls).map(|call| call <= last).collect());
        }
        guesses.push(vec![true; calls as usize]);
        guesses.dedup();
        for guess in guesses {
            match self.test(&base, &guess)? {
                Verdict::Shows => return Ok(true),
                Verdict::DoesNot => {}
                Verdict::Stop => return Ok(false),
            }
        }
        Err(Error::Unusable(format!(
            "{}: {} when the same calls are looked at again; is it nondeterministic?",
            self.source.path().display(),
            self.judge.absence()
        )))
    }

    /// The calls of the source of the same function as one of them.
    fn calls_alike(&self, call: u64) -> Vec<u64> {
        let function = self.source.calls().nth(call as usize);
        let function = function.map(|call| call.signature.id);
        let calls = self.source.calls();
        calls
            .filter(|call| Some(call.signature.id) == function)
            .map(|call| call.index)
            .collect()
    }

    /// Cuts the smallest trace so far as far as possible.
    fn reduce(&mut self) -> Result<Ended, Error> {
        let Some(best) = self.files.best()? else {
            return Ok(Ended::Minimal);
        };
        let trace = self.environment.open(&self.files.best_path())?;
        let base = Base {
            needs: self.needs(&trace)?,
            original: best.calls.iter().collect(),
            changed: best.changed,
            trace: &trace,
        };
        let calls = base.needs.calls();
        let mut part = vec![true; calls as usize];
        let small = if calls > SMALL { calls / 4 } else { 0 };
        let hard = self.judge.hard();
        let needs = &base.needs;
        let ended = reduce(needs, &mut part, hard, small, |part| self.test(&base, part))?;
        Ok(ended)
    }

    /// Writes an attempt and judges it; the smallest that shows it stays.
    fn test(&mut self, base: &Base<'_>, calls: &[bool]) -> Result<Verdict, Error> {
        self.test_with(base, calls, &BTreeMap::new())
    }

    fn test_with(
        &mut self,
        base: &Base<'_>,
        calls: &[bool],
        changes: &BTreeMap<u64, CallChange>,
    ) -> Result<Verdict, Error> {
        if self.is_over() {
            return Ok(Verdict::Stop);
        }
        let attempt = digest(base, calls, changes);
        if self.failed.contains(&attempt) {
            return Ok(Verdict::DoesNot);
        }
        self.tests += 1;
        self.environment.begins_attempt(self.tests);
        let path = self.files.candidate()?;
        let written = self.write(base, calls, &path, changes)?;
        let original: Vec<u64> = written.calls.iter().collect();
        let shows = self.judge.shows(&path, &original)?;
        // What Ctrl-C has ended says nothing.
        if self.is_over() {
            return Ok(Verdict::Stop);
        }
        if !shows {
            self.failed.insert(attempt);
            return Ok(Verdict::DoesNot);
        }
        self.files.keep_candidate(&written, self.tests)?;
        Ok(Verdict::Shows)
    }

    /// Writes an attempt.
    fn write(
        &self,
        base: &Base<'_>,
        calls: &[bool],
        path: &Path,
        changes: &BTreeMap<u64, CallChange>,
    ) -> Result<Best, Error> {
        let part = Part {
            calls: calls.to_vec(),
            ..Part::default()
        };
        let in_source = |call: u64| base.original.get(call as usize).copied();
        let kept = part.indices().filter_map(|call| {
            let index = in_source(call)?;
            let is_changed = changes.contains_key(&call) || base.changed.contains(index);
            Some((index, is_changed))
        });
        let kept: Vec<(u64, bool)> = kept.collect();
        let written = Best {
            calls: kept.iter().map(|call| call.0).collect(),
            changed: kept
                .iter()
                .filter(|call| call.1)
                .map(|call| call.0)
                .collect(),
        };
        let (hash, choice) = (self.hash.clone(), self.choice.clone());
        let calls = (written.calls.clone(), self.calls);
        let provenance = Provenance {
            changed: written.changed.clone(),
            ..provenance(self.source, hash, choice, calls)
        };
        let Base { trace, needs, .. } = base;
        let of = (&part, needs);
        write(trace, of, &provenance, None, path, changes, &|| {}).map_err(|source| {
            let path = path.to_owned();
            Error::Write { path, source }
        })?;
        Ok(written)
    }

    /// Makes smaller what the calls that are left have: payloads, sizes, images.
    fn simplify(&mut self, stage: Stage) -> Result<(), Error> {
        let Some(best) = self.files.best()? else {
            return Ok(());
        };
        let trace = self.environment.open(&self.files.best_path())?;
        let items = simplifications(&trace, stage);
        if items.is_empty() {
            return Ok(());
        }
        let base = Base {
            needs: self.needs(&trace)?,
            original: best.calls.iter().collect(),
            changed: best.changed,
            trace: &trace,
        };
        let all = vec![true; base.needs.calls() as usize];
        let try_values = |search: &mut Self, values: &[u64]| {
            let values = items.iter().zip(values.iter().copied());
            search.test_with(&base, &all, &changes(values))
        };
        let least: Vec<u64> = items.iter().map(|item| item.least).collect();
        if try_values(self, &least)? != Verdict::DoesNot {
            return Ok(());
        }
        let values = |is_whole: &[bool]| -> Vec<u64> {
            let items = items.iter().zip(is_whole);
            items
                .map(|(item, &is_whole)| if is_whole { item.value } else { item.least })
                .collect()
        };
        let mut is_whole = vec![true; items.len()];
        // Nothing that can be smaller needs another one.
        let needs = Needs::of_lists(vec![Vec::new(); items.len()]);
        let ended = reduce(
            &needs,
            &mut is_whole,
            |_| false,
            0,
            |is_whole| try_values(self, &values(is_whole)),
        )?;
        let mut values = values(&is_whole);
        // What cannot be least can be less.
        for (place, item) in items.iter().enumerate() {
            while ended == Ended::Minimal
                && let Some(value) = values.get(place).copied()
                && value / 2 > item.least
            {
                let mut smaller = values.clone();
                if let Some(size) = smaller.get_mut(place) {
                    *size = value / 2;
                }
                match try_values(self, &smaller)? {
                    Verdict::Shows => values = smaller,
                    Verdict::DoesNot => break,
                    Verdict::Stop => return Ok(()),
                }
            }
        }
        Ok(())
    }

    /// Verifies the smallest trace and puts it into its place.
    fn finish(mut self) -> Result<Outcome, Error> {
        let Some(best) = self.files.best()? else {
            let why = self.stopped.map_or("nothing was found", Stop::words);
            return Err(Error::Unusable(format!(
                "nothing is written: {why} before the first attempt was judged"
            )));
        };
        let calls: Vec<u64> = best.calls.iter().collect();
        let is_verified = match self.stopped {
            // An interrupted process does not start another replay; the attempt was judged.
            Some(Stop::Interrupted) => true,
            _ => self.judge.shows(&self.files.best_path(), &calls)?,
        };
        self.files.publish(self.stopped.is_none() && is_verified)?;
        Ok(Outcome {
            calls: calls.len() as u64,
            of: self.calls,
            attempts: self.tests,
            is_verified,
            absence: self.judge.absence(),
            replay_options: self.judge.replay_options(&calls),
            stopped: self.stopped,
        })
    }
}

/// Of an attempt: the calls of the source that it has, and what of them changes.
fn digest(base: &Base<'_>, calls: &[bool], changes: &BTreeMap<u64, CallChange>) -> u64 {
    let mut hasher = DefaultHasher::new();
    let calls = base.original.iter().zip(calls);
    for (original, _) in calls.filter(|(_, is_in)| **is_in) {
        original.hash(&mut hasher);
    }
    changes.hash(&mut hasher);
    hasher.finish()
}
