//! A program and what its runs left: bare, recorded, checked, checked live, replayed.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use cutape_registry::Class;
use serde_json::Value;

use crate::findings::{Finding, read_findings};
use crate::parts::parts;
use crate::process::{self, Output};
use crate::program::Program;

/// How a program is run or its recording is used; each is one test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// On the null driver, without us.
    Bare,
    /// By `cutape record`: nothing changes for the program.
    Recorded,
    /// `cutape check TRACE`.
    Checked,
    /// `cutape check -- PROGRAM`.
    Live,
    /// `cutape replay TRACE`.
    Replayed,
    /// `cutape replay --threads TRACE`, of programs with several threads.
    Concurrent,
    /// `cutape pack --payloads hash --outputs hash`: nothing changes for `check`, nor for `replay` where what came back is hashed.
    Hashed,
}

impl Way {
    /// All of them.
    pub const ALL: [Way; 7] = [
        Way::Bare,
        Way::Recorded,
        Way::Checked,
        Way::Live,
        Way::Replayed,
        Way::Concurrent,
        Way::Hashed,
    ];

    /// Whether a program is tried that way.
    pub fn fits(self, program: &Program) -> bool {
        self != Way::Concurrent || program.is_threaded
    }

    /// The word in the test's name.
    pub fn word(self) -> &'static str {
        match self {
            Way::Bare => "bare",
            Way::Recorded => "recorded",
            Way::Checked => "checked",
            Way::Live => "live",
            Way::Replayed => "replayed",
            Way::Concurrent => "concurrent",
            Way::Hashed => "hashed",
        }
    }
}

/// A recorded run.
#[derive(Debug)]
pub struct Recording {
    /// What the program did under `record`.
    pub output: Output,
    /// The traces: that of the process that called the driver first, then others.
    pub traces: Vec<PathBuf>,
}

/// One program with what is run once and looked at by several tests.
#[derive(Debug)]
pub struct Case {
    /// The program.
    pub program: Program,
    bare: OnceLock<Result<Output, String>>,
    recording: OnceLock<Result<Recording, String>>,
}

impl Case {
    /// Nothing has been run.
    pub fn new(program: Program) -> Self {
        Self {
            program,
            bare: OnceLock::new(),
            recording: OnceLock::new(),
        }
    }

    /// Runs the program that way and looks at what comes out.
    ///
    /// # Errors
    /// What was expected, what came instead, and how to see it again.
    pub fn try_way(&self, way: Way) -> Result<(), String> {
        let outcome = match way {
            Way::Bare => self.bare().and_then(|output| self.expect_end(output)),
            Way::Recorded => self.expect_recorded(),
            Way::Checked => self.expect_checked(),
            Way::Live => self.expect_live(),
            Way::Replayed => self.expect_replayed(&[]),
            Way::Concurrent => self.expect_replayed(&["--threads"]),
            Way::Hashed => self.expect_hashed(),
        };
        outcome.map_err(|message| format!("{message}{}", self.kept_traces()))
    }

    /// The run on the null driver alone.
    fn bare(&self) -> Result<&Output, String> {
        self.bare
            .get_or_init(|| {
                let program = self.program.compile(parts())?;
                let mut command = Command::new(program);
                command.env("LD_LIBRARY_PATH", &parts().driver_folder);
                command.envs(self.program.environment.clone());
                Ok(process::run(&mut command))
            })
            .as_ref()
            .map_err(Clone::clone)
    }

    /// The recorded run.
    fn recording(&self) -> Result<&Recording, String> {
        self.recording
            .get_or_init(|| {
                let program = self.program.compile(parts())?;
                let folder = parts().new_folder(&self.file_name());
                let trace = folder.join("recorded.cutape");
                let mut command = parts().cutape(&[
                    &"record",
                    &"--driver",
                    &"null",
                    &"-o",
                    &trace,
                    &"--",
                    &program,
                ]);
                command.envs(self.program.environment.clone());
                let output = process::run(&mut command);
                let mut traces: Vec<_> = fs::read_dir(&folder)
                    .map_err(|error| format!("{}: {error}", folder.display()))?
                    .flatten()
                    .map(|entry| entry.path())
                    .filter(|path| *path != trace)
                    .collect();
                traces.sort();
                if trace.exists() {
                    traces.insert(0, trace);
                }
                Ok(Recording { output, traces })
            })
            .as_ref()
            .map_err(Clone::clone)
    }

    /// The recorded run's traces; there is one at least.
    ///
    /// # Errors
    /// If the program could not be run or left none.
    pub fn traces(&self) -> Result<&[PathBuf], String> {
        let recording = self.recording()?;
        if recording.traces.is_empty() {
            return Err(format!(
                "no trace was written\n{}",
                recording.output.describe()
            ));
        }
        Ok(&recording.traces)
    }

    fn file_name(&self) -> String {
        self.program.name.replace('/', ".")
    }

    /// Keeps the traces for people to look at; how.
    fn kept_traces(&self) -> String {
        let Some(Ok(recording)) = self.recording.get() else {
            return String::new();
        };
        let mut text = String::new();
        for (number, trace) in recording.traces.iter().enumerate() {
            let number = if number == 0 {
                String::new()
            } else {
                format!(".{number}")
            };
            let kept = parts()
                .failed
                .join(format!("{}{number}.cutape", self.file_name()));
            let copied = fs::create_dir_all(&parts().failed).and_then(|()| fs::copy(trace, &kept));
            if copied.is_ok() {
                let cutape = parts().cutape.display();
                text += &format!("\nto see the calls: {cutape} dump {}", kept.display());
            }
        }
        text
    }

    /// A program ends well and quietly; one that is to crash may crash instead.
    fn expect_end(&self, output: &Output) -> Result<(), String> {
        let crashed = output
            .code()
            .zip(self.program.crash)
            .is_some_and(|(code, signal)| code == 128 + signal);
        if crashed {
            // As the real one it may say a last word; ours begins with its name.
            let last_word = output.stderr.lines().count() == 1
                && output.stderr.starts_with("cutape null driver: ");
            return if last_word {
                Ok(())
            } else {
                output.expect_quiet()
            };
        }
        output.expect_quiet()?;
        output.expect_code(0)?;
        if output.stdout.ends_with("EXIT-SUCCESS\n") {
            return Ok(());
        }
        Err(format!(
            "the last line is not EXIT-SUCCESS\n{}",
            output.describe()
        ))
    }

    fn expect_recorded(&self) -> Result<(), String> {
        let output = &self.recording()?.output;
        let bare = self.bare()?;
        let same_end = bare.code().ok_or_else(|| bare.describe())?;
        output.expect_code(same_end)?;
        if output.stdout != bare.stdout || output.stderr != bare.stderr {
            return Err(format!(
                "the program printed something else\n{}\n{}",
                bare.describe(),
                output.describe()
            ));
        }
        self.expect_end(output)?;
        self.traces().map(|_| ())
    }

    fn expect_checked(&self) -> Result<(), String> {
        self.expect_traces_checked(self.traces()?)
    }

    fn expect_traces_checked(&self, traces: &[PathBuf]) -> Result<(), String> {
        let mut findings = Vec::new();
        for trace in traces {
            let output =
                process::run(&mut parts().cutape(&[&"check", &"--format", &"json", trace]));
            let found = read_findings(&output.stdout)
                .map_err(|error| format!("{error}\n{}", output.describe()))?;
            expect_check_status(&found, &output)?;
            output.expect_quiet()?;
            findings.extend(found);
        }
        self.expect_findings(&findings)
    }

    fn expect_hashed(&self) -> Result<(), String> {
        let mut all = Vec::new();
        for trace in self.traces()? {
            let hashed = trace.with_extension("hashed");
            let outputs = trace.with_extension("outputs-hashed");
            let kept: [(&Path, &[&str]); 2] = [
                (&hashed, &["--payloads", "hash", "--outputs", "hash"]),
                (&outputs, &["--outputs", "hash"]),
            ];
            for (path, options) in kept {
                let mut pack = parts().cutape(&[&"pack", trace, &"-o", &path]);
                process::run(pack.args(options)).expect_code(0)?;
            }
            self.expect_trace_replayed(&outputs, &[])?;
            all.push(hashed);
        }
        self.expect_traces_checked(&all)
    }

    fn expect_live(&self) -> Result<(), String> {
        let program = self.program.compile(parts())?;
        let mut command = parts().cutape(&[
            &"check",
            &"--driver",
            &"null",
            &"--format",
            &"json",
            &"--",
            &program,
        ]);
        command.envs(self.program.environment.clone());
        let output = process::run(&mut command);
        // The program's own lines come first: findings are printed at its end.
        let bare = self.bare()?;
        let Some(ours) = output.stdout.strip_prefix(bare.stdout.as_str()) else {
            return Err(format!(
                "the program printed something else\n{}\n{}",
                bare.describe(),
                output.describe()
            ));
        };
        // A program that does not end well is named, in a line.
        let stderr = output.stderr.strip_prefix(bare.stderr.as_str());
        let ended_well = bare.code() == Some(0);
        let as_expected = stderr.is_some_and(|ours| match ended_well {
            true => ours.is_empty(),
            false => ours.starts_with("cutape: the program ") && ours.lines().count() == 1,
        });
        if !as_expected {
            return Err(format!(
                "expected other words on stderr\n{}",
                output.describe()
            ));
        }
        let findings =
            read_findings(ours).map_err(|error| format!("{error}\n{}", output.describe()))?;
        expect_check_status(&findings, &output)?;
        self.expect_findings(&findings)
    }

    /// Exactly the rules that the program breaks, and of the others only those that it may break.
    fn expect_findings(&self, findings: &[Finding]) -> Result<(), String> {
        let found: BTreeSet<&str> = findings
            .iter()
            .map(|finding| finding.rule.as_str())
            .collect();
        let expected: BTreeSet<&str> = self
            .program
            .expected
            .iter()
            .map(String::as_str)
            .filter(|rule| is_decidable(rule))
            .collect();
        let allowed = |rule: &str| {
            expected.contains(rule) || self.program.allowed.iter().any(|allowed| allowed == rule)
        };
        let missing: Vec<_> = expected
            .iter()
            .filter(|rule| !found.contains(*rule))
            .collect();
        let surplus: Vec<_> = findings
            .iter()
            .filter(|finding| !allowed(&finding.rule))
            .collect();
        if missing.is_empty() && surplus.is_empty() {
            return Ok(());
        }
        Err(format!(
            "not found: {missing:?}\nfound beside: {surplus:#?}"
        ))
    }

    fn expect_replayed(&self, flags: &[&str]) -> Result<(), String> {
        for trace in self.traces()? {
            self.expect_trace_replayed(trace, flags)?;
        }
        Ok(())
    }

    fn expect_trace_replayed(&self, trace: &Path, flags: &[&str]) -> Result<(), String> {
        // Behind the whole name: several traces differ in their last part only, and are replayed at the same time.
        let mut report = trace.as_os_str().to_owned();
        report.push(format!("{}.json", flags.concat()));
        let report = PathBuf::from(report);
        let mut command = parts().cutape(&[
            &"replay",
            &"--driver",
            &"null",
            &"--report",
            &report,
            &trace,
        ]);
        let output = process::run(command.args(flags));
        let complain = |what: String| Err(format!("{what}\n{}", output.describe()));
        output.expect(i32::from(self.program.diverges.is_some()))?;
        let text = fs::read_to_string(&report)
            .map_err(|error| format!("{}: {error}\n{}", report.display(), output.describe()))?;
        let report: Value = match serde_json::from_str(&text) {
            Ok(report) => report,
            Err(error) => return complain(format!("{}: {error}", report.display())),
        };
        if !report["died"].is_null() {
            return complain("the replay died".to_owned());
        }
        if let Some(function) = &self.program.diverges {
            let named = report["divergences"].to_string() + &report["skipped"].to_string();
            return match report["divergence_count"] == 1 && named.contains(function.as_str()) {
                true => Ok(()),
                false => complain(format!("a divergence because of {function} was expected")),
            };
        }
        if report["divergence_count"] != 0 {
            return complain("it diverged".to_owned());
        }
        if report["placed"]["allocations"] != report["placed"]["at_recorded_address"] {
            return complain("memory is not at its recorded address".to_owned());
        }
        // Every call is accounted for: re-issued, done by the replay itself, or left out by name for a reason that is known.
        let mut calls = report["calls_replayed"].as_u64().unwrap_or(0);
        let emulated = report["calls_emulated"].as_object().into_iter().flatten();
        calls += emulated
            .filter_map(|(_, count)| count.as_u64())
            .sum::<u64>();
        let crashed = self.bare()?.signal().is_some();
        for skipped in report["skipped"].as_array().into_iter().flatten() {
            let name = skipped["function"].as_str().unwrap_or_default();
            calls += skipped["count"].as_u64().unwrap_or(0);
            let in_flight = skipped["reason"]
                .as_str()
                .is_some_and(|why| why.contains("in flight"));
            let expected = (in_flight && crashed)
                || is_never_replayed(name)
                || self.program.skipped.iter().any(|known| known == name);
            if !expected {
                return complain(format!("not re-issued: {skipped}"));
            }
        }
        if report["calls"] != calls || calls == 0 {
            return complain(format!(
                "{calls} of {} calls are accounted for",
                report["calls"]
            ));
        }
        Ok(())
    }
}

/// Whether a trace can tell; for the rules of which it cannot, nothing may be said.
fn is_decidable(rule: &str) -> bool {
    cutape_registry::rule(rule).is_some_and(|rule| rule.undecidable.is_empty())
}

/// Whether the registry says of the function that its calls are recorded only.
fn is_never_replayed(function: &str) -> bool {
    cutape_registry::function(function)
        .is_some_and(|function| matches!(function.class, Class::Opaque | Class::Unreplayable))
}

/// 1 with findings, 0 without.
fn expect_check_status(findings: &[Finding], output: &Output) -> Result<(), String> {
    let failing = findings.iter().any(|finding| finding.severity != "advice");
    output.expect_code(i32::from(failing))
}
