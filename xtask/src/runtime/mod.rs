//! `runtime`: programs of the CUDA runtime, compiled for CUDA 13 and 12, linked statically and with
//! the shared library, and run on the null driver: bare, recorded, checked, replayed.
//!
//! The null driver runs no kernels, so what a program computes is wrong, but it is the same bare and
//! recorded.

mod program;
mod toolkit;

use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use crate::parts::replace_folder;
use crate::step::{self, cargo, run};
use crate::{Failure, files};
use program::{Outcome, STEPS, Tools};

const PROGRAMS: &str = "tests/gpu/programs";
/// Libraries that are too large for a test of every change.
const LEFT_OUT: [&str; 1] = ["cufft_callback"];

/// Whether the compiler is installed; installs it if it is missing.
pub(crate) fn install(root: &Path) -> Result<(), Failure> {
    toolkit::install(root).map(|_| ())
}

/// Runs the programs whose names contain one of the words; all of them without words.
pub(crate) fn test(root: &Path, words: &[&str]) -> Result<(), Failure> {
    // One by one: in one build the interposer would get features that only readers need.
    for package in [
        "cutape",
        "cutape-interposer",
        "cutape-audit",
        "cutape-nulldriver",
    ] {
        run(cargo(root, "build -q -p").arg(package))?;
    }
    let built = step::target(root).join("debug");
    let toolkits = toolkit::toolkits(root, &built.join("libcutape_null.so"))?;
    let results = step::target(root).join("runtime/results");
    replace_folder(&results)?;
    let sources = files::list(&root.join(PROGRAMS));
    let is_wanted = |name: &str| {
        let is_named = words.iter().any(|word| name.contains(word));
        match words.is_empty() {
            true => !LEFT_OUT.contains(&name),
            false => is_named,
        }
    };
    let mut jobs = Vec::new();
    for source in &sources {
        let name = files::name(source);
        if let Some(name) = name.strip_suffix(".cu")
            && is_wanted(name)
        {
            jobs.extend(toolkits.iter().map(|toolkit| (source, toolkit)));
        }
    }
    let tools = Tools {
        cutape: built.join("cutape"),
        programs: step::target(root).join("runtime/programs"),
        results,
    };
    files::make_folder(&tools.programs)?;
    let next = AtomicUsize::new(0);
    let outcomes = Mutex::new(Vec::new());
    let work = || {
        while let Some(&(source, toolkit)) = jobs.get(next.fetch_add(1, Ordering::Relaxed)) {
            let of_job = tools.test(source, toolkit);
            for outcome in &of_job {
                println!("{}", outcome.line());
            }
            if let Ok(mut outcomes) = outcomes.lock() {
                outcomes.extend(of_job);
            }
        }
    };
    println!("{}", Outcome::header());
    let workers = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(work);
        }
    });
    let outcomes = outcomes.into_inner().unwrap_or_default();
    report(&outcomes)
}

/// Prints how many programs got how far, and why the others did not.
fn report(outcomes: &[Outcome]) -> Result<(), Failure> {
    println!();
    for (index, step) in STEPS.iter().enumerate() {
        let passed = outcomes.iter().filter(|outcome| outcome.passed[index]);
        println!("{step:<9} {:>3} of {}", passed.count(), outcomes.len());
    }
    let failed: Vec<_> = outcomes
        .iter()
        .filter_map(|outcome| Some((outcome, outcome.problem.as_ref()?)))
        .collect();
    for (outcome, problem) in &failed {
        println!("\n{}: {problem}", outcome.name);
    }
    match (failed.len(), outcomes.len()) {
        (_, 0) => Err(failure!("no program of {PROGRAMS} has such a name")),
        (0, _) => Ok(()),
        (count, all) => Err(failure!("{count} of {all} programs failed")),
    }
}
