//! What a smaller trace must still show: the options of `minimize`.

use cutape_analyzer::suggestion::{did_you_mean, unknown_rule};
use cutape_cut::minimize::Kept;
use cutape_terminal::failure::Failure;

/// The options that say what to keep; exactly one is given.
#[derive(Clone, Debug, clap::Args)]
#[group(required = true, multiple = false)]
pub(crate) struct Keep {
    /// Keep a finding of this rule of check. A trace with findings of rules that
    /// the given trace does not break is not accepted.
    #[arg(long, value_name = "RULE", verbatim_doc_comment)]
    keep_finding: Option<String>,
    /// Keep the first divergence of a replay: the same call, the same difference.
    #[arg(long, verbatim_doc_comment)]
    keep_divergence: bool,
    /// Keep the crash of a replay: the same call, the same signal.
    ///
    /// If the replay does not crash, it re-issues also the call in which the
    /// recorded program died, as replay --reissue-fatal does.
    #[arg(long, verbatim_doc_comment)]
    keep_crash: bool,
    /// Keep the first call that returns this result, in a replay too; a name as
    /// CUDA_ERROR_INVALID_VALUE, or a number.
    #[arg(long, value_name = "CODE", verbatim_doc_comment)]
    keep_error: Option<String>,
    /// Keep what COMMAND finds: it exits with status 0 if the trace shows it.
    ///
    /// sh runs it, with the trace's path in place of {}, or at the end.
    #[arg(long, value_name = "COMMAND", verbatim_doc_comment)]
    test: Option<String>,
}

impl Keep {
    /// What is kept; the error says what is not known.
    pub(crate) fn checked(self) -> Result<Kept, Failure> {
        if let Some(rule) = self.keep_finding {
            let known = cutape_registry::rule(&rule);
            let known = known.ok_or_else(|| {
                Failure::unusable(format!("--keep-finding: {}", unknown_rule(&rule)))
            })?;
            return match known.undecidable {
                "" => Ok(Kept::Finding(rule)),
                _ => Err(Failure::unusable(format!(
                    "--keep-finding: a trace cannot decide {rule}; `cutape explain {rule}` says why"
                ))),
            };
        }
        if let Some(code) = self.keep_error {
            let named = || {
                let results = cutape_registry::enumeration("CUresult")?;
                let mut values = results.values.iter();
                values.find(|(name, _)| *name == code).map(|entry| entry.1)
            };
            let number = code.parse().ok().or_else(|| i32::try_from(named()?).ok());
            return match number.filter(|&number| number != 0) {
                Some(number) => Ok(Kept::Error(number)),
                None => {
                    let results = cutape_registry::enumeration("CUresult");
                    let names = results.iter().flat_map(|results| results.values);
                    let suggestion = did_you_mean(&code, names.map(|(name, _)| *name));
                    Err(Failure::unusable(format!(
                        "--keep-error: {} is no error of the driver; give a name as \
                         CUDA_ERROR_INVALID_VALUE, or its number{suggestion}",
                        code.escape_debug()
                    )))
                }
            };
        }
        Ok(match self.test {
            Some(command) => Kept::Test(command),
            None if self.keep_crash => Kept::Crash,
            None => Kept::Divergence,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept() {
        let none = Keep {
            keep_finding: None,
            keep_divergence: false,
            keep_crash: false,
            keep_error: None,
            test: None,
        };
        let finding = |rule: &str| Keep {
            keep_finding: Some(rule.into()),
            ..none.clone()
        };
        let error = |code: &str| Keep {
            keep_error: Some(code.into()),
            ..none.clone()
        };
        for (keep, expected) in [
            (
                finding("memory-double-free"),
                Ok("Finding(\"memory-double-free\")"),
            ),
            (
                finding("memory-double-fre"),
                Err("did you mean `memory-double-free`"),
            ),
            (error("CUDA_ERROR_ILLEGAL_ADDRESS"), Ok("Error(700)")),
            (error("700"), Ok("Error(700)")),
            (error("0"), Err("0 is no error of the driver")),
            (
                error("CUDA_ERROR_NOTHING"),
                Err("is no error of the driver"),
            ),
        ] {
            let found = keep.checked().map(|kept| format!("{kept:?}"));
            match (found, expected) {
                (Ok(found), Ok(expected)) => assert_eq!(found, expected),
                (Err(found), Err(expected)) => {
                    assert!(found.message.contains(expected), "{}", found.message);
                }
                (found, expected) => panic!("{found:?}, expected {expected:?}"),
            }
        }
    }
}
