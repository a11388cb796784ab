//! What `doctor` found: printed as it is found, or as one JSON object at the end.

use std::io::Write;
use std::path::PathBuf;

use serde::Serialize;

use cutape_terminal::failure::{Failure, UNUSABLE};
use cutape_terminal::output::{Format, json_line, wrapped};

/// The width of a line's label.
pub(crate) const LABEL: usize = 14;
/// The width of a line.
pub(crate) const WIDTH: usize = 80;

/// How good it is; the worst one last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Status {
    /// As it should be, or only a fact.
    Ok,
    /// Unusual here: the text says what to do.
    Advice,
    /// cutape does not work here.
    Failed,
}

/// One check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct Check {
    check: String,
    status: Status,
    text: String,
}

/// The checks so far.
pub struct Checklist<W> {
    out: W,
    format: Format,
    checks: Vec<Check>,
}

#[derive(Serialize)]
struct Report<'a> {
    version: &'a str,
    status: Status,
    checks: &'a [Check],
}

impl<W: Write> Checklist<W> {
    /// An empty list.
    pub fn new(format: Format, out: W) -> Self {
        Self {
            out,
            format,
            checks: Vec::new(),
        }
    }

    /// Adds a line `label  text` as it is.
    pub(crate) fn line(&mut self, label: &str, text: impl AsRef<str>) -> Result<(), Failure> {
        self.add(label, Status::Ok, text.as_ref())
    }

    /// Adds a check that failed.
    pub(crate) fn fail(&mut self, label: &str, text: impl AsRef<str>) -> Result<(), Failure> {
        self.add(label, Status::Failed, text.as_ref())
    }

    /// Adds what is unusual, wrapped at blanks.
    pub(crate) fn advise(&mut self, label: &str, text: &str) -> Result<(), Failure> {
        self.add_wrapped(label, Status::Advice, text)
    }

    /// Adds a fact, wrapped at blanks.
    pub(crate) fn paragraph(&mut self, label: &str, text: &str) -> Result<(), Failure> {
        self.add_wrapped(label, Status::Ok, text)
    }

    /// Adds a path, or why there is none.
    pub(crate) fn path(
        &mut self,
        what: &str,
        path: Result<PathBuf, Failure>,
    ) -> Result<Option<PathBuf>, Failure> {
        match path {
            Ok(path) => {
                self.line(what, path.display().to_string())?;
                Ok(Some(path))
            }
            Err(failure) => {
                self.fail(what, format!("MISSING: {}", failure.message))?;
                Ok(None)
            }
        }
    }

    fn add_wrapped(&mut self, label: &str, status: Status, text: &str) -> Result<(), Failure> {
        self.keep(label, status, text);
        for (number, line) in wrapped(text, WIDTH - LABEL).iter().enumerate() {
            self.print(if number == 0 { label } else { "" }, line)?;
        }
        Ok(())
    }

    fn add(&mut self, label: &str, status: Status, text: &str) -> Result<(), Failure> {
        self.keep(label, status, text);
        self.print(label, text)
    }

    fn keep(&mut self, label: &str, status: Status, text: &str) {
        let text = text.to_owned();
        let check = label.replace(' ', "-");
        self.checks.push(Check {
            check,
            status,
            text,
        });
    }

    fn print(&mut self, label: &str, text: &str) -> Result<(), Failure> {
        match self.format {
            Format::Text => Ok(writeln!(self.out, "{label:<LABEL$}{text}")?),
            Format::Json => Ok(()),
        }
    }

    /// Ends the list; the exit status.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn finish(mut self) -> Result<u8, Failure> {
        let statuses = self.checks.iter().map(|check| check.status);
        let status = statuses.max().unwrap_or(Status::Ok);
        if self.format == Format::Json {
            let report = Report {
                version: env!("CARGO_PKG_VERSION"),
                status,
                checks: &self.checks,
            };
            json_line(&mut self.out, &report)?;
        }
        Ok(if status == Status::Failed {
            UNUSABLE
        } else {
            0
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_check_decides() {
        for (path, advice, status, code) in [
            (Ok(PathBuf::from("/lib/x.so")), "", "ok", 0),
            (Ok(PathBuf::from("/lib/x.so")), "do this", "advice", 0),
            (Err(Failure::unusable("why")), "do this", "failed", UNUSABLE),
        ] {
            let is_missing = path.is_err();
            let mut out = Vec::new();
            let mut list = Checklist::new(Format::Json, &mut out);
            list.path("null driver", path).unwrap();
            if !advice.is_empty() {
                list.advise("limits", advice).unwrap();
            }
            assert_eq!(list.finish().unwrap(), code);
            let report: serde_json::Value = serde_json::from_slice(&out).unwrap();
            assert_eq!(report["status"], status);
            assert_eq!(report["checks"][0]["check"], "null-driver");
            let text = report["checks"][0]["text"].as_str().unwrap();
            assert_eq!(text.contains("MISSING: why"), is_missing, "{text}");
        }
    }

    #[test]
    fn lines_are_wrapped() {
        let mut out = Vec::new();
        let mut list = Checklist::new(Format::Text, &mut out);
        list.line("driver", "/lib/x.so").unwrap();
        list.advise("limits", &"word ".repeat(40)).unwrap();
        assert_eq!(list.finish().unwrap(), 0);
        let text = String::from_utf8(out).unwrap();
        assert!(
            text.starts_with("driver        /lib/x.so\nlimits        word"),
            "{text}"
        );
        assert!(text.lines().all(|line| line.len() <= WIDTH), "{text}");
        assert!(
            text.lines()
                .nth(2)
                .unwrap()
                .starts_with("              word"),
            "{text}"
        );
    }
}
