//! A replay in a child process: fixed addresses, fresh attempts, a watchdog, and a report even if
//! the driver crashes.

pub(crate) mod attempt;
pub(crate) mod awaited;
pub(crate) mod crash_report;
pub(crate) mod environment;
pub(crate) mod group;
pub(crate) mod kept_attempts;

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use cutape_format::Trace;
use serde::{Deserialize, Serialize};

use crate::error::Error;
pub use crate::guard::attempt::Guard;
use crate::guard::attempt::{Assignment, Attempt};
use crate::guard::awaited::Surroundings;
use crate::guard::crash_report::crash_report;
use crate::guard::environment::environment;
use crate::guard::kept_attempts::{KeptAttempts, TraceIdentity};
use crate::observation::job::{Observation, Observed};
use crate::options::Options;
use crate::plan::{Plan, has_address_spaces, plan};
use crate::process::lesson::Misplaced;
use crate::process::position::{Page, Position};
use crate::process::strategy::PlacementStrategy;
use crate::process::waiting_threads::STEADY_MAP;
use crate::ranks::peers::Peers;
use crate::report::Report;
use crate::rerun::{Job, Measure, Outcome, Rerun};
use crate::run::{replay_measured, replay_observed, replay_watched};

/// Names the descriptors for the child: `page,pipe`.
const VARIABLE: &str = "CUTAPE_REPLAY_CHILD";
/// An [`Assignment`] for the child, as JSON.
const ASSIGNMENT: &str = "CUTAPE_REPLAY_PLACEMENT";
/// How often the guard looks.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Exit status of a child that could write its message.
const EXIT_REPORTED: i32 = 0;

/// What a child has measured.
#[derive(Debug, Serialize, Deserialize)]
pub struct Measurements {
    /// The replay around the measurements.
    pub outcome: Outcome,
    /// The measurements, as the child has put them.
    pub results: serde_json::Value,
}

/// What a child writes into the pipe before it exits.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Message {
    Report(Box<Report>),
    Measurements(Box<Measurements>),
    Observed(Box<Observed>),
    Failed(Error),
}

impl Message {
    fn report_mut(&mut self) -> Option<&mut Report> {
        match self {
            Self::Report(report) => Some(report),
            Self::Measurements(measurements) => Some(&mut measurements.outcome.report),
            Self::Observed(observed) => Some(&mut observed.report),
            Self::Failed(_) => None,
        }
    }
}

/// Replays in a child process that `command` makes: normally this executable with a hidden verb
/// that calls [`run_as_child`] with the same trace and options. `progress` gets the number of calls
/// that are done.
///
/// A child that a signal kills, or that hangs, becomes a report with `died`; one whose report was
/// complete keeps it, with `teardown`.
///
/// # Errors
///
/// What the child reports before it replays anything, [`Error::Child`] if it cannot be started,
/// [`Error::NoReport`] if it exits without a report.
pub fn run_guarded(
    trace: &Trace,
    command: &dyn Fn() -> Command,
    guard: &Guard,
    progress: &mut dyn FnMut(u64),
) -> Result<Report, Error> {
    match guarded(trace, command, guard, progress)? {
        (Ended::Reported(Message::Report(report)), misfits) => Ok(misfits.report_in(*report)),
        (Ended::Reported(_), _) => Err(unexpected()),
        (Ended::Died(report), misfits) => Ok(misfits.report_in(*report)),
    }
}

/// As [`run_guarded`], for a child that calls [`rerun_as_child`].
///
/// # Errors
///
/// As there; and [`Error::Measure`] with the report's text if the child died or hung.
pub fn rerun_guarded(
    trace: &Trace,
    command: &dyn Fn() -> Command,
    guard: &Guard,
    progress: &mut dyn FnMut(u64),
) -> Result<Measurements, Error> {
    match guarded(trace, command, guard, progress)? {
        (Ended::Reported(Message::Measurements(mut measurements)), misfits) => {
            let report = &mut measurements.outcome.report;
            *report = misfits.report_in(std::mem::take(report));
            Ok(*measurements)
        }
        (Ended::Reported(_), _) => Err(unexpected()),
        (Ended::Died(report), _) => Err(died(*report, "measuring")),
    }
}

/// As [`run_guarded`], for a child that calls [`observe_as_child`].
///
/// # Errors
///
/// As there; and [`Error::Measure`] with the report's text if the child died or hung.
pub fn observe_guarded(
    trace: &Trace,
    command: &dyn Fn() -> Command,
    guard: &Guard,
    progress: &mut dyn FnMut(u64),
) -> Result<Observed, Error> {
    match guarded(trace, command, guard, progress)? {
        (Ended::Reported(Message::Observed(mut observed)), misfits) => {
            observed.report = misfits.report_in(observed.report);
            Ok(*observed)
        }
        (Ended::Reported(_), _) => Err(unexpected()),
        (Ended::Died(report), _) => Err(died(*report, "replaying")),
    }
}

fn died(report: Report, what: &str) -> Error {
    Error::Measure {
        why: report.died.map_or_else(String::new, |died| {
            format!("the {what} process {}", died.text)
        }),
    }
}

fn unexpected() -> Error {
    Error::NoReport {
        how: "it reported something else".into(),
    }
}

/// How a child ended.
enum Ended {
    Reported(Message),
    Died(Box<Report>),
}

/// Children that did not fit.
#[derive(Debug, Default)]
pub(crate) struct Misfits {
    count: u32,
    misplaced: Vec<Misplaced>,
}

impl Misfits {
    pub(crate) fn add(&mut self, error: &Error) {
        self.count += 1;
        if let Error::Misplaced(misplaced) = error {
            self.misplaced.push(misplaced.clone());
        }
    }

    pub(crate) fn report_in(self, report: Report) -> Report {
        Report {
            attempts: self.count,
            misplaced: self.misplaced,
            ..report
        }
    }
}

/// Tries children until one fits; with those that did not.
fn guarded(
    trace: &Trace,
    command: &dyn Fn() -> Command,
    guard: &Guard,
    progress: &mut dyn FnMut(u64),
) -> Result<(Ended, Misfits), Error> {
    let automatic = || match has_address_spaces(trace) {
        true => PlacementStrategy::Natural,
        false => PlacementStrategy::Granules,
    };
    let strategy = guard.placement.unwrap_or_else(automatic);
    let kept = KeptAttempts::read(guard)?;
    let identity = guard.keep_placement.as_ref();
    let identity = identity.map(|_| TraceIdentity::of(trace));
    let kept = kept.zip(identity.as_ref());
    let kept = kept.and_then(|(kept, identity)| kept.attempt(None, identity, guard));
    let mut next = kept.unwrap_or_else(|| Attempt::first(strategy, guard));
    let mut misfits = Misfits::default();
    loop {
        let mut command = command();
        command.envs(environment(trace));
        let page = Page::create().map_err(failed("sharing a page"))?;
        let mut awaited = Vec::new();
        let mut watchers = Watchers {
            progress,
            late: &mut |process, lasts| {
                awaited = awaited::explain(trace, &page, process, &Surroundings::none());
                tell_of_wait(guard, "", &page, lasts, &awaited);
            },
        };
        let (message, status, hung) =
            one_child(command, guard, &next, Company::none(&page), &mut watchers)?;
        match message {
            Some(Message::Failed(error)) => {
                misfits.add(&error);
                next = next.after(error, guard)?;
            }
            Some(mut message) => {
                if let Some(report) = message.report_mut() {
                    next.learn(report);
                }
                if let Some(identity) = identity {
                    KeptAttempts::of_trace(identity, &next).write(guard)?;
                }
                return Ok((Ended::Reported(message), misfits));
            }
            None if hung || status.signal().is_some() => {
                let report = crash_report(trace, status, &page, hung.then_some(awaited));
                return Ok((Ended::Died(Box::new(report)), misfits));
            }
            None => {
                return Err(Error::NoReport {
                    how: status.to_string(),
                });
            }
        }
    }
}

/// What a child wrote, how it ended, whether it was killed because it hung.
pub(crate) type End = (Option<Message>, ExitStatus, bool);

/// What a child gets beside the command, the pipe and the attempt.
pub(crate) struct Company<'a> {
    /// Where it says how far it is.
    pub(crate) page: &'a Page,
    /// Descriptors of its own, which this process closes when it has started.
    pub(crate) given: Vec<OwnedFd>,
    /// Descriptors that this process keeps.
    pub(crate) lent: Vec<RawFd>,
    /// Variables for it.
    pub(crate) variables: Vec<(&'static str, String)>,
    /// Set if it is to be ended.
    pub(crate) cancel: &'a AtomicBool,
}

impl<'a> Company<'a> {
    /// That of a child without peers.
    fn none(page: &'a Page) -> Self {
        static NEVER: AtomicBool = AtomicBool::new(false);
        Self {
            page,
            given: Vec::new(),
            lent: Vec::new(),
            variables: Vec::new(),
            cancel: &NEVER,
        }
    }
}

/// Who is told about a child while it runs.
pub(crate) struct Watchers<'a> {
    /// Gets the number of calls that are done.
    pub(crate) progress: &'a mut dyn FnMut(u64),
    /// Half the watchdog's time has passed without progress: gets the process and that time.
    pub(crate) late: &'a mut dyn FnMut(u32, Duration),
}

/// Tells that a call lasts, and what it may wait for.
pub(crate) fn tell_of_wait(
    guard: &Guard,
    label: &str,
    page: &Page,
    lasts: Duration,
    awaited: &[String],
) {
    if awaited.is_empty() {
        return;
    }
    let call = page.read().0;
    let lasts = lasts.as_secs_f64();
    let awaited = awaited.join("; ");
    (guard.tell)(&format!(
        "{label}no progress for {lasts:.1} s in call {call}: {awaited}"
    ));
}

pub(crate) fn failed(what: &'static str) -> impl FnOnce(io::Error) -> Error {
    move |error| Error::child(what, error)
}

pub(crate) fn one_child(
    mut command: Command,
    guard: &Guard,
    attempt: &Attempt,
    company: Company<'_>,
    watchers: &mut Watchers<'_>,
) -> Result<End, Error> {
    let page = company.page;
    let (reader, writer) = pipe().map_err(failed("making a pipe"))?;
    let text = format!("{},{}", page.descriptor(), writer.as_raw_fd());
    command.env(VARIABLE, text);
    if attempt.assignment.strategy == PlacementStrategy::Natural {
        let set = std::env::var("GLIBC_TUNABLES").map(|set| set + ":");
        command.env("GLIBC_TUNABLES", set.unwrap_or_default() + STEADY_MAP);
    }
    let assignment = serde_json::to_string(&attempt.assignment);
    command.env(ASSIGNMENT, assignment.unwrap_or_default());
    command.envs(company.variables);
    let given = company.given.iter().map(AsRawFd::as_raw_fd);
    let inherited: Vec<RawFd> = [page.descriptor(), writer.as_raw_fd()]
        .into_iter()
        .chain(given)
        .chain(company.lent)
        .collect();
    let randomise = attempt.randomise;
    // SAFETY: the closure runs between fork and exec and makes only async-signal-safe calls.
    unsafe { command.pre_exec(move || prepare(&inherited, randomise)) };
    let mut child = command.spawn().map_err(failed("starting it"))?;
    drop((writer, company.given));
    let reading = std::thread::spawn(move || {
        let mut bytes = Vec::new();
        let _ = File::from(reader).read_to_end(&mut bytes);
        bytes
    });
    let (status, hung) = watch(&mut child, page, guard, company.cancel, watchers)
        .map_err(failed("waiting for it"))?;
    let bytes = reading.join().unwrap_or_default();
    let mut message = serde_json::from_slice::<Message>(&bytes).ok();
    if status.code() != Some(EXIT_REPORTED)
        && let Some(report) = message.as_mut().and_then(Message::report_mut)
    {
        report.teardown = Some(teardown_text(status, hung));
    }
    Ok((message, status, hung))
}

/// How a child ended that had already written its message.
fn teardown_text(status: ExitStatus, hung: bool) -> String {
    match status.signal() {
        _ if hung => "the driver did not shut down in time, after the last call".to_owned(),
        Some(signal) => {
            format!("the driver crashed while shutting down, after the last call (signal {signal})")
        }
        None => format!("the process ended with another status after the last call: {status}"),
    }
}

/// Waits for the child; kills it when a call takes too long. The watchdog starts anew with each
/// call. It does not time the planning of the trace, which reads a file and ends.
fn watch(
    child: &mut Child,
    page: &Page,
    guard: &Guard,
    cancel: &AtomicBool,
    watchers: &mut Watchers<'_>,
) -> io::Result<(ExitStatus, bool)> {
    let position = || {
        let counters = page.counters();
        let other = [&counters.steps, &counters.looks, &counters.planned];
        let other = other.map(|count| count.load(Ordering::Relaxed));
        (page.read(), other)
    };
    let mut seen = position();
    let mut since = Instant::now();
    let mut is_late = false;
    let planned = &page.counters().planned;
    let end = end_of(child);
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok((status, false));
        }
        if cancel.load(Ordering::Relaxed) {
            child.kill()?;
            return Ok((child.wait()?, false));
        }
        let now = position();
        if now != seen {
            seen = now;
            since = Instant::now();
            is_late = false;
            (watchers.progress)(now.0.1);
        } else if planned.load(Ordering::Relaxed) == 0 {
            since = Instant::now();
        } else if !is_late && since.elapsed() > guard.watchdog / 2 {
            is_late = true;
            (watchers.late)(child.id(), since.elapsed());
        } else if since.elapsed() > guard.watchdog {
            child.kill()?;
            return Ok((child.wait()?, true));
        }
        await_end(end.as_ref());
    }
}

/// A descriptor that can be read when the child has ended; `None` before Linux 5.3.
fn end_of(child: &Child) -> Option<OwnedFd> {
    // SAFETY: a system call without pointers.
    let descriptor = unsafe { libc::syscall(libc::SYS_pidfd_open, child.id(), 0) };
    let descriptor = RawFd::try_from(descriptor).ok().filter(|&new| new >= 0)?;
    // SAFETY: the system call made it, and nothing else owns it.
    Some(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

/// Waits until it is time to look again, or the child has ended.
fn await_end(end: Option<&OwnedFd>) {
    let Some(end) = end else {
        return std::thread::sleep(LOOK_EVERY);
    };
    let mut ready = libc::pollfd {
        fd: end.as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    };
    // SAFETY: one valid entry. A wait that is interrupted is one that is shorter.
    unsafe { libc::poll(&raw mut ready, 1, LOOK_EVERY.as_millis() as libc::c_int) };
}

/// In the child, before exec: keep these descriptors, end with the parent, and switch address
/// randomisation off unless it is wanted. Where the last is forbidden the replay goes on with
/// random addresses, and the report says so.
fn prepare(inherited: &[RawFd], randomise: bool) -> io::Result<()> {
    for &descriptor in inherited {
        // SAFETY: plain system call on a descriptor that the parent keeps open until after the
        // fork.
        if unsafe { libc::fcntl(descriptor, libc::F_SETFD, 0) } < 0 {
            return Err(io::Error::last_os_error());
        }
    }
    // SAFETY: plain system calls without pointers.
    unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        let persona = libc::personality(0xffff_ffff);
        if persona >= 0 && !randomise {
            libc::personality((persona | libc::ADDR_NO_RANDOMIZE) as libc::c_ulong);
        }
    }
    Ok(())
}

fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let mut ends = [0; 2];
    // SAFETY: the array has room for two descriptors, which are owned from here on.
    unsafe {
        if libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok((OwnedFd::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1])))
    }
}

/// The page and the pipe.
fn descriptors(text: &str) -> Option<(RawFd, RawFd)> {
    let mut parts = text.split(',');
    let mut next = || {
        parts
            .next()?
            .parse::<RawFd>()
            .ok()
            .filter(|&number| number >= 0)
    };
    Some((next()?, next()?))
}

/// The child's side of [`run_guarded`]: replays and reports through the pipe. Returns the exit
/// status for the process.
///
/// Outside of [`run_guarded`] it returns 2 and does nothing.
pub fn run_as_child(trace: &Trace, options: &Options) -> i32 {
    as_child(trace, options, |plan, options, position| {
        let report = replay_watched(trace, plan, options, position, &mut |_| {})?;
        Ok(Message::Report(Box::new(report)))
    })
}

/// The child's side of [`rerun_guarded`]: replays up to the calls of the job and has them measured;
/// `results` is asked for the measurements afterwards. Returns the exit status for the process.
///
/// Outside of [`rerun_guarded`] it returns 2 and does nothing.
pub fn rerun_as_child(
    trace: &Trace,
    options: &Options,
    job: Job,
    measure: Measure,
    results: &dyn Fn() -> serde_json::Value,
) -> i32 {
    as_child(trace, options, |plan, options, position| {
        let rerun = Rerun::new(job, measure, Arc::clone(position));
        let outcome = replay_measured(trace, plan, options, position, rerun)?;
        let results = results();
        Ok(Message::Measurements(Box::new(Measurements {
            outcome,
            results,
        })))
    })
}

/// The child's side of [`observe_guarded`]: replays, and reads memory around the calls of the job.
/// Returns the exit status for the process.
///
/// Each attempt writes the file of contents anew: one that an earlier child left is removed.
///
/// Outside of [`observe_guarded`] it returns 2 and does nothing.
pub fn observe_as_child(trace: &Trace, options: &Options, job: Observation) -> i32 {
    as_child(trace, options, |plan, options, position| {
        let _ = std::fs::remove_file(&job.contents);
        let observed = replay_observed(trace, plan, options, position, job)?;
        Ok(Message::Observed(Box::new(observed)))
    })
}

fn as_child(
    trace: &Trace,
    options: &Options,
    work: impl FnOnce(&Plan, &Options, &Arc<Position>) -> Result<Message, Error>,
) -> i32 {
    let variable = |name| std::env::var(name).ok();
    let given = variable(VARIABLE).and_then(|text| descriptors(&text));
    let assignment = variable(ASSIGNMENT).and_then(|text| serde_json::from_str(&text).ok());
    let (Some((page, pipe)), Some(assignment)) = (given, assignment) else {
        return 2;
    };
    let Assignment {
        strategy,
        lessons,
        waiting_launches,
        is_last,
    } = assignment;
    // What the driver starts must not take itself for a child of ours.
    // SAFETY: no other thread of this process has been started by us yet.
    unsafe {
        std::env::remove_var(VARIABLE);
        std::env::remove_var(ASSIGNMENT);
    }
    // SAFETY: as above; the variable is the guarding parent's.
    let Ok(peers) = (unsafe { Peers::from_environment() }) else {
        return 2;
    };
    // SAFETY: the guarding parent left these two descriptors open for this process; nothing else
    // uses them.
    let (page, pipe) = unsafe { (OwnedFd::from_raw_fd(page), OwnedFd::from_raw_fd(pipe)) };
    let Ok(page) = Page::map(page) else { return 2 };
    let plan: Plan = plan(trace);
    if let Some(mode) = plan.loading_mode {
        // The program may have set it for itself.
        // SAFETY: as above; planning starts no thread.
        unsafe { std::env::set_var("CUDA_MODULE_LOADING", mode) };
    }
    let options = Options {
        placement: strategy,
        lessons,
        waiting_launches,
        refuse_conflicts: !is_last,
        peers: peers.map(Arc::new),
        ..options.clone()
    };
    let position = Arc::new(Position::Shared(page));
    let message = match work(&plan, &options, &position) {
        Ok(message) => message,
        Err(error) => Message::Failed(error),
    };
    let Ok(text) = serde_json::to_vec(&message) else {
        return 2;
    };
    let peers = options
        .peers
        .as_ref()
        .filter(|_| !matches!(message, Message::Failed(_)));
    if let Some(peers) = peers {
        peers.finish();
    }
    if File::from(pipe).write_all(&text).is_err() {
        return 2;
    }
    if let Some(peers) = peers {
        peers.wait_for_release(&position);
    }
    EXIT_REPORTED
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_childs_descriptors_are_read() {
        for (text, expected) in [
            ("3,4", Some((3, 4))),
            ("3", None),
            ("3,-4", None),
            ("", None),
            ("a,b", None),
        ] {
            assert_eq!(descriptors(text), expected, "{text}");
        }
    }

    /// Runs a shell script as the only attempt.
    fn run_script(script: &str, guard: &Guard, is_planned: bool) -> End {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", script]);
        let attempt = Attempt::first(PlacementStrategy::None, guard);
        let page = Page::create().unwrap();
        let mut watchers = Watchers {
            progress: &mut |_| {},
            late: &mut |_, _| {},
        };
        let planned = &page.counters().planned;
        planned.store(is_planned.into(), Ordering::Relaxed);
        let company = Company::none(&page);
        let end = one_child(command, guard, &attempt, company, &mut watchers);
        assert_eq!(page.read(), (0, 0));
        end.unwrap()
    }

    #[test]
    fn a_child_dies_or_hangs() {
        let guard = Guard {
            attempts: 1,
            watchdog: Duration::from_millis(200),
            ..Guard::default()
        };
        for (script, is_planned, signal, hung) in [
            ("kill -SEGV $$", true, Some(11), false),
            ("exec sleep 30", true, Some(9), true),
            ("exit 5", true, None, false),
            // Planning takes longer than a call may.
            ("exec sleep 1", false, None, false),
        ] {
            let (message, status, was_hung) = run_script(script, &guard, is_planned);
            assert!(message.is_none(), "{script}");
            assert_eq!((status.signal(), was_hung), (signal, hung), "{script}");
        }
    }

    /// A script that writes a message into the pipe.
    fn writes(message: &str) -> String {
        format!(r#"fd=${{{VARIABLE}#*,}}; printf '{message}' > /proc/self/fd/${{fd%,*}}"#)
    }

    #[test]
    fn a_message_comes_through_the_pipe() {
        let guard = Guard {
            attempts: 1,
            watchdog: Duration::from_secs(20),
            ..Guard::default()
        };
        let script = writes(r#"{"Failed":{"NoReport":{"how":"x"}}}"#);
        let (message, ..) = run_script(&script, &guard, true);
        assert!(
            matches!(message, Some(Message::Failed(Error::NoReport { .. }))),
            "{message:?}"
        );
    }

    #[test]
    fn a_complete_report_survives_the_teardown() {
        let guard = Guard {
            attempts: 1,
            watchdog: Duration::from_millis(500),
            ..Guard::default()
        };
        let whole = Message::Report(Box::new(Report {
            calls: 7,
            ..Report::default()
        }));
        let whole = serde_json::to_string(&whole).unwrap();
        let half = whole.get(..whole.len() / 2).unwrap();
        for (text, end, expected) in [
            (&*whole, "exit 0", Some(None)),
            (&whole, "kill -SEGV $$", Some(Some("signal 11"))),
            (&whole, "exec sleep 30", Some(Some("in time"))),
            (&whole, "exit 9", Some(Some("exit status: 9"))),
            (half, "kill -SEGV $$", None),
        ] {
            let script = format!("{}; {end}", writes(text));
            let (message, ..) = run_script(&script, &guard, true);
            let teardown = message.map(|message| match message {
                Message::Report(report) if report.calls == 7 => report.teardown,
                other => panic!("{other:?}"),
            });
            match (teardown, expected) {
                (None, None) | (Some(None), Some(None)) => {}
                (Some(Some(text)), Some(Some(part))) if text.contains(part) => {}
                (found, _) => panic!("{end}: {found:?}"),
            }
        }
    }
}
