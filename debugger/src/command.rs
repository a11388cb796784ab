//! The words of the prompt: those of gdb and rr where these have one.

use cutape_analyzer::suggestion::did_you_mean;
use cutape_history::Target;
use cutape_render::Element;

/// A word of the prompt.
#[derive(Debug)]
pub(crate) struct Word {
    /// The word.
    pub(crate) name: &'static str,
    /// Shorter ones.
    pub(crate) short: &'static [&'static str],
    /// What follows it.
    pub(crate) arguments: &'static str,
    /// What it does.
    pub(crate) help: &'static str,
    parse: fn(&str) -> Result<Command, String>,
}

/// What a line asks for.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Command {
    /// Moves; true is back.
    Continue(bool),
    /// To the next or last call of the same thread.
    Next(bool),
    /// To the next or last call.
    Step(bool),
    /// To the end or the begin of the innermost range.
    Finish(bool),
    /// To a call.
    Call(u64),
    /// Stops before calls in a set.
    Break(String),
    /// Stops at changes of bytes.
    Watch(Place),
    /// Removes a breakpoint or watchpoint, or all.
    Delete(Option<u32>),
    /// Shows bytes, after the call if that is wanted.
    Print(Place, bool),
    /// Shows the stack of the call.
    Backtrace,
    /// Shows what there is.
    Info(Subject),
    /// Shows the calls around.
    List,
    /// Shows the trace in the viewer.
    View,
    /// Lists the words.
    Help,
    /// Ends.
    Quit,
}

/// Bytes that a line names.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Place {
    /// The words that name them.
    pub(crate) text: String,
    /// What they name.
    pub(crate) what: What,
    /// The type of the numbers.
    pub(crate) element: Option<&'static Element>,
}

/// What words name.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum What {
    /// Memory.
    Target(Target),
    /// What a parameter of the kernel points at that the call launches, and how many bytes.
    Parameter(usize, Option<u64>),
}

/// What `info` shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Subject {
    /// Breakpoints and watchpoints.
    Breakpoints,
    /// Live memory.
    Memory,
    /// Live streams.
    Streams,
    /// Live modules and libraries.
    Modules,
    /// Live graphs.
    Graphs,
    /// The threads of the recording.
    Threads,
    /// The ranges around the call.
    Ranges,
}

impl Subject {
    const ALL: [(&'static str, Self); 7] = [
        ("breakpoints", Self::Breakpoints),
        ("memory", Self::Memory),
        ("streams", Self::Streams),
        ("modules", Self::Modules),
        ("graphs", Self::Graphs),
        ("threads", Self::Threads),
        ("ranges", Self::Ranges),
    ];
}

const fn word(
    name: &'static str,
    short: &'static [&'static str],
    arguments: &'static str,
    help: &'static str,
    parse: fn(&str) -> Result<Command, String>,
) -> Word {
    Word {
        name,
        short,
        arguments,
        help,
        parse,
    }
}

/// All words.
pub(crate) const WORDS: [Word; 19] = [
    word(
        "continue",
        &["c"],
        "",
        "to the next breakpoint or change, or the end",
        |rest| alone(rest, Command::Continue(false)),
    ),
    word(
        "reverse-continue",
        &["rc"],
        "",
        "the same back, to the begin",
        |rest| alone(rest, Command::Continue(true)),
    ),
    word(
        "next",
        &["n"],
        "",
        "to the next call of this thread",
        |rest| alone(rest, Command::Next(false)),
    ),
    word(
        "reverse-next",
        &["rn"],
        "",
        "to the last call of this thread",
        |rest| alone(rest, Command::Next(true)),
    ),
    word(
        "step",
        &["s"],
        "",
        "to the next call of any thread",
        |rest| alone(rest, Command::Step(false)),
    ),
    word(
        "reverse-step",
        &["rs"],
        "",
        "to the last call of any thread",
        |rest| alone(rest, Command::Step(true)),
    ),
    word(
        "finish",
        &["fin"],
        "",
        "to the end of the innermost range",
        |rest| alone(rest, Command::Finish(false)),
    ),
    word("reverse-finish", &["rf"], "", "to its begin", |rest| {
        alone(rest, Command::Finish(true))
    }),
    word("call", &[], "N", "to call N", |rest| {
        let call = rest.parse();
        call.map(Command::Call)
            .map_err(|_| "give the number of a call: call 120".to_owned())
    }),
    word(
        "break",
        &["b"],
        "SET",
        "stop before these calls: kernel:NAME, range:NAME, failed, 120",
        |rest| match rest {
            "" => Err("give a set of calls: break kernel:NAME".to_owned()),
            set => Ok(Command::Break(set.to_owned())),
        },
    ),
    word(
        "watch",
        &["w"],
        "BYTES [TYPE]",
        "stop when bytes change, forward and back",
        |rest| Command::parse_place(rest).map(Command::Watch),
    ),
    word(
        "delete",
        &["d"],
        "[N]",
        "remove a breakpoint or watchpoint, or all",
        |rest| match rest {
            "" => Ok(Command::Delete(None)),
            number => number
                .parse()
                .map(|number| Command::Delete(Some(number)))
                .map_err(|_| "give the number of a breakpoint: delete 1".to_owned()),
        },
    ),
    word(
        "print",
        &["p"],
        "BYTES [TYPE] [after]",
        "bytes before the call, or after it",
        |rest| {
            let (place, is_after) = print(rest, "print")?;
            Ok(Command::Print(place, is_after))
        },
    ),
    word(
        "backtrace",
        &["bt", "where"],
        "",
        "the stack of the call",
        |rest| alone(rest, Command::Backtrace),
    ),
    word(
        "info",
        &["i"],
        "SUBJECT",
        "memory, streams, modules, graphs, threads, ranges, breakpoints",
        info,
    ),
    word("list", &["l"], "", "the calls around this one", |rest| {
        alone(rest, Command::List)
    }),
    word("view", &[], "", "the viewer, at this call", |rest| {
        alone(rest, Command::View)
    }),
    word("help", &["h"], "", "these words", |rest| {
        alone(rest, Command::Help)
    }),
    word("quit", &["q", "exit"], "", "end", |rest| {
        alone(rest, Command::Quit)
    }),
];

fn alone(rest: &str, command: Command) -> Result<Command, String> {
    match rest {
        "" => Ok(command),
        rest => Err(format!("nothing may follow: `{}`", rest.escape_debug())),
    }
}

fn info(rest: &str) -> Result<Command, String> {
    let mut subjects = Subject::ALL.into_iter();
    let found = subjects.find(|(name, _)| !rest.is_empty() && name.starts_with(rest));
    let names = Subject::ALL.map(|(name, _)| name).join(", ");
    let found = found.ok_or_else(|| format!("info shows {names}"))?;
    Ok(Command::Info(found.1))
}

/// `BYTES [TYPE] [after]`.
fn print(rest: &str, word: &str) -> Result<(Place, bool), String> {
    let mut words = rest.split_whitespace();
    let text = words.next();
    let text = text.ok_or_else(|| format!("give bytes: {word} memory#3+0x40+16 f32"))?;
    let what = match text.split_once(':') {
        Some(("param" | "parameter", rest)) => {
            let (number, length) = rest.split_once('+').unwrap_or((rest, ""));
            let length = (!length.is_empty()).then(|| length.parse()).transpose();
            match (number.parse(), length) {
                (Ok(number), Ok(length)) => What::Parameter(number, length),
                _ => return Err(format!("give a parameter and bytes: {word} param:2+64")),
            }
        }
        _ => What::Target(Target::parse(text)?),
    };
    let (mut element, mut is_after) = (None, false);
    for word in words {
        match word {
            "after" => is_after = true,
            name => {
                let parsed = Element::parse(name);
                let parsed = parsed.map_err(|why| format!("`{}`: {why}", name.escape_debug()));
                element = Some(parsed?);
            }
        }
    }
    let text = text.to_owned();
    let place = Place {
        text,
        what,
        element,
    };
    Ok((place, is_after))
}

impl Command {
    /// Parses what follows `watch`.
    ///
    /// # Errors
    /// As [`Command::parse`].
    pub(crate) fn parse_place(rest: &str) -> Result<Place, String> {
        match print(rest, "watch")? {
            (place, false) => Ok(place),
            (_, true) => Err("`after` is of print".to_owned()),
        }
    }

    /// Parses a line, which is not empty.
    ///
    /// # Errors
    /// A line that says what is wrong and what is allowed.
    pub(crate) fn parse(line: &str) -> Result<Self, String> {
        let line = line.trim();
        let (first, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        let is = |word: &&Word| word.name == first || word.short.contains(&first);
        let word = WORDS.iter().find(is).map_or_else(|| begun(first), Ok)?;
        let parsed = (word.parse)(rest.trim());
        parsed.map_err(|why| format!("{}: {why}", word.name))
    }
}

/// The only word that begins so.
fn begun(first: &str) -> Result<&'static Word, String> {
    let begun: Vec<&Word> = WORDS
        .iter()
        .filter(|word| word.name.starts_with(first))
        .collect();
    let shown = first.escape_debug();
    match begun.as_slice() {
        [only] => Ok(only),
        [] => {
            let meant = did_you_mean(first, WORDS.iter().map(|word| word.name));
            Err(format!("no command `{shown}`{meant}; `help` lists them"))
        }
        several => {
            let names: Vec<&str> = several.iter().map(|word| word.name).collect();
            Err(format!("`{shown}` may be {}", names.join(" or ")))
        }
    }
}

/// The words that a line may go on with, in place of its last one.
pub fn completions(line: &str) -> Vec<String> {
    let names: Vec<&str> = match line.split_once(' ') {
        None => WORDS.iter().map(|word| word.name).collect(),
        Some(("info" | "i", _)) => Subject::ALL.map(|(name, _)| name).to_vec(),
        Some(_) => Vec::new(),
    };
    let last = line.rsplit(' ').next().unwrap_or_default();
    let begun = names.into_iter().filter(|name| name.starts_with(last));
    begun.map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_parsed() {
        for (line, expected) in [
            ("c", Command::Continue(false)),
            (" reverse-cont ", Command::Continue(true)),
            ("rn", Command::Next(true)),
            ("s", Command::Step(false)),
            ("call 7", Command::Call(7)),
            (
                "b kernel:saxpy* failed",
                Command::Break("kernel:saxpy* failed".into()),
            ),
            ("d", Command::Delete(None)),
            ("delete 2", Command::Delete(Some(2))),
            ("i mem", Command::Info(Subject::Memory)),
            ("fin", Command::Finish(false)),
            ("bt", Command::Backtrace),
        ] {
            assert_eq!(Command::parse(line).as_ref(), Ok(&expected), "{line}");
        }
        let printed = Command::parse("p memory#3+0x40+16 f32 after").unwrap();
        let Command::Print(place, true) = printed else {
            panic!("{printed:?}");
        };
        assert_eq!(
            place.what,
            What::Target(Target::Object("memory#3".into(), 0x40, Some(16)))
        );
        assert_eq!(place.element.map(|element| element.name), Some("f32"));
        let watched = Command::parse("watch param:2+64").unwrap();
        assert!(matches!(
            watched,
            Command::Watch(Place {
                what: What::Parameter(2, Some(64)),
                ..
            })
        ));
    }

    #[test]
    fn wrong_lines_are_refused() {
        for (line, part) in [
            ("frobnicate", "no command `frobnicate`; `help`"),
            ("brake x", "did you mean `break`?"),
            ("re", "may be reverse-continue or reverse-next"),
            ("next 3", "next: nothing may follow: `3`"),
            ("call x", "give the number of a call"),
            ("break", "give a set of calls"),
            ("info", "info shows breakpoints, memory"),
            ("print", "print: give bytes"),
            ("print memory#3 f33", "`f33`: not a type"),
            ("print param:x", "give a parameter"),
            ("print param:1+x", "give a parameter"),
            ("watch memory#3 after", "`after` is of print"),
            ("delete x", "the number of a breakpoint"),
        ] {
            let error = Command::parse(line).unwrap_err();
            assert!(error.contains(part), "{line}: {error}");
        }
    }

    #[test]
    fn lines_are_completed() {
        assert_eq!(completions("reverse-s"), ["reverse-step"]);
        assert_eq!(completions("i m"), ["memory", "modules"]);
        assert!(completions("break k").is_empty());
    }
}
