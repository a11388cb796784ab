//! Handles of objects that have ended: the rules of use after unload, use after destroy, and double
//! destruction.

use cutape_format::layout::field;
use cutape_model::{Lookup, ObjectId, Origin};
use cutape_registry::{ContextOp, Family, Kind, LaunchOp, is_default_stream, rules};

use super::context::blame_reset;
use super::{Check, Draft, at, code};
use crate::finding::Severity;
use crate::plan::Step;

/// Looks at every handle that the call gets.
pub(super) fn handles(check: &Check<'_, '_>, drafts: &mut Vec<Draft>) {
    for &(position, step) in &check.plan.steps {
        let argument = || check.call.argument(position);
        match step {
            Step::Use(kind) | Step::Destroy(kind) if !may_have_ended(check, kind) => {}
            Step::Use(kind) => used(check, drafts, (kind, argument()), position, false),
            Step::Destroy(kind) => used(check, drafts, (kind, argument()), position, true),
            Step::UseMany(kind) => {
                let snapshot = check.call.snapshot(position, field::POINTEE);
                let bytes = snapshot.and_then(|snapshot| snapshot.bytes.inline());
                for word in bytes.unwrap_or_default().as_chunks::<8>().0 {
                    let handle = u64::from_le_bytes(*word);
                    used(check, drafts, (kind, handle), position, false);
                }
            }
            Step::Name => drafts.extend(name(check, position)),
            Step::Device(_) => {}
        }
    }
    if let Family::Launch(LaunchOp::Config(launch)) = check.family()
        && let Some(stream) = check.plan.config_stream(check.call)
    {
        let position = usize::from(launch.config);
        used(check, drafts, (Kind::Stream, stream), position, false);
    }
}

/// False if no object that a handle of that kind may mean can have ended.
#[inline]
fn may_have_ended(check: &Check<'_, '_>, kind: Kind) -> bool {
    let objects = &check.state.objects;
    // A kernel may stand for a function.
    objects.has_ended(kind) || (kind == Kind::Function && objects.has_ended(Kind::Kernel))
}

fn used(
    check: &Check<'_, '_>,
    drafts: &mut Vec<Draft>,
    (kind, handle): (Kind, u64),
    position: usize,
    destroys: bool,
) {
    // Zero is "none" or "the default"; the small stream handles are the default streams.
    if handle == 0 || (kind == Kind::Stream && is_default_stream(handle)) {
        return;
    }
    let Lookup::Ended(id) = check.state.objects.resolve(kind, handle) else {
        return;
    };
    // Popping or replacing a destroyed context is correct, only making it current is wrong.
    if check.family() == Family::Context(ContextOp::Pop) {
        return;
    }
    // The address is that of a graph's memory now, which is no object.
    if kind == Kind::Memory && check.state.memory.is_of_graph(handle) {
        return;
    }
    let is_uncertain =
        || check.state.objects.may_be_reused(id) || check.only_released(id) || is_shared(check, id);
    if !check.went_wrong() && is_uncertain() {
        return;
    }
    if let Some(rule) = rule_for(check, id, destroys) {
        drafts.extend(ended_object(check, rule, id, position, destroys));
    }
}

/// True for what may live on although the program has ended it: an allocation of which it has other
/// references, and what belongs to a green context.
fn is_shared(check: &Check<'_, '_>, id: ObjectId) -> bool {
    let root = check.state.objects.root_of_end(id);
    let root = root.and_then(|root| check.kind(root));
    matches!(root, Some(Kind::Allocation | Kind::GreenContext))
}

/// The rule against the use of an ended object, by what was destroyed.
fn rule_for(check: &Check<'_, '_>, id: ObjectId, destroys: bool) -> Option<&'static str> {
    let root = check.kind(check.state.objects.root_of_end(id)?)?;
    Some(match (root, check.kind(id)?) {
        (Kind::Context, Kind::Context) => rules::CONTEXT_USE_AFTER_DESTROY,
        (Kind::Context, Kind::Link) => rules::LINK_USE_AFTER_DESTROY,
        (Kind::Context, _) => rules::CONTEXT_RESOURCE_AFTER_DESTROY,
        (Kind::Library, _) => rules::LIBRARY_USE_AFTER_UNLOAD,
        (Kind::Module, Kind::Module) if destroys => rules::MODULE_DOUBLE_UNLOAD,
        (Kind::Module, Kind::Function) => rules::MODULE_FUNCTION_AFTER_UNLOAD,
        (Kind::Module, _) => rules::MODULE_USE_AFTER_UNLOAD,
        (Kind::Link, _) => rules::LINK_USE_AFTER_DESTROY,
        (Kind::Graph | Kind::GraphNode | Kind::GraphExec, _) => rules::GRAPH_USE_AFTER_DESTROY,
        (Kind::Stream, _) => rules::STREAM_USE_AFTER_DESTROY,
        (Kind::GreenContext, Kind::GreenContext | Kind::Context | Kind::Stream) => {
            rules::CONTEXT_GREEN_MISUSE
        }
        (Kind::MemoryPool, Kind::MemoryPool) => rules::MEMORY_POOL_MISUSE,
        (Kind::Allocation, Kind::Allocation) => rules::MEMORY_VMM_MAP_ORDER,
        (Kind::Event, _) => rules::EVENT_USE_AFTER_DESTROY,
        (Kind::Memory | Kind::HostMemory, _) if destroys => rules::MEMORY_DOUBLE_FREE,
        _ => return None,
    })
}

fn ended_object(
    check: &Check<'_, '_>,
    rule: &'static str,
    id: ObjectId,
    position: usize,
    destroys: bool,
) -> Option<Draft> {
    let (object, end) = (check.object(id)?, check.state.objects.end_of(id)?);
    let kind = object.kind.name();
    let root = end.by.unwrap_or(id);
    let title = match end.by {
        None if !destroys => format!("{kind} used after {}", end.site.function),
        None => {
            let verb = match object.kind {
                Kind::Memory | Kind::HostMemory => "freed",
                Kind::Module | Kind::Library => "unloaded",
                _ => "destroyed",
            };
            format!("{kind} {verb} twice")
        }
        Some(root) => {
            let root = check.kind(root).map_or("", Kind::name);
            format!("{kind} used after the end of its {root}")
        }
    };
    let ended = match end.by {
        None => format!("{} ended it", at(end.site)),
        Some(root) => format!(
            "{} ended {} with all that belongs to it",
            at(end.site),
            check.label(root)
        ),
    };
    let verb = match object.origin {
        Origin::Created => "created",
        Origin::Found | Origin::FirstSeen => "returned",
    };
    let message = format!(
        "{} gets {} as `{}`. {} {verb} it, {ended}, and no call has returned that handle again. \
         {}",
        check.function(),
        check.label(id),
        check.parameter(position),
        at(object.created),
        check.answer(),
    );
    let mut draft = Draft::new(rule, title, message).object(id);
    if root != id {
        draft = draft.object(root);
    }
    let draft = draft.chain(check.poison_chain(id));
    Some(blame_reset(check, end.site, draft))
}

/// The thread's current context was destroyed, by this thread or another, and is still current.
pub(super) fn current_context(check: &Check<'_, '_>) -> Option<Draft> {
    // Any other result means that the context lives: a primary context is created again on its own.
    if !matches!(
        check.call.result(),
        None | Some(code::INVALID_CONTEXT | code::CONTEXT_IS_DESTROYED)
    ) {
        return None;
    }
    let id = check.state.contexts.current(check.call.thread).object?;
    let end = check.state.objects.end_of(id).map(|end| end.site);
    let end = end.or_else(|| check.state.contexts.reset_of(id))?;
    let what = format!(
        "works on the thread's current context, {}, which {} ended. A destroyed context stays \
         on the stacks of the threads in which it is current",
        check.label(id),
        at(end),
    );
    let title = "the current context is destroyed";
    let draft = check
        .draft(rules::CONTEXT_USE_AFTER_DESTROY, title, what)
        .object(id);
    let draft = draft.chain(check.poison_chain(id));
    Some(blame_reset(check, end, draft))
}

/// A string of the driver's whose owner has ended is passed back to the driver.
fn name(check: &Check<'_, '_>, position: usize) -> Option<Draft> {
    let address = check.call.argument(position);
    let known = check.state.names.get(&address)?;
    let objects = &check.state.objects;
    let end = objects.end_of(known.owner)?;
    let snapshot = check.call.snapshot(position, field::POINTEE);
    let readable = snapshot.is_some_and(|snapshot| snapshot.bytes.inline().is_some());
    let text = check.call.string(position);
    let same = text.as_deref() == Some(known.text.as_str());
    // Other text may be the program's own string, which now lies at that address. But no program
    // passes what cannot be a name: that is what is left of a freed one (seen on driver 580.159.04:
    // empty, or a few odd bytes).
    let is_name = |text: &str| !text.is_empty() && text.chars().all(|c| c.is_ascii_graphic());
    let overwritten = !text.as_deref().is_some_and(is_name) && check.went_wrong();
    if readable && !same && !overwritten {
        return None;
    }
    let label = check.label(known.owner);
    let root = objects.root_of_end(known.owner).unwrap_or(known.owner);
    let message = format!(
        "{} gets the string at {address:#x}. {} returned that pointer: it is the name \"{}\" of \
         {label}, in memory of the driver that lives as long as that object. {} ended {}, so the \
         pointer dangles. {} {}",
        check.function(),
        at(known.site),
        known.text,
        at(end.site),
        check.label(root),
        if same {
            "The text was still there, unless the program has copied it to that address since."
        } else if readable {
            "The memory had been freed and overwritten."
        } else {
            "The memory was no longer readable."
        },
        check.answer(),
    );
    let title = "name of a function used after the end of its module";
    let draft = Draft::new(rules::MODULE_FUNCTION_NAME_AFTER_UNLOAD, title, message);
    // The heap may have given the freed block to the program's own copy of the text.
    let draft = match same {
        true => draft.severity(Severity::Advice),
        false => draft,
    };
    Some(draft.object(known.owner).object(root).chain(vec![
        label,
        format!("its name at {address:#x} ({})", at(known.site)),
        format!("{} ended by {}", check.label(root), at(end.site)),
        format!("the name passed to {}", at(check.site)),
    ]))
}
