//! Which findings `check` was asked for: `--rules` and `--calls`.

use std::collections::BTreeSet;

use cutape_analyzer::glob::matches;
use cutape_analyzer::suggestion::did_you_mean;
use cutape_analyzer::{Finding, RecordedProcess, Suppressions};
use cutape_format::Trace;
use cutape_registry::RULES;

use cutape_calls::CallSet;
use cutape_calls::expression::{Expression, Word};
use cutape_terminal::failure::Failure;

/// The value of `--rules`: ids of rules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Rules(BTreeSet<&'static str>);

/// The chosen rules and calls.
#[derive(Default)]
pub(super) struct Selection {
    /// `None` without `--rules`.
    rules: Option<Rules>,
    /// The value of `--calls`.
    set: Option<String>,
    /// Of each trace so far.
    calls: Vec<(Option<RecordedProcess>, BTreeSet<u64>)>,
    /// Why a trace has no such call.
    unmatched: Option<Failure>,
}

impl Selection {
    /// From the values of the options.
    pub(super) fn new(rules: Option<&Rules>, calls: Option<&str>) -> Result<Self, Failure> {
        if let Some(text) = calls {
            CallSet::parse(text).map_err(|what| Failure::unusable(format!("--calls: {what}")))?;
        }
        Ok(Self {
            rules: rules.cloned(),
            set: calls.map(str::to_owned),
            ..Self::default()
        })
    }

    /// Finds the calls of a trace; `process` is its name among those that are checked together.
    pub(super) fn choose_calls(&mut self, trace: &Trace, process: Option<RecordedProcess>) {
        let Some(text) = &self.set else { return };
        let calls = CallSet::for_trace(text, trace).and_then(|set| set.some_calls(text, trace));
        match calls {
            Ok(calls) => self.calls.push((process, calls.into_iter().collect())),
            Err(error) => self.unmatched = Some(error.into()),
        }
    }

    /// Fails if calls were to be chosen and no trace has such calls.
    pub(super) fn expect_calls(&mut self) -> Result<(), Failure> {
        match self.unmatched.take().filter(|_| self.calls.is_empty()) {
            Some(failure) => Err(failure),
            None => Ok(()),
        }
    }

    /// Whether a finding is of these rules and calls: one without a call of its own, if the call
    /// that created one of its objects is chosen.
    pub(super) fn contains(&self, finding: &Finding) -> bool {
        let rules = self.rules.as_ref();
        rules.is_none_or(|rules| rules.contain(finding.rule))
            && (self.set.is_none() || self.has_call_of(finding))
    }

    fn has_call_of(&self, finding: &Finding) -> bool {
        let is_chosen = |process: &Option<RecordedProcess>, call: u64| {
            let mut traces = self.calls.iter();
            traces.any(|(of, calls)| of == process && calls.contains(&call))
        };
        match &finding.call {
            Some(call) => is_chosen(&call.process, call.index),
            None => finding
                .objects
                .iter()
                .any(|object| is_chosen(&object.process, object.created_call)),
        }
    }
}

impl Rules {
    /// Whether this rule is one of them.
    pub(crate) fn contain(&self, rule: &str) -> bool {
        self.0.contains(rule)
    }

    /// Parses a list in the language of call sets; its terms are ids and patterns of ids.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let parsed = Expression::parse(text, &mut |word: &Word| {
            let glob = &word.text;
            match RULES.iter().any(|rule| matches(glob, rule.id)) {
                true => Ok(glob.clone()),
                false => Err(unknown(glob)),
            }
        })?;
        let ids = RULES.iter().map(|rule| rule.id);
        let chosen: BTreeSet<&str> = ids
            .filter(|id| parsed.holds(&mut |glob| matches(glob, id)))
            .collect();
        let has_negation = parsed.terms().iter().any(|(_, is_negated)| *is_negated);
        match chosen.len() {
            0 => Err("no rule is left".into()),
            // A comma joins, so `-link-*,-memory-*` is every rule.
            count if count == RULES.len() && has_negation => Err(
                "no rule is left out; leave out several with a space, e.g. `-link-* -memory-*`"
                    .into(),
            ),
            _ => Ok(Self(chosen)),
        }
    }
}

/// Parses the value of `--allow`.
pub(super) fn allowed(line: &str) -> Result<Suppressions, String> {
    Suppressions::parse(line).map_err(|error| error.what)
}

/// The message about a word that is no rule and no pattern of rules.
fn unknown(glob: &str) -> String {
    let areas: BTreeSet<String> = RULES
        .iter()
        .filter_map(|rule| Some(format!("{}-*", rule.id.split_once('-')?.0)))
        .collect();
    let names = RULES.iter().map(|rule| rule.id);
    let names = names.chain(areas.iter().map(String::as_str));
    let suggestion = did_you_mean(glob, names);
    let suggestion = match suggestion.is_empty() {
        true => "; `cutape explain` lists all rules",
        false => &suggestion,
    };
    format!("there is no rule `{}`{suggestion}", glob.escape_debug())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_chosen() {
        let all = RULES.len();
        let of = |glob: &str| RULES.iter().filter(|rule| matches(glob, rule.id)).count();
        let (links, leaks) = (of("link-*"), of("*-leak"));
        assert!(links > 1 && leaks > 1 && of("link-*-leak") == 1);
        for (text, count) in [
            ("memory-leak", 1),
            ("link-*", links),
            ("link-*,*-leak", links + leaks - 1),
            ("link-* *-leak", 1),
            ("link-* -link-state-leak", links - 1),
            ("not link-*", all - links),
            ("-link-* -*-leak", all - links - leaks + 1),
            ("*", all),
        ] {
            assert_eq!(
                Rules::parse(text).map(|rules| rules.0.len()),
                Ok(count),
                "{text}"
            );
        }
        for (text, what) in [
            ("", "an empty term"),
            (
                "link-*,memory-lek",
                "no rule `memory-lek`; did you mean `memory-leak`",
            ),
            ("lnk-*", "no rule `lnk-*`; did you mean `link-*`"),
            ("link-* memory-*", "no rule is left"),
            ("-link-*,-memory-*", "no rule is left out"),
        ] {
            let error = Rules::parse(text).unwrap_err();
            assert!(error.contains(what), "{text}: {error}");
        }
    }
}
