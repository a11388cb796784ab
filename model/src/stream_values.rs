//! Values that streams write and wait for.

use std::ops::Range;

use cutape_format::Call;
use cutape_format::layout::field;
use cutape_registry::layout::{offset_of, size_of};
use cutape_registry::{Extent, Family, Function, Param, Role, StreamMemoryOp};

use crate::effects::CallArguments;

/// The memory that a stream writes, and the value; little-endian, its first bytes if that is shorter.
pub type WrittenValue = (Range<u64>, u64);

/// A value in memory that a stream waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AwaitedValue {
    /// Where it is.
    pub address: u64,
    /// Its bytes: 4 or 8.
    pub bytes: u8,
    /// With what it is compared.
    pub value: u64,
    /// How.
    pub condition: Condition,
}

/// How a stream compares a value in memory with the one that it waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    /// The difference to it is not negative as a signed number.
    GreaterOrEqual,
    /// They are equal.
    Equal,
    /// They have a bit in common.
    AnyBit,
    /// A bit is set in neither.
    NotBoth,
}

impl Condition {
    /// By the lowest bits of the flags (cuda.h, CUstreamWaitValue_flags).
    fn of_flags(flags: u64) -> Self {
        match flags & 3 {
            0 => Self::GreaterOrEqual,
            1 => Self::Equal,
            2 => Self::AnyBit,
            _ => Self::NotBoth,
        }
    }
}

impl AwaitedValue {
    /// Whether a stream goes on if this is in the memory.
    pub fn is_met_by(&self, found: u64) -> bool {
        let mask = if self.bytes == 4 {
            u64::from(u32::MAX)
        } else {
            u64::MAX
        };
        let (found, value) = (found & mask, self.value & mask);
        match self.condition {
            Condition::GreaterOrEqual if self.bytes == 4 => {
                (found as u32).wrapping_sub(value as u32) as i32 >= 0
            }
            Condition::GreaterOrEqual => found.wrapping_sub(value) as i64 >= 0,
            Condition::Equal => found == value,
            Condition::AnyBit => found & value != 0,
            Condition::NotBoth => !(found | value) & mask != 0,
        }
    }
}

/// The values that a call makes a stream wait for, as far as the trace has them.
pub fn awaited_values(function: &Function, call: &Call<'_>) -> Vec<AwaitedValue> {
    match function.family {
        Family::StreamMemory(StreamMemoryOp::Wait) => {
            let mut params = function.params.iter();
            let read = params.position(|param| matches!(param.role, Role::DeviceRead(_)));
            let Some((at, Role::DeviceRead(length))) =
                read.and_then(|at| Some((at, function.params.get(at)?.role)))
            else {
                return Vec::new();
            };
            let extent = length.evaluate(function, &CallArguments(call));
            vec![AwaitedValue {
                address: call.argument(at),
                bytes: extent.map_or(4, Extent::span) as u8,
                value: call.argument(at + 1),
                condition: Condition::of_flags(call.argument(at + 2)),
            }]
        }
        _ => batched(function, call)
            .into_iter()
            .flatten()
            .filter_map(|operation| match operation {
                Batched::Waits(awaited) => Some(awaited),
                _ => None,
            })
            .collect(),
    }
}

/// An operation of a `cuStreamBatchMemOp`.
enum Batched {
    Writes(WrittenValue),
    Waits(AwaitedValue),
    Other,
}

/// The operations of a `cuStreamBatchMemOp`; `None` if the trace does not have them.
fn batched(function: &Function, call: &Call<'_>) -> Option<Vec<Batched>> {
    const LENGTH: usize = size_of("CUstreamBatchMemOpParams");
    const OPERATION: usize = offset_of("CUstreamBatchMemOpParams", "operation");
    const ADDRESS: usize = offset_of("CUstreamBatchMemOpParams", "waitValue.address");
    const VALUE: usize = offset_of("CUstreamBatchMemOpParams", "waitValue.value");
    const FLAGS: usize = offset_of("CUstreamBatchMemOpParams", "waitValue.flags");
    // CUstreamBatchMemOpType of cuda.h: CU_STREAM_MEM_OP_WRITE_VALUE_32 and _64, and _WAIT_VALUE_.
    const WRITES: [(u32, u8); 2] = [(2, 4), (5, 8)];
    const WAITS: [(u32, u8); 2] = [(1, 4), (4, 8)];
    if function.family != Family::StreamMemory(StreamMemoryOp::Batch) {
        return None;
    }
    let mut params = function.params.iter();
    let list = params.position(|param| matches!(param.role, Role::In(_)))?;
    let list = call.snapshot(list, field::POINTEE)?.bytes.inline()?;
    let operation = |bytes: &[u8]| {
        let word = |at| Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?));
        let kind = word(OPERATION)? as u32;
        let (address, value) = (word(ADDRESS)?, word(VALUE)?);
        let found = |list: [(u32, u8); 2]| list.into_iter().find(|(known, _)| *known == kind);
        if let Some((_, length)) = found(WRITES) {
            let end = address.saturating_add(length.into());
            return Some(Batched::Writes((address..end, value)));
        }
        Some(match found(WAITS) {
            Some((_, bytes)) => Batched::Waits(AwaitedValue {
                address,
                bytes,
                value,
                condition: Condition::of_flags(word(FLAGS)?),
            }),
            None => Batched::Other,
        })
    };
    list.chunks(LENGTH).map(operation).collect()
}

/// The values that a call makes a stream write; none of other calls, and of a batch that the trace does
/// not have.
pub fn written_values(function: &Function, call: &Call<'_>) -> Vec<WrittenValue> {
    if function.family != Family::StreamMemory(StreamMemoryOp::Write) {
        let written = batched(function, call).into_iter().flatten();
        return written
            .filter_map(|operation| match operation {
                Batched::Writes(written) => Some(written),
                _ => None,
            })
            .collect();
    }
    let write = |(position, param): (usize, &Param)| match param.role {
        Role::DeviceWrite(length) => {
            let address = call.argument(position);
            let extent = length.evaluate(function, &CallArguments(call));
            let end = address.saturating_add(extent.map_or(0, Extent::span));
            Some((address..end, call.argument(position + 1)))
        }
        _ => None,
    };
    function
        .params
        .iter()
        .enumerate()
        .filter_map(write)
        .collect()
}

/// Whether a call makes a stream wait for a value: a batch of operations that the trace has may only
/// write some.
pub fn may_wait(function: &Function, call: &Call<'_>) -> bool {
    let is_write = |operation: &Batched| matches!(operation, Batched::Writes(_));
    batched(function, call).is_none_or(|list| list.is_empty() || !list.iter().all(is_write))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_meet_conditions() {
        use Condition as C;
        for (condition, bytes, value, found, expected) in [
            (C::GreaterOrEqual, 4, 5, 5, true),
            (C::GreaterOrEqual, 4, 5, 4, false),
            (C::GreaterOrEqual, 4, 0xffff_fff0, 3, true),
            (C::GreaterOrEqual, 8, 0xffff_fff0, 3, false),
            (C::Equal, 4, 5, 0x1_0000_0005, true),
            (C::Equal, 8, 5, 0x1_0000_0005, false),
            (C::AnyBit, 4, 6, 1, false),
            (C::AnyBit, 4, 6, 2, true),
            (C::NotBoth, 4, 0xffff_0000, 0xffff, false),
            (C::NotBoth, 4, 0xffff_0000, 0xfffe, true),
        ] {
            let awaited = AwaitedValue {
                address: 0,
                bytes,
                value,
                condition,
            };
            let is_met = awaited.is_met_by(found);
            assert_eq!(is_met, expected, "{condition:?} {bytes} {value} {found}");
        }
    }
}
