//! Decoded values as objects of Python.

use std::sync::Arc;

use cutape_analyzer::decode::{Value, hexadecimal};
use cutape_format::layout::BlobRef;
use cutape_format::{Bytes, Trace};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBytes, PyDict, PyList};

use crate::error::DamagedTrace;

/// The bytes of a `cutape.Payload`.
#[pyclass(frozen, module = "cutape")]
pub(crate) struct Blob {
    trace: Arc<Trace>,
    blob: BlobRef,
}

#[pymethods]
impl Blob {
    /// How many bytes there are.
    #[getter]
    fn size(&self) -> u64 {
        self.blob.length
    }

    /// Reads the bytes from the trace.
    fn read<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let read = py.detach(|| self.trace.resolve(Bytes::Blob(self.blob)));
        match read {
            Ok(bytes) => Ok(PyBytes::new(py, &bytes)),
            Err(damage) => Err(DamagedTrace::new_err(format!(
                "{}: damaged at byte {}: {}",
                self.trace.path().display(),
                damage.position,
                damage.what
            ))),
        }
    }
}

/// A class of `cutape/_values.py`, looked up once.
fn class<'py>(
    py: Python<'py>,
    cell: &'static PyOnceLock<Py<PyAny>>,
    name: &str,
) -> PyResult<Bound<'py, PyAny>> {
    let found = cell.get_or_try_init(py, || {
        let module = py.import("cutape._values")?;
        Ok::<_, PyErr>(module.getattr(name)?.unbind())
    })?;
    Ok(found.bind(py).clone())
}

/// An `int` with the name of an enum's value or of flags.
pub(crate) fn named<'py>(py: Python<'py>, value: i64, name: &str) -> PyResult<Bound<'py, PyAny>> {
    static CLASS: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    class(py, &CLASS, "Named")?.call1((value, name))
}

/// An `int` with the label of the object, and what was behind the pointer.
pub(crate) fn address<'py>(
    py: Python<'py>,
    value: u64,
    label: Option<&str>,
    pointee: Option<Bound<'py, PyAny>>,
    pieces: Bound<'py, PyDict>,
) -> PyResult<Bound<'py, PyAny>> {
    static CLASS: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    class(py, &CLASS, "Address")?.call1((value, label, pointee, pieces))
}

/// Bytes that the trace stores outside the record of the call.
pub(crate) fn payload<'py>(
    py: Python<'py>,
    trace: Arc<Trace>,
    blob: BlobRef,
) -> PyResult<Bound<'py, PyAny>> {
    static CLASS: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let blob = Bound::new(py, Blob { trace, blob })?;
    class(py, &CLASS, "Payload")?.call1((blob,))
}

fn missing<'py>(
    py: Python<'py>,
    why: &str,
    bytes: Option<u64>,
    hash: Option<[u8; 16]>,
) -> PyResult<Bound<'py, PyAny>> {
    static CLASS: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let hash = hash.map(|hash| hexadecimal(&hash));
    class(py, &CLASS, "Missing")?.call1((why, bytes, hash))
}

/// A value as Python has it.
pub(crate) fn object<'py>(py: Python<'py>, value: &Value) -> PyResult<Bound<'py, PyAny>> {
    Ok(match value {
        Value::Null => py.None().into_bound(py),
        Value::Unsigned(number) => number.into_pyobject(py)?.into_any(),
        Value::Signed(number) => number.into_pyobject(py)?.into_any(),
        Value::Float(number) => number.into_pyobject(py)?.into_any(),
        Value::Text(text) | Value::Described(text, _) => text.into_pyobject(py)?.into_any(),
        Value::Named(number, name) => named(py, *number, name)?,
        Value::Address(number, label) => {
            address(py, *number, label.as_deref(), None, PyDict::new(py))?
        }
        Value::Bytes(_, bytes) => PyBytes::new(py, bytes).into_any(),
        Value::Missing(why, bytes, hash) => missing(py, why, *bytes, *hash)?,
        Value::List(values, _) => {
            let list = PyList::empty(py);
            for value in values {
                list.append(object(py, value)?)?;
            }
            list.into_any()
        }
        Value::Fields(fields) => {
            let dict = PyDict::new(py);
            for (name, value) in fields {
                dict.set_item(name, object(py, value)?)?;
            }
            dict.into_any()
        }
    })
}
