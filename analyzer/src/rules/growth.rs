//! Objects that a program creates again and again and never ends.

use cutape_format::Call;
use cutape_model::ObjectId;
use cutape_registry::{Family, Kind, rules};

use super::{Check, Draft, at};
use crate::finding::Severity;
use crate::plan::Plan;
use crate::state::growth::{Created, Place, SUSPICIOUS, fingerprint};
use crate::state::{State, image_snapshot};

/// So many live objects of one place are more than a program keeps on purpose without using them.
const MANY: u32 = 64;
/// So many live modules of one image are reported.
const MANY_MODULES: u32 = 32;

/// Objects of the context that the call ends.
pub(super) fn in_context(check: &Check<'_, '_>, drafts: &mut Vec<Draft>) {
    if !check.call.succeeded() || !drafts.is_empty() {
        return;
    }
    let Some(context) = check.ended_context() else {
        return;
    };
    let how = format!("{} ended their context", at(check.site));
    let objects = &check.state.objects;
    let is_memory = |id: &ObjectId| check.kind(*id) == Some(Kind::Memory);
    if let Some(id) = objects.children(context).find(is_memory) {
        drafts.extend(only_one(check.state, context, &how).map(|draft| draft.object(id)));
    }
    let children = objects.children(context);
    let mut lost = lost_by_place(check.state, children);
    lost.retain(|&(place, created)| {
        place.0 == Kind::Memory || are_many(check.state, place, created)
    });
    drafts.extend(lost.into_iter().map(|lost| draft(lost, &how)));
}

/// The places that seem to have lost some of these objects.
fn lost_by_place(state: &State, objects: impl Iterator<Item = ObjectId>) -> Vec<(Place, &Created)> {
    let mut lost: Vec<(Place, &Created)> = Vec::new();
    for id in objects {
        let Some(place) = state.place_of(id) else {
            continue;
        };
        if let Some(created) = state.growth.places.get(&place)
            && created.seems_lost()
            && !created.is_reserve(place.0)
            && !lost.iter().any(|(known, _)| *known == place)
        {
            lost.push((place, created));
        }
    }
    lost.sort_by_key(|(_, created)| created.first.index);
    lost
}

/// Objects that live at the end.
pub(super) fn at_end(state: &State) -> Vec<Draft> {
    let places = state.growth.places.iter();
    let mut lost: Vec<(Place, &Created)> = places
        .filter(|(place, created)| {
            created.seems_lost()
                && are_many(state, **place, created)
                && !created.is_reserve(place.0)
        })
        .map(|(&place, created)| (place, created))
        .collect();
    lost.sort_by_key(|(_, created)| created.first.index);
    // Whether the program would have ended them, had it gone on, is not known.
    let drafts = lost
        .into_iter()
        .map(|lost| draft(lost, "the recording ended"));
    drafts
        .map(|draft| draft.severity(Severity::Advice))
        .collect()
}

fn is_code(kind: Kind) -> bool {
    matches!(kind, Kind::Module | Kind::Library)
}

/// Whether so many are no plan.
fn are_many(state: &State, place: Place, created: &Created) -> bool {
    if !is_code(place.0) {
        return created.live >= MANY;
    }
    // Fewer of one image than of several, which may be a cache.
    let key = state.image_key(created.newest);
    let same = key.map_or(0, |(context, image)| state.growth.of_image(context, image));
    // More of one image have a finding at the load.
    (SUSPICIOUS..MANY_MODULES).contains(&same) || (created.live >= MANY && same < MANY_MODULES)
}

/// The only memory that a program has not freed: one that frees nothing leaves that to the end of its
/// context.
fn only_one(state: &State, context: ObjectId, how: &str) -> Option<Draft> {
    let ((_, _, function), created, freed) = state.growth.only_memory(context)?;
    let message = format!(
        "One allocation of {} bytes was still alive when {how}, made at the place of {}. The program \
         has freed its other memory, {freed} in that context.",
        created.bytes,
        at(created.first),
    );
    let draft = Draft::new(rules::MEMORY_LEAK, "memory never freed", message);
    let draft = draft.severity(Severity::Advice).culprit(created.first);
    Some(draft.chain(vec![
        format!("allocated by {function}"),
        format!("still alive when {how}"),
    ]))
}

/// Several objects of a kind, in words.
fn counted(kind: Kind, count: u32) -> String {
    match kind {
        Kind::Memory => format!("{count} allocations"),
        Kind::HostMemory => format!("{count} allocations of host memory"),
        Kind::Registration => format!("{count} registrations of host memory"),
        Kind::ExternalMemory => format!("{count} imports of external memory"),
        Kind::Library => format!("{count} libraries"),
        _ => format!("{count} {}s", kind.name()),
    }
}

fn draft(((kind, _, function), created): (Place, &Created), how: &str) -> Draft {
    let count = created.live;
    let objects = counted(kind, count);
    let size = match created.bytes {
        0 => String::new(),
        bytes => format!(", {bytes} bytes in all,"),
    };
    let message = format!(
        "{objects}{size} were still alive when {how}. {function} created \
         all of them at one place of the program, the first in call {}. None was ever ended, and \
         none was used once the next one existed.",
        created.first.index,
    );
    let (rule, title) = match kind {
        Kind::Memory => (rules::MEMORY_LEAK, "memory never freed"),
        Kind::Module | Kind::Library => (rules::MODULE_LIVE_GROWTH, "modules never unloaded"),
        _ => (
            rules::CONTEXT_OBJECTS_LEFT_BEHIND,
            "objects created again and again, and never destroyed",
        ),
    };
    let draft = Draft::new(rule, title, message).culprit(created.first);
    let draft = match is_code(kind) {
        true => draft.site(created.first),
        false => draft,
    };
    draft.chain(vec![
        format!("the first of {count} created by {}", at(created.first)),
        format!("still alive when {how}"),
    ])
}

/// How many modules of an image live when it is loaded again, and the image's fingerprint.
fn live_of_image(state: &State, plan: &Plan, call: &Call<'_>) -> (u32, u64) {
    let snapshot = image_snapshot(plan, call);
    let fingerprint = snapshot.map_or(0, |snapshot| fingerprint(snapshot.bytes));
    let context = match plan.function.family {
        Family::ModuleLoad(_) => state.contexts.current(call.thread).handle,
        _ => 0,
    };
    (state.growth.of_image(context, fingerprint), fingerprint)
}

/// True if the load makes many live modules of one image, or more.
pub(crate) fn is_live_growth(state: &State, plan: &Plan, call: &Call<'_>) -> bool {
    live_of_image(state, plan, call).0 + 1 >= MANY_MODULES
}

/// A load of an image of which many modules live.
pub(super) fn modules(check: &Check<'_, '_>, drafts: &mut Vec<Draft>) {
    if !check.call.succeeded() {
        return;
    }
    let (others, fingerprint) = live_of_image(check.state, check.plan, check.call);
    // Said once, when the limit is reached.
    if others + 1 != MANY_MODULES {
        return;
    }
    let loaded = match check.family() {
        Family::ModuleLoad(_) => "modules loaded from the same image live in this context",
        _ => "libraries loaded from the same image live in this process",
    };
    let message = format!(
        "{} loads an image again: {others} {loaded}. The code of each takes device memory until \
         it is unloaded.",
        check.function(),
    );
    let title = "one image loaded again and again, and never unloaded";
    drafts.push(Draft::new(rules::MODULE_LIVE_GROWTH, title, message).subject(fingerprint));
}
