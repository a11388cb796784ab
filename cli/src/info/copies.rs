//! How many bytes were copied, from where to where.

use cutape_format::layout::field;
use cutape_format::{Call, Signatures};
use cutape_model::{CallArguments, State};
use cutape_registry::{CopyOp, Family, Function, Kind, MemoryOp, MemoryType, Role};
use serde::Serialize;

/// Bytes of successful copies and fills.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Copies {
    pub(crate) host_to_device_bytes: u64,
    pub(crate) device_to_host_bytes: u64,
    pub(crate) device_to_device_bytes: u64,
    pub(crate) host_to_host_bytes: u64,
    /// Written by `cuMemset*`.
    pub(crate) filled_bytes: u64,
    /// Copies whose size or direction the trace lacks.
    pub(crate) unknown_copies: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Host,
    Device,
}

impl Copies {
    /// Adds a copy or a fill; failed calls and those in flight count nothing.
    pub(crate) fn observe(
        &mut self,
        function: &Function,
        call: &Call<'_>,
        signatures: &Signatures,
        state: &State<()>,
    ) {
        if !call.succeeded() {
            return;
        }
        let Family::Copy(op) = function.family else {
            let bytes = filled(function, call);
            self.filled_bytes = self.filled_bytes.saturating_add(bytes);
            return;
        };
        match copied(op, call, signatures, state) {
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

/// Bytes that a `cuMemset*` writes.
fn filled(function: &Function, call: &Call<'_>) -> u64 {
    let length = function.params.iter().find_map(|param| match param.role {
        Role::DeviceWrite(length) => Some(length),
        _ => None,
    });
    let extent = length.and_then(|length| length.evaluate(function, &CallArguments(call)));
    extent.map_or(0, |extent| extent.content())
}

fn copied(
    op: CopyOp,
    call: &Call<'_>,
    signatures: &Signatures,
    state: &State<()>,
) -> Option<(Side, Side, u64)> {
    match op {
        CopyOp::Linear(at) | CopyOp::Peer(at) | CopyOp::Unified(at) => {
            let argument = |position: u8| call.argument(usize::from(position));
            Some((
                side(at.from, argument(at.source), state),
                side(at.to, argument(at.target), state),
                argument(at.bytes),
            ))
        }
        CopyOp::Described(_) => described(call, signatures, state),
        CopyOp::Batch { .. } | CopyOp::Batch3D { .. } => None,
    }
}

fn side(memory: MemoryType, address: u64, state: &State<()>) -> Side {
    match memory {
        MemoryType::Host => Side::Host,
        MemoryType::Device | MemoryType::Array => Side::Device,
        MemoryType::Unified if is_device_memory(address, state) => Side::Device,
        MemoryType::Unified => Side::Host,
    }
}

/// Whether an address lies in allocated device memory; managed memory counts as the host's.
fn is_device_memory(address: u64, state: &State<()>) -> bool {
    let object = state
        .memory_at(address)
        .and_then(|id| state.objects.get(id));
    object.is_some_and(|object| object.kind == Kind::Memory && !is_managed(object.created.function))
}

/// Whether a function allocates managed memory.
pub(crate) fn is_managed(function: &str) -> bool {
    let function = cutape_registry::function(function);
    function.is_some_and(|f| f.family == Family::Memory(MemoryOp::AllocateManaged))
}

/// A copy that a struct describes.
fn described(
    call: &Call<'_>,
    signatures: &Signatures,
    state: &State<()>,
) -> Option<(Side, Side, u64)> {
    let bytes = call.snapshot(0, field::POINTEE)?.bytes.inline()?;
    let c_type = call.signature.parameters.first()?.c_type.as_str();
    let name = c_type
        .trim_start_matches("const ")
        .trim_end_matches([' ', '*']);
    let layout = signatures.structure(name)?;
    let value = |name: &str| layout.number(bytes, name);
    let side = |memory_type: &str, address: &str| {
        let memory = MemoryType::of(value(memory_type)?)?;
        Some(side(memory, value(address)?, state))
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
    use cutape_analyzer::decode::function_of;
    use cutape_format::{NewCall, NewSnapshot, TraceBuilder};

    use super::*;
    use crate::test_trace;
    use crate::trace_state::{Scope, TraceState};

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
            let mut state = TraceState::new(Scope::All);
            let mut copies = Copies::default();
            for call in trace.calls() {
                state.observe(&call);
                let function = function_of(call.signature).unwrap();
                if matches!(function.family, Family::Copy(_) | Family::Memset) {
                    copies.observe(function, &call, trace.signatures(), &state.state);
                }
            }
            assert_eq!(copies, expected, "{name} {arguments:?}");
        }
    }
}
