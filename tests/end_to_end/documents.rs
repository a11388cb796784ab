//! The commands that the documentation shows do what it shows: README.md and the pages in `docs/`.
//! The generated pages (`docs/rules`, `docs/not-replayed.md`) have no commands.
//!
//! `UPDATE_DOCS=1` writes the output of this run into the pages where it differs.

use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::{env, fs};

use cutape_tests::documents::{Counts, Page, PageRun};
use cutape_tests::{Suite, root};

static TOTAL: Mutex<Counts> = Mutex::new(Counts {
    compared: 0,
    scripts: 0,
    not_run: 0,
    lacking: 0,
    parsed: 0,
});

pub(crate) fn add_to(suite: &mut Suite) {
    for page in pages() {
        let name = page.strip_prefix(root()).unwrap_or(&page);
        suite.test(name.display().to_string(), {
            let page = page.clone();
            move |folder| run(&page, folder)
        });
    }
}

/// Prints how much of the pages was run.
pub(crate) fn print_total() {
    let total = TOTAL.lock().map(|total| *total).unwrap_or_default();
    println!(
        "{} commands with output and {} blocks without were run; {} blocks were not run, as their \
         pages say, and {} because a program is not installed; {} command lines were parsed",
        total.compared, total.scripts, total.not_run, total.lacking, total.parsed
    );
}

/// README.md and the pages below `docs`, without `docs/rules`.
fn pages() -> Vec<PathBuf> {
    let mut pages = vec![root().join("README.md")];
    let mut folders = vec![root().join("docs")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.is_dir() && !path.ends_with("docs/rules") {
                folders.push(path);
            } else if path.extension().is_some_and(|found| found == "md") {
                pages.push(path);
            }
        }
    }
    pages.sort();
    pages
}

fn run(path: &Path, folder: &Path) -> Result<(), String> {
    let page = Page::read(path)?;
    let run = PageRun::new(&page, folder)?;
    if let Ok(mut total) = TOTAL.lock() {
        total.compared += run.counts.compared;
        total.scripts += run.counts.scripts;
        total.not_run += run.counts.not_run;
        total.lacking += run.counts.lacking;
        total.parsed += run.counts.parsed;
    }
    if run.wrong.is_empty() {
        return Ok(());
    }
    if env::var_os("UPDATE_DOCS").is_some() {
        fs::write(path, run.corrected).map_err(|error| format!("{}: {error}", path.display()))?;
    }
    Err(format!(
        "{}; UPDATE_DOCS=1 writes the output of this run into the page\n",
        run.wrong.join("\n\n")
    ))
}
