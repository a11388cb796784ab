//! Where the real libcuda is, as opposed to cutape's interposer under the same name.

use std::env;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use cutape_registry::DRIVER_FOLDERS;

use crate::{elf, loader_cache};

/// The symbol by which cutape's interposer is known.
pub const MARKER: &str = "cutape_interposer_marker";

const LIBRARY: &str = "libcuda.so.1";

/// Why there is no driver to use.
#[derive(Debug, thiserror::Error)]
pub enum LocateError {
    /// `CUTAPE_DRIVER` names no file.
    #[error(
        "CUTAPE_DRIVER is no file: {}; set it to the real libcuda.so.1 or unset it",
        .0.display()
    )]
    NoSuchFile(PathBuf),
    /// `CUTAPE_DRIVER` names cutape's interposer.
    #[error(
        "CUTAPE_DRIVER is cutape's own interposer: {}; set it to the real libcuda.so.1",
        .0.display()
    )]
    Interposer(PathBuf),
    /// No libcuda.so.1 was found.
    #[error(
        "no libcuda.so.1 in LD_LIBRARY_PATH, /etc/ld.so.cache or the folders of drivers; \
         install the NVIDIA driver or set CUTAPE_DRIVER to its libcuda.so.1"
    )]
    NotFound,
}

/// The absolute path of the real `libcuda.so.1`.
///
/// In this order: the variable `CUTAPE_DRIVER`, the folders of `LD_LIBRARY_PATH`, the loader's
/// cache, the folders of drivers. Skips files that are cutape's interposer.
///
/// # Errors
///
/// [`LocateError`]: the variable is wrong, or no driver is installed.
pub fn locate() -> Result<PathBuf, LocateError> {
    let cache = fs::read("/etc/ld.so.cache").unwrap_or_default();
    let search = Search {
        chosen: env::var_os("CUTAPE_DRIVER")
            .filter(|value| !value.is_empty())
            .map(PathBuf::from),
        library_path: env::var_os("LD_LIBRARY_PATH").unwrap_or_default(),
        cached: loader_cache::paths(&cache, LIBRARY),
    };
    search.run(&DRIVER_FOLDERS.map(Path::new))
}

/// Whether a file is cutape's interposer; false for anything but a readable ELF file.
pub fn is_interposer(path: &Path) -> bool {
    File::open(path).is_ok_and(|file| elf::names_symbol(file, MARKER).unwrap_or(false))
}

/// Where the environment and the system point to.
struct Search {
    chosen: Option<PathBuf>,
    library_path: std::ffi::OsString,
    cached: Vec<PathBuf>,
}

impl Search {
    fn run(self, known_folders: &[&Path]) -> Result<PathBuf, LocateError> {
        if let Some(chosen) = self.chosen {
            if !chosen.is_file() {
                return Err(LocateError::NoSuchFile(chosen));
            }
            if is_interposer(&chosen) {
                return Err(LocateError::Interposer(chosen));
            }
            return Ok(absolute(chosen));
        }
        // To the loader an empty element is the current folder, where no driver is meant to be.
        let from_path = split(&self.library_path).map(|folder| folder.join(LIBRARY));
        let from_known = known_folders.iter().map(|folder| folder.join(LIBRARY));
        from_path
            .chain(self.cached)
            .chain(from_known)
            .find(|path| path.is_file() && !is_interposer(path))
            .map(absolute)
            .ok_or(LocateError::NotFound)
    }
}

fn split(list: &OsStr) -> impl Iterator<Item = PathBuf> {
    // The loader takes semicolons as well as colons.
    let text = list.to_string_lossy().into_owned();
    let folders = text.split([':', ';']).filter(|folder| !folder.is_empty());
    folders.map(PathBuf::from).collect::<Vec<_>>().into_iter()
}

fn absolute(path: PathBuf) -> PathBuf {
    std::path::absolute(&path).unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder of its own with a libcuda.so.1 of those bytes.
    fn folder(name: &str, content: &[u8]) -> PathBuf {
        let folder = env::temp_dir().join(format!("cutape-locate-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join(LIBRARY), content).unwrap();
        folder
    }

    /// The smallest ELF file whose dynamic string table holds one name.
    fn library(symbol: &str) -> Vec<u8> {
        let strings = format!("\0{symbol}\0");
        let mut bytes = b"\x7fELF\x02\x01\x01".to_vec();
        bytes.resize(32, 0);
        bytes.extend(64_u64.to_le_bytes());
        bytes.resize(54, 0);
        bytes.extend([56, 0, 2, 0]);
        bytes.resize(64, 0);
        let length = strings.len() as u64;
        for (kind, offset, size) in [(1_u32, 0_u64, 224 + length), (2, 176, 48)] {
            bytes.extend(kind.to_le_bytes());
            bytes.extend([0; 4]);
            for word in [offset, offset, offset, size, size, 8] {
                bytes.extend(word.to_le_bytes());
            }
        }
        for word in [5_u64, 224, 10, length, 0, 0] {
            bytes.extend(word.to_le_bytes());
        }
        bytes.extend(strings.as_bytes());
        bytes
    }

    #[test]
    fn skips_the_interposer() {
        let own = folder("own", &library(MARKER));
        let real = folder("real", &library("cuInit"));
        let nowhere = env::temp_dir().join("cutape-locate-nowhere");
        let (own_file, real_file) = (own.join(LIBRARY), real.join(LIBRARY));
        assert!(is_interposer(&own_file) && !is_interposer(&real_file));

        let both = format!(
            "{}::{}:{}",
            nowhere.display(),
            own.display(),
            real.display()
        );
        let search =
            |chosen: Option<&PathBuf>, library_path: &str, cached: &[&PathBuf], known: &[&Path]| {
                let cached = cached.iter().map(|path| (*path).clone()).collect();
                Search {
                    chosen: chosen.cloned(),
                    library_path: library_path.into(),
                    cached,
                }
                .run(known)
                .ok()
            };
        let found = Some(real_file.clone());
        assert_eq!(search(None, &both, &[], &[]), found);
        assert_eq!(search(None, "", &[&own_file, &real_file], &[]), found);
        assert_eq!(search(None, "", &[], &[&nowhere, &own, &real]), found);
        assert_eq!(search(Some(&real_file), "", &[&own_file], &[&own]), found);
        assert_eq!(search(Some(&own_file), &both, &[], &[&real]), None);
        assert_eq!(search(Some(&nowhere), &both, &[], &[&real]), None);
        assert_eq!(
            search(None, &own.to_string_lossy(), &[&own_file], &[&own]),
            None
        );
        for folder in [own, real] {
            fs::remove_dir_all(folder).unwrap();
        }
    }
}
