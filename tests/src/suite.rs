//! The tests of one binary as a list: each gets a folder of its own, and one that cannot run here
//! is shown as ignored, with the reason. A failed test keeps its traces, and its message says how
//! to see them.

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};
use std::thread::available_parallelism;
use std::time::{Duration, Instant};

use libtest_mimic::{Arguments, Completion, Failed, Trial};

use crate::parts::{clean_up, parts};

/// At most this many traces of a failed test are kept, none larger than this.
const MOST_TRACES: usize = 8;
const LARGEST_TRACE: u64 = 64 << 20;

/// After at least this many tests the slowest are listed.
const MANY: usize = 100;
const SLOWEST: usize = 20;

/// How long each test took.
static TIMES: Mutex<Vec<(Duration, String)>> = Mutex::new(Vec::new());

/// How a test ended that did not fail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It ran.
    Passed,
    /// It cannot run on this machine: why.
    Ignored(String),
}

/// What a test may return; it may also panic.
pub trait Outcome {
    /// The verdict, or what is wrong.
    ///
    /// # Errors
    /// The message of a failed test.
    fn verdict(self) -> Result<Verdict, String>;
}

impl Outcome for () {
    fn verdict(self) -> Result<Verdict, String> {
        Ok(Verdict::Passed)
    }
}

impl Outcome for Verdict {
    fn verdict(self) -> Result<Verdict, String> {
        Ok(self)
    }
}

impl Outcome for Result<(), String> {
    fn verdict(self) -> Result<Verdict, String> {
        self.map(|()| Verdict::Passed)
    }
}

impl Outcome for Result<Verdict, String> {
    fn verdict(self) -> Result<Verdict, String> {
        self
    }
}

/// The tests of one binary.
#[derive(Debug)]
pub struct Suite {
    arguments: Arguments,
    /// What names of tests begin with.
    group: &'static str,
    trials: Vec<Trial>,
}

impl Suite {
    /// An empty suite, with the arguments of the command line.
    #[expect(
        clippy::new_without_default,
        reason = "it reads the command line, which a default value does not"
    )]
    pub fn new() -> Self {
        Self {
            arguments: Arguments::from_args(),
            group: "",
            trials: Vec::new(),
        }
    }

    /// Adds the tests of a group, whose names begin with its name.
    pub fn group(&mut self, name: &'static str, add_to: fn(&mut Self)) -> &mut Self {
        self.group = name;
        add_to(self);
        self
    }

    /// Adds a test; it is given a new, empty folder.
    pub fn test<R: Outcome>(
        &mut self,
        name: impl Into<String>,
        test: impl FnOnce(&Path) -> R + Send + 'static,
    ) -> &mut Self {
        let name = format!("{}/{}", self.group, name.into());
        self.trials
            .push(Trial::ignorable_test(name.clone(), move || {
                let start = Instant::now();
                let outcome = run(name.clone(), test);
                let mut times = TIMES.lock().unwrap_or_else(PoisonError::into_inner);
                times.push((start.elapsed(), name));
                drop(times);
                match outcome {
                    Ok(Verdict::Passed) => Ok(Completion::Completed),
                    Ok(Verdict::Ignored(why)) => Ok(Completion::ignored_with(why)),
                    Err(message) => Err(Failed::from(message)),
                }
            }));
        self
    }

    /// Runs the tests that the command line asks for.
    pub fn run(mut self) -> ExitCode {
        // A shell without job control starts background jobs so that they ignore it, and what they
        // start.
        // SAFETY: the default action has no handler.
        unsafe { libc::signal(libc::SIGINT, libc::SIG_DFL) };
        // Each test waits for other processes most of the time.
        let processors = available_parallelism().map_or(1, usize::from);
        self.arguments.test_threads.get_or_insert(2 * processors);
        let conclusion = libtest_mimic::run(&self.arguments, self.trials);
        clean_up();
        print_slowest();
        conclusion.exit_code()
    }
}

fn print_slowest() {
    let mut times = TIMES.lock().unwrap_or_else(PoisonError::into_inner);
    if times.len() < MANY {
        return;
    }
    times.sort_by(|one, other| other.cmp(one));
    println!("the slowest of {} tests:", times.len());
    for (time, name) in times.iter().take(SLOWEST) {
        println!("{:8.1} s {name}", time.as_secs_f64());
    }
    println!();
}

fn run<R: Outcome>(name: String, test: impl FnOnce(&Path) -> R) -> Result<Verdict, String> {
    let folder = parts().new_folder(&file_name(&name));
    let outcome = catch_unwind(AssertUnwindSafe(|| test(&folder).verdict()));
    let message = match outcome {
        Ok(Ok(Verdict::Passed)) => {
            let _ = fs::remove_dir_all(&folder);
            return Ok(Verdict::Passed);
        }
        Ok(Ok(ignored)) => return Ok(ignored),
        Ok(Err(message)) => message,
        Err(panic) => {
            let text = panic.downcast_ref::<String>().cloned();
            text.or_else(|| panic.downcast_ref::<&str>().map(|&text| text.to_owned()))
                .unwrap_or_else(|| "the test panicked".to_owned())
        }
    };
    Err(message + &keep_traces(&name, &traces_in(&folder)))
}

/// A name of a folder or file for a test.
pub(crate) fn file_name(test: &str) -> String {
    test.chars()
        .map(|c| match c {
            '/' => '.',
            c if c.is_ascii_alphanumeric() || "-_.".contains(c) => c,
            _ => '-',
        })
        .collect()
}

/// The traces in a folder and its subfolders.
fn traces_in(folder: &Path) -> Vec<PathBuf> {
    let mut traces = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            let path = entry.path();
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => folders.push(path),
                Ok(kind) if kind.is_file() && path.extension().is_some_and(|e| e == "cutape") => {
                    traces.push(path);
                }
                _ => {}
            }
        }
    }
    traces.sort();
    traces
}

/// Copies traces to where they outlive the run; the lines that say how to see them.
pub(crate) fn keep_traces(test: &str, traces: &[PathBuf]) -> String {
    let failed = &parts().failed;
    if fs::create_dir_all(failed).is_err() {
        return String::new();
    }
    let mut text = String::new();
    for trace in traces.iter().take(MOST_TRACES) {
        let name = trace.file_name().unwrap_or_default().to_string_lossy();
        let kept = failed.join(format!("{}.{name}", file_name(test)));
        let is_small = fs::metadata(trace).is_ok_and(|found| found.len() <= LARGEST_TRACE);
        if is_small && fs::copy(trace, &kept).is_ok() {
            let cutape = parts().cutape.display();
            text += &format!("\nto see the calls: {cutape} dump {}", kept.display());
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_file_names() {
        for (name, expected) in [
            ("clean/events/bare", "clean.events.bare"),
            ("gum: dlopen(\"libcuda.so\")", "gum--dlopen--libcuda.so--"),
        ] {
            assert_eq!(file_name(name), expected);
        }
    }

    #[test]
    fn a_failed_test_says_how_to_see_its_traces() {
        let ignored = Verdict::Ignored("why".to_owned());
        type Test = fn(&Path) -> Result<Verdict, String>;
        let outcomes: [(&str, Test, Result<Verdict, &str>); 4] = [
            ("passed", |_| Ok(Verdict::Passed), Ok(Verdict::Passed)),
            (
                "ignored",
                |_| Ok(Verdict::Ignored("why".to_owned())),
                Ok(ignored),
            ),
            ("failed", |_| Err("wrong".to_owned()), Err("wrong")),
            ("panicked", |_| panic!("wrong {}", 1), Err("wrong 1")),
        ];
        for (name, outcome, expected) in outcomes {
            let name = format!("suite {name}");
            let received = run(name.clone(), |folder| {
                fs::create_dir(folder.join("below")).unwrap();
                fs::write(folder.join("below/a.cutape"), "a trace").unwrap();
                outcome(folder)
            });
            let expected = match expected {
                Ok(verdict) => {
                    assert_eq!(received, Ok(verdict));
                    continue;
                }
                Err(message) => message,
            };
            let message = received.unwrap_err();
            let kept = parts().failed.join(file_name(&name) + ".a.cutape");
            assert!(message.starts_with(expected), "{message}");
            assert!(message.contains(&format!("dump {}", kept.display())));
            assert_eq!(fs::read(&kept).unwrap(), b"a trace");
            fs::remove_file(kept).unwrap();
        }
    }
}
