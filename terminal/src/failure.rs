//! The error that ends a verb: its message and exit status.

use std::fmt;
use std::fs;
use std::io::{self, ErrorKind::NotFound};
use std::path::Path;

use cutape_analyzer::suggestion::{nearest, question};

/// Findings or a divergence.
pub const FOUND: u8 = 1;
/// Unusable input or machine.
pub const UNUSABLE: u8 = 2;
/// A bug in cutape.
pub const BUG: u8 = 3;
/// Not an error: the reader of our output closed the pipe.
pub const QUIET: u8 = 255;

/// So many traces of a folder are all suggested.
const FEW: usize = 3;

/// An error with its exit status; the message is one line.
#[derive(Debug)]
pub struct Failure {
    /// What, where, and what to do.
    pub message: String,
    /// One of [`FOUND`], [`UNUSABLE`], [`BUG`], [`QUIET`].
    pub status: u8,
}

impl Failure {
    /// The input or the machine is unusable.
    pub fn unusable(message: impl fmt::Display) -> Self {
        Self {
            message: message.to_string(),
            status: UNUSABLE,
        }
    }

    /// The output exists, and may not be replaced.
    pub fn exists(path: &Path) -> Self {
        Self::unusable(format!(
            "cannot write {}: it exists; choose another name, or replace it with --overwrite",
            path.display()
        ))
    }

    /// A file could not be written from a trace. Names the target once; errors of the trace itself
    /// name the trace.
    pub fn cannot_write(path: &Path, io_error: &io::Error) -> Self {
        if io_error.kind() == io::ErrorKind::AlreadyExists {
            return Self::exists(path);
        }
        let (path, error) = (path.display().to_string(), io_error.to_string());
        if io_error.raw_os_error().is_none() {
            return Self::unusable(error);
        }
        let why = error.strip_prefix(&format!("{path}: ")).unwrap_or(&error);
        Self::unusable(format!(
            "cannot write {path}: {why}; choose another place with -o"
        ))
    }
}

impl From<cutape_calls::Error> for Failure {
    fn from(error: cutape_calls::Error) -> Self {
        Self::unusable(error)
    }
}

impl From<cutape_format::Error> for Failure {
    fn from(error: cutape_format::Error) -> Self {
        match &error {
            cutape_format::Error::Io { path, source } if source.kind() == NotFound => {
                Self::unusable(format!("{error}{}", traces_beside(path)))
            }
            _ => Self::unusable(error),
        }
    }
}

/// The traces of a file's folder with the nearest names, as a question to follow a message; if none
/// has such a name and they are few, all of them.
fn traces_beside(path: &Path) -> String {
    let folder = path.parent().unwrap_or(Path::new(""));
    let place = match folder.as_os_str().is_empty() {
        true => Path::new("."),
        false => folder,
    };
    let files = fs::read_dir(place).into_iter().flatten().flatten();
    let names = files.map(|file| file.file_name().to_string_lossy().into_owned());
    // The endings are alike anyhow.
    let stem = |name: String| name.strip_suffix(".cutape").map(str::to_owned);
    let mut stems: Vec<String> = names.filter_map(stem).collect();
    stems.sort();
    let word = path.file_stem().unwrap_or_default().to_string_lossy();
    let all = || stems.iter().map(String::as_str);
    let mut alike = nearest(&word, all());
    if alike.is_empty() && stems.len() <= FEW {
        alike.extend(all());
    }
    let shown = |stem| folder.join(format!("{stem}.cutape")).display().to_string();
    question(alike.into_iter().map(shown))
}

impl From<io::Error> for Failure {
    /// Writing a result failed.
    fn from(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe {
            return Self {
                message: String::new(),
                status: QUIET,
            };
        }
        Self::unusable(format!("cannot write the result: {error}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_traces_are_suggested() {
        let folder = std::env::temp_dir().join(format!("cutape-missing-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        for (word, others, expected) in [
            (
                "ap.cutape",
                &["app.cutape", "x.cutape", "y.txt"][..],
                &["app.cutape"][..],
            ),
            ("app", &["app.cutape"], &["app.cutape"]),
            ("app.cutpae", &["app.cutape", "b.cutape"], &["app.cutape"]),
            (
                "zzz.cutape",
                &["a.cutape", "b.cutape"],
                &["a.cutape", "b.cutape"],
            ),
            (
                "zzz.cutape",
                &["a.cutape", "b.cutape", "c.cutape", "d.cutape"],
                &[],
            ),
            ("zzz.cutape", &["y.txt"], &[]),
        ] {
            fs::remove_dir_all(&folder).unwrap();
            fs::create_dir_all(&folder).unwrap();
            for name in others {
                fs::write(folder.join(name), "").unwrap();
            }
            let expected = expected
                .iter()
                .map(|name| folder.join(name).display().to_string());
            assert_eq!(
                traces_beside(&folder.join(word)),
                question(expected),
                "{word} {others:?}"
            );
        }
        fs::remove_dir_all(&folder).unwrap();
        assert_eq!(traces_beside(&folder.join("a.cutape")), "");
    }
}
