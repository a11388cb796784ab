//! Runs a program with another driver in place of the machine's, without recording it.

use std::ffi::OsString;
use std::path::Path;
use std::process::{Command, ExitStatus};

use cutape_terminal::failure::Failure;

use crate::backend::driver_variables;
use crate::library_folder::LibraryFolder;
use crate::program_file;
use crate::session::{spawn, wait_for};

/// Runs the program `words[0]` with that driver and these variables, and waits for its end. It gets
/// its arguments, files and signals as without cutape.
///
/// # Errors
/// If the program cannot be started with the driver.
pub fn run_with_driver(
    words: &[OsString],
    driver: &Path,
    variables: impl IntoIterator<Item = (String, OsString)>,
) -> Result<ExitStatus, Failure> {
    let Some(name) = words.first() else {
        return Err(Failure::unusable(
            "no program: give it and its arguments after --, e.g. `-- ./app 1 2`",
        ));
    };
    let program = match words {
        [only] => program_file::find_alone(only)?,
        _ => program_file::find(name)?,
    };
    program_file::check(&program, "play TRACE")?;
    let folder = LibraryFolder::new(driver)?;
    let mut command = Command::new(&program);
    command.args(words.iter().skip(1)).envs(variables);
    command.envs(driver_variables(&program, &folder)?);
    wait_for(&mut spawn(&mut command, &program)?)
}
