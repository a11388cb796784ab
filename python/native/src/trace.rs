//! A trace.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock, PoisonError, RwLock};

use cutape_export::rows::TraceRow;
use cutape_export::tables::{SCHEMA_VERSION, TABLES};
use cutape_format::Trace as Reader;
use pyo3::exceptions::{PyIndexError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PySlice, PyTuple};

use crate::call::Call;
use crate::calls::{Calls, Wanted};
use crate::error;
use crate::table::{self, Table};

/// Opens a trace. A packed one is opened by its index, in a time that does not depend on its
/// length; damage is found when the damaged part is read.
#[pyfunction]
pub(crate) fn open(py: Python<'_>, path: PathBuf) -> PyResult<Trace> {
    let opened = py.detach(|| Reader::open_indexed(&path));
    let reader = opened.map_err(error::of_trace)?;
    Ok(Trace {
        row: TraceRow::of(&reader),
        path,
        reader: RwLock::new(Some(Arc::new(reader))),
        calls: OnceLock::new(),
    })
}

/// The process that recorded a trace; None if the file is none.
#[pyfunction]
pub(crate) fn recorded_process(path: PathBuf) -> Option<u32> {
    cutape_format::recorded_process(&path)
}

/// The tables of `Trace.table` and their columns: name to list of (column, type, meaning).
#[pyfunction]
pub(crate) fn schema(py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
    let tables = PyDict::new(py);
    for found in TABLES {
        let columns = PyList::empty(py);
        for (name, kind, meaning) in table::columns(found) {
            columns.append((name, kind, meaning))?;
        }
        tables.set_item(found.name, columns)?;
    }
    Ok(tables)
}

/// A thread of the recorded program that called the driver.
#[pyclass(frozen, module = "cutape")]
#[derive(Clone)]
pub(crate) struct Thread {
    /// Position among the threads, from 0: what calls name.
    #[pyo3(get)]
    ordinal: usize,
    /// The operating system's number.
    #[pyo3(get)]
    number: u32,
    /// Its name; empty if it has none.
    #[pyo3(get)]
    name: String,
}

#[pymethods]
impl Thread {
    fn __repr__(&self) -> String {
        let Self {
            ordinal,
            number,
            name,
        } = self;
        format!("<cutape.Thread {ordinal}, number {number}, {name:?}>")
    }
}

/// A trace: the driver calls of a process.
#[pyclass(frozen, module = "cutape")]
pub(crate) struct Trace {
    path: PathBuf,
    row: TraceRow,
    /// `None` once it has been closed.
    reader: RwLock<Option<Arc<Reader>>>,
    /// How many there are, once they have been counted.
    calls: OnceLock<usize>,
}

#[pymethods]
impl Trace {
    /// The file.
    #[getter]
    fn path(&self) -> String {
        self.path.display().to_string()
    }

    /// Path of the recorded program.
    #[getter]
    fn program(&self) -> Option<&str> {
        self.row.program.as_deref()
    }

    /// Its arguments, with its own name.
    #[getter]
    fn arguments(&self) -> Vec<String> {
        self.row.arguments.clone()
    }

    /// Number of the process.
    #[getter]
    fn process(&self) -> u32 {
        self.row.process
    }

    /// Rank of the process in a parallel program, or None.
    #[getter]
    fn rank(&self) -> Option<u64> {
        self.row.any_rank()
    }

    /// Start of the recording, in ns since 1970.
    #[getter]
    fn started_unix_ns(&self) -> u64 {
        self.row.started_unix_ns
    }

    /// Version of cutape that recorded.
    #[getter]
    fn recorder_version(&self) -> Option<&str> {
        self.row.recorder_version.as_deref()
    }

    /// The driver's version as cuDriverGetVersion returns it, e.g. 13000.
    #[getter]
    fn driver_version(&self) -> Option<u64> {
        self.row.driver_version
    }

    /// `null` for the null driver.
    #[getter]
    fn driver_kind(&self) -> Option<&str> {
        self.row.driver_kind.as_deref()
    }

    /// Names of the devices.
    #[getter]
    fn devices(&self) -> Vec<String> {
        self.row.devices.clone()
    }

    /// Exit status of the program; None if a signal ended it, or if it is not known.
    #[getter]
    fn exit_status(&self) -> Option<i64> {
        self.row.exit_status
    }

    /// Signal that ended the program, or None.
    #[getter]
    fn exit_signal(&self) -> Option<i64> {
        self.row.exit_signal
    }

    /// Whether the program was still running when the trace was opened.
    #[getter]
    fn still_recording(&self) -> bool {
        self.row.still_recording
    }

    /// Why the recording ended early, so that calls are missing, or None.
    #[getter]
    fn ended_early(&self) -> Option<&str> {
        self.row.ended_early.as_deref()
    }

    /// The threads that called the driver, by ordinal.
    #[getter]
    fn threads(&self) -> Vec<Thread> {
        let threads = self.row.threads.iter().enumerate();
        threads
            .map(|(ordinal, thread)| Thread {
                ordinal,
                number: thread.number,
                name: thread.name.clone(),
            })
            .collect()
    }

    /// What the recorder noted about program and machine: key to value.
    #[getter]
    fn meta<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let meta = PyDict::new(py);
        for (key, value) in self.reader()?.meta() {
            meta.set_item(key, value)?;
        }
        Ok(meta)
    }

    /// Iterates over calls, in the order in which they were entered. `function` is a name in which
    /// `*` and `?` match any characters; `start` and `stop` are call indices as of `range`.
    #[pyo3(signature = (function=None, *, start=0, stop=None))]
    fn calls(&self, function: Option<String>, start: u64, stop: Option<u64>) -> PyResult<Calls> {
        let wanted = Wanted {
            function,
            start,
            stop,
        };
        Calls::new(self.reader()?, wanted)
    }

    /// How many calls there are.
    fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
        let reader = self.reader()?;
        let count = || match reader.counted_calls() {
            Some(count) => usize::try_from(count).unwrap_or(usize::MAX),
            None => reader.calls().count(),
        };
        Ok(*py.detach(|| self.calls.get_or_init(count)))
    }

    /// The call of that index, or the calls of a slice. They are decoded with what earlier calls
    /// created, so this reads the trace from its start.
    fn __getitem__<'py>(
        &self,
        py: Python<'py>,
        index: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        if let Ok(slice) = index.cast::<PySlice>() {
            return Ok(PyList::new(py, self.slice(py, slice)?)?.into_any());
        }
        let wanted: i64 = index.extract()?;
        let length = self.__len__(py)?;
        let place = match wanted < 0 {
            true => i64::try_from(length).unwrap_or(i64::MAX) + wanted,
            false => wanted,
        };
        let place = u64::try_from(place)
            .ok()
            .filter(|place| *place < length as u64);
        let found = match place {
            Some(place) => self.calls(None, place, Some(place + 1))?.next_call(py)?,
            None => None,
        };
        let call = found.ok_or_else(|| {
            PyIndexError::new_err(format!("call {wanted}: the trace has {length} calls"))
        })?;
        Ok(Bound::new(py, call)?.into_any())
    }

    /// Gives back the file and the memory that it is mapped to, once nothing else uses them: calls
    /// and payloads that exist stay usable.
    fn close(&self) {
        *self.reader.write().unwrap_or_else(PoisonError::into_inner) = None;
    }

    fn __enter__(this: PyRef<'_, Self>) -> PyRef<'_, Self> {
        this
    }

    /// Closes the trace.
    fn __exit__(
        &self,
        _kind: &Bound<'_, PyAny>,
        _error: &Bound<'_, PyAny>,
        _traceback: &Bound<'_, PyAny>,
    ) {
        self.close();
    }

    fn __iter__(&self) -> PyResult<Calls> {
        Calls::new(self.reader()?, Wanted::default())
    }

    /// A table, e.g. `launches`: all its rows, read in one pass over the trace. `arguments` fills
    /// the column `arguments` of the table `calls`. `profile` is what `cutape profile --format
    /// json` wrote of this trace: it fills the table `gpu_work` and the columns about the GPU.
    #[pyo3(signature = (name, *, arguments=false, profile=None))]
    fn table(
        &self,
        py: Python<'_>,
        name: &str,
        arguments: bool,
        profile: Option<PathBuf>,
    ) -> PyResult<Table> {
        let (reader, names) = (self.reader()?, [name.to_owned()]);
        let mut tables = table::read(py, &reader, &names, arguments, profile.as_deref())?;
        tables.pop().ok_or_else(error::bug)
    }

    /// Several tables, read in one pass.
    #[pyo3(signature = (*names, arguments=false, profile=None))]
    fn tables<'py>(
        &self,
        py: Python<'py>,
        names: Vec<String>,
        arguments: bool,
        profile: Option<PathBuf>,
    ) -> PyResult<Bound<'py, PyTuple>> {
        if names.is_empty() {
            return Err(PyTypeError::new_err(format!(
                "tables() takes names of tables: {}",
                table::names()
            )));
        }
        let reader = self.reader()?;
        let tables = table::read(py, &reader, &names, arguments, profile.as_deref())?;
        PyTuple::new(py, tables)
    }

    /// Looks for misuse: `cutape.check` of this trace.
    #[pyo3(signature = (**options))]
    fn check<'py>(
        &self,
        py: Python<'py>,
        options: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let check = py.import("cutape")?.getattr("check")?;
        check.call((&self.path,), options)
    }

    /// Re-issues the calls: `cutape.replay` of this trace.
    #[pyo3(signature = (**options))]
    fn replay<'py>(
        &self,
        py: Python<'py>,
        options: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let replay = py.import("cutape")?.getattr("replay")?;
        replay.call((&self.path,), options)
    }

    /// Answers a question in SQL, with DuckDB: `cutape.sql` of this trace.
    fn sql<'py>(slf: &Bound<'py, Self>, query: &str) -> PyResult<Bound<'py, PyAny>> {
        let sql = slf.py().import("cutape")?.getattr("sql")?;
        sql.call1((slf, query))
    }

    /// `os.fspath(trace)` is its path.
    fn __fspath__(&self) -> OsString {
        self.path.clone().into_os_string()
    }

    fn __repr__(&self) -> String {
        let program = self.row.program.as_deref().unwrap_or("unknown program");
        format!(
            "<cutape.Trace {:?} of {program}, process {}>",
            self.path(),
            self.row.process
        )
    }

    /// The version of the tables.
    #[classattr]
    fn schema_version() -> &'static str {
        SCHEMA_VERSION
    }
}

impl Trace {
    fn reader(&self) -> PyResult<Arc<Reader>> {
        let reader = self.reader.read().unwrap_or_else(PoisonError::into_inner);
        reader.clone().ok_or_else(|| {
            PyValueError::new_err(format!("{}: the trace is closed", self.path.display()))
        })
    }

    /// The calls of a slice.
    fn slice<'py>(&self, py: Python<'py>, slice: &Bound<'py, PySlice>) -> PyResult<Vec<Call>> {
        let length = isize::try_from(self.__len__(py)?).unwrap_or(isize::MAX);
        let chosen = slice.indices(length)?;
        if chosen.slicelength == 0 {
            return Ok(Vec::new());
        }
        let step = chosen.step.unsigned_abs();
        // Calls come in ascending order.
        let span = (chosen.slicelength - 1) * step;
        let start = chosen.start.unsigned_abs();
        let first = if chosen.step < 0 { start - span } else { start };
        let calls = self.calls(None, first as u64, Some((first + span) as u64 + 1))?;
        let mut found = Vec::with_capacity(chosen.slicelength);
        let mut place = 0;
        while let Some(call) = calls.next_call(py)? {
            if place % step == 0 {
                found.push(call);
            }
            place += 1;
        }
        if chosen.step < 0 {
            found.reverse();
        }
        Ok(found)
    }
}
