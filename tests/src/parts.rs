//! The parts under test, built once: the program, the interposer, the null driver.

use std::ffi::OsStr;
use std::fs;
use std::os::fd::AsRawFd;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// The option of `record` and `check` that names the backend.
pub(crate) const BACKEND_OPTION: &str = "--backend";

/// Names an interposer that was built with other features, to be tested instead of the default one.
const OTHER_INTERPOSER: &str = "CUTAPE_TESTS_INTERPOSER";

/// Where the parts are.
#[derive(Debug)]
pub struct Parts {
    /// The program `cutape`.
    pub cutape: PathBuf,
    /// The library that records.
    pub interposer: PathBuf,
    /// The library that directs searches for libcuda to the interposer.
    pub audit: PathBuf,
    /// The software driver.
    pub null_driver: PathBuf,
    /// A folder in which the null driver is `libcuda.so.1`.
    pub driver_folder: PathBuf,
    /// The compiled test programs.
    pub programs: PathBuf,
    /// The folder of this run, removed at its end.
    pub scratch: PathBuf,
    /// The traces of failed tests.
    pub failed: PathBuf,
}

/// Commands of cargo that build the parts; the first is an alias.
const BUILDS: [&str; 3] = [
    "parts",
    "build --quiet --package cutape-interposer",
    "build --quiet --package cutape-audit",
];

static PARTS: OnceLock<Parts> = OnceLock::new();

/// The parts, in the profile that the tests were built in.
///
/// # Panics
/// If they cannot be built: no test can run then.
pub fn parts() -> &'static Parts {
    PARTS.get_or_init(|| build().unwrap_or_else(|error| panic!("{error}")))
}

impl Parts {
    /// A command of cutape. It records with the backend that `CUTAPE_TESTS_BACKEND` names, unless
    /// the arguments name one.
    pub fn cutape(&self, arguments: &[&dyn AsRef<OsStr>]) -> Command {
        let mut command = Command::new(&self.cutape);
        let mut words = arguments.iter().map(|argument| argument.as_ref());
        let verb = words.next();
        command.args(verb);
        let is_named = arguments.iter().any(|word| word.as_ref() == BACKEND_OPTION);
        if let Some(backend) = std::env::var_os("CUTAPE_TESTS_BACKEND")
            && verb.is_some_and(|verb| verb == "record" || verb == "check")
            && !is_named
        {
            command.arg(BACKEND_OPTION).arg(backend);
        }
        command.args(words);
        if std::env::var_os(OTHER_INTERPOSER).is_some() {
            command.env("CUTAPE_INTERPOSER", &self.interposer);
        }
        command
    }

    /// A new, empty folder for one test.
    pub fn new_folder(&self, name: &str) -> PathBuf {
        let folder = self.scratch.join(name);
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder)
            .unwrap_or_else(|error| panic!("cannot make {}: {error}", folder.display()));
        folder
    }
}

/// Removes what this run wrote.
pub fn clean_up() {
    if let Some(parts) = PARTS.get() {
        let _ = fs::remove_dir_all(&parts.scratch);
    }
}

fn build() -> Result<Parts, String> {
    // target/PROFILE/deps/TEST-HASH
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let profile = program
        .parent()
        .and_then(Path::parent)
        .ok_or_else(|| format!("{}: not in a target folder", program.display()))?;
    let end_to_end = profile.join("end-to-end");
    fs::create_dir_all(&end_to_end).map_err(|e| format!("{}: {e}", end_to_end.display()))?;
    let _lock = lock(&end_to_end.join("lock"))?;
    // One build for all test binaries that one `cargo test` runs.
    let built = end_to_end.join("built");
    let run = cargo_run();
    if run.is_none() || fs::read_to_string(&built).ok() != run {
        for words in BUILDS {
            cargo_build(profile, words)?;
        }
        fs::write(&built, run.unwrap_or_default())
            .map_err(|error| format!("{}: {error}", built.display()))?;
    }
    let parts = Parts {
        cutape: profile.join("cutape"),
        interposer: std::env::var_os(OTHER_INTERPOSER)
            .map_or(profile.join("libcutape_interposer.so"), PathBuf::from),
        audit: profile.join("libcutape_audit.so"),
        null_driver: profile.join("libcutape_null.so"),
        driver_folder: end_to_end.join("driver"),
        programs: end_to_end.join("programs"),
        scratch: end_to_end.join(format!("run-{}", std::process::id())),
        failed: end_to_end.join("failed"),
    };
    remove_old_runs(&end_to_end);
    for folder in [&parts.driver_folder, &parts.programs, &parts.scratch] {
        fs::create_dir_all(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    }
    let link = parts.driver_folder.join("libcuda.so.1");
    if fs::read_link(&link).ok().as_deref() != Some(&parts.null_driver) {
        let _ = fs::remove_file(&link);
        symlink(&parts.null_driver, &link).map_err(|e| format!("{}: {e}", link.display()))?;
    }
    Ok(parts)
}

/// The cargo process that runs this test binary: its id and start time; none if another program
/// runs it.
fn cargo_run() -> Option<String> {
    // The second field is the command in parentheses, the 22nd the start time.
    let parent = std::os::unix::process::parent_id();
    let stat = fs::read_to_string(format!("/proc/{parent}/stat")).ok()?;
    let (head, fields) = stat.rsplit_once(") ")?;
    let start = fields.split(' ').nth(19)?;
    (head.ends_with("(cargo")).then(|| format!("{parent} {start}"))
}

/// Removes the folders of runs that ended without removing them.
fn remove_old_runs(folder: &Path) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let process = name.to_str().and_then(|name| name.strip_prefix("run-"));
        if process.is_some_and(|process| !Path::new("/proc").join(process).exists()) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

fn cargo_build(profile: &Path, words: &str) -> Result<(), String> {
    let name = profile
        .file_name()
        .and_then(OsStr::to_str)
        .unwrap_or("debug");
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command
        .current_dir(root())
        .args(words.split(' '))
        .args(["--profile", if name == "debug" { "dev" } else { name }]);
    if let Some(target) = profile.parent() {
        command.arg("--target-dir").arg(target);
    }
    let output = command
        .output()
        .map_err(|error| format!("cannot run cargo: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!(
        "cargo {words}:\n{}",
        String::from_utf8_lossy(&output.stderr)
    ))
}

/// A lock that other processes of the same tests wait for; dropping it unlocks.
pub(crate) fn lock(path: &Path) -> Result<fs::File, String> {
    let failed = |error: std::io::Error| format!("cannot lock {}: {error}", path.display());
    let file = fs::OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .open(path)
        .map_err(failed)?;
    // SAFETY: the descriptor is open while the call lasts.
    if unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX) } != 0 {
        return Err(failed(std::io::Error::last_os_error()));
    }
    Ok(file)
}

/// The root of the repository.
pub fn root() -> &'static Path {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR"));
    tests.parent().unwrap_or(tests)
}
