//! The temporary folder through which programs find the interposer as libcuda.

use std::env;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, symlink};
use std::path::{Path, PathBuf};

use cutape_terminal::failure::Failure;
use cutape_terminal::private_folder::unforeseen_name;

use crate::forward;

/// How the names of these folders begin; the process and its system follow.
const PREFIX: &str = "cutape-";
/// The name that programs load.
const LIBRARY: &str = "libcuda.so.1";

/// A folder with links `libcuda.so.1` and `libcuda.so` to one library; removed when dropped, unless
/// a process may still load the library: without it, that process would not start.
pub struct LibraryFolder(PathBuf);

impl LibraryFolder {
    /// Creates the folder.
    ///
    /// # Errors
    /// If the folder for temporary files is not writable.
    pub fn new(library: &Path) -> Result<Self, Failure> {
        let failed = |path: &Path, error: std::io::Error| {
            Failure::unusable(format!(
                "cannot create {}: {error}; set TMPDIR to a writable folder",
                path.display()
            ))
        };
        // Absolute: the program may change its working directory before it starts others.
        let base = std::path::absolute(env::temp_dir())
            .map_err(|error| failed(&env::temp_dir(), error))?;
        remove_leftovers(&base);
        let name = format!("{PREFIX}{}-{}", std::process::id(), system());
        let path = base.join(unforeseen_name(&name));
        let made = fs::DirBuilder::new().mode(0o755).create(&path);
        made.map_err(|error| failed(&path, error))?;
        let folder = Self(path);
        for name in [LIBRARY, "libcuda.so"] {
            let link = folder.0.join(name);
            symlink(library, &link).map_err(|error| failed(&link, error))?;
        }
        Ok(folder)
    }

    /// Makes driver functions that the registry does not know available through the folder.
    ///
    /// # Errors
    /// If a library cannot be read or written. The folder then works as before.
    pub(crate) fn forward(&self, interposer: &Path, driver: &Path) -> Result<(), String> {
        let mut names = forward::exported(driver)?;
        names.retain(|name| !forward::is_known(name));
        if names.is_empty() {
            return Ok(());
        }
        let failed = |error: std::io::Error| format!("{}: {error}", self.0.display());
        forward::obstacle(&self.0).map_or(Ok(()), Err)?;
        let copy = self.0.join("copy");
        fs::write(self.0.join(forward::LIBRARY), forward::library(&names)?).map_err(failed)?;
        fs::write(&copy, forward::interposer(interposer)?).map_err(failed)?;
        // The link to the original stays if a step before this fails.
        fs::rename(&copy, self.library()).map_err(failed)?;
        let other = self.0.join("libcuda.so");
        fs::remove_file(&other).map_err(failed)?;
        symlink(LIBRARY, &other).map_err(failed)
    }

    /// The folder.
    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// The library under the name that programs load.
    pub(crate) fn library(&self) -> PathBuf {
        self.0.join(LIBRARY)
    }

    /// The link that the interposer makes if it cannot create a trace.
    pub(crate) fn not_recorded(&self) -> PathBuf {
        self.0.join("not-recorded")
    }

    /// A process that was started with the folder among its variables and still runs.
    pub(crate) fn user(&self) -> Option<u32> {
        user(&self.0)
    }

    /// Whether a path is that of the library in such a folder.
    pub fn is_library(path: &Path) -> bool {
        let folder = path.parent().and_then(Path::file_name);
        let folder =
            folder.is_some_and(|name| name.as_encoded_bytes().starts_with(PREFIX.as_bytes()));
        folder && path.file_name() == Some(LIBRARY.as_ref())
    }
}

/// Which system numbers this process: another boot, machine or container has other numbers.
fn system() -> String {
    let mut hasher = DefaultHasher::new();
    let boot = fs::read("/proc/sys/kernel/random/boot_id").ok();
    let namespace = fs::read_link("/proc/self/ns/pid").ok();
    (boot, namespace).hash(&mut hasher);
    format!("{:08x}", hasher.finish() as u32)
}

/// Removes the folders that recorders of this user and system have left, because they were killed or
/// programs still ran, once those have ended, too.
fn remove_leftovers(base: &Path) {
    let own = fs::metadata("/proc/self").map(|own| own.uid()).ok();
    let ending = format!("-{}-", system());
    let is_left = |folder: &Path| {
        let name = folder.file_name()?.to_str()?.strip_prefix(PREFIX)?;
        let (process, _) = name.split_once(&ending)?;
        let process: u32 = process.parse().ok()?;
        let owner = fs::symlink_metadata(folder).ok()?;
        let is_gone = !Path::new("/proc").join(process.to_string()).exists();
        Some(owner.is_dir() && Some(owner.uid()) == own && is_gone && !is_used(folder))
    };
    for entry in fs::read_dir(base).into_iter().flatten().flatten() {
        let folder = entry.path();
        if is_left(&folder) == Some(true) {
            let _ = fs::remove_dir_all(&folder);
        }
    }
}

/// Whether a process was started with that folder among its variables.
fn is_used(folder: &Path) -> bool {
    user(folder).is_some()
}

/// A process that was started with that folder among its variables.
fn user(folder: &Path) -> Option<u32> {
    let name = folder.as_os_str().as_bytes();
    let mut processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    processes.find_map(|process| {
        let number = process.file_name().to_str()?.parse().ok()?;
        let variables = fs::read(process.path().join("environ")).ok()?;
        let is_user = variables.windows(name.len()).any(|part| part == name);
        is_user.then_some(number)
    })
}

impl Drop for LibraryFolder {
    fn drop(&mut self) {
        if !is_used(&self.0) {
            // A leftover folder holds a few small files and harms nothing.
            let _ = fs::remove_dir_all(&self.0);
        }
    }
}
