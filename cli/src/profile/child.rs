//! What the guarded children of `profile` get, and what is noted of their replays.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use cutape_measure::find_cupti;
use cutape_profile::Profile;
use cutape_replay::Report;
use cutape_terminal::failure::Failure;
use cutape_terminal::library;
use cutape_terminal::message;

/// The hidden verb of the guarded child.
pub(crate) const CHILD: &str = "profile-child";

/// The options that every child gets.
pub(super) fn hidden(driver: &Path, cupti: Option<&Path>) -> Vec<OsString> {
    let mut hidden = vec!["--child-driver".into(), driver.as_os_str().to_owned()];
    if let Some(cupti) = cupti {
        hidden.extend(["--child-cupti".into(), cupti.as_os_str().to_owned()]);
    }
    hidden
}

/// CUPTI's path; `None` for events.
pub(crate) fn cupti(given: Option<&Path>, driver: &Path) -> Result<Option<PathBuf>, Failure> {
    match given {
        Some(path) if path == Path::new("none") => Ok(None),
        Some(path) => {
            let found = path.canonicalize();
            let found = found.map_err(|error| {
                Failure::unusable(format!(
                    "--cupti {}: {error}; give the path of libcupti.so, or `none`",
                    path.display()
                ))
            });
            found.map(Some)
        }
        // CUPTI knows NVIDIA's driver alone.
        None if library::is_null_driver(driver) => Ok(None),
        None => Ok(find_cupti()
            .inspect_err(|missing| message!("CUPTI was not found: {missing}; using events"))
            .ok()),
    }
}

/// Notes where a replay did other than the recording, since its times are then of other work.
pub(super) fn note_differences<'r>(
    reports: impl IntoIterator<Item = &'r Report>,
    profile: &mut Profile,
) {
    for report in reports {
        let skipped: u64 = report.skipped.iter().map(|skipped| skipped.count).sum();
        for (count, what) in [
            (
                report.divergence_count,
                "calls returned something else than recorded: `cutape replay` says what",
            ),
            (
                skipped,
                "calls were not re-issued: `cutape replay` says why",
            ),
        ] {
            if count > 0 {
                profile.notes.insert(format!("{count} {what}"), 1);
            }
        }
    }
}
