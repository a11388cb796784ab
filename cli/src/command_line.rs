//! The words of the command line, with those that the project's file adds.

use std::ffi::OsString;
use std::sync::OnceLock;

use clap::Command;

static CURRENT: OnceLock<CommandLine> = OnceLock::new();

/// A command line with a verb.
#[derive(Clone, Debug, Default)]
pub(crate) struct CommandLine {
    /// The program, and options of all verbs.
    start: Vec<OsString>,
    verb: OsString,
    rest: Vec<OsString>,
}

impl CommandLine {
    /// Splits words that `command` accepts.
    pub(crate) fn of(command: &Command, words: impl IntoIterator<Item = OsString>) -> Self {
        let mut words = words.into_iter().peekable();
        let mut start: Vec<OsString> = words.next().into_iter().collect();
        let takes_value = |word: &str| {
            let name = word.strip_prefix("--");
            let mut options = command.get_arguments();
            options.any(|arg| arg.get_action().takes_values() && arg.get_long() == name)
        };
        while let Some(option) = words.next_if(|word| word.as_encoded_bytes().starts_with(b"-")) {
            let value = option.to_str().is_some_and(takes_value);
            start.push(option);
            start.extend(value.then(|| words.next()).flatten());
        }
        Self {
            start,
            verb: words.next().unwrap_or_default(),
            rest: words.collect(),
        }
    }

    /// Puts options of the verb in front of those that it has.
    pub(crate) fn add(&mut self, options: impl IntoIterator<Item = String>) {
        self.rest
            .splice(0..0, options.into_iter().map(OsString::from));
    }

    /// All words.
    pub(crate) fn words(&self) -> impl Iterator<Item = &OsString> {
        let verb = std::iter::once(&self.verb);
        self.start.iter().chain(verb).chain(&self.rest)
    }

    /// This process's own command line from now on.
    pub(crate) fn make_current(self) {
        // Set once, by `main`.
        let _ = CURRENT.set(self);
    }

    /// The arguments of a child that has this process's options, `hidden` ones, and another verb.
    pub(crate) fn of_child(verb: &str, hidden: &[OsString]) -> Vec<OsString> {
        let current = CURRENT.get().cloned().unwrap_or_default();
        let mut words: Vec<OsString> = current.start.into_iter().skip(1).collect();
        words.push(verb.into());
        words.extend_from_slice(hidden);
        words.extend(current.rest);
        words
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_verb_is_no_value_of_an_option() {
        let command = <crate::Arguments as clap::CommandFactory>::command();
        for (text, verb) in [
            ("cutape check check", 1),
            ("cutape --config check check --config x", 3),
            ("cutape --config=check --no-config check a", 3),
            (
                "cutape --no-color --log debug --color never replay --log info t",
                6,
            ),
        ] {
            let words: Vec<OsString> = text.split(' ').map(OsString::from).collect();
            let mut line = CommandLine::of(&command, words.clone());
            assert_eq!(
                (&line.verb, line.start.len()),
                (&words[verb], verb),
                "{text}"
            );
            assert!(line.words().eq(&words), "{text}");
            line.add(["--all".to_owned(), "--rules=x".to_owned()]);
            let options = ["--all", "--rules=x"].map(OsString::from);
            let expected = [&words[..=verb], &options, &words[verb + 1..]].concat();
            assert!(line.words().eq(&expected), "{text}");
        }
    }
}
