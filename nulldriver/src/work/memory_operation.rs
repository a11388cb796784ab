//! Memory operations of streams: writes of a value, and waits for one.

use cutape_driver::types::CUstreamBatchMemOpParams;

use crate::call::answer::{Answer, INVALID_VALUE, NOT_SUPPORTED, invalid_if};
use crate::object::memory::{Place, Purpose, Segment, move_bytes};
use crate::player;
use crate::state::{Action, State};
use crate::work::value_wait::{Value, Wait};

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

/// The work of an operation, checked. A wait for a value that nothing can change is refused: while
/// no work is pending, only memory of the host can change.
pub(crate) fn action(state: &State, operation: Operation) -> Answer<Action> {
    match operation {
        Operation::Wait(address, wanted, flags) => {
            let wait = Wait {
                address,
                wanted,
                flags,
            };
            let can_change = || state.queue.len() > 0 || state.place_at(address) == Place::Pinned;
            invalid_if(!may_be_operand(state, address))?;
            match wait.is_fulfilled(state)? || can_change() {
                true => Ok(wait.action()),
                false => Err(NOT_SUPPORTED),
            }
        }
        Operation::Write(address, value, flags) => {
            invalid_if(flags > 1)?;
            write(state, address, value)
        }
        Operation::Barrier => Ok(Action::Nothing),
        Operation::Flush => Err(NOT_SUPPORTED),
    }
}

/// Managed memory and memory of a pool cannot be an operand (H100, driver 580).
fn may_be_operand(state: &State, address: u64) -> bool {
    let allocation = state.allocation_at(address);
    !allocation
        .is_some_and(|(_, found)| matches!(found.purpose, Purpose::Managed | Purpose::Pool(_)))
}

/// Writes a value to memory of the device or page-locked memory.
fn write(state: &State, address: u64, value: Value) -> Answer<Action> {
    let size = value.width as u64;
    invalid_if(!address.is_multiple_of(size) || !may_be_operand(state, address))?;
    let target = state.device_range(address, size)?;
    let call = player::call();
    Ok(Action::Run(Box::new(move |_| {
        let bytes = value.bits.to_le_bytes();
        // Whoever polls it may know that the work before is complete.
        player::show(call);
        move_bytes(&target, &[Segment::of(&bytes[..value.width])]);
        player::wrote(&target, call);
    })))
}
