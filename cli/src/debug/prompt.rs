//! The prompt on a terminal: lines with history and completion.

use std::path::Path;
use std::process::{Command, ExitCode};

use cutape_debugger::{Answer, Debugger, PROMPT, completions};
use cutape_terminal::failure::Failure;
use cutape_terminal::{library, message, output};
use rustyline::completion::Completer;
use rustyline::error::ReadlineError;
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::history::MemHistory;
use rustyline::validate::Validator;
use rustyline::{Config, Context, Editor, Helper};

/// Completes the words of the prompt.
struct Words;

impl Completer for Words {
    type Candidate = String;

    fn complete(
        &self,
        line: &str,
        at: usize,
        _: &Context<'_>,
    ) -> rustyline::Result<(usize, Vec<String>)> {
        let before = line.get(..at).unwrap_or(line);
        let start = before.rfind(' ').map_or(0, |space| space + 1);
        Ok((start, completions(before)))
    }
}

impl Hinter for Words {
    type Hint = String;
}

impl Highlighter for Words {}

impl Validator for Words {}

impl Helper for Words {}

/// Does what lines on the terminal ask for, until one ends the session. An empty line repeats the one
/// before.
pub(super) fn run(debugger: &mut Debugger<'_>, trace: &Path) -> Result<ExitCode, Failure> {
    let wrong = |error: ReadlineError| Failure::unusable(format!("the terminal: {error}"));
    let config = Config::default();
    let history = MemHistory::with_config(&config);
    let mut editor = Editor::with_history(config, history).map_err(wrong)?;
    editor.set_helper(Some(Words));
    let mut last = "list".to_owned();
    loop {
        let line = match editor.readline(PROMPT) {
            Ok(line) => line,
            Err(ReadlineError::Interrupted) => continue,
            Err(ReadlineError::Eof) => return Ok(ExitCode::SUCCESS),
            Err(error) => return Err(wrong(error)),
        };
        if !line.trim().is_empty() {
            let _ = editor.add_history_entry(&line);
            last = line;
        }
        match debugger.execute(&last) {
            Ok(Answer::Text(text)) => output::print(&text)?,
            // A process of its own: its threads read the terminal until they end.
            Ok(Answer::View(call)) => {
                let mut viewer = Command::new(library::own_path()?);
                viewer.args(["view", "--at"]).arg(call.to_string());
                let status = viewer.arg(trace).status();
                status.map_err(|error| Failure::unusable(format!("view: {error}")))?;
            }
            Ok(Answer::Quit) => return Ok(ExitCode::SUCCESS),
            Err(why) => message!("{why}"),
        }
    }
}
