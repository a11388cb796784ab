//! The shared library itself: its name, and that it exports exactly the registry's functions.

use std::collections::{HashMap, HashSet};
use std::ffi::CString;
use std::path::PathBuf;
use std::process::Command;

/// The library that was built with this test, beside the test program.
fn library() -> PathBuf {
    let program = std::env::current_exe().expect("the test's own path");
    program
        .parent()
        .expect("a folder")
        .join("libcutape_null.so")
}

#[test]
fn every_function_is_exported_exactly_once_and_nothing_else() {
    let output = Command::new("nm")
        .args(["-D", "--defined-only"])
        .arg(library())
        .output()
        .expect("nm (binutils) runs");
    assert!(
        output.status.success(),
        "nm: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    let text = String::from_utf8(output.stdout).expect("symbol names are text");
    let mut exported: HashMap<&str, u32> = HashMap::new();
    for name in text.lines().filter_map(|line| line.split(' ').nth(2)) {
        *exported.entry(name).or_default() += 1;
    }
    for function in &cutape_registry::FUNCTIONS {
        assert_eq!(exported.remove(function.name), Some(1), "{}", function.name);
    }
    assert_eq!(exported.remove("cutape_null_driver_marker"), Some(1));
    assert!(exported.is_empty(), "exported beside the API: {exported:?}");
}

#[test]
fn entry_points_cannot_be_interposed() {
    // A relocation by name would be bound to an interposer that was loaded first, and
    // cuGetProcAddress would return that one's addresses as the driver's.
    let output = Command::new("readelf")
        .arg("-rW")
        .arg(library())
        .output()
        .expect("readelf (binutils) runs");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        text.contains("Relocation section"),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let words: HashSet<&str> = text.split_whitespace().collect();
    for function in &cutape_registry::FUNCTIONS {
        assert!(!words.contains(function.name), "{}", function.name);
    }
}

#[test]
fn the_soname_is_libcuda() {
    let path = CString::new(library().to_str().expect("a path that is text")).expect("no NUL");
    // SAFETY: loading our own library runs no code beyond its constructors; the handle is never
    // closed.
    unsafe {
        let handle = libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL);
        assert!(!handle.is_null());
        // The SONAME is what a later search by name compares.
        assert_eq!(
            libc::dlopen(c"libcuda.so.1".as_ptr(), libc::RTLD_NOW | libc::RTLD_NOLOAD),
            handle
        );
        let entry = libc::dlsym(handle, c"cuDriverGetVersion".as_ptr());
        assert!(!entry.is_null());
        let version: extern "C" fn(*mut i32) -> u32 = std::mem::transmute(entry);
        let mut number = 0;
        assert_eq!((version(&raw mut number), number), (0, 13000));
    }
}
