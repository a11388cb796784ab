//! Values that streams write and wait for.

use std::ops::Range;

use cutape_format::Call;
use cutape_format::layout::field;
use cutape_registry::layout::{offset_of, size_of};
use cutape_registry::{Extent, Family, Function, Param, Role, StreamMemoryOp};

use crate::effects::CallArguments;

/// The memory that a stream writes, and the value; little-endian, its first bytes if that is shorter.
pub type WrittenValue = (Range<u64>, u64);

/// What the operations of a `cuStreamBatchMemOp` write, and whether the others are none; `None` if the
/// trace does not have them.
fn batched_writes(function: &Function, call: &Call<'_>) -> Option<(Vec<WrittenValue>, bool)> {
    const LENGTH: usize = size_of("CUstreamBatchMemOpParams");
    const OPERATION: usize = offset_of("CUstreamBatchMemOpParams", "operation");
    const ADDRESS: usize = offset_of("CUstreamBatchMemOpParams", "waitValue.address");
    const VALUE: usize = offset_of("CUstreamBatchMemOpParams", "waitValue.value");
    // CUstreamBatchMemOpType of cuda.h: CU_STREAM_MEM_OP_WRITE_VALUE_32 and _64.
    const WRITES: [(u32, u64); 2] = [(2, 4), (5, 8)];
    if function.family != Family::StreamMemory(StreamMemoryOp::Batch) {
        return None;
    }
    let mut params = function.params.iter();
    let list = params.position(|param| matches!(param.role, Role::In(_)))?;
    let list = call.snapshot(list, field::POINTEE)?.bytes.inline()?;
    let mut written = Vec::new();
    let mut only_writes = !list.is_empty();
    for operation in list.chunks(LENGTH) {
        let kind = u32::from_le_bytes(*operation.get(OPERATION..)?.first_chunk()?);
        let address = u64::from_le_bytes(*operation.get(ADDRESS..)?.first_chunk()?);
        match WRITES.iter().find(|(write, _)| *write == kind) {
            Some((_, length)) => {
                let value = u64::from_le_bytes(*operation.get(VALUE..)?.first_chunk()?);
                written.push((address..address.saturating_add(*length), value));
            }
            None => only_writes = false,
        }
    }
    Some((written, only_writes))
}

/// The values that a call makes a stream write; none of other calls, and of a batch that the trace does
/// not have.
pub fn written_values(function: &Function, call: &Call<'_>) -> Vec<WrittenValue> {
    if function.family != Family::StreamMemory(StreamMemoryOp::Write) {
        return batched_writes(function, call).map_or_else(Vec::new, |(written, _)| written);
    }
    let write = |(position, param): (usize, &Param)| match param.role {
        Role::DeviceWrite(length) => {
            let address = call.argument(position);
            let extent = length.evaluate(function, &CallArguments(call));
            let end = address.saturating_add(extent.map_or(0, Extent::span));
            Some((address..end, call.argument(position + 1)))
        }
        _ => None,
    };
    function
        .params
        .iter()
        .enumerate()
        .filter_map(write)
        .collect()
}

/// Whether a call makes a stream wait for a value: a batch of operations that the trace has may only
/// write some.
pub fn may_wait(function: &Function, call: &Call<'_>) -> bool {
    batched_writes(function, call).is_none_or(|(_, only_writes)| !only_writes)
}
