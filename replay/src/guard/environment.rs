//! The environment of a replaying child.

use cutape_format::Trace;

/// Settings of the recorded process that change what the driver does, for the child. Which devices
/// are visible is this machine's matter.
const ENVIRONMENT: &[&str] = &[
    "CUDA_DEVICE_MAX_CONNECTIONS",
    "CUDA_DEVICE_ORDER",
    "CUDA_DISABLE_JIT",
    "CUDA_DISABLE_PTX_JIT",
    "CUDA_FORCE_JIT",
    "CUDA_FORCE_PTX_JIT",
    "CUDA_LAUNCH_BLOCKING",
    "CUDA_MANAGED_FORCE_DEVICE_ALLOC",
    "CUDA_MODULE_DATA_LOADING",
    "CUDA_MODULE_LOADING",
];

/// How the recorded null driver was configured. What is set here wins.
const NULL_MACHINE: &[&str] = &[
    "CUTAPE_NULL_CAPABILITY",
    "CUTAPE_NULL_DEVICES",
    "CUTAPE_NULL_MEMORY",
    "CUTAPE_NULL_VERSION",
];

pub(crate) fn environment(trace: &Trace) -> Vec<(&'static str, &str)> {
    let unset = NULL_MACHINE
        .iter()
        .filter(|name| std::env::var_os(name).is_none());
    ENVIRONMENT
        .iter()
        .chain(unset)
        .filter_map(|&name| {
            let value = trace.meta_value(&format!("environment.{name}"))?;
            Some((name, value))
        })
        .collect()
}
