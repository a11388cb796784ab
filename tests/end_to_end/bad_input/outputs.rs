//! Outputs that cannot be written: every verb that writes a file or a folder refuses, and leaves
//! nothing behind. With `--overwrite` it replaces a file.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use cutape_tests::{Suite, Verdict, ending, parts, run, verbs};

use super::files::{NOBODY, as_user, contents, expect_refusal, is_root, sound};
use super::streams::commands;

/// A command with an output.
struct Writer {
    name: String,
    /// `OUT` is the output; there are `sound.cutape` and an executable `program`.
    words: String,
    /// Whether it replaces a file, as reports are.
    replaces: bool,
}

/// Beside a command for each verb with an output that `--overwrite` replaces.
const OTHER_WRITERS: &[(&str, &str)] = &[
    (
        "export-chrome",
        "export --format chrome sound.cutape -o OUT",
    ),
    (
        "export-perfetto",
        "export --format perfetto sound.cutape -o OUT",
    ),
    (
        "export-parquet",
        "export --format parquet sound.cutape -o OUT",
    ),
    ("minimize-test", "minimize --test true sound.cutape -o OUT"),
];

/// Other options write files of their own.
const REPORTS: &[(&str, &str)] = &[
    (
        "replay-report",
        "replay --driver null sound.cutape --report OUT",
    ),
    ("check-report", "check sound.cutape --report OUT"),
    ("check-baseline", "check sound.cutape --write-baseline OUT"),
    ("diff-report", "diff sound.cutape sound.cutape --report OUT"),
];

fn writers() -> Vec<Writer> {
    let of_verbs = verbs().iter().filter(|verb| verb.takes("--overwrite"));
    // `demo` looks for its program first, which is only where cutape is installed.
    let of_verbs = of_verbs.filter(|verb| verb.name != "demo");
    let of_verbs = of_verbs.filter_map(|verb| {
        let lines = verb.command_lines();
        // `check` writes a trace of a program only.
        let is_recorded = |line: &&String| line.contains("./program");
        let line = lines.iter().find(is_recorded).or(lines.first())?;
        let words = match line.contains("OUT") {
            true => line.clone(),
            false if verb.takes("--output") => {
                line.replacen(&verb.name, &format!("{} -o OUT", verb.name), 1)
            }
            // The output of another option.
            false => return None,
        };
        Some((verb.name.clone(), words, false))
    });
    let listed = |list: &[(&str, &str)], replaces| {
        let owned = list
            .iter()
            .map(|&(name, words)| (name.to_owned(), words.to_owned()));
        owned
            .map(|(name, words)| (name, words, replaces))
            .collect::<Vec<_>>()
    };
    of_verbs
        .chain(listed(OTHER_WRITERS, false))
        .chain(listed(REPORTS, true))
        .map(|(name, words, replaces)| Writer {
            name,
            words,
            replaces,
        })
        .collect()
}

/// A place where nothing can be written.
struct Place {
    name: &'static str,
    path: &'static str,
    /// What the message contains, beside the path.
    expected: &'static str,
}

const PLACES: &[Place] = &[
    Place {
        name: "exists",
        path: "text",
        expected: "it exists; choose another name, or replace it with --overwrite",
    },
    Place {
        name: "is-a-folder",
        path: "locked",
        expected: "",
    },
    Place {
        name: "folder-missing",
        path: "none/new",
        expected: "No such file or directory",
    },
    Place {
        name: "unwritable",
        path: "locked/new",
        expected: "ermission denied",
    },
];

pub(crate) fn add_to(suite: &mut Suite) {
    suite.test("outputs-are-private", outputs_are_private);
    for writer in writers() {
        let writer = Arc::new(writer);
        // The sound trace has neither images to extract nor findings to keep.
        let is_refused = ["extract", "minimize"].contains(&&*writer.name);
        if !writer.replaces && !is_refused {
            let name = format!("output/replaced/{}", writer.name);
            let writer = Arc::clone(&writer);
            suite.test(name, move |folder| replaced(folder, &writer));
        }
        for place in PLACES {
            if writer.replaces && place.name == "exists" {
                continue;
            }
            let name = format!("output/{}/{}", place.name, writer.name);
            let writer = Arc::clone(&writer);
            suite.test(name, move |folder| bad_output(folder, place, &writer));
        }
    }
}

/// With `--overwrite` an output replaces a file, also the trace that it is made from.
fn replaced(folder: &Path, writer: &Writer) -> Result<(), String> {
    fs::copy(ending(), folder.join("program")).map_err(|error| error.to_string())?;
    for name in ["text", "sound.cutape"] {
        sound(folder);
        fs::write(folder.join("text"), "a text\n").unwrap();
        let before = fs::read(folder.join(name)).unwrap();
        let words = writer.words.split(' ');
        let words = words.map(|word| if word == "OUT" { name } else { word });
        let (verb, options) = words.clone().next().zip(Some(words.skip(1))).unwrap();
        let mut command = Command::new(&parts().cutape);
        command.args([verb, "--overwrite"]).args(options);
        let output = run(command.current_dir(folder));
        output.expect_code(0)?;
        let after = folder.join(name);
        // A sound trace that is packed or repaired is the same again.
        let is_new = after.is_dir() || fs::read(&after).unwrap() != before;
        let files = fs::read_dir(folder).unwrap().count();
        if files != 3 || !(is_new || name == "sound.cutape") {
            return Err(format!("{name}, {files} files\n{}", output.describe()));
        }
        if after.is_dir() {
            fs::remove_dir_all(after).unwrap();
        }
    }
    Ok(())
}

fn bad_output(folder: &Path, place: &Place, writer: &Writer) -> Result<Verdict, String> {
    sound(folder);
    // Another user reads it.
    let mode = fs::Permissions::from_mode;
    fs::set_permissions(folder.join("sound.cutape"), mode(0o644)).unwrap();
    fs::write(folder.join("text"), "a text\n").unwrap();
    fs::copy(ending(), folder.join("program")).map_err(|error| error.to_string())?;
    let locked = folder.join("locked");
    fs::create_dir(&locked).unwrap();
    fs::set_permissions(&locked, mode(0o555)).unwrap();
    let before = (contents(folder), fs::read_dir(folder).unwrap().count());
    let words = writer.words.split(' ');
    let words = words.map(|word| if word == "OUT" { place.path } else { word });
    let mut command = Command::new(&parts().cutape);
    command.args(words).current_dir(folder);
    if is_root() {
        // Root may write everywhere, another user may not.
        if let Err(why) = as_user(NOBODY, &mut command, folder) {
            return Ok(Verdict::Ignored(why));
        }
    }
    let output = run(&mut command);
    // Of a trace to record, the folder is named.
    let named = place.path.split('/').next().unwrap_or_default();
    expect_refusal(&output, &[named, place.expected])?;
    let after = (contents(folder), fs::read_dir(folder).unwrap().count());
    if before != after || fs::read_dir(&locked).unwrap().count() > 0 {
        return Err(format!(
            "files were written or changed\n{}",
            output.describe()
        ));
    }
    Ok(Verdict::Passed)
}

/// What is written has the rights of a trace: none for others.
fn outputs_are_private(folder: &Path) -> Result<(), String> {
    sound(folder);
    fs::copy(ending(), folder.join("program")).map_err(|error| error.to_string())?;
    let others = OTHER_WRITERS.iter().chain(REPORTS);
    let others = others.map(|(_, words)| (*words).to_owned());
    let lines = commands().into_iter().chain(others);
    let mut written = 0;
    for (number, line) in lines.enumerate().filter(|(_, line)| line.contains("OUT")) {
        let new = folder.join(format!("new{number}"));
        let mut command = parts().cutape(&[]);
        command.args(line.split(' ').map(|word| match word {
            "OUT" => new.as_os_str(),
            word => word.as_ref(),
        }));
        let output = run(command.current_dir(folder));
        let Ok(found) = fs::metadata(&new) else {
            continue;
        };
        written += 1;
        if found.permissions().mode() & 0o077 != 0 && !line.starts_with("manual") {
            let mode = found.permissions().mode();
            return Err(format!("mode {mode:o}\n{}", output.describe()));
        }
    }
    match written {
        0..10 => Err(format!("only {written} outputs were written")),
        _ => Ok(()),
    }
}
