//! Runs a command to its end or its time limit.

use std::io::Read;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::Once;
use std::thread;
use std::time::{Duration, Instant};

/// A command that takes longer hangs.
const LIMIT: Duration = Duration::from_secs(180);

/// The result of a command.
#[derive(Debug)]
pub struct Output {
    /// The command line.
    pub command: String,
    /// The exit status; none if it was stopped at the time limit.
    pub status: Option<ExitStatus>,
    /// Its output.
    pub stdout: String,
    /// Its error output.
    pub stderr: String,
}

impl Output {
    /// The exit status as in a shell: 128 + N for signal N; none if it was stopped at the time
    /// limit.
    pub fn code(&self) -> Option<i32> {
        let status = self.status?;
        status.code().or(status.signal().map(|signal| 128 + signal))
    }

    /// The signal that ended it.
    pub fn signal(&self) -> Option<i32> {
        self.status.and_then(|status| status.signal())
    }

    /// Command, status and output, for the message of a failed test.
    pub fn describe(&self) -> String {
        let end = match self.code() {
            Some(code) => format!("status {code}"),
            None => "stopped at its time limit".to_owned(),
        };
        format!(
            "$ {}\n{end}\n--- stdout\n{}--- stderr\n{}---",
            self.command,
            shortened(&self.stdout),
            shortened(&self.stderr)
        )
    }

    /// Fails unless it ended with that status and printed nothing on stderr.
    ///
    /// # Errors
    /// Its result.
    pub fn expect(&self, code: i32) -> Result<(), String> {
        self.expect_code(code)?;
        self.expect_quiet()
    }

    /// Fails unless it ended with that status.
    ///
    /// # Errors
    /// Its result.
    pub fn expect_code(&self, code: i32) -> Result<(), String> {
        if self.code() == Some(code) {
            return Ok(());
        }
        Err(format!("expected status {code}\n{}", self.describe()))
    }

    /// [`Output::expect`] as an assertion.
    ///
    /// # Panics
    /// With its result.
    pub fn assert(&self, code: i32) {
        self.expect(code)
            .unwrap_or_else(|message| panic!("{message}"));
    }

    /// [`Output::expect_code`] as an assertion.
    ///
    /// # Panics
    /// With its result.
    pub fn assert_code(&self, code: i32) {
        self.expect_code(code)
            .unwrap_or_else(|message| panic!("{message}"));
    }

    /// [`Output::expect_quiet`] as an assertion.
    ///
    /// # Panics
    /// With the lines on stderr.
    pub fn assert_quiet(&self) {
        self.expect_quiet()
            .unwrap_or_else(|message| panic!("{message}"));
    }

    /// Fails if there is anything on stderr.
    ///
    /// # Errors
    /// The lines on stderr.
    pub fn expect_quiet(&self) -> Result<(), String> {
        if self.stderr.is_empty() {
            return Ok(());
        }
        Err(format!("expected nothing on stderr\n{}", self.describe()))
    }
}

/// The first lines of a long text.
fn shortened(text: &str) -> String {
    const LINES: usize = 60;
    let mut short: String = text
        .lines()
        .take(LINES)
        .flat_map(|line| [line, "\n"])
        .collect();
    let more = text.lines().count().saturating_sub(LINES);
    if more > 0 {
        short += &format!("({more} lines more)\n");
    }
    short
}

/// Removes the settings of cutape, CUDA and the loader that the tests may have been started with.
/// What the command itself sets stays.
pub fn without_settings(command: &mut Command) -> &mut Command {
    let set: Vec<_> = command
        .get_envs()
        .map(|(name, _)| name.to_owned())
        .collect();
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        let settings = [
            "CUTAPE_",
            "CUDA_",
            "NVIDIA_",
            "LD_PRELOAD",
            "LD_LIBRARY_PATH",
            "LD_AUDIT",
        ];
        // A library of the tests finds its other half by these.
        let is_bridge = text.starts_with("CUTAPE_GUM_BRIDGE_");
        let is_setting = settings.iter().any(|start| text.starts_with(start)) && !is_bridge;
        if is_setting && !set.contains(&name) {
            command.env_remove(&name);
        }
    }
    command
}

/// Runs a command [without settings](without_settings) and with nothing on its stdin. One that does
/// not end in time is stopped, with all that it started.
pub fn run(command: &mut Command) -> Output {
    run_within(command, LIMIT)
}

/// As [`run`], with another time limit.
pub fn run_within(command: &mut Command, limit: Duration) -> Output {
    without_core_files();
    let shown = show(command);
    without_settings(command);
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0);
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) => {
            let stderr = format!("cannot be run: {error}\n");
            return Output {
                command: shown,
                status: None,
                stdout: String::new(),
                stderr,
            };
        }
    };
    let stdout = collect(child.stdout.take());
    let stderr = collect(child.stderr.take());
    let start = Instant::now();
    let mut pause = Duration::from_millis(1);
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break Some(status),
            Ok(None) if start.elapsed() < limit => {}
            _ => {
                stop_group(child.id());
                let _ = child.wait();
                break None;
            }
        }
        thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(20));
    };
    // Processes that it left running would hold the pipes open.
    stop_group(child.id());
    let stdout = stdout.join().unwrap_or_default();
    let stderr = stderr.join().unwrap_or_default();
    Output {
        command: shown,
        status,
        stdout,
        stderr,
    }
}

fn collect(pipe: Option<impl Read + Send + 'static>) -> thread::JoinHandle<String> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut pipe) = pipe {
            // After an error the bytes before it are shown.
            let _ = pipe.read_to_end(&mut bytes);
        }
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

/// Ends every process of the group that the child leads.
pub(crate) fn stop_group(leader: u32) {
    // SAFETY: no memory is involved; the group is that of our own child, whose number is not given
    // anew while the group has members.
    unsafe { libc::kill(-(leader as i32), libc::SIGKILL) };
}

/// Programs that crash on purpose write no core files.
fn without_core_files() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let none = libc::rlimit {
            rlim_cur: 0,
            rlim_max: 0,
        };
        // SAFETY: the limit is valid for reading.
        unsafe { libc::setrlimit(libc::RLIMIT_CORE, &none) };
    });
}

/// The command line.
fn show(command: &Command) -> String {
    let settings = command.get_envs().filter_map(|(name, value)| {
        Some(format!(
            "{}={}",
            name.to_string_lossy(),
            quoted(&value?.to_string_lossy())
        ))
    });
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    settings
        .chain(words.map(|word| quoted(&word.to_string_lossy())))
        .collect::<Vec<_>>()
        .join(" ")
}

fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,@+%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}
