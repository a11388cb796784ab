//! Takes away from a replaying process what a replay does not need, because a trace may be written
//! by somebody else, and a driver that it crashes may run code of that person's.
//!
//! [`enter`] applies the layers that the system has, each by itself: one that is refused leaves the
//! others. It says what was applied and what was not. [`support`] says it beforehand.
//!
//! Invariant: no layer is a condition of a replay. It is entered before there is a second thread,
//! because a layer holds for the thread that enters it and for those that it starts.

mod files;
mod system_calls;

use std::fmt;
use std::path::PathBuf;

/// What a process may do nevertheless.
#[derive(Clone, Debug, Default)]
pub struct Permissions {
    /// Files and folders that it may write, beside those that the driver needs.
    pub writable: Vec<PathBuf>,
    /// It opens files of processes beside it through `/proc`, as drivers do to share memory.
    pub has_peers: bool,
}

/// A part of the sandbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layer {
    /// What it takes away.
    pub what: &'static str,
    /// Why the system does not have it.
    pub refused: Option<String>,
}

impl fmt::Display for Layer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.refused {
            None => f.write_str(self.what),
            Some(why) => write!(f, "not applied: {} ({why})", self.what),
        }
    }
}

impl Layer {
    fn of(what: &'static str, applied: Result<(), String>) -> Self {
        Self {
            what,
            refused: applied.err(),
        }
    }
}

const PRIVILEGES: &str = "no new privileges";
const MEMORY: &str = "ends first if memory runs out, writes no core dump";

/// Restricts this thread, and those that it starts from now on.
pub fn enter(permissions: &Permissions) -> Vec<Layer> {
    vec![
        Layer::of(MEMORY, limit_memory()),
        // Both that follow need it.
        Layer::of(PRIVILEGES, forbid_privileges()),
        Layer::of(files::WHAT, restrict_files(permissions)),
        Layer::of(
            system_calls::SERVICES,
            system_calls::disconnect(permissions.has_peers),
        ),
        Layer::of(system_calls::WHAT, system_calls::restrict()),
    ]
}

/// The layers that [`enter`] would apply, without applying them.
pub fn support() -> Vec<Layer> {
    vec![
        Layer::of(MEMORY, Ok(())),
        Layer::of(PRIVILEGES, Ok(())),
        Layer::of(files::WHAT, files::is_supported()),
        Layer::of(system_calls::SERVICES, system_calls::can_disconnect(false)),
        Layer::of(system_calls::WHAT, system_calls::is_supported()),
    ]
}

/// A tool that the user has loaded into every program, such as a profiler: it needs more than a
/// driver does. The variable that loads it.
pub fn tool_in_process() -> Option<&'static str> {
    ["LD_PRELOAD", "LD_AUDIT", "CUDA_INJECTION64_PATH"]
        .into_iter()
        .find(|name| std::env::var_os(name).is_some_and(|value| !value.is_empty()))
}

fn restrict_files(permissions: &Permissions) -> Result<(), String> {
    match permissions.has_peers {
        // Landlock keeps processes out of each other's files, too.
        true => Err("ranks that are replayed together open each other's files".to_owned()),
        false => files::restrict(&permissions.writable),
    }
}

fn limit_memory() -> Result<(), String> {
    let none = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: the limit outlives the call.
    if unsafe { libc::setrlimit(libc::RLIMIT_CORE, &raw const none) } < 0 {
        return Err(last_error());
    }
    // CUDA reserves terabytes of addresses, so that no limit of addresses fits.
    std::fs::write("/proc/self/oom_score_adj", "1000").map_err(|error| error.to_string())
}

fn forbid_privileges() -> Result<(), String> {
    // SAFETY: no memory is involved.
    match unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) } {
        0 => Ok(()),
        _ => Err(last_error()),
    }
}

fn last_error() -> String {
    std::io::Error::last_os_error().to_string()
}
