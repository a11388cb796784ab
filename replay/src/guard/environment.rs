//! The environment of a replaying child.

use cutape_format::Trace;
use cutape_registry::NullSetting;

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

/// The settings of the recorded process that the child needs. Of the machine that the null driver
/// simulated, what is set here wins.
pub(crate) fn environment(trace: &Trace) -> Vec<(&'static str, &str)> {
    let machine = NullSetting::ALL.iter();
    let machine = machine.filter(|setting| setting.describes_machine());
    let unset = machine
        .map(|setting| setting.name())
        .filter(|name| std::env::var_os(name).is_none());
    ENVIRONMENT
        .iter()
        .copied()
        .chain(unset)
        .filter_map(|name| {
            let value = trace.meta_value(&format!("environment.{name}"))?;
            Some((name, value))
        })
        .collect()
}
