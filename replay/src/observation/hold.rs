//! Work of streams that is kept back until it is let go.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::Duration;

use cutape_registry::id;

use crate::api::{Api, Code, INVALID_VALUE};

/// How long work is kept back: the program may wait for it.
pub(crate) const PATIENCE: Duration = Duration::from_secs(5);
/// The value that a stream waits for; it waits until the one in memory is as great.
const GO: u32 = 1;
/// The page of such values.
const PAGE: usize = 4096;

/// The works of a wanted order that were enqueued.
#[derive(Debug, Default)]
pub(crate) struct OrderedWork {
    /// By call: what keeps its work back, and the event after it.
    pub(crate) pending: BTreeMap<u64, (Option<Hold>, Option<u64>)>,
    /// What keeps back the work of the call in progress.
    pub(crate) hold: Option<Hold>,
    /// How many of the order are complete.
    pub(crate) complete: usize,
    /// Why the work does not run in that order. It runs in any order from then on.
    pub(crate) failure: Option<String>,
}

impl OrderedWork {
    /// The order cannot be kept: nothing is kept back any longer.
    pub(crate) fn fail(&mut self, why: String) {
        self.failure.get_or_insert(why);
        self.hold = None;
        self.pending.clear();
    }
}

/// A stream that waits. It goes on when this is dropped, and after some seconds.
#[derive(Debug)]
pub(crate) struct Hold {
    /// Closed to let the stream go on.
    go: Option<Sender<()>>,
    ran_out: Arc<AtomicBool>,
    watcher: Option<JoinHandle<()>>,
}

impl Hold {
    /// Lets a live stream of the current context wait.
    ///
    /// # Errors
    /// The driver refuses a call.
    pub(crate) fn new(api: &Api, (stream, per_thread): (u64, bool)) -> Result<Self, Code> {
        let word = free_word(api)?;
        let id = match per_thread {
            true => id::cuStreamWaitValue32_v2_ptsz,
            false => id::cuStreamWaitValue32_v2,
        };
        const GREATER_OR_EQUAL: u64 = 0;
        let address = std::ptr::from_ref(word) as u64;
        api.own(id, &[stream, address, GO.into(), GREATER_OR_EQUAL])?;
        let (go, gone) = channel::<()>();
        let ran_out = Arc::new(AtomicBool::new(false));
        let is_late = Arc::clone(&ran_out);
        // Beside the thread of the replay, which may be in a call that waits for that stream.
        let watcher = std::thread::Builder::new().spawn(move || {
            if gone.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Timeout) {
                is_late.store(true, Ordering::SeqCst);
            }
            word.store(GO, Ordering::SeqCst);
        });
        if watcher.is_err() {
            // Nothing would let the stream go on.
            word.store(GO, Ordering::SeqCst);
            ran_out.store(true, Ordering::SeqCst);
        }
        Ok(Self {
            go: Some(go),
            ran_out,
            watcher: watcher.ok(),
        })
    }

    /// Lets the stream go on. True if it was kept back until now.
    pub(crate) fn let_go(mut self) -> bool {
        let is_late = self.ran_out.load(Ordering::SeqCst);
        self.end();
        !is_late
    }

    fn end(&mut self) {
        self.go = None;
        if let Some(watcher) = self.watcher.take() {
            let _ = watcher.join();
        }
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.end();
    }
}

/// A word in page-locked memory that nothing has used, which lives as long as the process.
fn free_word(api: &Api) -> Result<&'static AtomicU32, Code> {
    static WORDS: OnceLock<u64> = OnceLock::new();
    static USED: AtomicUsize = AtomicUsize::new(0);
    let address = match WORDS.get() {
        Some(&address) => address,
        None => {
            let address = api.allocate_portable(PAGE as u64)?;
            *WORDS.get_or_init(|| address)
        }
    };
    let at = 4 * USED.fetch_add(1, Ordering::Relaxed);
    if at >= PAGE {
        return Err(INVALID_VALUE);
    }
    // SAFETY: the driver has allocated a page of host memory there, aligned, for all contexts, and
    // nothing frees it or uses this word of it otherwise.
    let word = unsafe { AtomicU32::from_ptr((address as usize + at) as *mut u32) };
    word.store(0, Ordering::SeqCst);
    Ok(word)
}
