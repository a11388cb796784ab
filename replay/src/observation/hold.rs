//! Work of a stream that is kept back until it is let go.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::Duration;

use cutape_registry::id;

use crate::api::{Api, Code, NOT_READY};

/// How long work is kept back: the program may wait for it.
const PATIENCE: Duration = Duration::from_secs(5);
/// The value that a stream waits for; it waits until the one in memory is as great.
const GO: u32 = 1;

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
        let word = word_of(api)?;
        word.store(0, Ordering::SeqCst);
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
        let watcher = std::thread::spawn(move || {
            if gone.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Timeout) {
                is_late.store(true, Ordering::SeqCst);
            }
            word.store(GO, Ordering::SeqCst);
        });
        Ok(Self {
            go: Some(go),
            ran_out,
            watcher: Some(watcher),
        })
    }

    /// Waits until another stream has done its work; false if it does not.
    pub(crate) fn wait_for(&self, api: &Api, stream: (u64, bool)) -> bool {
        let done = api.poll(PATIENCE, |api| api.query_stream(stream));
        done != Err(NOT_READY)
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

/// A word in page-locked memory, which lives as long as the process.
fn word_of(api: &Api) -> Result<&'static AtomicU32, Code> {
    static WORD: OnceLock<u64> = OnceLock::new();
    let address = match WORD.get() {
        Some(&address) => address,
        None => {
            let address = api.allocate_portable(4096)?;
            *WORD.get_or_init(|| address)
        }
    };
    // SAFETY: the driver has allocated a page of host memory there, aligned, for all contexts, and
    // nothing frees it or uses it otherwise.
    Ok(unsafe { AtomicU32::from_ptr(address as *mut u32) })
}
