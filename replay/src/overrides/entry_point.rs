//! cuGetProcAddress: found or not, never where. cuGetExportTable: private tables are not asked for.

use crate::objects::skip::skip;
use crate::player::{Job, Played};
use crate::report::What;

/// Asks again; compares the result, the status, and whether there was an address.
pub(crate) fn proc_address(job: &mut Job<'_, '_>) -> Played {
    let (frame, result) = job.issued(&[])?;
    if job.is_compared()
        && job.call.succeeded()
        && result == 0
        && let (Some(recorded), Some(received)) = (job.call.out(1), frame.word_at(1))
        && (recorded == 0) != (received == 0)
        && !job.machine.asks_for_machine(job.call, job.function)
    {
        let text = |address: u64| if address == 0 { "not found" } else { "found" }.to_owned();
        let texts = (text(recorded), text(received));
        job.diverge(What::OutParameter, Some(1), texts);
    }
    job.conclude(frame, result)
}

/// The tables are private to the driver, and calls through them are not recorded either.
pub(crate) fn export_table(_: &mut Job<'_, '_>) -> Played {
    skip("private table")
}
