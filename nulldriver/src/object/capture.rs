//! Stream captures in progress.

use std::cell::Cell;
use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::object::graph::Dependency;
use crate::object::stream_key::Key;

// CUstreamCaptureMode.
pub(crate) const GLOBAL: u32 = 0;
pub(crate) const THREAD_LOCAL: u32 = 1;
pub(crate) const RELAXED: u32 = 2;

/// One capture.
pub(crate) struct Capture {
    pub(crate) graph: u64,
    /// The graph was created for the capture, not given.
    pub(crate) is_own: bool,
    pub(crate) mode: u32,
    pub(crate) thread: u64,
    pub(crate) origin: Key,
    pub(crate) context: u64,
    pub(crate) is_valid: bool,
    /// Arrays that the program was given pointers to.
    pub(crate) lent: Vec<Box<[u64]>>,
}

/// The capture that a stream or an event takes part in, and what the next work there depends on.
pub(crate) type Progress = (u64, Vec<Dependency>);

/// All captures.
#[derive(Default)]
pub(crate) struct Captures {
    last: u64,
    pub(crate) open: HashMap<u64, Capture>,
    pub(crate) streams: HashMap<Key, Progress>,
    /// Events that were recorded in captures.
    pub(crate) events: HashMap<u64, Progress>,
}

/// How many captures are open; mostly none, and then no call takes the lock to look for one.
static OPEN: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// `CUstreamCaptureMode` of the thread.
    static MODE: Cell<u32> = const { Cell::new(GLOBAL) };
}

/// Whether any capture is open.
pub(crate) fn is_any_open() -> bool {
    OPEN.load(Ordering::Acquire) != 0
}

/// `CUstreamCaptureMode` of the calling thread; global unless exchanged.
pub(crate) fn mode() -> u32 {
    MODE.get()
}

/// Sets the mode of the calling thread and returns the one before.
pub(crate) fn replace_mode(mode: u32) -> u32 {
    MODE.replace(mode)
}

/// The id of the calling thread. By system call: glibc has a function for it since 2.30, and older
/// ones would not load this library.
pub(crate) fn this_thread() -> u64 {
    // SAFETY: gettid has no preconditions.
    unsafe { libc::syscall(libc::SYS_gettid) as u64 }
}

impl Captures {
    /// Opens a capture on its origin stream, behind these nodes.
    pub(crate) fn open(&mut self, capture: Capture, after: Vec<Dependency>) {
        self.last += 1;
        self.streams.insert(capture.origin, (self.last, after));
        self.open.insert(self.last, capture);
        OPEN.store(self.open.len(), Ordering::Release);
    }

    /// Ends a capture; its streams are ordinary again.
    pub(crate) fn close(&mut self, id: u64) -> Option<Capture> {
        self.streams.retain(|_, of| of.0 != id);
        let capture = self.open.remove(&id);
        OPEN.store(self.open.len(), Ordering::Release);
        capture
    }

    /// Invalidates one capture.
    pub(crate) fn invalidate(&mut self, id: u64) {
        if let Some(capture) = self.open.get_mut(&id) {
            capture.is_valid = false;
        }
    }

    /// Invalidates the captures that `wanted` names; whether there are any.
    pub(crate) fn invalidate_all(&mut self, wanted: impl Fn(&Capture) -> bool) -> bool {
        let mut any = false;
        for capture in self.open.values_mut().filter(|capture| wanted(capture)) {
            capture.is_valid = false;
            any = true;
        }
        any
    }

    /// Whether the capture is open and valid.
    pub(crate) fn is_valid(&self, id: u64) -> bool {
        self.open.get(&id).is_some_and(|capture| capture.is_valid)
    }
}
