//! Waits in a stream for a value in memory. A wait for a value that only the program's CPU code
//! writes would never end.

use cutape_format::layout::field;
use cutape_registry::layout::{offset_of, size_of};

use crate::buffer::word;
use crate::compare::payload::Payload;
use crate::issue::player::{Job, Played, Player};
use crate::issue::skip::Skip;
use crate::place::address::Found;

const OPERATION_BYTES: usize = size_of("CUstreamBatchMemOpParams");
const OPERATION: usize = offset_of("CUstreamBatchMemOpParams", "operation");
const ADDRESS: usize = offset_of("CUstreamBatchMemOpParams", "waitValue.address");
/// CU_STREAM_MEM_OP_WAIT_VALUE_32 and _64.
const WAITS: [u64; 2] = [1, 4];

const REASON: &str = "waits for a value in host memory, which the program itself may have written";

/// cuStreamWaitValue32, cuStreamWaitValue64.
pub(crate) fn wait(job: &mut Job<'_, '_>) -> Played {
    if job.call.succeeded() && is_host(job, job.call.argument(1)) {
        return Err(Skip::because(REASON));
    }
    job.plain()
}

/// cuStreamBatchMemOp: one such wait skips the whole batch.
pub(crate) fn batch(job: &mut Job<'_, '_>) -> Played {
    let operations = job
        .call
        .snapshot(2, field::POINTEE)
        .map(|capture| job.payload(&capture));
    if let Some(Payload::Here(bytes)) = operations
        && job.call.succeeded()
        && bytes.chunks_exact(OPERATION_BYTES).any(|operation| {
            WAITS.contains(&(word(operation, OPERATION) & 0xffff_ffff))
                && is_host(job, word(operation, ADDRESS))
        })
    {
        return Err(Skip::because(REASON));
    }
    job.plain()
}

/// Whether an address lies in memory that the program's CPU code can write.
fn is_host(player: &Player<'_>, address: u64) -> bool {
    match player.ranges.find(address) {
        Found::Live(range, _) | Found::Freed(range) => range.is_of_host(),
        Found::Unknown => false,
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
