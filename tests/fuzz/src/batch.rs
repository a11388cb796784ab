//! Many inputs for a reader in a process of its own: one that dies costs no more than an input.

use std::fs::{self, File};
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use cutape_tests::run_within;
use rustix::time::{ClockId, clock_gettime};

use crate::corpus::Corpus;
use crate::in_process::InputFile;
use crate::target::{Target, how_it_ended, limit_memory};

/// How long a batch may take, on a busy machine. It usually takes a few seconds.
const LIMIT: Duration = Duration::from_secs(180);
/// Bytes of memory that no reader of such small inputs needs.
const MEMORY: u64 = 1 << 30;

/// What has been read.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    /// Inputs.
    pub executions: u64,
    /// Those that were not refused as unusable.
    pub taken: u64,
    /// The time that they took: of the processor, for readers in the process.
    pub time: Duration,
    /// The longest that one took.
    pub slowest: Duration,
    /// The seed of that one.
    pub slowest_seed: u64,
}

impl Counts {
    /// An input was read.
    pub fn add(&mut self, seed: u64, is_taken: bool, time: Duration) {
        let one = Self {
            executions: 1,
            taken: is_taken.into(),
            time,
            slowest: time,
            slowest_seed: seed,
        };
        self.join(one);
    }

    /// Adds what others have read.
    pub fn join(&mut self, other: Self) {
        self.executions += other.executions;
        self.taken += other.taken;
        self.time += other.time;
        if other.slowest > self.slowest {
            (self.slowest, self.slowest_seed) = (other.slowest, other.slowest_seed);
        }
    }
}

/// A worker's file: the seed that it reads, and what it has read before.
struct Status(File);

impl Status {
    const LENGTH: usize = 48;

    fn write(&self, seed: u64, counts: &Counts) -> io::Result<()> {
        let numbers = [
            seed,
            counts.executions,
            counts.taken,
            counts.time.as_nanos() as u64,
            counts.slowest.as_nanos() as u64,
            counts.slowest_seed,
        ];
        let bytes = numbers.map(u64::to_le_bytes);
        self.0.write_all_at(bytes.as_flattened(), 0)
    }

    /// `None` if the worker has not begun.
    fn read(path: &Path) -> Option<(u64, Counts)> {
        let bytes: [u8; Self::LENGTH] = fs::read(path).ok()?.try_into().ok()?;
        let (numbers, _) = bytes.as_chunks();
        let number = |at: usize| u64::from_le_bytes(numbers[at]);
        let counts = Counts {
            executions: number(1),
            taken: number(2),
            time: Duration::from_nanos(number(3)),
            slowest: Duration::from_nanos(number(4)),
            slowest_seed: number(5),
        };
        Some((number(0), counts))
    }
}

/// The part of a worker: reads the inputs of these seeds, and writes each to the file first.
///
/// # Errors
/// If the file cannot be written.
pub fn work(target: &Target, corpus: &Corpus, seeds: Range<u64>, file: &Path) -> io::Result<()> {
    keep_freed_memory();
    stay_on_one_processor();
    let status = Status(File::create(file)?);
    let place = InputFile::new()?;
    let mut counts = Counts::default();
    for seed in seeds.clone() {
        status.write(seed, &counts)?;
        let start = processor_time();
        let (input, _) = target.input(corpus, seed);
        let is_taken = target.read_here(&input, &place);
        counts.add(seed, is_taken, processor_time().saturating_sub(start));
    }
    status.write(seeds.end, &counts)
}

/// What this process has used: on a busy machine an input takes longer.
fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Memory that an input needs, the next one needs too: giving it back would take most of the time.
fn keep_freed_memory() {
    let most = MEMORY as i32;
    // SAFETY: no other thread exists yet; the calls set parameters of the allocator.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, most);
        libc::mallopt(libc::M_TRIM_THRESHOLD, most);
    }
}

/// Readers then start no threads, which would take most of the time: jobs use all processors.
fn stay_on_one_processor() {
    // SAFETY: the set is a bit mask, of which 0 is a value; it is valid while the calls last.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(libc::sched_getcpu().max(0) as usize, &mut set);
        // If it fails, threads are started.
        libc::sched_setaffinity(0, size_of_val(&set), &raw const set);
    }
}

/// Has a worker read the inputs of these seeds. Returns what it has read, and the seed at which it
/// ended with the way in which it did, unless it has read all.
///
/// # Errors
/// If it could not begin.
pub fn read(
    target: &Target,
    root: &Path,
    seeds: Range<u64>,
    folder: &Path,
) -> Result<(Counts, Option<(u64, String)>), String> {
    let file = folder.join("seed");
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let mut command = Command::new(program);
    let count = seeds.end - seeds.start;
    command
        .args(["--target", target.name, "--seed", &seeds.start.to_string()])
        .args(["--executions", &count.to_string(), "--root"])
        .arg(root)
        .arg("--worker")
        .arg(&file);
    limit_memory(&mut command, MEMORY);
    let output = run_within(&mut command, LIMIT);
    let Some((seed, counts)) = Status::read(&file) else {
        return Err(how_it_ended(&output));
    };
    let failure = (output.code() != Some(0)).then(|| (seed, how_it_ended(&output)));
    Ok((counts, failure))
}
