//! A page: its blocks of code, and what its comments say about them.

use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// One page.
#[derive(Debug)]
pub struct Page {
    /// Its file.
    pub path: PathBuf,
    /// Its lines.
    pub lines: Vec<String>,
    /// What its comments and blocks say, in order.
    pub steps: Vec<Step>,
}

/// One comment or block.
#[derive(Debug, PartialEq, Eq)]
pub enum Step {
    /// A comment for the test.
    Directive(Directive),
    /// A block of code.
    Block(Block),
}

/// A comment `<!-- test: WORD ... -->`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Directive {
    /// `program NAME PROGRAM`: the test program PROGRAM is in the folder under that name.
    Program(String, String),
    /// `run COMMANDS`: the shell runs these, which the page does not show.
    Run(String),
    /// `not run: REASON`, before a block: its commands are only parsed.
    NotRun(String),
    /// `needs PROGRAM ...`, before a block: it is not run where one of these is not installed.
    Needs(Vec<String>),
}

/// A block of code.
#[derive(Debug, PartialEq, Eq)]
pub struct Block {
    /// `console`, `sh`, `toml`.
    pub kind: String,
    /// The lines between the fences.
    pub lines: Range<usize>,
    /// Why it is not run.
    pub not_run: Option<String>,
    /// The programs that it needs.
    pub needs: Vec<String>,
}

/// A command and the lines of its output.
#[derive(Debug, PartialEq, Eq)]
pub struct Session {
    /// The command; lines that end in `\` are joined by the shell.
    pub command: String,
    /// The output that the page shows.
    pub output: Range<usize>,
}

impl Block {
    /// Whether it has commands.
    pub fn has_commands(&self) -> bool {
        self.kind == "console" || self.kind == "sh"
    }
}

impl Page {
    /// Reads it.
    ///
    /// # Errors
    /// The line that is wrong.
    pub fn read(path: &Path) -> Result<Self, String> {
        let text =
            fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
        let lines: Vec<String> = text.lines().map(str::to_owned).collect();
        let steps = steps(&lines).map_err(|error| format!("{}:{error}", path.display()))?;
        let path = path.to_owned();
        Ok(Self { path, lines, steps })
    }

    /// The blocks.
    pub fn blocks(&self) -> impl Iterator<Item = &Block> {
        self.steps.iter().filter_map(|step| match step {
            Step::Block(block) => Some(block),
            Step::Directive(_) => None,
        })
    }

    /// The commands of a block of the kind `console`, each with its output; those of another block
    /// are one command without output.
    pub fn sessions(&self, block: &Block) -> Vec<Session> {
        if block.kind != "console" {
            return vec![Session {
                command: self.lines[block.lines.clone()].join("\n"),
                output: block.lines.end..block.lines.end,
            }];
        }
        let mut sessions: Vec<Session> = Vec::new();
        for index in block.lines.clone() {
            let line = &self.lines[index];
            let session = sessions.last_mut();
            if let Some(command) = line.strip_prefix("$ ") {
                let (command, start) = (command.to_owned(), index + 1);
                let output = start..start;
                sessions.push(Session { command, output });
            } else if let Some(session) = session {
                if session.output.is_empty() && session.command.ends_with('\\') {
                    session.command = format!("{}\n{line}", session.command);
                    session.output.start = index + 1;
                }
                session.output.end = index + 1;
            }
        }
        sessions
    }
}

fn steps(lines: &[String]) -> Result<Vec<Step>, String> {
    let mut steps = Vec::new();
    let (mut not_run, mut needs) = (None, Vec::new());
    let mut index = 0;
    while index < lines.len() {
        let line = &lines[index];
        let number = index + 1;
        if let Some(rest) = line.strip_prefix("<!-- test: ") {
            let mut text = rest.to_owned();
            while !text.ends_with("-->") {
                index += 1;
                let more = lines.get(index);
                let more = more.ok_or_else(|| format!("{number}: a comment without an end"))?;
                text = format!("{text}\n{more}");
            }
            match directive(text.trim_end_matches("-->").trim()) {
                Some(Directive::NotRun(reason)) => not_run = Some(reason),
                Some(Directive::Needs(programs)) => needs = programs,
                Some(other) => steps.push(Step::Directive(other)),
                None => return Err(format!("{number}: not a comment for the test: {text}")),
            }
        } else if let Some(kind) = line.trim_start().strip_prefix("```") {
            let start = index + 1;
            let is_end = |line: &String| line.trim() == "```";
            let length = lines[start..].iter().position(is_end);
            let length = length.ok_or_else(|| format!("{number}: a block without an end"))?;
            index = start + length;
            let block = Block {
                kind: kind.to_owned(),
                lines: start..index,
                not_run: not_run.take(),
                needs: std::mem::take(&mut needs),
            };
            let shows_command = |line: &String| line.starts_with("$ ");
            if block.kind == "console" && !lines.get(start).is_some_and(shows_command) {
                return Err(format!(
                    "{number}: a console without a command in its first line"
                ));
            }
            if block.kind != "console" && lines[block.lines.clone()].iter().any(shows_command) {
                return Err(format!("{number}: commands in a block that is no console"));
            }
            steps.push(Step::Block(block));
        } else if (not_run.is_some() || !needs.is_empty()) && !line.is_empty() {
            return Err(format!(
                "{number}: the comment above must be directly before a block"
            ));
        }
        index += 1;
    }
    Ok(steps)
}

fn directive(text: &str) -> Option<Directive> {
    if let Some(reason) = text.strip_prefix("not run: ") {
        return Some(Directive::NotRun(reason.to_owned()));
    }
    let (word, rest) = text.split_once(char::is_whitespace)?;
    match word {
        "run" => Some(Directive::Run(rest.to_owned())),
        "needs" => Some(Directive::Needs(
            rest.split_whitespace().map(str::to_owned).collect(),
        )),
        "program" => {
            let (name, program) = rest.split_once(' ')?;
            Some(Directive::Program(name.to_owned(), program.to_owned()))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(text: &str) -> Result<Page, String> {
        let lines: Vec<String> = text.lines().map(str::to_owned).collect();
        let steps = steps(&lines)?;
        let path = PathBuf::new();
        Ok(Page { path, lines, steps })
    }

    #[test]
    fn comments_and_blocks() {
        let page = page(
            "# A\n<!-- test: program app clean/events -->\n<!-- test: run cp a b\nrm a -->\n\n\
             <!-- test: needs jq -->\n```console\n$ one \\\n    more\n1\n...\n$ two\n```\n\
             <!-- test: not run: on an H100 -->\n\n```sh\nthree\n```\n",
        )
        .unwrap();
        let program = Directive::Program("app".to_owned(), "clean/events".to_owned());
        assert_eq!(page.steps[0], Step::Directive(program));
        let run = Directive::Run("cp a b\nrm a".to_owned());
        assert_eq!(page.steps[1], Step::Directive(run));
        let blocks: Vec<&Block> = page.blocks().collect();
        assert_eq!(blocks[0].needs, ["jq"]);
        let sessions = page.sessions(blocks[0]);
        assert_eq!(sessions[0].command, "one \\\n    more");
        assert_eq!(&page.lines[sessions[0].output.clone()], ["1", "..."]);
        assert_eq!(sessions[1].command, "two");
        assert!(sessions[1].output.is_empty());
        assert_eq!(blocks[1].not_run.as_deref(), Some("on an H100"));
        assert_eq!(page.sessions(blocks[1])[0].command, "three");
    }

    #[test]
    fn wrong_pages() {
        for (text, error) in [
            ("```console\nls\n```", "1: a console without a command"),
            ("```text\nA\n$ ls\n```", "1: commands in a block"),
            ("\n```sh\nls\n", "2: a block without an end"),
            ("<!-- test: sleep -->", "1: not a comment for the test"),
            ("<!-- test: run a", "1: a comment without an end"),
            (
                "<!-- test: not run: no GPU -->\nText.",
                "2: the comment above",
            ),
        ] {
            let found = page(text).unwrap_err();
            assert!(found.starts_with(error), "{text}: {found}");
        }
    }
}
