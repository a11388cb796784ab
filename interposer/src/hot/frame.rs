//! A call in progress.

use cutape_registry::{FUNCTIONS, Function};

use super::plan::{MOST_PARAMETERS, Plan};
use super::thread::{Activation, Thread};

/// A call in progress. Its entry builds it on the stack of the calling thread.
///
/// The members that every call needs come first: an instruction encodes their offset in one byte.
#[repr(C, align(16))]
pub(crate) struct Frame {
    pub(crate) activation: Activation,
    pub(crate) plan: *const Plan,
    /// Ticks before the driver is called, as the enter record has them.
    pub(crate) start: u64,
    /// What the driver returned.
    pub(crate) result: u64,
    /// A position in `FUNCTIONS`; see `index`.
    pub(crate) function: u16,
    /// `entry::shape` of the function.
    pub(crate) shape: u16,
    /// The arguments in the order of the prototype. The entry stores the integer registers here.
    pub(crate) words: [u64; MOST_PARAMETERS],
    /// Where the arguments on the stack begin.
    pub(crate) stack: *const u64,
    /// Values that an override saves before the call for its code after the call.
    pub(crate) saved: [u64; 3],
    /// The integer registers, if the function's shape has `entry::SCATTERED`; otherwise they are in
    /// `words` alone.
    pub(crate) registers: [u64; 6],
    pub(crate) vectors: [[u64; 2]; 8],
    /// The caller's rbp, which the entry pushes, and the return address.
    pub(crate) base: u64,
    pub(crate) caller: u64,
}

impl Frame {
    /// The function's position in `FUNCTIONS`.
    #[inline(always)]
    pub(crate) fn index(&self) -> usize {
        let index = usize::from(self.function);
        // SAFETY: only entries (and tests) build frames, and each stores the id of its function,
        // which is a position.
        unsafe { core::hint::assert_unchecked(index < FUNCTIONS.len()) };
        index
    }

    /// The function, as the registry describes it.
    #[inline]
    pub(crate) fn description(&self) -> &'static Function {
        // SAFETY: a position.
        unsafe { FUNCTIONS.get_unchecked(self.index()) }
    }

    /// A frame as an entry builds it.
    #[cfg(test)]
    pub(crate) fn for_tests(function: u16, registers: [u64; 6], vectors: [[u64; 2]; 8]) -> Self {
        let mut words = [0; MOST_PARAMETERS];
        words[..6].copy_from_slice(&registers);
        Self {
            activation: Activation::NONE,
            plan: core::ptr::null(),
            start: 0,
            result: 0,
            function,
            shape: 0,
            words,
            stack: core::ptr::null(),
            saved: [0; 3],
            registers,
            vectors,
            base: 0,
            caller: 0,
        }
    }

    /// The argument at a position; 0 behind the last.
    #[inline]
    pub(crate) fn word(&self, position: u8) -> u64 {
        self.words.get(usize::from(position)).copied().unwrap_or(0)
    }

    /// Whether the driver returned `CUDA_SUCCESS`.
    #[inline]
    pub(crate) fn succeeded(&self) -> bool {
        self.result as i32 == 0
    }

    /// Saves whether an asynchronous copy to the host has written all bytes.
    pub(crate) fn set_copied(&mut self, has_copied: bool) {
        let [saved, ..] = &mut self.saved;
        *saved = has_copied.into();
    }

    /// Whether a successful copy to the host has written all bytes. `set_copied` must have been
    /// called if it is asynchronous.
    pub(crate) fn has_copied(&self) -> bool {
        let [saved, ..] = self.saved;
        self.description().stream.is_none() || saved != 0
    }

    /// Saves the context whose work a call that frees memory waits for; 0 if that is not known.
    pub(crate) fn set_waits_for_context(&mut self, context: u64) {
        let [saved, ..] = &mut self.saved;
        *saved = context;
    }

    /// That context; `set_waits_for_context` must have been called.
    pub(crate) fn waits_for_context(&self) -> u64 {
        let [saved, ..] = self.saved;
        saved
    }

    /// The thread that makes the call.
    #[inline(always)]
    pub(crate) fn thread(&self) -> &'static Thread {
        // SAFETY: `pre_call` has set it to the calling thread's state, which outlives all of the
        // thread's calls.
        unsafe { &*self.activation.thread }
    }
}
