//! One term of a call set.

use cutape_analyzer::suggestion::did_you_mean;

use super::marked::Marked;

/// What a term with a colon begins with.
const PREFIXES: [&str; 4] = ["kernel", "range", "mark", "thread"];

/// Some of the calls of a set.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Term {
    /// First call, and the one after the last.
    Range(u64, u64),
    /// Glob for the exported or the documented name.
    Function(String),
    /// Glob for a kernel's name: as in the image, or demangled with or without parameters.
    Kernel(String),
    /// Ordinal.
    Thread(u32),
    /// What markers of the trace decide.
    Marked(Marked),
}

impl Term {
    /// Parses a term; the error says what is wrong.
    pub(super) fn parse(word: &str) -> Result<Self, String> {
        let shown = word.escape_debug();
        if word.is_empty() {
            return Err("an empty term".into());
        }
        if let Some(name) = word.strip_prefix("kernel:") {
            return match name {
                "" => Err("no name after `kernel:`".into()),
                _ => Ok(Term::Kernel(name.to_owned())),
            };
        }
        if let Some(marked) = Marked::parse(word) {
            return marked.map(Term::Marked);
        }
        if let Some(ordinal) = word.strip_prefix("thread:") {
            let ordinal = ordinal
                .parse()
                .map_err(|_| format!("`{shown}`: no thread number after `thread:`"))?;
            return Ok(Term::Thread(ordinal));
        }
        if let Some((from, to)) = word.split_once("..") {
            return Self::parse_range(from, to).map_err(|what| format!("`{shown}`: {what}"));
        }
        if word.starts_with(|first: char| first.is_ascii_digit()) {
            let index = number(word)?;
            let behind = index
                .checked_add(1)
                .ok_or_else(|| format!("`{shown}` is too large"))?;
            return Ok(Term::Range(index, behind));
        }
        let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '*' | '?');
        if let Some((prefix, _)) = word.split_once(':') {
            let suggestion = did_you_mean(prefix, PREFIXES);
            return Err(format!(
                "`{shown}`: no term begins with `{}:`{suggestion}",
                prefix.escape_debug()
            ));
        }
        match word.chars().find(|&c| !allowed(c)) {
            Some(other) => Err(format!("`{shown}`: no function name contains {other:?}")),
            None => Ok(Term::Function(word.to_owned())),
        }
    }

    fn parse_range(from: &str, to: &str) -> Result<Self, String> {
        let first = if from.is_empty() { 0 } else { number(from)? };
        let behind = match to.strip_prefix('=') {
            Some(last) => number(last)?.saturating_add(1),
            None if to.is_empty() => u64::MAX,
            None => number(to)?,
        };
        if first >= behind {
            return Err("the range is empty".into());
        }
        Ok(Term::Range(first, behind))
    }
}

fn number(word: &str) -> Result<u64, String> {
    // `parse` alone would accept a sign.
    Some(word)
        .filter(|word| word.bytes().all(|byte| byte.is_ascii_digit()))
        .and_then(|word| word.parse().ok())
        .ok_or_else(|| format!("`{}` is not a call number", word.escape_debug()))
}
