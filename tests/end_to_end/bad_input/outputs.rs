//! Outputs that cannot be written: every verb that writes a file or a folder refuses, and leaves
//! nothing behind. With `--overwrite` it replaces a file.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use cutape_tests::{Suite, Verdict, ending, parts, run};

use super::files::{as_nobody, contents, expect_refusal, is_root, sound};

/// A verb with an output.
struct Writer {
    name: &'static str,
    /// `OUT` is the output; there are `sound.cutape` and an executable `program`.
    words: &'static str,
    /// Whether it replaces a file, as reports are.
    replaces: bool,
}

const WRITERS: &[Writer] = &[
    new("record", "record --driver null -o OUT -- ./program end"),
    new(
        "check-program",
        "check --driver null -o OUT -- ./program end",
    ),
    new("report", "report sound.cutape -o OUT"),
    new("export-jsonl", "export --format jsonl sound.cutape -o OUT"),
    new(
        "export-chrome",
        "export --format chrome sound.cutape -o OUT",
    ),
    new(
        "export-perfetto",
        "export --format perfetto sound.cutape -o OUT",
    ),
    new(
        "export-parquet",
        "export --format parquet sound.cutape -o OUT",
    ),
    new("extract-images", "extract --images sound.cutape OUT"),
    new("pack", "pack sound.cutape -o OUT"),
    new("trim", "trim --last 1 sound.cutape -o OUT"),
    new("minimize", "minimize --test true sound.cutape -o OUT"),
    new("repair", "repair sound.cutape -o OUT"),
    report(
        "replay-report",
        "replay --driver null sound.cutape --report OUT",
    ),
    report("check-report", "check sound.cutape --report OUT"),
    report("check-baseline", "check sound.cutape --write-baseline OUT"),
    report("diff-report", "diff sound.cutape sound.cutape --report OUT"),
];

const fn new(name: &'static str, words: &'static str) -> Writer {
    let replaces = false;
    Writer {
        name,
        words,
        replaces,
    }
}

const fn report(name: &'static str, words: &'static str) -> Writer {
    let replaces = true;
    Writer {
        name,
        words,
        replaces,
    }
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
    // The sound trace has no images to extract.
    let writers = WRITERS.iter().filter(|writer| !writer.replaces);
    for writer in writers.filter(|writer| writer.name != "extract-images") {
        let name = format!("output/replaced/{}", writer.name);
        suite.test(name, |folder| replaced(folder, writer));
    }
    for place in PLACES {
        for writer in WRITERS {
            if writer.replaces && place.name == "exists" {
                continue;
            }
            let name = format!("output/{}/{}", place.name, writer.name);
            suite.test(name, |folder| bad_output(folder, place, writer));
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
        if let Err(why) = as_nobody(&mut command, folder) {
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
