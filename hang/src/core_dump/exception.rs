//! Exceptions of the GPU, by the numbers that debuggers use (cudadebugger.h, `CUDBGException_t`); named
//! as in cuda-gdb's manual, "GPU Error Reporting", as far as that lists them.

/// What an exception is.
pub(super) fn meaning(exception: u32) -> Option<&'static str> {
    Some(match exception {
        1 => "Lane Illegal Address",
        2 => "Lane User Stack Overflow",
        3 => "Device Hardware Stack Overflow",
        4 => "Warp Illegal Instruction",
        5 => "Warp Out-of-range Address",
        6 => "Warp Misaligned Address",
        7 => "Warp Invalid Address Space",
        8 => "Warp Invalid PC",
        9 => "Warp Hardware Stack Overflow",
        10 => "Device Illegal Address",
        11 => "Lane Misaligned Address",
        12 => "Warp Assert",
        13 => "Lane Syscall Error",
        14 => "Warp Illegal Address",
        15 => "Lane Nonmigratable Atomic",
        16 => "Lane Invalid Atomic",
        17 => "Cluster Out-of-range Address",
        18 => "Cluster Block Not Present",
        19 => "Warp Stack Canary",
        20 => "Warp Tensor Memory Access Check",
        21 => "Warp Tensor Memory Leak",
        22 => "Warp Call Requires Newer Driver",
        _ => return None,
    })
}
