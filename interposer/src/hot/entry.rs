//! The exported functions: an entry for each, and the assembly that they share.
//!
//! An entry makes a `Frame` on the stack, calls `pre_call`, calls the real function with the
//! original arguments, and calls `post_call`. If the call is not recorded, it jumps to the real
//! function instead. The call of the real function is in each entry and not in the shared part,
//! because branch predictors index indirect calls by call site, among other things (assumed to
//! help; not measured alone).

use core::arch::naked_asm;
use core::ffi::c_void;
use core::mem::offset_of;

use cutape_registry::{FUNCTIONS, Function, for_each_function};

use super::frame::Frame;
use super::post_call::post_call;
use super::pre_call::pre_call;
use super::shape::{NOT_RECORDED, SCATTERED, shape};
use super::thread;

/// Bytes of a frame, and of its last two members, which the call and the entry have pushed.
const FRAME: usize = size_of::<Frame>();
const PUSHED: usize = 16;
const _: () = assert!(FRAME.is_multiple_of(16) && offset_of!(Frame, base) == FRAME - PUSHED);
const _: () = assert!(offset_of!(Frame, caller) == FRAME - 8);
// `before` stores both with one instruction.
const _: () = assert!(offset_of!(Frame, shape) == offset_of!(Frame, function) + 2);

/// What an entry puts into eax: the function's id and, above it, its shape.
const fn code(function: &Function) -> u32 {
    function.id as u32 | (shape(function) as u32) << 16
}

/// The first part of every entry: stores the arguments in the frame, calls `pre_call`, and restores
/// the arguments. On entry, eax holds the function's code. On return, rax holds the real function,
/// r10d the shape or `NOT_RECORDED`, and the zero flag is set if r10d is zero.
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
        "call {pre_call}",
        "add rsp, 8",
        ".cfi_adjust_cfa_offset -8",
        "mov r10d, edx",
        // Nearly always zero.
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
        pre_call = sym pre_call,
    )
}

/// The rest of an entry if r10d is not zero: the call is not recorded, or has arguments on the
/// stack. On entry, rax holds the real function, r10d is as `before` returned it, and rbp is the
/// end of the frame.
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
        // Only the arguments: the program's stack may end above them.
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
        "call {post_call}",
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
        passed = const NOT_RECORDED,
        pairs = const SCATTERED - 1,
        unwound = sym unwound,
        post_call = sym post_call,
    )
}

/// The personality routine of our frames (Itanium C++ ABI, exception handling, 1.6): a thread that
/// is cancelled or ends itself, or an exception, abandons the call. Unwinding continues.
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
        unsafe { &*thread::current() }.end_call();
    }
    CONTINUE_UNWIND
}

macro_rules! entries {
    ($(($id:literal, $name:ident))*) => {
        $(
            #[doc = concat!("The driver's `", stringify!($name), "`.")]
            #[unsafe(no_mangle)]
            #[unsafe(naked)]
            #[allow(non_snake_case, unreachable_pub, reason = "exported by the driver's names")]
            pub extern "C" fn $name() {
                naked_asm!(
                    // One cache line.
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
                    "call {post_call}",
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
                    post_call = sym post_call,
                    unwound = sym unwound,
                )
            }
        )*
    };
}

for_each_function!(entries);
