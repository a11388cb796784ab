//! Findings of an earlier run, to be left out.

use std::collections::{HashMap, HashSet};

use serde_json::Value;

use crate::finding::Finding;

/// Findings of an earlier run. A finding with the same key is known. Edits change the lines of
/// keys: of findings with the same names, as many are known as the earlier run had.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Baseline {
    /// By the names of their keys.
    known: HashMap<String, Vec<Known>>,
    /// Findings of a file without keys, which cutape 0.1 wrote: rule, function, caller.
    without_key: HashSet<(String, String, String)>,
    /// Findings whose names are known and whose lines are not.
    undecided: Vec<Finding>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Known {
    lines: Vec<u64>,
    /// This run has it as well.
    is_found: bool,
}

impl Baseline {
    /// Reads findings as `output::json` writes them: an array, or an object with an array
    /// `findings`.
    pub fn parse(text: &str) -> Result<Self, String> {
        let value: Value =
            serde_json::from_str(text).map_err(|error| format!("not JSON: {error}"))?;
        let list = value
            .as_array()
            .or_else(|| value.get("findings")?.as_array());
        let list = list.ok_or(
            "no array of findings in it; write the file with `cutape check --write-baseline`",
        )?;
        let mut baseline = Self::default();
        for (number, finding) in list.iter().enumerate() {
            let rule = finding["rule"].as_str();
            let rule = rule.ok_or_else(|| format!("finding {number} has no rule"))?;
            let key = &finding["key"];
            if let (Some(names), Some(lines)) = (key["names"].as_str(), key["lines"].as_array()) {
                let lines: Vec<u64> = lines.iter().filter_map(Value::as_u64).collect();
                let known = baseline.known.entry(names.to_owned()).or_default();
                if known.iter().all(|known| known.lines != lines) {
                    known.push(Known {
                        lines,
                        is_found: false,
                    });
                }
            } else {
                let word = |name: &str| finding["call"][name].as_str().unwrap_or_default();
                baseline.without_key.insert((
                    rule.to_owned(),
                    word("function").to_owned(),
                    caller(word("caller")).to_owned(),
                ));
            }
        }
        Ok(baseline)
    }

    /// Whether the file was written before findings had keys, so that it hides every finding of a
    /// rule at a call that it names.
    pub fn is_without_keys(&self) -> bool {
        !self.without_key.is_empty()
    }

    /// The finding if it is new; one of which only the run's end tells is kept for
    /// [`Baseline::settle`]. The second value says that it is known.
    pub fn judge(&mut self, finding: Finding) -> (Option<Finding>, bool) {
        let call = finding.call.as_ref();
        let (function, place) = call.map_or(("", ""), |call| (&*call.function, &*call.caller));
        let old = (
            finding.rule.to_owned(),
            function.to_owned(),
            caller(place).to_owned(),
        );
        if self.without_key.contains(&old) {
            return (None, true);
        }
        let Some(known) = self.known.get_mut(&finding.key.names) else {
            return (Some(finding), false);
        };
        let mut known = known.iter_mut();
        if let Some(known) = known.find(|known| known.lines == finding.key.lines) {
            known.is_found = true;
            return (None, true);
        }
        self.undecided.push(finding);
        (None, false)
    }

    /// At the end of a trace: the findings that are new after all, and how many are known ones
    /// whose lines have changed.
    pub fn settle(&mut self) -> (Vec<Finding>, u64) {
        let mut undecided = std::mem::take(&mut self.undecided);
        let (mut new, mut moved) = (Vec::new(), 0);
        while let Some(first) = undecided.first() {
            let names = first.key.names.clone();
            let (same, others) = undecided
                .into_iter()
                .partition(|finding| finding.key.names == names);
            undecided = others;
            let known = self.known.entry(names).or_default();
            for finding in by_shift(known, same) {
                if known.iter().any(|known| known.lines == finding.key.lines) {
                    moved += 1;
                } else if let Some(gone) = known.iter_mut().find(|known| !known.is_found) {
                    gone.lines.clone_from(&finding.key.lines);
                    gone.is_found = true;
                    moved += 1;
                } else {
                    new.push(finding);
                }
            }
        }
        new.sort_by_key(|finding| finding.call.as_ref().map(|call| call.index));
        (new, moved)
    }

    /// Forgets the findings about which is not decided.
    pub fn discard(&mut self) {
        self.undecided.clear();
    }
}

/// Findings with the same names: first those whose lines are all known ones that moved by the same
/// distance, as after an edit above them.
fn by_shift(known: &[Known], mut found: Vec<Finding>) -> Vec<Finding> {
    let first = |lines: &[u64]| lines.first().map_or(0, |&line| line as i64);
    let gone: Vec<i64> = known
        .iter()
        .filter(|known| !known.is_found)
        .map(|known| first(&known.lines))
        .collect();
    let lines: Vec<i64> = found.iter().map(|found| first(&found.key.lines)).collect();
    let fits = |shift: i64| {
        let moved = lines.iter().filter(|line| gone.contains(&(*line - shift)));
        moved.count()
    };
    let shifts = lines
        .iter()
        .flat_map(|line| gone.iter().map(move |gone| line - gone));
    // The first of the best.
    let best = shifts.rev().max_by_key(|&shift| fits(shift)).unwrap_or(0);
    found.sort_by_key(|found| !gone.contains(&(first(&found.key.lines) - best)));
    found
}

/// A caller. An address without a symbol differs from run to run and is ignored.
fn caller(caller: &str) -> &str {
    if caller.starts_with("0x") { "" } else { caller }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finding::{Class, Confidence, FindingKey, Severity};

    fn finding(names: &str, lines: &[u64]) -> Finding {
        Finding {
            rule: "memory-leak",
            class: Class::Misuse,
            key: FindingKey {
                names: names.to_owned(),
                lines: lines.to_vec(),
            },
            repeats: 0,
            severity: Severity::Error,
            confidence: Confidence::Certain,
            title: String::new(),
            call: None,
            message: String::new(),
            related: Vec::new(),
            objects: Vec::new(),
            chain: Vec::new(),
            advice: String::new(),
            manual: String::new(),
        }
    }

    #[test]
    fn files() {
        for wrong in ["{}", "[{}]", "not json"] {
            assert!(Baseline::parse(wrong).is_err(), "{wrong}");
        }
        let old = r#"[{"rule":"memory-leak","call":null}]"#;
        let mut old = Baseline::parse(old).unwrap();
        assert!(old.is_without_keys());
        assert_eq!(old.judge(finding("any", &[])), (None, true));
    }

    /// What is in the file, what is found, and the lines of what is new.
    #[test]
    fn lines_may_change_and_a_second_finding_is_new() {
        for (before, after, expected) in [
            (&[10, 20][..], &[10, 20][..], &[][..]),
            (&[10, 20], &[13, 23], &[]),
            (&[10], &[10, 20], &[20]),
            (&[10], &[5, 10], &[5]),
            // All moved by 3, and the new one is before them.
            (&[10, 20], &[11, 13, 23], &[11]),
            (&[10, 20], &[20, 21, 22], &[22]),
            (&[10, 20], &[10], &[]),
            (&[], &[10], &[10]),
        ] {
            let list: Vec<_> = before
                .iter()
                .map(|line| finding("f", &[*line, 99]))
                .collect();
            let text = serde_json::to_string(&list).unwrap();
            let mut baseline = Baseline::parse(&text).unwrap();
            let mut new = Vec::new();
            for line in after {
                new.extend(baseline.judge(finding("f", &[*line, 99])).0);
            }
            new.extend(baseline.settle().0);
            let new: Vec<u64> = new.iter().map(|finding| finding.key.lines[0]).collect();
            assert_eq!(new, expected, "{before:?} {after:?}");
        }
    }
}
