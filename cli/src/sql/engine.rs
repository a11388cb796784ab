//! DuckDB, as it is installed: its program, or the package of a Python.

use std::env;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use cutape_terminal::failure::Failure;

const INSTALL: &str = "install DuckDB: `pip install 'cutape[sql]'`, or its program duckdb from \
                       https://duckdb.org; --engine names one that is elsewhere";

/// Runs the query in the package of Python.
const SCRIPT: &str = include_str!("duckdb.py");

/// What runs queries.
#[derive(Debug)]
pub(super) enum Engine {
    /// DuckDB's own program.
    Program(PathBuf),
    /// A Python with the package `duckdb`.
    Python(PathBuf),
}

/// What DuckDB runs.
pub(super) struct Statements<'a> {
    /// Makes the tables, and decides what the query may use.
    pub(super) setup: &'a str,
    pub(super) query: &'a str,
    /// Whether the query may change that, which lets it use files and start programs.
    pub(super) is_free: bool,
}

impl Engine {
    /// The one that is given, else the first that is installed.
    pub(super) fn find(given: Option<&Path>) -> Result<Self, Failure> {
        if let Some(path) = given {
            return match Self::of(path) {
                Self::Python(python) if !has_duckdb(&python) => Err(Failure::unusable(format!(
                    "--engine {}: this Python has no package duckdb; {INSTALL}",
                    python.display()
                ))),
                engine => Ok(engine),
            };
        }
        let path = env::var_os("PATH").unwrap_or_default();
        let folders: Vec<PathBuf> = env::split_paths(&path).collect();
        let installed = |name: &str| {
            let files = folders.iter().filter(|folder| folder.is_absolute());
            let mut files = files.map(|folder| folder.join(name));
            files.find(|file| file.is_file())
        };
        if let Some(program) = installed("duckdb") {
            return Ok(Self::Program(program));
        }
        let pythons = own_python().into_iter().chain(installed("python3"));
        let mut usable = pythons.filter(|python| has_duckdb(python));
        usable
            .next()
            .map(Self::Python)
            .ok_or_else(|| Failure::unusable(format!("no engine for SQL: {INSTALL}")))
    }

    fn of(path: &Path) -> Self {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        match name.starts_with("python") {
            true => Self::Python(path.to_owned()),
            false => Self::Program(path.to_owned()),
        }
    }

    /// The file that is run.
    pub(super) fn path(&self) -> &Path {
        match self {
            Self::Program(path) | Self::Python(path) => path,
        }
    }

    /// The process that prints the result as literals of SQL.
    pub(super) fn command(&self, statements: &Statements<'_>) -> Command {
        let Statements { setup, query, .. } = statements;
        let is_locked = !statements.is_free;
        let mut command = Command::new(self.path());
        match self {
            Self::Program(_) => {
                command.args(["-no-init", "-bail", "-quote", "-separator", "|"]);
                command.args(["-c", setup]);
                // A query that begins with a point would be a command of the program.
                command.args(
                    is_locked
                        .then_some(["-c", ".safe_mode"])
                        .into_iter()
                        .flatten(),
                );
                command.args(["-c", query]);
            }
            Self::Python(_) => {
                let lock = match is_locked {
                    true => "SET lock_configuration = true",
                    false => "",
                };
                command.args(["-c", SCRIPT, setup, lock, query]);
            }
        }
        command.stdin(Stdio::null()).env("NO_COLOR", "1");
        command
    }
}

/// The Python of the environment that this program was installed into with pip, as
/// `lib/python3.N/site-packages/cutape/bin/cutape`.
fn own_python() -> Option<PathBuf> {
    let program = env::current_exe().ok()?;
    let is_packages = |folder: &&Path| folder.file_name() == Some(OsStr::new("site-packages"));
    let packages = program.ancestors().find(is_packages)?;
    let python = packages.ancestors().nth(3)?.join("bin/python3");
    python.is_file().then_some(python)
}

/// Whether a Python has the package.
fn has_duckdb(python: &Path) -> bool {
    let script = "import sys\nsys.path = [folder for folder in sys.path if folder]\n\
                  import importlib.util\n\
                  sys.exit(importlib.util.find_spec('duckdb') is None)";
    let mut command = Command::new(python);
    command.args(["-c", script]).stdin(Stdio::null());
    let done = command.stdout(Stdio::null()).stderr(Stdio::null()).status();
    done.is_ok_and(|status| status.success())
}
