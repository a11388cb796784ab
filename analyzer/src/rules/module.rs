//! Modules: who may unload them and when, lookups that failed, enumeration.

use cutape_registry::{Family, FunctionOp, Kind};

use super::{Check, Draft, at, code, result_name};
use crate::plan::Step;
use crate::state::Failure;
use cutape_model::{Lookup, ObjectId, Origin};

/// Rules about modules beyond lifetimes and images.
#[inline]
pub(super) fn check(check: &Check<'_, '_>, drafts: &mut Vec<Draft>) {
    match check.plan.function.family {
        Family::ModuleUnload if drafts.is_empty() => unload(check, drafts),
        Family::Function(FunctionOp::List { .. }) | Family::Kernel(FunctionOp::List { .. }) => {
            enumerate(check, drafts);
        }
        Family::Global(_) => both_null(check, drafts),
        _ => {}
    }
    let thread = check.state.threads.get(check.call.thread as usize);
    if let Some(thread) = thread
        && !thread.failures.is_empty()
        && drafts.is_empty()
    {
        undefined_handle(check, drafts, &thread.failures);
    }
}

fn unload(check: &Check<'_, '_>, drafts: &mut Vec<Draft>) {
    let state = check.state;
    let Some(id) = state.objects.live(Kind::Module, check.call.argument(0)) else {
        return;
    };
    let Some(object) = state.objects.get(id) else {
        return;
    };
    let label = state.label(id);
    let made = at(object.created);
    let library = object.parent.filter(|&parent| {
        state
            .objects
            .get(parent)
            .is_some_and(|parent| parent.kind == Kind::Library)
    });
    if let Some(library) = library {
        let message = format!(
            "cuModuleUnload is given {label}, which {made} handed out. It is the instance of {} in a context and belongs \
             to that library: only cuLibraryUnload may end it. {}",
            state.label(library),
            check.answer(),
        );
        drafts.push(
            Draft::new(
                "module-unload-library-owned",
                "a library's module is unloaded",
                message,
            )
            .object(id)
            .object(library)
            .chain(check.poison_chain(id)),
        );
        return;
    }
    if object.origin == Origin::FirstSeen {
        if state.current_is_primary(check.call.thread) {
            let message = format!(
                "cuModuleUnload is given {label}. No load in this trace returned it: the program has it from {made}, in a \
                 device's primary context, where the CUDA runtime keeps its modules; whoever loaded it still uses it. {}",
                check.answer(),
            );
            drafts.push(
                Draft::new(
                    "module-unload-runtime-owned",
                    "a module of somebody else's is unloaded",
                    message,
                )
                .object(id)
                .chain(check.poison_chain(id)),
            );
        }
        return;
    }
    wrong_context(check, drafts, id);
    if check.call.result().is_none_or(|result| result == 0) {
        pending(check, drafts, id);
    }
}

fn wrong_context(check: &Check<'_, '_>, drafts: &mut Vec<Draft>, id: ObjectId) {
    let state = check.state;
    let Some(home) = state.objects.get(id).and_then(|object| object.context) else {
        return;
    };
    let current = state.contexts.current(check.call.thread);
    if current.object == Some(home) || (current.object.is_none() && current.handle != 0) {
        return;
    }
    let now = match current.object {
        Some(context) => state.label(context),
        None => "no context".to_owned(),
    };
    let message = format!(
        "cuModuleUnload is given {}, which was loaded into {}, while {now} is current in thread {}. A module is unloaded \
         from the current context. {}",
        state.label(id),
        state.label(home),
        check.call.thread,
        check.answer(),
    );
    let mut draft = Draft::new(
        "module-unload-wrong-context",
        "a module is unloaded in another context",
        message,
    )
    .object(id)
    .object(home);
    if let Some(context) = current.object {
        draft = draft.object(context);
    }
    drafts.push(draft);
}

fn pending(check: &Check<'_, '_>, drafts: &mut Vec<Draft>, id: ObjectId) {
    let Some(data) = check.state.image_data(id) else {
        return;
    };
    let pending = data
        .pending
        .iter()
        .find(|(stream, number, _)| !check.state.order.is_done(*stream, *number));
    let Some(&(_, _, site)) = pending else { return };
    let label = check.state.label(id);
    let message = format!(
        "cuModuleUnload is given {label} while work that needs it, {}, may still be running: between that call and this one \
         nothing waited for it (no synchronise of its stream, of an event behind it, or of the context, and no query that \
         found it complete). The manual does not promise that the unload waits.",
        at(site),
    );
    drafts.push(
        Draft::new(
            "module-unload-work-pending",
            "a module is unloaded while its work may be running",
            message,
        )
        .object(id)
        .subject(site.caller)
        .chain(vec![
            label,
            format!("work enqueued by {}", at(site)),
            format!("unloaded by {} without a wait", at(check.site)),
        ]),
    );
}

fn both_null(check: &Check<'_, '_>, drafts: &mut Vec<Draft>) {
    if check.argument("dptr") != Some(0) || check.argument("bytes") != Some(0) {
        return;
    }
    let message = format!(
        "{} is given NULL for `dptr` and for `bytes`, so it has nothing to answer; one of them may be NULL, not both. {}",
        check.plan.function.name,
        if check.went_wrong() {
            check.answer()
        } else {
            String::new()
        },
    );
    drafts.push(Draft::new(
        "module-global-outputs-both-null",
        "a variable is asked for without any output",
        message.trim_end(),
    ));
}

fn enumerate(check: &Check<'_, '_>, drafts: &mut Vec<Draft>) {
    let Some(owner) = check.state.image_owner(check.plan, check.call) else {
        return;
    };
    let Some(room) = check
        .argument("numFunctions")
        .or_else(|| check.argument("numKernels"))
    else {
        return;
    };
    let output = check
        .argument("functions")
        .or_else(|| check.argument("kernels"));
    if room == 0 || output == Some(0) {
        return;
    }
    let counted = check.state.image_data(owner).and_then(|data| data.count);
    let (count, source) = match counted {
        Some((count, site)) => (count as usize, format!("{} said so", at(site))),
        None => {
            let Some(image) = check.state.parsed(owner, check.context) else {
                return;
            };
            // Which of several entries the driver took is not known.
            let [entry] = image.entries.as_slice() else {
                return;
            };
            let Ok(content) = &entry.content else { return };
            (
                content.functions.iter().filter(|f| f.is_entry).count(),
                "its image lists them".to_owned(),
            )
        }
    };
    if room as usize >= count {
        return;
    }
    let message = format!(
        "{} has room for {room} handles, but {} has {count} functions ({source}): the other {} are left out without an error.",
        check.plan.function.name,
        check.state.label(owner),
        count - room as usize,
    );
    drafts.push(
        Draft::new(
            "module-enumerate-truncated",
            "an enumeration leaves functions out",
            message,
        )
        .object(owner),
    );
}

/// A handle that no call has returned, after the call that should have returned it failed.
fn undefined_handle(check: &Check<'_, '_>, drafts: &mut Vec<Draft>, failures: &[Failure]) {
    for &(position, step) in &check.plan.steps {
        let (Step::Use(kind) | Step::Destroy(kind)) = step else {
            continue;
        };
        if !matches!(
            kind,
            Kind::Module | Kind::Library | Kind::Function | Kind::Kernel
        ) {
            continue;
        }
        let handle = check.call.argument(position);
        // A value that is not zero and that we do not know may be right, unless the driver says otherwise.
        if handle != 0
            && (check.state.objects.resolve(kind, handle) != Lookup::Unknown || !check.went_wrong())
        {
            continue;
        }
        let matches = |failure: &&Failure| {
            failure.kind == kind || (kind == Kind::Function && failure.kind == Kind::Kernel)
        };
        let Some(failure) = failures.iter().rev().find(matches) else {
            continue;
        };
        if failure.reported {
            continue;
        }
        drafts.extend(after_failure(check, failure, kind, handle));
        return;
    }
}

fn after_failure(
    check: &Check<'_, '_>,
    failure: &Failure,
    kind: Kind,
    handle: u64,
) -> Option<Draft> {
    let word = kind.name();
    let result = result_name(failure.site.result);
    let asked = failure
        .name
        .as_ref()
        .map_or(String::new(), |name| format!(" for \"{name}\""));
    let start = format!(
        "{} is given {handle:#x} as a {word}, a value that no call has returned. {}{asked} should have returned one and \
         failed with {result}, which leaves its output (at {:#x}) undefined; the program went on as if it had succeeded. {}",
        check.plan.function.name,
        at(failure.site),
        failure.location,
        check.answer(),
    );
    let chain = vec![
        format!("{}{asked} failed with {result}", at(failure.site)),
        format!("its output, {handle:#x}, used by {}", at(check.site)),
    ];
    if matches!(kind, Kind::Module | Kind::Library) {
        return Some(
            Draft::new(
                "module-load-allocation-failure",
                "the output of a failed load is used",
                start,
            )
            .chain(chain)
            .subject(failure.site.caller),
        );
    }
    if failure.site.result != Some(code::NOT_FOUND) {
        return None;
    }
    let near = near_matches(check, failure);
    let hint = match near.as_slice() {
        [] => String::new(),
        names => format!(" The image has: {}.", names.join(", ")),
    };
    let mut draft = Draft::new(
        "module-symbol-not-found",
        "a function that was not found is used",
        format!("{start}{hint}"),
    )
    .chain(chain)
    .subject(failure.site.caller);
    if let Some(parent) = failure.parent {
        draft = draft.object(parent);
    }
    Some(draft)
}

/// Names of the image that resemble the one that was not found, and what they are.
fn near_matches(check: &Check<'_, '_>, failure: &Failure) -> Vec<String> {
    let (Some(parent), Some(wanted)) = (failure.parent, failure.name.as_deref()) else {
        return Vec::new();
    };
    let Some(image) = check.state.parsed(parent, check.context) else {
        return Vec::new();
    };
    let mut near = Vec::new();
    for content in image
        .entries
        .iter()
        .filter_map(|entry| entry.content.as_ref().ok())
    {
        let functions = content.functions.iter().filter(|f| f.is_entry);
        let names = functions.map(|f| (f.name.as_str(), "a function")).chain(
            content
                .globals
                .iter()
                .map(|g| (g.name.as_str(), "a variable")),
        );
        for (name, what) in names {
            let alike = name.eq_ignore_ascii_case(wanted)
                || (wanted.len() >= 2 && name.contains(wanted))
                || (name.len() >= 3 && wanted.contains(name));
            let mangled =
                name.starts_with("_Z") && !wanted.starts_with("_Z") && name.contains(wanted);
            let text = match (alike, mangled) {
                (_, true) => format!("\"{name}\" ({what}, mangled C++ name)"),
                (true, _) => format!("\"{name}\" ({what})"),
                _ => continue,
            };
            if !near.contains(&text) && near.len() < 5 {
                near.push(text);
            }
        }
    }
    near
}
