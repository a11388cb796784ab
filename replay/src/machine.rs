//! Does this machine fit the trace?

use cutape_format::Trace;

use crate::api::Api;
use crate::plan::Plan;
use crate::report::Difference;

/// `CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR` and `..._MINOR`.
const CAPABILITY: (u32, u32) = (75, 76);

/// Everything in which this machine differs from the recorded one, as far as the trace says. Needs `cuInit`.
pub(crate) fn differences(trace: &Trace, plan: &Plan, api: &Api) -> Vec<Difference> {
    let mut found = Vec::new();
    let mut compare = |what: String, recorded: Option<&str>, here: Option<String>, fatal: bool| {
        if let (Some(recorded), Some(here)) = (recorded, here)
            && recorded != here
        {
            found.push(Difference {
                what,
                recorded: recorded.to_owned(),
                here,
                fatal,
            });
        }
    };
    let kind = |null| if null { "null" } else { "real" }.to_owned();
    let recorded_kind = kind(trace.meta_value("driver.kind") == Some("null"));
    compare(
        "driver".into(),
        Some(&recorded_kind),
        Some(kind(api.is_null_driver())),
        false,
    );
    let version = api.driver_version().ok().map(|version| version.to_string());
    compare(
        "driver version".into(),
        trace.meta_value("driver.version"),
        version,
        false,
    );
    let recorded_count = trace
        .meta_value("device.count")
        .and_then(|text| text.parse::<i32>().ok());
    let count = api.device_count().unwrap_or(0);
    let fewer = recorded_count.is_some_and(|recorded| count < recorded);
    compare(
        "number of devices".into(),
        trace.meta_value("device.count"),
        Some(count.to_string()),
        fewer,
    );
    for device in 0..count.min(recorded_count.unwrap_or(0)) {
        let key = |name: &str| format!("device.{device}.{name}");
        compare(
            format!("device {device}"),
            trace.meta_value(&key("name")),
            api.device_name(device).ok(),
            false,
        );
        let capability = api
            .device_attribute(CAPABILITY.0, device)
            .and_then(|major| {
                Ok(format!(
                    "{major}.{}",
                    api.device_attribute(CAPABILITY.1, device)?
                ))
            });
        compare(
            format!("compute capability of device {device}"),
            trace.meta_value(&key("compute-capability")),
            capability.ok(),
            true,
        );
    }
    let memory = (0..count)
        .filter_map(|device| api.device_memory(device).ok())
        .max();
    if let Some(memory) = memory
        && memory < plan.peak_bytes
    {
        found.push(Difference {
            what: "device memory that the trace needs at one time".into(),
            recorded: plan.peak_bytes.to_string(),
            here: memory.to_string(),
            fatal: true,
        });
    }
    found
}
