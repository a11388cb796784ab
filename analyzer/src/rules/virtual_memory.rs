//! Virtual memory: reserve, map and give access in that order; multicast objects.

use std::ops::Range;

use cutape_model::{CallArguments, described_accesses};
use cutape_registry::{Family, Kind, MulticastOp, VirtualMemoryOp, rules};

use super::memory::{as_maybe_end, described_name, may_be_end};
use super::{Check, Draft, Rule, When, at, code};
use crate::finding::Severity;
use crate::layouts::pointers;
use crate::plan::{Plan, Step};

/// For copies and memsets.
pub(super) fn rule_of(plan: &Plan) -> Option<(When, Rule)> {
    let applies = matches!(plan.function.family, Family::Copy(_) | Family::Memset);
    applies.then_some((When::ReservedWrong, Rule::Consequence(operand_access)))
}

/// Every granularity that drivers have returned is a multiple of it (assumed for others).
const LEAST_GRANULARITY: u64 = 64 << 10;

/// A refused call that reserves, maps, unmaps or gives access.
pub(super) fn refused(check: &Check<'_, '_>) -> Option<Draft> {
    // NOT_SUPPORTED: a size that is no multiple of the granularity.
    if !matches!(
        check.call.result(),
        Some(code::INVALID_VALUE | code::NOT_SUPPORTED)
    ) {
        return None;
    }
    let Family::VirtualMemory(operation) = check.family() else {
        return None;
    };
    let argument = |position: u8| check.call.argument(usize::from(position));
    let what = match operation {
        VirtualMemoryOp::Map { address, size, .. } => {
            map_error(check, argument(address), argument(size))?
        }
        VirtualMemoryOp::Unmap { address, size } => {
            unmap_error(check, argument(address), argument(size))?
        }
        VirtualMemoryOp::FreeReservation => {
            free_error(check, check.argument("ptr")?, check.argument("size")?)?
        }
        VirtualMemoryOp::SetAccess { address, size } => {
            let (address, size) = (argument(address), argument(size));
            if check.state.virtual_memory.is_mapped(address, size) {
                return None;
            }
            let what = format!(
                "gives access to {size} bytes at {address:#x}, of which some are not mapped"
            );
            let title = "access given to addresses that are not mapped";
            return Some(check.draft(rules::MEMORY_VMM_ACCESS_NOT_SET, title, what));
        }
        _ => return None,
    };
    let title = "mapping calls out of order";
    Some(check.draft(rules::MEMORY_VMM_MAP_ORDER, title, what))
}

fn map_error(check: &Check<'_, '_>, address: u64, size: u64) -> Option<String> {
    let memory = &check.state.virtual_memory;
    if let Some(offset) = check.argument("offset").filter(|&offset| offset != 0) {
        return Some(format!("maps with offset {offset}, which must be 0"));
    }
    let end = address.saturating_add(size);
    let reserved = memory.reservations.find(address).map(|found| found.0);
    match reserved {
        None => {
            return Some(format!(
                "maps {size} bytes at {address:#x}, which no live reservation holds"
            ));
        }
        Some(range) if end > range.end => {
            return Some(format!(
                "maps {size} bytes at {address:#x}, beyond the end of the reservation of {} bytes \
                 at {:#x}",
                range.end - range.start,
                range.start
            ));
        }
        Some(_) => {}
    }
    if let Some((range, mapping)) = memory.mappings.overlapping(address, size) {
        return Some(format!(
            "maps {size} bytes at {address:#x}, where {} has mapped {} bytes at {:#x}",
            at(mapping.site),
            range.end - range.start,
            range.start
        ));
    }
    if size == 0 || !(address | size).is_multiple_of(LEAST_GRANULARITY) {
        return Some(format!(
            "maps {size} bytes at {address:#x}. Address and size must be multiples of the \
             granularity that cuMemGetAllocationGranularity returns"
        ));
    }
    let allocation = check.live(Kind::Allocation)?;
    let has = check.object(allocation)?.size;
    let label = || check.label(allocation);
    (has != 0 && size > has).then(|| format!("maps {size} bytes of {}, which has {has}", label()))
}

fn unmap_error(check: &Check<'_, '_>, address: u64, size: u64) -> Option<String> {
    let memory = &check.state.virtual_memory;
    if memory.are_whole_mappings(address, size) {
        return None;
    }
    Some(match memory.mappings.overlapping(address, size) {
        Some((range, mapping)) => format!(
            "unmaps {size} bytes at {address:#x}, but {} mapped {} bytes at {:#x}. A mapping is \
             unmapped as a whole",
            at(mapping.site),
            range.end - range.start,
            range.start
        ),
        None => format!("unmaps {size} bytes at {address:#x}, where nothing is mapped"),
    })
}

fn free_error(check: &Check<'_, '_>, address: u64, size: u64) -> Option<String> {
    let memory = &check.state.virtual_memory;
    let found = memory.reservations.find(address);
    if let Some((range, site)) = &found
        && (range.start != address || range.end - range.start != size)
    {
        return Some(format!(
            "frees {size} bytes of addresses at {address:#x}, but {} reserved {} bytes at {:#x}",
            at(**site),
            range.end - range.start,
            range.start
        ));
    }
    let (range, mapping) = memory.mappings.overlapping(address, size)?;
    found?;
    Some(format!(
        "frees the reservation at {address:#x}, in which {} bytes at {:#x} are still mapped by {}",
        range.end - range.start,
        range.start,
        at(mapping.site)
    ))
}

/// The device that the call's work runs on, if its context is known and shares nothing.
fn device(check: &Check<'_, '_>) -> Option<i32> {
    let stream = check.plan.stream(check.call);
    let of_stream = stream.and_then(|stream| check.state.stream_context(stream));
    let current = || check.state.contexts.current(check.call.thread).object;
    let context = of_stream.or_else(current)?;
    let is_known = check.owns_content(context);
    check.state.device_of(context).filter(|_| is_known)
}

/// A copy or memset that failed on addresses without a mapping, or on a mapping to which its device
/// has no access.
pub(super) fn operand_access(check: &Check<'_, '_>) -> Option<Draft> {
    let device = device(check);
    let function = check.plan.function;
    let steps = check.plan.steps.iter().filter_map(|&(position, step)| {
        let Step::Device(length) = step else {
            return None;
        };
        let start = check.call.argument(position);
        let extent = length.evaluate(function, &CallArguments(check.call));
        let length = extent.map_or(1, |extent| extent.span());
        let bytes = start..start.saturating_add(length);
        Some((check.parameter(position).to_owned(), bytes))
    });
    let described = described_accesses(function, check.call).unwrap_or_default();
    let described = described.iter();
    let described = described.map(|side| (described_name(check, side), side.span()));
    let memory = &check.state.virtual_memory;
    steps.chain(described).find_map(|(name, bytes)| {
        let without = device.and_then(|device| {
            let mut mappings = memory.mappings.pieces(&bytes);
            let found = mappings.find(|(_, mapping)| mapping.access_of(device) == Some(0));
            found.map(|(piece, mapping)| (device, piece, mapping))
        });
        let (title, what) = match without {
            Some((device, piece, mapping)) => (
                "mapped memory used without access to it",
                format!(
                    "At {:#x}, {} mapped memory, and no cuMemSetAccess has given device {device} \
                     access to that mapping since",
                    piece.start,
                    at(mapping.site),
                ),
            ),
            None => (
                "reserved addresses used without a mapping",
                unmapped(check, &bytes)?,
            ),
        };
        let what = format!("uses `{name}` {:#x}. {what}", bytes.start);
        Some(check.draft(rules::MEMORY_VMM_ACCESS_NOT_SET, title, what))
    })
}

/// Addresses that begin in a reservation and are not mapped throughout.
fn unmapped(check: &Check<'_, '_>, bytes: &Range<u64>) -> Option<String> {
    let memory = &check.state.virtual_memory;
    let (_, site) = memory.reservations.find(bytes.start)?;
    let is_mapped = memory.is_mapped(bytes.start, bytes.end - bytes.start);
    if is_mapped || check.call.result() != Some(code::INVALID_VALUE) {
        return None;
    }
    Some(format!(
        "{} reserved that address, and no memory is mapped to some of the {} bytes from there on",
        at(*site),
        bytes.end - bytes.start,
    ))
}

/// A launch with an address in a mapping to which nothing has access.
pub(super) fn parameter_access(check: &Check<'_, '_>, drafts: &mut Vec<Draft>) {
    if drafts.is_empty() {
        drafts.extend(without_access(check));
    }
}

fn without_access(check: &Check<'_, '_>) -> Option<Draft> {
    let device = device(check)?;
    let (layout, bytes) = (check.launch_layout()?, check.launch_parameters()?);
    let found = pointers(layout, bytes).filter_map(|pointer| {
        let address = pointer.address;
        let (_, mapping) = check.state.virtual_memory.mappings.find(address)?;
        if mapping.access_of(device)? != 0 {
            return None;
        }
        let what = format!(
            "passes {address:#x} as {} of the kernel. {} mapped that memory, and no cuMemSetAccess \
             has given device {device} access to the mapping since",
            pointer.what(),
            at(mapping.site),
        );
        let title = "mapped memory passed to a kernel without access to it";
        let draft = check
            .draft(rules::MEMORY_VMM_ACCESS_NOT_SET, title, what)
            .assumed();
        let others = pointers(layout, bytes).map(|other| other.address);
        // Whether the kernel follows the pointer is not recorded.
        Some(match check.went_wrong() {
            true => draft,
            false if may_be_end(check, address, others) => as_maybe_end(draft),
            // Kernels of several devices often get the same parameters.
            false if !mapping.has_no_access() => draft.severity(Severity::Advice),
            false => draft.severity(pointer.severity()),
        })
    });
    found.min_by_key(|draft| draft.severity == Some(Severity::Advice))
}

/// Memory bound to a multicast object that lacks devices, or unbound as it was not bound.
pub(super) fn multicast(check: &Check<'_, '_>, drafts: &mut Vec<Draft>) {
    if !drafts.is_empty() {
        return;
    }
    drafts.extend(match check.family() {
        Family::Multicast(MulticastOp::Bind) => bound_too_early(check),
        Family::Multicast(MulticastOp::Unbind) => unbound_otherwise(check),
        _ => None,
    });
}

fn bound_too_early(check: &Check<'_, '_>) -> Option<Draft> {
    let group = check.state.multicasts.get(&check.argument("mcHandle")?)?;
    if group.is_shared || group.devices.len() >= group.wanted || !check.went_wrong() {
        return None;
    }
    let object = check.live(Kind::Allocation)?;
    let what = format!(
        "binds memory to {}, which has {} of its {} devices. The call waits until all are added, \
         and no other process can add them",
        check.label(object),
        group.devices.len(),
        group.wanted,
    );
    let title = "memory bound to a multicast object that lacks devices";
    let draft = check.draft(rules::MEMORY_MULTICAST_ORDER, title, what);
    Some(draft.object(object))
}

fn unbound_otherwise(check: &Check<'_, '_>) -> Option<Draft> {
    let group = check.state.multicasts.get(&check.argument("mcHandle")?)?;
    let piece = (check.argument("mcOffset")?, check.argument("size")?);
    if group.is_shared || group.bound.contains(&piece) {
        return None;
    }
    let object = check.live(Kind::Allocation)?;
    let bound = group.bound.iter().take(4);
    let bound: Vec<String> = bound
        .map(|(offset, size)| format!("{size} bytes at {offset}"))
        .collect();
    let bound = match bound.is_empty() {
        true => "nothing".to_owned(),
        false => bound.join(", "),
    };
    let what = format!(
        "unbinds {} bytes at offset {} of {}, to which {bound} is bound. Offset and size must be \
         those of the bind",
        piece.1,
        piece.0,
        check.label(object),
    );
    let title = "multicast memory unbound otherwise than it was bound";
    let draft = check.draft(rules::MEMORY_MULTICAST_ORDER, title, what);
    Some(draft.object(object))
}
