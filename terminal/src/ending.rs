//! How cutape ends before its work is done: by a signal, or because a file that it reads is
//! truncated. What it was writing is removed.

use std::ffi::c_void;
use std::fs::{self, File};
use std::io;
use std::ops::ControlFlow;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitStatus};
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use cutape_maps::Mapping;

use crate::failure::UNUSABLE;

/// How often removing is tried while the other threads may still write.
const TRIES: u32 = 50;
/// Between two looks whether a process has ended.
const LOOK: Duration = Duration::from_millis(10);
/// Signals that end a program.
const ENDING: [libc::c_int; 3] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP];

/// Folders in progress.
static PARTIAL: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());
/// Groups of processes that end with the program.
static GROUPS: Mutex<Vec<libc::pid_t>> = Mutex::new(Vec::new());
/// Another thread ends the program, and removes what is in progress.
static IS_ENDING: AtomicBool = AtomicBool::new(false);
/// A thread waits for signals.
static IS_WATCHED: AtomicBool = AtomicBool::new(false);
/// The status if a signal does not say it; 0 while it does.
static STATUS: AtomicI32 = AtomicI32::new(0);

fn partial() -> MutexGuard<'static, Vec<PathBuf>> {
    PARTIAL.lock().unwrap_or_else(PoisonError::into_inner)
}

fn groups() -> MutexGuard<'static, Vec<libc::pid_t>> {
    GROUPS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A process, and those that it starts, in a group of their own, which is killed when this is
/// dropped or a signal ends the program.
#[derive(Debug)]
pub struct Group {
    child: Child,
    /// It was waited for, so that its number may be another's.
    is_over: bool,
}

impl Group {
    /// Starts it.
    ///
    /// # Errors
    /// As [`Command::spawn`].
    pub fn start(command: &mut Command) -> io::Result<Self> {
        // Not between starting it and listing it does the program end.
        let mut groups = groups();
        let child = command.process_group(0).spawn()?;
        let group = Self {
            child,
            is_over: false,
        };
        groups.push(group.number());
        Ok(group)
    }

    fn number(&self) -> libc::pid_t {
        self.child.id().cast_signed()
    }

    /// Its output, if that is piped and was not taken.
    pub fn take_output(&mut self) -> Option<ChildStdout> {
        self.child.stdout.take()
    }

    /// Waits until the process has ended.
    ///
    /// # Errors
    /// As [`Child::wait`].
    pub fn wait(mut self) -> io::Result<ExitStatus> {
        // SAFETY: all-zero is a value of that type, which the call may write.
        unsafe {
            let mut facts: libc::siginfo_t = std::mem::zeroed();
            let flags = libc::WEXITED | libc::WNOWAIT;
            while libc::waitid(libc::P_PID, self.child.id(), &raw mut facts, flags) < 0
                && io::Error::last_os_error().kind() == io::ErrorKind::Interrupted
            {}
        }
        // It keeps its number until here.
        self.leave();
        self.child.wait()
    }

    /// Waits until the process has ended, and kills the group if it takes longer than that: then
    /// `None`.
    ///
    /// # Errors
    /// As [`Child::wait`].
    pub fn wait_within(self, limit: Duration) -> io::Result<Option<ExitStatus>> {
        let begin = Instant::now();
        while !self.has_ended() {
            if begin.elapsed() > limit {
                return Ok(None);
            }
            thread::sleep(LOOK);
        }
        self.wait().map(Some)
    }

    fn has_ended(&self) -> bool {
        // SAFETY: all-zero is a value of that type, which the call may write.
        unsafe {
            let mut facts: libc::siginfo_t = std::mem::zeroed();
            let flags = libc::WEXITED | libc::WNOWAIT | libc::WNOHANG;
            libc::waitid(libc::P_PID, self.child.id(), &raw mut facts, flags) < 0
                || facts.si_pid() != 0
        }
    }

    fn leave(&mut self) {
        let number = self.number();
        groups().retain(|other| *other != number);
        self.is_over = true;
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if !self.is_over {
            kill_group(self.number());
            self.leave();
            let _ = self.child.wait();
        }
    }
}

fn kill_group(group: libc::pid_t) {
    // SAFETY: no memory is involved. A group that has ended is an error, which does not matter.
    unsafe { libc::kill(-group, libc::SIGKILL) };
}

/// Makes a folder that is removed if the program ends early.
pub(crate) fn begin_partial(folder: &Path, mode: u32) -> io::Result<()> {
    // Not between making the folder and listing it does the program end.
    let mut folders = partial();
    fs::DirBuilder::new().mode(mode).create(folder)?;
    folders.push(folder.to_owned());
    Ok(())
}

/// The folder is finished, or was removed.
pub(crate) fn end_partial(folder: &Path) {
    partial().retain(|other| other != folder);
}

/// Does not return while another thread ends the program: writing may have failed because of that.
pub(crate) fn await_ending() {
    while IS_ENDING.load(Ordering::Relaxed) {
        thread::park();
    }
}

/// Has what would end the program end in an error instead: writing beyond the limit on the size of
/// files, and reading a mapped file that another program has truncated. Programs that this one
/// starts have neither handler.
pub fn survive_files() {
    let on_limit = ignore as extern "C" fn(libc::c_int);
    let on_fault =
        on_bus_error as extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut c_void) -> ();
    for (signal, handler, flags) in [
        (libc::SIGXFSZ, on_limit as usize, libc::SA_RESTART),
        (libc::SIGBUS, on_fault as usize, libc::SA_SIGINFO),
    ] {
        // SAFETY: all-zero is a valid action with an empty mask; the handlers make only calls that
        // are allowed in them.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = handler;
            action.sa_flags = flags;
            libc::sigaction(signal, &raw const action, std::ptr::null_mut());
        }
    }
}

extern "C" fn ignore(_: libc::c_int) {}

extern "C" fn on_bus_error(signal: libc::c_int, info: *mut libc::siginfo_t, _: *mut c_void) {
    // SAFETY: the system passes a valid structure.
    let (code, address) = unsafe { ((*info).si_code, (*info).si_addr() as u64) };
    if code > 0 && say_truncated(address) {
        end(i32::from(UNUSABLE));
    }
    // A fault of something else happens again, and then ends the program.
    // SAFETY: restores the default; `raise` waits until this returns.
    unsafe {
        libc::signal(signal, libc::SIG_DFL);
        if code <= 0 {
            libc::raise(signal);
        }
    }
}

/// Names on stderr the file that is mapped at an address to be read; false if there is none.
/// Allocates nothing.
fn say_truncated(address: u64) -> bool {
    let Ok(list) = File::open("/proc/self/maps") else {
        return false;
    };
    let mut piece = [0; 5000];
    let mut is_said = false;
    let _ = cutape_maps::for_each_line(list, &mut piece, |line| {
        let holds = |map: &Mapping<'_>| (map.start..map.end).contains(&address);
        let Some(map) = Mapping::parse(line).filter(holds) else {
            return ControlFlow::Continue(());
        };
        if map.permissions == b"r--s" {
            is_said = true;
            let why = b": another program has truncated it while it was read";
            for part in [&b"cutape: "[..], map.path, why, b"\n"] {
                // SAFETY: the bytes are valid for reading. A failed write cannot be reported.
                unsafe { libc::write(libc::STDERR_FILENO, part.as_ptr().cast(), part.len()) };
            }
        }
        ControlFlow::Break(())
    });
    is_said
}

/// Ends the program from a handler.
fn end(status: i32) -> ! {
    STATUS.store(status, Ordering::Relaxed);
    if !IS_WATCHED.load(Ordering::Relaxed) {
        // SAFETY: ends the process at once.
        unsafe { libc::_exit(status) };
    }
    // SAFETY: the thread that waits for signals receives it, since all others block it.
    unsafe { libc::kill(libc::getpid(), libc::SIGRTMIN()) };
    loop {
        // SAFETY: waits until that thread has ended the process.
        unsafe { libc::pause() };
    }
}

/// Has signals that end the program remove what it is writing. Called before other threads start.
/// Programs that this one starts have no signal blocked.
pub fn clean_up_on_signals() {
    let set = ending_signals();
    let block = |how| {
        // SAFETY: the set is valid; the mask of this thread is not asked for.
        unsafe { libc::pthread_sigmask(how, &raw const set, std::ptr::null_mut()) };
    };
    block(libc::SIG_BLOCK);
    match thread::Builder::new().spawn(move || await_signal(&set)) {
        Ok(_) => IS_WATCHED.store(true, Ordering::Relaxed),
        // Without a thread, signals end the program at once.
        Err(_) => block(libc::SIG_UNBLOCK),
    }
}

/// The signals that a thread waits for: those that end the program and are not ignored, and that of
/// `end`.
fn ending_signals() -> libc::sigset_t {
    // SAFETY: all-zero sets and actions are values of their types, which the calls write.
    unsafe {
        let mut set = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        libc::sigaddset(&raw mut set, libc::SIGRTMIN());
        for signal in ENDING {
            let mut action: libc::sigaction = std::mem::zeroed();
            libc::sigaction(signal, std::ptr::null(), &raw mut action);
            if action.sa_sigaction != libc::SIG_IGN {
                libc::sigaddset(&raw mut set, signal);
            }
        }
        set
    }
}

fn await_signal(set: &libc::sigset_t) {
    let mut signal = 0;
    // SAFETY: the set and the number are valid while it waits.
    while unsafe { libc::sigwait(set, &raw mut signal) } != 0 {}
    IS_ENDING.store(true, Ordering::Relaxed);
    // Until the process has ended: other threads start none any more.
    let groups = groups();
    groups.iter().copied().for_each(kill_group);
    cutape_format::remove_temporary_files();
    // Until the process has ended: other threads make none any more.
    let folders = partial();
    for folder in &*folders {
        for _ in 0..TRIES {
            match fs::remove_dir_all(folder) {
                Ok(()) => break,
                Err(error) if error.kind() == io::ErrorKind::NotFound => break,
                Err(_) => thread::sleep(Duration::from_millis(10)),
            }
        }
    }
    let status = match STATUS.load(Ordering::Relaxed) {
        0 => 128 + signal,
        status => status,
    };
    // SAFETY: ends the process at once, without the destructors that other threads still use.
    unsafe { libc::_exit(status) };
}
