//! Gives the kept inputs to all readers, then new ones. Without arguments few of them;
//! `cargo xtask fuzz` reads more:
//!
//! | option | meaning |
//! |---|---|
//! | `--target NAME` | only this reader; can be given several times |
//! | `--in-process` | only the readers that need no other program |
//! | `--seconds N` | no new inputs after that time |
//! | `--executions N` | so many new inputs for each reader |
//! | `--seed S` | the seed of the first input; the next has the next number |
//! | `--jobs N` | so many inputs, or batches of them, at a time; by default one for each processor |
//! | `--root FOLDER` | where the repository is, or the parts of it that inputs are made of |
//!
//! A reader that fails prints the command that does it again. Its input goes to `target/fuzz/failed` below
//! the root.

use std::collections::BTreeSet;
use std::fs;
use std::ops::Range;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use cutape_fuzz::batch::{self, Counts};
use cutape_fuzz::corpus::Corpus;
use cutape_fuzz::target::{TARGETS, Target};
use cutape_tests::{parts, root};

/// New inputs for each reader without arguments.
const FEW: u64 = 8;
/// Inputs of the first batch.
const FIRST_BATCH: u64 = 64;
/// The number of inputs changes until a batch takes this long: its process has to start.
const BATCH: Range<Duration> = Duration::from_secs(1)..Duration::from_secs(4);
/// Failures of one place in the code that are shown.
const SHOWN: usize = 20;

struct Options {
    targets: Vec<Target>,
    limit: Option<Duration>,
    executions: Option<u64>,
    seed: u64,
    jobs: usize,
    root: PathBuf,
    /// In a process of its own: reads a batch, and writes each seed to this file first.
    worker: Option<PathBuf>,
}

impl Options {
    fn read() -> Result<Self, String> {
        let mut options = Self {
            targets: Vec::new(),
            limit: None,
            executions: None,
            seed: 1,
            jobs: thread::available_parallelism().map_or(1, usize::from),
            root: root().to_owned(),
            worker: None,
        };
        let mut words = std::env::args().skip(1);
        while let Some(word) = words.next() {
            if word == "--in-process" {
                let targets = TARGETS.iter().filter(|target| target.is_in_process());
                options.targets.extend(targets);
                continue;
            }
            let value = words.next().ok_or_else(|| format!("{word}: no value"))?;
            let number = || value.parse::<u64>().map_err(|_| format!("{word}: {value}"));
            match word.as_str() {
                "--target" => options.targets.push(Target::named(&value).ok_or_else(|| {
                    let names: Vec<&str> = TARGETS.iter().map(|target| target.name).collect();
                    format!("{word}: no {value}; there are {}", names.join(", "))
                })?),
                "--seconds" => options.limit = Some(Duration::from_secs(number()?)),
                "--executions" => options.executions = Some(number()?),
                "--seed" => options.seed = number()?,
                "--jobs" => options.jobs = number()?.clamp(1, 1 << 10) as usize,
                "--root" => options.root = PathBuf::from(value),
                "--worker" => options.worker = Some(PathBuf::from(value)),
                _ => return Err(format!("{word}: not an option")),
            }
        }
        if options.targets.is_empty() {
            options.targets = TARGETS.to_vec();
        }
        if options.limit.is_none() && options.executions.is_none() {
            options.executions = Some(FEW);
        }
        Ok(options)
    }
}

fn main() -> ExitCode {
    let options = match Options::read() {
        Ok(options) => options,
        Err(message) => {
            eprintln!("{message}");
            return ExitCode::from(2);
        }
    };
    let corpus = Corpus::below(&options.root);
    if let (Some(file), [target]) = (&options.worker, options.targets.as_slice()) {
        let seeds = options.seed..options.seed + options.executions.unwrap_or(1);
        batch::work(target, &corpus, seeds, file).unwrap();
        return ExitCode::SUCCESS;
    }
    if !options.targets.iter().all(Target::is_in_process) {
        // Building it is not counted.
        let _ = parts();
    }
    let run = Run {
        options: &options,
        corpus: &corpus,
        start: Instant::now(),
        progress: options.targets.iter().map(|_| Mutex::default()).collect(),
        failures: Mutex::default(),
    };
    run.kept();
    thread::scope(|scope| {
        for number in 0..options.jobs {
            let run = &run;
            scope.spawn(move || run.read_new(number));
        }
    });
    run.summary()
}

struct Run<'a> {
    options: &'a Options,
    corpus: &'a Corpus,
    start: Instant,
    /// Of each reader.
    progress: Vec<Mutex<Progress>>,
    /// Readers and what they did.
    failures: Mutex<BTreeSet<String>>,
}

/// What a reader has been given.
struct Progress {
    /// Inputs that it has been given, or is being given.
    given: u64,
    /// Inputs of the next batch.
    batch: u64,
    counts: Counts,
    failures: u64,
}

impl Default for Progress {
    fn default() -> Self {
        Self {
            given: 0,
            batch: FIRST_BATCH,
            counts: Counts::default(),
            failures: 0,
        }
    }
}

impl Run<'_> {
    /// The inputs that a verb failed at once. Images have no kept inputs: their tests are in the
    /// crate `image`.
    fn kept(&self) {
        let kept = fs::read_dir(self.options.root.join("tests/fuzz/kept")).into_iter();
        let mut kept: Vec<PathBuf> = kept.flatten().flatten().map(|entry| entry.path()).collect();
        kept.sort();
        // A reader that refuses what is sound reads nothing.
        let (sound, parts) = self.corpus.sound();
        let targets = self.options.targets.iter().zip(&self.progress);
        for (target, progress) in targets.filter(|(target, _)| !target.is_in_process()) {
            let folder = Folder::new(0);
            if target.read(&parts.written(), sound, &folder.path) != Ok(true) {
                let why = "a sound trace was refused";
                self.fail(target, progress, why, &sound.display().to_string());
            }
            for path in &kept {
                let input = fs::read(path).unwrap();
                let folder = Folder::new(0);
                if let Err(why) = target.read(&input, path, &folder.path) {
                    let again = format!("kept input {}", path.display());
                    self.fail(target, progress, &why, &again);
                }
            }
        }
    }

    /// Takes new inputs in turn for each reader, until time or number are reached.
    fn read_new(&self, job: usize) {
        loop {
            let mut is_done = true;
            for (target, progress) in self.options.targets.iter().zip(&self.progress) {
                if self.is_over() {
                    return;
                }
                let Some(seeds) = self.next_seeds(target, progress) else {
                    continue;
                };
                is_done = false;
                match target.is_in_process() {
                    true => self.read_batch(target, progress, seeds, job),
                    false => self.read_trace(target, progress, seeds.start, job),
                }
            }
            if is_done {
                return;
            }
        }
    }

    fn is_over(&self) -> bool {
        let limit = self.options.limit;
        limit.is_some_and(|limit| self.start.elapsed() > limit)
    }

    /// The seeds of the next inputs for a reader.
    fn next_seeds(&self, target: &Target, progress: &Mutex<Progress>) -> Option<Range<u64>> {
        let mut progress = progress.lock().unwrap();
        let most = self.options.executions.unwrap_or(u64::MAX);
        let batch = match target.is_in_process() {
            true => progress.batch,
            false => 1,
        };
        let first = self.options.seed + progress.given;
        let count = batch.min(most - progress.given);
        progress.given += count;
        (count > 0).then_some(first..first + count)
    }

    fn read_trace(&self, target: &Target, progress: &Mutex<Progress>, seed: u64, job: usize) {
        let (input, which) = target.input(self.corpus, seed);
        let folder = Folder::new(job);
        let start = Instant::now();
        let read = target.read(&input, &self.corpus.traces[which].0, &folder.path);
        let is_taken = *read.as_ref().unwrap_or(&false);
        let mut counts = Counts::default();
        counts.add(seed, is_taken, start.elapsed());
        progress.lock().unwrap().counts.join(counts);
        if let Err(why) = read {
            self.keep(target, progress, &why, seed);
        }
    }

    fn read_batch(
        &self,
        target: &Target,
        progress: &Mutex<Progress>,
        mut seeds: Range<u64>,
        job: usize,
    ) {
        let folder = Folder::new(job);
        let start = Instant::now();
        while !seeds.is_empty() && !self.is_over() {
            let (counts, failure) =
                match batch::read(target, &self.options.root, seeds.clone(), &folder.path) {
                    Ok(read) => read,
                    Err(why) => return self.fail(target, progress, &why, "no input was read"),
                };
            progress.lock().unwrap().counts.join(counts);
            let Some((seed, why)) = failure else { break };
            self.keep(target, progress, &why, seed);
            seeds.start = seed + 1;
        }
        let mut progress = progress.lock().unwrap();
        if start.elapsed() < BATCH.start {
            progress.batch = progress.batch.saturating_mul(2);
        } else if start.elapsed() > BATCH.end {
            progress.batch = (progress.batch / 2).max(1);
        }
    }

    /// Keeps the input that a reader failed at.
    fn keep(&self, target: &Target, progress: &Mutex<Progress>, why: &str, seed: u64) {
        let (input, _) = target.input(self.corpus, seed);
        let folder = self.options.root.join("target/fuzz/failed");
        fs::create_dir_all(&folder).unwrap();
        let path = folder.join(format!("{}-{seed}", target.name));
        fs::write(&path, input).unwrap();
        let again = format!(
            "cargo xtask fuzz --target {} --seed {seed} --executions 1\n    input: {}",
            target.name,
            path.display()
        );
        self.fail(target, progress, why, &again);
    }

    fn fail(&self, target: &Target, progress: &Mutex<Progress>, why: &str, again: &str) {
        progress.lock().unwrap().failures += 1;
        let mut failures = self.failures.lock().unwrap();
        // One place in the code is shown once for each reader.
        let is_new = failures.insert(format!("{} {why}", target.name));
        if is_new && failures.len() <= SHOWN {
            println!("{}: {why}\n    {again}", target.name);
        }
    }

    /// A row for each reader. The rate is that of one job.
    fn summary(&self) -> ExitCode {
        println!(
            "{:<16} {:>11} {:>11} {:>9} {:>22} {:>9}",
            "target", "executions", "taken", "a second", "slowest (seed)", "failures"
        );
        let (mut executions, mut failed) = (0, 0);
        for (target, progress) in self.options.targets.iter().zip(&self.progress) {
            let progress = progress.lock().unwrap();
            let counts = &progress.counts;
            let rate = counts.executions as f64 / counts.time.as_secs_f64().max(1e-9);
            let slowest = format!(
                "{} ms ({})",
                counts.slowest.as_millis(),
                counts.slowest_seed
            );
            println!(
                "{:<16} {:>11} {:>11} {rate:>9.1} {slowest:>22} {:>9}",
                target.name, counts.executions, counts.taken, progress.failures
            );
            executions += counts.executions;
            failed += progress.failures;
        }
        println!(
            "seed {}, {} jobs, {:.1} s: {executions} executions, {failed} failures",
            self.options.seed,
            self.options.jobs,
            self.start.elapsed().as_secs_f64(),
        );
        match failed {
            0 => ExitCode::SUCCESS,
            _ => ExitCode::FAILURE,
        }
    }
}

/// An empty folder of a job, which is removed in the end.
struct Folder {
    path: PathBuf,
}

impl Folder {
    fn new(job: usize) -> Self {
        let name = format!("cutape-fuzz-{}-{job}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        Self { path }
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.path);
    }
}
