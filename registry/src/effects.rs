//! Which calls change nothing: of those a program may make any number, and a recording that is paused
//! leaves them out. And which give the device work.

use crate::family::{
    ContextOp, DeviceOp, EventOp, Family, FunctionOp, GraphOp, HostMemoryOp, LaunchOp, MemoryOp,
    PointerOp, StreamOp,
};
use crate::model::{Function, Role, Waits};

impl Function {
    /// Whether its calls only ask: they change no state, give the device no work and wait for none.
    /// A handle that they find, such as a device or a pool, exists without them.
    pub fn only_asks(&self) -> bool {
        match self.family {
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
            | Family::Stream(StreamOp::Query | StreamOp::CaptureInfo { .. })
            | Family::Event(EventOp::Query | EventOp::ElapsedTime)
            | Family::Graph(GraphOp::GetNode(_) | GraphOp::GetKernelAttribute { .. })
            | Family::Function(
                FunctionOp::Count
                | FunctionOp::Name { .. }
                | FunctionOp::GetAttribute
                | FunctionOp::ParameterInfo,
            )
            | Family::Kernel(
                FunctionOp::Count
                | FunctionOp::Name { .. }
                | FunctionOp::GetAttribute
                | FunctionOp::ParameterInfo,
            ) => true,
            Family::Plain => self.only_returns(),
            _ => false,
        }
    }

    /// Whether successful calls only give the device work, order it, wait for it, or ask and name no
    /// object, as long as no stream captures: a recording that is paused leaves them out.
    pub fn changes_no_state(&self) -> bool {
        match self.family {
            Family::Launch(_)
            | Family::Copy(_)
            | Family::Memset
            | Family::Prefetch
            | Family::Stream(StreamOp::Synchronize | StreamOp::WaitEvent)
            | Family::Event(EventOp::Synchronize)
            | Family::Graph(GraphOp::Launch | GraphOp::Upload)
            | Family::Context(ContextOp::Synchronize) => true,
            Family::Pointer(op) => !matches!(op, PointerOp::SetAttribute),
            // It names a graph only while a stream captures.
            Family::Stream(StreamOp::CaptureInfo { .. }) => true,
            // Says when kernels of later calls are loaded.
            Family::LoadingMode => false,
            // Programs ask until a call fails: the ones before show that this is no mistake.
            Family::Function(FunctionOp::ParameterInfo)
            | Family::Kernel(FunctionOp::ParameterInfo) => false,
            // What is recorded later may use what these calls name.
            _ => self.only_asks() && !self.params.iter().any(|param| names_object(param.role)),
        }
    }

    /// Whether it has a stream, as an argument or in a launch's configuration.
    pub fn has_stream(&self) -> bool {
        self.stream.is_some() || matches!(self.family, Family::Launch(LaunchOp::Config(_)))
    }

    /// Whether a successful call puts work into its stream, which may still run when it returns.
    pub fn enqueues_in_stream(&self) -> bool {
        let only_orders = matches!(
            self.family,
            Family::Event(EventOp::Record)
                | Family::Stream(
                    StreamOp::WaitEvent | StreamOp::BeginCapture | StreamOp::EndCapture
                )
        );
        self.has_stream() && self.waits == Waits::No && !only_orders
    }

    /// Whether it has no stream, and its work is in the default stream.
    pub fn works_in_default_stream(&self) -> bool {
        !self.has_stream() && matches!(self.family, Family::Copy(_) | Family::Memset)
    }

    /// Whether the roles of the parameters say that it returns something and does nothing else.
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

/// Whether a call makes the handle behind such a parameter known.
fn names_object(role: Role) -> bool {
    matches!(role, Role::Find(..) | Role::FindMany(..))
}

#[cfg(test)]
mod tests {
    use crate::{FUNCTIONS, Family, Param, Role, StreamOp, function};

    #[test]
    fn calls_that_change_no_state_make_and_end_nothing() {
        for function in FUNCTIONS.iter() {
            let asks_about_capture = matches!(
                function.family,
                Family::Stream(StreamOp::CaptureInfo { .. })
            );
            if !function.changes_no_state() || asks_about_capture {
                continue;
            }
            let changes = |param: &Param| {
                matches!(
                    param.role,
                    Role::Make(..) | Role::Find(..) | Role::FindMany(..) | Role::Destroy(_)
                )
            };
            assert!(!function.params.iter().any(changes), "{}", function.name);
        }
    }

    #[test]
    fn functions_change_something_or_not() {
        // Whether it only asks, and whether it changes no state.
        for (name, asks, changes_nothing) in [
            ("cuLaunchKernel", false, true),
            ("cuLaunchKernelEx", false, true),
            ("cuMemcpyHtoDAsync_v2", false, true),
            ("cuMemsetD8_v2", false, true),
            ("cuGraphLaunch", false, true),
            ("cuStreamWaitEvent", false, true),
            ("cuStreamSynchronize", false, true),
            ("cuCtxSynchronize", false, true),
            ("cuStreamQuery", true, true),
            ("cuEventQuery", true, true),
            ("cuCtxGetCurrent", true, true),
            ("cuCtxGetDevice", true, true),
            ("cuDevicePrimaryCtxGetState", true, true),
            ("cuStreamIsCapturing", true, true),
            ("cuStreamGetPriority", true, true),
            ("cuFuncGetAttribute", true, true),
            ("cuFuncGetParamInfo", true, false),
            ("cuPointerGetAttribute", true, true),
            ("cuMemGetInfo_v2", true, true),
            ("cuGraphKernelNodeGetParams_v2", true, true),
            ("cuStreamGetCaptureInfo_v2", true, true),
            ("cuModuleGetLoadingMode", true, false),
            ("cuDeviceGet", true, false),
            ("cuDeviceGetDefaultMemPool", true, false),
            ("cuGraphNodeFindInClone", true, false),
            ("cuPointerSetAttribute", false, false),
            ("cuGetErrorName", true, true),
            ("cuGetProcAddress_v2", false, false),
            ("cuEventRecord", false, false),
            ("cuMemAllocAsync", false, false),
            ("cuModuleLoadData", false, false),
            ("cuModuleGetFunction", false, false),
            ("cuStreamBeginCapture_v2", false, false),
            ("cuThreadExchangeStreamCaptureMode", false, false),
            ("cuCtxSetCurrent", false, false),
            ("cuFuncSetAttribute", false, false),
            ("cuParamSetv", false, false),
            ("cuLaunchHostFunc", false, false),
            ("cuStreamWaitValue32_v2", false, false),
        ] {
            let function = function(name).expect(name);
            assert_eq!(function.only_asks(), asks, "{name}");
            assert_eq!(function.changes_no_state(), changes_nothing, "{name}");
        }
    }
}
