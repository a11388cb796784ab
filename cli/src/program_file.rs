//! The program that is to be recorded: where its file is, and whether the loader would let us into it.

use std::env;
use std::ffi::{CString, OsStr, OsString};
use std::fs;
use std::io::Read;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use crate::failure::Failure;
use crate::starter;

/// As much of a file as is looked at: headers come first.
const HEAD: u64 = 1 << 20;

/// What brings a program's libraries in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Loader {
    /// The file that an ELF program names as its interpreter.
    Named(PathBuf),
    /// The system's, as far as can be known: a script, or a file that cannot be read.
    Unknown,
}

/// The program's file: as given, or along PATH.
pub(crate) fn find(name: &OsStr) -> Result<PathBuf, Failure> {
    let given = Path::new(name);
    if name.is_empty() {
        return Err(Failure::unusable(
            "cannot run a program without a name: \"\" was given",
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
    // Without PATH the system looks in these.
    let folders = env::var_os("PATH").unwrap_or_else(|| "/bin:/usr/bin".into());
    env::split_paths(&folders)
        .map(|folder| folder.join(given))
        .find(|path| {
            path.metadata()
                .is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0)
        })
        .ok_or_else(|| {
            Failure::unusable(format!(
                "cannot run {}: not found in PATH; for a file in this folder say ./{0}",
                given.display()
            ))
        })
}

/// Refuses what the loader would not let us into, instead of recording nothing.
pub(crate) fn check(path: &Path) -> Result<Loader, Failure> {
    let cannot = |why: &str| Failure::unusable(format!("cannot record {}: {why}", path.display()));
    let metadata = path
        .metadata()
        .map_err(|_| cannot("it cannot be looked at"))?;
    if !metadata.is_file() {
        return Err(cannot("not a file"));
    }
    if metadata.mode() & 0o111 == 0 {
        return Err(cannot("not executable"));
    }
    // Who starts others is not what was meant, and needs other advice.
    let or_starter = |advice: &str| starter::advice(path).unwrap_or_else(|| advice.to_owned());
    if let Some(why) = raised_rights(path, &Rights::of(&metadata)) {
        return Err(cannot(&format!(
            "{why}, and the loader ignores what the environment says in such a program; {}",
            or_starter("record a copy without it (`cp` makes one), as a user who may use the GPU")
        )));
    }
    let mut bytes = Vec::new();
    // A script or an unreadable file is the system's to judge.
    let read = fs::File::open(path).and_then(|file| file.take(HEAD).read_to_end(&mut bytes));
    if read.is_err() {
        return Ok(Loader::Unknown);
    }
    loader(&bytes, Path::exists).map_err(|why| match why {
        NoWayIn::Static => cannot(&format!(
            "it is linked statically, so it has no loader that could bring our library in; {}",
            or_starter(
                "if it starts the program that uses CUDA, record that one, or a shell that runs it: cutape record -- sh -c '...'"
            )
        )),
        NoWayIn::Other(why) => cannot(&why),
    })
}

/// Why a loader would not let us in.
#[derive(Debug, PartialEq, Eq)]
enum NoWayIn {
    /// There is none.
    Static,
    Other(String),
}

/// With whose rights a file runs, and who we are.
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
            // SAFETY: no memory is involved.
            own_user: unsafe { libc::geteuid() },
            // SAFETY: no memory is involved.
            own_group: unsafe { libc::getegid() },
        }
    }

    /// Which bit of the mode gives the program other rights than ours.
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

/// Why the loader would take the program for one with raised rights (AT_SECURE, ld.so(8)).
fn raised_rights(path: &Path, rights: &Rights) -> Option<&'static str> {
    rights.raised().or_else(|| {
        let name = CString::new(path.as_os_str().as_bytes()).ok()?;
        let attribute = c"security.capability";
        // SAFETY: both names end in NUL; a length of zero asks for the size alone.
        let size =
            unsafe { libc::getxattr(name.as_ptr(), attribute.as_ptr(), core::ptr::null_mut(), 0) };
        // The superuser has them already.
        (size > 0 && rights.own_user != 0).then_some("its file carries capabilities")
    })
}

/// The loader that the first bytes of a file ask for, or why that one would not let us in.
fn loader(bytes: &[u8], exists: impl Fn(&Path) -> bool) -> Result<Loader, NoWayIn> {
    if !bytes.starts_with(b"\x7fELF") {
        return Ok(Loader::Unknown);
    }
    if bytes.get(4) != Some(&2) || bytes.get(18..20) != Some(&[62, 0]) {
        return Err(NoWayIn::Other(
            "it is not a 64-bit x86-64 program".to_owned(),
        ));
    }
    let word = |at: usize| {
        let bytes = bytes.get(at..at.checked_add(8)?)?;
        Some(u64::from_le_bytes(bytes.try_into().ok()?))
    };
    let number = |at: usize| Some(u16::from_le_bytes(*bytes.get(at..)?.first_chunk()?));
    let (Some(start), Some(count)) = (word(32), number(56)) else {
        return Ok(Loader::Unknown);
    };
    const PT_INTERP: [u8; 4] = [3, 0, 0, 0];
    let interpreter = (0..u64::from(count)).find_map(|index| {
        let at = usize::try_from(start.checked_add(index * 56)?).ok()?;
        if bytes.get(at..at.checked_add(4)?)? != PT_INTERP {
            return None;
        }
        let (offset, length) = (word(at.checked_add(8)?)?, word(at.checked_add(32)?)?);
        let offset = usize::try_from(offset).ok()?;
        let text = bytes.get(offset..offset.checked_add(usize::try_from(length).ok()?)?)?;
        let text = text.split(|&byte| byte == 0).next()?;
        Some(PathBuf::from(OsString::from_vec(text.to_vec())))
    });
    let Some(interpreter) = interpreter else {
        return Err(NoWayIn::Static);
    };
    let name = interpreter.file_name().unwrap_or_default().as_bytes();
    if name.starts_with(b"ld-musl") {
        return Err(NoWayIn::Other(format!(
            "its loader is musl's ({}), and our library, as NVIDIA's driver, is made for glibc; record it in an image with glibc",
            interpreter.display()
        )));
    }
    if !exists(&interpreter) {
        return Err(NoWayIn::Other(format!(
            "its loader {} is not on this machine; run it where the program was made for",
            interpreter.display()
        )));
    }
    Ok(Loader::Named(interpreter))
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
            // A folder along PATH is no program, one that is named is refused later.
            ("..", false),
            ("../", true),
        ] {
            assert_eq!(find(OsStr::new(name)).is_ok(), found, "{name}");
        }
        for (path, why) in [
            ("/bin/sh", None),
            ("/", Some("not a file")),
            ("/etc/passwd", Some("not executable")),
            ("/no/such", Some("cannot be looked at")),
        ] {
            let refused = check(Path::new(path)).err().map(|failure| failure.message);
            match why {
                None => assert_eq!(refused, None, "{path}"),
                Some(why) => assert!(refused.is_some_and(|text| text.contains(why)), "{path}"),
            }
        }
    }

    /// The first bytes of a program with one program header.
    fn program(class: u8, machine: u8, kind: u8, interpreter: &str) -> Vec<u8> {
        let mut bytes = b"\x7fELF".to_vec();
        bytes.push(class);
        bytes.resize(18, 0);
        bytes.push(machine);
        bytes.resize(32, 0);
        bytes.extend(64_u64.to_le_bytes());
        bytes.resize(56, 0);
        bytes.push(1);
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
                Err("/gone/ld.so is not on this machine"),
            ),
        ] {
            let found = loader(&bytes, |path| !path.starts_with("/gone"));
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
        // No bytes of a file make it stop.
        let whole = program(2, 62, 3, glibc);
        for at in 0..whole.len() {
            let mut changed = whole.clone();
            changed[at] = 0xff;
            let _ = loader(&changed, |_| true);
            let _ = loader(&whole[..at], |_| true);
        }
    }

    #[test]
    fn raised_rights_are_told() {
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
