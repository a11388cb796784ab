//! The exports of the libraries: the driver API and a few markers, nothing else.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use cutape_tests::{parts, run};

cutape_tests::tests![
    interposer,
    null_driver,
    interposer_needs_nothing_but_the_c_library,
    audit,
];

/// The dynamic symbols that a library defines.
fn exported(library: &Path) -> Vec<String> {
    let output = run(Command::new("nm")
        .args(["-D", "--defined-only"])
        .arg(library));
    output.assert(0);
    output
        .stdout
        .lines()
        .filter_map(|line| line.split(' ').nth(2))
        .map(str::to_owned)
        .collect()
}

fn assert_exports(library: &Path, own: &[&str]) {
    let listed = exported(library);
    let names: BTreeSet<&str> = listed.iter().map(String::as_str).collect();
    assert_eq!(
        names.len(),
        listed.len(),
        "{}: a name twice",
        library.display()
    );
    let expected: BTreeSet<&str> = cutape_registry::FUNCTIONS
        .iter()
        .map(|f| f.name)
        .chain(own.iter().copied())
        .collect();
    let missing: Vec<_> = expected.difference(&names).collect();
    // Only a build with frida-gum has it.
    let patches = "cutape_interposer_patches";
    let surplus: Vec<_> = names
        .difference(&expected)
        .filter(|&&name| name != patches)
        .collect();
    assert!(
        missing.is_empty() && surplus.is_empty(),
        "{}: missing {missing:?}, beside the API {surplus:?}",
        library.display()
    );
}

/// The SONAME of a library.
fn soname(library: &Path) -> String {
    let output = run(Command::new("objdump").arg("-p").arg(library));
    output.assert(0);
    let line = output
        .stdout
        .lines()
        .find_map(|line| line.trim().strip_prefix("SONAME"));
    line.unwrap_or_default().trim().to_owned()
}

fn interposer(_: &Path) {
    assert_exports(
        &parts().interposer,
        &[
            "cutape_interposer_marker",
            "cutape_forward",
            "cutape_mark",
            "cutape_range_pop",
            "cutape_range_push",
            "cutape_start",
            "cutape_stop",
            "InitializeInjectionNvtx2",
            "dlmopen",
            "dlopen",
            "execv",
            "execve",
            "execvp",
            "execvpe",
            "fexecve",
            "posix_spawn",
            "posix_spawnp",
        ],
    );
    assert_eq!(soname(&parts().interposer), "libcuda.so.1");
}

fn null_driver(_: &Path) {
    assert_exports(&parts().null_driver, &["cutape_null_driver_marker"]);
    assert_eq!(soname(&parts().null_driver), "libcuda.so.1");
}

fn interposer_needs_nothing_but_the_c_library(_: &Path) {
    let output = run(Command::new("objdump").arg("-p").arg(&parts().interposer));
    let needed: Vec<_> = output
        .stdout
        .lines()
        .filter_map(|line| line.trim().strip_prefix("NEEDED"))
        .map(str::trim)
        .collect();
    let known = [
        "libc.so.6",
        "libgcc_s.so.1",
        "ld-linux-x86-64.so.2",
        "libdl.so.2",
        "libpthread.so.0",
    ];
    assert!(needed.iter().all(|name| known.contains(name)), "{needed:?}");
}

/// The loader calls these two; no other symbol can be bound.
fn audit(_: &Path) {
    assert_eq!(exported(&parts().audit), ["la_objsearch", "la_version"]);
    assert_eq!(soname(&parts().audit), "");
}
