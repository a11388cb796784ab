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
use crate::start_libraries::StartLibraries;
use crate::words::BackendChoice;

/// The oldest glibc with which `auto` selects `audit`. With 2.35, 2.36, 2.39 and 2.41 programs ran
/// as they do without it. Older ones make calls through the PLT slower under any auditing library
/// (release notes of 2.35), and `dlmopen` crashes (seen with 2.27 and 2.31).
const GLIBC_FOR_AUDIT: (u32, u32) = (2, 35);

/// The most bytes of static thread-local memory of a program's libraries with which `audit` is used.
/// With an auditing library, glibc sets this memory up before it has seen the program's libraries,
/// which then share what is reserved for libraries that are loaded later; without enough of it the
/// program does not start. With glibc 2.36 there are 1,840 bytes in all. The C library needs 144,
/// jemalloc 2,632, the runtime of ThreadSanitizer 786,000.
const MOST_STATIC_TLS: u64 = 1024;

/// A library with which a program does not start if another one is preloaded.
const NOT_WITH_PRELOAD: &str = "libasan.so";

/// The loader of this system.
const SYSTEM_LOADER: &str = "/lib64/ld-linux-x86-64.so.2";

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
    program: &Path,
    loader: &Loader,
    interposer: &Path,
) -> Result<SelectedBackend, Failure> {
    let libraries = match loader {
        Loader::Named(path) if !is_system_loader(path) => StartLibraries::default(),
        _ => StartLibraries::of(Path::new(SYSTEM_LOADER), program),
    };
    let missing = "the library for --backend audit is missing";
    let (backend, reason, audit) = match (requested, library::audit()) {
        (BackendChoice::Auto, Err(_)) => (Backend::Preload, missing.to_owned(), None),
        (BackendChoice::Auto, Ok(library)) => match why_no_audit(loader, &libraries, glibc()) {
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
    if let Some(why) = obstacle(backend, &libraries) {
        let other = match backend {
            Backend::Audit => Backend::Preload,
            Backend::Preload | Backend::Gum => Backend::Audit,
        };
        return Err(Failure::unusable(format!(
            "--backend {}: the program would not start: {why}; use --backend {}",
            backend.word(),
            other.word()
        )));
    }
    Ok(SelectedBackend {
        backend,
        reason,
        audit,
    })
}

/// Why a program with these libraries does not start with a backend.
fn obstacle(backend: Backend, libraries: &StartLibraries) -> Option<String> {
    if backend != Backend::Audit {
        let library = libraries.named(NOT_WITH_PRELOAD)?;
        return Some(format!("{library} must be loaded before all others"));
    }
    let (bytes, most) = libraries.static_tls();
    (bytes > MOST_STATIC_TLS).then(|| {
        format!(
            "its libraries (first of all {most}) need {bytes} bytes of static thread-local memory"
        )
    })
}

/// Why `auto` does not select `audit`.
fn why_no_audit(
    loader: &Loader,
    libraries: &StartLibraries,
    glibc: Option<(u32, u32)>,
) -> Option<String> {
    if let Some(why) = obstacle(Backend::Audit, libraries) {
        return Some(format!("--backend audit would not start it: {why}"));
    }
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
    why_no_audit(&Loader::Unknown, &StartLibraries::default(), glibc())
}

/// Whether a loader is this system's, so that [`glibc`] is its version.
fn is_system_loader(loader: &Path) -> bool {
    let identity = |path: &Path| fs::metadata(path).ok().map(|m| (m.dev(), m.ino()));
    identity(loader).is_some_and(|found| Some(found) == identity(Path::new(SYSTEM_LOADER)))
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
        Ok(match &self.audit {
            Some(library) => vec![("LD_AUDIT", prepended(library, "LD_AUDIT"))],
            None => preload_variables(folder)?,
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

/// The variables with which a program loads the library of a folder as libcuda.
pub(crate) fn preload_variables(
    folder: &LibraryFolder,
) -> Result<Vec<(&'static str, OsString)>, Failure> {
    let library_path = "LD_LIBRARY_PATH";
    check_preloadable(&folder.library())?;
    Ok(vec![
        ("LD_PRELOAD", prepended(&folder.library(), "LD_PRELOAD")),
        (library_path, prepended(folder.path(), library_path)),
    ])
}

/// The same for a program that is not recorded. One that does not start with a preloaded library
/// finds this one by its name.
pub(crate) fn driver_variables(
    program: &Path,
    folder: &LibraryFolder,
) -> Result<Vec<(&'static str, OsString)>, Failure> {
    let mut variables = preload_variables(folder)?;
    let libraries = StartLibraries::of(Path::new(SYSTEM_LOADER), program);
    if libraries.named(NOT_WITH_PRELOAD).is_some() {
        variables.retain(|(name, _)| *name != "LD_PRELOAD");
    }
    Ok(variables)
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
            let found = why_no_audit(&loader, &StartLibraries::default(), glibc);
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
    fn libraries_that_stop_a_backend() {
        for (backend, library, bytes, is_obstacle) in [
            (Backend::Audit, "libasan.so.8", 84, false),
            (Backend::Audit, "libjemalloc.so.2", 2632, true),
            (Backend::Audit, "libgomp.so.1", 136, false),
            (Backend::Preload, "libasan.so.8", 84, true),
            (Backend::Preload, "libtsan.so.2", 785_760, false),
            (Backend::Gum, "libasan.so.8", 84, true),
        ] {
            let libraries = StartLibraries::for_tests(&[("libc.so.6", 144), (library, bytes)]);
            let found = obstacle(backend, &libraries);
            assert_eq!(found.is_some(), is_obstacle, "{backend:?} {library}");
            if backend == Backend::Audit {
                let why = why_no_audit(&Loader::Unknown, &libraries, Some((2, 36)));
                assert_eq!(why.is_some(), is_obstacle, "{library}");
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
