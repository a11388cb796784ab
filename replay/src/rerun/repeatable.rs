//! Which calls can be issued again and again: work and waits, and nothing that creates or ends an
//! object.

use cutape_format::Call;
use cutape_registry::{
    ContextOp, EventOp, Family, Function, GraphOp, LaunchOp, Param, PrimaryOp, Role, StreamOp,
    VirtualMemoryOp, canonical_stream, layout,
};

use crate::api::buffer::number;
use crate::calls::steps::Issued;
use crate::compare::received::read_memory;

/// Why a call is issued once, while the state is built, and not in each iteration; `None` if it is
/// repeated.
pub(super) fn why_once(call: &Call, function: &Function) -> Option<&'static str> {
    if !call.succeeded() {
        return Some("it failed in the recording");
    }
    if is_work(function) {
        return None;
    }
    let creates = |param: &Param| matches!(param.role, Role::Make(..));
    Some(match function.family {
        Family::StreamMemory(_) => "a wait for a value may never end the second time",
        Family::Launch(LaunchOp::Legacy { .. }) => "its parameters come from other calls",
        _ if function.params.iter().any(creates) => "it creates an object",
        _ => "it is neither work for the device nor a wait for it",
    })
}

/// Whether a call is work for the device, or a wait for it.
fn is_work(function: &Function) -> bool {
    match function.family {
        Family::Copy(_)
        | Family::Memset
        | Family::Prefetch
        | Family::HostFunction
        | Family::StreamCallback
        | Family::Context(ContextOp::Synchronize) => true,
        Family::Launch(launch) => match launch {
            LaunchOp::Arguments(_) | LaunchOp::Config(_) => true,
            LaunchOp::MultiDevice { .. } | LaunchOp::Legacy { .. } => false,
        },
        Family::Stream(stream) => match stream {
            StreamOp::Query | StreamOp::Synchronize | StreamOp::WaitEvent => true,
            StreamOp::Destroy
            | StreamOp::BeginCapture
            | StreamOp::EndCapture
            | StreamOp::SetAttribute { .. }
            | StreamOp::AttachMemory
            | StreamOp::CaptureInfo { .. } => false,
        },
        Family::Event(event) => match event {
            EventOp::Record | EventOp::Query | EventOp::Synchronize => true,
            EventOp::Create | EventOp::ElapsedTime => false,
        },
        Family::Graph(graph) => matches!(
            graph,
            GraphOp::Launch | GraphOp::Upload | GraphOp::SetExecNode(_)
        ),
        _ => false,
    }
}

/// Whether a successful call ends what an earlier one of the measured calls may use. Such a call is
/// deferred to the end.
pub(super) fn ends_something(function: &Function) -> bool {
    let ends_without_role = matches!(
        function.family,
        Family::PrimaryContext(PrimaryOp::Release | PrimaryOp::Reset)
            | Family::Context(ContextOp::Detach)
            | Family::VirtualMemory(VirtualMemoryOp::Unmap { .. })
    );
    let destroys = |param: &Param| matches!(param.role, Role::Destroy(_));
    ends_without_role || function.params.iter().any(destroys)
}

/// The live stream that a call orders its work on.
pub(super) fn stream_of(issued: &Issued) -> u64 {
    const CONFIG_STREAM: u64 = layout::offset_of("CUlaunchConfig", "hStream") as u64;
    let function = issued.function;
    let argument = |position: u8| issued.args.get(usize::from(position)).copied();
    let stream = match (function.stream, function.family) {
        (Some(position), _) => argument(position),
        // The config is in memory that the step keeps.
        (None, Family::Launch(LaunchOp::Config(launch))) => argument(launch.config)
            .filter(|&config| config != 0)
            .map(|config| number(&read_memory(config + CONFIG_STREAM, 8))),
        (None, _) => None,
    };
    canonical_stream(stream.unwrap_or(0), function.per_thread)
}

/// The position of the function that a launch launches.
pub(super) fn launched_position(function: &Function) -> Option<usize> {
    match function.family {
        Family::Launch(launch) => launch.function().map(usize::from),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cutape_registry::{FUNCTIONS, function};

    #[test]
    fn work_and_waits_are_repeated() {
        for (name, repeated) in [
            ("cuLaunchKernel", true),
            ("cuLaunchKernelEx_ptsz", true),
            ("cuMemcpyHtoDAsync_v2", true),
            ("cuMemsetD32_v2", true),
            ("cuStreamSynchronize", true),
            ("cuGraphLaunch", true),
            ("cuGraphExecKernelNodeSetParams_v2", true),
            ("cuMemAlloc_v2", false),
            ("cuMemAllocAsync", false),
            ("cuStreamWaitValue32_v2", false),
            ("cuModuleLoadData", false),
            ("cuCtxSetCurrent", false),
        ] {
            let function = function(name).expect(name);
            assert_eq!(is_work(function), repeated, "{name}");
        }
        for function in FUNCTIONS.iter().filter(|function| is_work(function)) {
            let makes = |role| matches!(role, Role::Make(..));
            assert!(
                !ends_something(function) && !function.params.iter().any(|param| makes(param.role)),
                "{}",
                function.name
            );
        }
    }

    #[test]
    fn deferred_calls_end_objects() {
        for (name, ends) in [
            ("cuMemFree_v2", true),
            ("cuMemFreeAsync", true),
            ("cuStreamDestroy_v2", true),
            ("cuModuleUnload", true),
            ("cuCtxDestroy_v2", true),
            ("cuDevicePrimaryCtxRelease_v2", true),
            ("cuMemHostUnregister", true),
            ("cuMemUnmap", true),
            ("cuGraphExecDestroy", true),
            ("cuCtxPopCurrent_v2", false),
            ("cuMemcpyDtoH_v2", false),
        ] {
            assert_eq!(ends_something(function(name).expect(name)), ends, "{name}");
        }
    }

    #[test]
    fn the_launched_function_is_found() {
        for (name, position) in [
            ("cuLaunchKernel", Some(0)),
            ("cuLaunchCooperativeKernel", Some(0)),
            ("cuLaunchKernelEx", Some(1)),
            ("cuLaunchHostFunc", None),
            ("cuFuncGetModule", None),
        ] {
            assert_eq!(
                launched_position(function(name).expect(name)),
                position,
                "{name}"
            );
        }
    }
}
