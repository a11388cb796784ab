//! Memory operations of streams: writes of a value, and waits for one.

use cutape_driver::types::CUstreamBatchMemOpParams;

use crate::call::answer::{Answer, INVALID_VALUE, NOT_SUPPORTED, invalid_if, require};
use crate::object::memory::{Purpose, Segment, move_bytes};
use crate::state::State;
use crate::work::pending_wait::{self, Value, Wait};

// CUstreamBatchMemOpType.
const WAIT_32: u32 = 1;
const WRITE_32: u32 = 2;
const FLUSH_REMOTE_WRITES: u32 = 3;
const WAIT_64: u32 = 4;
const WRITE_64: u32 = 5;
const BARRIER: u32 = 6;

/// One memory operation.
#[derive(Clone, Copy)]
pub(crate) enum Operation {
    Wait(u64, Value, u32),
    Write(u64, Value, u32),
    Barrier,
    /// The device has no remote writes.
    Flush,
}

impl Operation {
    /// Reads an element of a batch; `INVALID_VALUE` for an unknown operation.
    pub(crate) fn read(params: &CUstreamBatchMemOpParams) -> Answer<Operation> {
        // SAFETY: every member of the union begins with `operation`, and any bits are numbers; the
        // members are read by what the operation says.
        unsafe {
            let (wait, write) = (params.waitValue, params.writeValue);
            let (wanted, value) = (
                wait.__bindgen_anon_1.value64,
                write.__bindgen_anon_1.value64,
            );
            Ok(match params.operation.0 {
                WAIT_32 => Operation::Wait(wait.address, (wanted as u32).into(), wait.flags),
                WAIT_64 => Operation::Wait(wait.address, wanted.into(), wait.flags),
                WRITE_32 => Operation::Write(write.address, (value as u32).into(), write.flags),
                WRITE_64 => Operation::Write(write.address, value.into(), write.flags),
                BARRIER => Operation::Barrier,
                FLUSH_REMOTE_WRITES => Operation::Flush,
                _ => return Err(INVALID_VALUE),
            })
        }
    }
}

/// Waits for a value in memory. In host memory the program, or another process, may write it later:
/// the stream waits. In other memory nothing can change the value later, because all work is done
/// when it is enqueued: a wait that is not fulfilled now cannot be done here.
pub(crate) fn wait(state: &State, wait: Wait) -> Answer {
    if wait.is_fulfilled(state)? {
        return Ok(());
    }
    require(state.is_of_host(wait.address), NOT_SUPPORTED)?;
    pending_wait::add(wait);
    Ok(())
}

/// Writes a value to device memory.
pub(crate) fn write(state: &State, address: u64, value: Value) -> Answer {
    let size = value.width as u64;
    // Managed memory cannot be an operand (measured).
    let memory = state.allocation_at(address);
    let is_managed = memory.is_some_and(|(_, memory)| memory.purpose == Purpose::Managed);
    invalid_if(!address.is_multiple_of(size) || is_managed)?;
    let bytes = value.bits.to_le_bytes();
    let target = state.device_range(address, size)?;
    move_bytes(&target, &[Segment::of(&bytes[..value.width])]);
    Ok(())
}
