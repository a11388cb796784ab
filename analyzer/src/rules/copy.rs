//! Copies and memsets whose arguments contradict each other.

use cutape_format::layout::field;
use cutape_model::described_accesses_in;
use cutape_registry::{CopyOp, Family, MemoryType, STREAM_LEGACY, Width, canonical_stream, rules};

use super::{Check, Draft, code};
use crate::context::bytes_of;

const REFUSED: &str = "copy or memset with inconsistent arguments";

/// A copy that a struct describes, refused by the driver: which members contradict each other.
pub(super) fn descriptor(check: &Check<'_, '_>) -> Option<Draft> {
    if check.call.result() != Some(code::INVALID_VALUE) {
        return None;
    }
    let (structure, bytes) = check.structure_at(0)?;
    let read = |name: &str| structure.number(bytes, name);
    let sides = ["src", "dst"].into_iter();
    let what = sides
        .flat_map(|side| side_errors(check, side, &read))
        .next()?;
    let what = format!("describes a copy in which {what}");
    Some(check.draft(rules::MEMORY_COPY_DESCRIPTOR, REFUSED, what))
}

/// What is wrong with one side of a copy.
fn side_errors(
    check: &Check<'_, '_>,
    side: &str,
    read: &dyn Fn(&str) -> Option<u64>,
) -> Vec<String> {
    let of = |member: &str| read(&format!("{side}{member}"));
    let mut errors = Vec::new();
    let kind = of("MemoryType").unwrap_or(0);
    let is_array = kind == MemoryType::Array as u64;
    if MemoryType::of(kind).is_none() {
        errors.push(format!(
            "`{side}MemoryType` is {kind}, which is no CUmemorytype"
        ));
    }
    if let (Some(pitch), Some(x), Some(width)) = (of("Pitch"), of("XInBytes"), read("WidthInBytes"))
        && !is_array
        && pitch != 0
        && pitch < x.saturating_add(width)
    {
        errors.push(format!(
            "`{side}Pitch` is {pitch}, less than the {} bytes that `{side}XInBytes` {x} and \
             `WidthInBytes` {width} need in a row",
            x.saturating_add(width)
        ));
    }
    if let (Some(height), Some(y), Some(rows)) = (of("Height"), of("Y"), read("Height"))
        && !is_array
        && height != 0
        && height < y.saturating_add(rows)
    {
        errors.push(format!(
            "`{side}Height` is {height}, less than the {} rows that `{side}Y` {y} and `Height` \
             {rows} need",
            y.saturating_add(rows)
        ));
    }
    if let Some(level) = of("LOD").filter(|&level| level != 0) {
        errors.push(format!("`{side}LOD` is {level} instead of 0"));
    }
    let host = of("Host").filter(|_| kind == MemoryType::Host as u64);
    if let Some(id) = host.and_then(|address| check.state.memory_at(address)) {
        errors.push(format!(
            "`{side}MemoryType` is CU_MEMORYTYPE_HOST, but `{side}Host` is {}",
            check.label(id)
        ));
    }
    errors
}

/// A memset of words at an address that is not a multiple of their size, or of rows longer than
/// their pitch.
pub(super) fn memset(check: &Check<'_, '_>) -> Option<Draft> {
    if check.call.result() != Some(code::INVALID_VALUE) {
        return None;
    }
    let mut params = check.plan.function.params.iter();
    let element = params.find_map(|param| match param.width {
        Width::Unsigned(bytes @ (1 | 2 | 4)) => Some(u64::from(bytes)),
        _ => None,
    })?;
    let address = check.argument("dstDevice")?;
    let what = if address % element != 0 {
        format!("sets elements of {element} bytes at {address:#x}, which is no multiple of that")
    } else {
        let (pitch, width) = (check.argument("dstPitch")?, check.argument("Width")?);
        let row = width.saturating_mul(element);
        if pitch >= row {
            return None;
        }
        format!("sets rows of {row} bytes with a pitch of {pitch}")
    };
    Some(check.draft(rules::MEMORY_COPY_DESCRIPTOR, REFUSED, what))
}

/// Bytes that a copy of a batch reads or writes.
#[derive(Clone, Copy, Debug)]
struct Side {
    start: u64,
    end: u64,
    copy: usize,
    is_target: bool,
}

/// A batch of copies that depend on each other, or whose attributes are malformed.
pub(super) fn batch(check: &Check<'_, '_>, drafts: &mut Vec<Draft>) {
    let found = dependent(check);
    drafts.extend(found.or_else(|| malformed(check).filter(|_| drafts.is_empty())));
}

/// The numbers in an array of the call.
fn array(check: &Check<'_, '_>, position: usize) -> Option<Vec<u64>> {
    let snapshot = check.call.snapshot(position, field::POINTEE)?;
    let bytes = bytes_of(check.context, snapshot.bytes)?;
    let words = bytes.as_chunks::<8>().0.iter();
    Some(words.map(|word| u64::from_le_bytes(*word)).collect())
}

fn dependent(check: &Check<'_, '_>) -> Option<Draft> {
    let read = |position| {
        let snapshot = check.call.snapshot(position, field::POINTEE)?;
        bytes_of(check.context, snapshot.bytes)
    };
    let sides = described_accesses_in(check.plan.function, &read)?;
    let sides = sides.iter().map(|side| Side {
        start: side.start,
        // Of rows with bytes between them, the first.
        end: side.start.saturating_add(side.extent.row),
        copy: side.copy,
        is_target: side.is_write,
    });
    let (first, second) = overlap(sides.collect())?;
    let verb = |side: Side| if side.is_target { "writes" } else { "reads" };
    let what = format!(
        "has copies that depend on each other: copy {} {} {:#x}..{:#x}, and copy {} {} \
         {:#x}..{:#x}. The copies of a batch have no order among themselves, so the result is \
         undefined",
        first.copy,
        verb(first),
        first.start,
        first.end,
        second.copy,
        verb(second),
        second.start,
        second.end,
    );
    let title = "batch of copies that depend on each other";
    Some(check.draft(rules::MEMORY_BATCH_COPY_INVALID, title, what))
}

/// Two sides of different copies that share a byte which one of them writes.
fn overlap(mut sides: Vec<Side>) -> Option<(Side, Side)> {
    sides.sort_by_key(|side| side.start);
    // Those that reach furthest, of all and of the targets.
    let (mut any, mut target): (Option<Side>, Option<Side>) = (None, None);
    for side in sides {
        let reached = if side.is_target { any } else { target };
        if let Some(other) = reached.filter(|other| other.end > side.start)
            && other.copy != side.copy
        {
            return Some((other, side));
        }
        let further = |old: Option<Side>| old.is_none_or(|old| old.end <= side.end);
        if further(any) {
            any = Some(side);
        }
        if side.is_target && further(target) {
            target = Some(side);
        }
    }
    None
}

fn malformed(check: &Check<'_, '_>) -> Option<Draft> {
    if !check.went_wrong() {
        return None;
    }
    let stream = check.plan.stream(check.call)?;
    let stream = canonical_stream(stream, check.plan.function.per_thread);
    let what = match stream == STREAM_LEGACY {
        true => "puts a batch into the legacy default stream, which takes none".to_owned(),
        false => attribute_error(check).or_else(|| order_error(check))?,
    };
    let title = "malformed batch of copies";
    Some(check.draft(rules::MEMORY_BATCH_COPY_INVALID, title, what))
}

/// What is wrong with the attributes of a batch of lines, and the copies that they are for.
fn attribute_error(check: &Check<'_, '_>) -> Option<String> {
    let (count, attributes) = (check.argument("count")?, check.argument("numAttrs")?);
    let indices = check.plan.at("attrsIdxs");
    let indices = indices.and_then(|position| array(check, position));
    let indices = indices.unwrap_or_default();
    if attributes > count {
        Some(format!("has {attributes} attributes for {count} copies"))
    } else if attributes == 0 && count > 0 {
        Some(format!("has no attributes for its {count} copies"))
    } else if indices.first().is_some_and(|&first| first != 0) {
        Some("has no attribute for its first copy: the first index is not 0".to_owned())
    } else if !indices.is_sorted_by(|a, b| a < b) {
        Some("has indices of attributes that do not rise".to_owned())
    } else if indices.last().is_some_and(|&last| last >= count) {
        Some("has an attribute for a copy beyond the last one".to_owned())
    } else {
        None
    }
}

/// A copy of a batch without a `srcAccessOrder`, which a struct of zeros has none of.
fn order_error(check: &Check<'_, '_>) -> Option<String> {
    let (list, position) = match check.family() {
        Family::Copy(CopyOp::Batch { attributes, .. }) => ("attrs", attributes),
        Family::Copy(CopyOp::Batch3D { operations, .. }) => ("opList", operations),
        _ => return None,
    };
    let (structure, bytes) = check.structure_at(position.into())?;
    let mut entries = bytes.chunks_exact(structure.size).enumerate();
    let number = |entry: &[u8], name: &str| structure.number(entry, name);
    entries.find_map(|(index, entry)| {
        let order = number(entry, "srcAccessOrder")? as u32;
        (!(1..=3).contains(&order)).then(|| {
            format!(
                "has `{list}[{index}].srcAccessOrder` {order}, which is no CUmemcpySrcAccessOrder"
            )
        })
    })
}
