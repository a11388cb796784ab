//! Errors: those of asynchronous work that a later call returns, flags that do not exist, functions
//! that are deprecated.

use cutape_model::Site;
use cutape_registry::{Kind, Waits, is_sticky, rules};

use super::{Check, Deferral, Draft, at, code, result_name};
use crate::state::State;
use crate::state::execution::{Blame, RecentWork, StickyError};

/// How many suspects a finding lists.
const SUSPECTS: usize = 8;
/// After how many ignored repeats a finding is written at once.
const IGNORED: u64 = 16;

/// An error of earlier work that this call returns.
pub(super) fn of_earlier_work(check: &Check<'_, '_>) -> Option<Draft> {
    let result = check.call.result().filter(|&result| is_sticky(result))?;
    let state = check.state;
    let context = state.context_of_errors(check.plan, check.call);
    if let Some(error) = state.execution.sticky.get(&context) {
        let asks = check.plan.asks_for_more();
        let ignored = error.ignored + u64::from(asks);
        return (asks && ignored == IGNORED).then(|| {
            let mut error = *error;
            error.ignored = ignored;
            error.repeats += 1;
            continued(state, &error, true)
        });
    }
    if let Some(cause) = super::memory::host_pointer_fault(check) {
        return Some(cause);
    }
    let suspects = state.suspects(context, state.ordering.stream);
    let name = result_name(Some(result));
    let first = *suspects.first()?;
    if let ([_], Some(Blame::Undefined(cause))) = (suspects.as_slice(), first.blame) {
        return Some(of_undefined(check, first, cause));
    }
    let names: Vec<String> = suspects
        .iter()
        .take(SUSPECTS)
        .map(|work| named(state, work))
        .collect();
    let more = match suspects.len().saturating_sub(SUSPECTS) {
        0 => String::new(),
        more => format!(", and {more} more"),
    };
    let who = match names.as_slice() {
        [only] => format!("Only this can have failed: {only}."),
        _ => format!("Suspects, the likeliest first: {}{more}.", names.join("; ")),
    };
    let message = format!(
        "{} returned {name}. {} does not cause that itself: it is the error of work that was \
         enqueued before and that no call had shown to be complete. {who} All later calls in this \
         context return the same error.",
        check.function(),
        check.function(),
    );
    let is_alone = suspects.len() == 1 && check.plan.function.waits != Waits::No;
    let mut chain = names;
    chain.push(format!("{name} returned by {}", at(check.site)));
    let title = "error of earlier asynchronous work";
    let draft = Draft::new(rules::ERRORS_ASYNC_MISATTRIBUTED, title, message).chain(chain);
    // A program that goes on after such a wait has a finding that says so, with the origin.
    Some(match is_alone {
        true => draft.deferred(Deferral::StickyError(check.site.index)),
        false => draft,
    })
}

/// An error of work with a parameter that an earlier call failed to write.
fn of_undefined(check: &Check<'_, '_>, work: &RecentWork, cause: Site) -> Draft {
    let failed = format!("{} failed with {}", at(cause), result_name(cause.result));
    let name = check.result_name();
    let message = format!(
        "{failed}, and no later call allocated in its place. {} gets a parameter that is no \
         address of memory, so it probably is the output that was not written. {} returned {name}, \
         the error of that work.",
        named(check.state, work),
        check.function(),
    );
    let title = "output of a failed call used by a kernel";
    Draft::new(rules::ERRORS_RESULT_IGNORED, title, message)
        .culprit(cause)
        .assumed()
        .chain(vec![
            failed,
            format!("its output passed by {}", named(check.state, work)),
            format!("{name} returned by {}", at(check.site)),
        ])
}

fn named(state: &State, work: &RecentWork) -> String {
    let label = match work.function {
        0 => None,
        handle => state.objects.resolve(Kind::Function, handle).known(),
    };
    let label = label.map_or_else(String::new, |id| format!(" of {}", state.label(id)));
    let why = match work.blame {
        Some(Blame::Freed) => ", which gets freed memory".to_owned(),
        Some(Blame::Undefined(cause)) => {
            format!(", which may get what {} failed to return", at(cause))
        }
        None => String::new(),
    };
    format!("{}{label}{why}", at(work.site))
}

/// Work that was asked for after the error.
fn continued(state: &State, error: &StickyError, goes_on: bool) -> Draft {
    let name = result_name(Some(error.code));
    let origin = error.origin.map(|work| named(state, &work));
    let cause = origin.as_ref().map_or_else(String::new, |origin| {
        format!(" It is the error of earlier work, most likely of {origin}.")
    });
    let next = error
        .next
        .map_or_else(String::new, |site| format!(", the first by {}", at(site)));
    let message = format!(
        "{} returned {name}, which leaves the context unusable.{cause} {} later calls returned the \
         same error{}; {} of them asked for new work{next}. None of that work ran.",
        at(error.first),
        error.repeats,
        if goes_on { " so far" } else { "" },
        error.ignored,
    );
    let title = "program goes on after an error that makes its context unusable";
    let mut chain: Vec<String> = origin.into_iter().collect();
    chain.push(format!("{name} returned by {}", at(error.first)));
    chain.push(format!("{} repeats ignored", error.repeats));
    Draft::new(rules::ERRORS_STICKY_CONTINUE, title, message)
        .subject(error.first.index)
        .replaces(Deferral::StickyError(error.first.index))
        .chain(chain)
}

/// Errors that the program went on after, when the trace ends.
pub(super) fn continued_at_end(state: &State) -> Vec<Draft> {
    let mut errors: Vec<&StickyError> = state.execution.sticky.values().collect();
    errors.sort_by_key(|error| error.first.index);
    let ignored = errors
        .into_iter()
        .filter(|error| (1..IGNORED).contains(&error.ignored));
    ignored
        .map(|error| continued(state, error, false))
        .collect()
}

/// Host functions that do not run because work before them has failed.
pub(super) fn skipped_function(check: &Check<'_, '_>, drafts: &mut Vec<Draft>) {
    let Some(result) = check.call.result().filter(|&result| is_sticky(result)) else {
        return;
    };
    let state = check.state;
    let context = state.context_of_errors(check.plan, check.call);
    if state.execution.sticky.contains_key(&context) {
        return;
    }
    let Some(function) = state.execution.host_functions.front() else {
        return;
    };
    // The error may belong to work behind the function, or in another stream.
    let suspects = state.suspects(context, Some(function.stream));
    if suspects
        .iter()
        .any(|work| work.site.index > function.site.index)
    {
        return;
    }
    let message = format!(
        "{} returned {}: work in the context has failed. The driver does not call the function \
         that {} enqueued after {}, so that function releases and signals nothing.",
        check.function(),
        result_name(Some(result)),
        at(function.site),
        at(function.behind),
    );
    let title = "host function not called because work before it failed";
    drafts.push(
        Draft::new(rules::ERRORS_HOST_FUNCTION_SKIPPED, title, message).chain(vec![
            format!("work enqueued by {}", at(function.behind)),
            format!("function enqueued by {}", at(function.site)),
            format!(
                "{} returned by {}",
                result_name(Some(result)),
                at(check.site)
            ),
        ]),
    );
}

/// Work that nothing has waited for when the trace ends.
pub(super) fn unobserved_at_end(state: &State) -> Option<Draft> {
    // After an error the work does not run.
    if !state.execution.sticky.is_empty() {
        return None;
    }
    let pending =
        state.execution.recent.iter().filter(|work| {
            work.function != 0 && !state.order.is_done(work.stream.0, work.stream.1)
        });
    let pending: Vec<&RecentWork> = pending.collect();
    let last = pending.last()?;
    let message = format!(
        "The program ended without a wait for {} of its last launches; the latest is {}. Whether \
         they failed, and whether they were complete, is not known.",
        pending.len(),
        named(state, last),
    );
    let title = "last work never waited for";
    Some(Draft::new(
        rules::ERRORS_ASYNC_NEVER_OBSERVED,
        title,
        message,
    ))
}

/// Flags that are not defined.
pub(super) fn reserved(check: &Check<'_, '_>) -> Option<Draft> {
    if check.call.result() != Some(code::INVALID_VALUE) {
        return None;
    }
    let position = ["Flags", "flags"]
        .iter()
        .find_map(|name| check.plan.at(name))?;
    let param = check.plan.function.params.get(position)?;
    // A pointer to flags is an output.
    if param.c_type.ends_with('*') {
        return None;
    }
    let value = check.call.argument(position) & 0xffff_ffff;
    let defined = check.plan.function.flags();
    let known = defined.map_or(0, |flags| {
        let values = flags
            .values
            .iter()
            .map(|(_, value)| *value as u64 & 0xffff_ffff);
        values.fold(0, |all, value| all | value)
    });
    let unknown = value & !known;
    // Spin, yield and blocking wait exclude each other (cuda.h: CU_CTX_SCHED_MASK).
    const SCHEDULING: u64 = 7;
    let several = defined.is_some_and(|flags| flags.name == "CUctx_flags")
        && (value & SCHEDULING).count_ones() > 1;
    if unknown == 0 && !several {
        return None;
    }
    let what = match (several, defined) {
        (true, _) => format!(
            "gets {value:#x} as `{}`, which asks for several ways of scheduling at once",
            param.name,
        ),
        (_, None) => format!("gets {value:#x} as `{}`, which must be 0", param.name),
        (_, Some(_)) => format!(
            "gets {value:#x} as `{}`; the bits {unknown:#x} are not defined as far as cutape knows",
            param.name,
        ),
    };
    let title = "reserved bits set in a flags argument";
    Some(check.draft(rules::ERRORS_RESERVED_ARGUMENT_NONZERO, title, what))
}

/// A function that is deprecated.
pub(super) fn deprecated(check: &Check<'_, '_>) -> Option<Draft> {
    let instead = check.plan.function.deprecated;
    if check.call.result() == Some(code::NOT_SUPPORTED) {
        return None;
    }
    let message = format!(
        "{} is deprecated and may be missing in a later driver. Use instead: {instead}.",
        check.function(),
    );
    let title = format!("deprecated function {}", check.plan.function.base);
    // One finding a function is enough.
    let draft = Draft::new(rules::ERRORS_DEPRECATED_API, title, message);
    Some(draft.once())
}
