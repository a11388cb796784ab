//! Link states: the order of their calls, the cubin that they own, the option values that they
//! write to, leaks.

use cutape_format::Bytes;
use cutape_format::layout::field;
use cutape_image::ImageKind;
use cutape_model::{ObjectId, Site};
use cutape_registry::{Family, Kind, LinkOp, rules};

use super::{Check, Draft, at, code, created_at};
use crate::context::bytes_of;
use crate::state::data::{Cubin, Options};
use crate::state::options::is_input_only;
use crate::state::{State, image_snapshot, numbers64, options_of, source_bytes};

/// Fewer common bytes than these do not show that two images are the same.
const LEAST_COMMON: usize = 64;
/// A heap writes no more words than these into a free block that it has not given out again: the
/// links of two lists and the size at both ends.
const MOST_HEAP_WORDS: usize = 6;

/// Rules about the calls that work on a link state.
pub(super) fn check(check: &Check<'_, '_>, drafts: &mut Vec<Draft>) {
    if let Some(link) = check.live(Kind::Link) {
        drafts.extend(after_complete(check, link));
        drafts.extend(option_values(check, link));
    }
}

/// The end of a link state, until which its option values must stay.
pub(super) fn destroyed(check: &Check<'_, '_>, drafts: &mut Vec<Draft>) {
    let link = check.live(Kind::Link);
    drafts.extend(link.and_then(|link| option_values(check, link)));
}

fn after_complete(check: &Check<'_, '_>, link: ObjectId) -> Option<Draft> {
    let completed = check.state.link_data(link)?.completed?;
    let label = check.label(link);
    let title = match check.family() {
        Family::Link(LinkOp::Complete { .. }) => "link state completed twice",
        _ => "input added to a completed link state",
    };
    let what = format!(
        "works on {label}, which {} completed. Inputs must be added before the completion, and \
         a link state is completed once",
        at(completed),
    );
    Some(
        check
            .draft(rules::LINK_ADD_AFTER_COMPLETE, title, what)
            .object(link)
            .chain(vec![
                label,
                format!("completed by {}", at(completed)),
                format!("used by {}", at(check.site)),
            ]),
    )
}

/// Whether the option values that a live link state writes to are still what they were.
fn option_values(check: &Check<'_, '_>, link: ObjectId) -> Option<Draft> {
    let data = check.state.link_data(link)?;
    if data.options_reported || !data.options.has_outputs() {
        return None;
    }
    // After the call, or, where it did not return, before it.
    let seen = |number| {
        let after = check.call.leave.and_then(|leave| leave.snapshot(0, number));
        after.or_else(|| check.call.snapshot(0, number))
    };
    let is_unreadable =
        |number| seen(number).is_some_and(|snapshot| snapshot.bytes == Bytes::Unreadable);
    let options = &data.options;
    let why = if is_unreadable(field::OPTION_VALUES) {
        "the array is no longer readable".to_owned()
    } else if is_unreadable(field::INFO_LOG) || is_unreadable(field::ERROR_LOG) {
        "a log buffer in the array is no longer readable".to_owned()
    } else {
        let now = numbers64(seen(field::OPTION_VALUES));
        let slots = options.numbers.iter().zip(&options.values).zip(&now);
        let mut changed = slots
            .enumerate()
            .filter(|(_, ((option, then), now))| is_input_only(**option) && then != now);
        let (slot, ((option, then), now)) = changed.next()?;
        let name = check.enum_name("CUjit_option", i64::from(*option), "option");
        format!(
            "slot {slot}, {name}, is {now:#x} instead of {then:#x}, although the driver only reads \
             it"
        )
    };
    Some(reused_values(check, link, options, &why))
}

fn reused_values(check: &Check<'_, '_>, link: ObjectId, options: &Options, why: &str) -> Draft {
    let created = created_at(check.state, link);
    let label = check.label(link);
    let address = options.values_address;
    let message = format!(
        "{created} gave {label} the array of option values at {address:#x}, into which the driver \
         writes until cuLinkDestroy. At {} {why}: the program freed or reused the array while the \
         link state lives.",
        at(check.site),
    );
    let title = "option values freed or reused before their link state is destroyed";
    Draft::new(rules::LINK_OPTION_VALUES_LIFETIME, title, message)
        .object(link)
        .chain(vec![
            format!("{label} keeps the array at {address:#x} ({created})"),
            format!("found changed at {}", at(check.site)),
        ])
}

/// A call writes into memory that a live link state or library relies on.
pub(super) fn memory_reused(check: &Check<'_, '_>, drafts: &mut Vec<Draft>) {
    let reused = option_values_written(check);
    drafts.extend(reused.or_else(|| super::library::image_overwritten(check)));
}

fn option_values_written(check: &Check<'_, '_>) -> Option<Draft> {
    let argument = |position| check.call.argument(position);
    let own = check.plan.options.map(|shape| argument(shape.values));
    for &link in &check.state.writing_links {
        let data = check.state.link_data(link);
        let Some(data) = data.filter(|data| !data.options_reported) else {
            continue;
        };
        for (start, length, what) in data.options.written_ranges() {
            let range = start..start.saturating_add(length);
            let hit = check.plan.written.iter().copied().find(|&position| {
                let address = argument(position);
                Some(address) != own && range.contains(&address)
            });
            let Some(position) = hit else { continue };
            let why = format!(
                "the call writes its `{}` to {:#x}, in the {what} of {length} bytes at {start:#x}",
                check.parameter(position),
                argument(position),
            );
            return Some(reused_values(check, link, &data.options, &why));
        }
    }
    None
}

/// Two compilations that live at the same time get the same log buffer or array of option values.
pub(super) fn shared(check: &Check<'_, '_>, drafts: &mut Vec<Draft>) {
    let Some(shape) = check.plan.options else {
        return;
    };
    let options = options_of(shape, check.call);
    for (start, length, what) in options.written_ranges() {
        for &link in &check.state.writing_links {
            let Some(data) = check.state.link_data(link) else {
                continue;
            };
            let mut theirs = data.options.written_ranges().into_iter();
            let overlap = theirs.find(|&(other, size, _)| {
                start < other.saturating_add(size) && other < start.saturating_add(length)
            });
            let Some((other, size, their_what)) = overlap else {
                continue;
            };
            let message = format!(
                "{} gets the {what} at {start:#x} ({length} bytes), which overlaps the \
                 {their_what} at {other:#x} ({size} bytes) of {}. The driver writes there for both \
                 until that link state is destroyed.",
                check.function(),
                check.label(link),
            );
            let title = "two compilations share a log buffer or option values";
            drafts.push(Draft::new(rules::LINK_LOG_BUFFER_SHARED, title, message).object(link));
            return;
        }
    }
}

/// Link states that live when the call ends their context.
pub(super) fn leaked_in_context(check: &Check<'_, '_>, drafts: &mut Vec<Draft>) {
    if !check.call.succeeded() || !drafts.is_empty() {
        return;
    }
    let Some(context) = check.ended_context() else {
        return;
    };
    let how = format!("{} ended its context", at(check.site));
    let children = check.state.objects.children(context);
    let links = children.filter(|&child| check.kind(child) == Some(Kind::Link));
    drafts.extend(links.map(|link| leak(check.state, link, &how)));
}

/// Link states that live at the end.
pub(super) fn leaked_at_end(state: &State) -> Vec<Draft> {
    let links = state.objects.all_live(Kind::Link).into_iter();
    links
        .map(|link| leak(state, link, "the recording ended"))
        .collect()
}

fn leak(state: &State, link: ObjectId, how: &str) -> Draft {
    let created = created_at(state, link);
    let label = state.label(link);
    let completed = match state.link_data(link).and_then(|data| data.completed) {
        Some(site) => format!(" {} completed it, which does not destroy it.", at(site)),
        None => String::new(),
    };
    let message = format!(
        "{created} created {label}, and no cuLinkDestroy followed before {how}.{completed}"
    );
    Draft::new(
        rules::LINK_STATE_LEAK,
        "link state never destroyed",
        message,
    )
    .object(link)
    .chain(vec![
        format!("{label} ({created})"),
        format!("still alive when {how}"),
    ])
}

/// An image that lies in the cubin of a destroyed link state.
pub(super) fn cubin_after_destroy(check: &Check<'_, '_>, drafts: &mut Vec<Draft>) {
    // A load may also write its log where a live link state writes its own.
    shared(check, drafts);
    drafts.extend(dead_cubin(check));
}

fn dead_cubin(check: &Check<'_, '_>) -> Option<Draft> {
    let address = check.call.argument(check.plan.image?);
    let cubins = &check.state.cubins;
    let inside = |cubin: &&Cubin| {
        address >= cubin.address && address < cubin.address.saturating_add(cubin.size)
    };
    if address == 0 || (cubins.iter().filter(inside)).any(|cubin| cubin.freed.is_none()) {
        return None;
    }
    // Elsewhere in the block no image begins: what does is something that the program put there.
    let mut dead = cubins.iter().rev();
    let cubin = dead.find(|cubin| cubin.address == address)?;
    let freed = cubin.freed?;
    let snapshot = image_snapshot(check.plan, check.call);
    let then = source_bytes(&cubin.source, check.context);
    let now = snapshot.and_then(|snapshot| bytes_of(check.context, snapshot.bytes));
    let is_last = || cubins.last().is_some_and(|last| std::ptr::eq(last, cubin));
    let state = match (then.as_deref(), now.as_deref()) {
        _ if snapshot.is_some_and(|snapshot| snapshot.bytes == Bytes::Unreadable) => {
            "The memory was no longer readable.".to_owned()
        }
        (Some(then), Some(now)) if cutape_image::kind(now) != ImageKind::Unknown => {
            remains(check, cubin, freed, then, now)?
        }
        // An unknown kind that the driver accepts belongs to a newer toolkit than ours.
        (_, Some(now)) if cutape_image::kind(now) == ImageKind::Unknown && check.went_wrong() => {
            "The bytes there were no longer those of the cubin: the heap had reused the block."
                .to_owned()
        }
        // Without the bytes, only the last link's cubin is certain enough.
        _ if is_last() => "The bytes there are not in the trace.".to_owned(),
        _ => return None,
    };
    Some(cubin_draft(check, cubin, freed, address, &state))
}

/// What is left of a freed cubin where an image is loaded; `None` if the image is another one,
/// which the program put into a block that the heap had given out again.
fn remains(
    check: &Check<'_, '_>,
    cubin: &Cubin,
    freed: Site,
    then: &[u8],
    now: &[u8],
) -> Option<String> {
    // A load reads no further than the image's own length.
    let common = then.len().min(now.len());
    if common < LEAST_COMMON.min(then.len()) || is_copy_of_other(check, cubin, freed, now) {
        return None;
    }
    let difference = Difference::of(&then[..common], &now[..common], cubin.address);
    let changed = difference.bytes;
    if changed == 0 {
        return Some("The bytes there were still those of the cubin.".to_owned());
    }
    // The driver rejects an image that the heap has damaged further.
    let is_damaged = check.went_wrong() && changed <= common / 2;
    (difference.is_by_heap || is_damaged).then(|| {
        format!(
            "{changed} of the {common} bytes there had changed since the link: the heap writes \
             into blocks that are free."
        )
    })
}

/// How a freed block differs from what it held.
struct Difference {
    /// How many bytes differ.
    bytes: usize,
    /// They are few words, each with a value that a heap keeps in a free block.
    is_by_heap: bool,
}

impl Difference {
    fn of(then: &[u8], now: &[u8], address: u64) -> Self {
        // Words of the heap are aligned, the block need not be.
        let first = (address.wrapping_neg() % 8) as usize;
        let head = first.min(then.len());
        let words = || then[head..].chunks(8).zip(now[head..].chunks(8));
        let mut changed = words().filter(|(then, now)| then != now).map(|pair| pair.1);
        let is_few = words().filter(|(then, now)| then != now).count() <= MOST_HEAP_WORDS;
        let differing = then.iter().zip(now).filter(|(then, now)| then != now);
        Self {
            bytes: differing.count(),
            is_by_heap: is_few
                && then[..head] == now[..head]
                && changed.all(|word| is_heap_word(word, address)),
        }
    }
}

/// Whether a word may be a link of a heap's list of free blocks or the size of a free block, as
/// glibc's malloc writes them.
fn is_heap_word(word: &[u8], block: u64) -> bool {
    let mut bytes = [0; 8];
    bytes[..word.len()].copy_from_slice(word);
    let value = u64::from_le_bytes(bytes);
    let is_near = (value ^ block) >> 36 == 0;
    let is_in_library = (0x7000_0000_0000..0x8000_0000_0000).contains(&value);
    let is_size = value < 1 << 32 && value & 8 == 0 && value > 7;
    is_size || (value % 8 == 0 && (is_near || is_in_library))
}

/// True if the image may be a copy of another link's cubin, in a block that the heap has given out
/// again: of one with these bytes, or of a newer one whose bytes are not known.
fn is_copy_of_other(check: &Check<'_, '_>, cubin: &Cubin, freed: Site, now: &[u8]) -> bool {
    check.state.cubins.iter().any(|other| {
        let is_newer = other.completed.index > freed.index;
        match source_bytes(&other.source, check.context) {
            Some(theirs) => {
                let is_twin = || {
                    let own = source_bytes(&cubin.source, check.context);
                    own.is_some_and(|own| own == theirs)
                };
                !std::ptr::eq(other, cubin) && theirs.starts_with(now) && (is_newer || !is_twin())
            }
            None => is_newer && other.size == cubin.size,
        }
    })
}

fn cubin_draft(
    check: &Check<'_, '_>,
    cubin: &Cubin,
    freed: Site,
    address: u64,
    state: &str,
) -> Draft {
    let label = check.label(cubin.link);
    let answer = match check.call.result() {
        Some(0) => "The driver returned CUDA_SUCCESS because the freed block had not been reused \
                    yet."
            .to_owned(),
        Some(code::INVALID_IMAGE) => "The driver returned CUDA_ERROR_INVALID_IMAGE because the \
                                      freed block had been reused and no image begins there now."
            .to_owned(),
        _ => check.answer(),
    };
    let when = match check.site.index.saturating_sub(freed.index) {
        1 => "just before this call".to_owned(),
        calls => format!("{calls} calls before this one"),
    };
    let message = format!(
        "{} gets {address:#x} as its image. That is the cubin of {} bytes that {} \
         returned. The cubin belongs to {label}, which {} destroyed {when}, so the load \
         reads freed memory. {state} {answer}",
        check.function(),
        cubin.size,
        at(cubin.completed),
        at(freed),
    );
    let created = created_at(check.state, cubin.link);
    let link = match created.is_empty() {
        true => label,
        false => format!("{label} ({created})"),
    };
    let title = "cubin of a destroyed link state loaded";
    Draft::new(rules::LINK_CUBIN_AFTER_DESTROY, title, message)
        .object(cubin.link)
        .chain(vec![
            link,
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
