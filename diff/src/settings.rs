//! What differs between two traces in driver, devices, program and recorder.

use std::collections::BTreeSet;

use cutape_format::Trace;

use crate::report::Setting;

/// Starts of the keys whose values say what the machine is.
const MACHINE: [&str; 2] = ["driver.", "device."];
/// Starts of other keys that say how the trace came about, but not when and where.
const OTHERS: [&str; 7] = [
    "recorder.",
    "payloads",
    "outputs",
    "digests",
    "argument.",
    "environment.",
    "rank",
];

/// Of a device only these: the rest follows.
const DEVICE: [&str; 4] = ["name", "uuid", "memory", "compute-capability"];

fn is_shown(key: &str) -> bool {
    if let Some(of_device) = key.strip_prefix("device.") {
        let what = of_device
            .split_once('.')
            .map_or(of_device, |(_, what)| what);
        return what == "count" || DEVICE.contains(&what);
    }
    // Where the driver's file lies says nothing.
    key != "driver.path"
        && (MACHINE.iter().any(|start| key.starts_with(start))
            || OTHERS.iter().any(|start| key.starts_with(start)))
}

/// What differs, and whether it is about driver or devices.
pub(crate) fn settings(a: &Trace, b: &Trace) -> (Vec<Setting>, bool) {
    let keys = a.meta().iter().chain(b.meta()).map(|(key, _)| key.as_str());
    let keys: BTreeSet<&str> = keys.filter(|key| is_shown(key)).collect();
    let mut is_other_machine = false;
    let mut found = Vec::new();
    for key in keys {
        let values = [a.meta_value(key), b.meta_value(key)];
        // The name of the program, which may lie in another folder.
        if values[0] == values[1] || key == "argument.0" {
            continue;
        }
        is_other_machine |= MACHINE.iter().any(|start| key.starts_with(start));
        found.push(Setting {
            what: words(key),
            values: values.map(|value| value.map(|value| readable(key, value))),
        });
    }
    (found, is_other_machine)
}

/// `device 0 name`
fn words(key: &str) -> String {
    match key {
        "recorder.via" => "backend".to_owned(),
        "recorder.version" => "version of cutape".to_owned(),
        "driver.version" => "driver".to_owned(),
        _ => match key.strip_prefix("environment.") {
            Some(name) => format!("environment {name}"),
            None => key.replace('.', " "),
        },
    }
}

/// The driver's number of a CUDA version as text.
fn readable(key: &str, value: &str) -> String {
    match value.parse::<u64>() {
        Ok(version) if key == "driver.version" => {
            format!("CUDA {}.{}", version / 1000, version % 1000 / 10)
        }
        _ => value.to_owned(),
    }
}

/// Whether a trace lacks bytes that calls copied, and has not even their hashes.
pub(crate) fn lacks_payloads(trace: &Trace) -> bool {
    ["payloads", "outputs"]
        .iter()
        .any(|key| trace.meta_value(key) == Some("none"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys() {
        for (key, shown) in [
            ("driver.version", true),
            ("driver.path", false),
            ("device.count", true),
            ("device.0.name", true),
            ("device.0.attribute.CLOCK_RATE", false),
            ("process", false),
            ("argument.1", true),
            ("environment.CUDA_CACHE_PATH", true),
            ("clock.ticks-per-second", false),
        ] {
            assert_eq!(is_shown(key), shown, "{key}");
        }
        assert_eq!(words("device.0.name"), "device 0 name");
        assert_eq!(readable("driver.version", "12090"), "CUDA 12.9");
        assert_eq!(readable("device.0.memory", "12090"), "12090");
    }
}
