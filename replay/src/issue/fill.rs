//! New memory filled with a byte, so that what is read before it is written shows.

use cutape_registry::{Family, HostMemoryOp, Kind, MemoryOp};

use crate::api::result_name;
use crate::player::Job;

/// Fills memory that the call has just allocated. Global variables, registered memory of the
/// program and what it maps itself (cuMemMap) stay as they are.
pub(crate) fn fresh(job: &mut Job<'_, '_>, byte: u8, address: u64, length: u64) {
    let is_pooled = match job.function.family {
        Family::HostMemory(HostMemoryOp::Allocate) => {
            // SAFETY: the driver, or the replay for it, has just allocated that many bytes of host
            // memory there, and no call has used them.
            unsafe { std::ptr::write_bytes(address as *mut u8, byte, length as usize) };
            return;
        }
        Family::Memory(MemoryOp::AllocateAsync) => true,
        Family::Memory(
            MemoryOp::Allocate | MemoryOp::AllocatePitch { .. } | MemoryOp::AllocateManaged,
        ) => false,
        _ => return,
    };
    if job.captures.any_open() {
        job.report
            .note("memory allocated while a stream captures was not filled");
        return;
    }
    // The program orders its use of memory of a pool behind the allocation on its stream.
    let stream = job.function.stream.filter(|_| is_pooled);
    let stream = stream.map_or(0, |at| job.call.argument(usize::from(at)));
    let Ok(stream) = job.live_handle(Kind::Stream, stream) else {
        return;
    };
    let stream = (stream, is_pooled && job.function.per_thread);
    let filled = job.player.while_lent(|api| {
        api.fill_memory((address, length), byte, stream)?;
        match is_pooled {
            true => Ok(()),
            false => api.synchronize_stream(stream.0, stream.1),
        }
    });
    if let Err(code) = filled {
        let result = result_name(code);
        job.report.note(format!(
            "new memory could not be filled: the driver returned {result}"
        ));
    }
}
