//! The parent's side of one child: starts it, watches it, and reads what it has written.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::error::Error;
use crate::guard::attempt::{Attempt, Guard};
use crate::guard::message::{ASSIGNMENT, EXIT_REPORTED, Message, VARIABLE};
use crate::process::position::Page;
use crate::process::strategy::PlacementStrategy;
use crate::process::waiting_threads::STEADY_MAP;

/// How often the guard looks.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// How a child ended.
pub(crate) enum End {
    /// It wrote what it has found, before it or the driver ended.
    Reported(Message),
    /// It replayed nothing; another attempt may.
    Failed(Error),
    /// Without a message: by a signal, which is the guard's if it hung.
    Died { status: ExitStatus, hung: bool },
    /// Without a message: it exited.
    Silent(ExitStatus),
}

/// What a child does that has not ended, as its page shows it.
#[derive(Clone, Copy)]
enum Running {
    /// It reads the trace, which is not timed.
    Planning,
    /// Its last progress was then.
    Playing(Instant),
    /// As before, and half the watchdog's time has passed.
    Late(Instant),
}

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
    pub(crate) fn none(page: &'a Page) -> Self {
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

pub(crate) fn failed(what: &'static str) -> impl FnOnce(io::Error) -> Error {
    move |error| Error::child(what, error)
}

/// Starts a child, watches it, and says how it ended.
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
    // Before the child, which would be left alone if there is no thread. It ends with the writers.
    let reading = std::thread::Builder::new().spawn(move || {
        let mut bytes = Vec::new();
        let _ = File::from(reader).read_to_end(&mut bytes);
        bytes
    });
    let reading = reading.map_err(|error| Error::no_thread(&error))?;
    let mut child = command.spawn().map_err(failed("starting it"))?;
    drop((writer, company.given));
    let (status, hung) = watch(&mut child, page, guard, company.cancel, watchers)
        .map_err(failed("waiting for it"))?;
    let bytes = reading.join().unwrap_or_default();
    Ok(match serde_json::from_slice::<Message>(&bytes) {
        Ok(Message::Failed(error)) => End::Failed(error),
        Ok(mut message) => {
            if status.code() != Some(EXIT_REPORTED)
                && let Some(report) = message.report_mut()
            {
                report.teardown = Some(teardown_text(status, hung));
            }
            End::Reported(message)
        }
        Err(_) if hung || status.signal().is_some() => End::Died { status, hung },
        Err(_) => End::Silent(status),
    })
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
    let mut state = Running::Planning;
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
        let has_planned = page.counters().planned.load(Ordering::Relaxed) != 0;
        state = match state {
            _ if now != seen => {
                seen = now;
                (watchers.progress)(now.0.1);
                Running::Playing(Instant::now())
            }
            _ if !has_planned => Running::Planning,
            Running::Planning => Running::Playing(Instant::now()),
            Running::Playing(since) if since.elapsed() > guard.watchdog / 2 => {
                (watchers.late)(child.id(), since.elapsed());
                Running::Late(since)
            }
            Running::Late(since) if since.elapsed() > guard.watchdog => {
                child.kill()?;
                return Ok((child.wait()?, true));
            }
            waiting => waiting,
        };
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Report;

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
            let end = match run_script(script, &guard, is_planned) {
                End::Died { status, hung } => (status.signal(), hung),
                End::Silent(status) => (status.signal(), false),
                End::Reported(_) | End::Failed(_) => panic!("{script}: a message"),
            };
            assert_eq!(end, (signal, hung), "{script}");
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
        let end = run_script(&script, &guard, true);
        assert!(matches!(end, End::Failed(Error::NoReport { .. })));
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
            let teardown = match run_script(&script, &guard, true) {
                End::Reported(Message::Report(report)) if report.calls == 7 => {
                    Some(report.teardown)
                }
                End::Died { .. } => None,
                End::Reported(_) | End::Failed(_) | End::Silent(_) => panic!("{end}: no report"),
            };
            match (teardown, expected) {
                (None, None) | (Some(None), Some(None)) => {}
                (Some(Some(text)), Some(Some(part))) if text.contains(part) => {}
                (found, _) => panic!("{end}: {found:?}"),
            }
        }
    }
}
