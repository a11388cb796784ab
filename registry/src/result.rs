//! Result codes.

/// True for a result that all later work of the context returns as well (CUDA Driver API,
/// CUresult: "any further CUDA work will return the same error"). A call returns it for work that
/// was enqueued before.
///
/// The manual does not say so of uncorrectable ECC and NVLink errors (214, 220), which are faults of
/// the machine. CUDA_ERROR_CONTEXT_IS_DESTROYED (709) is about the context of the call.
#[inline]
pub const fn is_sticky(code: i32) -> bool {
    matches!(code, 226 | 700 | 702 | 710 | 714..=719 | 721 | 911)
}

/// Whether a stream goes on capturing after its capture could not be ended with that result
/// (cuda.h: CUDA_ERROR_INVALID_VALUE, _INVALID_HANDLE, _ILLEGAL_STATE, _STREAM_CAPTURE_UNMATCHED,
/// _STREAM_CAPTURE_WRONG_THREAD).
pub const fn keeps_capturing(code: i32) -> bool {
    matches!(code, 1 | 400 | 401 | 903 | 908)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::enumeration;

    #[test]
    fn every_result_is_sticky_or_not() {
        let expected = [
            "CONTAINED",
            "ILLEGAL_ADDRESS",
            "LAUNCH_TIMEOUT",
            "ASSERT",
            "HARDWARE_STACK_ERROR",
            "ILLEGAL_INSTRUCTION",
            "MISALIGNED_ADDRESS",
            "INVALID_ADDRESS_SPACE",
            "INVALID_PC",
            "LAUNCH_FAILED",
            "TENSOR_MEMORY_LEAK",
            "EXTERNAL_DEVICE",
        ];
        let results = enumeration("CUresult").expect("known").values;
        let sticky = results.iter().filter(|(_, code)| is_sticky(*code as i32));
        let sticky = sticky.map(|(name, _)| name.trim_start_matches("CUDA_ERROR_"));
        assert!(sticky.eq(expected));
        assert_eq!(results.len(), 101, "does the manual call new ones sticky?");
    }
}
