//! Reads the profile that other verbs show beside a trace.

use std::fs::File;
use std::path::Path;

use cutape_profile::Profile;
use cutape_terminal::failure::Failure;

/// What `cutape profile --format json` wrote.
///
/// # Errors
/// If the file is something else.
pub(crate) fn read(path: &Path) -> Result<Profile, Failure> {
    let fail = |why: String| {
        Failure::unusable(format!(
            "--profile {}: {why}; give what `cutape profile TRACE --format json -o FILE` wrote",
            path.display()
        ))
    };
    let file = File::open(path).map_err(|error| fail(error.to_string()))?;
    Profile::read(file).map_err(|error| fail(error.to_string()))
}
