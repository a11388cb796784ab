//! Reads the profile that other verbs show beside a trace.

use std::fs::File;
use std::path::Path;

use cutape_format::Trace;
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

/// # Errors
/// If a call of the profile is of another function in the trace.
pub(crate) fn expect_of(profile: &Profile, trace: &Trace) -> Result<(), Failure> {
    let mut calls = trace.calls();
    let expected = calls.try_for_each(|call| profile.expect(call.index, &call.signature.name));
    expected.map_err(|error| Failure::unusable(format!("--profile: {error}")))
}
