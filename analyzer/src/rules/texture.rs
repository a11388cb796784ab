//! Texture and surface objects and arrays: their descriptors, and launches with objects that have
//! ended.

use cutape_format::layout::field;
use cutape_model::{Effect, Lookup, ObjectId};
use cutape_registry::{Kind, layout, rules};

use super::memory::ended_at;
use super::{Check, Draft, at};
use crate::finding::Severity;
use crate::layouts::parameters_of_eight;
use crate::state::data::{Data, Own, Resource};

/// Where `CUDA_RESOURCE_DESC` has what is checked.
mod resource {
    use cutape_registry::layout::offset_of;

    const NAME: &str = "CUDA_RESOURCE_DESC";
    pub(super) const LINEAR: usize = offset_of(NAME, "res.linear.devPtr");
    pub(super) const LINEAR_CHANNELS: usize = offset_of(NAME, "res.linear.numChannels");
    pub(super) const PITCH_ADDRESS: usize = offset_of(NAME, "res.pitch2D.devPtr");
    pub(super) const PITCH_CHANNELS: usize = offset_of(NAME, "res.pitch2D.numChannels");
    pub(super) const PITCH: usize = offset_of(NAME, "res.pitch2D.pitchInBytes");
    pub(super) const FLAGS: usize = offset_of(NAME, "flags");
}
const ADDRESS_MODES: usize = layout::offset_of("CUDA_TEXTURE_DESC", "addressMode");
const TEXTURE_FLAGS: usize = layout::offset_of("CUDA_TEXTURE_DESC", "flags");
/// CU_TRSF_NORMALIZED_COORDINATES.
const NORMALIZED: u32 = 2;
/// CU_TR_ADDRESS_MODE_MIRROR.
const MIRROR: u32 = 2;
/// CUDA_ARRAY3D_SURFACE_LDST.
const SURFACE: u64 = 2;
/// CUDA_ARRAY3D_CUBEMAP.
const CUBEMAP: u64 = 4;
/// CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT of all devices so far (assumed).
const ALIGNMENT: u64 = 512;
/// CU_DEVICE_ATTRIBUTE_TEXTURE_PITCH_ALIGNMENT of all devices so far (assumed).
const PITCH_ALIGNMENT: u64 = 32;
/// Numbers of `CUarray_format` from here on are planar or compressed, with channels of their own.
const PLANAR_FORMATS: u64 = 0xb0;
/// Smaller handles may be numbers that a kernel is given for another purpose.
const DISTINCT: u64 = 1 << 16;

/// A number in the bytes behind a parameter.
fn number<const N: usize>(bytes: &[u8], offset: usize) -> Option<u64> {
    let bytes: &[u8; N] = bytes.get(offset..)?.first_chunk()?;
    let mut word = [0; 8];
    word.get_mut(..N)?.copy_from_slice(bytes);
    Some(u64::from_le_bytes(word))
}

fn bytes_at<'a>(check: &Check<'_, 'a>, name: &str) -> Option<&'a [u8]> {
    let position = check.plan.at(name)?;
    let snapshot = check.call.snapshot(position, field::POINTEE)?;
    snapshot.bytes.inline()
}

/// A descriptor that the driver refused.
pub(super) fn descriptor(check: &Check<'_, '_>) -> Option<Draft> {
    let kind = check
        .plan
        .effects
        .objects
        .iter()
        .find_map(|(_, effect)| match effect {
            Effect::Create(kind, _) => Some(*kind),
            _ => None,
        })?;
    let why = match kind {
        Kind::TextureObject => texture(check)?,
        Kind::SurfaceObject => surface(check)?,
        Kind::Array | Kind::MipmappedArray => array(check)?,
        _ => return None,
    };
    let title = "descriptor outside of its limits";
    let rule = rules::TEXTURE_DESCRIPTOR_CONSTRAINTS;
    Some(check.draft(rule, title, format!("gets {why}")))
}

/// A texture that is to mirror at its borders, which the driver does with normalised coordinates only.
pub(super) fn mirrored(check: &Check<'_, '_>) -> Option<Draft> {
    let resource_type = number::<4>(bytes_at(check, "pResDesc")?, 0)?;
    let sampler = bytes_at(check, "pTexDesc")?;
    let flags = number::<4>(sampler, TEXTURE_FLAGS)? as u32;
    let modes = sampler.get(ADDRESS_MODES..)?.as_chunks::<4>().0;
    // Wrap is 0, which the descriptor of a program has that needs no address mode.
    let dimension = modes[..modes.len().min(3)]
        .iter()
        .position(|mode| u32::from_le_bytes(*mode) == MIRROR)?;
    if check.went_wrong() || flags & NORMALIZED != 0 || resource_type == Resource::LINEAR {
        return None;
    }
    let what = format!(
        "gets CU_TR_ADDRESS_MODE_MIRROR for dimension {dimension} without \
         CU_TRSF_NORMALIZED_COORDINATES. Without them the only address mode is clamp"
    );
    let title = "address mode that needs normalised coordinates";
    let draft = check.draft(rules::TEXTURE_DESCRIPTOR_CONSTRAINTS, title, what);
    Some(draft.severity(Severity::Warning))
}

fn channels(count: u64) -> Option<String> {
    (!matches!(count, 1 | 2 | 4)).then(|| format!("{count} channels; a texture has 1, 2 or 4"))
}

fn misaligned(address: u64) -> Option<String> {
    (!address.is_multiple_of(ALIGNMENT)).then(|| {
        format!(
            "linear memory at {address:#x}, which is not a multiple of {ALIGNMENT} \
             (CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT, assumed)"
        )
    })
}

/// Rows that do not all begin at an aligned address.
fn misaligned_rows(pitch: u64) -> Option<String> {
    (!pitch.is_multiple_of(PITCH_ALIGNMENT)).then(|| {
        format!(
            "rows of {pitch} bytes (pitchInBytes), which is not a multiple of {PITCH_ALIGNMENT} \
             (CU_DEVICE_ATTRIBUTE_TEXTURE_PITCH_ALIGNMENT, assumed). cuMemAllocPitch returns a \
             pitch that fits"
        )
    })
}

fn texture(check: &Check<'_, '_>) -> Option<String> {
    let bytes = bytes_at(check, "pResDesc")?;
    let resource_type = number::<4>(bytes, 0)?;
    if number::<4>(bytes, resource::FLAGS).is_some_and(|flags| flags != 0) {
        return Some("a resource descriptor with flags; none are defined".to_owned());
    }
    let has_view = check.argument("pResViewDesc").is_some_and(|view| view != 0);
    match resource_type {
        Resource::LINEAR => {
            let why = number::<4>(bytes, resource::LINEAR_CHANNELS).and_then(channels);
            let why = why.or_else(|| misaligned(number::<8>(bytes, resource::LINEAR)?));
            if why.is_some() {
                return why;
            }
        }
        Resource::PITCHED => {
            let why = number::<4>(bytes, resource::PITCH_CHANNELS).and_then(channels);
            let why = why
                .or_else(|| misaligned(number::<8>(bytes, resource::PITCH_ADDRESS)?))
                .or_else(|| misaligned_rows(number::<8>(bytes, resource::PITCH)?));
            if why.is_some() {
                return why;
            }
        }
        Resource::MIPMAPPED => {
            let flags = bytes_at(check, "pTexDesc").and_then(|b| number::<4>(b, TEXTURE_FLAGS));
            if flags.is_some_and(|flags| flags as u32 & NORMALIZED == 0) {
                return Some(
                    "a mipmapped array and coordinates that are not normalised".to_owned(),
                );
            }
        }
        _ => {}
    }
    let is_memory = matches!(resource_type, Resource::LINEAR | Resource::PITCHED);
    (has_view && is_memory)
        .then(|| "a resource view over linear memory; only arrays have views".to_owned())
}

fn surface(check: &Check<'_, '_>) -> Option<String> {
    let bytes = bytes_at(check, "pResDesc")?;
    match Resource::of(bytes)? {
        Resource::Object(Kind::Array, handle) => {
            let id = check.state.objects.live(Kind::Array, handle)?;
            let Data::Other(Own::Array { flags }) = check.object(id)?.data else {
                return None;
            };
            (flags & SURFACE == 0).then(|| {
                format!(
                    "{}, which was created without CUDA_ARRAY3D_SURFACE_LDST",
                    check.label(id)
                )
            })
        }
        _ => Some("a resource that is not an array; surfaces need one".to_owned()),
    }
}

fn array(check: &Check<'_, '_>) -> Option<String> {
    let position = check.plan.function.params.iter().position(|param| {
        param.c_type.contains("ARRAY_DESCRIPTOR") || param.c_type.contains("ARRAY3D_DESCRIPTOR")
    })?;
    let (structure, bytes) = check.structure_at(position)?;
    let read = |member: &str| structure.number(bytes, member);
    let (width, height) = (read("Width")?, read("Height")?);
    if read("Format")? < PLANAR_FORMATS
        && let Some(why) = read("NumChannels").and_then(channels)
    {
        return Some(why);
    }
    let is_cubemap = read("Flags").is_some_and(|flags| flags & CUBEMAP != 0);
    let depth = read("Depth").unwrap_or(0);
    let fits = width == height && depth > 0 && depth.is_multiple_of(6);
    (is_cubemap && !fits).then(|| {
        format!("a cubemap of {width}x{height}x{depth}; its faces are square, and there are 6")
    })
}

/// A launch: texture and surface objects that have ended, or whose memory has.
pub(super) fn launched(check: &Check<'_, '_>, drafts: &mut Vec<Draft>) {
    let (Some(layout), Some(bytes)) = (check.launch_layout(), check.launch_parameters()) else {
        return;
    };
    let values = parameters_of_eight(layout, bytes).filter(|&(_, value)| value != 0);
    for (number_of, value) in values {
        for kind in [Kind::TextureObject, Kind::SurfaceObject] {
            match check.state.objects.find(kind, value) {
                Lookup::Unknown => {}
                Lookup::Live(id) => drafts.extend(without_resource(check, id, number_of)),
                Lookup::Ended(id) if value >= DISTINCT => {
                    drafts.extend(destroyed(check, id, number_of));
                }
                Lookup::Ended(_) => {}
            }
        }
    }
}

fn destroyed(check: &Check<'_, '_>, id: ObjectId, parameter: usize) -> Option<Draft> {
    let objects = &check.state.objects;
    if objects.may_be_reused(id) || check.only_released(id) {
        return None;
    }
    let end = objects.end_of(id)?;
    let what = format!(
        "passes {} as parameter {parameter} of the kernel, which {} ended",
        check.label(id),
        at(end.site)
    );
    let kind = check.kind(id)?.name();
    let title = format!("destroyed {kind} passed to a kernel");
    let draft = check.draft(rules::TEXTURE_OBJECT_STALE, &title, what);
    Some(draft.object(id).chain(check.poison_chain(id)))
}

fn without_resource(check: &Check<'_, '_>, id: ObjectId, parameter: usize) -> Option<Draft> {
    let object = check.object(id)?;
    let Data::Other(Own::Texture(resource)) = object.data else {
        return None;
    };
    let objects = &check.state.objects;
    let resource = match resource {
        Resource::Object(kind, handle) => match objects.find(kind, handle) {
            Lookup::Ended(resource) => resource,
            _ => return None,
        },
        Resource::Memory(address) => ended_at(check, address)?,
    };
    let end = objects.end_of(resource)?;
    if objects.may_be_reused(resource)
        || check.only_released(resource)
        || end.site.index < object.created.index
    {
        return None;
    }
    let (assumption, severity) = match object.handle < DISTINCT {
        true => (" (assumed: the parameter has its value)", Severity::Advice),
        false => ("", Severity::Error),
    };
    let what = format!(
        "passes {} as parameter {parameter} of the kernel{assumption}. It was created for {}, \
         which {} ended",
        check.label(id),
        check.label(resource),
        at(end.site)
    );
    let kind = object.kind.name();
    let title = format!("{kind} passed to a kernel after its memory ended");
    let draft = check.draft(rules::TEXTURE_OBJECT_STALE, &title, what);
    let draft = draft.object(id).object(resource).severity(severity);
    Some(draft.chain(check.poison_chain(resource)))
}
