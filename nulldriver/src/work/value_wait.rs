//! Waits of a stream for a value in memory.

use crate::call::answer::{Answer, invalid_if};
use crate::object::memory::{Segment, move_bytes};
use crate::player;
use crate::state::{Action, State};

/// A number of 4 or 8 bytes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Value {
    pub(crate) bits: u64,
    pub(crate) width: usize,
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

/// A wait of a stream for a value in memory.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Wait {
    pub(crate) address: u64,
    pub(crate) wanted: Value,
    pub(crate) flags: u32,
}

impl Wait {
    /// Whether the memory holds the value.
    pub(crate) fn is_fulfilled(&self, state: &State) -> Answer<bool> {
        let width = self.wanted.width as u64;
        invalid_if(!self.address.is_multiple_of(width) || self.flags & !3 != 0)?;
        let mut bytes = [0; 8];
        let target = Segment::of_mut(&mut bytes[..width as usize]);
        move_bytes(&[target], &state.device_range(self.address, width)?);
        if player::is_playing() {
            // The device may have written the value; then the recording shows what followed.
            return Ok(true);
        }
        let (value, wanted) = (u64::from_le_bytes(bytes), self.wanted.bits);
        let mask = u64::MAX >> (64 - 8 * width);
        let sign = (mask >> 1) + 1;
        Ok(match self.flags {
            0 => value.wrapping_sub(wanted) & mask & sign == 0, // GEQ, cyclic
            1 => value == wanted & mask,
            2 => value & wanted & mask != 0,
            _ => !(value | wanted) & mask != 0, // NOR
        })
    }

    /// The task that completes when the memory holds the value, or has ended.
    pub(crate) fn action(self) -> Action {
        Action::Until(Box::new(move |state| {
            self.is_fulfilled(state).unwrap_or(true)
        }))
    }
}
