//! Temporary folders of this process, and names in the folder for temporary files.

use std::fs;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use crate::ending;
use crate::failure::Failure;

/// A folder that only this user can read, and that is removed with its files when dropped, or when a
/// signal ends cutape.
#[derive(Debug)]
pub struct PrivateFolder(PathBuf);

/// `PREFIX-NUMBER`, which nobody can foresee.
pub fn unforeseen_name(prefix: &str) -> String {
    // Its keys are random.
    let number = RandomState::new().build_hasher().finish();
    format!("{prefix}-{number:016x}")
}

impl PrivateFolder {
    /// Makes it, with the name of what it is for.
    ///
    /// # Errors
    /// If the folder for temporary files is not writable.
    pub fn create(purpose: &str) -> Result<Self, Failure> {
        let folder = std::env::temp_dir().join(unforeseen_name(&format!("cutape-{purpose}")));
        let made = fs::DirBuilder::new().mode(0o700).create(&folder);
        made.map_err(|error| {
            let folder = folder.display();
            Failure::unusable(format!("cannot make {folder}: {error}; set TMPDIR"))
        })?;
        ending::begin_partial(&folder);
        Ok(Self(folder))
    }

    /// A file in it.
    pub fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for PrivateFolder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
        ending::end_partial(&self.0);
    }
}
