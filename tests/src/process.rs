//! Running a command to its end or its time limit, and what it left.

use std::io::Read;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::Once;
use std::thread;
use std::time::{Duration, Instant};

/// Nothing in the tests takes as long; what does hangs.
const LIMIT: Duration = Duration::from_secs(60);

/// What a command did.
#[derive(Debug)]
pub struct Output {
    /// The command, for people to repeat.
    pub command: String,
    /// Status, or none if it was stopped at the time limit.
    pub status: Option<ExitStatus>,
    /// All that it printed.
    pub stdout: String,
    /// All that it complained.
    pub stderr: String,
}

impl Output {
    /// The exit status, or 128 and the signal as a shell says it; none if it was stopped at the
    /// time limit.
    pub fn code(&self) -> Option<i32> {
        let status = self.status?;
        status.code().or(status.signal().map(|signal| 128 + signal))
    }

    /// The signal that ended it.
    pub fn signal(&self) -> Option<i32> {
        self.status.and_then(|status| status.signal())
    }

    /// All about it, for the message of a failed test.
    pub fn describe(&self) -> String {
        let end = match self.code() {
            Some(code) => format!("status {code}"),
            None => format!("stopped after {} s", LIMIT.as_secs()),
        };
        format!(
            "$ {}\n{end}\n--- stdout\n{}--- stderr\n{}---",
            self.command,
            shortened(&self.stdout),
            shortened(&self.stderr)
        )
    }

    /// Fails unless it ended with that status and complained of nothing.
    ///
    /// # Errors
    /// What it did instead.
    pub fn expect(&self, code: i32) -> Result<(), String> {
        self.expect_code(code)?;
        self.expect_quiet()
    }

    /// Fails unless it ended with that status.
    ///
    /// # Errors
    /// What it did instead.
    pub fn expect_code(&self, code: i32) -> Result<(), String> {
        if self.code() == Some(code) {
            return Ok(());
        }
        Err(format!("expected status {code}\n{}", self.describe()))
    }

    /// [`Output::expect`] for tests that stand by themselves.
    ///
    /// # Panics
    /// With what it did instead.
    pub fn assert(&self, code: i32) {
        self.expect(code)
            .unwrap_or_else(|message| panic!("{message}"));
    }

    /// [`Output::expect_code`] for tests that stand by themselves.
    ///
    /// # Panics
    /// With what it did instead.
    pub fn assert_code(&self, code: i32) {
        self.expect_code(code)
            .unwrap_or_else(|message| panic!("{message}"));
    }

    /// [`Output::expect_quiet`] for tests that stand by themselves.
    ///
    /// # Panics
    /// With what is there.
    pub fn assert_quiet(&self) {
        self.expect_quiet()
            .unwrap_or_else(|message| panic!("{message}"));
    }

    /// Fails if there is anything on stderr.
    ///
    /// # Errors
    /// What is there.
    pub fn expect_quiet(&self) -> Result<(), String> {
        if self.stderr.is_empty() {
            return Ok(());
        }
        Err(format!("expected nothing on stderr\n{}", self.describe()))
    }
}

/// Enough for people; a dump of a long trace is not.
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
            Ok(None) if start.elapsed() < LIMIT => {}
            _ => {
                stop_group(child.id());
                let _ = child.wait();
                break None;
            }
        }
        thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(20));
    };
    // What it left running would hold the pipes open.
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
            // What was read before an error is all that there is to show.
            let _ = pipe.read_to_end(&mut bytes);
        }
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

/// Ends every process of the group that the child leads.
fn stop_group(leader: u32) {
    // SAFETY: no memory is involved; the group is that of our own child, whose number is not given
    // anew while the group has members.
    unsafe { libc::kill(-(leader as i32), libc::SIGKILL) };
}

/// Programs that crash on purpose leave no files behind.
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

/// The command as one would type it.
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
