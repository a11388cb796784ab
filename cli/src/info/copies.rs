//! How many bytes were copied, from where to where.

use cutape_format::layout::field;
use cutape_format::{Call, Signatures};
use serde::Serialize;

use super::objects::Objects;

/// Bytes of successful copies and fills.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Copies {
    pub(crate) host_to_device_bytes: u64,
    pub(crate) device_to_host_bytes: u64,
    pub(crate) device_to_device_bytes: u64,
    pub(crate) host_to_host_bytes: u64,
    /// Written by `cuMemset*`.
    pub(crate) filled_bytes: u64,
    /// Copies whose size or direction the trace does not say.
    pub(crate) unknown_copies: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Host,
    Device,
}

impl Copies {
    /// Takes in a call; those that failed or did not return count nothing.
    pub(crate) fn observe(&mut self, call: &Call<'_>, signatures: &Signatures, objects: &Objects) {
        let base = call.signature.base.as_str();
        let (is_copy, is_fill) = (base.starts_with("cuMemcpy"), base.starts_with("cuMemset"));
        if !(is_copy || is_fill) || !call.succeeded() {
            return;
        }
        if is_fill {
            self.filled_bytes = self.filled_bytes.saturating_add(filled(call));
            return;
        }
        match copied(call, signatures, objects) {
            Some((from, to, bytes)) => {
                let total = match (from, to) {
                    (Side::Host, Side::Device) => &mut self.host_to_device_bytes,
                    (Side::Device, Side::Host) => &mut self.device_to_host_bytes,
                    (Side::Device, Side::Device) => &mut self.device_to_device_bytes,
                    (Side::Host, Side::Host) => &mut self.host_to_host_bytes,
                };
                *total = total.saturating_add(bytes);
            }
            None => self.unknown_copies += 1,
        }
    }
}

/// Bytes that a `cuMemset*` writes: elements of the width in its name, in two dimensions rows of `Width` elements.
fn filled(call: &Call<'_>) -> u64 {
    let base = call.signature.base.as_str();
    let named = |name| call.argument_named(name);
    let element: u64 = if base.contains("32") {
        4
    } else if base.contains("16") {
        2
    } else {
        1
    };
    let elements = match named("N") {
        Some(count) => count,
        None => named("Width")
            .unwrap_or(0)
            .saturating_mul(named("Height").unwrap_or(0)),
    };
    elements.saturating_mul(element)
}

fn copied(
    call: &Call<'_>,
    signatures: &Signatures,
    objects: &Objects,
) -> Option<(Side, Side, u64)> {
    let base = call.signature.base.strip_prefix("cuMemcpy")?;
    let base = base.strip_suffix("Async").unwrap_or(base);
    let bytes = call.argument_named("ByteCount");
    let (from, to) = match base {
        "HtoD" | "HtoA" => (Side::Host, Side::Device),
        "DtoH" | "AtoH" => (Side::Device, Side::Host),
        "DtoD" | "DtoA" | "AtoD" | "AtoA" | "Peer" => (Side::Device, Side::Device),
        "" => {
            let side = |name| {
                let address = call.argument_named(name)?;
                Some(side_of(address, objects))
            };
            (side("src")?, side("dst")?)
        }
        "2D" | "2DUnaligned" | "3D" | "3DPeer" => return described(call, signatures, objects),
        _ => return None,
    };
    Some((from, to, bytes?))
}

/// A unified address: device memory if the trace saw it allocated.
fn side_of(address: u64, objects: &Objects) -> Side {
    if objects.is_device_memory(address) {
        Side::Device
    } else {
        Side::Host
    }
}

/// A copy that is described by a struct.
fn described(
    call: &Call<'_>,
    signatures: &Signatures,
    objects: &Objects,
) -> Option<(Side, Side, u64)> {
    let bytes = call.snapshot(0, field::POINTEE)?.bytes.inline()?;
    let c_type = call.signature.parameters.first()?.c_type.as_str();
    let name = c_type
        .trim_start_matches("const ")
        .trim_end_matches([' ', '*']);
    let layout = signatures.structure(name)?;
    let value = |name: &str| layout.number(bytes, name);
    // CUmemorytype: 1 host, 2 device, 3 array, 4 unified.
    let side = |memory_type: &str, address: &str| match value(memory_type)? {
        1 => Some(Side::Host),
        2 | 3 => Some(Side::Device),
        4 => Some(side_of(value(address)?, objects)),
        _ => None,
    };
    let rows = value("Height")?.saturating_mul(value("Depth").unwrap_or(1));
    let total = value("WidthInBytes")?.saturating_mul(rows);
    Some((
        side("srcMemoryType", "srcDevice")?,
        side("dstMemoryType", "dstDevice")?,
        total,
    ))
}

#[cfg(test)]
mod tests {
    use cutape_format::{NewCall, NewSnapshot, TraceBuilder};

    use super::*;
    use crate::test_trace;

    fn copy_2d(from: (u32, u64), to: (u32, u64), width: u64, height: u64) -> Vec<u8> {
        let mut bytes = vec![0; 128];
        bytes[16..20].copy_from_slice(&from.0.to_le_bytes());
        bytes[32..40].copy_from_slice(&from.1.to_le_bytes());
        bytes[72..76].copy_from_slice(&to.0.to_le_bytes());
        bytes[88..96].copy_from_slice(&to.1.to_le_bytes());
        bytes[112..120].copy_from_slice(&width.to_le_bytes());
        bytes[120..128].copy_from_slice(&height.to_le_bytes());
        bytes
    }

    #[test]
    fn directions_and_sizes() {
        let none = Copies::default();
        type Case = (&'static str, Vec<u64>, Vec<u8>, i32, Copies);
        let cases: Vec<Case> = vec![
            (
                "cuMemcpyHtoD_v2",
                vec![1, 2, 100],
                vec![],
                0,
                Copies {
                    host_to_device_bytes: 100,
                    ..none
                },
            ),
            ("cuMemcpyHtoD_v2", vec![1, 2, 100], vec![], 1, none),
            (
                "cuMemcpyDtoHAsync_v2",
                vec![1, 2, 7, 0],
                vec![],
                0,
                Copies {
                    device_to_host_bytes: 7,
                    ..none
                },
            ),
            (
                "cuMemcpyPeer",
                vec![1, 2, 3, 4, 9],
                vec![],
                0,
                Copies {
                    device_to_device_bytes: 9,
                    ..none
                },
            ),
            // The device memory of the test is 0x1000..0x1100.
            (
                "cuMemcpy",
                vec![0x1000, 0x7000, 5],
                vec![],
                0,
                Copies {
                    host_to_device_bytes: 5,
                    ..none
                },
            ),
            (
                "cuMemcpyAsync",
                vec![0x8000, 0x7000, 5, 0],
                vec![],
                0,
                Copies {
                    host_to_host_bytes: 5,
                    ..none
                },
            ),
            (
                "cuMemcpy2D_v2",
                vec![0x10],
                copy_2d((1, 0), (2, 0x1000), 6, 7),
                0,
                Copies {
                    host_to_device_bytes: 42,
                    ..none
                },
            ),
            (
                "cuMemcpy2D_v2",
                vec![0x10],
                copy_2d((4, 0x1010), (3, 0), 6, 7),
                0,
                Copies {
                    device_to_device_bytes: 42,
                    ..none
                },
            ),
            (
                "cuMemcpy2D_v2",
                vec![0x10],
                copy_2d((9, 0), (3, 0), 6, 7),
                0,
                Copies {
                    unknown_copies: 1,
                    ..none
                },
            ),
            (
                "cuMemcpy2D_v2",
                vec![0x10],
                vec![1, 2],
                0,
                Copies {
                    unknown_copies: 1,
                    ..none
                },
            ),
            (
                "cuMemsetD8_v2",
                vec![1, 0, 10],
                vec![],
                0,
                Copies {
                    filled_bytes: 10,
                    ..none
                },
            ),
            (
                "cuMemsetD16_v2",
                vec![1, 0, 10],
                vec![],
                0,
                Copies {
                    filled_bytes: 20,
                    ..none
                },
            ),
            (
                "cuMemsetD32Async",
                vec![1, 0, 10, 0],
                vec![],
                0,
                Copies {
                    filled_bytes: 40,
                    ..none
                },
            ),
            (
                "cuMemsetD2D32_v2",
                vec![1, 64, 0, 3, 5],
                vec![],
                0,
                Copies {
                    filled_bytes: 60,
                    ..none
                },
            ),
            (
                "cuMemsetD2D8_v2",
                vec![1, 64, 0, 3, 5],
                vec![],
                0,
                Copies {
                    filled_bytes: 15,
                    ..none
                },
            ),
        ];
        for (name, arguments, pointee, result, expected) in cases {
            let mut builder = TraceBuilder::new(cutape_registry::SIGNATURE_TEXT);
            builder
                .call(NewCall {
                    name: "cuMemAlloc_v2",
                    arguments: &[1, 0x100],
                    ..NewCall::default()
                })
                .leave(0, 0, &[NewSnapshot::pointee(0, &0x1000_u64.to_le_bytes())]);
            let snapshot = [NewSnapshot::pointee(0, &pointee)];
            builder
                .call(NewCall {
                    name,
                    arguments: &arguments,
                    snapshots: if pointee.is_empty() { &[] } else { &snapshot },
                    ..NewCall::default()
                })
                .leave(0, result, &[]);
            let trace = test_trace::open(&builder, "copies");
            let mut objects = Objects::default();
            let mut copies = Copies::default();
            for call in trace.calls() {
                objects.observe(
                    cutape_registry::function(&call.signature.name).unwrap(),
                    &call,
                );
                copies.observe(&call, trace.signatures(), &objects);
            }
            assert_eq!(copies, expected, "{name} {arguments:?}");
        }
    }
}
