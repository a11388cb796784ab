//! Decodes launches: kernel, shape, parameters.

use cutape_analyzer::decode::{self, Value, attributes, block, kernel_parameters, write_joined};
use cutape_format::layout::field;
use cutape_format::{Call, Signatures};
use cutape_registry::Kind;
use serde_json::{Value as Json, json};

use crate::labels::Labels;
use cutape_analyzer::demangle::{bare, demangle};
use cutape_model::LaunchShape;

/// A decoded launch.
#[derive(Debug)]
pub struct Launch {
    /// The function or kernel handle.
    function: Value,
    /// Its name in the image, if known.
    kernel: Option<String>,
    shape: LaunchShape,
    stream: Option<Value>,
    /// The kernel's parameters: offset, size, value.
    parameters: Vec<(u32, u32, Value)>,
    /// The parameters' bytes, if their layout is unknown.
    buffer: Option<Value>,
    attributes: Option<Value>,
}

impl Launch {
    /// Decodes a launch of a handle; `layout` has the offset and size of each kernel parameter.
    pub fn of(
        call: &Call<'_>,
        handle: u64,
        shape: LaunchShape,
        kernel: Option<&str>,
        layout: Option<&[(u32, u32)]>,
        signatures: &Signatures,
        labels: &Labels,
    ) -> Self {
        let piece = |wanted| {
            let snapshot = call.snapshots().find(|snapshot| snapshot.field == wanted);
            snapshot.and_then(|snapshot| snapshot.bytes.inline())
        };
        let (mut parameters, mut buffer) = (Vec::new(), None);
        if let Some(bytes) = piece(field::KERNEL_PARAMETERS) {
            match layout.and_then(|layout| kernel_parameters(bytes, layout, labels)) {
                Some(values) => parameters = values,
                None => buffer = Some(block(bytes, 64)),
            }
        }
        // A kernel may be launched by its own handle, cast to CUfunction (CUDA driver API,
        // "cuLaunchKernel").
        let function = match decode::handle(labels, Kind::Function, handle) {
            Value::Address(_, None) => decode::handle(labels, Kind::Kernel, handle),
            known => known,
        };
        let stream = shape.stream;
        Self {
            function,
            kernel: kernel.map(str::to_owned),
            stream: stream.map(|stream| decode::handle(labels, Kind::Stream, stream)),
            shape,
            parameters,
            buffer,
            attributes: piece(field::ATTRIBUTES).map(|bytes| attributes(bytes, signatures, labels)),
        }
    }

    /// Appends the call's arguments, without parentheses.
    pub fn write(&self, out: &mut String) {
        let part = |name: &str, value: Option<&Value>, out: &mut String| {
            if let Some(value) = value {
                out.push_str(name);
                value.write(out);
            }
        };
        part("f = ", Some(&self.function), out);
        if let Some(kernel) = &self.kernel {
            out.push_str(&format!(" {kernel:?}"));
        }
        for (name, shape) in [("grid", self.shape.grid), ("block", self.shape.block)] {
            if let Some([x, y, z]) = shape {
                out.push_str(&format!(", {name} = {x}x{y}x{z}"));
            }
        }
        if let Some(shared) = self.shape.shared {
            out.push_str(&format!(", shared = {shared}"));
        }
        part(", stream = ", self.stream.as_ref(), out);
        part(", attributes = ", self.attributes.as_ref(), out);
        part(", parameters = ", self.buffer.as_ref(), out);
        if self.buffer.is_none() {
            out.push_str(", parameters = (");
            write_joined(&self.parameters, out, |(_, _, value), out| value.write(out));
            out.push(')');
        }
    }

    /// The kernel's name in the source, without its parameters, if known.
    pub fn kernel_name(&self) -> Option<String> {
        let name = demangle(self.kernel.as_deref()?);
        Some(bare(&name).to_owned())
    }

    /// Grid and block, then stream and parameters, in short.
    pub fn write_shape(&self, out: &mut String) {
        for (name, shape) in [("grid", self.shape.grid), ("block", self.shape.block)] {
            if let Some([x, y, z]) = shape {
                out.push_str(&format!("{name} = {x}x{y}x{z}, "));
            }
        }
        if let Some(stream) = &self.stream {
            out.push_str("stream = ");
            stream.write(out);
        }
        if self.buffer.is_none() {
            out.push_str(", parameters = (");
            write_joined(&self.parameters, out, |(_, _, value), out| value.write(out));
            out.push(')');
        }
    }

    /// Name and value of each part, for lines of their own.
    pub fn parts(&self) -> Vec<(String, String)> {
        let text = |value: &Value| {
            let mut text = String::new();
            value.write(&mut text);
            text
        };
        let mut parts = vec![("f".to_owned(), text(&self.function))];
        if let Some(kernel) = &self.kernel {
            parts.push(("kernel".to_owned(), demangle(kernel)));
        }
        for (name, shape) in [("grid", self.shape.grid), ("block", self.shape.block)] {
            if let Some([x, y, z]) = shape {
                parts.push((name.to_owned(), format!("{x}x{y}x{z}")));
            }
        }
        if let Some(shared) = self.shape.shared {
            parts.push(("shared".to_owned(), format!("{shared} bytes")));
        }
        let further = [
            ("stream", &self.stream),
            ("attributes", &self.attributes),
            ("parameters", &self.buffer),
        ];
        for (name, value) in further {
            if let Some(value) = value {
                parts.push((name.to_owned(), text(value)));
            }
        }
        for (number, (offset, size, value)) in self.parameters.iter().enumerate() {
            let value = format!("{} ({size} bytes at {offset})", text(value));
            parts.push((format!("parameter {number}"), value));
        }
        parts
    }

    /// As JSON; keys are only ever added.
    pub fn json(&self) -> Json {
        let parameters: Vec<Json> = self
            .parameters
            .iter()
            .map(|(offset, size, value)| {
                let mut object = value.argument_json();
                object.insert("offset".into(), json!(offset));
                object.insert("size".into(), json!(size));
                Json::Object(object)
            })
            .collect();
        json!({
            "function": self.function.json(),
            "kernel": self.kernel,
            "grid": self.shape.grid,
            "block": self.shape.block,
            "shared_bytes": self.shape.shared,
            "stream": self.stream.as_ref().map(Value::json),
            "parameters": parameters,
            "parameter_buffer": self.buffer.as_ref().map(Value::json),
            "attributes": self.attributes.as_ref().map(Value::json),
        })
    }
}
