//! The exported names: one entry each, and what all of them share.
//!
//! An entry makes a `Frame`, has `enter` write what it is called with, calls the real function with the arguments as they came, and
//! has `leave` write what became of it. A call that is not recorded jumps to the real function and is gone. The call of the real
//! function is in each entry and not in what they share, because processors foretell an indirect call by where it stands, among other
//! things (what this alone is worth was not measured).

use core::arch::naked_asm;
use core::ffi::c_void;
use core::mem::offset_of;

use cutape_registry::{FUNCTIONS, Function, Width, for_each_function};

use crate::call::Frame;
use crate::enter::enter;
use crate::leave::leave;
use crate::thread;

/// Bytes of the frame that an entry makes on the stack, and of those that are there already: see its last members.
const FRAME: usize = size_of::<Frame>();
const PUSHED: usize = 16;
const _: () = assert!(FRAME.is_multiple_of(16) && offset_of!(Frame, base) == FRAME - PUSHED);
const _: () = assert!(offset_of!(Frame, caller) == FRAME - 8);
// Where the path below writes numbers and not names.
const _: () = assert!(offset_of!(Frame, shape) == offset_of!(Frame, function) + 2);

/// In a shape: arguments in vector registers, or structs by value, so that what records a call puts them in order and needs all
/// registers as they were.
const SCATTERED: u16 = 0x80;
/// In what `enter` says, alone: the call is not recorded.
pub(crate) const PASSED: u16 = 0x100;

/// How a function takes its arguments, as far as the path below must know: how many pairs of words it takes from the stack,
/// and `SCATTERED`.
const fn shape(function: &Function) -> u16 {
    let (mut registers, mut words, mut vectors, mut structs) = (0, 0, 0, 0);
    let mut index = 0;
    while index < function.params.len() {
        match function.params[index].width {
            Width::Memory(bytes) => {
                words += bytes.div_ceil(8) as u16;
                structs += 1;
            }
            Width::Float(_) => vectors += 1,
            _ if registers < 6 => registers += 1,
            _ => words += 1,
        }
        index += 1;
    }
    assert!(vectors <= 8, "vector arguments on the stack");
    let is_scattered = vectors + structs > 0;
    words.div_ceil(2) | if is_scattered { SCATTERED } else { 0 }
}

/// What an entry leaves in eax: the function's id, and above it its shape.
const fn code(function: &Function) -> u32 {
    function.id as u32 | (shape(function) as u32) << 16
}

/// The first part of every entry: puts the arguments into the frame that the entry has made, calls `enter`, and takes the
/// arguments back as they came. On entry eax holds the function's code, and what is to be called on return; r10d then says how,
/// and the flags whether that is anything but nothing.
#[unsafe(naked)]
extern "C" fn before() {
    naked_asm!(
        ".cfi_startproc",
        // Distances from rsp are those in the frame and 8 for the return address.
        "mov [rsp + {words} + 8], rdi",
        "mov [rsp + {words} + 16], rsi",
        "mov [rsp + {words} + 24], rdx",
        "mov [rsp + {words} + 32], rcx",
        "mov [rsp + {words} + 40], r8",
        "mov [rsp + {words} + 48], r9",
        "mov [rsp + {function} + 8], eax",
        "test eax, {scattered} << 16",
        "jnz 7f",
        "2:",
        "lea rdi, [rsp + 8]",
        "lea rsi, [rbp + 16]",
        "sub rsp, 8",
        ".cfi_adjust_cfa_offset 8",
        "call {enter}",
        "add rsp, 8",
        ".cfi_adjust_cfa_offset -8",
        "mov r10d, edx",
        // Nearly always nothing of what follows is asked for.
        "test edx, edx",
        "jnz 9f",
        "3:",
        "mov rdi, [rsp + {words} + 8]",
        "mov rsi, [rsp + {words} + 16]",
        "mov rdx, [rsp + {words} + 24]",
        "mov rcx, [rsp + {words} + 32]",
        "mov r8, [rsp + {words} + 40]",
        "mov r9, [rsp + {words} + 48]",
        "4:",
        "test r10d, r10d",
        "ret",
        "7:",
        "movups [rsp + {vectors} + 8], xmm0",
        "movups [rsp + {vectors} + 24], xmm1",
        "movups [rsp + {vectors} + 40], xmm2",
        "movups [rsp + {vectors} + 56], xmm3",
        "movups [rsp + {vectors} + 72], xmm4",
        "movups [rsp + {vectors} + 88], xmm5",
        "movups [rsp + {vectors} + 104], xmm6",
        "movups [rsp + {vectors} + 120], xmm7",
        "mov [rsp + {registers} + 8], rdi",
        "mov [rsp + {registers} + 16], rsi",
        "mov [rsp + {registers} + 24], rdx",
        "mov [rsp + {registers} + 32], rcx",
        "mov [rsp + {registers} + 40], r8",
        "mov [rsp + {registers} + 48], r9",
        "jmp 2b",
        "9:",
        "test byte ptr [rsp + {shape} + 8], {scattered}",
        "jz 3b",
        "movups xmm0, [rsp + {vectors} + 8]",
        "movups xmm1, [rsp + {vectors} + 24]",
        "movups xmm2, [rsp + {vectors} + 40]",
        "movups xmm3, [rsp + {vectors} + 56]",
        "movups xmm4, [rsp + {vectors} + 72]",
        "movups xmm5, [rsp + {vectors} + 88]",
        "movups xmm6, [rsp + {vectors} + 104]",
        "movups xmm7, [rsp + {vectors} + 120]",
        "mov rdi, [rsp + {registers} + 8]",
        "mov rsi, [rsp + {registers} + 16]",
        "mov rdx, [rsp + {registers} + 24]",
        "mov rcx, [rsp + {registers} + 32]",
        "mov r8, [rsp + {registers} + 40]",
        "mov r9, [rsp + {registers} + 48]",
        "jmp 4b",
        ".cfi_endproc",
        registers = const offset_of!(Frame, registers),
        vectors = const offset_of!(Frame, vectors),
        words = const offset_of!(Frame, words),
        function = const offset_of!(Frame, function),
        shape = const offset_of!(Frame, shape),
        scattered = const SCATTERED,
        enter = sym enter,
    )
}

/// The rest of an entry where there is more to be done than to call: the call is not recorded, or has arguments on the stack. On
/// entry rax holds what is to be called, r10d how, and rbp where the frame ends.
#[unsafe(naked)]
extern "C" fn otherwise() {
    naked_asm!(
        ".cfi_startproc",
        // 0x1b: a 32-bit distance.
        ".cfi_personality 0x1b, {unwound}",
        ".cfi_def_cfa rbp, 16",
        ".cfi_offset rbp, -16",
        "test r10d, {passed}",
        "jnz 6f",
        // No more of the program's stack than the arguments: what lies above them may be its end.
        "and r10d, {pairs}",
        "jz 3f",
        "shl r10d, 4",
        "sub rsp, r10",
        "5:",
        "sub r10, 16",
        "movups xmm8, [rbp + r10 + 16]",
        "movups [rsp + r10], xmm8",
        "jnz 5b",
        "3:",
        "call rax",
        "mov [rbp - {frame} + {result}], rax",
        "lea rdi, [rbp - {frame}]",
        "call {leave}",
        "mov rax, [rbp - {frame} + {result}]",
        "leave",
        ".cfi_remember_state",
        ".cfi_def_cfa rsp, 8",
        ".cfi_restore rbp",
        "ret",
        ".cfi_restore_state",
        "6:",
        "leave",
        ".cfi_def_cfa rsp, 8",
        ".cfi_restore rbp",
        "jmp rax",
        ".cfi_endproc",
        frame = const FRAME - PUSHED,
        result = const offset_of!(Frame, result),
        passed = const PASSED,
        pairs = const SCATTERED - 1,
        unwound = sym unwound,
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
                    // One line of the cache.
                    ".balign 64",
                    ".cfi_startproc",
                    ".cfi_personality 0x1b, {unwound}",
                    "push rbp",
                    ".cfi_def_cfa_offset 16",
                    ".cfi_offset rbp, -16",
                    "mov rbp, rsp",
                    ".cfi_def_cfa_register rbp",
                    "sub rsp, {frame}",
                    "mov eax, {code}",
                    "call {before}",
                    "jnz 2f",
                    "call rax",
                    "mov [rsp + {result}], rax",
                    "mov rdi, rsp",
                    "call {leave}",
                    "mov rax, [rsp + {result}]",
                    "leave",
                    ".cfi_remember_state",
                    ".cfi_def_cfa rsp, 8",
                    ".cfi_restore rbp",
                    "ret",
                    ".cfi_restore_state",
                    "2:",
                    "jmp {otherwise}",
                    ".cfi_endproc",
                    code = const code(&FUNCTIONS[$id]),
                    frame = const FRAME - PUSHED,
                    result = const offset_of!(Frame, result),
                    before = sym before,
                    otherwise = sym otherwise,
                    leave = sym leave,
                    unwound = sym unwound,
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
            ("cuIpcOpenMemHandle", 4 | SCATTERED),
            ("cuTensorMapEncodeIm2colWide", 5),
            ("cuParamSetf", SCATTERED),
        ];
        for (name, expected) in table {
            let function = cutape_registry::function(name).expect(name);
            assert_eq!(shape(function), expected, "{name}");
        }
        for function in &FUNCTIONS {
            assert_eq!(code(function) & 0xffff, u32::from(function.id));
            assert!(shape(function) & (SCATTERED - 1) <= 8, "{}", function.name);
        }
    }
}
