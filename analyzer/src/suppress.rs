//! Findings to leave out: suppression files and baselines.

use std::collections::HashSet;
use std::fmt;

use crate::finding::Finding;
use crate::glob;

/// Findings to leave out, one pattern a line: `rule [function] [# comment]`, each a
/// [glob](crate::glob).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Suppressions {
    patterns: Vec<(String, Option<String>)>,
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
        let mut patterns = Vec::new();
        for (number, line) in text.lines().enumerate() {
            let words = line.split('#').next().unwrap_or_default();
            let mut words = words.split_whitespace();
            let Some(rule) = words.next() else { continue };
            let function = words.next().map(str::to_owned);
            let error = |what: String| SuppressionError {
                line: number + 1,
                what,
            };
            if let Some(extra) = words.next() {
                return Err(error(format!(
                    "unexpected word \"{extra}\": write `rule [function] [# comment]`"
                )));
            }
            if !rule.contains(['*', '?']) && cutape_registry::rule(rule).is_none() {
                return Err(error(format!("there is no rule \"{rule}\"")));
            }
            patterns.push((rule.to_owned(), function));
        }
        Ok(Self { patterns })
    }

    /// True if the finding is to be left out.
    pub fn matches(&self, finding: &Finding) -> bool {
        let function = finding
            .call
            .as_ref()
            .map_or("", |call| call.function.as_str());
        self.patterns.iter().any(|(rule, pattern)| {
            glob::matches(rule, finding.rule)
                && pattern
                    .as_ref()
                    .is_none_or(|pattern| glob::matches(pattern, function))
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

/// Findings of an earlier run, to be left out: by rule, function and place in the program.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Baseline {
    known: HashSet<(String, String, String)>,
}

impl Baseline {
    /// Reads findings as `output::json` writes them: an array, or an object with an array
    /// `findings`.
    pub fn parse(text: &str) -> Result<Self, String> {
        let value: serde_json::Value =
            serde_json::from_str(text).map_err(|error| format!("not JSON: {error}"))?;
        let list = value
            .as_array()
            .or_else(|| value.get("findings")?.as_array());
        let list = list.ok_or("no array of findings in it")?;
        let mut known = HashSet::new();
        for (number, finding) in list.iter().enumerate() {
            let rule = finding.get("rule").and_then(|rule| rule.as_str());
            let rule = rule.ok_or_else(|| format!("finding {number} has no rule"))?;
            let word = |name: &str| {
                let call = finding.get("call");
                let word = call
                    .and_then(|call| call.get(name))
                    .and_then(|word| word.as_str());
                word.unwrap_or_default().to_owned()
            };
            known.insert((
                rule.to_owned(),
                word("function"),
                place(&word("caller")).to_owned(),
            ));
        }
        Ok(Self { known })
    }

    /// True if the finding is known.
    pub fn contains(&self, finding: &Finding) -> bool {
        let (function, caller) = finding.call.as_ref().map_or(("", ""), |call| {
            (call.function.as_str(), place(&call.caller))
        });
        self.known.contains(&(
            finding.rule.to_owned(),
            function.to_owned(),
            caller.to_owned(),
        ))
    }

    /// The findings that are not known.
    pub fn filter(&self, findings: Vec<Finding>) -> Vec<Finding> {
        findings
            .into_iter()
            .filter(|finding| !self.contains(finding))
            .collect()
    }
}

/// The place of a caller. An address without a symbol differs from run to run and is ignored.
fn place(caller: &str) -> &str {
    if caller.starts_with("0x") { "" } else { caller }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files() {
        assert!(Suppressions::parse("# nothing\n\n* cuLink*  # all of them\n").is_ok());
        assert_eq!(Suppressions::parse("*\nno-such-rule").unwrap_err().line, 2);
        assert_eq!(Suppressions::parse("* a b").unwrap_err().line, 1);
        assert!(Baseline::parse("{}").is_err());
        assert!(Baseline::parse("[{}]").is_err());
        assert!(Baseline::parse("not json").is_err());
    }
}
