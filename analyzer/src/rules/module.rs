//! Modules: who may unload them and when, enumeration.

use cutape_model::{ObjectId, Origin};
use cutape_registry::{Family, FunctionOp, Kind, rules};

use super::{Check, Draft, at, code};
use crate::finding::Severity;

/// Whether the module may be unloaded by this call.
pub(super) fn unload(check: &Check<'_, '_>, drafts: &mut Vec<Draft>) {
    let live = check.live(Kind::Module).filter(|_| drafts.is_empty());
    let Some((id, object)) = live.and_then(|id| Some((id, check.object(id)?))) else {
        return;
    };
    let label = check.label(id);
    let created = at(object.created);
    let parent = object.parent;
    if let Some(library) = parent.filter(|&id| check.kind(id) == Some(Kind::Library)) {
        let message = format!(
            "cuModuleUnload gets {label}, which {created} returned. It is the instance of {} in a \
             context and belongs to that library: only cuLibraryUnload may end it. {}",
            check.label(library),
            check.answer(),
        );
        let title = "module of a library unloaded";
        drafts.push(
            Draft::new(rules::MODULE_UNLOAD_LIBRARY_OWNED, title, message)
                .object(id)
                .object(library)
                .chain(check.poison_chain(id)),
        );
        return;
    }
    if object.origin == Origin::FirstSeen {
        if check.state.current_is_primary(check.call.thread) {
            let message = format!(
                "cuModuleUnload gets {label}, which no load in this trace returned: the program \
                 has it from {created}, in a device's primary context, where the CUDA runtime \
                 keeps its modules. Its owner may still use it. {}",
                check.answer(),
            );
            let title = "module unloaded by code that does not own it";
            drafts.push(
                Draft::new(rules::MODULE_UNLOAD_RUNTIME_OWNED, title, message)
                    .object(id)
                    .chain(check.poison_chain(id)),
            );
        }
        return;
    }
    drafts.extend(wrong_context(check, id));
    drafts.extend(pending(check, id));
}

/// Whether work of its kernels may still run when a library is unloaded.
pub(super) fn unload_library(check: &Check<'_, '_>, drafts: &mut Vec<Draft>) {
    let live = check.live(Kind::Library).filter(|_| drafts.is_empty());
    drafts.extend(live.and_then(|id| pending(check, id)));
}

/// An unload of NULL that does not come from a load which failed.
pub(super) fn null_unloaded(check: &Check<'_, '_>) -> Option<Draft> {
    let is_null = check.argument("hmod") == Some(0)
        && check.call.result() == Some(code::INVALID_HANDLE)
        && check.state.undefined_use(check.plan, check.call).is_none();
    if !is_null {
        return None;
    }
    let what = "gets NULL, which no load has returned";
    let draft = check.draft(
        rules::MODULE_DOUBLE_UNLOAD,
        "NULL unloaded as a module",
        what,
    );
    Some(draft.severity(Severity::Warning))
}

fn wrong_context(check: &Check<'_, '_>, id: ObjectId) -> Option<Draft> {
    let home = check.object(id)?.context?;
    let current = check.state.contexts.current(check.call.thread);
    let is_own = |context| check.owns_content(context);
    if current.object == Some(home)
        || (current.object.is_none() && current.handle != 0)
        || !is_own(home)
        || !current.object.is_none_or(is_own)
    {
        return None;
    }
    let context = current.object.map(|context| check.label(context));
    let message = format!(
        "cuModuleUnload gets {}, which was loaded into {}, while {} is current in thread {}. A \
         module must be unloaded from its own context. {}",
        check.label(id),
        check.label(home),
        context.as_deref().unwrap_or("no context"),
        check.call.thread,
        check.answer(),
    );
    let title = "module unloaded while another context is current";
    let draft = Draft::new(rules::MODULE_UNLOAD_WRONG_CONTEXT, title, message)
        .object(id)
        .object(home);
    Some(current.object.into_iter().fold(draft, Draft::object))
}

fn pending(check: &Check<'_, '_>, id: ObjectId) -> Option<Draft> {
    if check.call.result().is_some_and(|result| result != 0) {
        return None;
    }
    let order = &check.state.order;
    let mut pending = check.state.image_data(id)?.pending.iter();
    let &(_, site) = pending.find(|((stream, number), _)| !order.is_done(*stream, *number))?;
    let label = check.label(id);
    let (title, promise) = match check.kind(id) {
        Some(Kind::Library) => (
            "library unloaded while its work may still run",
            "The manual does not promise that the unload waits for it.",
        ),
        _ => (
            "module unloaded while its work may still run",
            "The drivers that were measured wait for it in the unload, which the manual does not \
             promise and which costs time.",
        ),
    };
    let message = format!(
        "{} gets {label} while work that needs it, {}, may still run: no call since then waited \
         for that work or found it complete (a synchronize or query of its stream, of a later \
         event, or of the context). {promise}",
        check.function(),
        at(site),
    );
    Some(
        Draft::new(rules::MODULE_UNLOAD_WORK_PENDING, title, message)
            .object(id)
            .subject(site.caller)
            .chain(vec![
                label,
                format!("work enqueued by {}", at(site)),
                format!("unloaded by {} without a wait", at(check.site)),
            ]),
    )
}

/// A lookup of a variable that can return nothing.
pub(super) fn both_null(check: &Check<'_, '_>, drafts: &mut Vec<Draft>) {
    if check.argument("dptr") != Some(0) || check.argument("bytes") != Some(0) {
        return;
    }
    let message = format!(
        "{} gets NULL for `dptr` and for `bytes`, so it has nothing to return. One of them may be \
         NULL, not both. {}",
        check.function(),
        check.answer_or(""),
    );
    let title = "lookup of a variable without an output";
    drafts.push(Draft::new(
        rules::MODULE_GLOBAL_OUTPUTS_BOTH_NULL,
        title,
        message,
    ));
}

/// An array that is too short for the functions of a module or library.
pub(super) fn enumerate(check: &Check<'_, '_>, drafts: &mut Vec<Draft>) {
    drafts.extend(truncated(check));
}

fn truncated(check: &Check<'_, '_>) -> Option<Draft> {
    let (Family::Function(FunctionOp::List { output, count, .. })
    | Family::Kernel(FunctionOp::List { output, count, .. })) = check.family()
    else {
        return None;
    };
    let capacity = check.call.argument(usize::from(count)) as usize;
    if check.call.argument(usize::from(output)) == 0 || capacity == 0 {
        return None;
    }
    let owner = check.state.image_owner(check.plan, check.call)?;
    let counted = check.state.image_data(owner).and_then(|data| data.count);
    let (count, source) = match counted {
        Some((count, site)) => (count as usize, format!("{} returned that number", at(site))),
        None => {
            let image = check.state.parsed(owner, check.context)?;
            // The trace does not say which of several entries the driver chose.
            let [entry] = image.entries.as_slice() else {
                return None;
            };
            let content = entry.content.as_ref().ok()?;
            let entries = content.functions.iter().filter(|f| f.is_entry);
            (entries.count(), "its image lists them".to_owned())
        }
    };
    if capacity >= count {
        return None;
    }
    let message = format!(
        "{} has room for {capacity} handles, but {} has {count} functions ({source}). The driver \
         omits the other {} without an error.",
        check.function(),
        check.label(owner),
        count - capacity,
    );
    let title = "incomplete enumeration of functions";
    Some(Draft::new(rules::MODULE_ENUMERATE_TRUNCATED, title, message).object(owner))
}
