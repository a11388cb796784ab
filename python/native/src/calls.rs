//! Iterating over calls: a thread reads and decodes some calls ahead of Python.

use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use std::vec;

use cutape_analyzer::glob::matches;
use cutape_analyzer::suggestion::did_you_mean;
use cutape_export::rows::{CallRow, KernelLayouts, LaunchRow, Rows, Sink, Wants};
use cutape_format::{Signature, Trace};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::call::{Call, CallData};
use crate::error;

/// Calls that the thread hands over at once.
const BATCH: usize = 128;
/// Batches that wait.
const WAITING: usize = 4;
/// How long Python waits before it looks for signals such as Ctrl-C.
const PATIENCE: Duration = Duration::from_millis(100);

/// Why the reading thread ended early.
enum Ended {
    /// The iterator is gone, or has all that it wants.
    Unwanted,
    Trace(cutape_format::Error),
}

impl From<cutape_format::Error> for Ended {
    fn from(error: cutape_format::Error) -> Self {
        Self::Trace(error)
    }
}

/// Which calls are wanted.
#[derive(Debug, Default)]
pub(crate) struct Wanted {
    /// Glob for the function's name, as exported or in the manual.
    pub(crate) function: Option<String>,
    pub(crate) start: u64,
    pub(crate) stop: Option<u64>,
}

impl Wanted {
    /// A pattern that no function of the trace has is a mistake, not an empty answer.
    fn check(&self, trace: &Trace) -> PyResult<()> {
        let Some(pattern) = self.function.as_deref() else {
            return Ok(());
        };
        let functions = || trace.signatures().functions();
        if functions().any(|signature| is_named(pattern, signature)) {
            return Ok(());
        }
        let suggestion = did_you_mean(pattern, functions().map(|signature| &*signature.base));
        Err(PyValueError::new_err(format!(
            "{pattern}: no function of the trace's signature table has such a name{suggestion}"
        )))
    }

    fn has(&self, row: &CallRow<'_>) -> bool {
        let pattern = self.function.as_deref();
        row.call.index >= self.start
            && pattern.is_none_or(|pattern| is_named(pattern, row.record.signature))
    }
}

fn is_named(pattern: &str, signature: &Signature) -> bool {
    matches(pattern, &signature.name) || matches(pattern, &signature.base)
}

/// Collects calls into batches.
struct Collector {
    wanted: Wanted,
    layouts: KernelLayouts,
    batch: Vec<CallData>,
    /// The last call is in the batch, so its launches are wanted.
    is_last_wanted: bool,
    sender: SyncSender<Vec<CallData>>,
}

impl Collector {
    fn send(&mut self) -> Result<(), Ended> {
        let batch = std::mem::take(&mut self.batch);
        self.sender.send(batch).map_err(|_| Ended::Unwanted)
    }
}

impl Sink for Collector {
    type Error = Ended;

    // Without waits, the arguments of waits would have the labels after the call.
    const WANTS: Wants = Wants {
        waits: true,
        ..Wants::NONE
    };

    fn call(&mut self, row: &CallRow<'_>) -> Result<(), Ended> {
        if self.batch.len() >= BATCH {
            self.send()?;
        }
        if self.wanted.stop.is_some_and(|stop| row.call.index >= stop) {
            return Err(Ended::Unwanted);
        }
        self.layouts.observe(row.record);
        self.is_last_wanted = self.wanted.has(row);
        if self.is_last_wanted {
            self.batch.push(CallData::of(row, &self.layouts));
        }
        Ok(())
    }

    fn launch(&mut self, row: &LaunchRow<'_>) -> Result<(), Ended> {
        if self.is_last_wanted
            && let Some(call) = self.batch.last_mut()
        {
            call.launches(row);
        }
        Ok(())
    }
}

/// Reads all calls; the error is that of the trace.
fn read(trace: &Trace, wanted: Wanted, sender: SyncSender<Vec<CallData>>) -> PyResult<()> {
    let mut collector = Collector {
        wanted,
        layouts: KernelLayouts::default(),
        batch: Vec::new(),
        is_last_wanted: false,
        sender,
    };
    let walked = Rows::of(trace).run(&mut collector);
    // What came before the end of a damaged trace is valid.
    let _ = collector.send();
    match walked {
        Ok(walked) => match walked.unknown_function() {
            Some(damage) => {
                let path = trace.path().display().to_string();
                Err(error::unknown_function(&path, damage))
            }
            None => Ok(()),
        },
        Err(Ended::Unwanted) => Ok(()),
        Err(Ended::Trace(error)) => Err(error::of_trace(error)),
    }
}

struct Reading {
    batches: Receiver<Vec<CallData>>,
    current: vec::IntoIter<CallData>,
    reader: Option<JoinHandle<PyResult<()>>>,
}

/// Iterates over calls. It needs memory for a few of them, however long the trace is.
#[pyclass(frozen, module = "cutape")]
pub(crate) struct Calls {
    trace: Arc<Trace>,
    reading: Mutex<Reading>,
}

impl Calls {
    pub(crate) fn new(trace: Arc<Trace>, wanted: Wanted) -> PyResult<Self> {
        wanted.check(&trace)?;
        let (sender, batches) = sync_channel(WAITING);
        let source = Arc::clone(&trace);
        let reader = thread::Builder::new()
            .name("cutape-calls".to_owned())
            .spawn(move || read(&source, wanted, sender))?;
        Ok(Self {
            trace,
            reading: Mutex::new(Reading {
                batches,
                current: Vec::new().into_iter(),
                reader: Some(reader),
            }),
        })
    }
}

impl Calls {
    /// The next call.
    pub(crate) fn next_call(&self, py: Python<'_>) -> PyResult<Option<Call>> {
        loop {
            let step = {
                let fast = self.reading.try_lock().ok();
                match fast.and_then(|mut reading| reading.current.next()) {
                    Some(call) => Step::Call(call),
                    None => py.detach(|| match self.reading.lock() {
                        Ok(mut reading) => reading.step(),
                        Err(poisoned) => poisoned.into_inner().step(),
                    }),
                }
            };
            match step {
                Step::Call(data) => return Ok(Some(Call::new(Arc::clone(&self.trace), data))),
                Step::Wait => py.check_signals()?,
                Step::End(None) => return Ok(None),
                Step::End(Some(reader)) => {
                    let outcome = py.detach(|| reader.join());
                    return outcome.map_err(|_| error::bug())?.map(|()| None);
                }
            }
        }
    }
}

/// What the thread has for Python.
#[expect(
    clippy::large_enum_variant,
    reason = "a box would cost an allocation for each call"
)]
enum Step {
    Call(CallData),
    /// Nothing yet: look for signals, and ask again.
    Wait,
    /// The thread, whose outcome is still to be asked.
    End(Option<JoinHandle<PyResult<()>>>),
}

impl Reading {
    fn step(&mut self) -> Step {
        if let Some(call) = self.current.next() {
            return Step::Call(call);
        }
        match self.batches.recv_timeout(PATIENCE) {
            Ok(batch) => {
                self.current = batch.into_iter();
                self.current.next().map_or(Step::Wait, Step::Call)
            }
            Err(RecvTimeoutError::Timeout) => Step::Wait,
            Err(RecvTimeoutError::Disconnected) => Step::End(self.reader.take()),
        }
    }
}

#[pymethods]
impl Calls {
    fn __iter__(this: PyRef<'_, Self>) -> PyRef<'_, Self> {
        this
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<Call>> {
        self.next_call(py)
    }
}
