//! A verb in a process of its own: its memory, its time and its bugs stay outside of the server.

use std::ffi::OsString;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::runtime::Handle;

/// The longest output that is read; its JSON takes several times as much memory.
const MOST_OUTPUT: u64 = 32 << 20;
/// How much of what a verb says on stderr is passed on.
const MOST_MESSAGES: u64 = 16 << 10;

/// How long a process may take to end when it is asked to.
const END: Duration = Duration::from_secs(5);

/// How much of the output is wanted.
#[derive(Clone, Copy)]
pub(super) enum Wanted {
    All,
    /// The first lines.
    Lines {
        most: usize,
        bytes: usize,
    },
}

/// What a verb has printed.
pub(super) struct Printed {
    pub(super) output: Vec<u8>,
    /// Whether there is more output than was wanted.
    pub(super) more: bool,
    /// `None`: a signal ended it, or it was ended because there is enough output.
    pub(super) status: Option<i32>,
    pub(super) messages: String,
}

/// Runs the program until it ends, there is enough output, or time is up. If the future is dropped,
/// the process ends too.
pub(super) async fn run(
    program: &Path,
    words: &[OsString],
    wanted: Wanted,
    limit: Duration,
) -> Result<Printed, String> {
    let done = tokio::time::timeout(limit, start(program, words, wanted)).await;
    done.unwrap_or_else(|_| {
        Err(format!(
            "not done after {} s; ask for less, or have the user raise --time-limit",
            limit.as_secs()
        ))
    })
}

async fn start(program: &Path, words: &[OsString], wanted: Wanted) -> Result<Printed, String> {
    let mut command = Command::new(program);
    command
        .args(words)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    // SAFETY: the closure makes one system call without pointers.
    unsafe {
        command.pre_exec(|| {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM);
            Ok(())
        });
    }
    let cannot = |error| format!("cannot start {}: {error}", program.display());
    let mut child = command.spawn().map_err(cannot)?;
    let (output, errors) = (child.stdout.take(), child.stderr.take());
    let mut running = Running(Some(child));
    let (Some(output), Some(errors)) = (output, errors) else {
        return Err("a process without output".to_owned());
    };
    let mut printed = Printed {
        output: Vec::new(),
        more: false,
        status: None,
        messages: String::new(),
    };
    let read = async {
        printed.more = match wanted {
            Wanted::All => read_all(output, &mut printed.output).await?,
            Wanted::Lines { most, bytes } => {
                read_lines(output, most, bytes, &mut printed.output).await?
            }
        };
        // Enough was read: it need not say any more.
        match printed.more {
            true => Err(None),
            false => Ok(()),
        }
    };
    let mut messages = Vec::new();
    let both = tokio::try_join!(read, read_messages(errors, &mut messages));
    match both {
        Err(Some(error)) => return Err(format!("reading an answer: {error}")),
        Err(None) if matches!(wanted, Wanted::All) => {
            return Err(format!(
                "the answer has more than {} MiB; ask about fewer calls",
                MOST_OUTPUT >> 20
            ));
        }
        Err(None) => {}
        Ok(_) => {
            if let Some(child) = &mut running.0 {
                let status = child.wait().await;
                printed.status = status.ok().and_then(|status| status.code());
            }
        }
    }
    printed.messages = String::from_utf8_lossy(&messages).trim().to_owned();
    Ok(printed)
}

/// `None` stands for enough output.
type Stopped = Option<std::io::Error>;

async fn read_all(output: impl AsyncRead + Unpin, into: &mut Vec<u8>) -> Result<bool, Stopped> {
    let mut limited = output.take(MOST_OUTPUT + 1);
    let read = limited.read_to_end(into).await.map_err(Some)?;
    Ok(read as u64 > MOST_OUTPUT)
}

/// Reads lines until there are so many, or so many bytes: at least one.
async fn read_lines(
    output: impl AsyncRead + Unpin,
    most: usize,
    bytes: usize,
    into: &mut Vec<u8>,
) -> Result<bool, Stopped> {
    let mut lines = BufReader::new(output.take(MOST_OUTPUT));
    let (mut count, mut line) = (0, Vec::new());
    loop {
        line.clear();
        if lines.read_until(b'\n', &mut line).await.map_err(Some)? == 0 {
            return Ok(false);
        }
        if count == most || count > 0 && into.len() + line.len() > bytes {
            return Ok(true);
        }
        count += 1;
        into.extend_from_slice(&line);
    }
}

/// Reads all that is said, and keeps the first part.
async fn read_messages(
    mut errors: impl AsyncRead + Unpin,
    into: &mut Vec<u8>,
) -> Result<(), Stopped> {
    let mut first = (&mut errors).take(MOST_MESSAGES);
    first.read_to_end(into).await.map_err(Some)?;
    let mut rest = tokio::io::sink();
    tokio::io::copy(&mut errors, &mut rest)
        .await
        .map_err(Some)?;
    Ok(())
}

/// A process that ends with its owner, and removes its temporary files then.
struct Running(Option<Child>);

impl Drop for Running {
    fn drop(&mut self) {
        let Some(mut child) = self.0.take() else {
            return;
        };
        let Some(process) = child.id().and_then(|id| i32::try_from(id).ok()) else {
            return;
        };
        // SAFETY: no memory is involved. The process was not waited for, so the number is its.
        unsafe { libc::kill(process, libc::SIGTERM) };
        // Otherwise nothing waits for it before the next request.
        if let Ok(runtime) = Handle::try_current() {
            runtime.spawn(async move {
                if tokio::time::timeout(END, child.wait()).await.is_err() {
                    let _ = child.kill().await;
                }
            });
        }
    }
}
