//! Which calls only ask: a program may make any number of them.

use cutape_registry::{
    ContextOp, DeviceOp, EventOp, Family, Function, FunctionOp, GraphOp, HostMemoryOp, MemoryOp,
    PointerOp, Role, StreamOp, Waits,
};

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
        Family::DriverVersion
        | Family::LoadingMode
        | Family::Occupancy(_)
        | Family::Device(
            DeviceOp::Count | DeviceOp::ByBusId | DeviceOp::Property | DeviceOp::Hardware,
        )
        | Family::Context(ContextOp::Current | ContextOp::Device)
        | Family::Memory(MemoryOp::AddressRange)
        | Family::HostMemory(HostMemoryOp::DevicePointer | HostMemoryOp::Flags)
        | Family::Pointer(
            PointerOp::Attribute
            | PointerOp::Attributes { .. }
            | PointerOp::RangeAttribute
            | PointerOp::RangeAttributes { .. },
        )
        | Family::Stream(StreamOp::CaptureInfo { .. })
        | Family::Event(EventOp::ElapsedTime)
        | Family::Graph(GraphOp::GetNode(_) | GraphOp::GetKernelAttribute { .. }) => Sort::Query,
        Family::Function(op) | Family::Kernel(op) => match op {
            FunctionOp::Count
            | FunctionOp::Name { .. }
            | FunctionOp::GetAttribute
            | FunctionOp::ParameterInfo => Sort::Query,
            _ => Sort::Effect,
        },
        Family::Plain if only_returns(function) => Sort::Query,
        _ => Sort::Effect,
    }
}

/// Whether the roles of a function's parameters say that it returns something and does nothing else.
fn only_returns(function: &Function) -> bool {
    let mut returns = false;
    for param in function.params {
        match param.role {
            Role::Out(_) | Role::OutString | Role::Text(_) | Role::Get(_) => returns = true,
            Role::Value | Role::Use(_) | Role::In(_) | Role::String | Role::HostAddress => {}
            Role::InOut(_)
            | Role::Destroy(_)
            | Role::Make(..)
            | Role::Find(..)
            | Role::FindMany(..)
            | Role::UseMany(..)
            | Role::HostRead(_)
            | Role::HostWrite(_)
            | Role::DeviceRead(_)
            | Role::DeviceWrite(_)
            | Role::Image
            | Role::Callback
            | Role::Pointer => return false,
        }
    }
    returns && function.stream.is_none() && function.waits == Waits::No
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
