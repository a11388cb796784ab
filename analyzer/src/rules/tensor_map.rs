//! Tensor maps: what a refused call violates, extents beyond the allocation, and launches with maps
//! of freed memory.

use cutape_format::layout::field;
use cutape_registry::{Kind, rules};

use super::memory::ended_at;
use super::{Check, Draft, at};
use crate::finding::Severity;
use crate::state::TENSOR_MAP_BYTES;

/// Bytes of an element by `CUtensorMapDataType`; types with packed elements are left out.
const ELEMENT_BYTES: [u64; 13] = [1, 2, 4, 4, 8, 8, 2, 4, 8, 2, 4, 4, 4];
/// Bytes of the inner dimension that `CUtensorMapSwizzle` permits; 0: no limit.
const SWIZZLE_BYTES: [u64; 7] = [0, 32, 64, 128, 128, 128, 128];

/// The elements of an array behind a parameter, of four or eight bytes.
fn array<const N: usize>(check: &Check<'_, '_>, name: &str) -> Vec<u64> {
    let read = || {
        let position = check.plan.at(name)?;
        let snapshot = check.call.snapshot(position, field::POINTEE)?;
        let bytes = snapshot.bytes.inline()?;
        let words = bytes.as_chunks::<N>().0.iter().map(|chunk| {
            let mut word = [0; 8];
            word[..N].copy_from_slice(chunk);
            u64::from_le_bytes(word)
        });
        Some(words.collect())
    };
    read().unwrap_or_default()
}

/// A number of 32 bits.
fn small(check: &Check<'_, '_>, name: &str) -> Option<u64> {
    check.argument(name).map(|value| value & 0xffff_ffff)
}

/// A tensor map that the driver refused.
pub(super) fn refused(check: &Check<'_, '_>) -> Option<Draft> {
    let why = violated(check)?;
    let title = "tensor map outside of its limits";
    Some(check.draft(
        rules::TEXTURE_TENSOR_MAP_CONSTRAINTS,
        title,
        format!("gets {why}"),
    ))
}

fn violated(check: &Check<'_, '_>) -> Option<String> {
    let capability = check.state.capability(check.call.thread, check.context);
    if let Some((major, minor)) = capability.filter(|&capability| capability < (9, 0)) {
        return Some(format!(
            "a device of compute capability {major}.{minor}; tensor maps need 9.0"
        ));
    }
    let map = check.argument("tensorMap")?;
    if !map.is_multiple_of(64) {
        return Some(format!(
            "the descriptor {map:#x}, which is not aligned to 64 bytes"
        ));
    }
    let address = check.argument("globalAddress")?;
    let interleave = small(check, "interleave").unwrap_or(0);
    let data_type = small(check, "tensorDataType").unwrap_or(0);
    let is_packed = data_type as usize >= ELEMENT_BYTES.len();
    let unit = if interleave == 2 { 32 } else { 16 };
    if !address.is_multiple_of(unit) {
        return Some(format!(
            "the address {address:#x}, which is not a multiple of {unit}"
        ));
    }
    let rank = small(check, "tensorRank")?;
    let least = if interleave == 0 { 1 } else { 3 };
    if !(least..=5).contains(&rank) {
        return Some(format!("{rank} dimensions; it takes {least} to 5"));
    }
    let strides = array::<8>(check, "globalStrides");
    if let Some(stride) = strides.iter().find(|stride| !stride.is_multiple_of(unit)) {
        return Some(format!(
            "a stride of {stride} bytes, which is not a multiple of {unit}"
        ));
    }
    if let Some(stride) = strides.iter().find(|&&stride| stride >= 1 << 40) {
        return Some(format!("a stride of {stride} bytes; it must be below 2^40"));
    }
    let dims = array::<8>(check, "globalDim");
    if let Some(dim) = dims.iter().find(|&&dim| dim == 0 || dim > 1 << 32) {
        return Some(format!("a dimension of {dim} elements; it takes 1 to 2^32"));
    }
    let boxes = array::<4>(check, "boxDim");
    if let Some(side) = boxes.iter().find(|&&side| side == 0 || side > 256) {
        return Some(format!(
            "a box with a side of {side} elements; it takes 1 to 256"
        ));
    }
    let steps = array::<4>(check, "elementStrides");
    if let Some(step) = steps.iter().find(|&&step| step == 0 || step > 8) {
        return Some(format!("an element stride of {step}; it takes 1 to 8"));
    }
    let (Some(side), false) = (boxes.first(), is_packed) else {
        return None;
    };
    let inner = side * ELEMENT_BYTES.get(data_type as usize)?;
    if interleave == 0 && !inner.is_multiple_of(16) {
        return Some(format!(
            "a box whose inner dimension has {inner} bytes, which is not a multiple of 16"
        ));
    }
    let swizzle = small(check, "swizzle").unwrap_or(0);
    let most = SWIZZLE_BYTES.get(swizzle as usize).copied().unwrap_or(0);
    (interleave == 0 && most > 0 && inner > most).then(|| {
        format!("a box whose inner dimension has {inner} bytes; the swizzle permits {most}")
    })
}

/// Whether the elements of an encoded tensor follow each other without gaps.
pub(super) fn is_dense(check: &Check<'_, '_>) -> Option<bool> {
    let element = ELEMENT_BYTES.get(small(check, "tensorDataType")? as usize)?;
    let dims = array::<8>(check, "globalDim");
    let strides = array::<8>(check, "globalStrides");
    let mut bytes = *element;
    for (dim, stride) in dims.iter().zip(&strides) {
        bytes = bytes.checked_mul(*dim)?;
        if *stride != bytes {
            return Some(false);
        }
    }
    (!strides.is_empty()).then_some(true)
}

/// A tensor that ends beyond its allocation.
pub(super) fn extent(check: &Check<'_, '_>, drafts: &mut Vec<Draft>) {
    if check.went_wrong() {
        return;
    }
    let needed = || {
        let element = ELEMENT_BYTES.get(small(check, "tensorDataType")? as usize)?;
        let dims = array::<8>(check, "globalDim");
        let strides = array::<8>(check, "globalStrides");
        let (inner, outer) = dims.split_first()?;
        let mut last = inner.checked_mul(*element)?;
        for (dim, stride) in outer.iter().zip(&strides) {
            last = last.checked_add(dim.checked_sub(1)?.checked_mul(*stride)?)?;
        }
        Some(last)
    };
    let (Some(bytes), Some(address)) = (needed(), check.argument("globalAddress")) else {
        return;
    };
    let Some(id) = check.state.memory_at(address) else {
        return;
    };
    let Some(object) = check
        .object(id)
        .filter(|object| object.kind == Kind::Memory)
    else {
        return;
    };
    let left = (object.handle + object.size).saturating_sub(address);
    if object.size == 0 || bytes <= left {
        return;
    }
    let message = format!(
        "{} describes a tensor of {bytes} bytes at {address:#x}, but {}, {} bytes from {}, has \
         only {left} bytes left there. The driver does not compare the two; a kernel that reads \
         the tensor to its end leaves the allocation.",
        check.function(),
        check.label(id),
        object.size,
        at(object.created),
    );
    let title = "tensor map beyond the end of an allocation";
    let draft = Draft::new(rules::TEXTURE_TENSOR_MAP_CONSTRAINTS, title, message);
    drafts.push(draft.object(id).severity(Severity::Advice));
}

/// A launch: tensor maps of freed memory.
pub(super) fn launched(check: &Check<'_, '_>, drafts: &mut Vec<Draft>) {
    let (Some(layout), Some(bytes)) = (check.launch_layout(), check.launch_parameters()) else {
        return;
    };
    for (number, &(offset, size)) in layout.iter().enumerate() {
        if size as usize != TENSOR_MAP_BYTES {
            continue;
        }
        let map: Option<&[u8; TENSOR_MAP_BYTES]> =
            bytes.get(offset as usize..).and_then(<[u8]>::first_chunk);
        let Some(map) = map.and_then(|map| check.state.tensor_maps.get(map)) else {
            continue;
        };
        let Some(id) = ended_at(check, map.address) else {
            continue;
        };
        let end = check.state.objects.end_of(id).map(|end| at(end.site));
        let what = format!(
            "passes the tensor map that {} encoded as parameter {number} of the kernel. It holds \
             the address {:#x}, in {}, which {} freed, and no call has allocated memory there since",
            at(map.site),
            map.address,
            check.label(id),
            end.unwrap_or_default(),
        );
        let title = "tensor map of freed memory passed to a kernel";
        let draft = check.draft(rules::TEXTURE_TENSOR_MAP_STALE, title, what);
        drafts.push(draft.object(id).chain(check.poison_chain(id)));
    }
}
