//! Which calls only ask: a program may make any number of them.

use cutape_registry::{EventOp, Family, Function, StreamOp};

/// How the calls of a function are matched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sort {
    /// In the order of the recording.
    Effect,
    /// Answered whatever their place and number are.
    Query,
    /// The same; the answer depends on how far work is.
    Poll,
    /// Left to the driver: addresses of its functions.
    EntryPoint,
}

/// The sort of a function.
pub(crate) fn sort_of(function: &Function) -> Sort {
    match function.family {
        Family::ProcAddress { .. } | Family::ExportTable => Sort::EntryPoint,
        Family::Stream(StreamOp::Query) | Family::Event(EventOp::Query) => Sort::Poll,
        _ if function.only_asks() => Sort::Query,
        _ => Sort::Effect,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_have_a_sort() {
        for (name, expected) in [
            ("cuInit", Sort::Effect),
            ("cuDriverGetVersion", Sort::Query),
            ("cuDeviceGet", Sort::Effect),
            ("cuDeviceGetName", Sort::Query),
            ("cuDeviceTotalMem_v2", Sort::Query),
            ("cuDeviceGetAttribute", Sort::Query),
            ("cuDevicePrimaryCtxRetain", Sort::Effect),
            ("cuCtxGetCurrent", Sort::Query),
            ("cuCtxSetCurrent", Sort::Effect),
            ("cuCtxGetLimit", Sort::Query),
            ("cuCtxSetCacheConfig", Sort::Effect),
            ("cuMemGetInfo_v2", Sort::Query),
            ("cuMemAlloc_v2", Sort::Effect),
            ("cuMemcpyDtoH_v2", Sort::Effect),
            ("cuModuleGetFunction", Sort::Effect),
            ("cuFuncGetAttribute", Sort::Query),
            ("cuFuncSetAttribute", Sort::Effect),
            ("cuEventQuery", Sort::Poll),
            ("cuStreamQuery_ptsz", Sort::Poll),
            ("cuEventElapsedTime", Sort::Query),
            ("cuEventSynchronize", Sort::Effect),
            ("cuStreamGetPriority", Sort::Query),
            ("cuPointerGetAttribute", Sort::Query),
            ("cuPointerSetAttribute", Sort::Effect),
            ("cuGetProcAddress_v2", Sort::EntryPoint),
            ("cuGetErrorName", Sort::Query),
            ("cuLaunchKernel", Sort::Effect),
        ] {
            let function = cutape_registry::function(name).expect(name);
            assert_eq!(sort_of(function), expected, "{name}");
        }
    }
}
