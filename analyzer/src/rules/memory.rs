//! Device addresses: copies, memsets and kernel parameters that reach freed memory or beyond an
//! allocation.

use cutape_model::{CallArguments, DescribedAccess, ObjectId, described_accesses};
use cutape_registry::{CopyOp, Family, Kind, Length, MemoryType, rules};

use super::context::blame_reset;
use super::{Check, Draft, at, code};
use crate::finding::Severity;
use crate::layouts::pointers;
use crate::plan::Step;

/// An address behind the end of an allocation may be meant for it if it is no more than so many times
/// its length away.
const NEAR: u64 = 4;

/// Whether live memory is long enough, and of the kind that is freed.
pub(super) fn live(check: &Check<'_, '_>, drafts: &mut Vec<Draft>) {
    for &(position, step) in &check.plan.steps {
        match step {
            Step::Device(length) => drafts.extend(bounds(check, position, length)),
            Step::Destroy(kind) => {
                drafts.extend(wrong_kind(check, kind, check.call.argument(position)));
            }
            _ => {}
        }
    }
}

/// Whether an address lies in freed memory.
pub(super) fn freed(check: &Check<'_, '_>, drafts: &mut Vec<Draft>) {
    // Either operand may be host memory, which may now lie at a freed device address.
    if check.plan.copies_unified && !check.went_wrong() {
        return;
    }
    for &(position, step) in &check.plan.steps {
        let Step::Device(length) = step else { continue };
        let found = operand(
            check,
            check.call.argument(position),
            check.parameter(position),
        );
        // A fixed length of 0 means the whole allocation.
        let is_empty = || !matches!(length, Length::Fixed(_)) && bytes(check, length) == Some(0);
        drafts.extend(found.filter(|_| !is_empty()));
    }
}

/// The bytes from the first to the last that a role speaks of.
fn bytes(check: &Check<'_, '_>, length: Length) -> Option<u64> {
    let extent = length.evaluate(check.plan.function, &CallArguments(check.call))?;
    Some(extent.span())
}

/// A piece that begins in an allocation and ends beyond it.
fn bounds(check: &Check<'_, '_>, position: usize, length: Length) -> Option<Draft> {
    // Only the addresses tell which side of a unified copy is the device's.
    if check.plan.copies_unified && !check.went_wrong() {
        return None;
    }
    let address = check.call.argument(position);
    beyond(
        check,
        check.parameter(position),
        address,
        bytes(check, length)?,
    )
}

/// So many bytes from an address on that end beyond the allocation in which they begin.
fn beyond(check: &Check<'_, '_>, name: &str, address: u64, length: u64) -> Option<Draft> {
    let Some(id) = check.state.memory_at(address) else {
        return behind(check, name, address).filter(|_| length > 0);
    };
    let object = check.object(id)?;
    let last = object.handle.saturating_add(object.size);
    let left = last.saturating_sub(address);
    // Memory of unknown size may be longer, and a mapping may continue in the next one.
    if object.size == 0 || length <= left || check.state.objects.end_of(id).is_some() {
        return None;
    }
    let what = format!(
        "accesses {length} bytes from `{name}` {address:#x} on, but {}, {} bytes from {}, has only {} \
         bytes left there: {} bytes too many",
        check.label(id),
        object.size,
        at(object.created),
        left,
        length - left,
    );
    Some(out_of_bounds(check, id, what))
}

fn out_of_bounds(check: &Check<'_, '_>, id: ObjectId, what: String) -> Draft {
    let title = "access beyond the end of an allocation";
    let draft = check.draft(rules::MEMORY_COPY_OUT_OF_BOUNDS, title, what);
    draft.object(id)
}

/// An address that no memory has, and that the driver refused: it may be meant for the allocation
/// before it.
fn behind(check: &Check<'_, '_>, name: &str, address: u64) -> Option<Draft> {
    let state = check.state;
    let is_unknown = check.call.result() == Some(code::INVALID_VALUE)
        && state.place_at(address).is_none()
        && state.freed_at(address).is_none()
        && state.virtual_memory.reservations.find(address).is_none();
    let (_, &id) = is_unknown.then(|| state.memory.live().before(address))??;
    let object = check.object(id)?;
    let last = object.handle.saturating_add(object.size);
    let distance = address.checked_sub(last)?;
    // Further away, it is as likely to have nothing to do with the allocation.
    if distance > object.size.saturating_mul(NEAR) {
        return None;
    }
    let what = format!(
        "gets `{name}` {address:#x}, which no allocation has. {}, {} bytes from {}, ends {distance} \
         bytes before it",
        check.label(id),
        object.size,
        at(object.created),
    );
    Some(out_of_bounds(check, id, what))
}

/// Memory that is freed by the call for another kind, or not by its start.
fn wrong_kind(check: &Check<'_, '_>, kind: Kind, handle: u64) -> Option<Draft> {
    const FREED: [Kind; 4] = [
        Kind::Memory,
        Kind::HostMemory,
        Kind::Registration,
        Kind::Global,
    ];
    let objects = &check.state.objects;
    let is_freed = handle != 0 && FREED.contains(&kind) && check.went_wrong();
    // Libraries unregister what the program may have page-locked before them.
    let is_of_another =
        kind == Kind::Registration && check.call.result() != Some(code::INVALID_VALUE);
    let is_freed = is_freed && !is_of_another;
    if !is_freed || objects.live(kind, handle).is_some() {
        return None;
    }
    let mut others = FREED.into_iter();
    let found = others.find_map(|other| objects.live(other, handle));
    let found = found.or_else(|| check.state.place_at(handle));
    let what = match found.and_then(|id| Some((id, check.object(id)?))) {
        Some((id, object)) if object.handle == handle => format!(
            "frees {}, but gets {}, which is {} from {}",
            kind.name(),
            check.label(id),
            object.kind.name(),
            at(object.created),
        ),
        Some((id, object)) => format!(
            "gets {handle:#x}, which is byte {} of {} from {}. Memory is freed with the address \
             that its allocation returned",
            handle.saturating_sub(object.handle),
            check.label(id),
            at(object.created),
        ),
        None => return unallocated(check, kind, handle),
    };
    let is_whole = found.and_then(|id| Some(check.object(id)?.handle == handle));
    let title = match is_whole {
        Some(true) => "memory freed by the call for another kind",
        _ => "memory freed by an address inside it",
    };
    let draft = check.draft(rules::MEMORY_FREE_WRONG_KIND, title, what);
    found.map(|id| draft.object(id))
}

/// The free of an address where no allocation is.
fn unallocated(check: &Check<'_, '_>, kind: Kind, address: u64) -> Option<Draft> {
    let title = "memory freed that no allocation returned";
    let draft = |what| {
        let draft = check.draft(rules::MEMORY_FREE_WRONG_KIND, title, what);
        draft.subject(address)
    };
    let state = check.state;
    if let Some((_, mapping)) = state.virtual_memory.mappings.find(address) {
        return Some(draft(format!(
            "gets {address:#x}, which {} mapped. A mapping is undone with cuMemUnmap",
            at(mapping.site),
        )));
    }
    let thread = state.threads.get(check.call.thread as usize);
    let is_of_failure = thread.is_some_and(|thread| !thread.failures.is_empty());
    let is_known = state.freed_at(address).is_some() || state.graphs.memory_at(address).is_some();
    let is_refused = check.call.result() == Some(code::INVALID_VALUE);
    if !is_refused || is_known || is_of_failure {
        return None;
    }
    let frees = format!(
        "frees {}, but gets {address:#x}, where the trace has no allocation",
        kind.name()
    );
    match state.host_addresses.copy_with(address) {
        // After a failure, programs make do with malloc, and may try both ways to free.
        Some(copy) if !state.allocation_failed => Some(draft(format!(
            "{frees}, and {} used as host memory. Memory of malloc or the stack is not the \
             driver's to free",
            at(copy),
        ))),
        _ => Some(draft(frees).severity(Severity::Advice)),
    }
}

/// A registration that was refused because of an earlier one.
pub(super) fn registered(check: &Check<'_, '_>) -> Option<Draft> {
    if check.call.result() != Some(code::HOST_MEMORY_ALREADY_REGISTERED) {
        return None;
    }
    let (start, size) = (check.argument("p")?, check.argument("bytesize")?);
    let (range, &id) = check.state.host.live().overlapping(start, size)?;
    let object = check.object(id)?;
    // Libraries register what the program may have page-locked, and ignore that.
    if object.kind != Kind::Registration || object.created.caller != check.site.caller {
        return None;
    }
    let what = format!(
        "registers {size} bytes at {start:#x}, but {} registered {} bytes at {:#x} before, and no \
         call has ended that registration. If the program has unmapped the memory since, the \
         registration still has the old pages",
        at(object.created),
        range.end - range.start,
        range.start,
    );
    let title = "host memory registered again before its registration ended";
    let draft = check.draft(rules::MEMORY_HOST_REGISTER_OVERLAP, title, what);
    // If all of it is registered, the program may not mind.
    let is_whole = range.start <= start && start.saturating_add(size) <= range.end;
    let severity = match is_whole {
        true => Severity::Advice,
        false => Severity::Warning,
    };
    Some(draft.about(id).severity(severity))
}

/// The ended object that an address lies in.
pub(super) fn ended_at(check: &Check<'_, '_>, address: u64) -> Option<ObjectId> {
    let id = check.state.freed_at(address)?;
    check.state.objects.end_of(id)?;
    let uncertain = || check.state.objects.may_be_reused(id) || check.only_released(id);
    (check.went_wrong() || !uncertain()).then_some(id)
}

fn operand(check: &Check<'_, '_>, address: u64, parameter: &str) -> Option<Draft> {
    let id = ended_at(check, address)?;
    let what = format!("{} gets {address:#x} as `{parameter}`", check.function());
    freed_address(check, id, address, &what, false)
}

fn freed_address(
    check: &Check<'_, '_>,
    id: ObjectId,
    address: u64,
    what: &str,
    argument: bool,
) -> Option<Draft> {
    let (object, end) = (check.object(id)?, check.state.objects.end_of(id)?);
    let root = end.by.unwrap_or(id);
    let (rule, title) = match check.kind(root) {
        Some(Kind::Module) => (
            rules::MODULE_GLOBAL_AFTER_UNLOAD,
            "variable of a module used after the unload",
        ),
        Some(Kind::Library) => (
            rules::LIBRARY_USE_AFTER_UNLOAD,
            "variable of a library used after the unload",
        ),
        Some(Kind::Context) => (
            rules::CONTEXT_RESOURCE_AFTER_DESTROY,
            "memory used after the end of its context",
        ),
        _ if argument => (
            rules::MEMORY_USE_AFTER_FREE_KERNEL_ARGUMENT,
            "freed memory passed to a kernel",
        ),
        _ => (
            rules::MEMORY_USE_AFTER_FREE_OPERAND,
            "memory used after it was freed",
        ),
    };
    let place = match address.wrapping_sub(object.handle) {
        0 => "the start".to_owned(),
        offset => format!("byte {offset}"),
    };
    let ended = match root == id {
        true => String::new(),
        false => format!(" together with {}", check.label(root)),
    };
    let message = format!(
        "{what}. That is {place} of {} ({} bytes), which {} returned and {} ended{ended}. No call \
         has allocated memory there since. {}",
        check.label(id),
        object.size,
        at(object.created),
        at(end.site),
        check.answer(),
    );
    let mut draft = Draft::new(rule, title, message).object(id);
    if root != id {
        draft = draft.object(root);
    }
    let draft = draft.chain(check.poison_chain(id));
    Some(blame_reset(check, end.site, draft))
}

/// A launch: parameters that lie in freed memory.
pub(super) fn parameters(check: &Check<'_, '_>, drafts: &mut Vec<Draft>) {
    let (Some(layout), Some(bytes)) = (check.launch_layout(), check.launch_parameters()) else {
        return;
    };
    for pointer in pointers(layout, bytes) {
        let address = pointer.address;
        let Some(id) = ended_at(check, address) else {
            continue;
        };
        let what = format!(
            "{} passes {address:#x} as {} of the kernel",
            check.function(),
            pointer.what(),
        );
        let Some(draft) = freed_address(check, id, address, &what, true) else {
            continue;
        };
        let mut draft = draft.assumed();
        // Whether the kernel follows the pointer is not recorded.
        if draft.rule == rules::MEMORY_USE_AFTER_FREE_KERNEL_ARGUMENT && !check.went_wrong() {
            draft = draft.severity(pointer.severity());
            let others = pointers(layout, bytes).map(|other| other.address);
            if may_be_end(check, address, others) {
                draft = as_maybe_end(draft);
            }
        }
        drafts.push(draft);
    }
}

/// Whether an address may be meant as the end of the memory before it, because another of these
/// addresses lies there: kernels often get the first and the last address of their data.
pub(super) fn may_be_end(
    check: &Check<'_, '_>,
    address: u64,
    mut others: impl Iterator<Item = u64>,
) -> bool {
    let Some(last) = address.checked_sub(1) else {
        return false;
    };
    let state = check.state;
    let live = state.memory.live().find(last).map(|(range, _)| range);
    let before = live
        .or_else(|| state.graphs.memory_around(last))
        .or_else(|| state.virtual_memory.mapped_before(address));
    before
        .is_some_and(|before| before.end == address && others.any(|other| before.contains(&other)))
}

/// A finding about an address that may be meant as the end of other memory, which no kernel follows.
pub(super) fn as_maybe_end(mut draft: Draft) -> Draft {
    draft.message = format!(
        "{} Other memory ends there, of which the kernel gets an address too, so this one may be \
         meant as its end.",
        draft.message.trim_end(),
    );
    draft.severity(Severity::Advice)
}

/// An illegal address, after a kernel was passed host memory that the driver does not know.
pub(super) fn host_pointer_fault(check: &Check<'_, '_>) -> Option<Draft> {
    let known = &check.state.host_addresses;
    let passed = known.parameter.filter(|_| !known.is_reported)?;
    if check.call.result() != Some(code::ILLEGAL_ADDRESS) {
        return None;
    }
    let address = passed.address;
    let message = format!(
        "{} reports that a kernel used an illegal address. {} passed {address:#x} as parameter {} \
         of its kernel. {} used that address as host memory, and it is in neither page-locked nor \
         managed memory. {}",
        check.function(),
        at(passed.launch),
        passed.number,
        at(passed.copy),
        check.answer(),
    );
    let title = "host memory passed to a kernel";
    Some(
        Draft::new(
            rules::MEMORY_HOST_POINTER_AS_KERNEL_ARGUMENT,
            title,
            message,
        )
        .chain(vec![
            format!("{address:#x} used as host memory by {}", at(passed.copy)),
            format!("passed to a kernel by {}", at(passed.launch)),
            format!("illegal address reported by {}", at(check.site)),
        ]),
    )
}

/// Copies that structs or arrays describe: bytes beyond an allocation, and freed memory.
pub(super) fn described(check: &Check<'_, '_>, drafts: &mut Vec<Draft>) {
    let sides = described_accesses(check.plan.function, check.call);
    for side in sides.unwrap_or_default() {
        // Only the address tells whether memory of the unified kind is the device's.
        let is_certain = side.memory == MemoryType::Device
            || (side.memory == MemoryType::Unified && check.went_wrong());
        if !is_certain {
            continue;
        }
        let name = described_name(check, &side);
        let found = beyond(
            check,
            &name,
            side.start,
            side.end.saturating_sub(side.start),
        );
        drafts.extend(found.or_else(|| operand(check, side.start, &name)));
    }
}

/// What a program calls one side of a copy that is described.
pub(super) fn described_name(check: &Check<'_, '_>, side: &DescribedAccess) -> String {
    let (copy, is_write) = (side.copy, side.is_write);
    match check.family() {
        Family::Copy(CopyOp::Batch { .. }) if is_write => format!("dsts[{copy}]"),
        Family::Copy(CopyOp::Batch { .. }) => format!("srcs[{copy}]"),
        Family::Copy(CopyOp::Batch3D { .. }) if is_write => format!("opList[{copy}].dst"),
        Family::Copy(CopyOp::Batch3D { .. }) => format!("opList[{copy}].src"),
        _ if is_write => "dstDevice".to_owned(),
        _ => "srcDevice".to_owned(),
    }
}
