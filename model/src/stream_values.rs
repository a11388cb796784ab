//! Values that streams write and wait for.

use std::ops::Range;

use cutape_format::Call;
use cutape_format::layout::field;
use cutape_registry::layout::{offset_of, size_of};
use cutape_registry::{Family, Function, Role, StreamMemoryOp};

/// The memory that the operations of a `cuStreamBatchMemOp` write, and whether the others are none;
/// `None` if the trace does not have them.
fn batched_writes(function: &Function, call: &Call<'_>) -> Option<(Vec<Range<u64>>, bool)> {
    const LENGTH: usize = size_of("CUstreamBatchMemOpParams");
    const OPERATION: usize = offset_of("CUstreamBatchMemOpParams", "operation");
    const ADDRESS: usize = offset_of("CUstreamBatchMemOpParams", "waitValue.address");
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
            Some((_, length)) => written.push(address..address.saturating_add(*length)),
            None => only_writes = false,
        }
    }
    Some((written, only_writes))
}

/// The memory that a batch of operations writes; empty for other calls, and if the trace does not have
/// it.
pub(crate) fn written_values(function: &Function, call: &Call<'_>) -> Vec<Range<u64>> {
    batched_writes(function, call).map_or_else(Vec::new, |(written, _)| written)
}

/// Whether a call makes a stream wait for a value: a batch of operations that the trace has may only
/// write some.
pub(crate) fn may_wait(function: &Function, call: &Call<'_>) -> bool {
    batched_writes(function, call).is_none_or(|(_, only_writes)| !only_writes)
}
