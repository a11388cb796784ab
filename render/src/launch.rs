//! Decodes launches: kernel, shape, parameters.

use cutape_analyzer::decode::{self, Names, Value, attributes, block, word, write_joined};
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
            match layout.and_then(|layout| split(bytes, layout, labels)) {
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

/// The parameters in a buffer; `None` if the layout does not fit the buffer.
fn split(bytes: &[u8], layout: &[(u32, u32)], labels: &Labels) -> Option<Vec<(u32, u32, Value)>> {
    layout
        .iter()
        .map(|&(offset, size)| {
            let start = usize::try_from(offset).ok()?;
            let raw = bytes.get(start..start.checked_add(usize::try_from(size).ok()?)?)?;
            Some((offset, size, parameter(raw, labels)))
        })
        .collect()
}

/// A kernel parameter; its type is a guess from its size and value. An address if it lies in known
/// memory, a float if that is the more plausible number, else an integer; other sizes are bytes.
fn parameter(raw: &[u8], labels: &Labels) -> Value {
    let bits = word(raw);
    match raw.len() {
        8 => match labels.place(bits) {
            Some(place) => Value::Address(bits, Some(place)),
            // A large integer and a double look alike: hexadecimal suits both.
            None if bits > u64::from(u32::MAX) => match f64::from_bits(bits) {
                float if is_plausible(float) => Value::Float(float),
                _ => Value::Address(bits, None),
            },
            None => Value::Unsigned(bits),
        },
        4 => {
            let float = f32::from_bits(bits as u32);
            // Small magnitudes are integers, not tiny floats.
            let small = (bits as u32 as i32).unsigned_abs() < 1 << 24;
            match !small && is_plausible(f64::from(float)) {
                true => Value::Float(f64::from(float)),
                false => Value::Signed(i64::from(bits as u32 as i32)),
            }
        }
        1 | 2 => Value::Unsigned(bits),
        _ => block(raw, 64),
    }
}

/// Whether a float is in the range that programs use; arbitrary bits rarely are.
fn is_plausible(float: f64) -> bool {
    (1e-9..1e12).contains(&float.abs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_by_size() {
        let labels = Labels::default();
        for (raw, text) in [
            (1024_i32.to_le_bytes().to_vec(), "1024"),
            ((-7_i32).to_le_bytes().to_vec(), "-7"),
            (2.5_f32.to_le_bytes().to_vec(), "2.5"),
            (i32::MAX.to_le_bytes().to_vec(), "2147483647"),
            (5_u64.to_le_bytes().to_vec(), "5"),
            (
                0x7f12_3456_7800_u64.to_le_bytes().to_vec(),
                "0x7f1234567800",
            ),
            (0.125_f64.to_le_bytes().to_vec(), "0.125"),
            (vec![7], "7"),
            (vec![1, 2, 3], "<3 bytes: 010203>"),
        ] {
            let mut out = String::new();
            parameter(&raw, &labels).write(&mut out);
            assert_eq!(out, text, "{raw:?}");
        }
    }

    #[test]
    fn layouts_must_fit_the_buffer() {
        let labels = Labels::default();
        for (length, layout, fits) in [
            (8, &[(0, 4), (4, 4)][..], true),
            (8, &[(0, 4), (8, 4)], false),
            (8, &[(u32::MAX, u32::MAX)], false),
            (0, &[], true),
        ] {
            assert_eq!(
                split(&vec![0; length], layout, &labels).is_some(),
                fits,
                "{layout:?}"
            );
        }
    }
}
