//! A call, with its arguments decoded.

use std::sync::Arc;

use cutape_analyzer::decode::{Value, piece_name, write_joined};
use cutape_analyzer::demangle::bare;
use cutape_export::rows::{CallRef, CallRow, KernelLayouts, LaunchRow};
use cutape_format::layout::BlobRef;
use cutape_format::{Bytes, Signature, Trace};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

use crate::value;

/// All elements of arrays, and all bytes of blocks: a record bounds them.
const ELEMENTS: usize = u32::MAX as usize;

/// What is behind a pointer: a value, or a blob of the trace.
#[derive(Debug)]
enum Behind {
    Value(Value),
    Blob(BlobRef),
}

/// A piece behind a pointer: the parameter's position, the piece's name, what it holds.
#[derive(Debug)]
struct Piece {
    parameter: usize,
    name: Option<&'static str>,
    behind: Behind,
}

/// A call without what it borrows from the reader.
#[derive(Debug)]
pub(crate) struct CallData {
    row: CallRef,
    /// The number of its signature.
    function: u16,
    section: Option<&'static str>,
    failed: bool,
    caller: u64,
    stack: Option<u64>,
    /// By position; one behind the last holds the arguments of an unknown function.
    arguments: Vec<Value>,
    /// Before the call.
    pieces: Vec<Piece>,
    /// What the call wrote.
    outputs: Vec<Piece>,
    /// The kernels that it launches.
    kernels: Vec<Option<String>>,
    /// The parameters of its kernel.
    kernel_parameters: Option<Vec<Value>>,
}

impl CallData {
    pub(crate) fn of(row: &CallRow<'_>, layouts: &KernelLayouts) -> Self {
        let decoded = row.arguments(ELEMENTS);
        let record = row.record;
        let blobs_before = blobs(record.snapshots());
        let leave = record.leave.iter().flat_map(|leave| leave.snapshots());
        let blobs_after = blobs(leave);
        let mut arguments = Vec::with_capacity(decoded.arguments.len());
        let mut pieces = Vec::new();
        for (parameter, argument) in decoded.arguments.into_iter().enumerate() {
            arguments.push(argument.value);
            let pointee = argument.pointee.into_iter().map(|value| (None, value));
            let named = argument.pieces.into_iter();
            let named = named.map(|(name, value)| (Some(name), value));
            for (name, value) in pointee.chain(named) {
                pieces.push(piece(parameter, name, value, &blobs_before));
            }
        }
        let position = |name: &str| {
            let parameters = &record.signature.parameters;
            parameters.iter().position(|known| known.name == name)
        };
        let outputs = decoded.outputs.into_iter().filter_map(|output| {
            let parameter = position(output.name)?;
            Some(piece(parameter, output.piece, output.value, &blobs_after))
        });
        Self {
            row: row.call,
            function: record.signature.id,
            section: row.section(),
            failed: row.failed,
            caller: record.caller,
            stack: record.stack(),
            arguments,
            pieces,
            outputs: outputs.collect(),
            kernels: Vec::new(),
            kernel_parameters: row.kernel_parameters(layouts),
        }
    }

    /// The call launches that kernel.
    pub(crate) fn launches(&mut self, launch: &LaunchRow<'_>) {
        self.kernels.push(launch.demangled.map(str::to_owned));
    }
}

/// Position, name and blob of those snapshots that are in blobs.
fn blobs<'a>(
    snapshots: impl Iterator<Item = cutape_format::Snapshot<'a>>,
) -> Vec<(usize, Option<&'static str>, BlobRef)> {
    snapshots
        .filter_map(|snapshot| match snapshot.bytes {
            Bytes::Blob(blob) => {
                let name = piece_name(snapshot.field);
                Some((usize::from(snapshot.parameter), name, blob))
            }
            _ => None,
        })
        .collect()
}

fn piece(
    parameter: usize,
    name: Option<&'static str>,
    value: Value,
    blobs: &[(usize, Option<&'static str>, BlobRef)],
) -> Piece {
    let blob = blobs
        .iter()
        .find(|(at, of, _)| (*at, *of) == (parameter, name))
        .map(|(_, _, blob)| *blob);
    Piece {
        parameter,
        name,
        behind: blob.map_or(Behind::Value(value), Behind::Blob),
    }
}

/// One call of a driver function. Attributes are read-only.
#[pyclass(frozen, module = "cutape")]
pub(crate) struct Call {
    trace: Arc<Trace>,
    data: CallData,
}

impl Call {
    pub(crate) fn new(trace: Arc<Trace>, data: CallData) -> Self {
        Self { trace, data }
    }

    fn signature(&self) -> &Signature {
        self.trace.signature(self.data.function)
    }

    fn name_of(&self, parameter: usize) -> &str {
        let parameter = self.signature().parameters.get(parameter);
        parameter.map_or("arguments", |parameter| &parameter.name)
    }

    /// The name of the result, if the function returns a `CUresult`.
    fn result_name(&self) -> Option<&str> {
        let results = self.trace.signatures().enumeration("CUresult")?;
        let result = self.data.row.result?;
        let is_result = self.signature().returns == "CUresult";
        is_result.then(|| results.name_of(i64::from(result)))?
    }

    fn behind<'py>(&self, py: Python<'py>, behind: &Behind) -> PyResult<Bound<'py, PyAny>> {
        match behind {
            Behind::Value(value) => value::object(py, value),
            Behind::Blob(blob) => value::payload(py, Arc::clone(&self.trace), *blob),
        }
    }

    /// Appends an argument as `cutape dump` writes it.
    fn write_argument(&self, parameter: usize, argument: &Value, out: &mut String) {
        let name = self.name_of(parameter);
        out.push_str(name);
        out.push('=');
        if let ("kernelParams", Some(parameters)) = (name, &self.data.kernel_parameters) {
            out.push('(');
            write_joined(parameters, out, Value::write);
            return out.push(')');
        }
        let mut own = self.data.pieces.iter();
        let pointee = own.find(|piece| piece.parameter == parameter && piece.name.is_none());
        match pointee.map(|piece| &piece.behind) {
            // The content says more than the address.
            Some(Behind::Value(
                pointee @ (Value::Text(_)
                | Value::Described(..)
                | Value::Fields(_)
                | Value::List(..)),
            )) => return pointee.write(out),
            Some(Behind::Value(pointee)) => {
                argument.write(out);
                out.push_str(" → ");
                pointee.write(out);
            }
            Some(Behind::Blob(blob)) => {
                argument.write(out);
                out.push_str(&format!(" → <{} bytes>", blob.length));
            }
            None => argument.write(out),
        }
        // The first parameter of a launch is its kernel.
        if let (0, [Some(kernel)]) = (parameter, self.data.kernels.as_slice()) {
            out.push_str(&format!(" {:?}", bare(kernel)));
        }
    }

    /// The value of an argument, with what is behind it.
    fn argument<'py>(
        &self,
        py: Python<'py>,
        parameter: usize,
        argument: &Value,
    ) -> PyResult<Bound<'py, PyAny>> {
        let mut own = self.data.pieces.iter();
        if !own.any(|piece| piece.parameter == parameter) {
            return value::object(py, argument);
        }
        let (number, label) = match argument {
            Value::Address(number, label) => (*number, label.as_deref()),
            Value::Unsigned(number) => (*number, None),
            Value::Null => (0, None),
            _ => return value::object(py, argument),
        };
        let named = PyDict::new(py);
        let mut pointee = None;
        for piece in &self.data.pieces {
            if piece.parameter != parameter {
                continue;
            }
            let behind = self.behind(py, &piece.behind)?;
            match piece.name {
                None => pointee = Some(behind),
                Some(name) => named.set_item(name, behind)?,
            }
        }
        value::address(py, number, label, pointee, named)
    }
}

#[pymethods]
impl Call {
    /// Position in the order of entry over all threads, from 0: the number in every message.
    #[getter]
    fn index(&self) -> u64 {
        self.data.row.index
    }

    /// Ordinal of the thread, from 0; `Trace.threads` has its name.
    #[getter]
    fn thread(&self) -> u32 {
        self.data.row.thread
    }

    /// Exported name of the function, e.g. `cuMemAlloc_v2`.
    #[getter]
    fn function(&self) -> &str {
        &self.signature().name
    }

    /// Section of the CUDA driver API manual, or None.
    #[getter]
    fn section(&self) -> Option<&'static str> {
        self.data.section
    }

    /// When the program entered the call, in ns from the start of the recording; None if the clock
    /// of the trace only counts.
    #[getter]
    fn enter_ns(&self) -> Option<u64> {
        self.data.row.enter_ns()
    }

    /// When the driver had returned, in ns; None for a call in flight.
    #[getter]
    fn leave_ns(&self) -> Option<u64> {
        self.data.row.leave_ns()
    }

    /// Host time of the call in ns: of a launch the time to enqueue it, not its time on the GPU.
    #[getter]
    fn duration_ns(&self) -> Option<u64> {
        self.data.row.duration_ns()
    }

    /// What it returned: an int, of a CUresult with `name`; None for a call in flight.
    #[getter]
    fn result<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let Some(result) = self.data.row.result else {
            return Ok(None);
        };
        match self.result_name() {
            Some(name) => value::named(py, i64::from(result), name).map(Some),
            None => Ok(Some(result.into_pyobject(py)?.into_any())),
        }
    }

    /// It returned a CUresult other than CUDA_SUCCESS.
    #[getter]
    fn failed(&self) -> bool {
        self.data.failed
    }

    /// The address in the program that it returns to.
    #[getter]
    fn caller(&self) -> u64 {
        self.data.caller
    }

    /// The function in the program that it returns to, if the trace knows it.
    #[getter]
    fn caller_name(&self) -> Option<&str> {
        self.trace.symbol(self.data.caller)
    }

    /// Id of the call stack, if the trace has them.
    #[getter]
    fn stack(&self) -> Option<u64> {
        self.data.stack
    }

    /// Names of the kernels that it launches, as in the source; None for one without a known name.
    #[getter]
    fn kernels(&self) -> Vec<Option<&str>> {
        let kernels = self.data.kernels.iter();
        kernels.map(Option::as_deref).collect()
    }

    /// The parameters of the kernel that it launches, in their order; None for other calls, and if
    /// the trace does not have them. The types are guessed from size and value, as `dump` does.
    #[getter]
    fn kernel_parameters<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyList>>> {
        let Some(parameters) = &self.data.kernel_parameters else {
            return Ok(None);
        };
        let list = PyList::empty(py);
        for parameter in parameters {
            list.append(value::object(py, parameter)?)?;
        }
        Ok(Some(list))
    }

    /// Arguments by name, in the order of the prototype.
    #[getter]
    fn arguments<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let dict = PyDict::new(py);
        for (parameter, argument) in self.data.arguments.iter().enumerate() {
            let value = self.argument(py, parameter, argument)?;
            dict.set_item(self.name_of(parameter), value)?;
        }
        Ok(dict)
    }

    /// What the call wrote behind its pointers, by name of the parameter; `NAME.PIECE` for a part.
    #[getter]
    fn outputs<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let dict = PyDict::new(py);
        for output in &self.data.outputs {
            let name = self.name_of(output.parameter);
            let value = self.behind(py, &output.behind)?;
            match output.name {
                None => dict.set_item(name, value)?,
                Some(piece) => dict.set_item(format!("{name}.{piece}"), value)?,
            }
        }
        Ok(dict)
    }

    fn __repr__(&self) -> String {
        let mut text = format!("<cutape.Call {} {}(", self.data.row.index, self.function());
        for (parameter, argument) in self.data.arguments.iter().enumerate() {
            if parameter > 0 {
                text.push_str(", ");
            }
            self.write_argument(parameter, argument, &mut text);
        }
        text.push(')');
        match (self.result_name(), self.data.row.result) {
            (Some(name), _) => text.push_str(&format!(" = {name}>")),
            (None, Some(result)) => text.push_str(&format!(" = {result}>")),
            (None, None) => text.push_str(" did not return>"),
        }
        text
    }
}
