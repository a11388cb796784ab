//! Moving the full stages of the traces that a recording writes, so that the program's threads need not.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use cutape_format::Mover;

/// How long it is waited after something was moved. A thread that does nothing but call fills a stage in some 80 us.
const SHORTEST: Duration = Duration::from_micros(20);
/// At least so much of the time between the last two times that something was moved, but not longer than a thread takes to fill the
/// stages that it can have besides the one that is being waited for.
const PATIENT: Duration = Duration::from_micros(400);
/// And at most, when nothing comes.
const LONGEST: Duration = Duration::from_millis(10);
/// How often it is looked for traces of further processes.
const LOOK: Duration = Duration::from_millis(200);

/// Moves until it is dropped.
pub(crate) struct Moving {
    stop: Option<mpsc::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// Whether it is worth it: on a machine with one processor it would only be in the way.
pub(crate) fn is_worth_it() -> bool {
    thread::available_parallelism().is_ok_and(|number| number.get() > 1)
}

impl Moving {
    /// Begins. `traces` is asked again and again for those that are being written.
    pub(crate) fn begin(traces: impl Fn() -> Vec<PathBuf> + Send + 'static) -> Self {
        let (stop, stopped) = mpsc::channel();
        let thread = thread::Builder::new()
            .name("mover".to_owned())
            .spawn(move || run(&traces, &stopped));
        Self {
            stop: Some(stop),
            // Without this thread those of the program do it.
            thread: thread.ok(),
        }
    }
}

impl Drop for Moving {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn run(traces: &dyn Fn() -> Vec<PathBuf>, stopped: &mpsc::Receiver<()>) {
    sleep_precisely();
    let mut movers = Movers::default();
    let (mut moved, mut between) = (Instant::now(), Duration::ZERO);
    loop {
        if movers.look_and_move(traces) {
            (moved, between) = (Instant::now(), moved.elapsed());
        }
        // Where stages come rarely, it is looked rarely; and the longer nothing has come.
        let least = (between / 8).clamp(SHORTEST, PATIENT);
        let pause = (moved.elapsed() / 4).clamp(least, LONGEST);
        if stopped.recv_timeout(pause) != Err(RecvTimeoutError::Timeout) {
            return;
        }
    }
}

/// Movers of all traces that were found.
#[derive(Default)]
struct Movers {
    all: HashMap<PathBuf, Attended>,
    looked: Option<Instant>,
}

/// A trace: its mover, unless that cannot be had any more, and how many stages it has moved.
struct Attended {
    mover: Option<Mover>,
    moved: usize,
}

impl Drop for Movers {
    fn drop(&mut self) {
        for (path, attended) in &self.all {
            let moved = attended.moved;
            tracing::info!("{moved} stages of {} were moved from here", path.display());
        }
    }
}

impl Movers {
    /// Moves what is full; whether there was anything.
    fn look_and_move(&mut self, traces: &dyn Fn() -> Vec<PathBuf>) -> bool {
        let pause = if self.all.is_empty() { LONGEST } else { LOOK };
        if self.looked.is_none_or(|looked| looked.elapsed() >= pause) {
            for trace in traces() {
                self.attend(trace);
            }
            for Attended { mover, .. } in self.all.values_mut() {
                // One that cannot be seen from here, as in a container, goes on by itself.
                if mover.as_ref().is_some_and(|mover| !exists(mover.process())) {
                    *mover = None;
                }
            }
            self.looked = Some(Instant::now());
        }
        let mut has_moved = false;
        for (path, attended) in &mut self.all {
            match attended.mover.as_mut().map(Mover::move_full) {
                None => {}
                Some(Ok(moved)) => {
                    attended.moved += moved;
                    has_moved |= moved > 0;
                }
                Some(Err(error)) => {
                    // The program's threads go on by themselves, and say so if the disk is full.
                    tracing::info!("no more of {} is moved: {error}", path.display());
                    attended.mover = None;
                }
            }
        }
        has_moved
    }

    fn attend(&mut self, trace: PathBuf) {
        if self.all.contains_key(&trace) {
            return;
        }
        let mover = match Mover::attend(&trace) {
            Ok(Some(mover)) => Some(mover),
            // Not begun yet.
            Ok(None) => return,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return,
            Err(error) => {
                tracing::info!("{} is not moved from here: {error}", trace.display());
                None
            }
        };
        self.all.insert(trace, Attended { mover, moved: 0 });
    }
}

fn exists(process: u32) -> bool {
    Path::new(&format!("/proc/{process}")).exists()
}

/// Sleeps of this thread end when they are to, and not up to 50 us later.
fn sleep_precisely() {
    // SAFETY: only the calling thread's timers are concerned.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1_000 as libc::c_ulong) };
}
