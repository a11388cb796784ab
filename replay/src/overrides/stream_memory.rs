//! Waits in a stream for a value in memory: one that only the recorded program can write would never end.

use cutape_format::layout::field;
use cutape_registry::Kind;

use crate::buffer::number;
use crate::compare::payload::Payload;
use crate::issue::player::{Job, Played, Player};
use crate::issue::skip::Skip;
use crate::place::address::Found;

/// A CUstreamBatchMemOpParams: its size, its operation, the address of waits and writes.
const OPERATION_BYTES: usize = 48;
const OPERATION: std::ops::Range<usize> = 0..4;
const ADDRESS: std::ops::Range<usize> = 8..16;
/// CU_STREAM_MEM_OP_WAIT_VALUE_32 and _64.
const WAITS: [u64; 2] = [1, 4];

const REASON: &str = "waits for a value in host memory, which the program itself may have written";

/// cuStreamWaitValue32, cuStreamWaitValue64.
pub(crate) fn wait(Job(player, call, function): Job<'_, '_>) -> Played {
    if call.succeeded() && is_host(player, call.argument(1)) {
        return Err(Skip::because(REASON));
    }
    player.plain(call, function)
}

/// cuStreamBatchMemOp: one such wait makes the whole batch unfit.
pub(crate) fn batch(Job(player, call, function): Job<'_, '_>) -> Played {
    let operations = call
        .snapshot(2, field::POINTEE)
        .map(|capture| player.payload(&capture));
    if let Some(Payload::Here(bytes)) = operations
        && call.succeeded()
        && bytes.chunks_exact(OPERATION_BYTES).any(|operation| {
            WAITS.contains(&number(operation.get(OPERATION).unwrap_or_default()))
                && is_host(player, number(operation.get(ADDRESS).unwrap_or_default()))
        })
    {
        return Err(Skip::because(REASON));
    }
    player.plain(call, function)
}

/// Whether an address lies in memory that the program's CPU code can write.
fn is_host(player: &Player<'_>, address: u64) -> bool {
    match player.ranges.find(address) {
        Found::Live(range, _) | Found::Freed(range) => {
            matches!(range.kind, Kind::HostMemory | Kind::Registration) || range.is_managed()
        }
        Found::Unknown => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_are_where_cuda_h_has_them() {
        let layout = cutape_registry::structure("CUstreamBatchMemOpParams").expect("known");
        assert_eq!(layout.size as usize, OPERATION_BYTES);
        for (name, place) in [
            ("operation", OPERATION),
            ("waitValue.address", ADDRESS),
            ("writeValue.address", ADDRESS),
        ] {
            let field = layout.fields.iter().find(|field| field.name == name);
            let found =
                field.map(|field| field.offset as usize..(field.offset + field.size) as usize);
            assert_eq!(found, Some(place), "{name}");
        }
        let names = cutape_registry::enumeration("CUstreamBatchMemOpType").expect("known");
        assert!(WAITS.iter().all(|&wait| {
            names
                .name_of(wait as i64)
                .is_some_and(|name| name.contains("WAIT_VALUE"))
        }));
    }
}
