//! The numbers of `CUjit_option` (cuda.h) that rules are about, and the sort of value that each
//! takes.

/// CU_JIT_THREADS_PER_BLOCK, in and out.
pub(crate) const THREADS_PER_BLOCK: u32 = 1;
/// CU_JIT_WALL_TIME, out.
pub(crate) const WALL_TIME: u32 = 2;
/// CU_JIT_INFO_LOG_BUFFER, a pointer.
pub(crate) const INFO_LOG: u32 = 3;
/// CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES, in and out.
pub(crate) const INFO_LOG_SIZE: u32 = 4;
/// CU_JIT_ERROR_LOG_BUFFER, a pointer.
pub(crate) const ERROR_LOG: u32 = 5;
/// CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES, in and out.
pub(crate) const ERROR_LOG_SIZE: u32 = 6;
/// CU_JIT_TARGET_FROM_CUCONTEXT.
pub(crate) const TARGET_FROM_CONTEXT: u32 = 8;
/// CU_JIT_TARGET.
pub(crate) const TARGET: u32 = 9;
/// CU_JIT_FALLBACK_STRATEGY.
pub(crate) const FALLBACK_STRATEGY: u32 = 10;
/// CU_JIT_GLOBAL_SYMBOL_NAMES, a pointer.
pub(crate) const SYMBOL_NAMES: u32 = 17;
/// CU_JIT_GLOBAL_SYMBOL_ADDRESSES, a pointer.
pub(crate) const SYMBOL_ADDRESSES: u32 = 18;
/// CU_JIT_GLOBAL_SYMBOL_COUNT.
pub(crate) const SYMBOL_COUNT: u32 = 19;
/// CU_JIT_LTO, the first of the deprecated family.
pub(crate) const LTO: u32 = 20;
/// CU_JIT_REFERENCED_KERNEL_NAMES, a pointer.
pub(crate) const KERNEL_NAMES: u32 = 25;
/// CU_JIT_REFERENCED_VARIABLE_NAMES, a pointer.
pub(crate) const VARIABLE_NAMES: u32 = 27;
/// CU_JIT_REFERENCED_VARIABLE_COUNT, the last of the deprecated family.
pub(crate) const VARIABLE_COUNT: u32 = 28;

/// The driver writes into the option's slot, or into the buffer that it names.
pub(crate) fn is_output(option: u32) -> bool {
    matches!(
        option,
        THREADS_PER_BLOCK | WALL_TIME | INFO_LOG | INFO_LOG_SIZE | ERROR_LOG | ERROR_LOG_SIZE
    )
}

/// The driver only reads the option's slot.
pub(crate) fn is_input_only(option: u32) -> bool {
    !matches!(
        option,
        THREADS_PER_BLOCK | WALL_TIME | INFO_LOG_SIZE | ERROR_LOG_SIZE
    )
}

/// The option's value is an int or unsigned int that the driver reads.
pub(crate) fn is_number(option: u32) -> bool {
    !matches!(
        option,
        WALL_TIME
            | INFO_LOG
            | ERROR_LOG
            | SYMBOL_NAMES
            | SYMBOL_ADDRESSES
            | KERNEL_NAMES
            | VARIABLE_NAMES
    )
}
