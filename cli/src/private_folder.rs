//! A temporary folder of this process, for contents of memory.

use std::fs;
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;

use cutape_terminal::failure::Failure;
use cutape_terminal::output_folder::remove_on_signals;

/// A folder that only this user can read, and that is removed with its files when dropped.
#[derive(Debug)]
pub(crate) struct PrivateFolder(PathBuf);

impl PrivateFolder {
    /// Makes it, with the name of what it is for.
    pub(crate) fn create(purpose: &str) -> Result<Self, Failure> {
        let name = format!("cutape-{purpose}-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        let made = fs::DirBuilder::new().mode(0o700).create(&folder);
        made.map_err(|error| {
            let folder = folder.display();
            Failure::unusable(format!("cannot make {folder}: {error}; set TMPDIR"))
        })?;
        Ok(Self(folder))
    }

    /// Removes it when a signal ends the program, too. Needs
    /// [`hold_signals`](cutape_terminal::output_folder::hold_signals).
    pub(crate) fn remove_on_signals(&self) {
        remove_on_signals(self.0.clone());
    }

    /// A file in it.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for PrivateFolder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
