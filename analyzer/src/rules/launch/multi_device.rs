//! `cuLaunchCooperativeKernelMultiDevice`: one kernel on several devices at once.

use cutape_model::ObjectId;
use cutape_registry::{Kind, is_default_stream, rules};

use super::{Check, Refused};
use crate::launch::{Launch, shape};
use crate::rules::{Draft, at};

/// What is wrong with the list of launches.
pub(super) fn check(check: &Check<'_, '_>, drafts: &mut Vec<Draft>) {
    if !drafts.is_empty() {
        return;
    }
    let launches = Launch::of(check.family(), check.call);
    let launches: Vec<Refused<'_, '_>> = launches
        .iter()
        .map(|launch| Refused::new(check, launch))
        .collect();
    let found = default_stream(check, &launches)
        .or_else(|| shapes(check, &launches))
        .or_else(|| devices(check, &launches))
        .or_else(|| kernels(check, &launches))
        .or_else(|| capabilities(check, &launches))
        .or_else(|| globals(check, &launches));
    drafts.extend(found);
}

fn default_stream(check: &Check<'_, '_>, launches: &[Refused<'_, '_>]) -> Option<Draft> {
    let mut streams = launches.iter().map(|launch| launch.launch.stream);
    let place = streams.position(|stream| stream.is_some_and(is_default_stream))?;
    let what = format!(
        "gets a default stream in entry {place}; each entry needs a stream that the program created"
    );
    let title = "default stream in a launch on several devices";
    Some(check.draft(
        rules::LAUNCH_CONFIG_MULTI_DEVICE_DEFAULT_STREAM,
        title,
        what,
    ))
}

fn shapes(check: &Check<'_, '_>, launches: &[Refused<'_, '_>]) -> Option<Draft> {
    let of = |launch: &Refused<'_, '_>| {
        let launch = launch.launch;
        (launch.grid, launch.block, launch.shared)
    };
    let first = of(launches.first()?);
    let place = launches.iter().position(|launch| of(launch) != first)?;
    let text = |(grid, block, shared): ([u32; 3], [u32; 3], u32)| {
        format!(
            "grid {}, block {}, {shared} bytes of shared memory",
            shape(grid),
            shape(block)
        )
    };
    let what = format!(
        "gets different shapes: entry 0 has {}, entry {place} has {}. All must be equal",
        text(first),
        text(of(launches.get(place)?)),
    );
    let title = "different shapes in a launch on several devices";
    Some(check.draft(rules::LAUNCH_CONFIG_MULTI_DEVICE_SHAPE_DIFFERS, title, what))
}

fn devices(check: &Check<'_, '_>, launches: &[Refused<'_, '_>]) -> Option<Draft> {
    let mut seen: Vec<(i32, usize)> = Vec::new();
    for (place, launch) in launches.iter().enumerate() {
        let context = check.state.stream_context(launch.launch.stream?);
        let Some(device) = context.and_then(|context| check.state.device_of(context)) else {
            continue;
        };
        if let Some((_, first)) = seen.iter().find(|(other, _)| *other == device) {
            let what = format!(
                "gets streams of device {device} in the entries {first} and {place}. Each entry \
                 needs a device of its own"
            );
            let title = "one device twice in a launch on several devices";
            let rule = rules::LAUNCH_CONFIG_MULTI_DEVICE_DUPLICATE;
            return Some(check.draft(rule, title, what));
        }
        seen.push((device, place));
    }
    None
}

fn kernels(check: &Check<'_, '_>, launches: &[Refused<'_, '_>]) -> Option<Draft> {
    let name = |launch: &Refused<'_, '_>| check.object(launch.function?)?.name.clone();
    let first = name(launches.first()?)?;
    let other = launches.iter().find_map(|launch| {
        let name = name(launch)?;
        (name != first).then_some((launch, name))
    });
    let (launch, other) = other?;
    let what = format!(
        "gets different kernels, \"{first}\" and \"{other}\". All entries must launch the same one"
    );
    let title = "different kernels in a launch on several devices";
    Some(launch.draft(
        rules::LAUNCH_CONFIG_MULTI_DEVICE_KERNEL_DIFFERS,
        title,
        what,
    ))
}

fn capabilities(check: &Check<'_, '_>, launches: &[Refused<'_, '_>]) -> Option<Draft> {
    let rule = rules::LAUNCH_CONFIG_MULTI_DEVICE_UNSUPPORTED;
    for launch in launches {
        if let Some((0, source)) = launch.limit("COOPERATIVE_MULTI_DEVICE_LAUNCH") {
            let what = format!("needs devices with that capability, but {source} is 0");
            let title = "launch on several devices that do not take it";
            return Some(launch.draft(rule, title, what));
        }
    }
    let name = |launch: &Refused<'_, '_>| {
        check
            .context
            .meta(&format!("device.{}.name", launch.device?))
    };
    let first = name(launches.first()?)?;
    let other = launches
        .iter()
        .filter_map(name)
        .find(|name| *name != first)?;
    let what = format!("gets devices of different models, {first} and {other}");
    let title = "launch on several devices of different models";
    Some(check.draft(rule, title, what))
}

/// A variable that the program has written on one device only.
fn globals(check: &Check<'_, '_>, launches: &[Refused<'_, '_>]) -> Option<Draft> {
    let state = check.state;
    let module = |launch: &Refused<'_, '_>| {
        let module = check.object(launch.function?)?.parent?;
        (check.kind(module)? == Kind::Module).then_some(module)
    };
    let modules: Vec<ObjectId> = launches.iter().filter_map(module).collect();
    let written = |module: ObjectId, name: &str| {
        state.launches.written.iter().find_map(|(&id, &site)| {
            let object = check.object(id)?;
            let is_it = object.parent == Some(module) && object.name.as_deref() == Some(name);
            is_it.then_some((id, site))
        })
    };
    for (&id, &site) in &state.launches.written {
        let Some(object) = check.object(id) else {
            continue;
        };
        let (Some(owner), Some(name)) = (object.parent, object.name.as_deref()) else {
            continue;
        };
        if !modules.contains(&owner) {
            continue;
        }
        let without = modules
            .iter()
            .find(|&&module| written(module, name).is_none());
        if let Some(&without) = without {
            let what = format!(
                "launches a kernel of several modules. {} has written the variable \"{name}\" of \
                 {}, but no call has written the one of {}. Each device has its own",
                at(site),
                check.label(owner),
                check.label(without),
            );
            let title = "variable written on one of several devices";
            let rule = rules::LAUNCH_CONFIG_MULTI_DEVICE_GLOBALS;
            return Some(check.draft(rule, title, what).object(id).object(without));
        }
    }
    None
}
