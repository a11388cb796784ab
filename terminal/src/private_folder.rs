//! Temporary folders of this process, and names in the folder for temporary files.

use std::fs::{self, File};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{self, Write};
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

/// Writes a file in the place of what has its name. A replay may write there, too: where a hostile
/// trace has taken one over, the name may be a link to another file.
///
/// # Errors
/// If it cannot be written.
pub fn write_anew(path: &Path, bytes: &[u8]) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => File::create_new(path)?.write_all(bytes),
    }
}

impl PrivateFolder {
    /// Makes it, with the name of what it is for.
    ///
    /// # Errors
    /// If the folder for temporary files is not writable.
    pub fn create(purpose: &str) -> Result<Self, Failure> {
        let folder = std::env::temp_dir().join(unforeseen_name(&format!("cutape-{purpose}")));
        let made = ending::begin_partial(&folder, 0o700);
        made.map_err(|error| {
            let folder = folder.display();
            Failure::unusable(format!("cannot make {folder}: {error}; set TMPDIR"))
        })?;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_not_followed() {
        let folder = PrivateFolder::create("links").unwrap();
        let (other, link) = (folder.path("other"), folder.path("link"));
        fs::write(&other, "other").unwrap();
        for text in ["first", "second"] {
            let _ = fs::remove_file(&link);
            std::os::unix::fs::symlink(&other, &link).unwrap();
            write_anew(&link, text.as_bytes()).unwrap();
            assert_eq!(fs::read_to_string(&link).unwrap(), text);
        }
        assert_eq!(fs::read_to_string(&other).unwrap(), "other");
    }
}
