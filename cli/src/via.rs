//! By which way a program's calls reach the interposer, and what its environment must say for that.

use std::env;
use std::ffi::{CStr, OsString};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use object::{Object, ObjectSymbol};

use crate::failure::Failure;
use crate::library::{self, LibraryFolder};
use crate::program_file::Loader;

/// How calls are to reach us.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Via {
    /// `audit` where it is known to work, else `preload`.
    Auto,
    /// By an auditing library: whatever name, path or namespace libcuda is asked for by.
    Audit,
    /// By preloading: libcuda asked for by name, or by path from `dlopen`.
    Preload,
    /// By preloading, and by patching the driver's functions: whoever calls them. Needs a build with it.
    Gum,
}

/// The oldest glibc with which `auto` takes `audit`: of 2.35, 2.36, 2.39 and 2.41 it was seen that programs run as without. Before,
/// calls through the PLT are slower under any auditing library, as the notes of 2.35 say, and `dlmopen` crashes (seen with 2.27 and 2.31).
const GLIBC_FOR_AUDIT: (u32, u32) = (2, 35);

/// What the interposer exports if it can patch.
const PATCHES: &str = "cutape_interposer_patches";

/// The way that was taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Way {
    /// Which; never `Auto`.
    pub(crate) via: Via,
    /// Why this one.
    pub(crate) why: String,
    /// The auditing library, if it takes part.
    audit: Option<PathBuf>,
}

/// Chooses for a program with that loader.
pub(crate) fn choose(asked: Via, loader: &Loader, interposer: &Path) -> Result<Way, Failure> {
    let taken = |via, why: &str, audit| {
        Ok(Way {
            via,
            why: why.to_owned(),
            audit,
        })
    };
    match asked {
        Via::Preload => taken(asked, "as asked", None),
        Via::Audit => taken(asked, "as asked", Some(library::audit()?)),
        Via::Gum if can_patch(interposer) => taken(asked, "as asked", None),
        Via::Gum => Err(Failure::unusable(format!(
            "--via gum: {} was built without it; docs/guide.md says how to build it with frida-gum",
            interposer.display()
        ))),
        Via::Auto => match library::audit() {
            Err(_) => taken(
                Via::Preload,
                "the library for --via audit is not there",
                None,
            ),
            Ok(library) => match why_no_audit(loader, glibc()) {
                Some(why) => taken(Via::Preload, &why, None),
                None => taken(Via::Audit, "it catches most", Some(library)),
            },
        },
    }
}

/// Why `auto` does not take `audit`.
fn why_no_audit(loader: &Loader, glibc: Option<(u32, u32)>) -> Option<String> {
    if let Loader::Named(path) = loader
        && !is_ours(path)
    {
        return Some(format!(
            "the program's loader {} is not this system's, --via audit was not tried with it",
            path.display()
        ));
    }
    let (major, minor) = GLIBC_FOR_AUDIT;
    match glibc {
        Some(version) if version >= GLIBC_FOR_AUDIT => None,
        Some((a, b)) => Some(format!(
            "--via audit is for glibc {major}.{minor} and later, this is {a}.{b}"
        )),
        None => Some("the version of glibc is not known".to_owned()),
    }
}

/// Why `auto` does not take `audit` on this machine, for programs with the system's own loader.
pub(crate) fn why_no_audit_here() -> Option<String> {
    why_no_audit(&Loader::Unknown, glibc())
}

/// Whether that is the loader of this system, whose version is the one we know.
fn is_ours(loader: &Path) -> bool {
    let identity = |path: &Path| fs::metadata(path).ok().map(|m| (m.dev(), m.ino()));
    identity(loader)
        .is_some_and(|found| Some(found) == identity(Path::new("/lib64/ld-linux-x86-64.so.2")))
}

/// The glibc that this process runs with.
fn glibc() -> Option<(u32, u32)> {
    // SAFETY: gives a string that lasts for ever.
    let text = unsafe { CStr::from_ptr(libc::gnu_get_libc_version()) };
    version(text.to_str().ok()?)
}

/// `2.36` or `2.36.9000`.
fn version(text: &str) -> Option<(u32, u32)> {
    let mut numbers = text.split('.').map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

/// Whether the interposer was built with the engine that patches.
fn can_patch(interposer: &Path) -> bool {
    let Ok(file) = fs::File::open(interposer) else {
        return false;
    };
    let cache = object::ReadCache::new(file);
    object::File::parse(&cache).is_ok_and(|library| {
        let mut symbols = library.dynamic_symbols();
        symbols.any(|symbol| symbol.is_definition() && symbol.name() == Ok(PATCHES))
    })
}

impl Way {
    /// The word for it.
    pub(crate) fn word(&self) -> &'static str {
        match self.via {
            Via::Auto => "auto",
            Via::Audit => "audit",
            Via::Preload => "preload",
            Via::Gum => "gum",
        }
    }

    /// What the program's environment is to say, beside what it says already.
    pub(crate) fn environment(&self, folder: &LibraryFolder) -> Vec<(&'static str, OsString)> {
        let mut variables = vec![("CUTAPE_VIA", self.word().into())];
        match &self.audit {
            Some(library) => variables.extend([
                ("LD_AUDIT", with_first(library, "LD_AUDIT")),
                ("CUTAPE_AUDIT_LEADS_TO", folder.library().into()),
            ]),
            None => variables.extend([
                ("LD_PRELOAD", with_first(&folder.library(), "LD_PRELOAD")),
                (
                    "LD_LIBRARY_PATH",
                    with_first(folder.path(), "LD_LIBRARY_PATH"),
                ),
            ]),
        }
        variables
    }

    /// The files with libcuda's name, or the driver itself, that a process may have mapped although it makes no call.
    pub(crate) fn mapped_at_start(&self, interposer: PathBuf, driver: &Path) -> Vec<PathBuf> {
        match self.via {
            Via::Gum => vec![interposer, driver.to_owned()],
            _ => vec![interposer],
        }
    }

    /// What to try where calls escape this way.
    pub(crate) fn next(&self) -> &'static str {
        match self.via {
            Via::Gum => "docs/limitations.md says what escapes",
            Via::Audit => "try --via gum",
            Via::Auto | Via::Preload => "try --via audit",
        }
    }
}

/// A list of paths with one more at its front.
fn with_first(path: &Path, variable: &str) -> OsString {
    let mut list = path.as_os_str().to_owned();
    if let Some(rest) = env::var_os(variable).filter(|rest| !rest.is_empty()) {
        list.push(":");
        list.push(rest);
    }
    list
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn audit_where_it_is_known_to_work() {
        let named = |path: &str| Loader::Named(PathBuf::from(path));
        let own = "/lib64/ld-linux-x86-64.so.2";
        for (loader, glibc, why) in [
            (named(own), Some((2, 35)), None),
            (Loader::Unknown, Some((2, 41)), None),
            (Loader::Unknown, Some((3, 0)), None),
            (named(own), Some((2, 34)), Some("this is 2.34")),
            (named(own), Some((2, 28)), Some("this is 2.28")),
            (named(own), None, Some("not known")),
            (
                named("/bin/sh"),
                Some((2, 41)),
                Some("/bin/sh is not this system's"),
            ),
            (
                named("/no/such/ld.so"),
                Some((2, 41)),
                Some("is not this system's"),
            ),
        ] {
            let found = why_no_audit(&loader, glibc);
            match why {
                None => assert_eq!(found, None, "{loader:?} {glibc:?}"),
                Some(why) => assert!(
                    found.is_some_and(|text| text.contains(why)),
                    "{loader:?} {glibc:?}"
                ),
            }
        }
    }

    #[test]
    fn versions() {
        for (text, expected) in [
            ("2.36", Some((2, 36))),
            ("2.36.9000", Some((2, 36))),
            ("2", None),
            ("2.x", None),
            ("", None),
        ] {
            assert_eq!(version(text), expected, "{text}");
        }
        assert!(glibc().is_some());
    }
}
