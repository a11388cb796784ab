//! Output: colours and widths on stdout, report files, words as typed.

use std::ffi::OsStr;
use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use anstream::{AutoStream, ColorChoice};
use cutape_format::layout::MAGIC;
use serde::Serialize;

pub use cutape_render::text::{printable, shortened, shown, without_middle, wrapped};

pub use crate::stdout::{Stdout, coloured_stdout, stdout};

use crate::failure::Failure;
use crate::stdout::escaped;

/// The value of `--format`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// For people.
    Text,
    /// For programs.
    Json,
}

/// Writes a line of JSON.
pub fn json_line(mut out: &mut dyn Write, value: &impl Serialize) -> io::Result<()> {
    serde_json::to_writer(&mut out, value)?;
    out.write_all(b"\n")
}

/// Whether to colour stdout: as `--color` says, or on a terminal that supports it, without
/// `NO_COLOR` or `TERM=dumb`.
pub fn coloured() -> bool {
    #[expect(clippy::disallowed_methods, reason = "nothing is written")]
    let stdout = io::stdout();
    AutoStream::choice(&stdout) != ColorChoice::Never
}

/// A report file, checked to be writable before the work starts.
#[derive(Debug)]
pub struct ReportFile {
    /// The option that names it.
    option: &'static str,
    path: PathBuf,
    /// Where the file itself is. `None`: it is a pipe or a terminal.
    file: Option<PathBuf>,
}

impl ReportFile {
    /// Checks that the file of `--report` is writable and not a trace.
    ///
    /// # Errors
    /// If it is not writable or holds a trace.
    pub fn prepare(path: &Path) -> Result<Self, Failure> {
        Self::named("--report", path)
    }

    /// The same for another option, which may not be given.
    ///
    /// # Errors
    /// As [`Self::prepare`].
    pub fn given(option: &'static str, path: &Option<PathBuf>) -> Result<Option<Self>, Failure> {
        let path = path.as_deref();
        path.map(|path| Self::named(option, path)).transpose()
    }

    fn named(option: &'static str, path: &Path) -> Result<Self, Failure> {
        let existed = path.exists();
        if existed && !path.is_file() && !path.is_dir() {
            // The other end of a pipe or terminal would notice if it were opened twice.
            return Ok(Self {
                option,
                path: path.to_owned(),
                file: None,
            });
        }
        let mut begin = [0; MAGIC.len()];
        let is_trace = path.is_file()
            && fs::File::open(path)
                .and_then(|mut file| file.read_exact(&mut begin))
                .is_ok()
            && begin == MAGIC;
        if is_trace {
            return Err(Failure::unusable(format!(
                "{option} {}: this file is a trace; choose another name",
                path.display()
            )));
        }
        let opened = private().append(true).open(path);
        opened.map_err(|error| cannot_write(option, path, &error))?;
        let file = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        if !existed {
            // Created only as a check: a run that fails leaves no empty report.
            let _ = fs::remove_file(path);
        }
        Ok(Self {
            option,
            path: path.to_owned(),
            file: Some(file),
        })
    }

    /// Replaces the file's content.
    ///
    /// # Errors
    /// If writing fails.
    pub fn write(&self, text: &str) -> Result<(), Failure> {
        let mut options = private();
        options.write(true).truncate(true);
        let file = match &self.file {
            // A replay that a hostile trace has taken over may have put a link there.
            Some(file) => options.custom_flags(libc::O_NOFOLLOW).open(file),
            None => options.open(&self.path),
        };
        file.and_then(|mut file| file.write_all(escaped(text).as_bytes()))
            .map_err(|error| cannot_write(self.option, &self.path, &error))
    }
}

/// Creates files that only this user can read, as traces are.
fn private() -> fs::OpenOptions {
    let mut options = fs::OpenOptions::new();
    options.create(true).mode(0o600);
    options
}

/// A file of an option could not be written.
pub fn cannot_write(option: &str, path: &Path, error: &io::Error) -> Failure {
    Failure::unusable(format!(
        "cannot write {}: {error}; choose another place with {option}",
        path.display()
    ))
}

/// Writes a line to stderr, in front of it `cutape: `; arguments as of `format!`.
#[macro_export]
macro_rules! message {
    ($($argument:tt)*) => {
        $crate::output::stderr_line(format_args!("cutape: {}", format_args!($($argument)*)))
    };
}

/// Writes a line to stderr, with unprintable characters escaped. If that fails, nobody can be told.
pub fn stderr_line(line: std::fmt::Arguments<'_>) {
    // Names in it come from traces and files, and must not reach the terminal as commands.
    let lines = line.to_string();
    let mut text: String = lines
        .split('\n')
        .map(printable)
        .collect::<Vec<_>>()
        .join("\n");
    text.push('\n');
    // In one write, so that lines of several processes do not mix.
    let _ = io::stderr().lock().write_all(text.as_bytes());
}

/// Writes to a report file; prints if there is none.
///
/// # Errors
/// If writing fails.
pub fn write(file: Option<&ReportFile>, text: &str) -> Result<(), Failure> {
    match file {
        Some(file) => file.write(text),
        None => print(text),
    }
}

/// Prints a text without colours to stdout; a closed pipe is fine.
///
/// # Errors
/// If writing fails.
pub fn print(text: &str) -> Result<(), Failure> {
    let mut stdout = stdout();
    match stdout
        .write_all(text.as_bytes())
        .and_then(|()| stdout.flush())
    {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(()),
    }
}

/// The width of stdout: the terminal's, at least 60; 100 if it is not a terminal.
pub fn columns() -> usize {
    // SAFETY: an all-zero winsize is a value of that type.
    let mut size: libc::winsize = unsafe { std::mem::zeroed() };
    // SAFETY: TIOCGWINSZ writes one winsize, which outlives the call.
    let answer = unsafe { libc::ioctl(libc::STDOUT_FILENO, libc::TIOCGWINSZ, &raw mut size) };
    match (answer, size.ws_col) {
        (0, 1..) => usize::from(size.ws_col).max(60),
        _ => 100,
    }
}

/// A word as a user types it in a shell; a path below the current folder, relative to it.
pub fn quoted(word: &OsStr) -> String {
    let text = shown(Path::new(word)).to_string();
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,@+%".contains(c);
    if !text.is_empty() && text.chars().all(is_plain) {
        return text;
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_are_writable_and_not_traces() {
        let folder = std::env::temp_dir().join(format!("cutape-report-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("trace"), [&MAGIC[..], b"rest"].concat()).unwrap();
        fs::write(folder.join("old"), "old").unwrap();
        for (name, usable) in [
            ("new", true),
            ("old", true),
            ("trace", false),
            ("none/new", false),
            (".", false),
        ] {
            let path = folder.join(name);
            let before = fs::read(&path).ok();
            let prepared = ReportFile::prepare(&path);
            assert_eq!(prepared.is_ok(), usable, "{name}");
            assert_eq!(
                fs::read(&path).ok(),
                before,
                "{name}: preparing changes nothing"
            );
            if let Ok(file) = prepared {
                file.write("text").unwrap();
                assert_eq!(fs::read(&path).unwrap(), b"text", "{name}");
            }
        }
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_link_that_comes_later_is_not_followed() {
        let folder = std::env::temp_dir().join(format!("cutape-links-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let [old, new, link, other] = ["old", "new", "link", "other"].map(|name| folder.join(name));
        fs::write(&old, "old").unwrap();
        fs::write(&other, "other").unwrap();
        std::os::unix::fs::symlink(&old, &link).unwrap();
        // The user's own link.
        let prepared = ReportFile::prepare(&link).unwrap();
        prepared.write("text").unwrap();
        assert_eq!(fs::read(&old).unwrap(), b"text");
        for path in [&old, &new] {
            let prepared = ReportFile::prepare(path).unwrap();
            let _ = fs::remove_file(path);
            std::os::unix::fs::symlink(&other, path).unwrap();
            assert!(prepared.write("text").is_err());
        }
        assert_eq!(fs::read(&other).unwrap(), b"other");
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn words_are_shown_as_typed() {
        for (word, shown) in [
            ("--driver", "--driver"),
            ("a b.cutape", "'a b.cutape'"),
            ("it's", r"'it'\''s'"),
            ("", "''"),
        ] {
            assert_eq!(quoted(OsStr::new(word)), shown);
        }
        let here = std::env::current_dir().unwrap();
        assert_eq!(quoted(here.join("x.cutape").as_os_str()), "x.cutape");
        assert_eq!(quoted(here.join("x y").as_os_str()), "'x y'");
    }
}
