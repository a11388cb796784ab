//! A table of a trace as Arrow data.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use arrow_array::ffi_stream::FFI_ArrowArrayStream;
use arrow_array::{RecordBatch, RecordBatchIterator, RecordBatchReader};
use arrow_schema::ffi::FFI_ArrowSchema;
use arrow_schema::{ArrowError, SchemaRef};
use cutape_export::rows::Rows;
use cutape_export::tables::{OWN_COLUMNS, TABLES, Table as Columns, TableSink};
use cutape_export::{Error, Replayed};
use cutape_format::Trace;
use cutape_profile::Profile;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyCapsule;

use crate::error;
use crate::table_writer::ArrowTables;

/// Name, type and meaning of the columns of a table, in their order.
pub(crate) fn columns(
    table: &Columns,
) -> impl Iterator<Item = (&'static str, &'static str, &'static str)> + use<> {
    let columns = table.columns().chain(OWN_COLUMNS);
    columns.map(|column| (column.name, column.kind.word(), column.meaning))
}

/// The names of all tables, for messages.
pub(crate) fn names() -> String {
    let names: Vec<&str> = TABLES.iter().map(|table| table.name).collect();
    names.join(", ")
}

/// Reads tables in one pass.
pub(crate) fn read(
    py: Python<'_>,
    trace: &Arc<Trace>,
    names_wanted: &[String],
    arguments: bool,
    profile: Option<&Path>,
) -> PyResult<Vec<Table>> {
    let number = |name: &String| {
        let place = TABLES.iter().position(|table| table.name == name);
        place.ok_or_else(|| {
            PyValueError::new_err(format!("{name}: no such table; there are {}", names()))
        })
    };
    let twice = |(place, name): &(usize, &String)| {
        names_wanted.iter().take(*place).any(|known| known == *name)
    };
    if let Some((_, name)) = names_wanted.iter().enumerate().find(twice) {
        return Err(PyValueError::new_err(format!("{name}: named twice")));
    }
    let wanted: Vec<usize> = names_wanted.iter().map(number).collect::<Result<_, _>>()?;
    let replayed = profile.map(|path| py.detach(|| replayed(path)));
    let replayed = replayed.transpose()?.map(Arc::new);
    let read = py.detach(|| {
        let mut sink = TableSink::new(ArrowTables::new(&wanted), arguments).with_replay(replayed);
        let mut rows = Rows::of(trace);
        let has_findings = names_wanted.iter().any(|name| name == "findings");
        if has_findings {
            rows = rows.with_findings(&**trace);
        }
        let walked = rows.run(&mut sink)?;
        Ok((walked, sink.finish()?))
    });
    let (walked, mut tables) = read.map_err(|failure| match failure {
        Error::Trace(failure) => error::of_trace(failure),
        Error::OtherTrace(_) => PyValueError::new_err(failure.to_string()),
        // Ctrl-C, or what its handler raised.
        Error::Write(failure) => failure.into(),
    })?;
    if let Some(damage) = walked.unknown_function() {
        let path = trace.path().display().to_string();
        return Err(error::unknown_function(&path, damage));
    }
    let path = trace.path().display().to_string();
    let finish = |(&number, name): (&usize, &String)| {
        let finished = py.detach(|| tables.finish(number));
        let (schema, batches) = finished.map_err(|failure| of_arrow(&failure))?;
        Ok(Table {
            name: name.clone(),
            path: path.clone(),
            schema,
            batches,
        })
    };
    wanted.iter().zip(names_wanted).map(finish).collect()
}

/// The profile in a file.
fn replayed(path: &Path) -> PyResult<Replayed> {
    let fail = |why: String| PyValueError::new_err(format!("{}: {why}", path.display()));
    let profile = Profile::read(File::open(path)?).map_err(|error| fail(error.to_string()))?;
    Ok(Replayed::new(profile))
}

fn of_arrow(error: &ArrowError) -> PyErr {
    PyValueError::new_err(format!("Arrow: {error}"))
}

/// A table of a trace. Everything that takes Arrow data takes it, without a copy: pyarrow, polars,
/// pandas, DuckDB and others.
#[pyclass(frozen, module = "cutape")]
pub(crate) struct Table {
    name: String,
    path: String,
    schema: SchemaRef,
    batches: Vec<RecordBatch>,
}

#[pymethods]
impl Table {
    /// Its name.
    #[getter]
    fn name(&self) -> &str {
        &self.name
    }

    /// Names of its columns; `cutape.schema()` describes them.
    #[getter]
    fn columns(&self) -> Vec<&str> {
        let fields = self.schema.fields().iter();
        fields.map(|field| field.name().as_str()).collect()
    }

    /// How many rows it has.
    fn __len__(&self) -> usize {
        self.batches.iter().map(RecordBatch::num_rows).sum()
    }

    /// The Arrow PyCapsule interface: a stream of record batches. They share their memory with this
    /// table. `requested_schema` is ignored, which the interface permits.
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        let _ = requested_schema;
        let batches: Vec<_> = self.batches.iter().cloned().map(Ok).collect();
        let reader = RecordBatchIterator::new(batches, Arc::clone(&self.schema));
        let reader: Box<dyn RecordBatchReader + Send> = Box::new(reader);
        let stream = FFI_ArrowArrayStream::new(reader);
        PyCapsule::new_with_value(py, stream, c"arrow_array_stream")
    }

    /// The Arrow PyCapsule interface: the schema alone.
    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        let schema = FFI_ArrowSchema::try_from(&*self.schema);
        let schema = schema.map_err(|error| of_arrow(&error))?;
        PyCapsule::new_with_value(py, schema, c"arrow_schema")
    }

    /// As a `pyarrow.Table`; needs pyarrow.
    fn to_pyarrow<'py>(this: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        this.py()
            .import("pyarrow")?
            .getattr("table")?
            .call1((this,))
    }

    /// As a `pandas.DataFrame`; needs pandas and pyarrow. Repeated texts are categories.
    fn to_pandas<'py>(this: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        Self::to_pyarrow(this)?.call_method0("to_pandas")
    }

    /// As a `polars.DataFrame`; needs polars. Repeated texts are categorical.
    fn to_polars<'py>(this: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        this.py()
            .import("polars")?
            .getattr("DataFrame")?
            .call1((this,))
    }

    fn __repr__(&self) -> String {
        let Self { name, path, .. } = self;
        format!("<cutape.Table {name} of {path:?}, {} rows>", self.__len__())
    }
}
