//! Every verb where the system starts no more threads or processes: it goes on in one thread, or
//! says what it could not start.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use cutape_format::Trace;
use cutape_tests::{Suite, Verdict, ending, parts, run, verbs};

use super::files::{as_user, is_root, sound};
use super::streams::QUICK;

/// The program ends with status 3.
const RECORD: &str = "record --driver null -o whole.cutape -- ./program exit 10";

/// A user for each command, whose processes are no others'.
static USER: AtomicU32 = AtomicU32::new(50_000);

pub(crate) fn add_to(suite: &mut Suite) {
    for verb in verbs() {
        let lines = verb.command_lines();
        suite.test(format!("threads/{}", verb.name), move |folder| {
            let options = if verb.name == "bench" { QUICK } else { "" };
            lines.iter().try_fold(Verdict::Passed, |_, line| {
                // None beside the first; one, which may be a child.
                few(folder, 1, &format!("{line}{options}"))?;
                few(folder, 2, &format!("{line}{options}"))
            })
        });
    }
    suite.test("threads/record-packs", |folder| {
        let verdict = few(folder, 2, RECORD)?;
        if matches!(verdict, Verdict::Passed) {
            let trace = Trace::open(&folder.join("whole.cutape"));
            let trace = trace.map_err(|error| error.to_string())?;
            if trace.meta_value("exit.status") != Some("3") {
                return Err("the trace is not packed".to_owned());
            }
        }
        Ok(verdict)
    });
}

/// Runs a command as a user who may have that many threads and processes.
fn few(folder: &Path, most: u32, line: &str) -> Result<Verdict, String> {
    if !is_root() {
        return Ok(Verdict::Ignored(
            "the limit is one of another user".to_owned(),
        ));
    }
    sound(folder);
    fs::copy(ending(), folder.join("program")).map_err(|error| error.to_string())?;
    let new = format!("new{most}.cutape");
    let words = line.split(' ').map(|word| match word {
        "OUT" => &new,
        word => word,
    });
    let mut command = Command::new("prlimit");
    command.arg(format!("--nproc={most}")).arg(&parts().cutape);
    command.args(words).current_dir(folder);
    if let Err(why) = as_user(USER.fetch_add(1, Ordering::Relaxed), &mut command, folder) {
        return Ok(Verdict::Ignored(why));
    }
    let output = run(&mut command);
    let is_sound = match output.code() {
        Some(3) => line == RECORD,
        code => matches!(code, Some(0..=2)) && line != RECORD,
    };
    if !is_sound || output.stderr.contains("panicked") || output.stderr.contains("bug in cutape") {
        return Err(output.describe());
    }
    Ok(Verdict::Passed)
}
