//! Every verb with a stdout or stderr that is full or closed: an exit status, never a panic.

use std::fs;
use std::path::Path;
use std::process::Command;

use cutape_tests::{Suite, ending, parts, run, verbs};

use super::files::sound;

/// Beside a command line for each usage of a verb. There are `sound.cutape` and an executable
/// `program`; `OUT` is new for each command.
const OTHER_COMMANDS: &[&str] = &[
    "--log trace record --driver null -o OUT -- ./program end",
    "record --driver null -o OUT -- ./program none",
    "replay --driver null sound.cutape --format json",
    "--log trace replay --driver null sound.cutape",
    "check sound.cutape --format sarif",
    "sound.cutape",
    "--help",
    "--nonsense",
];

/// Options without which `bench` takes long.
pub(crate) const QUICK: &str = " --output OUT --verbose --no-plots --samples 10 --measure-seconds 0.1 \
                     --warm-up-seconds 0.1";

pub(crate) fn commands() -> Vec<String> {
    let lines = verbs().iter().flat_map(|verb| {
        let options = if verb.name == "bench" { QUICK } else { "" };
        verb.command_lines()
            .into_iter()
            .map(move |line| line + options)
    });
    lines
        .chain(OTHER_COMMANDS.iter().map(|&line| line.to_owned()))
        .collect()
}

/// What a shell does to the streams of `"$@"`; it exits with the status of that command.
const STREAMS: &[(&str, &str)] = &[
    ("stdout-full", r#""$@" >/dev/full"#),
    ("stderr-full", r#""$@" 2>/dev/full"#),
    ("both-full", r#""$@" >/dev/full 2>/dev/full"#),
    ("stdout-closed", r#""$@" >&-"#),
    ("stderr-closed", r#""$@" 2>&-"#),
    ("all-closed", r#""$@" <&- >&- 2>&-"#),
    ("reader-gone", r#""$@" 2>&1 | true; exit ${PIPESTATUS[0]}"#),
];

pub(crate) fn add_to(suite: &mut Suite) {
    for &(name, line) in STREAMS {
        suite.test(format!("streams/{name}"), move |folder| {
            every_verb(folder, line)
        });
    }
}

fn every_verb(folder: &Path, line: &str) -> Result<(), String> {
    sound(folder);
    fs::copy(ending(), folder.join("program")).map_err(|error| error.to_string())?;
    for (number, name) in commands().iter().enumerate() {
        let new = format!("new{number}.cutape");
        let words = name.split(' ').map(|word| match word {
            "OUT" => &new,
            word => word,
        });
        let mut command = Command::new("bash");
        command.args(["-c", line, "bash"]).arg(&parts().cutape);
        command.args(words).current_dir(folder);
        // The null driver prints lines of its own: of a setting, of a call that fails.
        let is_recorded = name.contains("record ");
        let fails = if is_recorded {
            "cuCtxSynchronize@1=1,none"
        } else {
            "none"
        };
        command
            .env("CUTAPE_NULL_LOG", "1")
            .env("CUTAPE_NULL_FAIL", fails);
        let output = run(&mut command);
        // A recorded program ends by SIGPIPE where nobody reads what it prints.
        let is_sound = match output.code() {
            Some(141) => is_recorded && line.contains("PIPESTATUS"),
            code => matches!(code, Some(0..=2)),
        };
        let text = format!("{}{}", output.stdout, output.stderr);
        if !is_sound || text.contains("panicked") || text.contains("cutape: bug in cutape") {
            return Err(output.describe());
        }
    }
    Ok(())
}
