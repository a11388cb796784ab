//! The temporary folder through which programs find the interposer as libcuda.

use std::env;
use std::fs;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use cutape_terminal::failure::Failure;

use crate::forward;

/// How the names of these folders begin; the process follows.
const PREFIX: &str = "cutape-";
/// The name that programs load.
const LIBRARY: &str = "libcuda.so.1";

/// A folder with links `libcuda.so.1` and `libcuda.so` to one library; removed when dropped.
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
        for attempt in 0..100u32 {
            let path = base.join(format!("{PREFIX}{}-{attempt}", std::process::id()));
            match fs::DirBuilder::new().mode(0o755).create(&path) {
                Ok(()) => {
                    let folder = Self(path);
                    for name in [LIBRARY, "libcuda.so"] {
                        let link = folder.0.join(name);
                        std::os::unix::fs::symlink(library, &link)
                            .map_err(|error| failed(&link, error))?;
                    }
                    return Ok(folder);
                }
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(failed(&path, error)),
            }
        }
        Err(Failure::unusable(format!(
            "{}: too many leftover cutape folders; remove cutape-*",
            base.display()
        )))
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
        std::os::unix::fs::symlink(LIBRARY, &other).map_err(failed)
    }

    /// The folder.
    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// The library under the name that programs load.
    pub(crate) fn library(&self) -> PathBuf {
        self.0.join(LIBRARY)
    }

    /// Whether a path is that of the library in such a folder.
    pub fn is_library(path: &Path) -> bool {
        let folder = path.parent().and_then(Path::file_name);
        let folder =
            folder.is_some_and(|name| name.as_encoded_bytes().starts_with(PREFIX.as_bytes()));
        folder && path.file_name() == Some(LIBRARY.as_ref())
    }
}

impl Drop for LibraryFolder {
    fn drop(&mut self) {
        // A leftover folder holds a few small files and harms nothing.
        let _ = fs::remove_dir_all(&self.0);
    }
}
