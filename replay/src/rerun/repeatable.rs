//! Which calls can be issued again and again: work and waits, and nothing that makes or ends an object.

use cutape_format::Call;
use cutape_registry::{Function, Kind, Role};

use crate::buffer::number;
use crate::compare::received::read_memory;
use crate::rerun::steps::Issued;

/// Why a call is issued once, while the state is built up, and not in each iteration; `None` if it is repeated.
pub(super) fn why_once(call: &Call, function: &Function) -> Option<&'static str> {
    if !call.succeeded() {
        return Some("it failed in the recording");
    }
    if is_work(function.base) {
        return None;
    }
    let has = |wanted: fn(Role) -> bool| function.params.iter().any(|param| wanted(param.role));
    Some(match function.base {
        base if base.starts_with("cuStreamWaitValue")
            || base.starts_with("cuStreamWriteValue")
            || base == "cuStreamBatchMemOp" =>
        {
            "a wait for a value may never end the second time"
        }
        "cuLaunch" | "cuLaunchGrid" | "cuLaunchGridAsync" => "its parameters come from other calls",
        _ if has(|role| matches!(role, Role::Make(..))) => "it makes an object",
        _ => "it is neither work for the device nor a wait for it",
    })
}

/// Work for the device, or a wait for it.
fn is_work(base: &str) -> bool {
    let named = matches!(
        base,
        "cuLaunchKernel"
            | "cuLaunchKernelEx"
            | "cuLaunchCooperativeKernel"
            | "cuLaunchHostFunc"
            | "cuStreamAddCallback"
            | "cuMemPrefetchAsync"
            | "cuEventRecord"
            | "cuEventRecordWithFlags"
            | "cuEventQuery"
            | "cuEventSynchronize"
            | "cuStreamWaitEvent"
            | "cuStreamQuery"
            | "cuStreamSynchronize"
            | "cuCtxSynchronize"
            | "cuGraphLaunch"
            | "cuGraphUpload"
    );
    let updates_graph = base.starts_with("cuGraphExec") && base.ends_with("SetParams");
    named || base.starts_with("cuMemcpy") || base.starts_with("cuMemset") || updates_graph
}

/// Whether a successful call takes away what an earlier one of the measured calls may use: it is put off for ever.
pub(super) fn ends_something(function: &Function) -> bool {
    let named = matches!(
        function.base,
        "cuDevicePrimaryCtxRelease" | "cuDevicePrimaryCtxReset" | "cuMemUnmap" | "cuCtxDetach"
    );
    let destroys = |param: &cutape_registry::Param| matches!(param.role, Role::Destroy(_));
    named || function.params.iter().any(destroys)
}

/// CU_STREAM_LEGACY and CU_STREAM_PER_THREAD.
const LEGACY: u64 = 1;
const PER_THREAD: u64 = 2;

/// The live stream that a call orders its work on.
pub(super) fn stream_of(issued: &Issued) -> u64 {
    let function = issued.function;
    let stream = match function.stream {
        Some(position) => issued.args.get(usize::from(position)).copied(),
        // hStream of the CUlaunchConfig, which lies in memory that the step keeps.
        None if function.base == "cuLaunchKernelEx" => issued
            .args
            .first()
            .filter(|&&config| config != 0)
            .map(|&config| number(&read_memory(config + 32, 8))),
        None => None,
    };
    match stream.unwrap_or(0) {
        0 if function.per_thread => PER_THREAD,
        0 => LEGACY,
        stream => stream,
    }
}

/// Where a launch has the function that it launches.
pub(super) fn launched_position(function: &Function) -> Option<usize> {
    let launches = function.base.starts_with("cuLaunch");
    let is_function =
        |param: &cutape_registry::Param| matches!(param.role, Role::Use(Kind::Function));
    function
        .params
        .iter()
        .position(is_function)
        .filter(|_| launches)
}

#[cfg(test)]
mod tests {
    use super::*;
    use cutape_registry::{FUNCTIONS, function};

    #[test]
    fn work_and_waits_are_repeated_and_nothing_that_makes_or_ends_an_object() {
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
            assert_eq!(is_work(function.base), repeated, "{name}");
        }
        for function in FUNCTIONS.iter().filter(|function| is_work(function.base)) {
            let makes = |role| matches!(role, Role::Make(..));
            assert!(
                !ends_something(function) && !function.params.iter().any(|param| makes(param.role)),
                "{}",
                function.name
            );
        }
    }

    #[test]
    fn what_ends_an_object_is_known() {
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
