//! Cooperative launches, and kernels that need them.

use cutape_registry::{Kind, rules};

use super::{Check, Refused, attributes};
use crate::finding::Severity;
use crate::launch::{Launch, product, shape};
use crate::rules::Draft;

/// A cooperative launch on a device that has none.
pub(super) fn unsupported(refused: &Refused<'_, '_>) -> Option<Draft> {
    if !refused.launch.is_cooperative {
        return None;
    }
    let (value, source) = refused.limit("COOPERATIVE_LAUNCH")?;
    if value != 0 {
        return None;
    }
    let what = format!(
        "launches {} cooperatively, but {source} is 0: this device cannot keep all blocks of a \
         grid resident",
        refused.label()
    );
    let title = "cooperative launch on a device without it";
    Some(refused.draft(rules::LAUNCH_CONFIG_COOPERATIVE_UNSUPPORTED, title, what))
}

/// A cooperative grid whose blocks do not fit onto the device at once; the driver found that.
pub(super) fn too_large(refused: &Refused<'_, '_>) -> Draft {
    let launch = refused.launch;
    let room = refused.limit("MULTIPROCESSOR_COUNT");
    let room = room.map_or(String::new(), |(count, source)| {
        let each = product(launch.grid).div_ceil(count.max(1));
        format!(
            " There are {count} multiprocessors ({source}), so each would have to hold {each} \
             blocks at once."
        )
    });
    let what = format!(
        "launches {} cooperatively with {} = {} blocks of {} threads and {} bytes of dynamic \
         shared memory, which are not all resident at once.{room} The largest grid is the answer of \
         cuOccupancyMaxActiveBlocksPerMultiprocessor for this block and shared memory, times the \
         number of multiprocessors that the context may use",
        refused.label(),
        shape(launch.grid),
        product(launch.grid),
        launch.threads(),
        launch.shared,
    );
    let title = "cooperative grid larger than the device holds at once";
    refused.draft(rules::LAUNCH_CONFIG_COOPERATIVE_TOO_LARGE, title, what)
}

/// What the kernel's PTX says that it needs of its launch.
pub(super) fn by_use(check: &Check<'_, '_>, drafts: &mut Vec<Draft>) {
    let handle = check.plan.launched.map(|at| check.call.argument(at));
    let id = handle.and_then(|handle| check.state.objects.resolve(Kind::Function, handle).live());
    let uses = id.and_then(|id| check.state.launches.uses.get(&id));
    let matters = uses.is_some_and(|uses| uses.device_launch || uses.grid_barrier);
    if !matters || !drafts.is_empty() {
        return;
    }
    for launch in Launch::of(check.family(), check.call) {
        let launch = Refused::new(check, &launch);
        let uses = launch
            .function
            .and_then(|id| check.state.launches.uses.get(&id));
        let Some(uses) = uses else { continue };
        if uses.device_launch && launch.launch.is_cooperative {
            let what = format!(
                "launches {} cooperatively, but its PTX launches grids from the device. Kernels \
                 that use dynamic parallelism cannot be launched cooperatively",
                launch.label()
            );
            let title = "cooperative launch of a kernel that launches grids";
            let rule = rules::LAUNCH_CONFIG_COOPERATIVE_DYNAMIC_PARALLELISM;
            drafts.push(launch.draft(rule, title, what));
        } else if uses.grid_barrier && !launch.launch.is_cooperative {
            let need = "a cooperative launch: its PTX synchronises the grid";
            if let Some(draft) = attributes::unread(&launch, need) {
                drafts.push(draft);
                continue;
            }
            let what = format!(
                "launches {}, whose PTX synchronises the grid (it reads the workspace of \
                 cooperative launches, and has atomics and barriers), as an ordinary kernel. \
                 Without a cooperative launch there is no workspace. Assumed: the kernel does not \
                 first ask whether the grid is valid",
                launch.label()
            );
            let title = "kernel with a grid barrier launched without cooperation";
            let rule = rules::LAUNCH_CONFIG_COOPERATIVE_MISSING;
            drafts.push(launch.draft(rule, title, what).severity(Severity::Advice));
        }
    }
}
