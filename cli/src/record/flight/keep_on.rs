//! When a flight recorder keeps the last calls.

use std::str::FromStr;
use std::time::Duration;

use cutape_analyzer::Severity;
use cutape_recording::UserSignal;
use cutape_registry::{enumeration, is_sticky, result_name};
use cutape_render::quantity::parse_time;

use crate::check::Rules;

/// Something at which the last calls are kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum KeepOn {
    /// A process of the program is killed by a signal, or exits with another status than 0.
    Crash,
    /// A call returns this error; without one, an error that all later calls return.
    Error(Option<i32>),
    /// The analyzer finds a mistake that is as severe, or worse.
    Finding(Severity),
    /// It finds a mistake of these rules.
    FindingOf(Rules),
    /// A mark with this text, or any.
    Mark(Option<String>),
    /// `record` gets this signal.
    Signal(UserSignal),
    /// No call is entered and none returns for so long.
    Stall(Duration),
}

impl FromStr for KeepOn {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (word, value) = match text.split_once(':') {
            Some((word, value)) => (word, Some(value)),
            None => (text, None),
        };
        match (word, value) {
            ("crash", None) => Ok(Self::Crash),
            ("signal", None) => Ok(Self::Signal(UserSignal::USR2)),
            ("signal", Some(name)) => name.parse().map(Self::Signal),
            ("mark", text) => Ok(Self::Mark(text.map(str::to_owned))),
            ("error", None) => Ok(Self::Error(None)),
            ("error", Some(name)) => match result_code(name) {
                Some(code) if code != 0 => Ok(Self::Error(Some(code))),
                _ => Err(format!(
                    "{name} is no error such as CUDA_ERROR_OUT_OF_MEMORY or 2"
                )),
            },
            ("finding", None) => Ok(Self::Finding(Severity::Warning)),
            ("finding", Some(which)) => match Severity::from_word(which) {
                Some(least) => Ok(Self::Finding(least)),
                None => Rules::parse(which).map(Self::FindingOf),
            },
            ("stall", Some(time)) => match parse_time(time) {
                Some(time) => Ok(Self::Stall(time)),
                None => Err(format!("{time} is not a time such as 30s")),
            },
            _ => Err(
                "not crash, error, error:NAME, finding, finding:RULE, finding:SEVERITY, mark, \
                 mark:TEXT, signal, signal:NAME or stall:TIME"
                    .to_owned(),
            ),
        }
    }
}

/// The number of an error, by its name or itself.
fn result_code(text: &str) -> Option<i32> {
    if let Ok(code) = text.parse() {
        return result_name(code).map(|_| code);
    }
    let results = enumeration("CUresult")?;
    let (_, code) = results.values.iter().find(|(name, _)| *name == text)?;
    i32::try_from(*code).ok()
}

impl KeepOn {
    /// Whether it is about a call that returned this.
    pub(super) fn is_error(&self, result: i32) -> bool {
        match self {
            Self::Error(Some(code)) => *code == result,
            Self::Error(None) => is_sticky(result),
            _ => false,
        }
    }

    /// Whether it is about findings.
    pub(super) fn needs_check(&self) -> bool {
        matches!(self, Self::Finding(_) | Self::FindingOf(_))
    }

    /// Whether it is about a finding of that rule and severity.
    pub(super) fn is_finding(&self, rule: &str, severity: Severity) -> bool {
        match self {
            Self::Finding(least) => severity >= *least,
            Self::FindingOf(rules) => rules.contain(rule),
            _ => false,
        }
    }

    /// Whether it is about a mark of that text.
    pub(super) fn is_mark(&self, text: &str) -> bool {
        match self {
            Self::Mark(wanted) => wanted.as_deref().is_none_or(|wanted| wanted == text),
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_keeps() {
        let keeps = |text: &str| text.parse::<KeepOn>();
        assert_eq!(keeps("crash"), Ok(KeepOn::Crash));
        for text in ["signal", "signal:USR2", "signal:SIGUSR2"] {
            assert_eq!(keeps(text), Ok(KeepOn::Signal(UserSignal::USR2)), "{text}");
        }
        assert!(keeps("error").unwrap().is_error(700) && !keeps("error").unwrap().is_error(2));
        for text in ["error:CUDA_ERROR_OUT_OF_MEMORY", "error:2"] {
            let one = keeps(text).unwrap();
            assert!(
                one.is_error(2) && !one.is_error(700) && !one.is_error(0),
                "{text}"
            );
        }
        assert!(keeps("mark").unwrap().is_mark("any"));
        let one = keeps("mark:step 7:end").unwrap();
        assert!(one.is_mark("step 7:end") && !one.is_mark("step 7"));
        for (text, error, warning, advice) in [
            ("finding", true, true, false),
            ("finding:error", true, false, false),
            ("finding:warning", true, true, false),
            ("finding:advice", true, true, true),
            ("finding:memory-double-free", false, true, false),
            ("finding:memory-*", true, true, false),
            ("mark", false, false, false),
        ] {
            let one = keeps(text).unwrap();
            let found = [
                one.is_finding("memory-leak", Severity::Error),
                one.is_finding("memory-double-free", Severity::Warning),
                one.is_finding("performance-query-repeated", Severity::Advice),
            ];
            assert_eq!(found, [error, warning, advice], "{text}");
            assert_eq!(one.needs_check(), text != "mark", "{text}");
        }
        assert_eq!(
            keeps("stall:30s"),
            Ok(KeepOn::Stall(Duration::from_secs(30)))
        );
        for text in [
            "",
            "crash:1",
            "error:",
            "error:0",
            "error:CUDA_SUCCESS",
            "finding:",
            "finding:no-such-rule",
            "signal:",
            "signal:KILL",
            "stall",
            "stall:30",
            "oom",
        ] {
            assert!(keeps(text).is_err(), "{text}");
        }
    }
}
