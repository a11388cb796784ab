//! Which functions only ask: their calls change nothing, so that any number of them may be made.

use crate::{
    ContextOp, DeviceOp, EventOp, Family, Function, FunctionOp, GraphOp, HostMemoryOp, MemoryOp,
    PointerOp, Role, StreamOp, Waits,
};

impl Function {
    /// True if its calls tell something and change nothing. A handle that they find, such as a device
    /// or a pool, exists without them. Addresses of functions are not among what it knows of.
    pub fn only_asks(&self) -> bool {
        match self.family {
            Family::DriverVersion | Family::LoadingMode | Family::Occupancy(_) => true,
            Family::Device(op) => match op {
                DeviceOp::Count | DeviceOp::ByBusId | DeviceOp::Property | DeviceOp::Hardware => {
                    true
                }
            },
            Family::Context(op) => matches!(op, ContextOp::Current | ContextOp::Device),
            Family::Memory(op) => matches!(op, MemoryOp::AddressRange),
            Family::HostMemory(op) => {
                matches!(op, HostMemoryOp::DevicePointer | HostMemoryOp::Flags)
            }
            Family::Pointer(op) => !matches!(op, PointerOp::SetAttribute),
            Family::Stream(op) => matches!(op, StreamOp::Query | StreamOp::CaptureInfo { .. }),
            Family::Event(op) => matches!(op, EventOp::Query | EventOp::ElapsedTime),
            Family::Graph(op) => {
                matches!(op, GraphOp::GetNode(_) | GraphOp::GetKernelAttribute { .. })
            }
            Family::Function(op) | Family::Kernel(op) => matches!(
                op,
                FunctionOp::Count
                    | FunctionOp::Name { .. }
                    | FunctionOp::GetAttribute
                    | FunctionOp::ParameterInfo
            ),
            Family::Plain => self.only_returns(),
            _ => false,
        }
    }

    /// Whether the roles of its parameters say that it returns something and does nothing else.
    fn only_returns(&self) -> bool {
        let mut returns = false;
        for param in self.params {
            match param.role {
                Role::Out(_) | Role::OutString | Role::Text(_) | Role::Get(_) | Role::Find(..) => {
                    returns = true;
                }
                Role::Value | Role::Use(_) | Role::In(_) | Role::String | Role::HostAddress => {}
                Role::InOut(_)
                | Role::Destroy(_)
                | Role::Make(..)
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
        returns && self.stream.is_none() && self.waits == Waits::No
    }
}

#[cfg(test)]
mod tests {
    use crate::function;

    #[test]
    fn calls_that_only_ask() {
        for (name, expected) in [
            ("cuInit", false),
            ("cuDriverGetVersion", true),
            ("cuDeviceGet", true),
            ("cuDeviceGetName", true),
            ("cuDeviceTotalMem_v2", true),
            ("cuDeviceGetAttribute", true),
            ("cuDeviceGetDefaultMemPool", true),
            ("cuDeviceSetMemPool", false),
            ("cuDevicePrimaryCtxRetain", false),
            ("cuDevicePrimaryCtxGetState", true),
            ("cuCtxGetCurrent", true),
            ("cuCtxSetCurrent", false),
            ("cuCtxGetLimit", true),
            ("cuCtxSetCacheConfig", false),
            ("cuMemGetInfo_v2", true),
            ("cuMemAlloc_v2", false),
            ("cuMemcpyDtoH_v2", false),
            ("cuModuleGetFunction", false),
            ("cuFuncGetAttribute", true),
            ("cuFuncSetAttribute", false),
            ("cuEventQuery", true),
            ("cuStreamQuery_ptsz", true),
            ("cuEventElapsedTime", true),
            ("cuEventSynchronize", false),
            ("cuStreamGetPriority", true),
            ("cuPointerGetAttribute", true),
            ("cuPointerSetAttribute", false),
            ("cuGetProcAddress_v2", false),
            ("cuGetErrorName", true),
            ("cuGraphNodeFindInClone", true),
            ("cuLaunchKernel", false),
        ] {
            let function = function(name).expect(name);
            assert_eq!(function.only_asks(), expected, "{name}");
        }
    }
}
