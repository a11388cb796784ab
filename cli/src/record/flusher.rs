//! Flushes the thread buffers of running recordings from outside, so that the program's threads need not.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use cutape_format::Mover;

/// The shortest pause after a flush. A thread that only makes calls fills a buffer in about 80 us.
const SHORTEST_PAUSE: Duration = Duration::from_micros(20);
/// The pause never exceeds this while buffers fill: within it a thread fills its spare buffers.
const BUSY_PAUSE: Duration = Duration::from_micros(400);
/// The longest pause, when no buffer fills.
const LONGEST_PAUSE: Duration = Duration::from_millis(10);
/// How often to look for traces of further processes.
const SCAN_INTERVAL: Duration = Duration::from_millis(200);

/// Flushes until dropped.
pub(crate) struct Flusher {
    stop: Option<mpsc::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// Whether a flusher helps: with one processor it would compete with the program.
pub(crate) fn is_useful() -> bool {
    thread::available_parallelism().is_ok_and(|number| number.get() > 1)
}

impl Flusher {
    /// Starts. `traces` lists the traces being written, and is called repeatedly.
    pub(crate) fn start(traces: impl Fn() -> Vec<PathBuf> + Send + 'static) -> Self {
        let (stop, stopped) = mpsc::channel();
        let thread = thread::Builder::new()
            .name("flusher".to_owned())
            .spawn(move || run(&traces, &stopped));
        Self {
            stop: Some(stop),
            // Without this thread, the program's threads flush.
            thread: thread.ok(),
        }
    }
}

impl Drop for Flusher {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn run(traces: &dyn Fn() -> Vec<PathBuf>, stopped: &mpsc::Receiver<()>) {
    sleep_precisely();
    let mut files = TraceFiles::default();
    let (mut flushed, mut interval) = (Instant::now(), Duration::ZERO);
    loop {
        if files.flush(traces) {
            (flushed, interval) = (Instant::now(), flushed.elapsed());
        }
        // The rarer the flushes, and the longer since the last one, the longer the pause.
        let least = (interval / 8).clamp(SHORTEST_PAUSE, BUSY_PAUSE);
        let pause = (flushed.elapsed() / 4).clamp(least, LONGEST_PAUSE);
        if stopped.recv_timeout(pause) != Err(RecvTimeoutError::Timeout) {
            return;
        }
    }
}

/// The traces found so far.
#[derive(Default)]
struct TraceFiles {
    files: HashMap<PathBuf, TraceFile>,
    scanned: Option<Instant>,
}

/// A trace: its flusher, `None` once it cannot be flushed from here; and the buffers flushed.
struct TraceFile {
    flusher: Option<Mover>,
    buffers: usize,
}

impl Drop for TraceFiles {
    fn drop(&mut self) {
        for (path, file) in &self.files {
            let buffers = file.buffers;
            tracing::info!("flushed {buffers} thread buffers of {}", path.display());
        }
    }
}

impl TraceFiles {
    /// Flushes full buffers; returns whether any was full.
    fn flush(&mut self, traces: &dyn Fn() -> Vec<PathBuf>) -> bool {
        let pause = if self.files.is_empty() {
            LONGEST_PAUSE
        } else {
            SCAN_INTERVAL
        };
        if self
            .scanned
            .is_none_or(|scanned| scanned.elapsed() >= pause)
        {
            for trace in traces() {
                self.attach(trace);
            }
            for TraceFile { flusher, .. } in self.files.values_mut() {
                // A process in another pid namespace flushes its own buffers.
                if flusher.as_ref().is_some_and(|f| !exists(f.process())) {
                    *flusher = None;
                }
            }
            self.scanned = Some(Instant::now());
        }
        let mut flushed_any = false;
        for (path, file) in &mut self.files {
            match file.flusher.as_mut().map(Mover::move_full) {
                None => {}
                Some(Ok(buffers)) => {
                    file.buffers += buffers;
                    flushed_any |= buffers > 0;
                }
                Some(Err(error)) => {
                    // The program's threads continue, and report a full disk.
                    tracing::info!("stopped flushing {}: {error}", path.display());
                    file.flusher = None;
                }
            }
        }
        flushed_any
    }

    fn attach(&mut self, trace: PathBuf) {
        if self.files.contains_key(&trace) {
            return;
        }
        let flusher = match Mover::attend(&trace) {
            Ok(Some(flusher)) => Some(flusher),
            // The program has not written the header yet.
            Ok(None) => return,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return,
            Err(error) => {
                tracing::info!("cannot flush {}: {error}", trace.display());
                None
            }
        };
        self.files.insert(
            trace,
            TraceFile {
                flusher,
                buffers: 0,
            },
        );
    }
}

fn exists(process: u32) -> bool {
    Path::new(&format!("/proc/{process}")).exists()
}

/// Sets this thread's timer slack from 50 us, the default, to 1 us.
fn sleep_precisely() {
    // SAFETY: changes only the calling thread's timers.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1_000 as libc::c_ulong) };
}
