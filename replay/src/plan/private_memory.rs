//! Memory that no recorded call made: libraries of the driver get theirs through its private tables
//! (OptiX, measured with driver 580 on an H200, 2026-11-23).

use cutape_format::layout::field;
use cutape_format::{Call, Trace};
use cutape_model::{DescribedAccess, IntervalMap, described_accesses_in};
use cutape_registry::{CopyOp, Family, Function, Kind, MemoryType, Role};

use crate::plan::length::{length_of, made_length};

/// The device memory that a call names whose result does not depend on host memory: address and
/// length. Other calls may name memory of the system's allocator; of a copy that may, what it reads
/// is on the device if the recorder took no bytes of it.
pub(crate) fn operands<'c>(
    trace: &'c Trace,
    call: &'c Call<'_>,
    function: &'static Function,
) -> impl Iterator<Item = (u64, u64)> + 'c {
    let (is_of_device, may_be_written) = match function.family {
        Family::Copy(CopyOp::Linear(_) | CopyOp::Peer(_)) | Family::Memset => (true, true),
        Family::Copy(CopyOp::Unified(_)) => (!has_host_bytes(call), false),
        _ => (false, false),
    };
    let is_of_device = is_of_device && call.succeeded();
    let params = function.params.iter().enumerate();
    let operands = params.filter_map(move |(position, param)| match param.role {
        Role::DeviceWrite(_) if !may_be_written => None,
        Role::DeviceRead(length) | Role::DeviceWrite(length) => {
            Some((call.argument(position), length_of(call, function, length)))
        }
        _ => None,
    });
    let is_named = |operand: &(u64, u64)| operand.0 != 0 && operand.1 != 0;
    let operands = operands.filter(is_named).take_while(move |_| is_of_device);
    operands.chain(described_operands(trace, call, function))
}

/// Those of copies that structs or arrays describe.
fn described_operands(
    trace: &Trace,
    call: &Call<'_>,
    function: &'static Function,
) -> Vec<(u64, u64)> {
    if !matches!(function.family, Family::Copy(_)) || !call.succeeded() {
        return Vec::new();
    }
    let accesses = described(trace, call, function).unwrap_or_default();
    if accesses.is_empty() {
        return Vec::new();
    }
    let reads_host = has_host_bytes(call);
    let of_one = accesses.chunk_by(|one, other| one.copy == other.copy);
    let of_device = of_one.flat_map(|accesses| {
        let is_of_device = move |access: &&DescribedAccess| match access.memory {
            MemoryType::Device => true,
            // Earlier recorders do not say that they took no bytes of a copy to an array.
            MemoryType::Unified => !access.is_write && !reads_host && accesses.len() == 2,
            MemoryType::Host | MemoryType::Array => false,
        };
        accesses.iter().filter(is_of_device)
    });
    let operands = of_device.map(|access| (access.start, span(access)));
    operands.filter(|operand| operand.0 != 0).collect()
}

/// Bytes from the first to the last.
pub(crate) fn span(access: &DescribedAccess) -> u64 {
    access.end.saturating_sub(access.start)
}

/// The linear memory that the copies of a call read and write, where no parameter has its address;
/// empty for other calls, `None` if the trace lacks the description.
pub(crate) fn described(
    trace: &Trace,
    call: &Call<'_>,
    function: &'static Function,
) -> Option<Vec<DescribedAccess>> {
    let read = |position| {
        let snapshot = call.snapshot(position, field::POINTEE)?;
        trace.resolve(snapshot.bytes).ok()
    };
    described_accesses_in(function, &read)
}

/// Whether the recorder took the bytes that a call reads from host memory, or tried to.
pub(crate) fn has_host_bytes(call: &Call<'_>) -> bool {
    let mut snapshots = call.snapshots();
    snapshots.any(|snapshot| snapshot.field == field::HOST_BYTES)
}

/// Finds out whether a trace names such memory.
#[derive(Debug, Default)]
pub(crate) struct PrivateMemoryObserver {
    /// All memory that calls ever made.
    made: IntervalMap<()>,
    pub is_named: bool,
}

impl PrivateMemoryObserver {
    pub(crate) fn observe(&mut self, trace: &Trace, call: &Call<'_>, function: &'static Function) {
        if self.is_named {
            return;
        }
        for (position, param) in function.params.iter().enumerate() {
            match param.role {
                Role::Make(kind, _) | Role::Find(kind, _) if kind.is_address() => {
                    let length = match kind {
                        // The size that the call found follows the address.
                        Kind::Global => call.out(position + 1).unwrap_or(1),
                        _ => made_length(call, function),
                    };
                    if let Some(start) = call.out(position).filter(|&start| start != 0) {
                        self.add(start, length);
                    }
                }
                Role::HostAddress => self.add(call.argument(position), made_length(call, function)),
                _ => {}
            }
        }
        let made = &self.made;
        self.is_named =
            operands(trace, call, function).any(|(start, _)| made.find(start).is_none());
    }

    fn add(&mut self, start: u64, length: u64) {
        let end = start.saturating_add(length.max(1));
        match self.made.find(start) {
            Some((known, ())) if known.end >= end => {}
            _ => {
                let joined = self.made.remove_overlapping(start, end - start);
                let first = joined.iter().map(|old| old.0.start).fold(start, u64::min);
                let end = joined.iter().map(|old| old.0.end).fold(end, u64::max);
                self.made.insert(first, end - first, ());
            }
        }
    }
}
