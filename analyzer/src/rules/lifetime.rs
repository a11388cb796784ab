//! Handles of objects that have ended: the generic rule behind "use after unload", "use after destroy" and double ends.

use cutape_format::layout::field;
use cutape_registry::{ContextOp, Family, Kind, LaunchOp};

use super::{Check, Draft, at, code};
use crate::plan::Step;
use cutape_model::{Lookup, ObjectId, Origin};

/// Looks at every handle that the call is given.
#[inline]
pub(super) fn check(check: &Check<'_, '_>, drafts: &mut Vec<Draft>) {
    // As long as nothing has ended, nothing needs to be looked at.
    if check.plan.uses_elsewhere || check.state.objects.any_has_ended(check.plan.used) {
        handles(check, drafts);
    }
    if check.plan.needs_context && check.went_wrong() && drafts.is_empty() {
        current_context(check, drafts);
    }
}

fn handles(check: &Check<'_, '_>, drafts: &mut Vec<Draft>) {
    for &(position, step) in &check.plan.steps {
        match step {
            Step::Use(kind) | Step::Destroy(kind) if !may_be_dead(check, kind) => {}
            Step::Use(kind) => used(
                check,
                drafts,
                kind,
                check.call.argument(position),
                position,
                false,
            ),
            Step::Destroy(kind) => {
                used(
                    check,
                    drafts,
                    kind,
                    check.call.argument(position),
                    position,
                    true,
                );
            }
            Step::UseMany(kind) => {
                let snapshot = check.call.snapshot(position, field::POINTEE);
                let bytes = snapshot
                    .and_then(|snapshot| snapshot.bytes.inline())
                    .unwrap_or(&[]);
                for word in bytes.as_chunks::<8>().0 {
                    used(
                        check,
                        drafts,
                        kind,
                        u64::from_le_bytes(*word),
                        position,
                        false,
                    );
                }
            }
            Step::Name => name(check, drafts, position),
            Step::Device(_) => {}
        }
    }
    if let Family::Launch(LaunchOp::Config(launch)) = check.plan.function.family
        && let Some(stream) = check.plan.config_stream(check.call)
    {
        let position = usize::from(launch.config);
        used(check, drafts, Kind::Stream, stream, position, false);
    }
}

/// False if no object that a handle of that kind may stand for has come to an end.
#[inline]
fn may_be_dead(check: &Check<'_, '_>, kind: Kind) -> bool {
    let objects = &check.state.objects;
    // A kernel may stand for a function.
    objects.has_ended(kind) || (kind == Kind::Function && objects.has_ended(Kind::Kernel))
}

fn used(
    check: &Check<'_, '_>,
    drafts: &mut Vec<Draft>,
    kind: Kind,
    handle: u64,
    position: usize,
    destroys: bool,
) {
    // Zero is "none" or "the default"; the small stream handles are the default streams.
    if handle == 0 || (kind == Kind::Stream && handle <= cutape_model::STREAM_PER_THREAD) {
        return;
    }
    let Lookup::Ended(id) = check.state.objects.resolve(kind, handle) else {
        return;
    };
    // Contexts may be left by popping or replacing them; only making a dead one current is wrong.
    if check.plan.function.family == Family::Context(ContextOp::Pop) {
        return;
    }
    if !check.went_wrong() && (check.state.objects.may_be_reused(id) || check.only_released(id)) {
        return;
    }
    let Some(rule) = rule_for(check, id, destroys) else {
        return;
    };
    drafts.push(dead_object(check, rule, id, position, destroys));
}

/// The rule that a dead object's use breaks, by what was destroyed.
fn rule_for(check: &Check<'_, '_>, id: ObjectId, destroys: bool) -> Option<&'static str> {
    let objects = &check.state.objects;
    let kind = objects.get(id)?.kind;
    let root = objects.get(objects.root_of_end(id)?)?.kind;
    Some(match (root, kind) {
        (Kind::Context, Kind::Context) => "context-use-after-destroy",
        (Kind::Context, Kind::Link) => "link-use-after-destroy",
        (Kind::Context, _) => "context-resource-after-destroy",
        (Kind::Library, _) => "library-use-after-unload",
        (Kind::Module, Kind::Module) if destroys => "module-double-unload",
        (Kind::Module, Kind::Function) => "module-function-after-unload",
        (Kind::Module, _) => "module-use-after-unload",
        (Kind::Link, _) => "link-use-after-destroy",
        (Kind::Stream, _) => "stream-use-after-destroy",
        (Kind::Event, _) => "event-use-after-destroy",
        (Kind::Memory | Kind::HostMemory, _) if destroys => "memory-double-free",
        _ => return None,
    })
}

fn dead_object(
    check: &Check<'_, '_>,
    rule: &'static str,
    id: ObjectId,
    position: usize,
    destroys: bool,
) -> Draft {
    let state = check.state;
    let label = state.label(id);
    let (Some(object), Some(end)) = (state.objects.get(id), state.objects.end_of(id)) else {
        return Draft::new(rule, "a dead object is used", label);
    };
    let word = object.kind.name();
    let parameter = check
        .plan
        .function
        .params
        .get(position)
        .map_or("", |param| param.name);
    let function = check.plan.function.name;
    let root = end.by.unwrap_or(id);
    let root_word = state
        .objects
        .get(root)
        .map_or("", |object| object.kind.name());
    let title = match (end.by, destroys) {
        (None, true) if matches!(object.kind, Kind::Memory | Kind::HostMemory) => {
            format!("{word} is freed twice")
        }
        (None, true) => format!("{word} is {} twice", past(check.plan.function.base)),
        (None, false) => format!("{word} is used after {}", end.site.function),
        (Some(_), _) => format!("{word} is used after its {root_word}'s end"),
    };
    let ended = match end.by {
        None => format!("{} ended it", at(end.site)),
        Some(root) => format!(
            "{} ended {} and all that belongs to it",
            at(end.site),
            state.label(root)
        ),
    };
    let made = match object.origin {
        Origin::Created => "made it",
        _ => "handed it out",
    };
    let message = format!(
        "{function} is given {label} as `{parameter}`. {} {made} and {ended}; no call has handed out the value \
         {:#x} as a {word} since then. {}",
        at(object.created),
        object.handle,
        check.answer(),
    );
    let mut draft = Draft::new(rule, title, message).object(id);
    if root != id {
        draft = draft.object(root);
    }
    draft.chain(check.poison_chain(id))
}

fn past(base: &str) -> &'static str {
    if base.ends_with("Unload") {
        "unloaded"
    } else {
        "destroyed"
    }
}

/// The thread's current context was destroyed, by this thread or another, and is still current.
fn current_context(check: &Check<'_, '_>, drafts: &mut Vec<Draft>) {
    let current = check.state.contexts.current(check.call.thread);
    let Some(id) = current.object else { return };
    let Some(end) = check.state.objects.end_of(id) else {
        return;
    };
    // If the driver works on, it knows better: a primary context comes back to life by itself.
    if !matches!(
        check.call.result(),
        None | Some(code::INVALID_CONTEXT | code::CONTEXT_IS_DESTROYED)
    ) {
        return;
    }
    let label = check.state.label(id);
    let message = format!(
        "{} works on the thread's current context, {label}, which {} has ended: destroying a context does not take it \
         off the stacks of the threads in which it is current. {}",
        check.plan.function.name,
        at(end.site),
        check.answer(),
    );
    drafts.push(
        Draft::new(
            "context-use-after-destroy",
            "the current context has been destroyed",
            message,
        )
        .object(id)
        .chain(check.poison_chain(id)),
    );
}

/// A string of the driver's whose owner has ended, passed back to the driver.
fn name(check: &Check<'_, '_>, drafts: &mut Vec<Draft>, position: usize) {
    if check.state.names.is_empty() {
        return;
    }
    let address = check.call.argument(position);
    let Some(known) = check.state.names.get(&address) else {
        return;
    };
    let Some(end) = check.state.objects.end_of(known.owner) else {
        return;
    };
    let snapshot = check.call.snapshot(position, field::POINTEE);
    let readable = snapshot.is_some_and(|snapshot| snapshot.bytes.inline().is_some());
    let text = check.call.string(position);
    let same = text.as_deref() == Some(known.text.as_str());
    // Other text there: the program's own string may have come to lie at that address. No program means to pass what
    // cannot be a name, though: that is what is left of a freed one (seen on driver 580.159.04: empty, or a few odd bytes).
    let is_name = |text: &str| !text.is_empty() && text.chars().all(|c| c.is_ascii_graphic());
    let overwritten = !text.as_deref().is_some_and(is_name) && check.went_wrong();
    if readable && !same && !overwritten {
        return;
    }
    let label = check.state.label(known.owner);
    let root = check
        .state
        .objects
        .root_of_end(known.owner)
        .unwrap_or(known.owner);
    let message = format!(
        "{} is given the string at {address:#x}. That pointer came from {}, which returned the name \"{}\" of {label}; \
         it points into the driver's memory and lived as long as that object. {} ended {}, so the pointer dangles. {} {}",
        check.plan.function.name,
        at(known.site),
        known.text,
        at(end.site),
        check.state.label(root),
        if same {
            "The text was still there."
        } else if readable {
            "The memory had been freed, and held something else by now."
        } else {
            "The memory could not be read any more."
        },
        check.answer(),
    );
    drafts.push(
        Draft::new(
            "module-function-name-after-unload",
            "a function's name is used after its module's end",
            message,
        )
        .object(known.owner)
        .object(root)
        .chain(vec![
            format!("{label}"),
            format!("its name at {address:#x} ({})", at(known.site)),
            format!("{} ended by {}", check.state.label(root), at(end.site)),
            format!("the name passed to {}", at(check.site)),
        ]),
    );
}
