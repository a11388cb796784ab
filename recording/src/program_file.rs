//! The program to record: finds its file and checks that its loader can bring the interposer in.

use std::env;
use std::ffi::{CString, OsStr};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use object::LittleEndian;
use object::elf;
use object::read::elf::{FileHeader, ProgramHeader};
use object::read::{ReadCache, ReadRef};

use cutape_terminal::failure::Failure;
use cutape_terminal::output;

use crate::starter;

/// With these, a word is rarely the name of a program.
const SHELL_CHARACTERS: [char; 13] = [
    ' ', '\n', '|', '&', ';', '<', '>', '(', ')', '$', '`', '*', '?',
];

/// What loads a program's libraries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Loader {
    /// The file that an ELF program names as its interpreter.
    Named(PathBuf),
    /// Probably the system's: a script, or an unreadable file.
    Unknown,
}

/// As [`find`]; a word that is the whole command may have been meant for a shell.
pub(crate) fn find_alone(word: &OsStr) -> Result<PathBuf, Failure> {
    let is_for_shell = word.to_string_lossy().contains(SHELL_CHARACTERS);
    find(word).map_err(|failure| match is_for_shell {
        true => Failure::unusable(format!(
            "cannot run {}: no such program; a shell runs a command line: -- sh -c {}",
            output::printable(&word.to_string_lossy()),
            output::quoted(word)
        )),
        false => failure,
    })
}

/// Finds the program's file: as given, or in PATH.
pub(crate) fn find(name: &OsStr) -> Result<PathBuf, Failure> {
    let given = Path::new(name);
    if name.is_empty() {
        return Err(Failure::unusable(
            "no program: its name is empty; give it and its arguments after --",
        ));
    }
    if name.as_bytes().contains(&b'/') {
        return match given.metadata() {
            Ok(_) => Ok(given.to_owned()),
            Err(error) => Err(Failure::unusable(format!(
                "cannot run {}: {error}",
                given.display()
            ))),
        };
    }
    // The system's default for PATH.
    let folders = env::var_os("PATH").unwrap_or_else(|| "/bin:/usr/bin".into());
    env::split_paths(&folders)
        .map(|folder| folder.join(given))
        .find(|path| {
            path.metadata()
                .is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0)
        })
        .ok_or_else(|| {
            Failure::unusable(format!(
                "cannot run {}: not found in PATH; for a file in this folder give ./{0}",
                given.display()
            ))
        })
}

/// Rejects a program into which the loader would not load the interposer, or the driver that plays it.
/// `command` is cutape's, with a verb first.
pub(crate) fn check(path: &Path, command: &str) -> Result<Loader, Failure> {
    let verb = command.split(' ').next().unwrap_or(command);
    let cannot = |why: &str| Failure::unusable(format!("cannot {verb} {}: {why}", path.display()));
    let metadata = path.metadata().map_err(|_| cannot("it cannot be read"))?;
    if !metadata.is_file() {
        return Err(cannot("it is not a file"));
    }
    if metadata.mode() & 0o111 == 0 {
        return Err(cannot("it is not executable; `chmod +x` makes it so"));
    }
    // A program that starts others is rarely the one to record, and needs other advice.
    let or_starter = |advice: String| starter::advice(path, command).unwrap_or(advice);
    if let Some(why) = raised_rights(path, &Rights::of(&metadata)) {
        return Err(cannot(&format!(
            "{why}, so the loader ignores LD_PRELOAD and LD_AUDIT; {}",
            or_starter(format!(
                "{verb} a copy without it (`cp` makes one) as a user with access to the GPU"
            ))
        )));
    }
    // The system decides about a script or an unreadable file.
    let Ok(file) = fs::File::open(path) else {
        return Ok(Loader::Unknown);
    };
    // Of a large file only the headers are read, and the loader's name, which may lie at its end.
    loader(&ReadCache::new(file), Path::exists).map_err(|why| match why {
        Obstacle::Static => cannot(&format!(
            "it is statically linked, so no loader can load cutape's library; {}",
            or_starter(format!(
                "if it starts the program that uses CUDA, {verb} that program, or a shell \
                         that runs it: cutape {command} -- sh -c '...'"
            ))
        )),
        Obstacle::Other(why) => cannot(&why),
    })
}

/// Why a loader cannot bring the interposer in.
#[derive(Debug, PartialEq, Eq)]
enum Obstacle {
    /// There is no loader.
    Static,
    Other(String),
}

/// A file's mode and owner, and our ids.
struct Rights {
    mode: u32,
    owner: u32,
    group: u32,
    own_user: u32,
    own_group: u32,
}

impl Rights {
    fn of(metadata: &fs::Metadata) -> Self {
        Self {
            mode: metadata.mode(),
            owner: metadata.uid(),
            group: metadata.gid(),
            // SAFETY: the call cannot fail.
            own_user: unsafe { libc::geteuid() },
            // SAFETY: the call cannot fail.
            own_group: unsafe { libc::getegid() },
        }
    }

    /// The mode bit that gives the program rights that we lack.
    fn raised(&self) -> Option<&'static str> {
        if self.mode & libc::S_ISUID != 0 && self.owner != self.own_user {
            Some("it is set-user-id")
        } else if self.mode & libc::S_ISGID != 0 && self.group != self.own_group {
            Some("it is set-group-id")
        } else {
            None
        }
    }
}

/// Why the loader would run the program in secure mode (AT_SECURE, ld.so(8)).
fn raised_rights(path: &Path, rights: &Rights) -> Option<&'static str> {
    rights.raised().or_else(|| {
        let name = CString::new(path.as_os_str().as_bytes()).ok()?;
        let attribute = c"security.capability";
        // SAFETY: both names end in NUL; with a size of zero nothing is written.
        let size =
            unsafe { libc::getxattr(name.as_ptr(), attribute.as_ptr(), core::ptr::null_mut(), 0) };
        // Root has the capabilities anyway.
        (size > 0 && rights.own_user != 0).then_some("it has file capabilities")
    })
}

/// The loader that an ELF program names, or why that loader cannot bring the interposer in.
fn loader<'data>(
    file: impl ReadRef<'data>,
    exists: impl Fn(&Path) -> bool,
) -> Result<Loader, Obstacle> {
    if file.read_bytes_at(0, 4) != Ok(&elf::ELFMAG) {
        return Ok(Loader::Unknown);
    }
    let header = elf::FileHeader64::<LittleEndian>::parse(file);
    let header = header
        .ok()
        .filter(|header| header.e_machine(LittleEndian) == elf::EM_X86_64);
    let Some(header) = header else {
        return Err(Obstacle::Other(
            "it is not a 64-bit x86-64 program".to_owned(),
        ));
    };
    let Ok(segments) = header.program_headers(LittleEndian, file) else {
        return Ok(Loader::Unknown);
    };
    let interpreter = segments
        .iter()
        .find_map(|segment| segment.interpreter(LittleEndian, file).ok().flatten());
    let Some(interpreter) = interpreter else {
        return Err(Obstacle::Static);
    };
    let interpreter = Path::new(OsStr::from_bytes(interpreter));
    let name = interpreter.file_name().unwrap_or_default().as_bytes();
    if name.starts_with(b"ld-musl") {
        return Err(Obstacle::Other(format!(
            "its loader is musl's ({}), but cutape's library, like NVIDIA's driver, needs glibc; \
             record it in an image with glibc",
            interpreter.display()
        )));
    }
    if !exists(interpreter) {
        return Err(Obstacle::Other(format!(
            "its loader {} does not exist on this machine; run it in the environment it was built \
             for",
            interpreter.display()
        )));
    }
    Ok(Loader::Named(interpreter.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_found_or_refused() {
        for (name, found) in [
            ("sh", true),
            ("/bin/sh", true),
            ("", false),
            ("no-such-program", false),
            ("./no-such-program", false),
            // A folder in PATH is not a program; `check` rejects one that is named.
            ("..", false),
            ("../", true),
        ] {
            assert_eq!(find(OsStr::new(name)).is_ok(), found, "{name}");
        }
        for (word, hint) in [
            ("a | b", Some("-- sh -c 'a | b'")),
            ("./a --steps 10", Some("-- sh -c './a --steps 10'")),
            ("no-such-program", None),
            ("./no-such-program", None),
        ] {
            let message = find_alone(OsStr::new(word)).unwrap_err().message;
            match hint {
                Some(hint) => assert!(message.ends_with(hint), "{message}"),
                None => assert!(!message.contains("sh -c"), "{message}"),
            }
        }
        assert!(find_alone(OsStr::new("sh")).is_ok());
        for (path, why) in [
            ("/bin/sh", None),
            ("/", Some("it is not a file")),
            ("/etc/passwd", Some("it is not executable")),
            ("/no/such", Some("it cannot be read")),
        ] {
            let refused = check(Path::new(path), "record")
                .err()
                .map(|failure| failure.message);
            match why {
                None => assert_eq!(refused, None, "{path}"),
                Some(why) => assert!(refused.is_some_and(|text| text.contains(why)), "{path}"),
            }
        }
    }

    /// The first bytes of a program with one program header.
    fn program(class: u8, machine: u8, kind: u8, interpreter: &str) -> Vec<u8> {
        let mut bytes = b"\x7fELF".to_vec();
        // Little-endian, version 1.
        bytes.extend([class, 1, 1]);
        bytes.resize(18, 0);
        bytes.push(machine);
        bytes.resize(32, 0);
        bytes.extend(64_u64.to_le_bytes());
        bytes.resize(54, 0);
        bytes.extend([56, 0, 1]);
        bytes.resize(64, 0);
        bytes.extend(u32::from(kind).to_le_bytes());
        bytes.resize(72, 0);
        bytes.extend(120_u64.to_le_bytes());
        bytes.resize(96, 0);
        bytes.extend((interpreter.len() as u64 + 1).to_le_bytes());
        bytes.resize(120, 0);
        bytes.extend(interpreter.as_bytes());
        bytes.push(0);
        bytes
    }

    #[test]
    fn loaders() {
        let glibc = "/lib64/ld-linux-x86-64.so.2";
        let named = Ok(Loader::Named(PathBuf::from(glibc)));
        for (bytes, expected) in [
            (program(2, 62, 3, glibc), named),
            (b"#!/bin/sh\n".to_vec(), Ok(Loader::Unknown)),
            (Vec::new(), Ok(Loader::Unknown)),
            (program(2, 62, 1, ""), Err("Static")),
            (
                program(1, 3, 3, "/lib/ld-linux.so.2"),
                Err("not a 64-bit x86-64"),
            ),
            (
                program(2, 183, 3, "/lib/ld-linux-aarch64.so.1"),
                Err("not a 64-bit x86-64"),
            ),
            (program(2, 62, 3, "/lib/ld-musl-x86_64.so.1"), Err("musl")),
            (
                program(2, 62, 3, "/gone/ld.so"),
                Err("/gone/ld.so does not exist"),
            ),
        ] {
            let found = loader(&*bytes, |path| !path.starts_with("/gone"));
            match expected {
                Ok(expected) => assert_eq!(found, Ok(expected)),
                Err(why) => assert!(
                    found
                        .as_ref()
                        .is_err_and(|found| format!("{found:?}").contains(why)),
                    "{found:?}"
                ),
            }
        }
        // Damaged files do not panic.
        let whole = program(2, 62, 3, glibc);
        for at in 0..whole.len() {
            let mut changed = whole.clone();
            changed[at] = 0xff;
            let _ = loader(&*changed, |_| true);
            let _ = loader(&whole[..at], |_| true);
        }
    }

    #[test]
    fn the_loader_may_be_named_at_the_end_of_a_large_file() {
        let name = "/lib64/ld-linux-x86-64.so.2";
        let mut bytes = program(2, 62, 3, name);
        let place = 2_usize << 20;
        let text = bytes.split_off(120);
        bytes[72..80].copy_from_slice(&(place as u64).to_le_bytes());
        bytes.resize(place, 0);
        bytes.extend(text);
        let path = env::temp_dir().join(format!("cutape-large-{}", std::process::id()));
        fs::write(&path, bytes).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        let found = check(&path, "record").map_err(|failure| failure.message);
        fs::remove_file(&path).unwrap();
        assert_eq!(found, Ok(Loader::Named(PathBuf::from(name))));
    }

    #[test]
    fn raised_rights() {
        for (mode, owner, group, expected) in [
            (0o755, 0, 0, None),
            (0o4755, 0, 1000, Some("it is set-user-id")),
            (0o4755, 1000, 1000, None),
            (0o2755, 1000, 0, Some("it is set-group-id")),
            (0o2755, 1000, 1000, None),
        ] {
            let rights = Rights {
                mode,
                owner,
                group,
                own_user: 1000,
                own_group: 1000,
            };
            assert_eq!(rights.raised(), expected, "{mode:o} {owner} {group}");
        }
    }
}
