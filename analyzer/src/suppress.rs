//! Findings to leave out: suppression files.

use std::fmt;

use crate::finding::Finding;
use crate::glob;
use crate::suggestion::{did_you_mean, unknown_rule};

/// Findings to leave out, one entry a line: `rule [function] [key:pattern...] [# comment]`, each a
/// [glob](crate::glob). All words of a line must match.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Suppressions {
    entries: Vec<Entry>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Entry {
    rule: String,
    function: Option<String>,
    keys: Vec<(Key, String)>,
}

/// What a pattern is compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Key {
    /// The name of a function or kernel that the finding is about.
    Kernel,
    /// A module that the finding is about, or the file that makes the call.
    Module,
    /// As `Module`, of a library.
    Library,
    /// A frame of the call stack, its function or its file; the caller if there is no stack.
    Frame,
    /// The name of the result.
    Result,
    /// The class.
    Class,
    /// The title.
    Message,
}

const KEYS: [(&str, Key); 7] = [
    ("kernel", Key::Kernel),
    ("module", Key::Module),
    ("library", Key::Library),
    ("frame", Key::Frame),
    ("result", Key::Result),
    ("class", Key::Class),
    ("message", Key::Message),
];

impl Key {
    fn matches(self, pattern: &str, finding: &Finding) -> bool {
        let is = |text: &str| glob::matches(pattern, text);
        let call = finding.call.as_ref();
        let object = |kinds: &[&str]| {
            let own = finding.objects.iter();
            let own = own.filter(|object| kinds.contains(&object.kind.as_str()));
            let own = own.map(|object| object.label.as_str());
            let parents = finding.objects.iter().flat_map(|object| &object.parents);
            let parents = parents.map(String::as_str).filter(|label| {
                kinds
                    .iter()
                    .any(|kind| label.starts_with(&format!("{kind}#")))
            });
            // A label is kind, generation, handle and name.
            own.chain(parents)
                .any(|label| is(label) || label.split('"').nth(1).is_some_and(is))
        };
        let of_file = || {
            let file = |path: &str| is(path) || path.rsplit('/').next().is_some_and(is);
            call.is_some_and(|call| {
                let caller = call.caller.rsplit_once(" in ");
                caller.is_some_and(|(_, name)| file(name))
                    || call.frames.first().is_some_and(|frame| file(&frame.module))
            })
        };
        match self {
            Self::Kernel => object(&["function", "kernel"]),
            Self::Module => object(&["module"]) || of_file(),
            Self::Library => object(&["library"]) || of_file(),
            Self::Frame => call.is_some_and(|call| {
                let mut frames = call.frames.iter();
                frames.any(|frame| is(&frame.function) || is(&frame.file)) || is(&call.caller)
            }),
            Self::Result => call.is_some_and(|call| is(&call.result_text())),
            Self::Class => is(finding.class.word()),
            Self::Message => is(&finding.title),
        }
    }
}

/// A line of a suppression file that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SuppressionError {
    /// From 1.
    pub line: usize,
    /// What is wrong.
    pub what: String,
}

impl fmt::Display for SuppressionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.what)
    }
}

impl std::error::Error for SuppressionError {}

impl Suppressions {
    /// Reads a suppression file; the error names the line.
    pub fn parse(text: &str) -> Result<Self, SuppressionError> {
        let mut entries = Vec::new();
        for (number, line) in text.lines().enumerate() {
            let words = line.split('#').next().unwrap_or_default();
            let mut words = words.split_whitespace();
            let Some(rule) = words.next() else { continue };
            let error = |what: String| SuppressionError {
                line: number + 1,
                what,
            };
            if !is_glob(rule) && cutape_registry::rule(rule).is_none() {
                return Err(error(unknown_rule(rule)));
            }
            let mut entry = Entry {
                rule: rule.to_owned(),
                function: None,
                keys: Vec::new(),
            };
            for word in words {
                match word.split_once(':') {
                    Some((name, pattern)) => {
                        let key = KEYS.iter().find(|(known, _)| *known == name);
                        let (_, key) = key.ok_or_else(|| {
                            let names = KEYS.map(|(name, _)| name);
                            let suggestion = did_you_mean(name, names);
                            let names = names.join(", ");
                            error(format!("`{name}:` is none of {names}{suggestion}"))
                        })?;
                        entry.keys.push((*key, pattern.to_owned()));
                    }
                    None if entry.function.is_none() && entry.keys.is_empty() => {
                        if let Some(suggestion) = unknown_function(word) {
                            let what = format!("the driver has no function `{word}`{suggestion}");
                            return Err(error(what));
                        }
                        entry.function = Some(word.to_owned());
                    }
                    None => {
                        return Err(error(format!(
                            "unexpected word \"{word}\": write `rule [function] [key:pattern...] \
                             [# comment]`"
                        )));
                    }
                }
            }
            entries.push(entry);
        }
        Ok(Self { entries })
    }

    /// Leaves out those of another list, too.
    pub fn extend(&mut self, other: Self) {
        self.entries.extend(other.entries);
    }

    /// True if the finding is to be left out.
    pub fn matches(&self, finding: &Finding) -> bool {
        let function = finding
            .call
            .as_ref()
            .map_or("", |call| call.function.as_str());
        self.entries.iter().any(|entry| {
            let pattern = entry.function.as_ref();
            let mut keys = entry.keys.iter();
            glob::matches(&entry.rule, finding.rule)
                && pattern.is_none_or(|pattern| names_function(pattern, function))
                && keys.all(|(key, pattern)| key.matches(pattern, finding))
        })
    }

    /// The other findings.
    pub fn filter(&self, findings: Vec<Finding>) -> Vec<Finding> {
        findings
            .into_iter()
            .filter(|finding| !self.matches(finding))
            .collect()
    }
}

fn is_glob(word: &str) -> bool {
    word.contains(['*', '?'])
}

/// The nearest functions, if a word is meant as a function's name and no function has it.
fn unknown_function(word: &str) -> Option<String> {
    let names = || {
        cutape_registry::FUNCTIONS
            .iter()
            .flat_map(|f| [f.name, f.base])
    };
    let is_unknown = !is_glob(word) && names().all(|name| name != word);
    is_unknown.then(|| did_you_mean(word, names()))
}

/// Whether a pattern matches a function's exported or its documented name.
fn names_function(pattern: &str, name: &str) -> bool {
    let base = || cutape_registry::function(name).map_or(name, |function| function.base);
    glob::matches(pattern, name) || glob::matches(pattern, base())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files() {
        assert!(Suppressions::parse("# nothing\n\n* cuLink*  # all of them\n").is_ok());
        assert_eq!(Suppressions::parse("*\nno-such-rule").unwrap_err().line, 2);
        for wrong in ["* a b", "* a nothing:b", "* kernel:a b"] {
            assert_eq!(Suppressions::parse(wrong).unwrap_err().line, 1, "{wrong}");
        }
        assert!(Suppressions::parse("* cuLaunch* kernel:saxpy* result:CUDA_SUCCESS").is_ok());
        for (line, words) in [
            (
                "memory-lek",
                "there is no rule `memory-lek`; did you mean `memory-leak`",
            ),
            (
                "* cuMemAlocc",
                "no function `cuMemAlocc`; did you mean `cuMemAlloc`",
            ),
            ("* modul:a", "did you mean `module`?"),
        ] {
            let error = Suppressions::parse(line).unwrap_err();
            assert!(error.what.contains(words), "{line}: {error}");
        }
        for (pattern, name, expected) in [
            ("cuMemAlloc", "cuMemAlloc_v2", true),
            ("cuMemAlloc_v2", "cuMemAlloc_v2", true),
            ("cuMemFree", "cuMemAlloc_v2", false),
            ("cuMem*", "cuMemFree_v2", true),
        ] {
            assert_eq!(names_function(pattern, name), expected, "{pattern} {name}");
        }
    }
}
