//! Runs the commands of a page.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use crate::case::compiled;
use crate::parts::{parts, root};
use crate::process;
use crate::verb::verbs;

use super::compare::differences;
use super::page::{Block, Directive, Page, Session, Step};
use super::words::{command_lines, inline_commands};

/// Where pages say that cutape is installed.
const INSTALLED: &str = "/opt/cutape/bin";

/// Where pages say that the commands are run.
const HOME: &str = "/home/u/app";

/// Begins the line behind the output of a command; the status follows.
const END: char = '\u{1e}';

/// `cutape` in the path of the page: on the null driver, whatever the machine has.
const WRAPPER: &str = r#"#!/bin/bash
verb=$1
case " $* " in *" --driver "*|" matrix --compare "*|" matrix --history "*) exec "$CUTAPE" "$@" ;; esac
case " $ON_DRIVER " in *" $verb "*) shift; exec "$CUTAPE" "$verb" --driver null "$@" ;; esac
case " $* " in " trim "*" --state replay "*) shift; exec "$CUTAPE" trim --driver null "$@" ;; esac
exec "$CUTAPE" "$@"
"#;

/// What was done with the blocks of a page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Commands that were run, and their output compared.
    pub compared: usize,
    /// Blocks without output that were run.
    pub scripts: usize,
    /// Blocks that were not run, with a reason on the page.
    pub not_run: usize,
    /// Blocks that were not run because a program is missing on this machine.
    pub lacking: usize,
    /// Command lines of cutape that were parsed: in blocks that are not run, and in the text.
    pub parsed: usize,
}

/// A page after its run.
#[derive(Debug)]
pub struct PageRun {
    /// What was done.
    pub counts: Counts,
    /// What is wrong, by line.
    pub wrong: Vec<String>,
    /// The page with the output of this run where it differs.
    pub corrected: String,
}

impl PageRun {
    /// Runs all commands of the page in this folder, which is empty.
    ///
    /// # Errors
    /// The page cannot be run at all.
    pub fn new(page: &Page, folder: &Path) -> Result<Self, String> {
        let mut counts = Counts::default();
        let bin = folder.join("bin");
        let home = folder.join("app");
        for folder in [&bin, &home] {
            fs::create_dir(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
        }
        let wrapper = bin.join("cutape");
        fs::write(&wrapper, WRAPPER)
            .and_then(|()| fs::set_permissions(&wrapper, fs::Permissions::from_mode(0o755)))
            .map_err(|error| format!("{}: {error}", wrapper.display()))?;

        let mut script = String::new();
        // Blocks without output are one session, of which only the status counts.
        let mut sessions: Vec<(bool, Option<Session>)> = Vec::new();
        for step in &page.steps {
            match step {
                Step::Directive(Directive::Program(name, program)) => {
                    let to = home.join(name);
                    fs::copy(compiled(program), &to)
                        .map_err(|error| format!("{}: {error}", to.display()))?;
                }
                Step::Directive(Directive::Run(commands)) => {
                    script += &terminated(commands);
                    sessions.push((true, None));
                }
                Step::Directive(_) => {}
                Step::Block(block) if !block.has_commands() => {}
                Step::Block(block) if block.not_run.is_some() => counts.not_run += 1,
                Step::Block(block) if !lacking(block).is_empty() => counts.lacking += 1,
                Step::Block(block) => {
                    let is_script = block.kind == "sh";
                    for session in page.sessions(block) {
                        script += &terminated(&session.command);
                        counts.scripts += usize::from(is_script);
                        counts.compared += usize::from(!is_script);
                        sessions.push((is_script, Some(session)));
                    }
                }
            }
        }
        let output = shell(&script, &bin, &home);
        let mut wrong = Vec::new();
        let mut lines: Vec<String> = page.lines.clone();
        let mut replaced = Vec::new();
        let mut rest = output.as_str();
        for (is_script, session) in &sessions {
            let Some((text, after)) = rest.split_once(END) else {
                return Err(format!(
                    "the shell ended before all commands of the page were run:\n{rest}"
                ));
            };
            let (status, after) = after.split_once('\n').unwrap_or((after, ""));
            rest = after;
            let Some(session) = session else {
                if status != "0" {
                    wrong.push(format!(
                        "a command that is not shown: status {status}:\n{text}"
                    ));
                }
                continue;
            };
            let shown: Vec<&str> = page.lines[session.output.clone()]
                .iter()
                .map(String::as_str)
                .collect();
            let found: Vec<&str> = text.lines().collect();
            let difference = match is_script {
                true if status == "0" => None,
                true => Some(format!("status {status}:\n{text}")),
                false if status == "3" => Some(format!("a bug in cutape:\n{text}")),
                false => differences(&shown, &found),
            };
            if let Some(difference) = difference {
                let first = session.command.lines().next().unwrap_or_default();
                let line = session.output.start;
                wrong.push(format!("line {line}: $ {first}\n{difference}"));
                if !*is_script {
                    replaced.push((session.output.clone(), found));
                }
            }
        }
        for (range, found) in replaced.into_iter().rev() {
            lines.splice(range, found.into_iter().map(str::to_owned));
        }
        let parsed = parse(page, &bin, folder);
        counts.parsed = parsed.0;
        wrong.extend(parsed.1);
        let corrected = lines.join("\n") + "\n";
        Ok(Self {
            counts,
            wrong,
            corrected,
        })
    }
}

/// The command, and a line that shows where its output ends.
fn terminated(command: &str) -> String {
    format!("{command}\nprintf '\\036%s\\n' $?\n")
}

/// The programs that the block needs and that are not installed.
fn lacking(block: &Block) -> Vec<&str> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let is_installed =
        |name: &str| std::env::split_paths(&path).any(|folder| folder.join(name).is_file());
    block
        .needs
        .iter()
        .map(String::as_str)
        .filter(|name| !is_installed(name))
        .collect()
}

/// The verbs that call a driver.
fn on_driver() -> String {
    let verbs = verbs().iter().filter(|verb| verb.calls_driver());
    verbs.map(|verb| &*verb.name).collect::<Vec<_>>().join(" ")
}

/// A command in the folder of the page.
fn command(program: &str, bin: &Path, home: &Path) -> Command {
    let mut path = vec![bin.to_owned()];
    let inherited = std::env::var_os("PATH").unwrap_or_default();
    path.extend(std::env::split_paths(&inherited));
    let mut command = Command::new(program);
    command
        .current_dir(home)
        .env("PATH", std::env::join_paths(path).unwrap_or_default())
        .env("CUTAPE", &parts().cutape)
        .env("ON_DRIVER", on_driver())
        .env("HOME", home)
        .env("LC_ALL", "C.UTF-8")
        .env("SOURCES", root().join("tests/programs"))
        .env("REPOSITORY", root())
        .env("DRIVER", &parts().driver_folder)
        .env("INTERPOSER", &parts().interposer)
        .env("AUDIT", &parts().audit);
    for name in ["NO_COLOR", "CLICOLOR_FORCE", "COLUMNS", "TERM"] {
        command.env_remove(name);
    }
    command
}

/// The output of the script and its errors, in order, with the paths that pages show.
fn shell(script: &str, bin: &Path, home: &Path) -> String {
    let mut command = command("bash", bin, home);
    let installed = parts().cutape.parent().unwrap_or(Path::new("/"));
    let script = script.replace(INSTALLED, &installed.display().to_string());
    command.arg("-c").arg(format!("exec 2>&1\n{script}"));
    let output = process::run(&mut command);
    (output.stdout + &output.stderr)
        .replace(&home.display().to_string(), HOME)
        .replace(&installed.display().to_string(), INSTALLED)
        .replace(&format!("{}/", root().display()), "")
}

/// Parses the command lines that are not run: how many there are, and which are wrong. They find
/// no file of theirs.
fn parse(page: &Page, bin: &Path, folder: &Path) -> (usize, Vec<String>) {
    let home = folder.join("empty");
    if let Err(error) = fs::create_dir(&home) {
        return (0, vec![format!("{}: {error}", home.display())]);
    }
    let mut lines: BTreeSet<Vec<String>> = BTreeSet::new();
    let mut prose = page.lines.clone();
    for block in page.blocks() {
        prose[block.lines.start - 1..=block.lines.end].fill(String::new());
        let is_run = block.not_run.is_none() && lacking(block).is_empty();
        if block.has_commands() && !is_run {
            for session in page.sessions(block) {
                lines.extend(command_lines(&session.command));
            }
        }
    }
    let mentions: BTreeSet<_> = inline_commands(&prose.join("\n").replace("\\|", "|"))
        .into_iter()
        .filter(|words| !lines.contains(words))
        .collect();
    let mut wrong = Vec::new();
    for words in lines.iter().chain(&mentions) {
        let output = process::run(command("cutape", bin, &home).args(words));
        let error = output.stderr.strip_prefix("error: ");
        let is_mention = mentions.contains(words);
        if error.is_some_and(|error| !(is_mention && is_about_values(error))) {
            wrong.push(format!("cutape {}\n{}", words.join(" "), output.stderr));
        }
    }
    (lines.len() + mentions.len(), wrong)
}

/// Whether only values are missing: text mentions `cutape bench`, and `cutape completions SHELL`.
fn is_about_values(error: &str) -> bool {
    let is_placeholder = |word: &str| word.bytes().all(|byte| byte.is_ascii_uppercase());
    error.starts_with("the following required arguments were not provided")
        || error
            .strip_prefix("invalid value '")
            .and_then(|rest| rest.split_once('\''))
            .is_some_and(|(word, _)| is_placeholder(word))
}
