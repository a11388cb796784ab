//! What is left of the tables of a trace: facts, mappings, symbols, sources.

use super::redaction::{REDACTED, Secret, Secrets};
use super::redactor::Redactor;
use crate::layout::{Mapping, ResolvedAddress, Symbol};

/// Facts that tell neither contents nor texts of the program.
const HARMLESS: [&str; 28] = [
    "payloads",
    "outputs",
    "outputs-of-exchanges",
    "breadcrumbs",
    "cassette",
    "memory",
    "deep",
    "digests",
    "stacks",
    "process",
    "parent",
    "fork.after-init",
    "rank",
    "rank.local",
    "driver.kind",
    "driver.version",
    "markers.lost",
    "incomplete",
    "incomplete.why",
    "clock.ticks-per-second",
    "cut.source-calls",
    "cut.version",
    "cut.calls",
    "cut.changed",
    "cut.state",
    "cut.state-call",
    "kept.time",
    "kept.earlier-calls",
];
/// The same for keys that begin so.
const HARMLESS_STARTS: [&str; 8] = [
    "recorder.",
    "host.",
    "device.",
    "cost.",
    "exit.",
    "repair.",
    "cut.state-",
    "left-out.",
];

impl Redactor<'_> {
    /// The table of facts. Keys that this version does not know are removed.
    pub(crate) fn meta(&self, all: Vec<(String, String)>) -> Vec<(String, String)> {
        let mut removed = self.redaction.secrets;
        let mut kept = Vec::with_capacity(all.len() + 1);
        for (key, value) in all {
            if key == REDACTED {
                removed = removed.and(Secrets::of_words(&value));
            } else if let Some(value) = self.fact(&key, value) {
                kept.push((key, value));
            }
        }
        kept.push((REDACTED.to_owned(), removed.words()));
        kept
    }

    fn fact(&self, key: &str, value: String) -> Option<String> {
        let is_harmless =
            HARMLESS.contains(&key) || HARMLESS_STARTS.iter().any(|start| key.starts_with(start));
        if is_harmless {
            return Some(value);
        }
        let is_word = key.starts_with("argument.");
        match key {
            "program" | "directory" | "driver.path" if self.removes(Secret::Paths) => {
                Some(self.texts.path(value.as_bytes())).filter(|_| key != "directory")
            }
            // The first word is the program's path.
            "argument.0" if self.removes(Secret::Paths) => None,
            _ if is_word || key.starts_with("environment.") => {
                (!self.removes(Secret::Environment)).then_some(value)
            }
            "program" | "directory" | "driver.path" => Some(value),
            _ if key.starts_with("forwarded.") => Some(match self.removes_texts() {
                true => String::new(),
                false => value,
            }),
            // It may name a mark.
            "kept.reason" if self.removes_texts() => Some("removed".to_owned()),
            "kept.reason" => Some(value),
            "cut.source" | "cut.source-blake3" | "cut.choice" => Some(match self.removes_texts() {
                true => String::new(),
                false => value,
            }),
            _ => None,
        }
    }

    /// The memory map.
    pub(crate) fn mappings(&self, mut all: Vec<Mapping>) -> Vec<Mapping> {
        if self.removes(Secret::Paths) {
            for mapping in &mut all {
                mapping.path = self.texts.path(mapping.path.as_bytes());
            }
        }
        all
    }

    /// Symbols of callers: `main+0x2f in saxpy`.
    pub(crate) fn symbols(&self, mut all: Vec<Symbol>) -> Vec<Symbol> {
        if self.removes(Secret::Names) {
            return Vec::new();
        }
        if self.removes(Secret::Paths) {
            for symbol in &mut all {
                // The name of a library may have this word, too.
                let function = symbol.text.split_once(" in ");
                symbol.text = function.map_or(String::new(), |(function, _)| function.to_owned());
            }
            all.retain(|symbol| !symbol.text.is_empty());
        }
        all
    }

    /// Sources of addresses.
    pub(crate) fn sources(&self, mut all: Vec<ResolvedAddress>) -> Vec<ResolvedAddress> {
        for source in &mut all {
            if self.removes(Secret::Paths) {
                source.module = self.texts.path(source.module.as_bytes());
            }
            for frame in &mut source.frames {
                if self.removes(Secret::Paths) {
                    frame.file = self.texts.path(frame.file.as_bytes());
                }
                if self.removes(Secret::Names) {
                    frame.function = self.texts.name(frame.function.as_bytes());
                }
            }
        }
        all
    }
}
