//! How a program's calls reach the interposer, and the environment variables that this needs.

use std::env;
use std::ffi::{CStr, OsString};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use cutape_registry::Backend;
use cutape_terminal::failure::Failure;
use cutape_terminal::library;

use crate::library_folder::LibraryFolder;
use crate::program_file::Loader;
use crate::words::BackendChoice;

/// The oldest glibc with which `auto` selects `audit`. With 2.35, 2.36, 2.39 and 2.41 programs ran
/// as they do without it. Older ones make calls through the PLT slower under any auditing library
/// (release notes of 2.35), and `dlmopen` crashes (seen with 2.27 and 2.31).
const GLIBC_FOR_AUDIT: (u32, u32) = (2, 35);

/// The symbol that the interposer exports if it can patch.
const PATCHES: &str = "cutape_interposer_patches";

/// The selected backend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SelectedBackend {
    /// Which one.
    pub backend: Backend,
    /// Why it was selected.
    pub reason: String,
    /// The auditing library, for `Audit`.
    audit: Option<PathBuf>,
}

/// Selects the backend for a program with that loader.
pub(crate) fn select(
    requested: BackendChoice,
    loader: &Loader,
    interposer: &Path,
) -> Result<SelectedBackend, Failure> {
    let missing = "the library for --backend audit is missing";
    let (backend, reason, audit) = match (requested, library::audit()) {
        (BackendChoice::Auto, Err(_)) => (Backend::Preload, missing.to_owned(), None),
        (BackendChoice::Auto, Ok(library)) => match why_no_audit(loader, glibc()) {
            Some(why) => (Backend::Preload, why, None),
            None => (Backend::Audit, "it catches most".to_owned(), Some(library)),
        },
        (BackendChoice::Named(backend), library) => {
            if backend == Backend::Gum && library::exports(interposer, PATCHES) != Some(true) {
                return Err(Failure::unusable(format!(
                    "--backend gum: {} was built without frida-gum; build it with the feature \
                     gum-auto-download of cutape-interposer",
                    interposer.display()
                )));
            }
            let audit = match backend {
                Backend::Audit => Some(library?),
                Backend::Preload | Backend::Gum => None,
            };
            (backend, "as requested".to_owned(), audit)
        }
    };
    Ok(SelectedBackend {
        backend,
        reason,
        audit,
    })
}

/// Why `auto` does not select `audit`.
fn why_no_audit(loader: &Loader, glibc: Option<(u32, u32)>) -> Option<String> {
    if let Loader::Named(path) = loader
        && !is_system_loader(path)
    {
        return Some(format!(
            "the program's loader {} is not this system's; --backend audit is untested with it",
            path.display()
        ));
    }
    let (major, minor) = GLIBC_FOR_AUDIT;
    match glibc {
        Some(version) if version >= GLIBC_FOR_AUDIT => None,
        Some((a, b)) => Some(format!(
            "--backend audit needs glibc {major}.{minor} or later, this is {a}.{b}"
        )),
        None => Some("the version of glibc is unknown".to_owned()),
    }
}

/// Why `auto` does not select `audit` on this machine, for programs with the system's loader.
pub fn why_no_audit_here() -> Option<String> {
    why_no_audit(&Loader::Unknown, glibc())
}

/// Whether a loader is this system's, so that [`glibc`] is its version.
fn is_system_loader(loader: &Path) -> bool {
    let identity = |path: &Path| fs::metadata(path).ok().map(|m| (m.dev(), m.ino()));
    identity(loader)
        .is_some_and(|found| Some(found) == identity(Path::new("/lib64/ld-linux-x86-64.so.2")))
}

/// The version of glibc that this process runs with.
fn glibc() -> Option<(u32, u32)> {
    // SAFETY: the function returns a static string.
    let text = unsafe { CStr::from_ptr(libc::gnu_get_libc_version()) };
    version(text.to_str().ok()?)
}

/// Parses `2.36` or `2.36.9000`.
fn version(text: &str) -> Option<(u32, u32)> {
    let mut numbers = text.split('.').map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

impl SelectedBackend {
    /// The variables by which the loader brings the interposer into the program.
    ///
    /// # Errors
    /// If a variable cannot name the library.
    pub(crate) fn loader_variables(
        &self,
        folder: &LibraryFolder,
    ) -> Result<Vec<(&'static str, OsString)>, Failure> {
        let library_path = "LD_LIBRARY_PATH";
        Ok(match &self.audit {
            Some(library) => vec![("LD_AUDIT", prepended(library, "LD_AUDIT"))],
            None => {
                check_preloadable(&folder.library())?;
                vec![
                    ("LD_PRELOAD", prepended(&folder.library(), "LD_PRELOAD")),
                    (library_path, prepended(folder.path(), library_path)),
                ]
            }
        })
    }

    /// Where the auditing library finds the interposer.
    pub(crate) fn audit_leads_to(&self, folder: &LibraryFolder) -> Option<PathBuf> {
        self.audit.as_ref().map(|_| folder.library())
    }

    /// The libcuda files that a process may have mapped before its first call.
    pub(crate) fn mapped_at_start(&self, interposer: PathBuf, driver: &Path) -> Vec<PathBuf> {
        match self.backend {
            Backend::Gum => vec![interposer, driver.to_owned()],
            Backend::Audit | Backend::Preload => vec![interposer],
        }
    }

    /// What to try if calls bypass this backend.
    pub(crate) fn advice(&self) -> &'static str {
        match self.backend {
            Backend::Gum => "`cutape record --help` lists what is not recorded",
            Backend::Audit => "try --backend gum",
            Backend::Preload => "try --backend audit",
        }
    }
}

/// Rejects a path that LD_PRELOAD would take for several: it has no way to quote (ld.so(8)).
fn check_preloadable(library: &Path) -> Result<(), Failure> {
    match library.to_string_lossy().contains([' ', ':']) {
        true => Err(Failure::unusable(format!(
            "LD_PRELOAD cannot name {}, which has a blank or a colon; set TMPDIR to another folder",
            library.display()
        ))),
        false => Ok(()),
    }
}

/// The list of paths in an environment variable, with one more in front.
fn prepended(path: &Path, variable: &str) -> OsString {
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
    fn auto_selects_audit_where_it_works() {
        let named = |path: &str| Loader::Named(PathBuf::from(path));
        let own = "/lib64/ld-linux-x86-64.so.2";
        for (loader, glibc, why) in [
            (named(own), Some((2, 35)), None),
            (Loader::Unknown, Some((2, 41)), None),
            (Loader::Unknown, Some((3, 0)), None),
            (named(own), Some((2, 34)), Some("this is 2.34")),
            (named(own), Some((2, 28)), Some("this is 2.28")),
            (named(own), None, Some("unknown")),
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
    fn a_path_that_ld_preload_takes_for_several_is_refused() {
        for (path, is_good) in [
            ("/tmp/cutape-1-0/libcuda.so.1", true),
            ("/tmp/a b/libcuda.so.1", false),
            ("/tmp/a:b/libcuda.so.1", false),
        ] {
            assert_eq!(
                check_preloadable(Path::new(path)).is_ok(),
                is_good,
                "{path}"
            );
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
