//! Commands from a file or a pipe.

use std::io::{self, BufRead, Write};

use crate::answer::Answer;
use crate::debugger::Debugger;

/// What stands before each command.
pub const PROMPT: &str = "(cutape) ";

/// Why there is no viewer.
pub(crate) const NO_TERMINAL: &str = "view needs the prompt, on a terminal";

/// How a script ended.
#[derive(Debug, PartialEq, Eq)]
pub enum End {
    /// All its lines were done.
    Whole,
    /// It asked to quit.
    Quit,
    /// A command failed: the number of its line, from 1, and why.
    Failed(usize, String),
}

/// Does what the lines ask for, and writes each after the prompt, with its answer. Empty lines and
/// those that begin with # are left out. Ends at the first that fails.
///
/// # Errors
/// The lines cannot be read, or the answers not be written.
pub fn run_script(
    debugger: &mut Debugger<'_>,
    lines: &mut dyn BufRead,
    out: &mut dyn Write,
) -> io::Result<End> {
    for (number, line) in (1..).zip(lines.lines()) {
        let line = line?;
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        writeln!(out, "{PROMPT}{line}")?;
        match debugger.execute(line) {
            Ok(Answer::Text(text)) => out.write_all(text.as_bytes())?,
            Ok(Answer::Quit) => return Ok(End::Quit),
            Ok(Answer::View(_)) => return Ok(End::Failed(number, NO_TERMINAL.to_owned())),
            Err(why) => {
                out.flush()?;
                return Ok(End::Failed(number, why));
            }
        }
    }
    Ok(End::Whole)
}
