//! Device addresses whose allocation, module or library has ended: copies, memsets and kernel parameters.

use cutape_format::layout::field;
use cutape_registry::{CopyOp, Family, Kind, LaunchOp, Length};

use super::{Check, Draft, at};
use crate::finding::Severity;
use crate::plan::Step;
use cutape_model::{CallArguments, ObjectId};

/// CU_MEMORYTYPE_DEVICE.
const DEVICE: u32 = 2;

/// Looks at every device address that the call is given.
#[inline]
pub(super) fn check(check: &Check<'_, '_>, drafts: &mut Vec<Draft>) {
    if check.plan.takes_addresses || check.plan.destroys {
        live(check, drafts);
    }
    if check.state.memory.any_freed() {
        freed(check, drafts);
    }
}

/// Whether what is there is long enough, and of the kind that is freed.
fn live(check: &Check<'_, '_>, drafts: &mut Vec<Draft>) {
    for &(position, step) in &check.plan.steps {
        match step {
            Step::Device(length) => bounds(check, drafts, position, length),
            Step::Destroy(kind) => wrong_kind(check, drafts, kind, check.call.argument(position)),
            _ => {}
        }
    }
}

/// Whether something is there no more.
fn freed(check: &Check<'_, '_>, drafts: &mut Vec<Draft>) {
    match check.plan.function.family {
        Family::Launch(LaunchOp::Arguments(_) | LaunchOp::Config(_)) => {
            return parameters(check, drafts);
        }
        Family::Copy(CopyOp::Described(_)) => return struct_copy(check, drafts),
        _ => {}
    }
    // Either operand may be host memory that has come to lie at a freed address.
    if check.plan.copies_unified && !check.went_wrong() {
        return;
    }
    for &(position, step) in &check.plan.steps {
        let Step::Device(length) = step else { continue };
        // A fixed length of 0 means the whole allocation.
        if !matches!(length, Length::Fixed(_)) && bytes(check, length) == Some(0) {
            continue;
        }
        let name = check.plan.function.params[position].name;
        operand(check, drafts, check.call.argument(position), name);
    }
}

/// The bytes that a role speaks of, if they are one piece.
fn bytes(check: &Check<'_, '_>, length: Length) -> Option<u64> {
    if matches!(length, Length::Pitched(..) | Length::PitchedBy(..)) {
        return None;
    }
    let arguments = CallArguments(check.call);
    let extent = length.evaluate(check.plan.function, &arguments)?;
    Some(extent.content())
}

/// A piece that begins in an allocation and ends behind it.
fn bounds(check: &Check<'_, '_>, drafts: &mut Vec<Draft>, position: usize, length: Length) {
    // Which side of a unified copy is the device's shows in the addresses alone.
    if check.plan.copies_unified && !check.went_wrong() {
        return;
    }
    let address = check.call.argument(position);
    let (Some(length), Some(id)) = (bytes(check, length), check.state.memory_at(address)) else {
        return;
    };
    let Some(object) = check.state.objects.get(id) else {
        return;
    };
    let room = (object.handle + object.size).saturating_sub(address);
    // Memory whose size is not known, and mappings that may continue in a neighbour, are left alone.
    if object.size == 0 || length <= room || check.state.objects.end_of(id).is_some() {
        return;
    }
    let name = check
        .plan
        .function
        .params
        .get(position)
        .map_or("", |param| param.name);
    let message = format!(
        "{} touches {length} bytes from `{name}` {address:#x} on, but only {room} bytes are left there of {}, {} bytes made by \
         {}: {} bytes too many. {}",
        check.plan.function.name,
        check.state.label(id),
        object.size,
        at(object.created),
        length - room,
        check.answer(),
    );
    drafts.push(
        Draft::new(
            "memory-copy-out-of-bounds",
            "an operation reaches behind its allocation",
            message,
        )
        .object(id),
    );
}

/// Memory that is freed by the call for another kind.
fn wrong_kind(check: &Check<'_, '_>, drafts: &mut Vec<Draft>, kind: Kind, handle: u64) {
    let objects = &check.state.objects;
    if handle == 0
        || !matches!(kind, Kind::Memory | Kind::HostMemory)
        || objects.live(kind, handle).is_some()
        || !check.went_wrong()
    {
        return;
    }
    let others = [Kind::Memory, Kind::HostMemory, Kind::Global];
    let Some(id) = others
        .into_iter()
        .find_map(|other| objects.live(other, handle))
    else {
        return;
    };
    let Some(object) = objects.get(id) else {
        return;
    };
    let message = format!(
        "{} is given {}, which {} handed out: it is {}, and this call frees {}. {}",
        check.plan.function.name,
        check.state.label(id),
        at(object.created),
        object.kind.name(),
        kind.name(),
        check.answer(),
    );
    drafts.push(
        Draft::new(
            "memory-free-wrong-kind",
            "memory is freed as something that it is not",
            message,
        )
        .object(id),
    );
}

/// The dead object that an address lies in.
fn dead(check: &Check<'_, '_>, address: u64) -> Option<ObjectId> {
    let id = check.state.freed_at(address)?;
    check.state.objects.end_of(id)?;
    if !check.went_wrong() && (check.state.objects.may_be_reused(id) || check.only_released(id)) {
        return None;
    }
    Some(id)
}

fn operand(check: &Check<'_, '_>, drafts: &mut Vec<Draft>, address: u64, parameter: &str) {
    let Some(id) = dead(check, address) else {
        return;
    };
    let what = format!(
        "{} is given {address:#x} as `{parameter}`",
        check.plan.function.name
    );
    drafts.push(dead_address(check, id, address, &what, false));
}

fn dead_address(
    check: &Check<'_, '_>,
    id: ObjectId,
    address: u64,
    what: &str,
    argument: bool,
) -> Draft {
    let state = check.state;
    let objects = &state.objects;
    let root = objects.root_of_end(id).unwrap_or(id);
    let root_kind = objects.get(root).map(|object| object.kind);
    let (rule, title) = match root_kind {
        Some(Kind::Module) => (
            "module-global-after-unload",
            "a module's variable is used after the unload",
        ),
        Some(Kind::Library) => (
            "library-use-after-unload",
            "a library's variable is used after the unload",
        ),
        Some(Kind::Context) => (
            "context-resource-after-destroy",
            "memory is used after its context's end",
        ),
        _ if argument => (
            "memory-use-after-free-kernel-argument",
            "a kernel is given freed memory",
        ),
        _ => (
            "memory-use-after-free-operand",
            "memory is used after it was freed",
        ),
    };
    let label = state.label(id);
    let (made, end, start, size) = match (objects.get(id), objects.end_of(id)) {
        (Some(object), Some(end)) => (at(object.created), at(end.site), object.handle, object.size),
        _ => Default::default(),
    };
    let place = if address == start {
        "the start".to_owned()
    } else {
        format!("byte {} of {size}", address.wrapping_sub(start))
    };
    let ended = if root == id {
        String::new()
    } else {
        format!(" together with {}", state.label(root))
    };
    let message = format!(
        "{what}. That is {place} of {label}, {size} bytes, which {made} handed out and {end} ended{ended}; nothing has been \
         allocated there since then. {}",
        check.answer(),
    );
    let mut draft = Draft::new(rule, title, message).object(id);
    if root != id {
        draft = draft.object(root);
    }
    draft.chain(check.poison_chain(id))
}

/// A launch: parameters of eight bytes that lie in a dead range.
fn parameters(check: &Check<'_, '_>, drafts: &mut Vec<Draft>) {
    let Some(function) = check.plan.launched else {
        return;
    };
    let Some(layout) = check.state.layout(check.call.argument(function)) else {
        return;
    };
    let places = check.plan.launch_parameters.into_iter().flatten();
    let snapshot = places
        .into_iter()
        .find_map(|position| check.call.snapshot(position, field::KERNEL_PARAMETERS));
    let Some(bytes) = snapshot.and_then(|snapshot| snapshot.bytes.inline()) else {
        return;
    };
    for (number, &(offset, size)) in layout.iter().enumerate() {
        if size != 8 {
            continue;
        }
        let word = bytes
            .get(offset as usize..)
            .and_then(|rest| rest.first_chunk::<8>());
        let Some(address) = word
            .map(|word| u64::from_le_bytes(*word))
            .filter(|&word| word != 0)
        else {
            continue;
        };
        let Some(id) = dead(check, address) else {
            continue;
        };
        let what = format!(
            "{} passes {address:#x} as parameter {number} of the kernel",
            check.plan.function.name
        );
        let draft = dead_address(check, id, address, &what, true);
        // Whether the kernel follows the pointer cannot be seen.
        let lower = draft.rule == "memory-use-after-free-kernel-argument" && !check.went_wrong();
        drafts.push(if lower {
            draft.severity(Severity::Warning)
        } else {
            draft
        });
    }
}

/// A copy that a struct describes: the device addresses in it.
fn struct_copy(check: &Check<'_, '_>, drafts: &mut Vec<Draft>) {
    let Some(param) = check.plan.function.params.first() else {
        return;
    };
    let name = param
        .c_type
        .trim_start_matches("const ")
        .trim_end_matches([' ', '*']);
    let structure = check.context.signatures().structure(name);
    let snapshot = check.call.snapshot(0, field::POINTEE);
    let (Some(structure), Some(bytes)) = (structure, snapshot.and_then(|c| c.bytes.inline()))
    else {
        return;
    };
    let read = |name: &str| structure.number(bytes, name);
    for (kind, address) in [
        ("srcMemoryType", "srcDevice"),
        ("dstMemoryType", "dstDevice"),
    ] {
        if read(kind) == Some(u64::from(DEVICE))
            && read("WidthInBytes") != Some(0)
            && read("Height") != Some(0)
            && let Some(value) = read(address)
        {
            operand(check, drafts, value, address);
        }
    }
}
