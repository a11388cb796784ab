//! Where NVIDIA's profiler `ncu` is, and which version it has.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::error::Error;
use crate::gpu::{entries, toolkits};

/// The program.
const NAME: &str = "ncu";

/// `ncu`, which has said its version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ncu {
    /// Its file.
    pub path: PathBuf,
    /// Its version, e.g. `2025.3.1.0`.
    pub version: String,
}

impl Ncu {
    /// The one that is given, else that of `PATH`, the CUDA toolkit or `/opt/nvidia`.
    ///
    /// # Errors
    /// If there is none, or the one that is given is something else.
    pub fn find(given: Option<&Path>) -> Result<Self, Error> {
        if let Some(path) = given {
            return Self::ask(path).map_err(|why| {
                Error(format!(
                    "--ncu {}: {why}; give the path of ncu",
                    path.display()
                ))
            });
        }
        let known = folders().into_iter().map(|folder| folder.join(NAME));
        // The toolkit may have a script in its place that only says that ncu is not installed.
        let mut known = known.filter(|path| path.is_file());
        known.find_map(|path| Self::ask(&path).ok()).ok_or_else(|| {
            Error(
                "counters are measured with NVIDIA's ncu, which is not in PATH, the CUDA toolkit or \
                 /opt/nvidia/nsight-compute; install Nsight Compute, or give --ncu PATH"
                    .to_owned(),
            )
        })
    }

    fn ask(path: &Path) -> Result<Self, String> {
        let output = Command::new(path).arg("--version").output();
        let output = output.map_err(|error| error.to_string())?;
        let text = String::from_utf8_lossy(&output.stdout);
        let version = version_in(&text).ok_or("it is not ncu: it says no version")?;
        Ok(Self {
            path: path.to_owned(),
            version: version.to_owned(),
        })
    }
}

/// The word after `Version`, where a line begins with that.
fn version_in(text: &str) -> Option<&str> {
    let mut lines = text.lines().map(str::trim_start);
    let version = lines.find_map(|line| line.strip_prefix("Version "))?;
    version.split_whitespace().next()
}

/// Where it is looked for, in that order.
fn folders() -> Vec<PathBuf> {
    let listed = env::var_os("PATH").unwrap_or_default();
    let mut folders: Vec<PathBuf> = env::split_paths(&listed).collect();
    folders.extend(toolkits().iter().map(|toolkit| toolkit.join("bin")));
    folders.extend(entries(Path::new("/opt/nvidia/nsight-compute"), ""));
    folders
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions() {
        for (text, expected) in [
            (
                "NVIDIA (R) Nsight Compute Command Line Profiler\nCopyright (c)\n\
                 Version 2025.3.1.0 (build 36398880) (public-release)\n",
                Some("2025.3.1.0"),
            ),
            ("GNU bash, version 5.2", None),
            ("", None),
        ] {
            assert_eq!(version_in(text), expected);
        }
    }
}
