//! Decoded traces of some programs, compared with those in `tests/golden/`; `UPDATE_GOLDEN=1` writes those anew.

use std::fs;
use std::path::Path;
use std::process::ExitCode;

use cutape_tests::{Case, parts, programs, run, stable_dump};
use libtest_mimic::{Arguments, Failed, Trial};

/// Programs whose calls bring every kind of argument and snapshot: strings, structs, arrays of options, images, payloads, launches.
const PROGRAMS: [&str; 8] = [
    "clean/copies_2d3d",
    "clean/init_device",
    "clean/launch_ex",
    "clean/launch_struct",
    "clean/library",
    "clean/link_options",
    "demo/link_demo",
    "misuse/double-free/violation",
];

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let trials = PROGRAMS
        .iter()
        .map(|&name| Trial::test(name, move || compare(name).map_err(Failed::from)))
        .collect();
    let listing = arguments.list;
    let conclusion = libtest_mimic::run(&arguments, trials);
    if !listing {
        parts().clean_up();
    }
    conclusion.exit_code()
}

fn compare(name: &str) -> Result<(), String> {
    let program = programs()?
        .into_iter()
        .find(|program| program.name == name)
        .ok_or_else(|| format!("there is no program {name}"))?;
    let case = Case::new(program);
    let trace = &case.traces()?[0];
    let output = run(&mut parts().cutape(&[&"dump", &"--format", &"json", trace]));
    output.expect(0)?;
    let received = stable_dump(&output.stdout)?;
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden");
    let path = folder.join(format!("{}.jsonl", name.replace('/', ".")));
    if std::env::var_os("UPDATE_GOLDEN").is_some_and(|value| value == "1") {
        fs::create_dir_all(&folder).map_err(|error| error.to_string())?;
        return fs::write(&path, received).map_err(|error| format!("{}: {error}", path.display()));
    }
    let expected = fs::read_to_string(&path)
        .map_err(|error| format!("{}: {error}; UPDATE_GOLDEN=1 writes it", path.display()))?;
    let mut pairs = expected.lines().zip(received.lines()).enumerate();
    if let Some((call, (expected, received))) = pairs.find(|(_, (a, b))| a != b) {
        return Err(format!(
            "{}: call {call} differs; if that is right, UPDATE_GOLDEN=1 writes it\n- {expected}\n+ {received}",
            path.display()
        ));
    }
    let (wanted, found) = (expected.lines().count(), received.lines().count());
    if wanted != found {
        return Err(format!(
            "{}: {wanted} calls expected, {found} received",
            path.display()
        ));
    }
    Ok(())
}
