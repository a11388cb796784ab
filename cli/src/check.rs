//! `cutape check`: API misuse in a trace, or in a program while it runs.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use cutape_analyzer::output::{self as analyzer, Style};
use cutape_analyzer::{Analyzer, Baseline, Finding, Severity, Suppressions};
use cutape_format::{Call, Cursor, Damage, Note, Trace, WalkSummary};

use crate::failure::{FOUND, Failure};
use crate::output::{self, ReportFile};
use crate::progress::Progress;
use crate::rank;
use crate::reservation::Reservation;
use crate::session::{self, Ended, Recording, Session};
use crate::symbols::{Resolver, Symbolised};

/// What `check` takes.
#[derive(clap::Args)]
#[command(
    override_usage = "cutape check [OPTIONS] TRACE\n       cutape check [OPTIONS] -- PROGRAM [ARGUMENTS]..."
)]
pub(crate) struct Arguments {
    /// The trace; or, behind --, a program to check while it runs.
    #[arg(value_name = "TRACE", conflicts_with = "program")]
    trace: Option<PathBuf>,
    /// How to print findings.
    #[arg(long, value_enum, default_value = "text", value_name = "FORMAT")]
    format: Format,
    /// Leave out what this file names: a rule, perhaps a function, perhaps # and a comment.
    ///
    /// One a line; * stands for any characters.
    #[arg(long, value_name = "FILE", verbatim_doc_comment)]
    suppress: Option<PathBuf>,
    /// Leave out what an earlier `--format json` has found already.
    #[arg(long, value_name = "FILE")]
    baseline: Option<PathBuf>,
    /// The least severity that makes the exit status 1.
    #[arg(long, value_enum, default_value = "warning", value_name = "LEVEL")]
    fail_on: Level,
    /// Write the findings there, and nothing to stdout.
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Where to keep a program's trace. Default: nowhere.
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// No colours, even on a terminal.
    #[arg(long)]
    no_color: bool,
    #[command(flatten)]
    recording: Recording,
    /// The program and its arguments.
    #[arg(last = true, value_name = "PROGRAM")]
    program: Vec<OsString>,
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
    style: Style,
    /// Text that goes out once the trace is known to be sound.
    held: RefCell<Option<String>>,
    /// Why stdout takes nothing any more; the program that is checked runs on all the same.
    unwritable: RefCell<Option<io::Error>>,
}

impl Sieve {
    fn new(arguments: &Arguments) -> Result<Self, Failure> {
        let read = |path: &Path| {
            fs::read_to_string(path).map_err(|error| {
                Failure::unusable(format!("cannot read {}: {error}", path.display()))
            })
        };
        let wrong =
            |path: &Path, why: String| Failure::unusable(format!("{}: {why}", path.display()));
        let suppressions = match &arguments.suppress {
            Some(path) => Some(
                Suppressions::parse(&read(path)?)
                    .map_err(|error| wrong(path, error.to_string()))?,
            ),
            None => None,
        };
        let baseline = match &arguments.baseline {
            Some(path) => Some(Baseline::parse(&read(path)?).map_err(|error| wrong(path, error))?),
            None => None,
        };
        let coloured = output::coloured(arguments.no_color);
        Ok(Self {
            suppressions,
            baseline,
            at_once: arguments.format == Format::Text && arguments.report.is_none(),
            style: if coloured {
                Style::COLOUR
            } else {
                Style::PLAIN
            },
            held: RefCell::new(None),
            unwritable: RefCell::new(None),
        })
    }

    /// From now on keeps what is to be written to stdout.
    fn hold(&self) {
        self.held.replace(Some(String::new()));
    }

    /// Writes what was kept, and from now on at once.
    fn let_go(&self) {
        if let Some(held) = self.held.take().filter(|held| !held.is_empty()) {
            self.say(held.strip_suffix('\n').unwrap_or(&held));
        }
    }

    /// Writes to stdout, and forgets about it once that has failed.
    fn say(&self, text: &str) {
        if let Some(held) = &mut *self.held.borrow_mut() {
            held.push_str(text);
            held.push('\n');
            return;
        }
        let mut unwritable = self.unwritable.borrow_mut();
        if unwritable.is_none() {
            let mut stdout = io::stdout().lock();
            *unwritable = writeln!(stdout, "{text}")
                .and_then(|()| stdout.flush())
                .err();
        }
    }

    /// An error if something could not be written; a reader that has seen enough is none.
    fn written(&self) -> Result<(), Failure> {
        match self.unwritable.take() {
            Some(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error.into()),
            _ => Ok(()),
        }
    }

    /// Keeps what counts, and prints it if it is to go out at once.
    fn take(&self, found: Vec<Finding>, kept: &mut Vec<Finding>) {
        for finding in found {
            let known = self
                .suppressions
                .as_ref()
                .is_some_and(|list| list.matches(&finding))
                || self
                    .baseline
                    .as_ref()
                    .is_some_and(|list| list.contains(&finding));
            if known {
                continue;
            }
            if self.at_once {
                self.say(&analyzer::text(&finding, &self.style));
            }
            kept.push(finding);
        }
    }

    /// Names a call in which the program ended, whether or not a rule explains it.
    fn say_unreturned(&self, trace: &Trace, call: &Call<'_>) {
        if !self.at_once || call.leave.is_some() {
            return;
        }
        let by = trace
            .meta_value("exit.signal")
            .map(|signal| format!(", by signal {signal}"));
        let (index, name) = (call.index, &call.signature.name);
        let by = by.unwrap_or_default();
        self.say(&format!(
            "call {index} {name} did not return: the program ended in it{by}\n"
        ));
    }
}

pub(crate) fn run(arguments: Arguments) -> Result<ExitCode, Failure> {
    let sieve = Sieve::new(&arguments)?;
    let file = arguments
        .report
        .as_deref()
        .map(ReportFile::prepare)
        .transpose()?;
    if arguments.output.is_some() && arguments.program.is_empty() {
        return Err(Failure::unusable(
            "-o keeps the trace of a program behind --; for a file with the findings say --report FILE",
        ));
    }
    let mut findings = Vec::new();
    let name = match &arguments.trace {
        Some(path) => {
            check_file(path, &sieve, &mut findings)?;
            path.display().to_string()
        }
        None => {
            let Some(program) = arguments.program.first() else {
                return Err(Failure::unusable(
                    "nothing to check: name a trace, or a program behind --, e.g. `cutape check -- ./app 1 2`",
                ));
            };
            check_program(&arguments, &sieve, &mut findings)?;
            program.to_string_lossy().into_owned()
        }
    };
    report(&arguments, &sieve, file.as_ref(), &name, &findings)?;
    let level = match arguments.fail_on {
        Level::Error => Some(Severity::Error),
        Level::Warning => Some(Severity::Warning),
        Level::Advice => Some(Severity::Advice),
        Level::Never => None,
    };
    let fails = level.is_some_and(|level| findings.iter().any(|finding| finding.severity >= level));
    Ok(ExitCode::from(if fails { FOUND } else { 0 }))
}

/// Checks a trace that must be sound: nothing is said of one that is not.
fn check_file(path: &Path, sieve: &Sieve, findings: &mut Vec<Finding>) -> Result<(), Failure> {
    let trace = crate::input::open_for_walk(path)?;
    // A repaired trace says itself what it lacks.
    let repaired = trace.meta_value("repair.0").is_some();
    let sound = |damage: Vec<Damage>| match damage.first().filter(|_| !repaired) {
        None => Ok(()),
        Some(damage) => Err(Failure::unusable(format!(
            "{}: damaged at byte {}: {}; `cutape repair {0} -o FILE` keeps what is good",
            path.display(),
            damage.position,
            damage.what
        ))),
    };
    // Blobs are looked at by content, so those must be sound, too.
    sound(trace.verify_blobs())?;
    sieve.hold();
    let (walked, unknown) = check_trace(&trace, sieve, findings)?;
    crate::input::known_functions(&trace, walked.unknown_function())?;
    sound(walked.damage(&trace))?;
    if repaired {
        eprintln!(
            "cutape: {}: was repaired; what a rule would see in lost parts is not found",
            path.display()
        );
    }
    for part in walked.missing(&trace) {
        eprintln!(
            "cutape: not checked: {} bytes of an image: {}",
            part.length, part.why
        );
    }
    sieve.let_go();
    unknown.say(&trace);
    Ok(())
}

fn check_trace(
    trace: &Trace,
    sieve: &Sieve,
    findings: &mut Vec<Finding>,
) -> Result<(WalkSummary, Unknown), Failure> {
    let mut progress = Progress::new("calls", None);
    let mut analyzer = Analyzer::new();
    let resolver = Resolver::default();
    let context = Symbolised::new(trace, &resolver);
    let mut unknown = Unknown::default();
    let walked = trace.walk().run(|call| {
        if call.has_notes() {
            unknown.observe(call);
        }
        let found = analyzer.push(&context, call);
        // Nearly always.
        if !found.is_empty() {
            sieve.take(found, findings);
        }
        if call.leave.is_none() {
            sieve.say_unreturned(trace, call);
        }
        progress.step();
        Ok::<_, Failure>(())
    })?;
    sieve.take(analyzer.finish(&context), findings);
    Ok((walked, unknown))
}

/// Functions that the program called, or asked for by cuGetProcAddress, and whose calls are not in the trace.
#[derive(Default)]
struct Unknown(BTreeSet<String>);

impl Unknown {
    fn observe(&mut self, call: &Call<'_>) {
        for note in call.notes() {
            if let Note::UnknownSymbol(name) = note {
                self.0.insert(name);
            }
        }
    }

    /// Names them, if there are any.
    fn say(mut self, trace: &Trace) {
        self.0
            .extend(trace.forwarded().map(|(name, _)| name.to_owned()));
        if !self.0.is_empty() {
            let names: Vec<_> = self
                .0
                .iter()
                .map(|name| name.escape_debug().to_string())
                .collect();
            eprintln!(
                "cutape: not checked: calls of {}: the recorder does not know them, and they are not in the trace",
                names.join(", ")
            );
        }
    }
}

/// How long a thread may take between reading the clock and having its record in the file.
const SETTLE: Duration = Duration::from_millis(20);
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// Runs the program and follows its trace from outside, so that a call that ends the program is explained all the same.
fn check_program(
    arguments: &Arguments,
    sieve: &Sieve,
    findings: &mut Vec<Finding>,
) -> Result<(), Failure> {
    let place = match &arguments.output {
        Some(path) => path.clone(),
        None => std::env::temp_dir().join(format!("cutape-check-{}.cutape", std::process::id())),
    };
    let place = Reservation::named(&rank::trace_name(&place))?;
    let mut session = session::start(&arguments.recording, &arguments.program, place)?;
    let mut live = Live::default();
    let ticks = TickRate::start();
    while !session.has_ended() {
        std::thread::sleep(LOOK_EVERY);
        live.look(&session, ticks.before_now(SETTLE), sieve, findings);
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
        eprintln!(
            "cutape: nothing to check: the program, which {}, made no CUDA driver call that reached us",
            ended.describe()
        );
        return Ok(());
    }
    for path in &ended.traces {
        let trace = Trace::open(path)?;
        if path == own {
            let context = Symbolised::new(&trace, &live.resolver);
            while let Some(call) = live.cursor.next(&trace) {
                live.unknown.observe(&call);
                sieve.take(live.analyzer.push(&context, &call), findings);
                sieve.say_unreturned(&trace, &call);
            }
            sieve.take(live.analyzer.finish(&context), findings);
            std::mem::take(&mut live.unknown).say(&trace);
        } else {
            check_trace(&trace, sieve, findings)?.1.say(&trace);
        }
        if keep {
            drop(trace);
            // The findings are what was asked for; a trace that cannot be packed is still a trace.
            match ended.pack(path) {
                Ok(summary) => session::say_missing(&summary.missing),
                Err(failure) => eprintln!("cutape: {}", failure.message),
            }
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
    unknown: Unknown,
}

impl Live {
    /// Takes the calls that were entered before `horizon` and have returned.
    fn look(
        &mut self,
        session: &Session,
        horizon: u64,
        sieve: &Sieve,
        findings: &mut Vec<Finding>,
    ) {
        let Some(trace) = &mut self.trace else {
            // Not yet there, or its head not yet written: the next look will tell.
            self.trace = Trace::follow(session.trace()).ok();
            return;
        };
        let Ok(horizon) = trace.refresh_before(horizon) else {
            return;
        };
        if trace.head().clock != 0 {
            // Without a clock that we can read, the order of threads is only known at the end.
            return;
        }
        let context = Symbolised::new(trace, &self.resolver);
        while let Some(call) = self.cursor.next_before(trace, horizon) {
            self.unknown.observe(&call);
            sieve.take(self.analyzer.push(&context, &call), findings);
        }
    }
}

/// How fast the counter that stamps calls runs.
struct TickRate {
    ticks: u64,
    time: std::time::Instant,
}

impl TickRate {
    fn start() -> Self {
        Self {
            ticks: session::ticks(),
            time: std::time::Instant::now(),
        }
    }

    /// The counter a while ago.
    fn before_now(&self, while_ago: Duration) -> u64 {
        let now = session::ticks();
        let elapsed = self.time.elapsed().as_nanos().max(1);
        let rate = u128::from(now.wrapping_sub(self.ticks));
        now.saturating_sub((rate * while_ago.as_nanos() / elapsed) as u64)
    }
}

fn report(
    arguments: &Arguments,
    sieve: &Sieve,
    file: Option<&ReportFile>,
    name: &str,
    findings: &[Finding],
) -> Result<(), Failure> {
    let text = match arguments.format {
        Format::Text => summary(name, findings),
        Format::Json => format!("{:#}", analyzer::json(findings)),
        Format::Sarif => format!("{:#}", analyzer::sarif(findings, name)),
        Format::Junit => junit(name, findings)?,
    };
    let Some(file) = file else {
        sieve.say(&text);
        return sieve.written();
    };
    let mut whole = String::new();
    if arguments.format == Format::Text {
        for finding in findings {
            whole += &analyzer::text(finding, &Style::PLAIN);
            whole.push('\n');
        }
    }
    whole += &text;
    whole.push('\n');
    file.write(&whole)
}

fn summary(name: &str, findings: &[Finding]) -> String {
    let parts: Vec<_> = [Severity::Error, Severity::Warning, Severity::Advice]
        .into_iter()
        .map(|severity| {
            (
                severity,
                findings.iter().filter(|f| f.severity == severity).count(),
            )
        })
        .filter(|&(_, count)| count > 0)
        .map(|(severity, count)| format!("{count} {}", plural(severity, count)))
        .collect();
    let text = if parts.is_empty() {
        "no findings".to_owned()
    } else {
        parts.join(", ")
    };
    format!("{name}: {text}")
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
    let cases = analyzer::junit_cases(findings);
    if cases.is_empty() {
        suite.add_test_case(TestCase::new("no findings", TestCaseStatus::success()));
    }
    for case in cases {
        let mut status = TestCaseStatus::non_success(NonSuccessKind::Failure);
        status
            .set_type(case.kind)
            .set_message(case.message)
            .set_description(case.description);
        let mut test = TestCase::new(case.name, status);
        test.set_classname(name);
        suite.add_test_case(test);
    }
    let mut report = Report::new("cutape check");
    report.add_test_suite(suite);
    report
        .to_string()
        .map_err(|error| Failure::unusable(format!("cannot write JUnit: {error}")))
}
