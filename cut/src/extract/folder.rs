//! The folder that an extraction writes.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::error::Error;

/// A folder that is written beside its place.
#[derive(Clone, Copy, Debug)]
pub struct OutputFolder<'a> {
    /// Where the files go.
    pub partial: &'a Path,
    /// Where they are in the end, for messages.
    pub target: &'a Path,
}

impl OutputFolder<'_> {
    /// Where a file is until the folder is in its place.
    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.partial.join(name)
    }

    /// Makes a folder in it.
    pub(super) fn make_folder(&self, name: &str) -> Result<(), Error> {
        fs::create_dir(self.path(name)).map_err(|error| self.cannot_write(name, error))
    }

    /// Writes a file.
    pub(super) fn write(&self, name: &str, bytes: impl AsRef<[u8]>) -> Result<(), Error> {
        fs::write(self.path(name), bytes).map_err(|error| self.cannot_write(name, error))
    }

    /// Writes a file that can be run.
    pub(super) fn write_script(&self, name: &str, text: &str) -> Result<(), Error> {
        self.write(name, text)?;
        let mode = fs::Permissions::from_mode(0o700);
        fs::set_permissions(self.path(name), mode).map_err(|error| self.cannot_write(name, error))
    }

    fn cannot_write(&self, name: &str, source: io::Error) -> Error {
        let path = self.target.join(name);
        Error::Write { path, source }
    }
}
