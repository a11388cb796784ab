//! Waits in a stream for a value in memory. A wait for a value that only the program's CPU code
//! writes would never end; in memory that ranks share, another rank may write it.

use cutape_format::layout::field;

use crate::calls::awaited::awaited_in;
use crate::compare::payload::Payload;
use crate::objects::skip::Skip;
use crate::place::address::Found;
use crate::player::{Job, Played, Player};

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
        && awaited_in(&bytes).any(|address| is_host(job, address))
    {
        return Err(Skip::because(REASON));
    }
    job.plain()
}

/// Whether an address lies in memory that the program's CPU code can write.
fn is_host(player: &Player<'_>, address: u64) -> bool {
    match player.ranges.find(address) {
        Found::Live(range, _) | Found::Freed(range) => {
            range.is_of_host() && player.sharers(range).is_none()
        }
        Found::Unknown => false,
    }
}
