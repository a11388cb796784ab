//! Gives the kept inputs to all readers, then new ones. Without arguments few of them;
//! `cargo xtask fuzz` reads more:
//!
//! | option | meaning |
//! |---|---|
//! | `--target NAME` | only this reader; can be given several times |
//! | `--seconds N` | no new inputs after that time |
//! | `--executions N` | so many new inputs for each reader |
//! | `--seed S` | the seed of the first input; the next has the next number |
//!
//! A reader that fails prints the command that does it again. Its input goes to `target/fuzz`.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use cutape_fuzz::target::{Corpus, TARGETS, Target};
use cutape_tests::{parts, root, run_within};

/// Images that one process reads: one that dies costs no more than these.
const BATCH: u64 = 50;
/// How long they may take, on a busy machine.
const BATCH_LIMIT: Duration = Duration::from_secs(300);
/// New inputs for each reader without arguments.
const FEW: u64 = 8;
/// Failures of one place in the code that are shown.
const SHOWN: usize = 20;

struct Options {
    targets: Vec<Target>,
    limit: Option<Duration>,
    executions: Option<u64>,
    seed: u64,
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
            worker: None,
        };
        let mut words = std::env::args().skip(1);
        while let Some(word) = words.next() {
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
    let corpus = Corpus::of_repository();
    if let Some(file) = &options.worker {
        work(&corpus, &options, file);
        return ExitCode::SUCCESS;
    }
    // Building it is not counted.
    let _ = parts();
    let run = Run {
        options: &options,
        corpus: &corpus,
        start: Instant::now(),
        next: TARGETS.iter().map(|_| AtomicU64::new(0)).collect(),
        taken: TARGETS.iter().map(|_| AtomicU64::new(0)).collect(),
        failures: Mutex::default(),
    };
    run.kept();
    let threads = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        for number in 0..threads {
            let run = &run;
            scope.spawn(move || run.read_new(number));
        }
    });
    run.summary()
}

/// Reads images whose seeds begin with that of the options.
fn work(corpus: &Corpus, options: &Options, file: &Path) {
    for target in &options.targets {
        for seed in options.seed..options.seed + options.executions.unwrap_or(1) {
            fs::write(file, seed.to_string()).unwrap();
            let (input, _) = target.input(corpus, seed);
            target.read(&input, Path::new(""), Path::new("")).unwrap();
        }
    }
}

struct Run<'a> {
    options: &'a Options,
    corpus: &'a Corpus,
    start: Instant,
    /// Inputs that each reader has been given, or is being given.
    next: Vec<AtomicU64>,
    /// Traces that each reader took.
    taken: Vec<AtomicU64>,
    failures: Mutex<BTreeSet<String>>,
}

impl Run<'_> {
    /// The inputs that a reader failed at once. Images have no kept inputs: their tests are in the
    /// crate `image`.
    fn kept(&self) {
        let kept = fs::read_dir(root().join("tests/fuzz/kept")).into_iter();
        let mut kept: Vec<PathBuf> = kept.flatten().flatten().map(|entry| entry.path()).collect();
        kept.sort();
        // A reader that refuses what is sound reads nothing.
        let (sound, bytes) = self.corpus.sound();
        for target in self.options.targets.iter().filter(|t| !t.is_of_images()) {
            let folder = Folder::new(0);
            if target.read(bytes, sound, &folder.path) != Ok(true) {
                self.fail(
                    target,
                    "a sound trace was refused",
                    &sound.display().to_string(),
                );
            }
        }
        for path in kept {
            let input = fs::read(&path).unwrap();
            for target in self.options.targets.iter().filter(|t| !t.is_of_images()) {
                let folder = Folder::new(0);
                if let Err(why) = target.read(&input, &path, &folder.path) {
                    self.fail(target, &why, &format!("kept input {}", path.display()));
                }
            }
        }
    }

    /// Takes new inputs in turn for each reader, until time or number are reached.
    fn read_new(&self, thread: usize) {
        loop {
            let mut is_done = true;
            let counts = self.next.iter().zip(&self.taken);
            for (target, (next, taken)) in self.options.targets.iter().zip(counts) {
                if self
                    .options
                    .limit
                    .is_some_and(|limit| self.start.elapsed() > limit)
                {
                    return;
                }
                let batch = if target.is_of_images() { BATCH } else { 1 };
                let first = next.fetch_add(batch, Ordering::Relaxed);
                let most = self.options.executions.unwrap_or(u64::MAX);
                if first >= most {
                    next.store(most, Ordering::Relaxed);
                    continue;
                }
                is_done = false;
                let count = batch.min(most - first);
                let seed = self.options.seed.wrapping_add(first);
                match target.is_of_images() {
                    true => self.read_images(target, seed, count, thread),
                    false if self.read_trace(target, seed, thread) => {
                        taken.fetch_add(1, Ordering::Relaxed);
                    }
                    false => {}
                }
            }
            if is_done {
                return;
            }
        }
    }

    /// Whether the reader took the trace of that seed.
    fn read_trace(&self, target: &Target, seed: u64, thread: usize) -> bool {
        let (input, which) = target.input(self.corpus, seed);
        let folder = Folder::new(thread);
        let read = target.read(&input, &self.corpus.traces[which].0, &folder.path);
        read.unwrap_or_else(|why| {
            self.keep(target, &why, seed, &input);
            false
        })
    }

    fn read_images(&self, target: &Target, first: u64, count: u64, thread: usize) {
        let folder = Folder::new(thread);
        let file = folder.path.join("seed");
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--target", target.name, "--seed", &first.to_string()]);
        command
            .args(["--executions", &count.to_string(), "--worker"])
            .arg(&file);
        let output = run_within(&mut command, BATCH_LIMIT);
        if output.code() == Some(0) {
            return;
        }
        let seed = fs::read_to_string(&file)
            .ok()
            .and_then(|text| text.parse().ok());
        let seed = seed.unwrap_or(first);
        let says = output.stderr.lines().find(|line| line.contains("panicked"));
        let why = format!("{:?} {}", output.status, says.unwrap_or_default());
        let (input, _) = target.input(self.corpus, seed);
        self.keep(target, &why, seed, &input);
    }

    fn keep(&self, target: &Target, why: &str, seed: u64, input: &[u8]) {
        let folder = root().join("target/fuzz");
        fs::create_dir_all(&folder).unwrap();
        let path = folder.join(format!("{}-{seed}", target.name));
        fs::write(&path, input).unwrap();
        let again = format!(
            "cargo xtask fuzz --target {} --seed {seed} --executions 1",
            target.name
        );
        self.fail(
            target,
            why,
            &format!("{again}\n    input: {}", path.display()),
        );
    }

    fn fail(&self, target: &Target, why: &str, again: &str) {
        let mut failures = self.failures.lock().unwrap();
        // One place in the code is shown once for each reader.
        let is_new = failures.insert(format!("{} {why}", target.name));
        if is_new && failures.len() <= SHOWN {
            println!("{}: {why}\n    {again}", target.name);
        }
    }

    fn summary(&self) -> ExitCode {
        let failures = self.failures.lock().unwrap();
        println!("{:<16} {:>9} {:>9}", "reader", "inputs", "taken");
        let counts = self.next.iter().zip(&self.taken);
        for (target, counts) in self.options.targets.iter().zip(counts) {
            let [inputs, taken] = [counts.0, counts.1].map(|count| count.load(Ordering::Relaxed));
            let taken = match target.is_of_images() {
                true => String::new(),
                false => taken.to_string(),
            };
            println!("{:<16} {inputs:>9} {taken:>9}", target.name);
        }
        println!(
            "seed {}, {:.1} s, {} failures",
            self.options.seed,
            self.start.elapsed().as_secs_f64(),
            failures.len()
        );
        match failures.is_empty() {
            true => ExitCode::SUCCESS,
            false => ExitCode::FAILURE,
        }
    }
}

/// An empty folder of a thread, which is removed in the end.
struct Folder {
    path: PathBuf,
}

impl Folder {
    fn new(thread: usize) -> Self {
        let name = format!("fuzz-{}-{thread}", std::process::id());
        let path = parts().cutape.with_file_name(name);
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
