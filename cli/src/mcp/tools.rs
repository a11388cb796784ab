//! The tools: which verbs with which of their options. Names, types and texts of options are those
//! of the command line.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Arg, Command};
use serde_json::{Map, Value, json};

use super::folders::Folders;
use crate::option_kind::{OptionKind, is_repeated};

/// A tool, which is the verb of that name.
pub(super) struct Tool {
    pub(super) name: &'static str,
    /// For an assistant: what it answers, and when to ask.
    pub(super) about: &'static str,
    operands: &'static [Operand],
    /// Long names of the options that a client may give. None takes a path, except `trace_options`.
    options: &'static [&'static str],
    /// Those that take a trace.
    trace_options: &'static [&'static str],
    /// What is always given.
    fixed: &'static [&'static str],
    /// Whether it replays the trace on the GPU.
    pub(super) replays: bool,
}

/// An argument that has no option.
enum Operand {
    Trace(&'static str),
    /// A trace, or a folder of them.
    TraceOrFolder(&'static str),
    /// Several.
    Traces,
    /// A word, which may be left out: name and meaning.
    Word(&'static str, &'static str),
}

const BYTES: Operand = Operand::Word(
    "bytes",
    "The bytes: a recorded address, 0x7f0012340000+16, or an object as `dump` calls it: memory#3, \
     memory#3+0x40+16 is 16 bytes at byte 64. Instead: `result` or `parameter`.",
);

/// Calls in an answer of `dump`, if the client does not say how many.
pub(super) const MOST_CALLS: usize = 50;
/// The argument of `dump` that limits its lines.
pub(super) const MOST: &str = "most";

pub(super) const TOOLS: [Tool; 9] = [
    Tool {
        name: "info",
        about: "What a recorded program did: machine, calls by function, kernels, copies, memory, \
                leaks, failed calls. Ask this first. A folder: its processes side by side.",
        operands: &[Operand::TraceOrFolder("trace")],
        options: &[],
        trace_options: &[],
        fixed: &["--format=json"],
        replays: false,
    },
    Tool {
        name: "check",
        about: "Misuse of the CUDA API in a trace, or between the processes of a folder: wrong \
                lifetimes, races, leaks, unchecked errors. Each finding has the call, the causes \
                and what to do.",
        operands: &[Operand::TraceOrFolder("trace")],
        options: &["rules", "calls", "all", "confidence", "most-repeats"],
        trace_options: &[],
        fixed: &["--format=json", "--fail-on=never", "--allow-incomplete"],
        replays: false,
    },
    Tool {
        name: "dump",
        about: "Calls with decoded arguments, results, launches and notes, in their order. Choose \
                them with `calls`; `next` of the answer are the calls after it.",
        operands: &[Operand::Trace("trace")],
        options: &["calls", "thread", "stacks"],
        trace_options: &[],
        fixed: &["--format=json"],
        replays: false,
    },
    Tool {
        name: "sql",
        about: "Answers a query in DuckDB's SQL about traces or folders of traces. Ask without a \
                query first: the answer lists the tables and their columns. Times are host times \
                in ns. One statement; it can use no files.",
        operands: &[
            Operand::Traces,
            Operand::Word("query", "One statement of SQL."),
        ],
        options: &["most"],
        trace_options: &[],
        fixed: &["--format=json"],
        replays: false,
    },
    Tool {
        name: "diff",
        about: "What differs between two traces of one program: calls, kernels, shapes, \
                arguments, code, results. The first difference is the first one listed.",
        operands: &[Operand::Trace("a"), Operand::Trace("b")],
        options: &["all", "ignore", "strict", "times"],
        trace_options: &[],
        fixed: &["--format=json"],
        replays: false,
    },
    Tool {
        name: "inspect",
        about: "What memory holds before or after a call: numbers, statistics, differences. \
                Replays the trace.",
        operands: &[Operand::Trace("trace"), BYTES],
        options: &[
            "result",
            "parameter",
            "at",
            "type",
            "shape",
            "strides",
            "before",
            "after",
            "and",
            "most",
            "force",
        ],
        trace_options: &[],
        fixed: &["--report=-"],
        replays: true,
    },
    Tool {
        name: "why",
        about: "Which calls wrote some bytes, and from what: the way back from a wrong number. \
                Replays the trace, once for each step back.",
        operands: &[Operand::Trace("trace"), BYTES],
        options: &[
            "result",
            "parameter",
            "at",
            "type",
            "depth",
            "most",
            "force",
        ],
        trace_options: &[],
        fixed: &["--report=-"],
        replays: true,
    },
    Tool {
        name: "first",
        about: "The first call that wrote a NaN, an infinity or a large number, that changed some \
                bytes, or that wrote something else than in another trace. Give one of nan, inf, \
                above, changed, written_by, differs. Replays the trace.",
        operands: &[Operand::Trace("trace")],
        options: &[
            "nan",
            "inf",
            "above",
            "changed",
            "written-by",
            "differs",
            "tolerance",
            "type",
            "within",
            "from",
            "most",
            "force",
        ],
        trace_options: &["differs"],
        fixed: &["--report=-"],
        replays: true,
    },
    Tool {
        name: "profile",
        about: "When kernels and copies run on the GPU, what the GPU waits for, and which chain \
                bounds the time. Replays the trace.",
        operands: &[Operand::Trace("trace")],
        options: &["repeat", "force"],
        trace_options: &[],
        fixed: &["--format=json"],
        replays: true,
    },
];

const TRACE: &str = "A name that the tool `traces` lists.";
const TRACE_OR_FOLDER: &str = "A name that the tool `traces` lists, or a folder of traces.";

impl Tool {
    /// The tool of that name.
    pub(super) fn find(name: &str) -> Option<&'static Self> {
        TOOLS.iter().find(|tool| tool.name == name)
    }

    fn options<'c>(&self, verb: &'c Command) -> impl Iterator<Item = &'c Arg> {
        let all = verb.get_arguments();
        all.filter(|arg| {
            arg.get_long()
                .is_some_and(|long| self.options.contains(&long))
        })
    }

    /// The JSON schema of the arguments.
    pub(super) fn schema(&self, verb: &Command) -> Map<String, Value> {
        let mut properties = Map::new();
        let mut required = Vec::new();
        for operand in self.operands {
            let (name, schema) = match operand {
                Operand::Trace(name) => (*name, text(TRACE)),
                Operand::TraceOrFolder(name) => (*name, text(TRACE_OR_FOLDER)),
                Operand::Traces => (
                    "traces",
                    json!({"type": "array", "minItems": 1, "items": text(TRACE_OR_FOLDER)}),
                ),
                Operand::Word(name, meaning) => (*name, text(meaning)),
            };
            properties.insert(name.to_owned(), schema);
            if !matches!(operand, Operand::Word(..)) {
                required.push(name);
            }
        }
        for option in self.options(verb) {
            properties.insert(keyword(option), property(option));
        }
        if self.name == "dump" {
            let most = json!({"type": "integer", "minimum": 1, "default": MOST_CALLS,
                "description": "How many calls the answer has."});
            properties.insert(MOST.to_owned(), most);
        }
        let schema = json!({"type": "object", "properties": properties, "required": required,
            "additionalProperties": false});
        match schema {
            Value::Object(schema) => schema,
            _ => Map::new(),
        }
    }

    /// The words of the command line for these arguments.
    pub(super) fn words(
        &self,
        verb: &Command,
        arguments: &Map<String, Value>,
        folders: &Folders,
    ) -> Result<Vec<OsString>, String> {
        let mut words: Vec<OsString> = vec![self.name.into()];
        words.extend(self.fixed.iter().map(Into::into));
        let (mut traces, mut others) = (Vec::new(), Vec::new());
        let mut known: Vec<String> = Vec::new();
        for operand in self.operands {
            let name = match operand {
                Operand::Trace(name) | Operand::TraceOrFolder(name) | Operand::Word(name, _) => {
                    *name
                }
                Operand::Traces => "traces",
            };
            known.push(name.to_owned());
            let given = given(arguments, name);
            match (operand, given) {
                (Operand::Word(..), None) => {}
                (_, None) => return Err(format!("{name}: missing; {TRACE_OR_FOLDER}")),
                (Operand::Traces, Some(Value::Array(names))) if !names.is_empty() => {
                    for trace in names {
                        traces.push(resolved(name, trace, folders, true)?);
                    }
                }
                (Operand::Word(..), Some(Value::String(word))) => {
                    // `sql` tells a query by its blanks.
                    others.push(format!("{word}{}", if name == "query" { "\n" } else { "" }));
                }
                (Operand::Word(..), Some(other)) => return Err(unusable(name, other, "a text")),
                (Operand::Trace(_), Some(trace)) => {
                    traces.push(resolved(name, trace, folders, false)?);
                }
                (_, Some(trace)) => traces.push(resolved(name, trace, folders, true)?),
            }
        }
        for option in self.options(verb) {
            let name = keyword(option);
            if let Some(value) = given(arguments, &name) {
                self.add_option(option, value, folders, &mut words)?;
            }
            known.push(name);
        }
        if self.name == "dump" {
            known.push(MOST.to_owned());
        }
        if let Some(unknown) = arguments.keys().find(|name| !known.contains(name)) {
            let known = known.join(", ");
            return Err(format!("{unknown}: no such argument; there are {known}"));
        }
        // Absolute paths are no options, and words after -- are none either.
        words.extend(traces.into_iter().map(PathBuf::into_os_string));
        if !others.is_empty() {
            words.push("--".into());
        }
        words.extend(others.into_iter().map(Into::into));
        Ok(words)
    }

    fn add_option(
        &self,
        option: &Arg,
        value: &Value,
        folders: &Folders,
        words: &mut Vec<OsString>,
    ) -> Result<(), String> {
        let name = keyword(option);
        let long = option.get_long().unwrap_or_default();
        let mut push = |value: OsString| {
            let mut word = OsString::from(format!("--{long}="));
            word.push(value);
            words.push(word);
        };
        if self.trace_options.contains(&long) {
            push(resolved(&name, value, folders, false)?.into());
            return Ok(());
        }
        if OptionKind::of(option) == OptionKind::Flag {
            return match value {
                Value::Bool(true) => {
                    words.push(format!("--{long}").into());
                    Ok(())
                }
                Value::Bool(false) => Ok(()),
                other => Err(unusable(&name, other, "true or false")),
            };
        }
        let values = match value {
            Value::Array(values) if is_repeated(option) => values.as_slice(),
            one => std::slice::from_ref(one),
        };
        for value in values {
            match value {
                Value::String(text) => push(text.into()),
                Value::Number(number) => push(number.to_string().into()),
                other => return Err(unusable(&name, other, "a text or a number")),
            }
        }
        Ok(())
    }
}

/// What a client gives; null is nothing.
fn given<'a>(arguments: &'a Map<String, Value>, name: &str) -> Option<&'a Value> {
    arguments.get(name).filter(|value| !value.is_null())
}

fn unusable(name: &str, value: &Value, expected: &str) -> String {
    format!("{name}: expected {expected}, not {value}")
}

fn resolved(
    name: &str,
    value: &Value,
    folders: &Folders,
    is_folder_allowed: bool,
) -> Result<PathBuf, String> {
    let Value::String(text) = value else {
        return Err(unusable(name, value, "the name of a trace"));
    };
    let path = folders.resolve(text)?;
    match path.is_dir() && !is_folder_allowed {
        true => Err(format!("{text}: a folder; name a trace")),
        false => Ok(path),
    }
}

/// The name of an option among arguments.
fn keyword(option: &Arg) -> String {
    option.get_long().unwrap_or_default().replace('-', "_")
}

fn text(meaning: &str) -> Value {
    json!({"type": "string", "description": meaning})
}

/// The JSON schema of an option.
fn property(option: &Arg) -> Value {
    let mut one = match OptionKind::of(option) {
        OptionKind::Flag => json!({"type": "boolean"}),
        OptionKind::Choice(choices) => json!({"type": "string", "enum": choices}),
        OptionKind::Integer => json!({"type": "integer", "minimum": 0}),
        OptionKind::Number => json!({"type": "number"}),
        OptionKind::Path | OptionKind::Text => json!({"type": "string"}),
    };
    if is_repeated(option) {
        one = json!({"type": "array", "items": one});
    }
    let help = option.get_long_help().or(option.get_help());
    let help = help.map(ToString::to_string).unwrap_or_default();
    let help: Vec<&str> = help.split_whitespace().collect();
    one["description"] = help.join(" ").into();
    let default = option.get_default_values().first();
    if let Some(default) = default.filter(|_| option.get_action().takes_values()) {
        let default = default.to_string_lossy();
        one["default"] = match default.parse::<u64>() {
            Ok(number) => number.into(),
            Err(_) => default.into(),
        };
    }
    one
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;
    use cutape_terminal::private_folder::PrivateFolder;

    use super::*;

    fn verb(tool: &Tool) -> Command {
        let command = crate::Arguments::command();
        command.find_subcommand(tool.name).unwrap().clone()
    }

    #[test]
    fn options_exist_and_take_no_other_files() {
        for tool in &TOOLS {
            let verb = verb(tool);
            let found: Vec<&Arg> = tool.options(&verb).collect();
            assert_eq!(found.len(), tool.options.len(), "{}", tool.name);
            for option in found {
                let long = option.get_long().unwrap();
                let is_path = OptionKind::of(option) == OptionKind::Path;
                assert_eq!(is_path, tool.trace_options.contains(&long), "{long}");
            }
            let schema = tool.schema(&verb);
            for (name, property) in schema["properties"].as_object().unwrap() {
                let described = property
                    .get("description")
                    .or(property["items"].get("description"));
                assert!(
                    described.is_some_and(|text| text != ""),
                    "{} {name}",
                    tool.name
                );
            }
            // `check` and `diff` have a driver too, for what no client may ask for.
            let takes_driver = verb
                .get_arguments()
                .any(|arg| arg.get_long() == Some("driver"));
            assert!(takes_driver || !tool.replays, "{}", tool.name);
            let is_own = tool.options.contains(&"force");
            assert_eq!(tool.replays, is_own, "{}", tool.name);
        }
    }

    #[test]
    fn words_of_arguments() {
        let place = PrivateFolder::create("words").unwrap();
        for name in ["a.cutape", "b.cutape"] {
            std::fs::write(place.path(name), "").unwrap();
        }
        let folders = Folders::open(&[place.path("")]).unwrap();
        let root = place.path("").canonicalize().unwrap();
        for (name, arguments, expected) in [
            (
                "info",
                json!({"trace": "a.cutape"}),
                Ok("info --format=json ROOT/a.cutape"),
            ),
            ("info", json!({"trace": "."}), Ok("info --format=json ROOT")),
            (
                "dump",
                json!({"trace": "."}),
                Err(".: a folder; name a trace"),
            ),
            (
                "dump",
                json!({"trace": "a.cutape", "calls": "--x", "stacks": true, "thread": 2, "most": 3}),
                Ok("dump --format=json --calls=--x --thread=2 --stacks ROOT/a.cutape"),
            ),
            (
                "why",
                json!({"trace": "a.cutape", "bytes": "--driver=/x.so", "depth": null}),
                Ok("why --report=- ROOT/a.cutape -- --driver=/x.so"),
            ),
            (
                "sql",
                json!({"traces": ["a.cutape", "b.cutape"], "query": "-- x"}),
                Ok("sql --format=json ROOT/a.cutape ROOT/b.cutape -- -- x\n"),
            ),
            (
                "inspect",
                json!({"trace": "a.cutape", "bytes": "memory#1", "shape": [2, 3]}),
                Ok("inspect --report=- --shape=2 --shape=3 ROOT/a.cutape -- memory#1"),
            ),
            (
                "first",
                json!({"trace": "a.cutape", "differs": "b.cutape", "nan": false}),
                Ok("first --report=- --differs=ROOT/b.cutape ROOT/a.cutape"),
            ),
            (
                "first",
                json!({"trace": "a.cutape", "differs": "/etc/passwd"}),
                Err("/etc/passwd: no trace"),
            ),
            ("info", json!({}), Err("trace: missing")),
            (
                "info",
                json!({"trace": 5}),
                Err("trace: expected the name of a trace, not 5"),
            ),
            (
                "info",
                json!({"trace": "a.cutape", "format": "text"}),
                Err("format: no such argument; there are trace"),
            ),
            (
                "check",
                json!({"trace": "a.cutape", "all": "yes"}),
                Err("all: expected true or false"),
            ),
            (
                "check",
                json!({"trace": "a.cutape", "rules": ["x"]}),
                Err("rules: expected a text"),
            ),
            (
                "check",
                json!({"trace": "a.cutape", "suppress": "/etc/passwd"}),
                Err("suppress: no such"),
            ),
            ("sql", json!({"traces": []}), Err("traces: expected")),
        ] {
            let tool = Tool::find(name).unwrap();
            let arguments = arguments.as_object().unwrap();
            let words = tool.words(&verb(tool), arguments, &folders).map(|words| {
                let words = words.iter().map(|word| word.to_string_lossy());
                let words = words.collect::<Vec<_>>().join(" ");
                words.replace(&*root.to_string_lossy(), "ROOT")
            });
            match (&words, expected) {
                (Ok(words), Ok(expected)) => assert_eq!(words, expected),
                (Err(error), Err(expected)) if error.starts_with(expected) => {}
                _ => panic!("{name} {arguments:?}: {words:?}"),
            }
        }
    }
}
