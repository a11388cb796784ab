//! `runtime`: programs of the CUDA runtime, compiled for CUDA 13 and 12, linked statically and with
//! the shared library, and run on the null driver: bare, recorded, checked, replayed.

mod program;
mod toolkit;

use std::path::Path;

use crate::null_driver::{Tools, is_wanted, test_all};
use crate::{Failure, files, step};

const PROGRAMS: &str = "tests/gpu/programs";
/// Libraries that are too large for a test of every change.
const LEFT_OUT: [&str; 1] = ["cufft_callback"];

/// Whether the compiler is installed; installs it if it is missing.
pub(crate) fn install(root: &Path) -> Result<(), Failure> {
    toolkit::install(root).map(|_| ())
}

/// Runs the programs whose names contain one of the words; all of them without words.
pub(crate) fn test(root: &Path, words: &[&str]) -> Result<(), Failure> {
    let target = step::target(root).join("runtime");
    let tools = Tools::build(root, target.join("results"))?;
    let toolkits = toolkit::toolkits(root, &tools.null_driver)?;
    let programs = target.join("programs");
    files::make_folder(&programs)?;
    let sources = files::list(&root.join(PROGRAMS));
    let mut jobs = Vec::new();
    for source in &sources {
        if let Some(name) = files::name(source).strip_suffix(".cu")
            && is_wanted(name, words)
            && !(words.is_empty() && LEFT_OUT.contains(&name))
        {
            jobs.extend(toolkits.iter().map(|toolkit| (source, toolkit)));
        }
    }
    test_all("program, toolkit, runtime", &jobs, |&(source, toolkit)| {
        program::test(&tools, &programs, source, toolkit)
    })
}
