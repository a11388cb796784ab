//! Memory operations of streams: writes of a value, and waits for one.

use cutape_driver::types::CUstreamBatchMemOpParams;

use crate::call::answer::{Answer, INVALID_VALUE, NOT_SUPPORTED, invalid_if, require};
use crate::object::memory::{Purpose, Segment, move_bytes};
use crate::state::State;

// CUstreamBatchMemOpType.
const WAIT_32: u32 = 1;
const WRITE_32: u32 = 2;
const FLUSH_REMOTE_WRITES: u32 = 3;
const WAIT_64: u32 = 4;
const WRITE_64: u32 = 5;
const BARRIER: u32 = 6;

/// A number of 4 or 8 bytes.
#[derive(Clone, Copy)]
pub(crate) struct Value {
    bits: u64,
    width: usize,
}

impl From<u32> for Value {
    fn from(value: u32) -> Self {
        Value {
            bits: value.into(),
            width: 4,
        }
    }
}

impl From<u64> for Value {
    fn from(bits: u64) -> Self {
        Value { bits, width: 8 }
    }
}

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

/// Waits for a value in memory. All work is done when it is enqueued, so nothing can change the
/// value later: a wait that is not fulfilled now cannot be done here.
pub(crate) fn wait(state: &State, address: u64, wanted: Value, flags: u32) -> Answer {
    let width = wanted.width as u64;
    invalid_if(!address.is_multiple_of(width) || flags & !3 != 0)?;
    let mut bytes = [0; 8];
    let target = Segment {
        bytes: bytes.as_mut_ptr() as u64,
        size: width,
    };
    move_bytes(&[target], &state.device_range(address, width)?);
    let (value, wanted) = (u64::from_le_bytes(bytes), wanted.bits);
    let mask = u64::MAX >> (64 - 8 * width);
    let sign = (mask >> 1) + 1;
    let is_fulfilled = match flags {
        0 => value.wrapping_sub(wanted) & mask & sign == 0, // GEQ, cyclic
        1 => value == wanted & mask,
        2 => value & wanted & mask != 0,
        _ => !(value | wanted) & mask != 0, // NOR
    };
    require(is_fulfilled, NOT_SUPPORTED)
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
