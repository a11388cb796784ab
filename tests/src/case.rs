//! A program and the results of its runs: bare, recorded, checked, checked live, replayed.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use cutape_registry::Class;
use serde_json::Value;

use crate::commands::{files, play, record, replay};
use crate::findings::{Finding, read_findings};
use crate::parts::parts;
use crate::process::{self, Output};
use crate::program::{Program, Variant, programs};
use crate::suite::{file_name, keep_traces};

/// How a program is run, or its recording is used. Each is one test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// On the null driver, without cutape.
    Bare,
    /// With `cutape record`: nothing changes for the program.
    Recorded,
    /// `cutape check TRACE`.
    Checked,
    /// `cutape check -- PROGRAM`.
    Live,
    /// `cutape replay TRACE`.
    Replayed,
    /// `cutape replay --threads TRACE`, of programs with several threads.
    Concurrent,
    /// After `cutape pack --payloads hash --outputs hash`: nothing changes for `check`; with
    /// `--outputs hash` alone, nothing changes for `replay` either.
    Hashed,
    /// `cutape play TRACE -- PROGRAM`: nothing changes for a correct program.
    Played,
}

impl Mode {
    /// All of them.
    pub const ALL: [Mode; 8] = [
        Mode::Bare,
        Mode::Recorded,
        Mode::Checked,
        Mode::Live,
        Mode::Replayed,
        Mode::Concurrent,
        Mode::Hashed,
        Mode::Played,
    ];

    /// Whether a program is tested in this mode.
    pub fn applies_to(self, program: &Program) -> bool {
        match self {
            Mode::Concurrent => program.is_threaded,
            Mode::Played => program.variant == Variant::Correct && program.not_played.is_none(),
            _ => true,
        }
    }

    /// The last part of the test's name.
    pub fn name(self) -> &'static str {
        match self {
            Mode::Bare => "bare",
            Mode::Recorded => "recorded",
            Mode::Checked => "checked",
            Mode::Live => "live",
            Mode::Replayed => "replayed",
            Mode::Concurrent => "concurrent",
            Mode::Hashed => "hashed",
            Mode::Played => "played",
        }
    }
}

/// The rule that goes by how long a call took: on a busy machine, any load of PTX may take that long.
const BY_TIME: &str = "performance-jit-at-run-time";

/// A recorded run.
#[derive(Debug)]
pub struct Recording {
    /// The result of the program under `record`.
    pub output: Output,
    /// The traces: first that of the process that called the driver first.
    pub traces: Vec<PathBuf>,
}

/// One program, with the runs whose results several tests use.
#[derive(Debug)]
pub struct Case {
    /// The program.
    pub program: Program,
    bare: OnceLock<Result<Output, String>>,
    recording: OnceLock<Result<Recording, String>>,
}

/// The test programs, with the runs that all tests share.
///
/// # Panics
/// If the programs cannot be listed.
pub fn cases() -> &'static [Case] {
    static CASES: OnceLock<Vec<Case>> = OnceLock::new();
    CASES.get_or_init(|| {
        let programs = programs().unwrap_or_else(|error| panic!("{error}"));
        programs.into_iter().map(Case::new).collect()
    })
}

/// The compiled program of that name, `clean/events` or `rules/link-state-leak/violation`.
///
/// # Panics
/// If there is no such program, or it cannot be compiled.
pub fn compiled(name: &str) -> String {
    let program = cases()
        .iter()
        .map(|case| &case.program)
        .find(|program| program.name == name)
        .unwrap_or_else(|| panic!("there is no program {name}"));
    let compiled = program.compile(parts());
    let path = compiled.unwrap_or_else(|error| panic!("{error}"));
    path.to_string_lossy().into_owned()
}

impl Case {
    /// Nothing has been run.
    fn new(program: Program) -> Self {
        Self {
            program,
            bare: OnceLock::new(),
            recording: OnceLock::new(),
        }
    }

    /// Runs the program in this mode and checks the result.
    ///
    /// # Errors
    /// What was expected, what happened instead, and how to repeat it.
    pub fn run(&self, mode: Mode) -> Result<(), String> {
        let outcome = match mode {
            Mode::Bare => self.bare().and_then(|output| self.expect_end(output)),
            Mode::Recorded => self.expect_recorded(),
            Mode::Checked => self.expect_checked(),
            Mode::Live => self.expect_live(),
            Mode::Replayed => self.expect_replayed(&[]),
            Mode::Concurrent => self.expect_replayed(&["--threads"]),
            Mode::Hashed => self.expect_hashed(),
            Mode::Played => self.expect_played(),
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
                let folder = parts().new_folder(&format!("case.{}", file_name(&self.program.name)));
                let trace = folder.join("recorded.cutape");
                let mut command = record(&trace, &[], &[&program.to_string_lossy()]);
                command.envs(self.program.environment.clone());
                let output = process::run(&mut command);
                let mut traces = files(&folder);
                traces.retain(|path| *path != trace);
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

    /// Keeps the recorded traces of a failed test; the lines that say how to see them.
    fn kept_traces(&self) -> String {
        match self.recording.get() {
            Some(Ok(recording)) => keep_traces(&self.program.name, &recording.traces),
            _ => String::new(),
        }
    }

    /// The program succeeds and prints nothing on stderr; one that crashes on a real driver may
    /// crash instead.
    fn expect_end(&self, output: &Output) -> Result<(), String> {
        let crashed = output
            .code()
            .zip(self.program.crash)
            .is_some_and(|(code, signal)| code == 128 + signal);
        if crashed {
            // The null driver may print one line before it crashes.
            let is_drivers = output.stderr.lines().count() == 1
                && output.stderr.starts_with("cutape null driver: ");
            return if is_drivers {
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
                "the program's output differs\n{}\n{}",
                bare.describe(),
                output.describe()
            ));
        }
        self.expect_end(output)?;
        self.traces().map(|_| ())
    }

    fn expect_played(&self) -> Result<(), String> {
        let program = self.program.compile(parts())?;
        let trace = &self.traces()?[0];
        let mut command = play(trace, &[], &[&program.to_string_lossy()]);
        command.envs(self.program.environment.clone());
        let (output, bare) = (process::run(&mut command), self.bare()?);
        output.expect_code(bare.code().ok_or_else(|| bare.describe())?)?;
        output.expect_quiet()?;
        if output.stdout == bare.stdout {
            return Ok(());
        }
        let (bare, output) = (bare.describe(), output.describe());
        Err(format!("the program's output differs\n{bare}\n{output}"))
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
        // The program's own lines come first, then the findings.
        let bare = self.bare()?;
        let Some(ours) = output.stdout.strip_prefix(bare.stdout.as_str()) else {
            return Err(format!(
                "the program's output differs\n{}\n{}",
                bare.describe(),
                output.describe()
            ));
        };
        // A program that fails is reported in one line.
        let stderr = output.stderr.strip_prefix(bare.stderr.as_str());
        let ended_well = bare.code() == Some(0);
        let as_expected = stderr.is_some_and(|ours| match ended_well {
            true => ours.is_empty(),
            false => ours.starts_with("cutape: the program ") && ours.lines().count() == 1,
        });
        if !as_expected {
            return Err(format!("unexpected lines on stderr\n{}", output.describe()));
        }
        let findings =
            read_findings(ours).map_err(|error| format!("{error}\n{}", output.describe()))?;
        expect_check_status(&findings, &output)?;
        self.expect_findings(&findings)
    }

    /// The findings are those of the rules that the program breaks, and at most those that it may
    /// break.
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
            rule == BY_TIME
                || expected.contains(rule)
                || self.program.allowed.iter().any(|allowed| allowed == rule)
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
        Err(format!("missing: {missing:?}\nunexpected: {surplus:#?}"))
    }

    fn expect_replayed(&self, flags: &[&str]) -> Result<(), String> {
        for trace in self.traces()? {
            self.expect_trace_replayed(trace, flags)?;
        }
        Ok(())
    }

    fn expect_trace_replayed(&self, trace: &Path, flags: &[&str]) -> Result<(), String> {
        // Added to the whole name: names of traces that are replayed at the same time differ in the
        // last part only.
        let mut report = trace.as_os_str().to_owned();
        report.push(format!("{}.json", flags.concat()));
        let report = PathBuf::from(report);
        let mut command = replay(trace);
        command.envs(self.program.environment.clone());
        command.arg("--report").arg(&report);
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
        // Every call is accounted for: re-issued, emulated, or skipped for a known reason.
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

/// Whether the rule can be decided from a trace; if not, there is no finding.
fn is_decidable(rule: &str) -> bool {
    cutape_registry::rule(rule).is_some_and(|rule| rule.undecidable.is_empty())
}

/// Whether calls of the function are recorded only, as the registry states.
fn is_never_replayed(function: &str) -> bool {
    cutape_registry::function(function)
        .is_some_and(|function| matches!(function.class, Class::Opaque | Class::Unreplayable))
}

/// 1 with findings, 0 without.
fn expect_check_status(findings: &[Finding], output: &Output) -> Result<(), String> {
    let failing = findings.iter().any(|finding| finding.severity != "advice");
    output.expect_code(i32::from(failing))
}
