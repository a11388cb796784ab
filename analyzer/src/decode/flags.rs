//! Words of flags whose C type is a plain integer, and the enum that names their bits.

use cutape_registry::Enum;

/// `CU_MEMHOSTALLOC_*`, which cuda.h has as macros.
static HOST_ALLOCATION: Enum = Enum {
    name: "CU_MEMHOSTALLOC",
    values: &[
        ("CU_MEMHOSTALLOC_PORTABLE", 1),
        ("CU_MEMHOSTALLOC_DEVICEMAP", 2),
        ("CU_MEMHOSTALLOC_WRITECOMBINED", 4),
    ],
};

/// `CU_MEMHOSTREGISTER_*`, likewise.
static HOST_REGISTRATION: Enum = Enum {
    name: "CU_MEMHOSTREGISTER",
    values: &[
        ("CU_MEMHOSTREGISTER_PORTABLE", 1),
        ("CU_MEMHOSTREGISTER_DEVICEMAP", 2),
        ("CU_MEMHOSTREGISTER_IOMEMORY", 4),
        ("CU_MEMHOSTREGISTER_READ_ONLY", 8),
    ],
};

/// Documented name of the function, enum: each has one parameter `flags` or `Flags`. From the functions' pages in the
/// CUDA driver API manual.
const ENUMS: [(&str, &str); 22] = [
    ("cuCtxCreate", "CUctx_flags"),
    ("cuCtxGetFlags", "CUctx_flags"),
    ("cuCtxSetFlags", "CUctx_flags"),
    ("cuDevicePrimaryCtxGetState", "CUctx_flags"),
    ("cuDevicePrimaryCtxSetFlags", "CUctx_flags"),
    ("cuEventCreate", "CUevent_flags"),
    ("cuEventRecordWithFlags", "CUevent_record_flags"),
    ("cuGetProcAddress", "CUdriverProcAddress_flags"),
    ("cuGraphDebugDotPrint", "CUgraphDebugDot_flags"),
    ("cuGraphInstantiateWithFlags", "CUgraphInstantiate_flags"),
    ("cuMemAllocManaged", "CUmemAttach_flags"),
    (
        "cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags",
        "CUoccupancy_flags",
    ),
    (
        "cuOccupancyMaxPotentialBlockSizeWithFlags",
        "CUoccupancy_flags",
    ),
    ("cuStreamAttachMemAsync", "CUmemAttach_flags"),
    ("cuStreamCreate", "CUstream_flags"),
    ("cuStreamCreateWithPriority", "CUstream_flags"),
    ("cuStreamGetFlags", "CUstream_flags"),
    ("cuStreamWaitEvent", "CUevent_wait_flags"),
    ("cuStreamWaitValue32", "CUstreamWaitValue_flags"),
    ("cuStreamWaitValue64", "CUstreamWaitValue_flags"),
    ("cuStreamWriteValue32", "CUstreamWriteValue_flags"),
    ("cuStreamWriteValue64", "CUstreamWriteValue_flags"),
];

/// What names the bits of that parameter, or of what it points at.
pub(super) fn of(function: &str, parameter: &str) -> Option<&'static Enum> {
    if !parameter.eq_ignore_ascii_case("flags") {
        return None;
    }
    match function {
        "cuMemHostAlloc" | "cuMemHostGetFlags" => Some(&HOST_ALLOCATION),
        "cuMemHostRegister" => Some(&HOST_REGISTRATION),
        _ => {
            let place = ENUMS.iter().find(|entry| entry.0 == function)?;
            cutape_registry::enumeration(place.1)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_parameters_and_enums_exist() {
        let functions = ENUMS.iter().map(|entry| entry.0);
        for function in functions.chain(["cuMemHostAlloc", "cuMemHostRegister"]) {
            let mut variants = cutape_registry::FUNCTIONS
                .iter()
                .filter(|f| f.base == function);
            assert!(
                variants.any(|f| f.params.iter().any(|p| of(f.base, p.name).is_some())),
                "{function}"
            );
        }
        assert!(of("cuInit", "Flags").is_none());
        assert!(of("cuStreamCreate", "phStream").is_none());
    }
}
