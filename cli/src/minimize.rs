//! `cutape minimize`: writes the smallest trace that still shows something.

mod files;
mod interrupt;
mod judge;
mod keep;

use std::collections::{BTreeMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use cutape_cut::{Ended, Part, Stage, Verdict};
use cutape_format::{CallChange, Provenance, Ranges, Trace, file_hash};
use cutape_model::{Need, Needs};
use cutape_render::quantity;
use cutape_replay::CallImage;

use self::files::{Best, Files};
use self::judge::Judge;
use self::keep::Keep;
use crate::trim;
use cutape_terminal::failure::{FOUND, Failure};
use cutape_terminal::input;
use cutape_terminal::message;
use cutape_terminal::overwrite::Overwrite;
use cutape_terminal::progress::{Progress, Unit};

/// What `minimize` takes.
#[derive(clap::Args)]
#[command(after_help = EPILOGUE)]
pub(crate) struct Arguments {
    /// The trace.
    trace: PathBuf,
    #[command(flatten)]
    keep: Keep,
    /// The trace to write; must not exist, except with --overwrite.
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    #[command(flatten)]
    overwrite: Overwrite,
    /// The driver of replays: a path, or `null`. Default: this machine's.
    #[arg(long, value_name = "PATH")]
    driver: Option<PathBuf>,
    /// In all replays, load FILE instead of the image that call CALL of the trace
    /// loads: a cubin, a fatbin or PTX. Can be given several times.
    ///
    /// With --keep-divergence the divergence is kept that the image causes: a replay
    /// with the recorded images agrees.
    #[arg(long, value_name = "CALL=FILE", verbatim_doc_comment)]
    replace_image: Vec<CallImage>,
    /// End a replay in which no call begins or ends for this long.
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    watchdog: u64,
    /// Stop after this time, with the smallest trace so far.
    #[arg(long, value_name = "SECONDS")]
    time_limit: Option<u64>,
}

const EPILOGUE: &str = "\
Calls are left out, with those that cannot be made without them, as long as the
rest still shows it. Then payloads are left out, launches and copies become
smaller, and fat binaries lose the entries that the recorded devices do not load.
Each attempt is a trace that check, a guarded replay or the command judges, and
one more run judges the result. When the time is over, or after Ctrl-C (then
without that run), the smallest trace so far is written, and the same command
goes on from the folder OUTPUT.minimize.";

/// Attempts on a trace of this many calls take so little time that a smaller one is no better.
const SMALL: u64 = 64;

pub(crate) fn run(arguments: Arguments) -> Result<ExitCode, Failure> {
    let trace = input::open(&arguments.trace)?;
    if let Some(process) = trace.writer() {
        return Err(input::still_written(&arguments.trace, process));
    }
    let keep = arguments.keep.checked()?;
    let judge = Judge::new(
        keep,
        arguments.replace_image,
        arguments.driver.as_deref(),
        arguments.watchdog,
    )?;
    let hash = file_hash(trace.path())
        .map_err(|error| Failure::unusable(format!("{}: {error}", arguments.trace.display())))?;
    let choice = format!("minimize {}", judge.words());
    let files = Files::open(
        (&arguments.output, arguments.overwrite),
        &hash,
        &choice,
        judge.image_hashes(&trace)?,
    )?;
    interrupt::watch();
    let limit = arguments.time_limit.map(Duration::from_secs);
    let mut search = Search {
        source: &trace,
        calls: trace.calls().count() as u64,
        hash,
        choice,
        judge,
        files,
        end: limit.map(|limit| Instant::now() + limit),
        tests: 0,
        failed: HashSet::new(),
        progress: Progress::new("trying", Unit::Things("attempts"), None),
        stopped: None,
    };
    search.run()
}

/// The search for a small trace.
struct Search<'t> {
    source: &'t Trace,
    /// How many calls it has.
    calls: u64,
    hash: String,
    choice: String,
    judge: Judge,
    files: Files,
    end: Option<Instant>,
    tests: u64,
    /// Digests of attempts that did not show it.
    failed: HashSet<u64>,
    progress: Progress,
    /// Why the search ended early.
    stopped: Option<&'static str>,
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
    fn run(&mut self) -> Result<ExitCode, Failure> {
        let found = match self.files.best()? {
            Some(best) => {
                let known = best.calls.iter().count();
                message!(
                    "goes on from {} with {}",
                    self.files.folder().display(),
                    quantity::count(known as u64, "call")
                );
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
        if interrupt::came() {
            self.stopped = Some("interrupted");
        } else if self.end.is_some_and(|end| Instant::now() >= end) {
            self.stopped = Some("the time is over");
        }
        self.stopped.is_some()
    }

    /// All calls of the source.
    fn whole(&self) -> Result<Base<'t>, Failure> {
        let needs = cutape_cut::needs(self.source, &mut *trim::reading(self.source))?;
        Ok(Base {
            trace: self.source,
            original: (0..needs.calls()).collect(),
            changed: Ranges::default(),
            needs,
        })
    }

    /// The calls of the source that show it, if there are such.
    fn look_at_source(&mut self) -> Result<Vec<u64>, Failure> {
        let found = self.calls_that_show_it();
        // What Ctrl-C has ended says nothing.
        if self.is_over() {
            return Ok(Vec::new());
        }
        found
    }

    fn calls_that_show_it(&mut self) -> Result<Vec<u64>, Failure> {
        let name = self.source.path();
        if !self.judge.leaves_digests_out(self.source) {
            return self.judge.look_at_source(self.source, name);
        }
        let base = self.whole()?;
        let all = vec![true; base.original.len()];
        let path = self.files.candidate()?;
        self.write(&base, &all, &path, &BTreeMap::new())?;
        let trace = input::open(&path)?;
        self.judge.look_at_source(&trace, name)
    }

    /// Looks at the source, then tries what the calls that show it need; else all calls. False if
    /// there was no time.
    fn first_part(&mut self) -> Result<bool, Failure> {
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
        Err(Failure::unusable(format!(
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
    fn reduce(&mut self) -> Result<Ended, Failure> {
        let Some(best) = self.files.best()? else {
            return Ok(Ended::Minimal);
        };
        let trace = input::open(&self.files.best_path())?;
        let base = Base {
            needs: cutape_cut::needs(&trace, &mut *trim::reading(&trace))?,
            original: best.calls.iter().collect(),
            changed: best.changed,
            trace: &trace,
        };
        let calls = base.needs.calls();
        let mut part = vec![true; calls as usize];
        let small = if calls > SMALL { calls / 4 } else { 0 };
        let hard = self.judge.hard();
        let needs = &base.needs;
        let ended =
            cutape_cut::reduce(needs, &mut part, hard, small, |part| self.test(&base, part))?;
        Ok(ended)
    }

    /// Writes an attempt and judges it; the smallest that shows it stays.
    fn test(&mut self, base: &Base<'_>, calls: &[bool]) -> Result<Verdict, Failure> {
        self.test_with(base, calls, &BTreeMap::new())
    }

    fn test_with(
        &mut self,
        base: &Base<'_>,
        calls: &[bool],
        changes: &BTreeMap<u64, CallChange>,
    ) -> Result<Verdict, Failure> {
        if self.is_over() {
            return Ok(Verdict::Stop);
        }
        let attempt = digest(base, calls, changes);
        if self.failed.contains(&attempt) {
            return Ok(Verdict::DoesNot);
        }
        self.tests += 1;
        self.progress.reach(self.tests);
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
    ) -> Result<Best, Failure> {
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
        let provenance = self.provenance(&written);
        cutape_cut::write(
            base.trace,
            &base.needs,
            &part,
            &provenance,
            None,
            path,
            changes,
        )
        .map_err(|error| Failure::cannot_write(path, &error))?;
        Ok(written)
    }

    fn provenance(&self, written: &Best) -> Provenance {
        let path = self.source.path();
        let name = path.file_name().unwrap_or(path.as_os_str());
        Provenance {
            source: name.to_string_lossy().into_owned(),
            hash: self.hash.clone(),
            choice: self.choice.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            calls: written.calls.clone(),
            of: self.calls,
            changed: written.changed.clone(),
            state: Provenance::of(self.source).and_then(|source| source.state),
        }
    }

    /// Makes smaller what the calls that are left have: payloads, sizes, images.
    fn simplify(&mut self, stage: Stage) -> Result<(), Failure> {
        let Some(best) = self.files.best()? else {
            return Ok(());
        };
        let trace = input::open(&self.files.best_path())?;
        let items = cutape_cut::simplifications(&trace, stage);
        if items.is_empty() {
            return Ok(());
        }
        let base = Base {
            needs: cutape_cut::needs(&trace, &mut *trim::reading(&trace))?,
            original: best.calls.iter().collect(),
            changed: best.changed,
            trace: &trace,
        };
        let all = vec![true; base.needs.calls() as usize];
        let try_values = |search: &mut Self, values: &[u64]| {
            let values = items.iter().zip(values.iter().copied());
            search.test_with(&base, &all, &cutape_cut::changes(values))
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
        let ended = cutape_cut::reduce(
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
    fn finish(&mut self) -> Result<ExitCode, Failure> {
        let Some(best) = self.files.best()? else {
            let why = self.stopped.unwrap_or("nothing was found");
            return Err(Failure::unusable(format!(
                "nothing is written: {why} before the first attempt was judged"
            )));
        };
        let calls: Vec<u64> = best.calls.iter().collect();
        let verified = match self.stopped {
            // An interrupted process does not start another replay; the attempt was judged.
            Some("interrupted") => true,
            _ => self.judge.shows(&self.files.best_path(), &calls)?,
        };
        let target = self.files.publish(self.stopped.is_none() && verified)?;
        let length = std::fs::metadata(&target).map_or(0, |file| file.len());
        let before = std::fs::metadata(self.source.path()).map_or(0, |file| file.len());
        let [length, before] = [length, before].map(quantity::bytes);
        let of = self.calls;
        message!(
            "{}: {} of {of} calls after {}; {length}, before {before}",
            target.display(),
            calls.len(),
            quantity::count(self.tests, "attempt"),
        );
        if !verified {
            message!(
                "the last run of the result did not show it: {}; it is nondeterministic",
                self.judge.absence()
            );
            return Ok(ExitCode::from(FOUND));
        }
        let options = self.judge.replay_options(&calls);
        if !options.is_empty() {
            let target = target.display();
            message!("`cutape replay {target}{options}` shows it");
        }
        if let Some(why) = self.stopped {
            message!("{why}; the same command goes on");
        }
        Ok(ExitCode::SUCCESS)
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
