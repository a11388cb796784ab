//! The libraries that the loader loads with a program: those that it is linked to, and preloaded
//! ones.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use object::LittleEndian;
use object::elf;
use object::read::elf::{Dyn, FileHeader, ProgramHeader};
use object::read::{ReadCache, ReadRef};

/// The libraries of a program. For a script they are those of a shell.
#[derive(Debug, Default)]
pub(crate) struct StartLibraries {
    /// Their names, and the bytes of static thread-local memory that each needs.
    found: Vec<(String, u64)>,
}

impl StartLibraries {
    /// Asks the system's loader, which then does not run the program.
    pub(crate) fn of(loader: &Path, program: &Path) -> Self {
        let list = |program: &Path| {
            let mut command = Command::new(loader);
            command.arg(program).env("LD_TRACE_LOADED_OBJECTS", "1");
            command.env_remove("LD_AUDIT").env_remove("LD_DEBUG");
            let output = command
                .stdin(Stdio::null())
                .stderr(Stdio::null())
                .output()
                .ok()?;
            output.status.success().then_some(output.stdout)
        };
        let lines = list(program).or_else(|| list(Path::new("/bin/sh")));
        let found = lines.iter().flat_map(|lines| paths(lines)).map(|path| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            (name.into_owned(), static_tls(&path).unwrap_or_default())
        });
        Self {
            found: found.collect(),
        }
    }

    /// A library whose name begins so.
    pub(crate) fn named(&self, start: &str) -> Option<&str> {
        let mut names = self.found.iter().map(|(name, _)| name.as_str());
        names.find(|name| name.starts_with(start))
    }

    /// Bytes of static thread-local memory that all need together, and the library with the most.
    pub(crate) fn static_tls(&self) -> (u64, &str) {
        let most = self.found.iter().max_by_key(|(_, bytes)| bytes);
        let sum = self.found.iter().map(|(_, bytes)| bytes).sum();
        (sum, most.map_or("", |(name, _)| name))
    }

    #[cfg(test)]
    pub(crate) fn for_tests(found: &[(&str, u64)]) -> Self {
        let found = found.iter().map(|&(name, bytes)| (name.to_owned(), bytes));
        Self {
            found: found.collect(),
        }
    }
}

/// The paths in lines such as `libm.so.6 => /lib/libm.so.6 (0x7f12)` and `/lib/ld.so (0x7f13)`.
fn paths(lines: &[u8]) -> impl Iterator<Item = PathBuf> {
    lines.split(|&byte| byte == b'\n').filter_map(|line| {
        let start = line.iter().position(|&byte| byte == b'/')?;
        let end = line.windows(2).rposition(|two| two == b" (")?;
        Some(PathBuf::from(OsStr::from_bytes(line.get(start..end)?)))
    })
}

/// The bytes that a library needs at one place of every thread; `None` if it needs none there.
fn static_tls(library: &Path) -> Option<u64> {
    let file = &ReadCache::new(fs::File::open(library).ok()?);
    let header = elf::FileHeader64::<LittleEndian>::parse(file).ok()?;
    let segments = header.program_headers(LittleEndian, file).ok()?;
    needs_static(segments, file)
        .then(|| {
            let of_threads = |segment: &&elf::ProgramHeader64<LittleEndian>| {
                segment.p_type(LittleEndian) == elf::PT_TLS
            };
            segments.iter().find(of_threads)
        })
        .flatten()
        .map(|segment| segment.p_memsz(LittleEndian))
}

/// Whether the dynamic section says so (DF_STATIC_TLS).
fn needs_static<'data>(
    segments: &[elf::ProgramHeader64<LittleEndian>],
    file: impl ReadRef<'data>,
) -> bool {
    segments
        .iter()
        .filter_map(|segment| segment.dynamic(LittleEndian, file).ok().flatten())
        .flatten()
        .any(|entry| {
            entry.d_tag(LittleEndian) == elf::DT_FLAGS
                && entry.d_val(LittleEndian) & elf::DF_STATIC_TLS.0 != 0
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_loader() {
        let lines = b"\tlinux-vdso.so.1 (0x00007f3a60c15000)\n\
                      \t/a b/libone.so.2 (0x00007f3a60800000)\n\
                      \tlibc.so.6 => /lib/libc.so.6 (0x00007f3a6061e000)\n\
                      \tlibcuda.so.1 => not found\n";
        let found: Vec<_> = paths(lines).collect();
        assert_eq!(
            found,
            ["/a b/libone.so.2", "/lib/libc.so.6"].map(PathBuf::from)
        );
    }

    #[test]
    fn libraries_of_programs() {
        let loader = Path::new("/lib64/ld-linux-x86-64.so.2");
        let own = std::env::current_exe().unwrap();
        for program in [
            &own,
            Path::new("/no/such/file"),
            Path::new("/proc/self/maps"),
        ] {
            let libraries = StartLibraries::of(loader, program);
            assert_eq!(libraries.named("libc.so"), Some("libc.so.6"), "{program:?}");
            // Its `errno` has a fixed place in every thread.
            assert!(libraries.static_tls().0 > 0);
        }
        let none = StartLibraries::of(Path::new("/no/such/loader"), &own);
        assert_eq!((none.named("lib"), none.static_tls()), (None, (0, "")));
    }
}
