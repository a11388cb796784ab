//! The addresses of the values that calls let a stream wait for.

use cutape_format::{Call, layout::field};
use cutape_registry::layout::{offset_of, size_of};
use cutape_registry::{Family, Function, StreamMemoryOp};

use crate::api::buffer::word;

const OPERATION_BYTES: usize = size_of("CUstreamBatchMemOpParams");
const OPERATION: usize = offset_of("CUstreamBatchMemOpParams", "operation");
const ADDRESS: usize = offset_of("CUstreamBatchMemOpParams", "waitValue.address");
/// CU_STREAM_MEM_OP_WAIT_VALUE_32 and _64.
const WAITS: [u64; 2] = [1, 4];

/// Those of the operations of a batch.
pub(crate) fn awaited_in(operations: &[u8]) -> impl Iterator<Item = u64> + '_ {
    operations
        .chunks_exact(OPERATION_BYTES)
        .filter(|operation| WAITS.contains(&(word(operation, OPERATION) & 0xffff_ffff)))
        .map(|operation| word(operation, ADDRESS))
}

/// Those of a call.
pub(crate) fn awaited_addresses(call: &Call<'_>, function: &Function) -> Vec<u64> {
    match function.family {
        Family::StreamMemory(StreamMemoryOp::Wait) => vec![call.argument(1)],
        Family::StreamMemory(StreamMemoryOp::Batch) => {
            let operations = call.snapshot(2, field::POINTEE);
            let operations = operations.and_then(|given| given.bytes.inline());
            awaited_in(operations.unwrap_or_default()).collect()
        }
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_have_the_numbers_of_cuda_h() {
        let names = cutape_registry::enumeration("CUstreamBatchMemOpType").expect("known");
        assert!(WAITS.iter().all(|&wait| {
            names
                .name_of(wait as i64)
                .is_some_and(|name| name.contains("WAIT_VALUE"))
        }));
    }
}
