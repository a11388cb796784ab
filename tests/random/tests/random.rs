//! Runs the programs that are kept in `kept/`, then new ones. Without arguments few of them;
//! `cargo xtask random` runs more:
//!
//! | option | meaning |
//! |---|---|
//! | `--plant N` | so many programs with a mistake, which `check` must find; by default 4 |
//! | `--count N` | so many new programs |
//! | `--seconds N` | no new programs after that time |
//! | `--seed S` | the seed of the first; by default 1, and the time with `--count` |
//! | `--schedule NAME` | only this schedule of the program: `eager`, `lazy`, `random` |
//! | `--devices N` | of the programs: 1 or 2; by default 2, and 1 with `--write` |
//! | `--keep FOLDER` | failing programs go there, shrunk |
//! | `--shrink N` | the first N of them are shrunk; by default 3 |
//! | `--write FILE` | the new programs, with what they must print, are written there and not run |
//! | `--last PROPERTY` | `bare`, `recorded`, `bytes`, `checked`, `replayed`, `played`, `cassette` |

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use cutape_random::generate::{Size, generate};
use cutape_random::order::expected;
use cutape_random::plant::plant;
use cutape_random::program::Program;
use cutape_random::runner::{DEVICES, Failure, Property, Runner, Schedules, lines};
use cutape_random::shrink::shrink;
use cutape_tests::{clean_up, root};

/// Programs that one process runs.
const BATCH: usize = 16;

struct Options {
    count: usize,
    seed: u64,
    schedule: Option<String>,
    keep: PathBuf,
    write: Option<PathBuf>,
    shrinks: usize,
    limit: Duration,
    plants: usize,
    devices: Option<u8>,
    last: Property,
}

impl Options {
    fn read() -> Result<Self, String> {
        let mut seed = None;
        let mut options = Self {
            count: 0,
            seed: 1,
            schedule: None,
            write: None,
            keep: root().join("target/random"),
            shrinks: 3,
            limit: Duration::MAX,
            plants: 4,
            devices: None,
            last: Property::Played,
        };
        let mut words = std::env::args().skip(1);
        while let Some(word) = words.next() {
            let value = words.next().ok_or_else(|| format!("{word}: no value"))?;
            let number = || value.parse::<u64>().map_err(|_| format!("{word}: {value}"));
            match word.as_str() {
                "--count" => options.count = number()? as usize,
                "--shrink" => options.shrinks = number()? as usize,
                "--plant" => options.plants = number()? as usize,
                "--devices" => options.devices = Some(number()? as u8),
                "--seconds" => options.limit = Duration::from_secs(number()?),
                "--seed" => seed = Some(number()?),
                "--schedule" => options.schedule = Some(value),
                "--write" => options.write = Some(root().join(value)),
                "--keep" => options.keep = root().join(value),
                "--last" => {
                    options.last = match value.as_str() {
                        "bare" => Property::Bare,
                        "recorded" => Property::Recorded,
                        "bytes" => Property::Bytes,
                        "checked" => Property::Checked,
                        "replayed" => Property::Replayed,
                        "played" => Property::Played,
                        "cassette" => Property::Cassette,
                        _ => return Err(format!("{word}: {value}")),
                    }
                }
                _ => return Err(format!("{word}: not an option")),
            }
        }
        let time = SystemTime::now().duration_since(UNIX_EPOCH);
        let time = time.map_or(0, |time| time.as_nanos() as u64 % 1_000_000_000);
        options.seed = seed.unwrap_or(if options.count == 0 { 1 } else { time });
        Ok(options)
    }

    fn size(&self, seed: u64, default: u8) -> Size {
        Size::of_seed(seed, self.devices.unwrap_or(default).clamp(1, DEVICES))
    }

    fn schedules(&self, seed: u64) -> Vec<Schedules> {
        let all = Schedules::all(seed).into_iter();
        let is_wanted = |schedules: &Schedules| {
            let wanted = self.schedule.as_deref();
            wanted.is_none_or(|wanted| schedules.program.starts_with(wanted))
        };
        all.filter(is_wanted).collect()
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
    if let Some(path) = &options.write {
        return write_programs(path, &options);
    }
    let runner = Runner::new("random");
    let mut failed = 0;
    let mut kept = kept_programs();
    kept.sort_by(|one, other| one.0.cmp(&other.0));
    for (path, program) in &kept {
        for schedules in options.schedules(1) {
            if let Err(failure) =
                runner.run(std::slice::from_ref(program), &schedules, options.last)
            {
                failed += 1;
                let name = path.file_stem().unwrap_or_default().to_string_lossy();
                let program = std::slice::from_ref(program);
                keep(
                    &runner.trace(),
                    &options,
                    &name,
                    program,
                    &schedules,
                    &failure,
                );
            }
        }
    }
    println!("{} kept programs, {failed} failures", kept.len());
    println!(
        "{} new programs, the first has seed {}",
        options.count, options.seed
    );
    let start = Instant::now();
    let seeds: Vec<u64> = (0..options.count as u64)
        .map(|at| options.seed + at)
        .collect();
    let (batches, done) = (Mutex::new(seeds.chunks(BATCH)), AtomicUsize::new(0));
    let failures = AtomicUsize::new(failed);
    let work = |number: usize| {
        let runner = Runner::new(&format!("random-{number}"));
        while start.elapsed() < options.limit {
            // The lock is not held while a batch runs.
            let next = batches
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .next();
            let Some(batch) = next else { break };
            let made = |&seed: &u64| (seed, generate(seed, options.size(seed, DEVICES)));
            let programs: Vec<(u64, Program)> = batch.iter().map(made).collect();
            for schedules in options.schedules(batch[0]) {
                let before = failures.load(Ordering::Relaxed);
                let more = run_batch(&runner, &options, &programs, &schedules, before);
                failures.fetch_add(more, Ordering::Relaxed);
            }
            done.fetch_add(batch.len(), Ordering::Relaxed);
        }
    };
    let at_once = std::thread::available_parallelism().map_or(1, |cores| cores.get());
    std::thread::scope(|scope| {
        for number in 0..at_once {
            scope.spawn({
                let work = &work;
                move || work(number)
            });
        }
    });
    let (mut failed, done) = (failures.into_inner(), done.into_inner());
    let seconds = start.elapsed().as_secs_f64();
    failed += find_planted(&runner, &options);
    println!(
        "{done} programs, {failed} failures; {seconds:.1} s, {:.1} programs a second",
        done as f64 / seconds
    );
    clean_up();
    match failed {
        0 => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    }
}

/// Writes programs for one device into one file: lines of `program SEED`, of its operations, and of
/// `expected` with what it prints.
fn write_programs(path: &Path, options: &Options) -> ExitCode {
    let mut text = String::new();
    for seed in (0..options.count as u64).map(|at| options.seed + at) {
        let program = generate(seed, options.size(seed, 1));
        let (operations, places) = program.text();
        let expected = expected(&program).expect("the generator makes correct programs");
        let printed = lines(&expected, &places);
        text += &format!("program {seed}\n{operations}");
        for line in printed.lines() {
            text += &format!("expected {line}\n");
        }
    }
    match fs::write(path, text) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{}: {error}", path.display());
            ExitCode::FAILURE
        }
    }
}

/// Programs with a mistake. How many mistakes are not found.
fn find_planted(runner: &Runner, options: &Options) -> usize {
    let seeds = options.seed..;
    let planted = seeds.filter_map(|seed| Some((seed, plant(seed, options.size(seed, DEVICES))?)));
    let mut missed = 0;
    for (seed, program) in planted.take(options.plants) {
        match runner.find_mistakes(&program, "eager") {
            Ok(rules) if !rules.is_empty() => {}
            result => {
                missed += 1;
                let (text, mistake) = (program.text().0, expected(&program).err());
                println!("== planted-{seed}: not found: {mistake:?}: {result:?}\n{text}");
            }
        }
    }
    println!("{} planted mistakes, {missed} not found", options.plants);
    missed
}

fn kept_programs() -> Vec<(PathBuf, Program)> {
    let folder = root().join("tests/random/kept");
    let entries = fs::read_dir(&folder).into_iter().flatten().flatten();
    let paths = entries.map(|entry| entry.path());
    let paths = paths.filter(|path| path.extension().is_some_and(|found| found == "json"));
    paths
        .map(|path| (path.clone(), read_program(&path)))
        .collect()
}

fn read_program(path: &Path) -> Program {
    let text = fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    serde_json::from_str(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// Runs programs together; if a property fails, each alone. How many failed.
fn run_batch(
    runner: &Runner,
    options: &Options,
    programs: &[(u64, Program)],
    schedules: &Schedules,
    failed_before: usize,
) -> usize {
    let all: Vec<Program> = programs
        .iter()
        .map(|(_, program)| program.clone())
        .collect();
    let Err(together) = runner.run(&all, schedules, options.last) else {
        return 0;
    };
    // What follows records into the same file.
    let trace = runner.trace().with_extension("together");
    let _ = fs::copy(runner.trace(), &trace);
    let mut failed = 0;
    for (seed, program) in programs {
        let alone = std::slice::from_ref(program);
        let Err(failure) = runner.run(alone, schedules, options.last) else {
            continue;
        };
        failed += 1;
        let (mut small, mut last) = (program.clone(), failure);
        if failed_before + failed <= options.shrinks {
            small = shrink(program, |candidate| {
                still_fails(runner, candidate, schedules, last.property)
            });
            let again = runner.run(std::slice::from_ref(&small), schedules, options.last);
            last = again.err().unwrap_or(last);
        }
        keep(
            &runner.trace(),
            options,
            &format!("seed-{seed}"),
            &[small],
            schedules,
            &last,
        );
    }
    if failed == 0 {
        failed = 1;
        let name = format!("seeds-{}-together", programs[0].0);
        keep(&trace, options, &name, &all, schedules, &together);
    }
    failed
}

fn still_fails(
    runner: &Runner,
    program: &Program,
    schedules: &Schedules,
    property: Property,
) -> bool {
    // Schedules with threads fail only sometimes.
    let attempts = if schedules.program == "lazy" { 1 } else { 2 };
    (0..attempts).any(|_| {
        let result = runner.run(std::slice::from_ref(program), schedules, property);
        result.is_err_and(|failure| failure.property == property)
    })
}

fn keep(
    trace: &Path,
    options: &Options,
    name: &str,
    programs: &[Program],
    schedules: &Schedules,
    failure: &Failure,
) {
    let schedule = schedules.program.split(':').next().unwrap_or_default();
    let name = format!("{name}-{schedule}-{:?}", failure.property).to_lowercase();
    println!(
        "== {name}: program {}, replay {}",
        schedules.program, schedules.replay
    );
    println!("{}", failure.message);
    fs::create_dir_all(&options.keep).expect("the folder can be made");
    for (at, program) in programs.iter().enumerate() {
        let (text, _) = program.text();
        let file = options.keep.join(format!("{name}.{at}"));
        let json = serde_json::to_string_pretty(program).expect("a program is data");
        fs::write(file.with_extension(format!("{at}.json")), json).expect("written");
        if programs.len() == 1 {
            println!("{text}");
        }
        fs::write(file.with_extension(format!("{at}.txt")), text).expect("written");
    }
    let _ = fs::copy(trace, options.keep.join(format!("{name}.cutape")));
    println!("kept in {}", options.keep.join(name).display());
}
