//! The exported names: one stub each, and the path that all of them share.

use core::arch::naked_asm;
use core::ffi::c_void;
use core::mem::offset_of;

use cutape_registry::{FUNCTIONS, Function, Width, for_each_function};

use crate::call::{Frame, enter, leave};
use crate::thread;

/// Bytes of the frame on the stack; a multiple of 16.
const FRAME: usize = size_of::<Frame>();
const _: () = assert!(FRAME.is_multiple_of(16));
// Where the path below writes numbers and not names.
const _: () = assert!(offset_of!(Frame, registers) == 0 && offset_of!(Frame, vectors) == 48);

/// In a shape: arguments in vector registers. Only then these are kept: what records a call may use them.
const VECTORS: u32 = 0x80;

/// How a function takes its arguments, as far as the path below must know: how many pairs of words it takes from the stack,
/// and `VECTORS`.
const fn shape(function: &Function) -> u32 {
    let (mut registers, mut words, mut vectors) = (0, 0, 0);
    let mut index = 0;
    while index < function.params.len() {
        match function.params[index].width {
            Width::Memory(bytes) => words += (bytes as u32).div_ceil(8),
            Width::Float(_) => vectors += 1,
            _ if registers < 6 => registers += 1,
            _ => words += 1,
        }
        index += 1;
    }
    assert!(vectors <= 8, "vector arguments on the stack");
    words.div_ceil(2) | if vectors > 0 { VECTORS } else { 0 }
}

/// What an entry leaves in eax: the function's id, and above it its shape.
const fn code(function: &Function) -> u32 {
    function.id as u32 | shape(function) << 16
}

/// Calls `enter`, then the real function with the arguments as they came, then `leave`. A call that is not recorded jumps to
/// the real function and is gone. On entry eax holds the function's code; everything else is as the program left it.
#[unsafe(naked)]
extern "C" fn shared() {
    naked_asm!(
        ".cfi_startproc",
        // 0x1b: a 32-bit distance.
        ".cfi_personality 0x1b, {unwound}",
        "push rbp",
        ".cfi_def_cfa_offset 16",
        ".cfi_offset rbp, -16",
        "mov rbp, rsp",
        ".cfi_def_cfa_register rbp",
        "sub rsp, {frame}",
        "mov [rsp], rdi",
        "mov [rsp + 8], rsi",
        "mov [rsp + 16], rdx",
        "mov [rsp + 24], rcx",
        "mov [rsp + 32], r8",
        "mov [rsp + 40], r9",
        // As well where `words` are: copied later they would be loaded in wider pieces than they were stored, which takes long.
        "mov [rsp + {words}], rdi",
        "mov [rsp + {words} + 8], rsi",
        "mov [rsp + {words} + 16], rdx",
        "mov [rsp + {words} + 24], rcx",
        "mov [rsp + {words} + 32], r8",
        "mov [rsp + {words} + 40], r9",
        "mov rcx, [rbp + 8]",
        "mov [rsp + {caller}], rcx",
        "lea rcx, [rbp + 16]",
        "mov [rsp + {stack}], rcx",
        "movzx ecx, ax",
        "mov [rsp + {function}], rcx",
        "shr eax, 16",
        "mov [rsp + {shape}], rax",
        "test al, {vectors}",
        "jz 2f",
        "movups [rsp + 48], xmm0",
        "movups [rsp + 64], xmm1",
        "movups [rsp + 80], xmm2",
        "movups [rsp + 96], xmm3",
        "movups [rsp + 112], xmm4",
        "movups [rsp + 128], xmm5",
        "movups [rsp + 144], xmm6",
        "movups [rsp + 160], xmm7",
        "2:",
        "mov rdi, rsp",
        "call {enter}",
        "mov r11, rax",
        "mov r10, [rsp + {shape}]",
        "test r10b, {vectors}",
        "jz 3f",
        "movups xmm0, [rsp + 48]",
        "movups xmm1, [rsp + 64]",
        "movups xmm2, [rsp + 80]",
        "movups xmm3, [rsp + 96]",
        "movups xmm4, [rsp + 112]",
        "movups xmm5, [rsp + 128]",
        "movups xmm6, [rsp + 144]",
        "movups xmm7, [rsp + 160]",
        "3:",
        "test edx, edx",
        "mov rdi, [rsp]",
        "mov rsi, [rsp + 8]",
        "mov rdx, [rsp + 16]",
        "mov rcx, [rsp + 24]",
        "mov r8, [rsp + 32]",
        "mov r9, [rsp + 40]",
        "jz 6f",
        // No more of the program's stack than the arguments: what lies above them may be its end.
        "and r10d, {pairs}",
        "jz 5f",
        "shl r10d, 4",
        "sub rsp, r10",
        "4:",
        "sub r10, 16",
        "movups xmm8, [rbp + r10 + 16]",
        "movups [rsp + r10], xmm8",
        "jnz 4b",
        "5:",
        "call r11",
        "mov [rbp - {frame} + {result}], rax",
        "lea rdi, [rbp - {frame}]",
        "call {leave}",
        "mov rax, [rbp - {frame} + {result}]",
        "leave",
        ".cfi_remember_state",
        ".cfi_def_cfa rsp, 8",
        ".cfi_restore rbp",
        "ret",
        "6:",
        ".cfi_restore_state",
        "leave",
        ".cfi_def_cfa rsp, 8",
        ".cfi_restore rbp",
        "jmp r11",
        ".cfi_endproc",
        frame = const FRAME,
        caller = const offset_of!(Frame, caller),
        stack = const offset_of!(Frame, stack),
        function = const offset_of!(Frame, function),
        shape = const offset_of!(Frame, shape),
        words = const offset_of!(Frame, words),
        result = const offset_of!(Frame, result),
        vectors = const VECTORS,
        pairs = const VECTORS - 1,
        unwound = sym unwound,
        enter = sym enter,
        leave = sym leave,
    )
}

/// The unwinder asks this of each of our frames that it meets (Itanium C++ ABI, exception handling, 1.6): a thread that is
/// cancelled or ends itself, or an exception, leaves the call behind. There is nothing to stop for.
extern "C" fn unwound(
    _version: i32,
    actions: i32,
    _class: u64,
    _exception: *mut c_void,
    _context: *mut c_void,
) -> i32 {
    const CLEANUP_PHASE: i32 = 2;
    const CONTINUE_UNWIND: i32 = 8;
    if actions & CLEANUP_PHASE != 0 {
        // SAFETY: the state lives as long as its thread, which is this one.
        unsafe { &*thread::current() }.leave();
    }
    CONTINUE_UNWIND
}

macro_rules! entries {
    ($(($id:literal, $name:ident))*) => {
        $(
            #[doc = concat!("The driver's `", stringify!($name), "`.")]
            #[unsafe(no_mangle)]
            #[unsafe(naked)]
            #[allow(non_snake_case, unreachable_pub)]
            pub extern "C" fn $name() {
                naked_asm!(
                    ".cfi_startproc",
                    "mov eax, {code}",
                    "jmp {shared}",
                    ".cfi_endproc",
                    code = const code(&FUNCTIONS[$id]),
                    shared = sym shared,
                )
            }
        )*

        /// Where each function's entry is, by id.
        static ENTRIES: [extern "C" fn(); FUNCTIONS.len()] = [$($name),*];
    };
}

for_each_function!(entries);

/// The address of our entry for a function.
pub(crate) fn address(function: u16) -> *mut c_void {
    ENTRIES
        .get(usize::from(function))
        .map_or(core::ptr::null_mut(), |entry| *entry as *mut c_void)
}

/// How many entries there are.
pub(crate) fn count() -> usize {
    ENTRIES.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes() {
        // Parameters on the stack: 11 in all less six; a struct of 64 bytes; 16 less six.
        let table = [
            ("cuInit", 0),
            ("cuLaunchKernel", 3),
            ("cuIpcOpenMemHandle", 4),
            ("cuTensorMapEncodeIm2colWide", 5),
            ("cuParamSetf", VECTORS),
        ];
        for (name, expected) in table {
            let function = cutape_registry::function(name).expect(name);
            assert_eq!(shape(function), expected, "{name}");
        }
        for function in &FUNCTIONS {
            assert_eq!(code(function) & 0xffff, u32::from(function.id));
            assert!(shape(function) & (VECTORS - 1) <= 8, "{}", function.name);
        }
    }
}
