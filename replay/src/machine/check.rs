//! Does this machine fit the trace? Every reason against it is found before the first call is
//! issued.

use cutape_format::Trace;
use cutape_image::{CodeKind, runs_on};

use crate::api::Api;
use crate::error::Error;
use crate::machine::devices::{Device, Devices};
use crate::plan::needs::images;
use crate::plan::{Plan, function_of};
use crate::report::Difference;

/// `CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR` and `..._MINOR`.
const CAPABILITY: (u32, u32) = (75, 76);

/// More devices than a machine has.
const MOST_DEVICES: usize = 1024;

/// How many functions or calls one reason names.
const NAMED: usize = 5;

/// A few of many, in words.
fn some(names: &[String]) -> String {
    match names.split_at_checked(NAMED) {
        Some((shown, more)) if !more.is_empty() => {
            format!("{} and {} more", shown.join(", "), more.len())
        }
        _ => names.join(", "),
    }
}

/// `CUDA 13.0` for 13000.
fn version_text(version: i32) -> String {
    format!("CUDA {}.{}", version / 1000, version % 1000 / 10)
}

/// `580.159.04` of a path that ends with `libcuda.so.580.159.04`.
fn release(path: &str) -> Option<String> {
    let (_, release) = path.rsplit_once("libcuda.so.")?;
    release.contains('.').then(|| release.to_owned())
}

fn difference(what: &str, recorded: impl Into<String>, here: impl Into<String>) -> Difference {
    Difference {
        what: what.to_owned(),
        recorded: recorded.into(),
        here: here.into(),
        fatal: false,
        why: String::new(),
    }
}

/// As above, a reason against a replay.
pub(crate) fn reason(
    what: &str,
    recorded: impl Into<String>,
    here: impl Into<String>,
    why: &str,
) -> Difference {
    Difference {
        fatal: true,
        why: why.to_owned(),
        ..difference(what, recorded, here)
    }
}

/// Whether the trace was recorded on the other kind of driver.
pub(crate) fn is_other_kind(trace: &Trace, api: &Api) -> bool {
    let recorded = trace.meta_value("driver.kind");
    recorded.is_some_and(|kind| (kind == "null") != api.is_null_driver())
}

/// The driver versions, recorded and here, if they differ.
fn other_version(trace: &Trace, api: &Api) -> Option<(i32, i32)> {
    let recorded = trace.meta_value("driver.version")?.parse().ok()?;
    let here = api.driver_version().ok()?;
    (recorded != here).then_some((recorded, here))
}

/// The releases of the driver's library, recorded and here, if they differ.
fn other_release(trace: &Trace, api: &Api) -> Option<(String, String)> {
    let recorded = release(trace.meta_value("driver.path")?)?;
    let here = release(&api.path().to_string_lossy())?;
    (recorded != here).then_some((recorded, here))
}

/// Whether the trace was recorded with another driver.
pub(crate) fn is_other_driver(trace: &Trace, api: &Api) -> bool {
    is_other_kind(trace, api)
        || other_version(trace, api).is_some()
        || other_release(trace, api).is_some()
}

/// The differences that need no initialised driver.
pub(crate) fn of_driver(trace: &Trace, plan: &Plan, api: &Api) -> Vec<Difference> {
    let mut found = Vec::new();
    let other_kind = is_other_kind(trace, api);
    if other_kind {
        let kinds = match api.is_null_driver() {
            true => ("the real one", "the null driver"),
            false => ("the null driver", "a real one"),
        };
        let why = "their answers differ, and the null driver runs no kernels";
        found.push(reason("driver", kinds.0, kinds.1, why));
    }
    if let Some((recorded, here)) = other_version(trace, api) {
        let texts = (version_text(recorded), version_text(here));
        found.push(match here / 1000 < recorded / 1000 {
            true => reason(
                "driver version",
                texts.0,
                texts.1,
                "code and calls of a later major version are not for an earlier driver",
            ),
            false => difference("driver version", texts.0, texts.1),
        });
    }
    if let Some((recorded, here)) = other_release(trace, api) {
        found.push(difference("driver library", recorded, here));
    }
    let lacking: Vec<String> = plan
        .needs
        .functions
        .iter()
        .filter(|(name, _)| {
            cutape_registry::function(name).is_none_or(|function| !api.exports(function.id))
        })
        .map(|(name, call)| format!("{name} (first: call {call})"))
        .collect();
    if !lacking.is_empty() {
        let why = "a newer driver may have them";
        let what = "functions that the trace calls";
        found.push(reason(what, some(&lacking), "not exported", why));
    }
    for (what, missing, why) in [
        (
            "device code",
            &plan.needs.missing_images,
            "kernels of them cannot be launched; `cutape pack` brings files into the trace where they \
             are",
        ),
        (
            "data files",
            &plan.needs.missing_payloads,
            "what was copied from them is left out; `cutape pack --embed` brings them into the trace \
             where they are",
        ),
    ] {
        let calls = missing
            .iter()
            .map(|it| format!("call {} {}: {}", it.call, it.function, it.why));
        let missing: Vec<String> = calls.collect();
        if !missing.is_empty() {
            found.push(reason(what, some(&missing), "missing", why));
        }
    }
    found
}

/// The recorded devices, as the recorder described them.
pub(crate) fn recorded_devices(trace: &Trace, here: usize) -> Vec<Device> {
    let count = trace
        .meta_value("device.count")
        .and_then(|text| text.parse().ok())
        .unwrap_or(here);
    (0..count.min(MOST_DEVICES))
        .map(|ordinal| {
            let value = |name: &str| trace.meta_value(&format!("device.{ordinal}.{name}"));
            Device {
                name: value("name").map(str::to_owned),
                uuid: value("uuid").map(str::to_owned),
                capability: value("compute-capability").and_then(|text| {
                    let (major, minor) = text.split_once('.')?;
                    Some((major.parse().ok()?, minor.parse().ok()?))
                }),
                memory: value("memory").and_then(|text| text.parse().ok()),
            }
        })
        .collect()
}

/// The devices of this machine. Needs `cuInit`.
pub(crate) fn devices_here(api: &Api) -> Vec<Device> {
    let part = |number: Result<i32, _>| u16::try_from(number.ok()?).ok();
    (0..api.device_count().unwrap_or(0))
        .map(|ordinal| Device {
            name: api.device_name(ordinal).ok(),
            uuid: api.device_uuid(ordinal).ok(),
            capability: part(api.device_attribute(CAPABILITY.0, ordinal))
                .zip(part(api.device_attribute(CAPABILITY.1, ordinal))),
            memory: api.device_memory(ordinal).ok(),
        })
        .collect()
}

/// Which device replaces which recorded one. Needs `cuInit`.
///
/// # Errors
///
/// [`Error::Devices`] if `wanted` does not fit.
pub(crate) fn match_devices(
    trace: &Trace,
    plan: &Plan,
    api: &Api,
    wanted: &[(u32, u32)],
    is_alone: bool,
) -> Result<Devices, Error> {
    let used = match is_alone {
        true => &plan.needs.context_devices,
        false => &plan.needs.devices,
    };
    let here = devices_here(api);
    let recorded = recorded_devices(trace, here.len());
    Devices::matched(recorded, here, used, wanted)
}

/// The differences between the recorded devices and those of this machine. Needs `cuInit`. A rank
/// that is replayed alone needs no devices of others, to which it only gave access.
pub(crate) fn of_devices(
    trace: &Trace,
    plan: &Plan,
    devices: &Devices,
    is_alone: bool,
) -> Vec<Difference> {
    let mut found = Vec::new();
    let (recorded, here) = devices.counts();
    if recorded != here {
        let texts = (recorded.to_string(), here.to_string());
        found.push(difference("number of devices", texts.0, texts.1));
    }
    for ordinal in (0..recorded).filter_map(|ordinal| i32::try_from(ordinal).ok()) {
        let used = plan.needs.devices.contains(&ordinal);
        let what = format!("device {ordinal}");
        let Some((there, here)) = devices.pair(ordinal) else {
            if used {
                let there = devices.recorded(ordinal).map(Device::describe);
                let why = "the trace uses it";
                let there = there.unwrap_or_default();
                let none = "no device is left for it";
                found.push(
                    match is_alone && !plan.needs.context_devices.contains(&ordinal) {
                        true => difference(&what, there, none),
                        false => reason(&what, there, none, why),
                    },
                );
            }
            continue;
        };
        let known = there.name.is_some() && there.capability.is_some();
        if known && (&there.name, there.capability) != (&here.name, here.capability) {
            found.push(difference(&what, there.describe(), here.describe()));
        }
        if let (Some(needed), Some(total)) = (plan.needs.device_bytes.get(&ordinal), here.memory)
            && *needed > total
        {
            found.push(too_little_memory(ordinal, *needed, total, "in all"));
        }
    }
    if devices.any(|there, here| there.capability.is_some() && there.capability != here.capability)
    {
        found.extend(code_for_others(trace, plan, devices));
    }
    found
}

/// Devices that cannot access each other's memory here, where the program enabled that.
pub(crate) fn of_peers(plan: &Plan, devices: &Devices, api: &Api) -> Vec<Difference> {
    let mut found = Vec::new();
    for access in &plan.needs.peer_access {
        let here = |recorded| {
            devices.pair(recorded)?;
            devices.ordinal(recorded)
        };
        let (Some(device), Some(peer)) = (here(access.device), here(access.peer)) else {
            continue;
        };
        if api.can_access_peer(device, peer) != Ok(false) {
            continue;
        }
        let recorded = format!(
            "device {} accesses the memory of device {} from call {} on",
            access.device, access.peer, access.call
        );
        let here = format!("device {device} cannot access that of device {peer}");
        let why = "cuDeviceCanAccessPeer says so; choose devices that can with --devices";
        found.push(reason("peer access", recorded, here, why));
    }
    found
}

pub(crate) fn too_little_memory(ordinal: i32, needed: u64, there: u64, how: &str) -> Difference {
    let mebibytes = |bytes: u64| format!("{} MiB", bytes.div_ceil(1 << 20));
    let what = format!("memory of device {ordinal}");
    let recorded = format!("{} in use at one time", mebibytes(needed));
    let here = format!("{} {how}", mebibytes(there));
    reason(&what, recorded, here, "the trace's allocations would fail")
}

/// The images that ran on the recorded device and do not on the one that is here.
fn code_for_others(trace: &Trace, plan: &Plan, devices: &Devices) -> Option<Difference> {
    let mut uses = plan.needs.images.iter().peekable();
    let mut lacking = Vec::new();
    let mut here = Vec::new();
    for call in trace.calls() {
        let Some(function) = uses
            .peek()
            .filter(|image| image.call == call.index)
            .and_then(|_| function_of(&call))
        else {
            continue;
        };
        while let Some(image) = uses.next_if(|image| image.call == call.index) {
            // A library belongs to no device: it is enough that one that is used takes it.
            let candidates: Vec<i32> = match image.device {
                Some(device) => vec![device],
                None => plan.needs.devices.iter().copied().collect(),
            };
            let pairs: Vec<_> = candidates
                .iter()
                .filter_map(|&device| {
                    let (there, here) = devices.pair(device)?;
                    Some((there.capability?, here.capability?))
                })
                .collect();
            for snapshot in images(&call, function) {
                let Some(targets) = trace
                    .resolve(snapshot.bytes)
                    .ok()
                    .and_then(|bytes| cutape_image::parse(&bytes).ok())
                else {
                    continue;
                };
                let runs = |device: (u16, u16)| {
                    targets.entries.iter().any(|entry| {
                        let is_code = matches!(entry.code, CodeKind::Elf | CodeKind::Ptx);
                        let fits = |target| runs_on(target, entry.code, device);
                        is_code && entry.target.is_some_and(fits)
                    })
                };
                let ran = pairs.iter().any(|&(there, _)| runs(there));
                if !ran || pairs.iter().any(|&(_, here)| runs(here)) {
                    continue;
                }
                let mut names: Vec<String> = targets
                    .entries
                    .iter()
                    .filter_map(|entry| entry.target.map(|target| target.to_string()))
                    .collect();
                names.dedup();
                lacking.push(format!(
                    "call {} {} has {}",
                    call.index,
                    function.name,
                    some(&names)
                ));
                here.extend(
                    pairs
                        .iter()
                        .map(|&(_, (major, minor))| format!("{major}.{minor}")),
                );
            }
        }
    }
    here.sort();
    here.dedup();
    (!lacking.is_empty()).then(|| {
        reason(
            "device code",
            some(&lacking),
            format!("compute capability {}", some(&here)),
            "machine code runs on one family of devices, and there is no PTX to compile",
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_few_of_many_are_named() {
        let names: Vec<String> = (0..7).map(|number| number.to_string()).collect();
        assert_eq!(some(&names), "0, 1, 2, 3, 4 and 2 more");
        assert_eq!(some(&names[..2]), "0, 1");
        assert_eq!(some(&[]), "");
        assert_eq!(version_text(12_090), "CUDA 12.9");
        assert_eq!(
            release("/usr/lib/libcuda.so.580.159.04").as_deref(),
            Some("580.159.04")
        );
        assert_eq!(release("/usr/lib/libcuda.so.1"), None);
    }
}
