//! Lets programs find driver functions that the registry does not know, while recording.
//!
//! `record` writes a small library that exports them, and a copy of the interposer that needs
//! (`DT_NEEDED`) it, so that the loader and `dlsym` find them. Each function jumps through a slot
//! in the library's data. At first the slot points to `cutape_forward` in the interposer, which
//! stores the driver's function there; `cutape_forward` documents the four words of an entry.

use std::ffi::CString;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use object::elf;
use object::read::elf::{Dyn, FileHeader, ProgramHeader};
use object::{Endianness, SymbolKind};

use cutape_terminal::library;

mod shared_object;

/// The name of the library. The interposer refers to it with `DT_AUXILIARY`, in its own folder.
pub(crate) const LIBRARY: &str = "libcutape-forward.so";
/// Bytes of a dynamic entry: tag and value.
const DYNAMIC_ENTRY: usize = 16;

/// The functions that a driver exports, sorted: names that start with `cu`.
///
/// # Errors
/// If the file cannot be read.
pub fn exported(driver: &Path) -> Result<Vec<String>, String> {
    let mut names = library::exported(driver, |name, kind| {
        kind == SymbolKind::Text && name.starts_with("cu")
    })?;
    names.sort();
    names.dedup();
    Ok(names)
}

/// Whether the registry knows a function: the interposer exports those.
pub fn is_known(name: &str) -> bool {
    cutape_registry::function(name).is_some()
}

/// Why a library in that folder cannot be loaded; `None` if it can.
pub fn obstacle(folder: &Path) -> Option<String> {
    let path = CString::new(folder.as_os_str().as_bytes()).ok()?;
    // SAFETY: all-zero is a valid buffer for the call.
    let mut status: libc::statvfs = unsafe { std::mem::zeroed() };
    // SAFETY: the path ends in NUL, the buffer is ours.
    let known = unsafe { libc::statvfs(path.as_ptr(), &raw mut status) } == 0;
    (known && status.f_flag & libc::ST_NOEXEC != 0).then(|| {
        format!(
            "{} is mounted noexec; set TMPDIR to a folder on another file system",
            folder.display()
        )
    })
}

/// The copy of the interposer that needs `LIBRARY`.
///
/// # Errors
/// If the original cannot be read or has no tag to change.
pub fn interposer(original: &Path) -> Result<Vec<u8>, String> {
    let wrong = |why: String| format!("{}: {why}", original.display());
    let mut bytes = fs::read(original).map_err(|error| wrong(error.to_string()))?;
    let place = auxiliary(&bytes).map_err(|error| wrong(error.to_string()))?;
    let tag = place
        .and_then(|place| bytes.get_mut(place..place + 8))
        .ok_or_else(|| wrong(format!("has no DT_AUXILIARY tag for {LIBRARY}")))?;
    // DT_AUXILIARY makes the library optional. It cannot stay: ld.so fails an assertion if such a
    // library is loaded into a new namespace (glibc 2.36), or with dlopen (before 2.31).
    tag.copy_from_slice(&elf::DT_NEEDED.0.to_le_bytes()[..8]);
    Ok(bytes)
}

/// The file offset of the tag `DT_AUXILIARY`.
fn auxiliary(bytes: &[u8]) -> object::Result<Option<usize>> {
    let header = elf::FileHeader64::<Endianness>::parse(bytes)?;
    let endian = header.endian()?;
    for segment in header.program_headers(endian, bytes)? {
        let Some(entries) = segment.dynamic(endian, bytes)? else {
            continue;
        };
        let index = entries
            .iter()
            .position(|entry| entry.tag(endian) == elf::DT_AUXILIARY);
        let start = segment.p_offset(endian) as usize;
        return Ok(index.map(|index| start + index * DYNAMIC_ENTRY));
    }
    Ok(None)
}

/// The library that exports these functions.
///
/// # Errors
/// If a table would be too large.
pub fn library(names: &[String]) -> Result<Vec<u8>, String> {
    shared_object::write(names).map_err(|error| format!("{LIBRARY}: {error}"))
}

#[cfg(test)]
mod tests {
    use object::{Object, ObjectSymbol};

    use super::shared_object::RESOLVER;
    use super::*;

    fn names(count: usize) -> Vec<String> {
        (0..count).map(|number| format!("cuNew{number}")).collect()
    }

    #[test]
    fn library_exports_the_names() {
        for count in [1, 2, 300] {
            let names = names(count);
            let bytes = library(&names).unwrap();
            let library = object::File::parse(&*bytes).unwrap();
            let defined = library
                .dynamic_symbols()
                .filter(|symbol| symbol.is_definition());
            let mut exported: Vec<_> = defined.map(|s| s.name().unwrap().to_owned()).collect();
            exported.sort();
            let mut expected = names.clone();
            expected.sort();
            assert_eq!(exported, expected);
            let undefined: Vec<_> = library
                .dynamic_symbols()
                .filter(|symbol| symbol.is_undefined())
                .map(|symbol| symbol.name().unwrap())
                .collect();
            assert_eq!(undefined, [RESOLVER]);
            let header = elf::FileHeader64::<Endianness>::parse(&*bytes).unwrap();
            let segments = header.program_headers(Endianness::Little, &*bytes).unwrap();
            for segment in segments {
                let flags = segment.p_flags(Endianness::Little);
                let writable = flags & elf::PF_W == elf::PF_W;
                let executable = flags & elf::PF_X == elf::PF_X;
                assert!(!(writable && executable), "{segment:?}");
            }
        }
    }

    #[test]
    fn other_files_are_refused() {
        // A library without the tag, a file that is not a library, no file.
        for path in ["/proc/self/exe", "/dev/null", "/no/such"] {
            let why = interposer(Path::new(path)).unwrap_err();
            assert!(why.starts_with(path), "{why}");
        }
        assert!(exported(Path::new("/dev/null")).is_err());
        assert_eq!(exported(Path::new("/proc/self/exe")), Ok(Vec::new()));
    }

    #[test]
    fn noexec_folders_are_detected() {
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
        // The last mount of a folder hides the others.
        let mut last = std::collections::BTreeMap::new();
        for line in mounts.lines() {
            let words: Vec<_> = line.split(' ').collect();
            last.insert(words[1], words[3].split(',').any(|word| word == "noexec"));
        }
        for (folder, noexec) in last {
            // A mount may be hidden below another one or inaccessible.
            if Path::new(folder).is_dir() && folder.matches('/').count() == 1 {
                assert_eq!(obstacle(Path::new(folder)).is_some(), noexec, "{folder}");
            }
        }
    }
}
