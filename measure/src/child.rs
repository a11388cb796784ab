//! The child process: runs criterion with the device's or the host's clock.

use std::cell::Cell;
use std::fs;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::panic::{self, AssertUnwindSafe};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use criterion::measurement::{Measurement, ValueFormatter};
use criterion::{Criterion, PlottingBackend, SamplingMode, Throughput};
use cutape_format::Trace;
use cutape_replay::{Clock, Job, Measuring, Options, Work};

use crate::error::Error;
use crate::measurement::{Benchmark, Change, Times, read_change, read_times};
use crate::replacement;
use crate::selection::Selection;
use crate::settings::{Comparison, RECORDED, Settings, folder_of};
use cutape_render::quantity::scaled;

/// Resamples of criterion's bootstrap. Its default takes ten times as long and changes only the
/// third digit of an interval.
const RESAMPLES: usize = 10_000;

/// The child's side of [`measure`](crate::measure()): measures, and reports through a pipe to its
/// parent. `tell` takes messages for the user. Returns the exit status for the process.
///
/// # Errors
/// If the settings do not fit the trace.
pub fn measure_as_child(
    trace: &Trace,
    settings: Settings,
    options: Options,
    tell: fn(&str),
) -> Result<i32, Error> {
    let selection = Selection::of(trace, &settings)?;
    let options = Options {
        keep_going: true,
        // Only `replay` compares returned bytes.
        timing: Measuring::Calls,
        until: selection.calls.last().map(|last| last + 1),
        ..options
    };
    let job = Job {
        calls: selection.calls.clone(),
        each: settings.by_kernel(),
        restore: settings.restore,
        replacements: selection.replacements.clone(),
        tolerance: replacement::tolerance(settings.tolerance.as_deref())?,
        recorded_too: settings.comparison == Comparison::AgainstRecorded,
        what_if: None,
    };
    let benchmarks = Arc::new(Mutex::new(Vec::new()));
    let bench = Bench {
        settings,
        selection,
        benchmarks: Arc::clone(&benchmarks),
    };
    let settings = bench.settings.clone();
    let measure = Box::new(move |subject, work: &mut Work<'_>| bench.measure(subject, work));
    let results = || {
        let silenced = (!settings.verbose).then(SilencedOutput::start);
        let summarised = match settings.plots {
            true => without_panic(|| criterion(&settings).final_summary()),
            false => Ok(()),
        };
        drop(silenced);
        if let Err(why) = summarised {
            tell(&format!(
                "the summary of the benchmarks is incomplete: {why}"
            ));
        }
        let benchmarks = benchmarks.lock().unwrap_or_else(PoisonError::into_inner);
        serde_json::to_value(&*benchmarks).unwrap_or_default()
    };
    Ok(cutape_replay::rerun_as_child(
        trace, &options, job, measure, &results,
    ))
}

/// Measures the subjects that the replay passes.
struct Bench {
    settings: Settings,
    selection: Selection,
    benchmarks: Arc<Mutex<Vec<Benchmark>>>,
}

impl Bench {
    /// One subject on each clock.
    fn measure(&self, subject: cutape_replay::Subject, work: &mut Work<'_>) -> Result<(), String> {
        let subjects = self.selection.subjects.iter();
        // A single subject of all calls may start after calls that are not repeated.
        let name = match self.settings.by_kernel() {
            true => subjects
                .into_iter()
                .find(|known| known.call == subject.call),
            false => self.selection.subjects.first(),
        };
        let name = name.map_or("unnamed", |known| known.name.as_str());
        for &clock in self.settings.clocks {
            let (times, change) = self.one(clock, name, subject.replaced, work)?;
            let mut benchmarks = self
                .benchmarks
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            benchmarks.push(Benchmark {
                clock,
                name: name.to_owned(),
                call: subject.call,
                is_replaced: subject.replaced,
                time: times.mean,
                median: times.median,
                mad: times.mad,
                samples: times.samples,
                change,
            });
        }
        Ok(())
    }

    fn one(
        &self,
        clock: Clock,
        name: &str,
        replaced: bool,
        work: &mut Work<'_>,
    ) -> Result<(Times, Option<Change>), String> {
        let group = folder_of(clock);
        let folder = self.settings.output.join(group).join(name);
        // Files of an earlier run must not pass for this one's.
        for part in ["new", "change"] {
            let _ = fs::remove_dir_all(folder.join(part));
        }
        let silenced = (!self.settings.verbose).then(SilencedOutput::start);
        let criterion = criterion(&self.settings);
        let (mut criterion, compared) = match &self.settings.comparison {
            Comparison::Save(baseline) => (criterion.save_baseline(baseline.clone()), false),
            Comparison::Against(baseline) => {
                (criterion.retain_baseline(baseline.clone(), false), true)
            }
            Comparison::AgainstRecorded if replaced => {
                (criterion.retain_baseline(RECORDED.to_owned(), false), true)
            }
            Comparison::AgainstRecorded => (criterion.save_baseline(RECORDED.to_owned()), false),
        };
        let mut failure = None;
        let samples = Cell::new(0u64);
        let measured = without_panic(|| {
            let mut benchmarks = criterion.benchmark_group(group);
            benchmarks.sampling_mode(SamplingMode::Flat);
            benchmarks.bench_function(name, |bencher| {
                bencher.iter_custom(|iterations| {
                    // After a failure, the remaining samples only let criterion finish.
                    if failure.is_some() {
                        std::thread::sleep(Duration::from_millis(1));
                        return 1.0;
                    }
                    match work.run(iterations, clock) {
                        Ok(nanoseconds) => jittered(nanoseconds, &samples),
                        Err(why) => {
                            failure = Some(why);
                            1.0
                        }
                    }
                });
            });
            benchmarks.finish();
        });
        drop(silenced);
        if let Some(why) = failure {
            return Err(why);
        }
        measured?;
        let times = read_times(&folder).ok_or_else(|| {
            format!(
                "criterion wrote no estimates to {}; check free space and permissions",
                folder.display()
            )
        })?;
        Ok((times, read_change(&folder).filter(|_| compared)))
    }
}

/// Runs criterion, which panics where it cannot write; returns the message of the panic.
fn without_panic(work: impl FnOnce()) -> Result<(), String> {
    let hook = panic::take_hook();
    panic::set_hook(Box::new(|_| {}));
    let outcome = panic::catch_unwind(AssertUnwindSafe(work));
    panic::set_hook(hook);
    outcome.map_err(|payload| {
        let text = payload.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| payload.downcast_ref::<&str>().copied());
        format!("criterion failed: {}", text.unwrap_or("without a message"))
    })
}

/// Varies a time in its ninth digit. Criterion cannot draw density plots of equal samples, which a
/// coarse clock gives, and does not analyse times of zero.
fn jittered(nanoseconds: f64, samples: &Cell<u64>) -> f64 {
    samples.set(samples.get() + 1);
    nanoseconds.max(1e-3) * (1.0 + 1e-9 * (samples.get() % 7) as f64)
}

/// Criterion, configured by the settings.
fn criterion(settings: &Settings) -> Criterion<Nanoseconds> {
    let plots = match settings.plots {
        true => PlottingBackend::Plotters,
        false => PlottingBackend::None,
    };
    Criterion::default()
        .with_measurement(Nanoseconds)
        .plotting_backend(plots)
        .with_output_color(false)
        .output_directory(&settings.output)
        .sample_size(settings.samples)
        .nresamples(RESAMPLES)
        .warm_up_time(Duration::from_secs_f64(settings.warm_up_seconds))
        .measurement_time(Duration::from_secs_f64(settings.measure_seconds))
}

/// Time in nanoseconds, of either clock.
#[derive(Clone, Copy, Debug)]
struct Nanoseconds;

impl Measurement for Nanoseconds {
    type Intermediate = Instant;
    type Value = f64;

    fn start(&self) -> Instant {
        Instant::now()
    }

    fn end(&self, begin: Instant) -> f64 {
        begin.elapsed().as_nanos() as f64
    }

    fn add(&self, one: &f64, other: &f64) -> f64 {
        one + other
    }

    fn zero(&self) -> f64 {
        0.0
    }

    fn to_f64(&self, value: &f64) -> f64 {
        *value
    }

    fn formatter(&self) -> &dyn ValueFormatter {
        self
    }
}

impl ValueFormatter for Nanoseconds {
    fn scale_values(&self, typical: f64, values: &mut [f64]) -> &'static str {
        let (scaled, unit) = scaled(typical);
        let factor = if typical > 0.0 { scaled / typical } else { 1.0 };
        for value in values {
            *value *= factor;
        }
        unit
    }

    fn scale_throughputs(
        &self,
        _typical: f64,
        _throughput: &Throughput,
        _values: &mut [f64],
    ) -> &'static str {
        // No benchmark here has a throughput.
        "ns"
    }

    fn scale_for_machines(&self, _values: &mut [f64]) -> &'static str {
        "ns"
    }
}

/// Redirects stdout and stderr to /dev/null until dropped: criterion has no quiet mode.
struct SilencedOutput {
    kept: Vec<(i32, OwnedFd)>,
}

impl SilencedOutput {
    fn start() -> Self {
        let mut kept = Vec::new();
        if let Ok(nowhere) = fs::OpenOptions::new()
            .write(true)
            .open(PathBuf::from("/dev/null"))
        {
            for descriptor in [libc::STDOUT_FILENO, libc::STDERR_FILENO] {
                // SAFETY: the descriptors are open, and the copy has no other owner.
                unsafe {
                    let copy = libc::fcntl(descriptor, libc::F_DUPFD_CLOEXEC, 3);
                    if copy < 0 {
                        continue;
                    }
                    kept.push((descriptor, OwnedFd::from_raw_fd(copy)));
                    libc::dup2(nowhere.as_raw_fd(), descriptor);
                }
            }
        }
        Self { kept }
    }
}

impl Drop for SilencedOutput {
    fn drop(&mut self) {
        for (descriptor, copy) in &self.kept {
            // SAFETY: both descriptors are open.
            unsafe { libc::dup2(copy.as_raw_fd(), *descriptor) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_scaled_by_the_typical_one() {
        let mut values = [1_500.0, 3_000_000.0];
        assert_eq!(Nanoseconds.scale_values(2_000.0, &mut values), "us");
        assert_eq!(values, [1.5, 3000.0]);
        assert_eq!(Nanoseconds.scale_values(0.0, &mut [0.0]), "ns");
    }

    #[test]
    fn samples_of_a_coarse_clock_differ_a_little() {
        let samples = Cell::new(0);
        let (one, two) = (jittered(2048.0, &samples), jittered(2048.0, &samples));
        assert!(one != two && (one - two).abs() < 1e-5);
        assert!(jittered(0.0, &samples) > 0.0);
    }
}
