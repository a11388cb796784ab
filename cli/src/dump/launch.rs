//! What a launch launches: kernel, shape, parameters by size.

use cutape_format::layout::field;
use cutape_format::{Call, Signatures};
use cutape_registry::Kind;
use serde_json::{Value as Json, json};

use super::labels::Labels;
use super::types::{self, Type, word};
use super::value::{Value, write_joined};

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
    /// Decodes a launch of `handle`; `layout` is the offset and size of each of its parameters.
    pub(crate) fn of(
        call: &Call<'_>,
        handle: u64,
        kernel: Option<&str>,
        layout: Option<&[(u32, u32)]>,
        signatures: &Signatures,
        labels: &Labels,
    ) -> Option<Self> {
        let config = call
            .signature
            .parameter("config")
            .and_then(|position| call.capture(position, field::POINTEE)?.bytes.inline());
        let number = |name: &str| match (call.argument_named(name), config) {
            (Some(value), _) => Some(value),
            (None, Some(bytes)) => {
                let layout = signatures.structure("CUlaunchConfig")?;
                let field = layout.fields.iter().find(|field| field.name == name)?;
                Some(word(
                    bytes.get(field.offset..field.offset.checked_add(field.size)?)?,
                ))
            }
            (None, None) => None,
        };
        let shape = |stem: &str| {
            Some([
                number(&format!("{stem}X"))?,
                number(&format!("{stem}Y"))?,
                number(&format!("{stem}Z"))?,
            ])
        };
        let piece = |wanted| call.captures().find(|capture| capture.field == wanted);
        let (mut parameters, mut buffer) = (Vec::new(), None);
        if let Some(bytes) = piece(field::KERNEL_PARAMETERS).and_then(|c| c.bytes.inline()) {
            match layout.and_then(|layout| split(bytes, layout, labels)) {
                Some(values) => parameters = values,
                None => buffer = Some(types::block(bytes, 64)),
            }
        }
        // A kernel may be launched by its own handle, cast to CUfunction (CUDA driver API, "cuLaunchKernel").
        let function = match labels.handle(Kind::Function, handle) {
            Value::Address(_, None) => labels.handle(Kind::Kernel, handle),
            known => known,
        };
        Some(Self {
            function,
            kernel: kernel.map(str::to_owned),
            grid: shape("gridDim"),
            block: shape("blockDim"),
            shared: number("sharedMemBytes"),
            stream: number("hStream").map(|stream| labels.handle(Kind::Stream, stream)),
            parameters,
            buffer,
            attributes: piece(field::ATTRIBUTES)
                .and_then(|capture| capture.bytes.inline())
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
        _ => types::block(raw, 64),
    }
}

/// Within what programs compute with, so that other bits rarely look like it.
fn sensible(float: f64) -> bool {
    (1e-9..1e12).contains(&float.abs())
}

/// `CUlaunchAttribute`s: the name of each and the member of the union that it uses.
pub(crate) fn attributes(bytes: &[u8], signatures: &Signatures, labels: &Labels) -> Value {
    let (Some(layout), Some(ids)) = (
        signatures.structure("CUlaunchAttribute"),
        signatures.enumeration("CUlaunchAttributeID"),
    ) else {
        return types::block(bytes, 64);
    };
    if layout.size == 0 || !bytes.len().is_multiple_of(layout.size) {
        return types::block(bytes, 64);
    }
    let elements = bytes.chunks_exact(layout.size).map(|raw| {
        let id = word(&raw[..4.min(raw.len())]) as u32;
        let name = ids
            .name_of(i64::from(id))
            .map_or_else(|| format!("attribute {id}"), str::to_owned);
        let Some(member) = union_member(id) else {
            return Value::Fields(vec![(name, types::block(&raw[8.min(raw.len())..], 64))]);
        };
        let members = layout.fields.iter().filter_map(|field| {
            let rest = field.name.strip_prefix("value.")?.strip_prefix(member)?;
            let short = match rest.strip_prefix('.') {
                Some(short) => short,
                None if rest.is_empty() => "value",
                None => return None,
            };
            let raw = raw.get(field.offset..field.offset.checked_add(field.size)?)?;
            let kind = Type::of(&field.c_type, signatures);
            Some((short.to_owned(), kind.decode(raw, labels, signatures, 16)))
        });
        Value::Fields(vec![(name, Value::Fields(members.collect()))])
    });
    Value::List(elements.collect(), 0)
}

/// Which member of `CUlaunchAttributeValue` an attribute uses (CUDA driver API, "CUlaunchAttributeValue").
fn union_member(id: u32) -> Option<&'static str> {
    Some(match id {
        1 => "accessPolicyWindow",
        2 => "cooperative",
        3 => "syncPolicy",
        4 => "clusterDim",
        5 => "clusterSchedulingPolicyPreference",
        6 => "programmaticStreamSerializationAllowed",
        7 => "programmaticEvent",
        8 => "priority",
        9 => "memSyncDomainMap",
        10 => "memSyncDomain",
        11 => "preferredClusterDim",
        12 => "launchCompletionEvent",
        13 => "deviceUpdatableKernelNode",
        14 => "sharedMemCarveout",
        16 => "nvlinkUtilCentricScheduling",
        _ => return None,
    })
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

    #[test]
    fn launch_attributes() {
        let signatures = Signatures::parse(cutape_registry::SIGNATURE_TEXT).unwrap();
        let labels = Labels::default();
        let mut bytes = [0; 72 * 2];
        bytes[0] = 4;
        bytes[8] = 2;
        bytes[12] = 1;
        bytes[16] = 1;
        bytes[72] = 2;
        bytes[80] = 1;
        for (bytes, text) in [
            (
                &bytes[..],
                "[{CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION = {x = 2, y = 1, z = 1}}, \
                 {CU_LAUNCH_ATTRIBUTE_COOPERATIVE = {value = 1}}]",
            ),
            (&bytes[..3], "<3 bytes: 040000>"),
        ] {
            let mut out = String::new();
            attributes(bytes, &signatures, &labels).write(&mut out);
            assert_eq!(out, text);
        }
    }
}
