//! Outputs of calls that failed: names that an image does not have, and values that no call has
//! returned.

use cutape_model::ObjectId;
use cutape_registry::{Family, Kind, rules};

use super::{Check, Deferral, Draft, at, code, result_name, with_article};
use crate::demangle::{bare, demangle, last_name};
use crate::finding::Severity;
use crate::state::State;
use crate::state::failures::{Failure, Output};

/// How many names of an image a finding lists.
const NAMES: usize = 5;

/// A value that no call has returned, after the call that should have returned it failed.
pub(super) fn used(check: &Check<'_, '_>) -> Option<Draft> {
    let used = check.state.undefined_use(check.plan, check.call)?;
    let failure = used.failure;
    let unloads = matches!(check.family(), Family::ModuleUnload | Family::LibraryUnload);
    // Who uses nothing of an image that was not loaded, but unloads it, makes a mistake of their own.
    if failure.reported && (failure.is_used || !unloads) {
        return None;
    }
    let result = result_name(failure.site.result);
    let name = failure.name.as_ref();
    let asked = name.map_or(String::new(), |name| format!(" for \"{name}\""));
    let is_lookup = name.is_some() && failure.site.result == Some(code::NOT_FOUND);
    let (rule, title) = match (used.taken, failure.output) {
        (Output::Handle(Kind::Module | Kind::Library), _) => (
            rules::MODULE_LOAD_ALLOCATION_FAILURE,
            match unloads {
                true => "output of a failed load unloaded",
                false => "output of a failed load used",
            },
        ),
        (_, Output::Handle(Kind::Global)) if is_lookup => (
            rules::MODULE_SYMBOL_NOT_FOUND,
            "variable used that was not found",
        ),
        _ if is_lookup => (
            rules::MODULE_SYMBOL_NOT_FOUND,
            "function used that was not found",
        ),
        _ => (rules::ERRORS_RESULT_IGNORED, "output of a failed call used"),
    };
    let names = match is_lookup {
        true => names_alike(check, failure),
        false => Vec::new(),
    };
    let hint = match names.as_slice() {
        [] => String::new(),
        names => format!(" The image has: {}.", names.join(", ")),
    };
    let message = format!(
        "{}{asked} failed with {result} and returned nothing (its output is at {:#x}). {} gets {:#x} as \
         {}, which no call has returned: it most likely is that output. {}{hint}",
        at(failure.site),
        failure.location,
        check.function(),
        used.value,
        with_article(used.taken.name()),
        check.answer(),
    );
    let draft = Draft::new(rule, title, message)
        .culprit(failure.site)
        .chain(vec![
            format!("{}{asked} failed with {result}", at(failure.site)),
            format!("its output, {:#x}, used by {}", used.value, at(check.site)),
        ]);
    // The driver refuses NULL, which changes nothing.
    let draft = match unloads && used.value == 0 {
        true => draft.severity(Severity::Warning),
        false => draft,
    };
    let parent = failure
        .parent
        .filter(|_| rule == rules::MODULE_SYMBOL_NOT_FOUND);
    Some(parent.into_iter().fold(draft, Draft::object))
}

/// A lookup of a name that the image has in another form: mangled, with other parameters, or with the
/// suffix of a specialisation.
pub(super) fn not_found(check: &Check<'_, '_>) -> Option<Draft> {
    if check.call.result() != Some(code::NOT_FOUND) {
        return None;
    }
    let state = check.state;
    let owner = state.image_owner(check.plan, check.call)?;
    let wanted = check.call.string(check.plan.at("name")?)?;
    let image = state.parsed(owner, check.context)?;
    let mut names: Vec<&str> = Vec::new();
    for content in super::image::contents(&image) {
        let functions = content.functions.iter().filter(|f| f.is_entry);
        let functions = functions.map(|function| function.name.as_str());
        let globals = content.globals.iter().map(|global| global.name.as_str());
        for name in functions.chain(globals) {
            if is_same_source_name(name, &wanted) && !names.contains(&name) {
                names.push(name);
            }
        }
    }
    // Who has found it knows how it is called.
    if names.is_empty() || names.iter().any(|name| is_found(state, owner, name)) {
        return None;
    }
    let listed: Vec<String> = names
        .iter()
        .take(NAMES)
        .map(|name| described(name))
        .collect();
    let message = format!(
        "{} looks for \"{wanted}\" in {}, which has nothing of that name. It has {}. No later \
         lookup with another form of the name succeeded. The driver returned CUDA_ERROR_NOT_FOUND.",
        check.function(),
        check.label(owner),
        listed.join(", "),
    );
    let title = "lookup of a name that the image has in another form";
    let draft = Draft::new(rules::MODULE_SYMBOL_NOT_FOUND, title, message).object(owner);
    Some(draft.deferred(Deferral::Lookup(owner, wanted)))
}

/// Whether the program has looked up a name of an image.
fn is_found(state: &State, owner: ObjectId, name: &str) -> bool {
    let mut children = state.objects.children(owner);
    children.any(|id| {
        let object = state.objects.get(id);
        object.is_some_and(|object| object.name.as_deref() == Some(name))
    })
}

/// Whether two names are different forms of one name in the source: with and without mangling,
/// namespaces, template arguments and parameters, or the first with a suffix for the arguments that it
/// is compiled for (Triton: `_0d1d2d`).
pub(crate) fn is_same_source_name(name: &str, wanted: &str) -> bool {
    let is_mangled = |name: &str| name.starts_with("_Z") || name.starts_with("_R");
    if name == wanted {
        return false;
    }
    if !(is_mangled(name) || is_mangled(wanted)) {
        let suffix = name
            .strip_prefix(wanted)
            .and_then(|end| end.strip_prefix('_'));
        return suffix.is_some_and(|suffix| suffix.starts_with(|c: char| c.is_ascii_digit()));
    }
    let (name, wanted) = (demangle(name), demangle(wanted));
    // Who names a namespace or template arguments means these.
    match bare(&wanted) == last_name(&wanted) {
        true => last_name(&name) == last_name(&wanted),
        false => bare(&name) == bare(&wanted),
    }
}

/// A name of an image, with what it is in the source.
fn described(name: &str) -> String {
    let readable = demangle(name);
    match readable == name {
        true => format!("\"{name}\""),
        false => format!("\"{name}\", the mangled name of {readable}"),
    }
}

/// Names of the image that resemble the one that was not found, and what they are.
fn names_alike(check: &Check<'_, '_>, failure: &Failure) -> Vec<String> {
    let (Some(parent), Some(wanted)) = (failure.parent, failure.name.as_deref()) else {
        return Vec::new();
    };
    let Some(image) = check.state.parsed(parent, check.context) else {
        return Vec::new();
    };
    let mut alike = Vec::new();
    for content in super::image::contents(&image) {
        let functions = content.functions.iter().filter(|f| f.is_entry);
        let functions = functions.map(|f| (f.name.as_str(), "a function"));
        let globals = content.globals.iter();
        let globals = globals.map(|g| (g.name.as_str(), "a variable"));
        for (name, what) in functions.chain(globals) {
            let resembles = name.eq_ignore_ascii_case(wanted)
                || (wanted.len() >= 2 && name.contains(wanted))
                || (name.len() >= 3 && wanted.contains(name))
                || is_same_source_name(name, wanted);
            let text = format!("{} ({what})", described(name));
            if resembles && !alike.contains(&text) && alike.len() < NAMES {
                alike.push(text);
            }
        }
    }
    alike
}
