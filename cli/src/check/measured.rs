//! `check --measure`: what following advice would gain, by `what-if`.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use cutape_analyzer::Finding;
use cutape_render::quantity;
use cutape_terminal::failure::Failure;
use cutape_terminal::library;
use cutape_terminal::private_folder::PrivateFolder;
use serde::Deserialize;
use serde::de::IgnoredAny;

use crate::verb_process::{self, Limit};

/// Rules about performance, the edit of `what-if` that does what they advise, and the calls that it
/// is for: those of the finding's function, or a set.
const EDITS: [(&str, &str, Option<&str>); 4] = [
    ("performance-sync-in-hot-loop", "drop-sync", None),
    ("performance-pageable-copy", "pin-memory", None),
    (
        "performance-tiny-launches",
        "graph",
        Some("kind:launch,kind:fill"),
    ),
    ("performance-default-stream-serialization", "overlap", None),
];

/// The longest that one measurement may take.
const LIMIT: Limit = Limit {
    time: Duration::from_secs(600),
    option: "",
};

/// What `what-if --format json` says, as far as it is told here.
#[derive(Deserialize)]
struct Tried {
    edits: Vec<Edit>,
    refused: Option<String>,
    conditions: Vec<String>,
    measured: Option<Measured>,
    compared: u64,
    differing: Vec<IgnoredAny>,
}

#[derive(Deserialize)]
struct Edit {
    what: String,
}

#[derive(Deserialize)]
struct Measured {
    recorded_ns: Time,
    edited_ns: Time,
    gain: f64,
}

#[derive(Deserialize)]
struct Time {
    median: f64,
}

/// Measures what findings advise.
#[derive(Clone, Debug)]
pub(crate) struct Measure {
    /// The driver to call; this machine's if `None`.
    pub(crate) driver: Option<PathBuf>,
}

impl Measure {
    /// Adds what was measured to the advice of the findings of a trace that an edit answers.
    ///
    /// # Errors
    /// If no process can be started.
    pub(super) fn add_to<'f>(
        &self,
        findings: impl Iterator<Item = &'f mut Finding>,
        trace: &Path,
    ) -> Result<(), Failure> {
        let folder = PrivateFolder::create("measure")?;
        for finding in findings {
            let known = EDITS.iter().find(|known| known.0 == finding.rule);
            let Some((&(_, edit, set), call)) = known.zip(finding.call.as_ref()) else {
                continue;
            };
            let set = set.unwrap_or(&call.function);
            let option = format!("--{edit}");
            let said = self.said(trace, &option, set, &folder)?;
            let shown = trace.display();
            finding.advice += &format!(" {said} (cutape what-if {shown} {option} {set})");
        }
        Ok(())
    }

    /// What an edit gains, as a sentence.
    fn said(
        &self,
        trace: &Path,
        option: &str,
        set: &str,
        folder: &PrivateFolder,
    ) -> Result<String, Failure> {
        let mut words: Vec<OsString> = ["what-if", option, set].map(OsString::from).into();
        words.extend(["--profile", "none", "--format", "json"].map(OsString::from));
        if let Some(driver) = &self.driver {
            words.extend(["--driver".into(), driver.into()]);
        }
        words.push(trace.into());
        let program = library::own_path()?;
        let ended = verb_process::run::<Tried>(&program, &words, "--output", folder, LIMIT)?;
        Ok(match ended.report {
            Err(why) => format!("Not measured: {why}."),
            Ok(tried) => tried.said(),
        })
    }
}

impl Tried {
    fn said(&self) -> String {
        let what = self.edits.iter().map(|edit| edit.what.as_str());
        let what = what.collect::<Vec<_>>().join(", ");
        let Some(measured) = &self.measured else {
            let why = self.refused.as_deref().unwrap_or("nothing was measured");
            return format!("Not measured: not possible here: {why}.");
        };
        let time = |time: &Time| quantity::time(time.median.max(0.0) as u64);
        let times = format!(
            "{} -> {} ({:+.1} %)",
            time(&measured.recorded_ns),
            time(&measured.edited_ns),
            -100.0 * measured.gain
        );
        let bytes = match (self.differing.len(), self.compared) {
            (0, 0) => ", without bytes to compare.".to_owned(),
            (0, _) => ", the same bytes.".to_owned(),
            (differing, compared) => format!(
                ", but {differing} of {compared} memories and copies then hold other bytes: the \
                 program needs more than that."
            ),
        };
        let conditions = self.conditions.iter();
        let conditions: String = conditions
            .map(|one| format!(" Condition: {one}."))
            .collect();
        format!("Measured: {what}: {times}{bytes}{conditions}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn advice_says_no_more_than_was_measured() {
        for (compared, differing, conditions, expected) in [
            (2, json!([]), json!([]), "(-50.0 %), the same bytes."),
            (
                0,
                json!([]),
                json!([]),
                "(-50.0 %), without bytes to compare.",
            ),
            (
                2,
                json!([1]),
                json!([]),
                "but 1 of 2 memories and copies then hold other bytes: the program needs more than that.",
            ),
            (
                2,
                json!([]),
                json!(["do not read", "nor write"]),
                "the same bytes. Condition: do not read. Condition: nor write.",
            ),
        ] {
            let time = |median: f64| json!({"median": median});
            let tried: Tried = serde_json::from_value(json!({
                "edits": [{"what": "4 waits left out"}], "refused": null, "conditions": conditions,
                "measured": {"recorded_ns": time(2e6), "edited_ns": time(1e6), "gain": 0.5},
                "compared": compared, "differing": differing,
            }))
            .unwrap();
            assert!(tried.said().ends_with(expected), "{}", tried.said());
        }
    }
}
