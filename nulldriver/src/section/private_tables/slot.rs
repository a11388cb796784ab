//! Slots of private tables.

use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::without_provenance;

use crate::call::answer::{
    Answer, CUresult, DEINITIALIZED, NOT_INITIALIZED, NOT_SUPPORTED, SUCCESS, UNKNOWN,
};
use crate::call::error_log;
use crate::state;

/// The address of a function, or a table's size.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(super) struct Slot(*const c_void);

// SAFETY: a function's address or a number; nothing is read or written through it.
unsafe impl Sync for Slot {}

impl Slot {
    /// A slot with this function, which has the C calling convention.
    pub(super) const fn of(function: *const c_void) -> Slot {
        Slot(function)
    }

    #[cfg(test)]
    pub(super) fn address(self) -> u64 {
        self.0 as u64
    }
}

/// A table whose first slot is its size. `TABLE` is the first word of its UUID; slots that are not
/// listed are unknown.
pub(super) const fn sized<const TABLE: u32, const N: usize>(known: &[(usize, Slot)]) -> [Slot; N] {
    let mut slots = unsized_table::<TABLE, N>(known);
    slots[0] = Slot(without_provenance(N * size_of::<Slot>()));
    slots
}

/// A table without a size.
pub(super) const fn unsized_table<const TABLE: u32, const N: usize>(
    known: &[(usize, Slot)],
) -> [Slot; N] {
    let mut slots = [Slot(std::ptr::null()); N];
    let mut index = 0;
    while index < N {
        slots[index] = Unknown::<TABLE>::SLOTS[index];
        index += 1;
    }
    index = 0;
    while index < known.len() {
        slots[known[index].0] = known[index].1;
        index += 1;
    }
    slots
}

/// The slots of a table of which nothing is known.
struct Unknown<const TABLE: u32>;

macro_rules! unknown {
    ($($tens:literal)*) => {
        impl<const TABLE: u32> Unknown<TABLE> {
            const SLOTS: [Slot; 100] = {
                let tens = [$(Self::ten::<$tens>()),*];
                let mut slots = [Slot(std::ptr::null()); 100];
                let mut index = 0;
                while index < 100 {
                    slots[index] = tens[index / 10][index % 10];
                    index += 1;
                }
                slots
            };
        }
    };
}
unknown!(0 1 2 3 4 5 6 7 8 9);

macro_rules! ten {
    ($($ones:literal)*) => {
        impl<const TABLE: u32> Unknown<TABLE> {
            const fn ten<const TENS: u32>() -> [Slot; 10] {
                [$(Slot(unknown::<TABLE, TENS, $ones> as *const c_void)),*]
            }
        }
    };
}
ten!(0 1 2 3 4 5 6 7 8 9);

/// The caller may take the result as a `CUresult`; its arguments are not known.
extern "C" fn unknown<const TABLE: u32, const TENS: u32, const ONES: u32>() -> CUresult {
    let slot = 10 * TENS + ONES;
    error_log::say(|| format!("slot {slot} of the private table {TABLE:08x} is not known"));
    NOT_SUPPORTED
}

/// Answers a call of a slot that works on the driver's state.
pub(super) fn answer(work: impl FnOnce() -> Answer) -> CUresult {
    if !state::is_initialised() {
        return NOT_INITIALIZED;
    }
    if state::has_ended() {
        return DEINITIALIZED;
    }
    let result = catch_unwind(AssertUnwindSafe(work)).unwrap_or(Err(UNKNOWN));
    result.err().unwrap_or(SUCCESS)
}
