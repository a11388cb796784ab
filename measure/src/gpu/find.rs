//! Where CUPTI is: NVIDIA installs it with the toolkit, and as a Python package.

use std::env;
use std::ffi::OsString;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

/// Names of the library, the newest first: 13 and 12 are the toolkit's major versions, and of
/// toolkits before 12 the records are not known.
const NAMES: [&str; 3] = ["libcupti.so.13", "libcupti.so.12", "libcupti.so"];

/// CUPTI is in no folder in which it is usually installed.
#[derive(Debug)]
pub struct NotFound;

impl fmt::Display for NotFound {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "no {} in LD_LIBRARY_PATH, the CUDA toolkit or the packages of python3; give --cupti \
             PATH, or install it: `pip install nvidia-cuda-cupti`",
            NAMES.last().copied().unwrap_or_default()
        )
    }
}

/// The path of CUPTI: the first version in the first folder that has any.
///
/// # Errors
/// If no folder has one.
pub fn find_cupti() -> Result<PathBuf, NotFound> {
    folders()
        .iter()
        .find_map(|folder| in_folder(folder))
        .ok_or(NotFound)
}

fn in_folder(folder: &Path) -> Option<PathBuf> {
    let files = NAMES.iter().map(|name| folder.join(name));
    // Absolute, since the child may have another current folder.
    files
        .filter_map(|file| file.canonicalize().ok())
        .find(|file| file.is_file())
}

fn variable(name: &str) -> Option<OsString> {
    env::var_os(name).filter(|value| !value.is_empty())
}

/// Where the CUDA toolkit may be, in that order.
pub(crate) fn toolkits() -> Vec<PathBuf> {
    let named = ["CUDA_HOME", "CUDA_PATH"].into_iter().filter_map(variable);
    let mut toolkits: Vec<PathBuf> = named.map(PathBuf::from).collect();
    toolkits.push("/usr/local/cuda".into());
    toolkits.extend(entries(Path::new("/usr/local"), "cuda-"));
    toolkits
}

/// Where it is looked for, in that order.
fn folders() -> Vec<PathBuf> {
    let listed = |name: &str| {
        let paths = variable(name).map(|value| env::split_paths(&value).collect::<Vec<_>>());
        paths.unwrap_or_default()
    };
    let mut folders = listed("LD_LIBRARY_PATH");
    for toolkit in toolkits() {
        let parts = ["extras/CUPTI/lib64", "targets/x86_64-linux/lib", "lib64"];
        folders.extend(parts.iter().map(|part| toolkit.join(part)));
    }
    let mut prefixes: Vec<PathBuf> = variable("VIRTUAL_ENV")
        .map(PathBuf::from)
        .into_iter()
        .collect();
    let programs = listed("PATH")
        .into_iter()
        .filter(|folder| folder.join("python3").exists());
    prefixes.extend(programs.filter_map(|folder| Some(folder.parent()?.to_owned())));
    for prefix in prefixes {
        for python in entries(&prefix.join("lib"), "python3") {
            for packages in ["site-packages", "dist-packages"] {
                let nvidia = python.join(packages).join("nvidia");
                folders.extend(
                    ["cu13/lib", "cu12/lib", "cuda_cupti/lib"].map(|part| nvidia.join(part)),
                );
            }
        }
    }
    folders
}

/// The entries of a folder that begin so, the greatest first.
pub(crate) fn entries(folder: &Path, begin: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut paths: Vec<PathBuf> = entries
        .filter(|entry| entry.file_name().to_string_lossy().starts_with(begin))
        .map(|entry| entry.path())
        .collect();
    paths.sort();
    paths.reverse();
    paths
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_in_a_folder() {
        let folder = env::temp_dir().join(format!("cutape-cupti-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let folder = folder.canonicalize().unwrap();
        assert_eq!(in_folder(&folder), None);
        for name in ["libcupti.so.12", "libcupti.so.11.8", "libcupti.so.13"] {
            fs::write(folder.join(name), "").unwrap();
            let newest = match name {
                "libcupti.so.13" => "libcupti.so.13",
                _ => "libcupti.so.12",
            };
            assert_eq!(in_folder(&folder), Some(folder.join(newest)));
        }
        assert_eq!(entries(&folder, "libcupti.so.1").len(), 3);
        fs::remove_dir_all(&folder).unwrap();
    }
}
