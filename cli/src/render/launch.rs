//! What a launch launches: kernel, shape, parameters by size.

use cutape_analyzer::decode::{Names, Value, attributes, block, handle, word, write_joined};
use cutape_format::layout::field;
use cutape_format::{Call, Signatures};
use cutape_registry::Kind;
use serde_json::{Value as Json, json};

use super::labels::Labels;

/// A decoded launch.
#[derive(Debug)]
pub(crate) struct Launch {
    /// The function or kernel handle.
    function: Value,
    /// Its name in the image, if that is known.
    kernel: Option<String>,
    /// Blocks.
    grid: Option<[u64; 3]>,
    /// Threads a block.
    block: Option<[u64; 3]>,
    /// Dynamic shared memory in bytes.
    shared: Option<u64>,
    stream: Option<Value>,
    /// The kernel's parameters: offset, size, value.
    parameters: Vec<(u32, u32, Value)>,
    /// Where the parameters were not captured or their layout is not known, what there is.
    buffer: Option<Value>,
    attributes: Option<Value>,
}

impl Launch {
    /// Decodes a launch of the handle `launched`; `layout` is the offset and size of each of its parameters.
    pub(crate) fn of(
        call: &Call<'_>,
        launched: u64,
        kernel: Option<&str>,
        layout: Option<&[(u32, u32)]>,
        signatures: &Signatures,
        labels: &Labels,
    ) -> Option<Self> {
        let config = call
            .signature
            .parameter("config")
            .and_then(|position| call.snapshot(position, field::POINTEE)?.bytes.inline());
        let number = |name: &str| match (call.argument_named(name), config) {
            (Some(value), _) => Some(value),
            (None, Some(bytes)) => signatures.structure("CUlaunchConfig")?.number(bytes, name),
            (None, None) => None,
        };
        let shape = |stem: &str| {
            Some([
                number(&format!("{stem}X"))?,
                number(&format!("{stem}Y"))?,
                number(&format!("{stem}Z"))?,
            ])
        };
        let piece = |wanted| call.snapshots().find(|snapshot| snapshot.field == wanted);
        let (mut parameters, mut buffer) = (Vec::new(), None);
        if let Some(bytes) = piece(field::KERNEL_PARAMETERS).and_then(|c| c.bytes.inline()) {
            match layout.and_then(|layout| split(bytes, layout, labels)) {
                Some(values) => parameters = values,
                None => buffer = Some(block(bytes, 64)),
            }
        }
        // A kernel may be launched by its own handle, cast to CUfunction (CUDA driver API, "cuLaunchKernel").
        let function = match handle(labels, Kind::Function, launched) {
            Value::Address(_, None) => handle(labels, Kind::Kernel, launched),
            known => known,
        };
        Some(Self {
            function,
            kernel: kernel.map(str::to_owned),
            grid: shape("gridDim"),
            block: shape("blockDim"),
            shared: number("sharedMemBytes"),
            stream: number("hStream").map(|stream| handle(labels, Kind::Stream, stream)),
            parameters,
            buffer,
            attributes: piece(field::ATTRIBUTES)
                .and_then(|snapshot| snapshot.bytes.inline())
                .map(|bytes| attributes(bytes, signatures, labels)),
        })
    }

    /// Appends what stands between the parentheses of the call.
    pub(crate) fn write(&self, out: &mut String) {
        out.push_str("f = ");
        self.function.write(out);
        if let Some(kernel) = &self.kernel {
            out.push_str(&format!(" {kernel:?}"));
        }
        for (name, shape) in [("grid", self.grid), ("block", self.block)] {
            if let Some([x, y, z]) = shape {
                out.push_str(&format!(", {name} = {x}x{y}x{z}"));
            }
        }
        if let Some(shared) = self.shared {
            out.push_str(&format!(", shared = {shared}"));
        }
        if let Some(stream) = &self.stream {
            out.push_str(", stream = ");
            stream.write(out);
        }
        if let Some(attributes) = &self.attributes {
            out.push_str(", attributes = ");
            attributes.write(out);
        }
        match &self.buffer {
            Some(buffer) => {
                out.push_str(", parameters = ");
                buffer.write(out);
            }
            None => {
                out.push_str(", parameters = (");
                write_joined(&self.parameters, out, |(_, _, value), out| value.write(out));
                out.push(')');
            }
        }
    }

    /// With keys that stay the same.
    pub(crate) fn json(&self) -> Json {
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
            "grid": self.grid,
            "block": self.block,
            "shared_bytes": self.shared,
            "stream": self.stream.as_ref().map(Value::json),
            "parameters": parameters,
            "parameter_buffer": self.buffer.as_ref().map(Value::json),
            "attributes": self.attributes.as_ref().map(Value::json),
        })
    }
}

/// The parameters in the buffer; `None` if the layout is not of this buffer.
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

/// A kernel parameter, whose type nobody tells: an address if it lies in known memory, a float if its bits make a sensible
/// one and no sensible integer, else an integer; other sizes are bytes.
fn parameter(raw: &[u8], labels: &Labels) -> Value {
    let bits = word(raw);
    match raw.len() {
        8 => match labels.place(bits) {
            Some(place) => Value::Address(bits, Some(place)),
            // What large integers and doubles look like is not distinguished: hexadecimal shows all.
            None if bits > u64::from(u32::MAX) => match f64::from_bits(bits) {
                float if sensible(float) => Value::Float(float),
                _ => Value::Address(bits, None),
            },
            None => Value::Unsigned(bits),
        },
        4 => {
            let float = f32::from_bits(bits as u32);
            // Integers below 2^24 and above -2^24 are taken as such.
            let small = (bits as u32 as i32).unsigned_abs() < 1 << 24;
            match !small && sensible(f64::from(float)) {
                true => Value::Float(f64::from(float)),
                false => Value::Signed(i64::from(bits as u32 as i32)),
            }
        }
        1 | 2 => Value::Unsigned(bits),
        _ => block(raw, 64),
    }
}

/// Within what programs compute with, so that other bits rarely look like it.
fn sensible(float: f64) -> bool {
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
    fn layouts_of_another_buffer_are_refused() {
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
