//! Libraries: preserved images, kernels in the place of functions, attributes set twice, instances
//! of other contexts.

use cutape_format::{Bytes, FileRange};
use cutape_model::{Lookup, ObjectId};
use cutape_registry::{Family, FunctionOp, Kind, is_default_stream, rules};

use super::usage::lacks_context;
use super::{Check, Draft, at, created_at};
use crate::context::bytes_of;
use crate::layouts::parameters_of_eight;
use crate::plan::Step;
use crate::state::data::ImageBytes;
use crate::state::data::{Data, Own};
use crate::state::links::{BINARY_IS_PRESERVED, library_option};
use crate::state::{image_places, image_snapshot, source_bytes};

/// A launch of a library's function, or with a library's variable.
pub(super) fn launched(check: &Check<'_, '_>, drafts: &mut Vec<Draft>) {
    if drafts.is_empty() {
        drafts.extend(shadowed(check));
        drafts.extend(launch_elsewhere(check));
    }
}

/// Loads that promise, or break the promise, that an image stays in place.
pub(super) fn preserved(check: &Check<'_, '_>, drafts: &mut Vec<Draft>) {
    if check.plan.file.is_some()
        && library_option(check.plan, check.call, BINARY_IS_PRESERVED).is_some_and(|on| on != 0)
    {
        let what = "gets CU_LIBRARY_BINARY_IS_PRESERVED, which promises that the program keeps the image \
             in its memory, but it loads from a file";
        let title = "CU_LIBRARY_BINARY_IS_PRESERVED for an image in a file";
        drafts.push(check.draft(rules::LIBRARY_PRESERVED_IMAGE_FREED, title, what));
    }
    let places = image_places(check.plan, check.call);
    let snapshot = image_snapshot(check.plan, check.call);
    let bytes = snapshot.and_then(|snapshot| bytes_of(check.context, snapshot.bytes));
    let Some(now) = bytes.filter(|_| !places.is_empty() && drafts.is_empty()) else {
        return;
    };
    for &library in &check.state.preserving {
        let Some(data) = check.state.image_data(library) else {
            continue;
        };
        let mut theirs = data.places.iter();
        let same = theirs.find(|theirs| places.iter().any(|place| place.0 == theirs.0));
        if let Some(&place) = same
            && source_bytes(&data.source, check.context).is_some_and(|then| then != now)
        {
            let why = format!("{} loads other bytes from there", check.function());
            drafts.push(image_gone(check, library, place, &why));
            return;
        }
    }
}

/// A load from a file that is now mapped where the image of a live library was mapped from another.
pub(super) fn unmapped(check: &Check<'_, '_>, drafts: &mut Vec<Draft>) {
    let snapshot = image_snapshot(check.plan, check.call);
    let Some(Bytes::InFile(now)) = snapshot.map(|snapshot| snapshot.bytes) else {
        return;
    };
    let Some(&(start, length)) = image_places(check.plan, check.call).last() else {
        return;
    };
    for &library in &check.state.preserving {
        let Some(data) = check.state.image_data(library) else {
            continue;
        };
        let (Some(&(address, size)), ImageBytes::InFile(encoded)) =
            (data.places.last(), &data.source)
        else {
            continue;
        };
        let Some(then) = FileRange::decode(encoded) else {
            continue;
        };
        let overlaps =
            start < address.saturating_add(size) && address < start.saturating_add(length);
        // An image inside another one of the same mapping is no other mapping.
        let is_same = (then.path, then.modified) == (now.path, now.modified)
            && then.offset.wrapping_sub(address) == now.offset.wrapping_sub(start);
        if !overlaps || is_same {
            continue;
        }
        let message = format!(
            "{} loaded {} with CU_LIBRARY_BINARY_IS_PRESERVED from {}, mapped at {address:#x}. {} \
             loads an image from {}, which is now mapped at {start:#x}: the first file was \
             unmapped, probably with dlclose, while the library lives.",
            created_at(check.state, library),
            check.label(library),
            then.file().display(),
            check.function(),
            now.file().display(),
        );
        let title = "image of a live library unmapped";
        drafts.push(Draft::new(rules::LIBRARY_IMAGE_UNMAPPED, title, message).object(library));
        return;
    }
}

/// A call writes into the image that a live library relies on.
pub(super) fn image_overwritten(check: &Check<'_, '_>) -> Option<Draft> {
    check.state.preserving.iter().find_map(|&library| {
        let data = check.state.image_data(library)?;
        data.places.iter().find_map(|&(start, length)| {
            let range = start..start.saturating_add(length);
            let mut written = check.plan.written.iter();
            let &hit = written.find(|&&position| range.contains(&check.call.argument(position)))?;
            let name = check.parameter(hit);
            let why = format!("{} writes its `{name}` into it", check.function());
            Some(image_gone(check, library, (start, length), &why))
        })
    })
}

fn image_gone(
    check: &Check<'_, '_>,
    library: ObjectId,
    (address, length): (u64, u64),
    why: &str,
) -> Draft {
    let message = format!(
        "{} loaded {} with CU_LIBRARY_BINARY_IS_PRESERVED: its image, with {length} bytes at \
         {address:#x}, must stay until the library is unloaded. {why}, so the program has reused \
         the memory.",
        created_at(check.state, library),
        check.label(library),
    );
    let title = "preserved image overwritten";
    Draft::new(rules::LIBRARY_PRESERVED_IMAGE_FREED, title, message).object(library)
}

/// A kernel given to a call that takes only functions.
pub(super) fn kernel_as_function(check: &Check<'_, '_>) -> Option<Draft> {
    let objects = &check.state.objects;
    check.plan.steps.iter().find_map(|&(position, step)| {
        let handle = check.call.argument(position);
        if !matches!(step, Step::Use(Kind::Function))
            || objects.find(Kind::Function, handle) != Lookup::Unknown
        {
            return None;
        }
        let kernel = objects.live(Kind::Kernel, handle)?;
        let what = format!(
            "gets {} as a CUfunction. A CUkernel stands for a function in launches and \
             occupancy queries only",
            check.label(kernel),
        );
        let title = "kernel handle used as a function";
        let draft = check
            .draft(rules::LIBRARY_KERNEL_AS_FUNCTION, title, what)
            .object(kernel);
        Some(draft.chain(check.poison_chain(kernel)))
    })
}

/// The function that a launch means, and the kernel that it comes from.
fn function_and_kernel(check: &Check<'_, '_>) -> Option<(ObjectId, ObjectId)> {
    if !check.state.objects.has_had(Kind::Kernel) {
        return None;
    }
    let handle = check.call.argument(check.plan.launched?);
    let function = check.state.objects.live(Kind::Function, handle)?;
    let kernel = check.object(function)?.parent?;
    (check.kind(kernel)? == Kind::Kernel).then_some((function, kernel))
}

/// An attribute of a function hides the value that its kernel was given.
pub(super) fn shadowed(check: &Check<'_, '_>) -> Option<Draft> {
    let asks = check.family() == Family::Kernel(FunctionOp::GetAttribute);
    let asked = check.argument("attrib").filter(|_| asks);
    let pairs: Vec<_> = if asks {
        let kernel = check.live(Kind::Kernel)?;
        let functions = check.state.objects.children(kernel);
        functions.map(|function| (function, kernel)).collect()
    } else {
        function_and_kernel(check).into_iter().collect()
    };
    let attributes = |id| match check.object(id).map(|object| &object.data) {
        Some(Data::Other(Own::Attributes(attributes))) => Some(&attributes.set),
        _ => None,
    };
    for (function, kernel) in pairs {
        let (Some(of_function), Some(of_kernel)) = (attributes(function), attributes(kernel))
        else {
            continue;
        };
        for (&(attribute, _), &(value, site)) in of_function {
            if asked.is_some_and(|asked| asked as i32 != attribute) {
                continue;
            }
            let mut others = of_kernel.iter();
            let other =
                others.find(|((other, _), (theirs, _))| *other == attribute && *theirs != value);
            let Some((_, &(theirs, kernel_site))) = other else {
                continue;
            };
            let name = match attribute {
                -1 => "the cache configuration".to_owned(),
                number => check.enum_name("CUfunction_attribute", number.into(), "attribute"),
            };
            let message = format!(
                "{} set {name} of {} to {theirs}, and {} set it to {value} on {}, the kernel's \
                 function in a context. Launches use the function's value, whatever the order of \
                 the two calls, while the kernel still reports its own.",
                at(kernel_site),
                check.label(kernel),
                at(site),
                check.label(function),
            );
            let title = "attribute of a function hides that of its kernel";
            return Some(
                Draft::new(
                    rules::LIBRARY_FUNCTION_ATTRIBUTE_SHADOWS_KERNEL,
                    title,
                    message,
                )
                .object(kernel)
                .object(function)
                .subject(u64::from(attribute as u32)),
            );
        }
    }
    None
}

/// A launch of a library's function, or with the address of a library's variable, of another
/// context.
fn launch_elsewhere(check: &Check<'_, '_>) -> Option<Draft> {
    let objects = &check.state.objects;
    let stream = check.plan.stream(check.call).unwrap_or(0);
    let target = if is_default_stream(stream) {
        check.state.contexts.current(check.call.thread).object
    } else {
        let live = objects.live(Kind::Stream, stream);
        live.and_then(|id| check.object(id)?.context)
    };
    let target = target.filter(|&target| check.owns_content(target))?;
    let other = |&home: &ObjectId| home != target && check.owns_content(home);
    let home = |id| check.object(id)?.context.filter(other);
    if let Some((function, _)) = function_and_kernel(check)
        && let Some(home) = home(function)
    {
        return Some(elsewhere(check, function, home, target, "is launched"));
    }
    if !check.state.peers.is_empty() || !objects.has_had(Kind::Global) {
        return None;
    }
    let (layout, bytes) = (check.launch_layout()?, check.launch_parameters()?);
    parameters_of_eight(layout, bytes).find_map(|(_, address)| {
        let id = check.state.memory_at(address)?;
        let object = check.object(id)?;
        if object.kind != Kind::Global || check.kind(object.parent?)? != Kind::Library {
            return None;
        }
        let verb = "is passed to a kernel that runs";
        Some(elsewhere(check, id, home(id)?, target, verb).assumed())
    })
}

fn elsewhere(
    check: &Check<'_, '_>,
    id: ObjectId,
    home: ObjectId,
    target: ObjectId,
    verb: &str,
) -> Draft {
    let message = format!(
        "{} {verb} in {}, but it is the instance of another context: {} returned it while {} was \
         current. {}",
        check.label(id),
        check.label(target),
        created_at(check.state, id),
        check.label(home),
        check.answer(),
    );
    let title = "instance of a library used in another context";
    Draft::new(rules::LIBRARY_GLOBAL_WRONG_CONTEXT, title, message)
        .object(id)
        .object(home)
        .object(target)
        .chain(check.poison_chain(id))
}

/// A lookup that needs a context, in a thread that has none.
pub(super) fn without_context(check: &Check<'_, '_>) -> Option<Draft> {
    if !lacks_context(check) {
        return None;
    }
    let message = format!(
        "{} looks up the instance of the current context, but thread {} has none. {}",
        check.function(),
        check.call.thread,
        check.answer(),
    );
    let title = "lookup of a library's instance without a context";
    Some(Draft::new(
        rules::LIBRARY_GLOBAL_WRONG_CONTEXT,
        title,
        message,
    ))
}

/// A peer copy that names another context for the address of a library's variable.
pub(super) fn peer_copy(check: &Check<'_, '_>) -> Option<Draft> {
    let mut sides = [("dstDevice", "dstContext"), ("srcDevice", "srcContext")].into_iter();
    sides.find_map(|(address, context)| {
        let id = check.state.memory_at(check.argument(address)?)?;
        let target = (check.state.objects).live(Kind::Context, check.argument(context)?)?;
        let object = check.object(id)?;
        let is_own = |context| check.owns_content(context);
        let home = object
            .context
            .filter(|&home| home != target && is_own(home))?;
        if !is_own(target) {
            return None;
        }
        (object.kind == Kind::Global)
            .then(|| elsewhere(check, id, home, target, "is copied as if it were"))
    })
}
