//! One term of a call set.

use std::cell::RefCell;
use std::collections::HashMap;
use std::hash::Hash;

use cutape_analyzer::suggestion::did_you_mean;
use cutape_report::CallKind;

use super::expression::Word;
use super::marked::{Marked, Moments};
use super::number::{is_number, number, too_large};

/// What a term with a colon begins with.
const PREFIXES: [&str; 11] = [
    "call", "function", "kernel", "range", "mark", "thread", "result", "kind", "object", "memory",
    "stack",
];

/// Which calls a term names.
#[derive(Debug, PartialEq)]
pub(super) enum Term {
    /// First call, and the one after the last.
    Range(u64, u64),
    /// Glob for the exported or the documented name.
    Function(String),
    /// Glob for a kernel's name: as in the image, or demangled with or without parameters.
    Kernel(String, Verdicts<String>),
    /// In lower case: a part of the name of the function, the kernel or the result.
    Text(String, Verdicts<String>),
    /// Ordinal.
    Thread(u32),
    /// What markers of the trace decide, and the moments, once the trace is known.
    Marked(Marked, Moments),
    /// An error was returned, or the call did not return.
    Failed,
    /// Glob for the name of the result.
    Result(String),
    /// Takes more than that many nanoseconds.
    Longer(f64),
    /// Takes less.
    Shorter(f64),
    Kind(CallKind),
    /// Glob for the label of an object that the call names.
    Object(String),
    /// An address in memory that the call names.
    Memory(u64),
    /// Glob for a function, a file or `FILE:LINE` of the call stack.
    Stack(String, Verdicts<u64>),
}

/// What is known about names or stacks: to demangle or to resolve at every call would dominate the
/// time (assumed).
#[derive(Debug)]
pub(super) struct Verdicts<K>(RefCell<HashMap<K, bool>>);

impl<K> Default for Verdicts<K> {
    fn default() -> Self {
        Self(RefCell::default())
    }
}

impl<K> PartialEq for Verdicts<K> {
    /// They follow from the term.
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl<K: Eq + Hash> Verdicts<K> {
    pub(super) fn of<Q>(&self, key: &Q, judge: impl FnOnce() -> bool) -> bool
    where
        K: std::borrow::Borrow<Q>,
        Q: Eq + Hash + ToOwned<Owned = K> + ?Sized,
    {
        if let Some(&known) = self.0.borrow().get(key) {
            return known;
        }
        let verdict = judge();
        self.0.borrow_mut().insert(key.to_owned(), verdict);
        verdict
    }
}

impl Term {
    /// A part of a name, in upper or lower case.
    pub(super) fn of_text(text: &str) -> Self {
        Self::Text(text.to_lowercase(), Verdicts::default())
    }

    /// Parses a term; the error says what is wrong.
    pub(super) fn parse(word: &Word) -> Result<Self, String> {
        let text = word.text.as_str();
        if word.is_quoted {
            return match text {
                "" => Err("an empty term".into()),
                _ => Ok(Self::of_text(text)),
            };
        }
        if let Some(marked) = Marked::parse(text) {
            return Ok(Self::Marked(marked?, Moments::default()));
        }
        if let Some((prefix, value)) = text.split_once(':') {
            return Self::parse_prefixed(text, prefix, value);
        }
        if text.contains("..") || text.starts_with(|first: char| first.is_ascii_digit()) {
            return Self::parse_number(text);
        }
        if let Some(time) = text.strip_prefix('>') {
            return nanoseconds(time, text).map(Self::Longer);
        }
        if let Some(time) = text.strip_prefix('<') {
            return nanoseconds(time, text).map(Self::Shorter);
        }
        if text == "failed" {
            return Ok(Self::Failed);
        }
        match is_function(text) {
            true => Self::parse_function(text, text),
            false => Ok(Self::of_text(text)),
        }
    }

    /// Parses a number of a call, or a range of numbers.
    pub(super) fn parse_number(text: &str) -> Result<Self, String> {
        let shown = text.escape_debug();
        if let Some((from, to)) = text.split_once("..") {
            return Self::parse_range(from, to).map_err(|what| format!("`{shown}`: {what}"));
        }
        let index = number(text)?;
        Ok(Self::Range(index, index + 1))
    }

    fn parse_prefixed(text: &str, prefix: &str, value: &str) -> Result<Self, String> {
        let shown = text.escape_debug();
        if value.is_empty() && PREFIXES.contains(&prefix) {
            let what = if prefix == "thread" {
                "thread number"
            } else {
                "name"
            };
            return Err(format!("`{shown}`: no {what} after `{prefix}:`"));
        }
        let glob = value.to_owned();
        match prefix {
            "call" => Self::parse_number(value),
            "function" => Self::parse_function(value, text),
            "kernel" => Ok(Self::Kernel(glob, Verdicts::default())),
            "result" => Ok(Self::Result(glob)),
            "object" if value.contains('#') => Ok(Self::Object(glob)),
            "object" => Err(format!(
                "`{shown}`: give the label of an object as `dump` shows it, e.g. object:module#2"
            )),
            "stack" => Ok(Self::Stack(glob, Verdicts::default())),
            "thread" if !is_number(value) => {
                Err(format!("`{shown}`: no thread number after `thread:`"))
            }
            "thread" => value
                .parse()
                .map(Self::Thread)
                .map_err(|_| too_large(value)),
            "kind" => {
                let kind = CallKind::ALL.into_iter().find(|kind| kind.key() == value);
                let names = CallKind::ALL.map(CallKind::key).join(", ");
                kind.map(Self::Kind)
                    .ok_or_else(|| format!("`{shown}`: no such kind; the kinds are {names}"))
            }
            "memory" => {
                let is_hexadecimal = |digits: &&str| digits.bytes().all(|b| b.is_ascii_hexdigit());
                let digits = value.strip_prefix("0x").filter(is_hexadecimal);
                let address = digits.and_then(|digits| u64::from_str_radix(digits, 16).ok());
                address.map(Self::Memory).ok_or_else(|| {
                    format!("`{shown}`: give an address, e.g. memory:0x7f5e04000000")
                })
            }
            "stream" => Err(format!(
                "`{shown}`: only the page of `cutape report` numbers streams so; write \
                 object:stream#2, as `dump` shows it"
            )),
            other => {
                let suggestion = did_you_mean(other, PREFIXES);
                let hint = match suggestion.is_empty() {
                    true => "; a name with a colon needs quotes",
                    false => &suggestion,
                };
                let other = other.escape_debug();
                Err(format!("`{shown}`: no term begins with `{other}:`{hint}"))
            }
        }
    }

    fn parse_function(name: &str, text: &str) -> Result<Self, String> {
        let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '*' | '?');
        match name.chars().find(|&c| !allowed(c)) {
            Some(other) => Err(format!(
                "`{}`: no function name contains {other:?}",
                text.escape_debug()
            )),
            None => Ok(Self::Function(name.to_owned())),
        }
    }

    fn parse_range(from: &str, to: &str) -> Result<Self, String> {
        let first = if from.is_empty() { 0 } else { number(from)? };
        let behind = match to.strip_prefix('=') {
            Some(last) => number(last)? + 1,
            None if to.is_empty() => u64::MAX,
            None => number(to)?,
        };
        if first >= behind {
            return Err("the range is empty".into());
        }
        Ok(Self::Range(first, behind))
    }
}

/// Whether a word is a function's name or a pattern of names; others are a part of a name.
fn is_function(word: &str) -> bool {
    let upper = |rest: &str| rest.starts_with(|next: char| next.is_ascii_uppercase());
    word.contains(['*', '?']) || word.strip_prefix("cu").is_some_and(upper)
}

/// A time such as `1.5ms`.
fn nanoseconds(time: &str, text: &str) -> Result<f64, String> {
    let unit = time.find(|c: char| !c.is_ascii_digit() && c != '.');
    let (amount, unit) = time.split_at(unit.unwrap_or(time.len()));
    let scale = match unit {
        "ns" => Some(1.0),
        "us" | "µs" => Some(1e3),
        "ms" => Some(1e6),
        "s" => Some(1e9),
        _ => None,
    };
    let amount = Some(amount).filter(|text| text.starts_with(|c: char| c.is_ascii_digit()));
    let amount = amount.and_then(|text| text.parse::<f64>().ok());
    amount
        .zip(scale)
        .map(|(amount, scale)| amount * scale)
        .ok_or_else(|| {
            format!(
                "`{}`: give a time with its unit, ns, us, ms or s, e.g. >1.5ms",
                text.escape_debug()
            )
        })
}
