//! Names for handles and device addresses: `module#2`, `memory#1+0x40`.

use std::collections::{BTreeMap, HashMap};

use cutape_analyzer::decode::{Names, word};
use cutape_format::Call;
use cutape_registry::{Function, Kind, Role};

/// The objects that were seen, numbered by kind in the order in which they were made, from 1.
///
/// A handle that was destroyed keeps its label until it is made again: uses of it are what one looks for.
#[derive(Debug, Default)]
pub(crate) struct Labels {
    ordinals: HashMap<(Kind, u64), u32>,
    counts: HashMap<Kind, u32>,
    /// Start of device memory, globals and reserved addresses: bytes, what it is.
    ranges: BTreeMap<u64, (u64, Kind)>,
}

impl Labels {
    /// Learns from a call; to be shown every call, in order, before it is written.
    pub(crate) fn observe(&mut self, function: &'static Function, call: &Call<'_>) {
        if !call.succeeded() {
            return;
        }
        for (position, param) in function.params.iter().enumerate() {
            let (kind, fresh) = match param.role {
                Role::Make(kind, _) => (kind, true),
                Role::Find(kind, _) | Role::FindMany(kind, ..) => (kind, false),
                _ => continue,
            };
            let Some(bytes) = call.out_bytes(position) else {
                continue;
            };
            // A device is its ordinal, and needs no label.
            if kind == Kind::Device || !bytes.len().is_multiple_of(8) {
                continue;
            }
            for handle in bytes.chunks_exact(8).map(word) {
                self.number(kind, handle, fresh);
                if matches!(kind, Kind::Memory | Kind::Global | Kind::Reservation) {
                    self.ranges.insert(handle, (range_bytes(call), kind));
                }
            }
        }
    }

    fn number(&mut self, kind: Kind, handle: u64, fresh: bool) {
        if handle == 0 || !fresh && self.ordinals.contains_key(&(kind, handle)) {
            return;
        }
        let count = self.counts.entry(kind).or_default();
        *count += 1;
        self.ordinals.insert((kind, handle), *count);
    }
}

impl Names for Labels {
    fn handle(&self, kind: Kind, handle: u64) -> Option<String> {
        // cuda.h: CU_STREAM_LEGACY and CU_STREAM_PER_THREAD.
        match (kind, handle) {
            (Kind::Stream, 1) => Some("legacy default".into()),
            (Kind::Stream, 2) => Some("per-thread default".into()),
            _ => self
                .ordinals
                .get(&(kind, handle))
                .map(|n| format!("{}#{n}", kind_name(kind))),
        }
    }

    /// E.g. `memory#1+0x40`.
    fn place(&self, address: u64) -> Option<String> {
        let (&start, &(bytes, kind)) = self.ranges.range(..=address).next_back()?;
        let offset = address - start;
        if offset >= bytes.max(1) {
            return None;
        }
        let ordinal = self.ordinals.get(&(kind, start))?;
        Some(match offset {
            0 => format!("{}#{ordinal}", kind_name(kind)),
            _ => format!("{}#{ordinal}+{offset:#x}", kind_name(kind)),
        })
    }
}

/// Bytes of the memory or variable that the call gave.
fn range_bytes(call: &Call<'_>) -> u64 {
    let out = |name| {
        call.signature
            .parameter(name)
            .and_then(|position| call.out(position))
    };
    if let Some(pitch) = out("pPitch") {
        return pitch.saturating_mul(call.argument_named("Height").unwrap_or(0));
    }
    let asked = call
        .argument_named("bytesize")
        .or_else(|| call.argument_named("size"));
    asked.or_else(|| out("bytes")).unwrap_or(0)
}

/// As in messages: `host-memory`.
pub(crate) fn kind_name(kind: Kind) -> String {
    let mut name = String::new();
    for letter in format!("{kind:?}").chars() {
        if letter.is_ascii_uppercase() && !name.is_empty() {
            name.push('-');
        }
        name.push(letter.to_ascii_lowercase());
    }
    name
}

#[cfg(test)]
mod tests {
    use cutape_analyzer::decode::handle as handle_of;
    use cutape_format::{NewCall, NewSnapshot, TraceBuilder};

    use super::*;
    use crate::test_trace;

    #[test]
    fn labels_follow_handles() {
        let mut builder = TraceBuilder::new(cutape_registry::SIGNATURE_TEXT);
        let mut make = |name, arguments: &[u64], handle: u64, result| {
            let bytes = handle.to_le_bytes();
            let snapshots = [NewSnapshot::pointee(0, &bytes)];
            let snapshots: &[_] = if result == 0 { &snapshots } else { &[] };
            builder
                .call(NewCall {
                    name,
                    arguments,
                    ..NewCall::default()
                })
                .leave(0, result, snapshots);
        };
        make("cuModuleLoadData", &[1, 2], 0x50, 0);
        make("cuModuleLoadData", &[1, 2], 0x60, 200);
        make("cuModuleLoadData", &[1, 2], 0x50, 0);
        make("cuMemAlloc_v2", &[1, 0x100], 0x1000, 0);
        make("cuModuleGetFunction", &[1, 0x50, 2], 0x70, 0);
        make("cuModuleGetFunction", &[1, 0x50, 2], 0x70, 0);
        let trace = test_trace::open(&builder, "labels");
        let mut labels = Labels::default();
        for call in trace.calls() {
            labels.observe(
                cutape_registry::function(&call.signature.name).unwrap(),
                &call,
            );
        }
        for (kind, handle, expected) in [
            (Kind::Module, 0x50, "0x50 module#2"),
            (Kind::Module, 0x60, "0x60"),
            (Kind::Context, 0x50, "0x50"),
            (Kind::Module, 0, "NULL"),
            (Kind::Stream, 2, "0x2 per-thread default"),
            (Kind::Function, 0x70, "0x70 function#1"),
            (Kind::Memory, 0x1000, "0x1000 memory#1"),
            (Kind::Memory, 0x10ff, "0x10ff memory#1+0xff"),
            (Kind::Memory, 0x1100, "0x1100"),
        ] {
            let mut out = String::new();
            handle_of(&labels, kind, handle).write(&mut out);
            assert_eq!(out, expected);
        }
    }
}
