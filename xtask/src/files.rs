//! Files and folders; the message of a failure has the path.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;

use crate::Failure;

/// What went wrong with a path.
pub(crate) fn failed(path: &Path, error: impl std::fmt::Display) -> Failure {
    failure!("{}: {error}", path.display())
}

/// The text of a file; invalid UTF-8 is replaced.
pub(crate) fn read(path: &Path) -> Result<String, Failure> {
    let bytes = fs::read(path).map_err(|error| failed(path, error))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// The content of a TOML file.
pub(crate) fn read_toml<T: DeserializeOwned>(path: &Path) -> Result<T, Failure> {
    toml::from_str(&read(path)?).map_err(|error| failed(path, error))
}

/// Writes a file; makes its folder if there is none.
pub(crate) fn write(path: &Path, text: &str) -> Result<(), Failure> {
    make_folder(path.parent().unwrap_or(path))?;
    fs::write(path, text).map_err(|error| failed(path, error))
}

/// Makes a folder and those around it.
pub(crate) fn make_folder(path: &Path) -> Result<(), Failure> {
    fs::create_dir_all(path).map_err(|error| failed(path, error))
}

pub(crate) fn copy(from: &Path, to: &Path) -> Result<(), Failure> {
    fs::copy(from, to).map_err(|error| failed(from, error))?;
    Ok(())
}

/// Makes a symbolic link to the absolute path of a file or folder.
pub(crate) fn link(target: &Path, link: &Path) -> Result<(), Failure> {
    fs::canonicalize(target)
        .and_then(|target| symlink(target, link))
        .map_err(|error| failed(link, error))
}

/// The files and folders in a folder, sorted; none if there is no such folder.
pub(crate) fn list(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    paths.sort();
    paths
}

/// The name of a file or folder.
pub(crate) fn name(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default();
    name.to_string_lossy().into_owned()
}

/// What follows the last dot of a file's name; empty if there is none.
pub(crate) fn extension(path: &Path) -> &str {
    let extension = path.extension().and_then(std::ffi::OsStr::to_str);
    extension.unwrap_or_default()
}

/// Whether a file's name ends with a dot and that.
pub(crate) fn has_extension(path: &Path, extension: &str) -> bool {
    path.extension().is_some_and(|found| found == extension)
}
