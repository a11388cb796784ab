//! `python/cutape/_options.py`: what the Python package takes from the definitions of options.
//!
//! `UPDATE_GOLDEN=1 cargo test -p cutape python_options` writes it.

use std::fmt::Write as _;
use std::path::Path;

use clap::{Arg, Args, Command, CommandFactory};

use cutape_recording::Recording;

use crate::option_kind::{OptionKind, is_repeated};

/// Columns of a line.
const WIDTH: usize = 100;

const HEAD: &str = r#""""Verbs of `cutape` as functions with all their options.

Generated from the definitions of the command line:
`UPDATE_GOLDEN=1 cargo test -p cutape python_options` writes this file.
"""

from typing import Literal, Optional, Sequence, Union

from ._recording import Block
from ._verbs import Findings, Path, ReplayReport, findings_of, report_of, words
"#;

/// A function of the module.
struct Function {
    name: &'static str,
    verb: &'static str,
    /// The parameter in front of the options.
    operand: &'static str,
    returns: &'static str,
    /// What it makes of `words(NAME, options)`.
    body: &'static str,
    /// The first paragraphs of its text.
    about: &'static [&'static str],
    /// Options that it decides itself, or that only say how text is printed.
    excluded: &'static [&'static str],
    /// Whether it runs no program, so that options of recording have no meaning.
    runs_no_program: bool,
}

const UNUSABLE: &str = "Raises CommandError where the command ends with status 2 or 3.";

const FUNCTIONS: [Function; 3] = [
    Function {
        name: "check",
        verb: "check",
        operand: "trace",
        returns: "Findings",
        body: "findings_of",
        about: &[
            "Looks for misuse of the API in a trace, or in a folder of them: `cutape check`.",
            UNUSABLE,
        ],
        excluded: &[
            "format",
            "fail_on",
            "report",
            "explain_silence",
            "show_stacks",
            "output",
            "overwrite",
        ],
        runs_no_program: true,
    },
    Function {
        name: "replay",
        verb: "replay",
        operand: "trace",
        returns: "ReplayReport",
        body: "report_of",
        about: &[
            "Re-issues the calls of a trace in another process, and compares: `cutape replay`.",
        ],
        excluded: &["format"],
        runs_no_program: false,
    },
    Function {
        name: "record",
        verb: "trim",
        operand: "path",
        returns: "Block",
        body: "Block",
        about: &[
            "Writes the driver calls of a block to a trace of their own, with those that they need.",
            "The program must have been started with `cutape record`, which records all of it: the \
             block is cut out when it ends, by `cutape trim`. It has the calls of all threads.",
        ],
        excluded: &["calls", "last", "launches", "rank", "output"],
        runs_no_program: false,
    },
];

fn module() -> String {
    let command = crate::Arguments::command();
    let mut text = HEAD.to_owned();
    for function in &FUNCTIONS {
        let verb = command.find_subcommand(function.verb).unwrap();
        write_function(function, verb, &mut text);
    }
    text
}

fn write_function(function: &Function, verb: &Command, out: &mut String) {
    let Function {
        name,
        operand,
        returns,
        body,
        about,
        ..
    } = function;
    let recording = Recording::augment_args(Command::new(""));
    let is_of_recording = |id| recording.get_arguments().any(|known| known.get_id() == id);
    for excluded in function.excluded {
        let known = verb.get_arguments().any(|arg| arg.get_id() == *excluded);
        assert!(known, "{name} has no option {excluded}");
    }
    let options: Vec<&Arg> = verb
        .get_arguments()
        .filter(|arg| arg.get_long().is_some() && !arg.is_hide_set())
        .filter(|arg| !function.excluded.contains(&arg.get_id().as_str()))
        .filter(|arg| !function.runs_no_program || !is_of_recording(arg.get_id()))
        .collect();
    let _ = write!(out, "\n\ndef {name}(\n    {operand}: Path,\n    *,\n");
    for option in &options {
        let _ = writeln!(out, "    {}: {},", keyword(option), annotation(option));
    }
    let _ = write!(out, ") -> {returns}:\n    \"\"\"");
    let paragraphs = about.iter().map(|text| wrapped(text, "    ", ""));
    let paragraphs = paragraphs.collect::<Vec<_>>().join("\n\n");
    let _ = writeln!(out, "{}\n", paragraphs.trim_start());
    for option in &options {
        let text = format!("{}: {}", keyword(option), help(option));
        let _ = writeln!(out, "{}", wrapped(&text, "    ", "    "));
    }
    let _ = write!(
        out,
        "    \"\"\"\n    return {body}({operand}, words({name}, locals()))\n"
    );
}

/// The name in Python, from which the package makes the option again.
fn keyword(option: &Arg) -> String {
    option.get_long().unwrap_or_default().replace('-', "_")
}

/// Type and default.
fn annotation(option: &Arg) -> String {
    let one = match OptionKind::of(option) {
        OptionKind::Flag => return "bool = False".to_owned(),
        OptionKind::Choice(choices) => {
            let choices: Vec<String> = choices.iter().map(|one| format!("{one:?}")).collect();
            format!("Literal[{}]", choices.join(", "))
        }
        OptionKind::Path => "Path".to_owned(),
        OptionKind::Integer => "int".to_owned(),
        OptionKind::Number => "float".to_owned(),
        OptionKind::Text => "str".to_owned(),
    };
    let values = option.get_num_args().unwrap_or_else(|| 1.into());
    assert_eq!(values.max_values(), 1, "{}", option.get_id());
    if values.min_values() == 0 {
        return format!("Union[bool, {one}] = False");
    }
    match is_repeated(option) {
        true => format!("Union[{one}, Sequence[{one}]] = ()"),
        false => format!("Optional[{one}] = None"),
    }
}

/// What it does, and the default of the command.
fn help(option: &Arg) -> String {
    let text = option
        .get_help()
        .map(ToString::to_string)
        .unwrap_or_default();
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let stop = if text.ends_with('.') { "" } else { "." };
    let defaults = option.get_default_values();
    let default = defaults.first().map(|default| default.to_string_lossy());
    match default.filter(|_| option.get_action().takes_values()) {
        Some(default) => format!("{text}{stop} Default: {default}."),
        None => format!("{text}{stop}"),
    }
}

/// The words in lines that begin with `indent`, all but the first with `further` also.
fn wrapped(text: &str, indent: &str, further: &str) -> String {
    let mut lines = vec![indent.to_owned()];
    for word in text.split(' ') {
        let line = lines.last_mut().unwrap();
        let is_begun = !line.trim_start().is_empty();
        if is_begun && line.len() + 1 + word.len() > WIDTH {
            lines.push(format!("{indent}{further}{word}"));
        } else {
            if is_begun {
                line.push(' ');
            }
            line.push_str(word);
        }
    }
    lines.join("\n")
}

#[test]
fn python_options_are_those_of_the_command_line() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let path = root.join("python/cutape/_options.py");
    let text = module();
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, &text).unwrap();
    }
    let found = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        found == text,
        "{} is stale: UPDATE_GOLDEN=1 cargo test -p cutape python_options",
        path.display()
    );
}
