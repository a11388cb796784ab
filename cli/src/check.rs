//! `cutape check`: API misuse in a trace, or in a program while it runs.

use std::fs;
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use cutape_analyzer::{Analyzer, Baseline, Finding, Severity, Suppressions, output};
use cutape_format::{Cursor, Trace};

use crate::failure::{FOUND, Failure};
use crate::progress::Progress;
use crate::session::{self, Ended, Recording, Session};
use crate::symbols::{Resolver, Symbolised};

/// What `check` takes.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The trace. In its place a program behind --, which is checked while it runs.
    #[arg(value_name = "TRACE", required_unless_present = "program", conflicts_with = "program")]
    trace: Option<PathBuf>,
    /// How to print findings.
    #[arg(long, value_enum, default_value = "text", value_name = "FORMAT")]
    format: Format,
    /// Leave out what the rules in this file name: one a line, `RULE [FUNCTION] [# comment]`, with * as wildcard.
    #[arg(long, value_name = "FILE")]
    suppress: Option<PathBuf>,
    /// Leave out findings that are in this file already, which an earlier `--format json` has written.
    #[arg(long, value_name = "FILE")]
    baseline: Option<PathBuf>,
    /// The least severity that makes the exit status 1.
    #[arg(long, value_enum, default_value = "warning", value_name = "LEVEL")]
    fail_on: Level,
    /// For a program: where to keep its trace. Default: nowhere.
    #[arg(short, long, value_name = "FILE", requires = "program")]
    output: Option<PathBuf>,
    #[command(flatten)]
    recording: Recording,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    /// For people.
    Text,
    /// For programs; the form that --baseline reads.
    Json,
    /// For code scanning services.
    Sarif,
    /// For CI servers.
    Junit,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Level {
    Error,
    Warning,
    Advice,
    /// Findings do not change the exit status.
    Never,
}

/// Which findings count, and how they are shown.
struct Sieve {
    suppressions: Option<Suppressions>,
    baseline: Option<Baseline>,
    /// Text findings go out as they come.
    at_once: bool,
    style: output::Style,
}

impl Sieve {
    fn new(arguments: &Arguments) -> Result<Self, Failure> {
        let read = |path: &Path| {
            fs::read_to_string(path)
                .map_err(|error| Failure::unusable(format!("cannot read {}: {error}", path.display())))
        };
        let wrong = |path: &Path, why: String| Failure::unusable(format!("{}: {why}", path.display()));
        let suppressions = match &arguments.suppress {
            Some(path) => Some(
                Suppressions::parse(&read(path)?).map_err(|error| wrong(path, error.to_string()))?,
            ),
            None => None,
        };
        let baseline = match &arguments.baseline {
            Some(path) => Some(Baseline::parse(&read(path)?).map_err(|error| wrong(path, error))?),
            None => None,
        };
        let colour = io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none();
        Ok(Self {
            suppressions,
            baseline,
            at_once: arguments.format == Format::Text,
            style: if colour { output::Style::COLOUR } else { output::Style::PLAIN },
        })
    }

    /// Keeps what counts, and prints it if it is to go out at once.
    fn take(&self, found: Vec<Finding>, kept: &mut Vec<Finding>) -> Result<(), Failure> {
        for finding in found {
            let known = self.suppressions.as_ref().is_some_and(|list| list.matches(&finding))
                || self.baseline.as_ref().is_some_and(|list| list.contains(&finding));
            if known {
                continue;
            }
            if self.at_once {
                let mut stdout = io::stdout().lock();
                writeln!(stdout, "{}", output::text(&finding, &self.style))?;
                stdout.flush()?;
            }
            kept.push(finding);
        }
        Ok(())
    }
}

pub(crate) fn run(arguments: Arguments) -> Result<ExitCode, Failure> {
    let sieve = Sieve::new(&arguments)?;
    let mut findings = Vec::new();
    let name = match &arguments.trace {
        Some(path) => {
            let trace = Trace::open(path)?;
            // Blobs are looked at by content, so those must be sound, too.
            if let Some(damage) = trace.verify().first() {
                return Err(Failure::unusable(format!(
                    "{}: damaged at byte {}: {}; `cutape repair {0} -o FILE` keeps what is good",
                    path.display(), damage.position, damage.what
                )));
            }
            check_trace(&trace, &sieve, &mut findings)?;
            path.display().to_string()
        }
        None => {
            check_program(&arguments, &sieve, &mut findings)?;
            arguments.recording.program[0].to_string_lossy().into_owned()
        }
    };
    report(&arguments, &name, &findings)?;
    let level = match arguments.fail_on {
        Level::Error => Some(Severity::Error),
        Level::Warning => Some(Severity::Warning),
        Level::Advice => Some(Severity::Advice),
        Level::Never => None,
    };
    let fails = level.is_some_and(|level| findings.iter().any(|finding| finding.severity >= level));
    Ok(ExitCode::from(if fails { FOUND } else { 0 }))
}

fn check_trace(trace: &Trace, sieve: &Sieve, findings: &mut Vec<Finding>) -> Result<(), Failure> {
    let mut progress = Progress::new("calls", None);
    let mut analyzer = Analyzer::new();
    let resolver = Resolver::default();
    let context = Symbolised::new(trace, &resolver);
    for call in trace.calls() {
        sieve.take(analyzer.push(&context, &call), findings)?;
        progress.step();
    }
    sieve.take(analyzer.finish(&context), findings)
}

/// How long a thread may take between reading the clock and having its record in the file.
const SETTLE: Duration = Duration::from_millis(20);
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// Runs the program and follows its trace from outside, so that a call that ends the program is explained all the same.
fn check_program(arguments: &Arguments, sieve: &Sieve, findings: &mut Vec<Finding>) -> Result<(), Failure> {
    let place = match &arguments.output {
        Some(path) => path.clone(),
        None => std::env::temp_dir().join(format!("cutape-check-{}.cutape", std::process::id())),
    };
    let mut session = session::start(&arguments.recording, &place)?;
    let mut live = Live::default();
    let ticks = TickRate::start();
    while !session.has_ended() {
        std::thread::sleep(LOOK_EVERY);
        live.look(&session, ticks.before_now(SETTLE), sieve, findings)?;
    }
    let own = session.trace().to_owned();
    let ended = session.wait()?;
    let keep = arguments.output.is_some();
    let outcome = finish(&ended, &own, live, sieve, findings, keep);
    if !keep {
        for path in &ended.traces {
            // A trace of ours in the folder for temporary files; the system clears that, too.
            let _ = fs::remove_file(path);
        }
    }
    outcome
}

fn finish(
    ended: &Ended,
    own: &Path,
    mut live: Live,
    sieve: &Sieve,
    findings: &mut Vec<Finding>,
    keep: bool,
) -> Result<(), Failure> {
    if ended.traces.is_empty() {
        eprintln!("cutape: nothing to check: the program, which {}, made no CUDA driver call that reached us", ended.describe());
        return Ok(());
    }
    for path in &ended.traces {
        let trace = Trace::open(path)?;
        if path == own {
            let context = Symbolised::new(&trace, &live.resolver);
            while let Some(call) = live.cursor.next(&trace) {
                sieve.take(live.analyzer.push(&context, &call), findings)?;
            }
            sieve.take(live.analyzer.finish(&context), findings)?;
        } else {
            check_trace(&trace, sieve, findings)?;
        }
        if keep {
            drop(trace);
            ended.pack(path)?;
        }
    }
    if ended.status.code() != Some(0) {
        eprintln!("cutape: the program {}", ended.describe());
    }
    Ok(())
}

/// The check of a growing trace.
#[derive(Default)]
struct Live {
    trace: Option<Trace>,
    cursor: Cursor,
    analyzer: Analyzer,
    resolver: Resolver,
}

impl Live {
    /// Takes the calls that were entered before `horizon` and have returned.
    fn look(
        &mut self,
        session: &Session,
        horizon: u64,
        sieve: &Sieve,
        findings: &mut Vec<Finding>,
    ) -> Result<(), Failure> {
        let Some(trace) = &mut self.trace else {
            // Not yet there, or its head not yet written: the next look will tell.
            self.trace = Trace::follow(session.trace()).ok();
            return Ok(());
        };
        if trace.refresh().is_err() || trace.head().clock != 0 {
            // Without a clock that we can read, the order of threads is only known at the end.
            return Ok(());
        }
        let context = Symbolised::new(trace, &self.resolver);
        while let Some(call) = self.cursor.next_before(trace, horizon) {
            sieve.take(self.analyzer.push(&context, &call), findings)?;
        }
        Ok(())
    }
}

/// How fast the counter that stamps calls runs.
struct TickRate {
    ticks: u64,
    time: std::time::Instant,
}

impl TickRate {
    fn start() -> Self {
        Self { ticks: session::ticks(), time: std::time::Instant::now() }
    }

    /// The counter a while ago.
    fn before_now(&self, while_ago: Duration) -> u64 {
        let now = session::ticks();
        let elapsed = self.time.elapsed().as_nanos().max(1);
        let rate = u128::from(now.wrapping_sub(self.ticks));
        now.saturating_sub((rate * while_ago.as_nanos() / elapsed) as u64)
    }
}

fn report(arguments: &Arguments, name: &str, findings: &[Finding]) -> Result<(), Failure> {
    let mut stdout = io::stdout().lock();
    match arguments.format {
        Format::Text => {
            let count = |severity| findings.iter().filter(|finding| finding.severity == severity).count();
            let parts: Vec<_> = [Severity::Error, Severity::Warning, Severity::Advice]
                .into_iter()
                .filter(|&severity| count(severity) > 0)
                .map(|severity| format!("{} {}", count(severity), plural(severity, count(severity))))
                .collect();
            let text = if parts.is_empty() { "no findings".to_owned() } else { parts.join(", ") };
            writeln!(stdout, "{name}: {text}")?;
        }
        Format::Json => writeln!(stdout, "{:#}", output::json(findings))?,
        Format::Sarif => writeln!(stdout, "{:#}", output::sarif(findings, name))?,
        Format::Junit => writeln!(stdout, "{}", junit(name, findings)?)?,
    }
    Ok(())
}

fn plural(severity: Severity, count: usize) -> &'static str {
    match (severity, count) {
        (Severity::Error, 1) => "error",
        (Severity::Error, _) => "errors",
        (Severity::Warning, 1) => "warning",
        (Severity::Warning, _) => "warnings",
        (Severity::Advice, _) => "advice",
    }
}

fn junit(name: &str, findings: &[Finding]) -> Result<String, Failure> {
    use quick_junit::{NonSuccessKind, Report, TestCase, TestCaseStatus, TestSuite};
    let mut suite = TestSuite::new(name);
    let cases = output::junit_cases(findings);
    if cases.is_empty() {
        suite.add_test_case(TestCase::new("no findings", TestCaseStatus::success()));
    }
    for case in cases {
        let mut status = TestCaseStatus::non_success(NonSuccessKind::Failure);
        status.set_type(case.kind).set_message(case.message).set_description(case.description);
        let mut test = TestCase::new(case.name, status);
        test.set_classname(name);
        suite.add_test_case(test);
    }
    let mut report = Report::new("cutape check");
    report.add_test_suite(suite);
    report.to_string().map_err(|error| Failure::unusable(format!("cannot write JUnit: {error}")))
}
