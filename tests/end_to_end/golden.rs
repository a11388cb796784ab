//! Decoded traces of some programs, compared with the files in `tests/golden/`; `UPDATE_GOLDEN=1`
//! rewrites the files.

use std::fs;
use std::path::Path;

use cutape_tests::{Suite, compiled, parts, record, root, run, stable_dump};

/// Their calls have every kind of argument and snapshot: strings, structs, option arrays, images,
/// payloads, launches.
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

pub(crate) fn add_to(suite: &mut Suite) {
    for name in PROGRAMS {
        suite.test(name, |folder: &Path| compare(folder, name));
    }
}

fn compare(folder: &Path, name: &str) -> Result<(), String> {
    let trace = &folder.join("t.cutape");
    run(&mut record(trace, &[], &[&compiled(name)])).expect_code(0)?;
    let output = run(&mut parts().cutape(&[&"dump", &"--format", &"json", trace]));
    output.expect(0)?;
    let received = stable_dump(&output.stdout)?;
    let folder = root().join("tests/golden");
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
            "{}: call {call} differs; if that is intended, UPDATE_GOLDEN=1 rewrites the file\n- {expected}\n+ {received}",
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
