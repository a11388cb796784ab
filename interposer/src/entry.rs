//! The exported names: one stub each, and the path that all of them share.

use core::arch::naked_asm;
use core::ffi::c_void;

use cutape_registry::{FUNCTIONS, for_each_function};

use crate::call::{Frame, enter, leave};

/// Bytes of the frame on the stack; a multiple of 16.
const FRAME: usize = size_of::<Frame>();
const _: () = assert!(FRAME.is_multiple_of(16));

/// Calls `enter`, then the real function with the arguments as they came, then `leave`. A call that is not recorded jumps to
/// the real function and is gone. On entry eax holds the function's id; everything else is as the program left it.
#[unsafe(naked)]
extern "C" fn shared() {
    naked_asm!(
        ".cfi_startproc",
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
        "movups [rsp + 48], xmm0",
        "movups [rsp + 64], xmm1",
        "movups [rsp + 80], xmm2",
        "movups [rsp + 96], xmm3",
        "movups [rsp + 112], xmm4",
        "movups [rsp + 128], xmm5",
        "movups [rsp + 144], xmm6",
        "movups [rsp + 160], xmm7",
        "mov rcx, [rbp + 8]",
        "mov [rsp + 176], rcx",
        "lea rcx, [rbp + 16]",
        "mov [rsp + 184], rcx",
        "mov eax, eax",
        "mov [rsp + 192], rax",
        "mov rdi, rsp",
        "call {enter}",
        "mov r11, rax",
        "test edx, edx",
        "mov rdi, [rsp]",
        "mov rsi, [rsp + 8]",
        "mov rdx, [rsp + 16]",
        "mov rcx, [rsp + 24]",
        "mov r8, [rsp + 32]",
        "mov r9, [rsp + 40]",
        "movups xmm0, [rsp + 48]",
        "movups xmm1, [rsp + 64]",
        "movups xmm2, [rsp + 80]",
        "movups xmm3, [rsp + 96]",
        "movups xmm4, [rsp + 112]",
        "movups xmm5, [rsp + 128]",
        "movups xmm6, [rsp + 144]",
        "movups xmm7, [rsp + 160]",
        "jz 2f",
        // The longest argument lists put ten words on the stack; sixteen are copied.
        "sub rsp, 128",
        "movups xmm8, [rbp + 16]",
        "movups [rsp], xmm8",
        "movups xmm9, [rbp + 32]",
        "movups [rsp + 16], xmm9",
        "movups xmm10, [rbp + 48]",
        "movups [rsp + 32], xmm10",
        "movups xmm11, [rbp + 64]",
        "movups [rsp + 48], xmm11",
        "movups xmm12, [rbp + 80]",
        "movups [rsp + 64], xmm12",
        "movups xmm13, [rbp + 96]",
        "movups [rsp + 80], xmm13",
        "movups xmm14, [rbp + 112]",
        "movups [rsp + 96], xmm14",
        "movups xmm15, [rbp + 128]",
        "movups [rsp + 112], xmm15",
        "call r11",
        "mov [rbp - {frame} + 200], rax",
        "lea rdi, [rbp - {frame}]",
        "call {leave}",
        "mov rax, [rbp - {frame} + 200]",
        "leave",
        ".cfi_remember_state",
        ".cfi_def_cfa rsp, 8",
        ".cfi_restore rbp",
        "ret",
        "2:",
        ".cfi_restore_state",
        "leave",
        ".cfi_def_cfa rsp, 8",
        ".cfi_restore rbp",
        "jmp r11",
        ".cfi_endproc",
        frame = const FRAME,
        enter = sym enter,
        leave = sym leave,
    )
}

macro_rules! entries {
    ($(($id:literal, $name:ident))*) => {
        $(
            #[doc = concat!("The driver's `", stringify!($name), "`.")]
            #[unsafe(no_mangle)]
            #[unsafe(naked)]
            #[allow(non_snake_case, unreachable_pub)]
            pub extern "C" fn $name() {
                naked_asm!("mov eax, {id}", "jmp {shared}", id = const $id, shared = sym shared)
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
