//! Work in two streams on the same memory that nothing orders, and memory that is read before it
//! was written.

use std::ops::Range;

use cutape_format::Note;
use cutape_model::{Access, AccessEffect, AccessKind, ObjectId};
use cutape_registry::{Family, ImplicitWait, Kind, MemoryOp, VirtualMemoryOp, rules};

use super::{Check, Deferral, Draft, at};
use crate::finding::Severity;
use crate::layouts::Pointer;

/// What a finding says of work that it only assumes to use the memory.
const ASSUMPTION: &str = "cutape assumes that the kernel uses the memory that its parameter points \
                          at.";

const OVERWRITTEN: &str =
    "source of an asynchronous copy overwritten before the copy is known to be complete";

const RACE: &str = "two streams use the same memory without an order between them";

/// Conflicting accesses of another stream that are not ordered before this call's.
pub(super) fn unordered(check: &Check<'_, '_>, drafts: &mut Vec<Draft>) {
    let ordering = &check.state.ordering;
    let proven = proven(check);
    let conflict = proven.map(|(access, other, _)| (access, other));
    let conflict = conflict.or_else(|| {
        ordering.current.iter().find_map(|access| {
            let other = ordering.accesses.unordered(access, &check.state.order)?;
            Some((access, other))
        })
    });
    let Some((access, other)) = conflict else {
        return;
    };
    let rule = match other.work {
        AccessKind::Upload => rules::MEMORY_PAGEABLE_H2D_UNORDERED,
        AccessKind::Allocation => rules::MEMORY_POOL_ACCESS_UNORDERED,
        _ => rules::MEMORY_RACE_CROSS_STREAM,
    };
    let mut draft = Draft::new(rule, "", "")
        .culprit(other.site)
        .about(access.object);
    if proven.is_some() {
        draft = draft.proven();
    }
    if check.is_reported(&draft) {
        drafts.push(draft);
        return;
    }
    let label = check.label(access.object);
    let (title, what) = described(check, access, other);
    let is_kernel = |access: &Access| matches!(access.work, AccessKind::Kernel { .. });
    let assumed = proven.is_none() && (is_kernel(access) || is_kernel(other));
    let mut message = format!(
        "{what}. No event, wait of the host or default stream orders the two, so they may run in \
         either order or at once.",
    );
    if let Some((_, _, evidence)) = proven {
        message = format!("{message} Replayed in both orders, {evidence}.");
    } else if assumed {
        message = format!("{message} {ASSUMPTION}");
    }
    let mut draft = draft.text(title, message).chain(vec![
        label,
        format!("{} by {}", noun(other), at(other.site)),
        format!(
            "{} by {}, without a wait between",
            noun(access),
            at(check.site)
        ),
    ]);
    draft.is_assumed = assumed;
    if proven.is_some() {
        draft.chain.push(format!(
            "missing: cuEventRecord after {}, and cuStreamWaitEvent before {}",
            at(other.site),
            at(check.site),
        ));
    } else if assumed || (other.synchronous && other.work != AccessKind::Upload) {
        // Assumed: many programs use a synchronous memset so.
        draft = draft.severity(Severity::Advice);
    }
    drafts.push(draft);
}

/// The title of a finding, and what the two accesses are.
fn described(check: &Check<'_, '_>, access: &Access, other: &Access) -> (&'static str, String) {
    let label = check.label(access.object);
    let (first, second) = (at(other.site), at(check.site));
    let used = used(access);
    match other.work {
        AccessKind::Upload => (
            "copy from pageable memory unordered with the work that uses it",
            format!(
                "{first} copies to {label} from pageable memory, so it may return before its \
                 transfer is done. {second} {used} in another stream, which does not wait for the \
                 default stream",
            ),
        ),
        AccessKind::Allocation => (
            "stream-ordered memory used in a stream that does not wait for its allocation",
            format!(
                "{first} allocates {label} in the order of its stream. {second} {used} in another \
                 stream, which does not wait for the allocation",
            ),
        ),
        AccessKind::Kernel { number, member } => (
            RACE,
            format!(
                "{first} passes {:#x}, in {label}, to a kernel as {}. {second} {used} in \
                 another stream",
                other.address,
                parameter(other.address, number, member),
            ),
        ),
        AccessKind::Node => (
            RACE,
            format!(
                "{first} launches a graph with a node that {} {label} from {:#x} on. {second} \
                 {used} in another stream",
                verb(other),
                other.address,
            ),
        ),
        AccessKind::Copy | AccessKind::Memset => {
            let bytes = access.overlap(other).unwrap_or(access.span());
            let early = match other.synchronous {
                true => " and may return before that is done",
                false => "",
            };
            let what = format!(
                "{first} {} {} bytes at {:#x} of {label}{early}. {second} {used} in another stream",
                verb(other),
                bytes.end - bytes.start,
                bytes.start,
            );
            (RACE, what)
        }
    }
}

/// Unordered accesses of this call and an earlier one whose order replays have shown to matter.
fn proven<'c>(check: &'c Check<'_, '_>) -> Option<(&'c Access, &'c Access, &'c str)> {
    let state = check.state;
    if state.proven.is_empty() {
        return None;
    }
    let all = state.ordering.current.iter().flat_map(|access| {
        let others = state.ordering.accesses.of(access.object).iter();
        others.map(move |other| (access, other))
    });
    let mut unordered = all.filter(|(access, other)| {
        access.overlap(other).is_some() && !state.order.is_before(other.stream, access.stream.0)
    });
    unordered.find_map(|(access, other)| {
        let evidence = state.proven.get(&(other.site.index, check.call.index))?;
        Some((access, other, evidence.as_str()))
    })
}

/// What an access does with memory that was named.
fn used(access: &Access) -> String {
    match access.work {
        AccessKind::Kernel { number, member } => {
            format!(
                "passes {:#x} to a kernel as {}",
                access.address,
                parameter(access.address, number, member)
            )
        }
        AccessKind::Node => format!("launches a graph with a node that {} it", verb(access)),
        _ => format!("{} it", verb(access)),
    }
}

/// The parameter of a kernel, or where in it, that has an address.
fn parameter(address: u64, number: u16, member: Option<u16>) -> String {
    let pointer = Pointer {
        number: number.into(),
        member: member.map(u32::from),
        address,
    };
    pointer.what()
}

fn verb(access: &Access) -> &'static str {
    match access.effect {
        AccessEffect::Read => "reads",
        AccessEffect::Write | AccessEffect::Unknown => "writes",
    }
}

/// What an access does, as a participle.
fn noun(access: &Access) -> &'static str {
    match (access.work, access.effect) {
        (AccessKind::Kernel { .. }, _) => "passed to a kernel",
        (AccessKind::Allocation, _) => "allocated",
        (_, AccessEffect::Read) => "read",
        _ => "written",
    }
}

/// A copy from memory that nothing has written.
pub(super) fn uninitialised(check: &Check<'_, '_>, drafts: &mut Vec<Draft>) {
    let ordering = &check.state.ordering;
    let reads = ordering.current.iter();
    let reads = reads.filter(|access| access.effect == AccessEffect::Read);
    let unwritten = reads.filter(|access| {
        let span = access.span();
        let written = ordering.fresh.get(&access.object);
        written.is_some_and(|written| {
            written
                .iter()
                .all(|known| known.end <= span.start || known.start >= span.end)
        })
    });
    for access in unwritten {
        let Some(object) = check.object(access.object) else {
            continue;
        };
        let what = format!(
            "reads {} bytes at {:#x} of {}, which {} allocated. No copy or memset has written any \
             of them, and no kernel or graph was launched since the allocation. Fresh device \
             memory has no defined content",
            access.extent.content(),
            access.address,
            check.label(access.object),
            at(object.created),
        );
        let title = "device memory read before it was written";
        drafts.push(
            check
                .draft(rules::MEMORY_UNINITIALISED_READ, title, what)
                .about(access.object),
        );
    }
}

/// An allocation that gets memory which a kernel in a third stream may still use.
pub(super) fn reused(check: &Check<'_, '_>, drafts: &mut Vec<Draft>) {
    let ordering = &check.state.ordering;
    let (Some(stream), Some(start)) = (
        ordering.stream,
        check.plan.at("dptr").and_then(|at| check.call.out(at)),
    ) else {
        return;
    };
    let size = check.argument("bytesize").unwrap_or(0);
    let found = ordering.freed.iter().find(|freed| {
        freed.start < start.saturating_add(size)
            && start < freed.start.saturating_add(freed.size)
            && !check.state.order.is_before(freed.access.stream, stream)
    });
    let Some(freed) = found else { return };
    let message = format!(
        "{} returned {size} bytes at {start:#x}. {} freed memory there in the order of its stream. \
         That stream had not waited for {}, which passed an address in the memory to a kernel in \
         another stream. Nothing has waited for that kernel since, so it may still use the memory. \
         {ASSUMPTION}",
        check.function(),
        at(freed.freed),
        at(freed.access.site),
    );
    let title = "memory allocated again while a kernel in another stream may use it";
    drafts.push(
        Draft::new(rules::MEMORY_REUSE_CROSS_STREAM, title, message)
            .culprit(freed.access.site)
            .about(freed.access.object)
            .chain(vec![
                format!("passed to a kernel by {}", at(freed.access.site)),
                format!("freed by {} in another stream", at(freed.freed)),
                format!("allocated again by {}", at(check.site)),
            ]),
    );
}

/// Memory that is freed while work may use it.
pub(super) fn freed_while_pending(check: &Check<'_, '_>, drafts: &mut Vec<Draft>) {
    if check.went_wrong() {
        return;
    }
    for &(position, step) in &check.plan.steps {
        let crate::plan::Step::Destroy(kind) = step else {
            continue;
        };
        let handle = check.call.argument(position);
        let Some(id) = check.state.objects.live(kind, handle) else {
            continue;
        };
        drafts.extend(pending_use(check, kind, id, None));
    }
    if let Family::VirtualMemory(VirtualMemoryOp::Unmap { address, size }) = check.family() {
        let [start, size] = [address, size].map(|at| check.call.argument(usize::from(at)));
        let bytes = start..start.saturating_add(size);
        let mappings = check.state.virtual_memory.mappings.pieces(&bytes);
        let mut allocations = mappings.filter_map(|(_, mapping)| mapping.allocation);
        drafts.extend(
            allocations.find_map(|id| pending_use(check, Kind::Allocation, id, Some(&bytes))),
        );
    }
}

fn is_stream_ordered(check: &Check<'_, '_>) -> bool {
    check.family() == Family::Memory(MemoryOp::FreeAsync)
}

/// Whether the drivers that were measured wait for the work on what the call releases.
fn waits(check: &Check<'_, '_>) -> bool {
    check.plan.function.implicit_wait != ImplicitWait::No
}

/// The rule about memory that is released while work may use it, the title, and why it matters.
fn of_release(
    check: &Check<'_, '_>,
    kind: Kind,
    id: ObjectId,
) -> (&'static str, &'static str, &'static str) {
    let origin = check
        .object(id)
        .and_then(crate::state::ordering::memory_origin);
    let pool = origin == Some(crate::state::data::MemoryOrigin::Pool);
    let why = match waits(check) {
        true => {
            "The drivers that were measured wait for it, which the manual does not promise and \
             which costs time"
        }
        false => "That the call waits for it is not promised, and was not seen",
    };
    match kind {
        _ if is_stream_ordered(check) => (
            rules::MEMORY_POOL_ACCESS_UNORDERED,
            "stream-ordered memory freed before work of another stream on it",
            "The free is in the order of its stream, which does not wait for that work",
        ),
        Kind::HostMemory | Kind::Registration => (
            rules::MEMORY_HOST_BUFFER_FREED_WHILE_PENDING,
            "host memory released while work may still use it",
            why,
        ),
        _ if pool => (
            rules::MEMORY_FREE_POOL_POINTER_IN_USE,
            "memory of a pool freed by cuMemFree while work may still use it",
            "cuMemFree does not wait for the work on memory of a pool",
        ),
        Kind::Allocation => (
            rules::MEMORY_FREE_PENDING_WORK,
            "memory unmapped while work may still use it",
            why,
        ),
        _ => (
            rules::MEMORY_FREE_PENDING_WORK,
            "memory freed while work may still use it",
            why,
        ),
    }
}

/// Work that may still use memory that the call releases, or unmaps from these addresses.
fn pending_use(
    check: &Check<'_, '_>,
    kind: Kind,
    id: ObjectId,
    unmapped: Option<&Range<u64>>,
) -> Option<Draft> {
    let order = &check.state.order;
    let stream_ordered = is_stream_ordered(check);
    let stream = check.state.ordering.stream;
    let pending = |access: &&Access| {
        !access.synchronous
            && unmapped.is_none_or(|bytes| bytes.contains(&access.address))
            && (stream_ordered || access.work != AccessKind::Allocation)
            && match stream.filter(|_| stream_ordered) {
                Some(stream) => !order.is_before(access.stream, stream),
                None => !order.is_done(access.stream.0, access.stream.1),
            }
    };
    let accesses = check.state.ordering.accesses.of(id);
    let is_kernel = |access: &&Access| matches!(access.work, AccessKind::Kernel { .. });
    let certain = accesses
        .iter()
        .filter(pending)
        .rfind(|access| !is_kernel(access));
    let access = certain.or_else(|| accesses.iter().rfind(|access| pending(access)))?;
    let assumed = is_kernel(&access);
    let (rule, title, why) = of_release(check, kind, id);
    let draft = Draft::new(rule, "", "").culprit(access.site).about(id);
    if check.is_reported(&draft) {
        return Some(draft);
    }
    let mut message = format!(
        "{} {} {} while {}, which {} it, may not be complete: no call since then has waited \
         for that work. {why}.",
        check.function(),
        if unmapped.is_some() {
            "unmaps"
        } else {
            "releases"
        },
        check.label(id),
        at(access.site),
        match assumed {
            true => "passes a kernel an address in",
            false if access.work == AccessKind::Allocation => "allocates",
            false if access.effect == AccessEffect::Read => "reads",
            false => "writes",
        },
    );
    if assumed {
        message = format!("{message} {ASSUMPTION}");
    }
    let mut draft = draft.text(title, message).chain(vec![
        check.label(id),
        format!("{} by {}", noun(access), at(access.site)),
        format!("released by {}", at(check.site)),
    ]);
    if assumed {
        draft = draft.assumed().severity(Severity::Advice);
        // If the memory is given out before the kernel is over, that is the finding.
        draft.deferral = stream_ordered.then_some(Deferral::Reuse(id));
    } else if !waits(check) && rule == rules::MEMORY_FREE_PENDING_WORK {
        draft = draft.severity(Severity::Warning);
    }
    Some(draft)
}

/// Page-locked memory that had changed when a call proved the copies from it complete.
pub(super) fn changed_at_wait(check: &Check<'_, '_>, drafts: &mut Vec<Draft>) {
    for note in check.call.notes() {
        let Note::SourceChanged(note) = note else {
            continue;
        };
        let Some(source) = check.state.changed_source(note.address, note.length) else {
            continue;
        };
        let message = format!(
            "After {} has waited for the copy, {} has other bytes than after {}, which copies from \
             it. The CPU has overwritten them, perhaps before they were read. Assumed: no call of \
             another thread proved the copy complete while this one waited.",
            at(check.site),
            check.label(source.object),
            at(source.site),
        );
        drafts.push(
            Draft::new(rules::MEMORY_RACE_HOST_ACCESS, OVERWRITTEN, message)
                .about(source.object)
                .culprit(source.site)
                .chain(vec![
                    check.label(source.object),
                    format!("read by {}", at(source.site)),
                    "overwritten by the CPU".to_owned(),
                    format!("known to be complete from {} on", at(check.site)),
                ]),
        );
    }
}

/// Page-locked memory that the CPU wrote while an earlier copy from it may not have run.
pub(super) fn overwritten(check: &Check<'_, '_>, drafts: &mut Vec<Draft>) {
    let found = check
        .state
        .overwritten_source(check.plan, check.call, check.context);
    let Some((source, object)) = found else {
        return;
    };
    let message = format!(
        "{} copies from {}, whose bytes are not those that it had when {} copied from it. No call \
         since then has waited for that copy, so the CPU may have overwritten them before they \
         were read.",
        at(check.site),
        check.label(object),
        at(source.site),
    );
    drafts.push(
        Draft::new(rules::MEMORY_RACE_HOST_ACCESS, OVERWRITTEN, message)
            .about(object)
            .culprit(check.site)
            .chain(vec![
                check.label(object),
                format!("read by {}", at(source.site)),
                "overwritten by the CPU".to_owned(),
                format!("read again by {}", at(check.site)),
            ]),
    );
}
