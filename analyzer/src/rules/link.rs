//! Link states: their order of calls, the cubin that they own, the option values that they keep writing to, leaks.

use cutape_format::Bytes;
use cutape_format::layout::field;
use cutape_image::ImageKind;
use cutape_registry::{ContextOp, Family, Kind, LinkOp, PrimaryOp};

use super::{Check, Draft, at, code};
use crate::context::bytes_of;
use crate::state::data::{Cubin, Options};
use crate::state::options::is_input_only;
use crate::state::{State, image_snapshot, numbers64, options_of, source_bytes};
use cutape_model::{ObjectId, Site};

/// Fewer bytes than these in common prove nothing.
const LEAST_COMMON: usize = 64;

/// Rules about the calls that work on a link state.
pub(super) fn check(check: &Check<'_, '_>, drafts: &mut Vec<Draft>) {
    if matches!(
        check.plan.function.family,
        Family::Link(LinkOp::Create { .. })
    ) {
        return shared(check, drafts);
    }
    let Some(link) = check.state.objects.live(Kind::Link, check.call.argument(0)) else {
        return;
    };
    after_complete(check, drafts, link);
    option_values(check, drafts, link);
}

fn after_complete(check: &Check<'_, '_>, drafts: &mut Vec<Draft>, link: ObjectId) {
    let Some(completed) = check.state.link_data(link).and_then(|data| data.completed) else {
        return;
    };
    let label = check.state.label(link);
    let what = match check.plan.function.family {
        Family::Link(LinkOp::Complete { .. }) => "is completed again",
        _ => "is given another input",
    };
    let message = format!(
        "{} works on {label}, which {} has completed already: inputs are added, and the link completed once, while it is \
         pending. {}",
        check.plan.function.name,
        at(completed),
        check.answer(),
    );
    drafts.push(
        Draft::new(
            "link-add-after-complete",
            format!("a completed link state {what}"),
            message,
        )
        .object(link)
        .chain(vec![
            label,
            format!("completed by {}", at(completed)),
            format!("worked on by {}", at(check.site)),
        ]),
    );
}

/// The option values that a live state keeps: whether they are still what they were.
fn option_values(check: &Check<'_, '_>, drafts: &mut Vec<Draft>, link: ObjectId) {
    let Some(data) = check.state.link_data(link) else {
        return;
    };
    if data.options_reported || !data.options.has_outputs() {
        return;
    }
    // As the values stand after the call, or, where it did not return, before it.
    let seen = |number| {
        let after = check.call.leave.and_then(|leave| leave.snapshot(0, number));
        after.or_else(|| check.call.snapshot(0, number))
    };
    let logs = [field::INFO_LOG, field::ERROR_LOG]
        .into_iter()
        .filter_map(seen);
    let log_gone = logs
        .into_iter()
        .any(|snapshot| snapshot.bytes == Bytes::Unreadable);
    let snapshot = seen(field::OPTION_VALUES);
    let options = &data.options;
    let why = if snapshot.is_some_and(|snapshot| snapshot.bytes == Bytes::Unreadable) {
        "the array can no longer be read".to_owned()
    } else if log_gone {
        "a log buffer that the array names can no longer be read".to_owned()
    } else {
        let now = numbers64(snapshot);
        let changed = options
            .numbers
            .iter()
            .zip(&options.values)
            .zip(&now)
            .enumerate();
        let mut changed =
            changed.filter(|(_, ((option, then), now))| is_input_only(**option) && then != now);
        let Some((slot, ((option, then), now))) = changed.next() else {
            return;
        };
        let table = check.context.signatures().enumeration("CUjit_option");
        let name = table
            .and_then(|table| table.name_of(i64::from(*option)))
            .unwrap_or("an option");
        format!(
            "slot {slot}, {name}, was {then:#x} and is {now:#x} now, although the driver only reads it"
        )
    };
    drafts.push(dead_values(check, link, options, &why));
}

fn dead_values(check: &Check<'_, '_>, link: ObjectId, options: &Options, why: &str) -> Draft {
    let made = check
        .state
        .objects
        .get(link)
        .map(|object| at(object.created))
        .unwrap_or_default();
    let message = format!(
        "{made} gave {} the array of option values at {:#x}, into which the driver writes until cuLinkDestroy. At {} {why}: \
         the array was let go or reused while the link state lives.",
        check.state.label(link),
        options.values_address,
        at(check.site),
    );
    Draft::new(
        "link-option-values-lifetime",
        "a link state's option values did not stay",
        message,
    )
    .object(link)
    .chain(vec![
        format!(
            "{} keeps the array at {:#x} ({made})",
            check.state.label(link),
            options.values_address
        ),
        format!("found changed at {}", at(check.site)),
    ])
}

/// Memory that a live link state or library relies on is written by an unrelated call.
pub(super) fn memory_reused(check: &Check<'_, '_>, drafts: &mut Vec<Draft>) {
    for &link in &check.state.writing_links {
        let Some(data) = check.state.link_data(link) else {
            continue;
        };
        if data.options_reported {
            continue;
        }
        let own = check
            .plan
            .options
            .map(|shape| check.call.argument(shape.values));
        for (start, length, what) in data.options.written_ranges() {
            let hit = check.plan.written.iter().copied().find(|&position| {
                let address = check.call.argument(position);
                Some(address) != own && address >= start && address < start.saturating_add(length)
            });
            let Some(position) = hit else { continue };
            let why = format!(
                "the {what} of {length} bytes at {start:#x} is overlapped by {:#x}, where the call returns `{}`",
                check.call.argument(position),
                check.plan.function.params[position].name,
            );
            drafts.push(dead_values(check, link, &data.options, &why));
            return;
        }
    }
    super::library::image_overwritten(check, drafts);
}

/// A log buffer or an array of option values is given to two compilations that live at the same time.
fn shared(check: &Check<'_, '_>, drafts: &mut Vec<Draft>) {
    let Some(shape) = check.plan.options else {
        return;
    };
    let options = options_of(shape, check.call);
    for (start, length, what) in options.written_ranges() {
        for &link in &check.state.writing_links {
            let Some(data) = check.state.link_data(link) else {
                continue;
            };
            let theirs = data.options.written_ranges();
            let overlap = theirs
                .iter()
                .find(|(other, size, _)| start < other + size && *other < start + length);
            let Some((other, size, their_what)) = overlap else {
                continue;
            };
            let message = format!(
                "{} is given the {what} at {start:#x} ({length} bytes), which overlaps the {their_what} at {other:#x} ({size} \
                 bytes) of {}, which is alive: the driver writes there for both until that state is destroyed.",
                check.plan.function.name,
                check.state.label(link),
            );
            drafts.push(
                Draft::new(
                    "link-log-buffer-shared",
                    "two compilations share a log or option values",
                    message,
                )
                .object(link),
            );
            return;
        }
    }
}

/// Link states that are alive when the call ends their context.
pub(super) fn leaked_in_context(check: &Check<'_, '_>, drafts: &mut Vec<Draft>) {
    if !check.call.succeeded() {
        return;
    }
    let argument = check.call.argument(0);
    let context = match check.plan.function.family {
        Family::Context(ContextOp::Destroy) => check.state.objects.live(Kind::Context, argument),
        Family::PrimaryContext(PrimaryOp::Release) => {
            check.state.contexts.last_retain(argument as i32)
        }
        Family::PrimaryContext(PrimaryOp::Reset) => check.state.contexts.primary(argument as i32),
        _ => None,
    };
    let Some(context) = context else { return };
    for link in check.state.objects.children(context) {
        if check
            .state
            .objects
            .get(link)
            .is_some_and(|object| object.kind == Kind::Link)
        {
            let how = format!("{} ended its context", at(check.site));
            drafts.push(leak(check.state, link, &how));
        }
    }
}

/// Link states that are alive at the end.
pub(super) fn leaked_at_end(state: &State) -> Vec<Draft> {
    let links = state.objects.all_live(Kind::Link);
    links
        .into_iter()
        .map(|link| leak(state, link, "the recording ended"))
        .collect()
}

fn leak(state: &State, link: ObjectId, how: &str) -> Draft {
    let made = state
        .objects
        .get(link)
        .map(|object| at(object.created))
        .unwrap_or_default();
    let completed = match state.link_data(link).and_then(|data| data.completed) {
        Some(site) => format!(" {} completed it, which does not destroy it.", at(site)),
        None => String::new(),
    };
    let label = state.label(link);
    let message =
        format!("{made} made {label}, and no cuLinkDestroy followed before {how}.{completed}");
    Draft::new(
        "link-state-leak",
        "a link state is never destroyed",
        message,
    )
    .object(link)
    .chain(vec![
        format!("{label} ({made})"),
        format!("still alive when {how}"),
    ])
}

/// An image that lies in the cubin of a destroyed link state.
pub(super) fn cubin_after_destroy(check: &Check<'_, '_>, drafts: &mut Vec<Draft>) {
    shared_with_load(check, drafts);
    let Some(position) = check.plan.image else {
        return;
    };
    let address = check.call.argument(position);
    let cubins = &check.state.cubins;
    let inside = |cubin: &&Cubin| {
        address >= cubin.address && address < cubin.address.saturating_add(cubin.size)
    };
    if address == 0
        || cubins
            .iter()
            .any(|cubin| cubin.freed.is_none() && inside(&cubin))
    {
        return;
    }
    let Some(cubin) = cubins
        .iter()
        .rev()
        .find(|cubin| cubin.freed.is_some() && inside(cubin))
    else {
        return;
    };
    let Some(freed) = cubin.freed else { return };
    let snapshot = image_snapshot(check.plan, check.call);
    let then = source_bytes(&cubin.source, check.context);
    let now = snapshot.and_then(|snapshot| bytes_of(check.context, snapshot.bytes));
    let state = match (then.as_deref(), now.as_deref()) {
        _ if snapshot.is_some_and(|snapshot| snapshot.bytes == Bytes::Unreadable) => {
            "The memory could not be read any more."
        }
        (Some(then), Some(now)) if same_image(then, now) => {
            if copied_from_newer(check, cubin, freed, then) {
                return;
            }
            "The bytes there were still those of the cubin."
        }
        (_, Some(now)) if cutape_image::kind(now) == ImageKind::Unknown => {
            "The bytes there were no longer those of the cubin: the heap has used the block for something else."
        }
        // A whole image of another content, at an address that the heap has given out again: nothing is wrong.
        (Some(_), Some(_)) => return,
        // Without the bytes, only the very pointer of the last link speaks for itself.
        _ if address == cubin.address
            && check
                .state
                .cubins
                .last()
                .is_some_and(|last| std::ptr::eq(last, cubin)) =>
        {
            "The bytes there are not in the trace."
        }
        _ => return,
    };
    drafts.push(cubin_draft(check, cubin, freed, address, state));
}

/// Whether the bytes of a load are those of a cubin (a load looks no further than the image's own length).
fn same_image(cubin: &[u8], image: &[u8]) -> bool {
    let common = cubin.len().min(image.len());
    common >= LEAST_COMMON.min(cubin.len()) && cubin[..common] == image[..common]
}

/// True if an equal cubin was made after this one was freed: then the load may be of a copy of that one, in a block that the
/// heap has given out again.
fn copied_from_newer(check: &Check<'_, '_>, cubin: &Cubin, freed: Site, bytes: &[u8]) -> bool {
    check.state.cubins.iter().any(|other| {
        other.completed.index > freed.index
            && other.size == cubin.size
            && source_bytes(&other.source, check.context).is_none_or(|theirs| *theirs == *bytes)
    })
}

fn cubin_draft(
    check: &Check<'_, '_>,
    cubin: &Cubin,
    freed: Site,
    address: u64,
    state: &str,
) -> Draft {
    let label = check.state.label(cubin.link);
    let place = match address - cubin.address {
        0 => String::new(),
        offset => format!(", {offset} bytes into it"),
    };
    let answer = match check.call.result() {
        None => "The call did not return: the program died inside it.".to_owned(),
        Some(0) => "The driver said CUDA_SUCCESS: that was luck, because the freed block had not been used again; nothing \
                    reports this misuse."
            .to_owned(),
        Some(code::INVALID_IMAGE) => "The driver answered CUDA_ERROR_INVALID_IMAGE, because the freed block had been used \
                                      again and no image begins there any more."
            .to_owned(),
        Some(_) => format!("The driver answered {}.", check.result_name()),
    };
    let function = check.plan.function.name;
    let message = format!(
        "{function} is given {address:#x} as its image. That is the cubin of {} bytes that {} returned{place}. The cubin is \
         part of {label}, and {} destroyed that link state {}, so it reads freed memory. {state} \
         {answer}",
        cubin.size,
        at(cubin.completed),
        at(freed),
        match check.site.index.saturating_sub(freed.index) {
            1 => "just before this call".to_owned(),
            calls => format!("{calls} calls before this one"),
        },
    );
    let made = check
        .state
        .objects
        .get(cubin.link)
        .map(|object| format!(" ({})", at(object.created)));
    Draft::new(
        "link-cubin-after-destroy",
        "the cubin of a destroyed link state is loaded",
        message,
    )
    .object(cubin.link)
    .chain(vec![
        format!("{label}{}", made.unwrap_or_default()),
        format!(
            "its cubin {:#x}+{} ({}), freed by {}",
            cubin.address,
            cubin.size,
            at(cubin.completed),
            at(freed)
        ),
        format!("loaded by {}", at(check.site)),
    ])
}

/// A module load that writes its log where a live link state writes its own.
fn shared_with_load(check: &Check<'_, '_>, drafts: &mut Vec<Draft>) {
    if check.plan.options.is_some() && !check.state.writing_links.is_empty() {
        shared(check, drafts);
    }
}
