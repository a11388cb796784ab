//! The trace as all threads of the viewer read it: from any call on, through checkpoints of what
//! earlier calls say about handles.

use std::ops::{ControlFlow, Range};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard};

use cutape_format::layout::FILE_PACKED;
use cutape_format::{Call, Cursor, Error, Trace};
use cutape_model::Scope as Tracked;
use cutape_render::{Known, Limits, Renderer};
use cutape_terminal::failure::Failure;
use cutape_terminal::input;

/// Calls between checkpoints, as long as there are few.
const FIRST_SPACING: u64 = 1 << 14;
/// With more checkpoints, every other one is dropped.
const MOST_CHECKPOINTS: usize = 64;
/// A reader that needs no more than labels skips more calls than this many spacings.
const FAR: u64 = 4;

/// What is known before a call.
#[derive(Clone)]
pub(super) struct Checkpoint {
    /// The call.
    pub(super) index: u64,
    /// Of an unpacked trace, where the call is.
    pub(super) cursor: Option<Cursor>,
    pub(super) known: Known,
}

struct Checkpoints {
    /// By call; the first is that of call 0.
    list: Vec<Checkpoint>,
    spacing: u64,
}

/// What a reader does with a call.
type Each<'a> = &'a mut dyn FnMut(&mut Renderer<'_>, &Call<'_>) -> ControlFlow<()>;

/// A trace, complete or growing, shared between threads.
pub(crate) struct SharedTrace {
    trace: RwLock<Trace>,
    is_packed: bool,
    checkpoints: Mutex<Checkpoints>,
    /// How many calls have been entered, as far as is known.
    total: AtomicU64,
    /// Of a growing trace: the moment before which all calls have been found.
    horizon: AtomicU64,
    /// The recording goes on.
    is_growing: AtomicBool,
    /// `total` is that of the whole trace as it is now.
    is_counted: AtomicBool,
}

/// Why a read ended early.
enum Stop {
    Asked,
    Error(Error),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Self::Error(error)
    }
}

impl SharedTrace {
    /// Opens a trace; one that a program is being recorded to is followed.
    pub(crate) fn open(path: &Path) -> Result<Self, Failure> {
        let mut trace = input::open_indexed(path)?;
        let is_packed = trace.head().flags & FILE_PACKED != 0;
        let is_growing = !is_packed && trace.writer().is_some();
        if is_growing {
            trace = Trace::follow(path)?;
        }
        Ok(Self::new(trace, is_growing))
    }

    /// Shares an open trace.
    pub(crate) fn new(trace: Trace, is_growing: bool) -> Self {
        let is_packed = trace.head().flags & FILE_PACKED != 0;
        let first = Checkpoint {
            index: 0,
            cursor: (!is_packed).then(Cursor::new),
            known: Known::new(Tracked::All),
        };
        Self {
            is_packed,
            checkpoints: Mutex::new(Checkpoints {
                list: vec![first],
                spacing: FIRST_SPACING,
            }),
            total: AtomicU64::new(trace.counted_calls().unwrap_or(0)),
            horizon: AtomicU64::new(if is_growing { 0 } else { u64::MAX }),
            is_growing: AtomicBool::new(is_growing),
            is_counted: AtomicBool::new(trace.counted_calls().is_some()),
            trace: RwLock::new(trace),
        }
    }

    /// Whether the trace is packed, and so complete.
    pub(crate) fn is_packed(&self) -> bool {
        self.is_packed
    }

    /// For reading; to be held shortly while the trace grows.
    pub(crate) fn trace(&self) -> RwLockReadGuard<'_, Trace> {
        self.trace.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes in what a growing trace has got, and sets the horizon. `before` is a moment before
    /// which all calls have been written, `is_last` says that the recording has ended.
    pub(super) fn refresh(&self, before: u64, is_last: bool) {
        let mut trace = self.trace.write().unwrap_or_else(PoisonError::into_inner);
        let found = trace.refresh_before(before);
        let horizon = match (is_last, found) {
            (true, _) => u64::MAX,
            // Without the processor's clock, the order of threads is known only at the end.
            (false, Ok(horizon)) if trace.head().clock == 0 => horizon,
            (false, _) => 0,
        };
        self.horizon.store(horizon, Ordering::Release);
        if is_last {
            self.is_growing.store(false, Ordering::Release);
        }
    }

    /// The moment before which all calls have been found.
    pub(super) fn horizon(&self) -> u64 {
        self.horizon.load(Ordering::Acquire)
    }

    /// Whether the recording goes on.
    pub(crate) fn is_growing(&self) -> bool {
        self.is_growing.load(Ordering::Acquire)
    }

    /// How many calls there are, as far as is known.
    pub(crate) fn total(&self) -> u64 {
        self.total.load(Ordering::Acquire)
    }

    /// Whether no more calls will be found.
    pub(super) fn is_counted(&self) -> bool {
        !self.is_growing() && self.is_counted.load(Ordering::Acquire)
    }

    /// Says how many calls there are.
    pub(crate) fn count(&self, total: u64, is_counted: bool) {
        self.total.fetch_max(total, Ordering::AcqRel);
        self.is_counted.store(is_counted, Ordering::Release);
    }

    fn checkpoints(&self) -> MutexGuard<'_, Checkpoints> {
        self.checkpoints
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// The call at which the next checkpoint is due.
    pub(super) fn next_checkpoint(&self) -> u64 {
        let checkpoints = self.checkpoints();
        let last = checkpoints.list.last().map_or(0, |last| last.index);
        last + checkpoints.spacing
    }

    /// Adds a checkpoint behind the others.
    pub(super) fn add_checkpoint(&self, checkpoint: Checkpoint) {
        let mut checkpoints = self.checkpoints();
        checkpoints.list.push(checkpoint);
        if checkpoints.list.len() > MOST_CHECKPOINTS {
            let mut position = 0;
            checkpoints.list.retain(|_| {
                position += 1;
                position % 2 == 1
            });
            checkpoints.spacing *= 2;
        }
    }

    /// The last checkpoint at or before a call.
    fn checkpoint(&self, call: u64) -> Checkpoint {
        let checkpoints = self.checkpoints();
        let behind = checkpoints
            .list
            .partition_point(|known| known.index <= call);
        checkpoints.list[behind.max(1) - 1].clone()
    }

    /// The parts between checkpoints, up to the last call.
    pub(super) fn segments(&self) -> Vec<Range<u64>> {
        let checkpoints = self.checkpoints();
        let starts = checkpoints.list.iter().map(|known| known.index);
        let ends = starts.clone().skip(1).chain([u64::MAX]);
        starts.zip(ends).map(|(start, end)| start..end).collect()
    }

    /// Whether a reader that needs only labels should use [`SharedTrace::read_labelled`].
    pub(super) fn is_far(&self, call: u64) -> bool {
        let checkpoints = self.checkpoints();
        let behind = checkpoints
            .list
            .partition_point(|known| known.index <= call);
        let known = checkpoints.list[behind.max(1) - 1].index;
        self.is_packed && call - known > FAR * checkpoints.spacing
    }

    /// Reads calls in order, each after the renderer has observed it and all before it.
    pub(crate) fn read(
        &self,
        trace: &Trace,
        calls: Range<u64>,
        each: Each<'_>,
    ) -> Result<(), Error> {
        let Checkpoint {
            index,
            cursor,
            known,
        } = self.checkpoint(calls.start);
        let mut renderer = Renderer::resume(trace, Limits::TEXT, known);
        let mut step = |call: &Call<'_>| {
            if call.index < index {
                return ControlFlow::Continue(());
            }
            renderer.observe(call);
            match calls.contains(&call.index) {
                true => each(&mut renderer, call),
                false => ControlFlow::Continue(()),
            }
        };
        if let Some(mut cursor) = cursor {
            let horizon = self.horizon();
            while cursor.index() < calls.end
                && let Some(call) = cursor.next_entered(trace, horizon)
                && step(&call).is_continue()
            {}
            return Ok(());
        }
        let walk = trace.walk().calls(index..calls.end).without_earlier();
        let outcome = walk.run(|call| match step(call) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => Err(Stop::Asked),
        });
        match outcome {
            Err(Stop::Error(error)) => Err(error),
            _ => Ok(()),
        }
    }

    /// Reads calls of a packed trace that are far behind all checkpoints: the renderer knows the
    /// labels of objects, not which calls created them.
    pub(super) fn read_labelled(
        &self,
        trace: &Trace,
        calls: Range<u64>,
        each: Each<'_>,
    ) -> Result<(), Error> {
        let mut renderer = Renderer::new(trace, Limits::TEXT, Tracked::Kernels);
        let outcome = trace.walk().calls(calls.clone()).run(|call| {
            renderer.observe(call);
            match calls.contains(&call.index) && each(&mut renderer, call).is_break() {
                true => Err(Stop::Asked),
                false => Ok(()),
            }
        });
        match outcome {
            Err(Stop::Error(error)) => Err(error),
            _ => Ok(()),
        }
    }
}
