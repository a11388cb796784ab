//! Libraries: preserved images, kernels in the place of functions, attributes set twice, instances of other contexts.

use cutape_format::layout::field;
use cutape_registry::{CopyOp, Family, FunctionOp, GlobalOwner, Kind, LaunchOp};

use super::{Check, Draft, at, code};
use crate::context::bytes_of;
use crate::plan::Step;
use crate::state::data::{Data, Own};
use crate::state::image_snapshot;
use crate::state::links::{BINARY_IS_PRESERVED, library_option};
use crate::state::source_bytes;
use cutape_model::{Lookup, ObjectId};

/// Rules about libraries beyond lifetimes and images.
#[inline]
pub(super) fn check(check: &Check<'_, '_>, drafts: &mut Vec<Draft>) {
    if !drafts.is_empty() {
        return;
    }
    if check.plan.takes_functions_only {
        kernel_as_function(check, drafts);
    }
    match check.plan.function.family {
        Family::Launch(LaunchOp::Arguments(_) | LaunchOp::Config(_)) => {
            let objects = &check.state.objects;
            if objects.has_had(Kind::Kernel) || objects.has_had(Kind::Library) {
                shadowed(check, drafts);
                launch_elsewhere(check, drafts);
            }
        }
        Family::Kernel(FunctionOp::GetAttribute) => shadowed(check, drafts),
        Family::LibraryModule
        | Family::Global(GlobalOwner::Library)
        | Family::Function(FunctionOp::OfKernel { .. }) => without_context(check, drafts),
        Family::Copy(CopyOp::Peer(_)) => peer_copy(check, drafts),
        _ => {}
    }
}

/// Loads that promise, or break the promise, that an image stays where it is.
pub(super) fn preserved(check: &Check<'_, '_>, drafts: &mut Vec<Draft>) {
    if matches!(check.plan.function.family, Family::LibraryLoad(_))
        && check.plan.file.is_some()
        && library_option(check.plan, check.call, BINARY_IS_PRESERVED)
            .is_some_and(|value| value != 0)
    {
        let message = format!(
            "{} is given CU_LIBRARY_BINARY_IS_PRESERVED, which promises that the program keeps the image in its memory, but it \
             loads from a file. {}",
            check.plan.function.name,
            check.answer(),
        );
        drafts.push(Draft::new(
            "library-preserved-image-freed",
            "a promise to preserve an image that is a file",
            message,
        ));
    }
    let Some(position) = check.plan.image else {
        return;
    };
    let address = check.call.argument(position);
    let Some(snapshot) = image_snapshot(check.plan, check.call) else {
        return;
    };
    let Some(now) = bytes_of(check.context, snapshot.bytes) else {
        return;
    };
    for &library in &check.state.preserving {
        let Some(data) = check.state.image_data(library) else {
            continue;
        };
        if address != data.address || address == 0 {
            continue;
        }
        let Some(then) = source_bytes(&data.source, check.context) else {
            continue;
        };
        if then != now {
            let why = format!("{} loads other bytes from there", check.plan.function.name);
            drafts.push(image_gone(check, library, &why));
            return;
        }
    }
}

/// A call writes into the image that a live library was promised.
pub(super) fn image_overwritten(check: &Check<'_, '_>, drafts: &mut Vec<Draft>) {
    for &library in &check.state.preserving {
        let Some(data) = check.state.image_data(library) else {
            continue;
        };
        let range = data.address..data.address.saturating_add(data.length);
        let hit = check
            .plan
            .written
            .iter()
            .copied()
            .find(|&position| range.contains(&check.call.argument(position)));
        if let Some(position) = hit
            && data.address != 0
        {
            let name = check.plan.function.params[position].name;
            let why = format!("{} writes its `{name}` into it", check.plan.function.name);
            drafts.push(image_gone(check, library, &why));
            return;
        }
    }
}

fn image_gone(check: &Check<'_, '_>, library: ObjectId, why: &str) -> Draft {
    let (label, data) = (check.state.label(library), check.state.image_data(library));
    let (address, length) = data.map_or((0, 0), |data| (data.address, data.length));
    let made = check
        .state
        .objects
        .get(library)
        .map(|object| at(object.created))
        .unwrap_or_default();
    let message = format!(
        "{made} loaded {label} with CU_LIBRARY_BINARY_IS_PRESERVED: its image, {length} bytes at {address:#x}, has to stay \
         until the library is unloaded. {why}, so the memory serves something else."
    );
    Draft::new(
        "library-preserved-image-freed",
        "a preserved image did not stay",
        message,
    )
    .object(library)
}

fn kernel_as_function(check: &Check<'_, '_>, drafts: &mut Vec<Draft>) {
    if !check.state.objects.has_had(Kind::Kernel) {
        return;
    }
    for &(position, step) in &check.plan.steps {
        if !matches!(step, Step::Use(Kind::Function)) {
            continue;
        }
        let handle = check.call.argument(position);
        if check.state.objects.find(Kind::Function, handle) != Lookup::Unknown {
            continue;
        }
        let Some(kernel) = check.state.objects.live(Kind::Kernel, handle) else {
            continue;
        };
        let message = format!(
            "{} is given {} as a CUfunction. A CUkernel stands in for a function in launches and occupancy queries only. {}",
            check.plan.function.name,
            check.state.label(kernel),
            check.answer(),
        );
        drafts.push(
            Draft::new(
                "library-kernel-as-function",
                "a kernel handle is used as a function",
                message,
            )
            .object(kernel)
            .chain(check.poison_chain(kernel)),
        );
        return;
    }
}

/// The function that a launch means, and the kernel that it comes from.
fn function_and_kernel(check: &Check<'_, '_>) -> Option<(ObjectId, ObjectId)> {
    if !check.state.objects.has_had(Kind::Kernel) {
        return None;
    }
    let handle = check.call.argument(check.plan.launched?);
    let function = check.state.objects.live(Kind::Function, handle)?;
    let kernel = check.state.objects.get(function)?.parent?;
    (check.state.objects.get(kernel)?.kind == Kind::Kernel).then_some((function, kernel))
}

fn shadowed(check: &Check<'_, '_>, drafts: &mut Vec<Draft>) {
    let asks = check.plan.function.family == Family::Kernel(FunctionOp::GetAttribute);
    let pairs: Vec<(ObjectId, ObjectId)> = if asks {
        let handle = check.plan.handle_of(check.call, Kind::Kernel);
        let kernel = handle.and_then(|handle| check.state.objects.live(Kind::Kernel, handle));
        let Some(kernel) = kernel else { return };
        let functions = check.state.objects.children(kernel);
        functions.map(|function| (function, kernel)).collect()
    } else {
        function_and_kernel(check).into_iter().collect()
    };
    let asked = check.argument("attrib").filter(|_| asks);
    let asked = asked.map(|attribute| attribute as i32);
    for (function, kernel) in pairs {
        let objects = &check.state.objects;
        let (Some(f), Some(k)) = (objects.get(function), objects.get(kernel)) else {
            continue;
        };
        let (Data::Other(Own::Attributes(of_function)), Data::Other(Own::Attributes(of_kernel))) =
            (&f.data, &k.data)
        else {
            continue;
        };
        for (&(attribute, _), &(value, site)) in &of_function.set {
            if asked.is_some_and(|asked| asked != attribute) {
                continue;
            }
            let other = of_kernel
                .set
                .iter()
                .find(|((other, _), (theirs, _))| *other == attribute && *theirs != value);
            let Some((_, &(theirs, kernel_site))) = other else {
                continue;
            };
            let table = check
                .context
                .signatures()
                .enumeration("CUfunction_attribute");
            let name = match attribute {
                -1 => "the cache configuration".to_owned(),
                number => table
                    .and_then(|table| table.name_of(i64::from(number)))
                    .map_or_else(|| format!("attribute {number}"), str::to_owned),
            };
            let message = format!(
                "{} set {name} of {} to {theirs}, and {} set it to {value} on {}, the kernel's function in a context. The \
                 function's value counts at every launch of it, whatever the order, while the kernel keeps reporting its own.",
                at(kernel_site),
                check.state.label(kernel),
                at(site),
                check.state.label(function),
            );
            drafts.push(
                Draft::new(
                    "library-function-attribute-shadows-kernel",
                    "a function's attribute hides the kernel's",
                    message,
                )
                .object(kernel)
                .object(function)
                .subject(u64::from(attribute as u32)),
            );
            return;
        }
    }
}

/// A launch of a library's function, or with the address of a library's variable, of another context.
fn launch_elsewhere(check: &Check<'_, '_>, drafts: &mut Vec<Draft>) {
    let objects = &check.state.objects;
    let stream = match check.plan.function.stream {
        Some(position) => check.call.argument(usize::from(position)),
        None => check.plan.config_stream(check.call).unwrap_or(0),
    };
    let target = match objects.find(Kind::Stream, stream) {
        Lookup::Live(id) if stream > cutape_model::STREAM_PER_THREAD => {
            objects.get(id).and_then(|object| object.context)
        }
        _ if stream <= cutape_model::STREAM_PER_THREAD => {
            check.state.contexts.current(check.call.thread).object
        }
        _ => None,
    };
    let Some(target) = target else { return };
    if let Some((function, _)) = function_and_kernel(check)
        && let Some(home) = objects.get(function).and_then(|object| object.context)
        && home != target
    {
        drafts.push(elsewhere(check, function, home, target, "is launched"));
        return;
    }
    if check.state.peers || !objects.has_had(Kind::Global) {
        return;
    }
    let Some(position) = check.plan.launched else {
        return;
    };
    let Some(layout) = check.state.layout(check.call.argument(position)) else {
        return;
    };
    let snapshot = check
        .plan
        .launch_parameters
        .into_iter()
        .flatten()
        .find_map(|position| check.call.snapshot(position, field::KERNEL_PARAMETERS));
    let Some(bytes) = snapshot.and_then(|snapshot| snapshot.bytes.inline()) else {
        return;
    };
    for &(offset, size) in layout {
        let word = bytes
            .get(offset as usize..)
            .and_then(|rest| rest.first_chunk::<8>());
        let (8, Some(word)) = (size, word) else {
            continue;
        };
        let Some(id) = check.state.memory_at(u64::from_le_bytes(*word)) else {
            continue;
        };
        let Some(object) = objects.get(id) else {
            continue;
        };
        let library = object
            .parent
            .and_then(|parent| objects.get(parent))
            .is_some_and(|parent| parent.kind == Kind::Library);
        if object.kind == Kind::Global
            && library
            && let Some(home) = object.context
            && home != target
        {
            drafts.push(elsewhere(
                check,
                id,
                home,
                target,
                "is passed to a kernel that runs",
            ));
            return;
        }
    }
}

fn elsewhere(
    check: &Check<'_, '_>,
    id: ObjectId,
    home: ObjectId,
    target: ObjectId,
    verb: &str,
) -> Draft {
    let made = check
        .state
        .objects
        .get(id)
        .map(|object| at(object.created))
        .unwrap_or_default();
    let message = format!(
        "{} {verb} in {}, but {made} handed it out while {} was current, and it is that context's instance. {}",
        check.state.label(id),
        check.state.label(target),
        check.state.label(home),
        check.answer(),
    );
    Draft::new(
        "library-global-wrong-context",
        "a library's instance of another context is used",
        message,
    )
    .object(id)
    .object(home)
    .object(target)
    .chain(check.poison_chain(id))
}

/// A question that needs a context, in a thread that has none.
fn without_context(check: &Check<'_, '_>, drafts: &mut Vec<Draft>) {
    if check.call.result() != Some(code::INVALID_CONTEXT)
        || check.state.contexts.current(check.call.thread).handle != 0
    {
        return;
    }
    let message = format!(
        "{} answers for the current context, and thread {} has none. {}",
        check.plan.function.name,
        check.call.thread,
        check.answer(),
    );
    drafts.push(Draft::new(
        "library-global-wrong-context",
        "a library's instance is asked for without a context",
        message,
    ));
}

/// A peer copy that names another context for the address of a library's variable.
fn peer_copy(check: &Check<'_, '_>, drafts: &mut Vec<Draft>) {
    for (address, context) in [("dstDevice", "dstContext"), ("srcDevice", "srcContext")] {
        let (Some(address), Some(context)) = (check.argument(address), check.argument(context))
        else {
            continue;
        };
        let objects = &check.state.objects;
        let Some(id) = check.state.memory_at(address) else {
            continue;
        };
        let (Some(object), Some(target)) = (objects.get(id), objects.live(Kind::Context, context))
        else {
            continue;
        };
        if object.kind == Kind::Global
            && let Some(home) = object.context
            && home != target
        {
            drafts.push(elsewhere(check, id, home, target, "is copied as if it lay"));
            return;
        }
    }
}
