//! What recorded calls wrote into the program's memory, written there again: values that are no
//! handles and no addresses, which are the driver's own.

use std::sync::{LazyLock, Mutex, PoisonError};

use cutape_format::layout::field;
use cutape_format::{Call, Note, Snapshot, Trace};
use cutape_registry::{
    Family, Function, Kind, Length, LinkOp, Meaning, Param, Role, enumeration, structure_behind,
};
use rustc_hash::FxHashMap;

use crate::memory;
use crate::rows::{rows_of_ranges, written_by};

/// Bytes that a call brought to the host and that the recording does not have.
#[derive(Clone, Debug)]
pub(crate) struct MissingBytes(pub(crate) String);

/// Writes the values that a recorded call returned through pointers. Addresses among them, such as
/// those in tensor maps, become the program's: `live` says which.
pub(crate) fn write_values(
    function: &Function,
    recorded: &Call<'_>,
    arguments: &[u64],
    live: &dyn Fn(u64) -> Option<u64>,
) {
    let Some(leave) = &recorded.leave else { return };
    for snapshot in leave.snapshots() {
        let position = usize::from(snapshot.parameter);
        let param = function.params.get(position);
        let (Some(param), Some(&address)) = (param, arguments.get(position)) else {
            continue;
        };
        let Some(bytes) = snapshot.bytes.inline() else {
            continue;
        };
        if address == 0 {
            continue;
        }
        if snapshot.field == field::TEXT {
            let _ = memory::write(address, &text(bytes).to_le_bytes());
        }
        if snapshot.field != field::POINTEE {
            continue;
        }
        for (start, part) in values(param, recorded, bytes) {
            // The driver has checked the pointer; what cannot be written is the program's mistake.
            let _ = memory::write(address.wrapping_add(start), &with_addresses(part, live));
        }
    }
}

/// The address of a recorded text of the driver, which the program may use until it ends.
fn text(bytes: &[u8]) -> u64 {
    static ALL: LazyLock<Mutex<FxHashMap<Vec<u8>, &'static [u8]>>> = LazyLock::new(Mutex::default);
    let mut all = ALL.lock().unwrap_or_else(PoisonError::into_inner);
    let known = all.entry(bytes.to_vec());
    let known = known.or_insert_with(|| Vec::leak([bytes, b"\0"].concat()));
    known.as_ptr() as u64
}

/// Bytes in which words that are recorded addresses of objects are the program's.
fn with_addresses(bytes: &[u8], live: &dyn Fn(u64) -> Option<u64>) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    for word in bytes.as_chunks_mut::<8>().0 {
        let recorded = u64::from_le_bytes(*word);
        if recorded >> 32 != 0
            && let Some(live) = live(recorded)
        {
            *word = live.to_le_bytes();
        }
    }
    bytes
}

/// Gives the program the recorded cubin of a link, as the driver's own memory: another driver links
/// other bytes.
pub(crate) fn give_cubin(
    function: &Function,
    recorded: &Call<'_>,
    arguments: &[u64],
    trace: &Trace,
) {
    let Family::Link(LinkOp::Complete { cubin, .. }) = function.family else {
        return;
    };
    let leave = recorded.leave.as_ref();
    let snapshot = leave.and_then(|leave| leave.snapshot(cubin.into(), field::FILE));
    let bytes = snapshot.and_then(|snapshot| trace.resolve(snapshot.bytes).ok());
    if let (Some(bytes), Some(&target)) = (bytes, arguments.get(usize::from(cubin))) {
        // The program may use it until it destroys the link state; there are few links.
        let kept: &'static [u8] = Vec::leak(bytes.into_owned());
        let _ = memory::write(target, &(kept.as_ptr() as u64).to_le_bytes());
    }
}

/// The parts of an output that mean the same in every process: offset, bytes.
fn values<'b>(param: &Param, call: &Call<'_>, bytes: &'b [u8]) -> Vec<(u64, &'b [u8])> {
    let all = || vec![(0, bytes)];
    let length = match param.role {
        Role::Text(_) => return all(),
        // Devices are numbers.
        Role::Get(Kind::Device) | Role::Find(Kind::Device, _) => return all(),
        Role::Out(length) | Role::InOut(length) => length,
        _ => return Vec::new(),
    };
    if let Length::ByAttribute(position, _) = length {
        let attribute = length.attribute_type(call.argument(position.into()));
        return match attribute.map(|known| known.meaning) {
            Some(Meaning::Plain | Meaning::MayDiffer) => all(),
            _ => Vec::new(),
        };
    }
    let pointee = param.c_type.trim_end_matches('*').trim();
    // What a pointer to a pointer leads to is the driver's.
    if param.c_type.matches('*').count() != 1 {
        return Vec::new();
    }
    if let Some(known) = structure_behind(param.c_type) {
        if known.size == 0 {
            return Vec::new();
        }
        let structs = bytes.chunks_exact(known.size as usize).enumerate();
        let parts = structs.flat_map(|(element, one)| {
            let plain = known.fields.iter().filter(move |field| {
                field.when.is_none_or(|when| when.holds(one))
                    && match field.meaning {
                        Meaning::Plain => true,
                        // Only the driver knows what is in the rest of a token.
                        Meaning::MayDiffer => !known.token,
                        _ => false,
                    }
            });
            plain.filter_map(move |field| {
                let (start, size) = (field.offset as usize, field.size as usize);
                let part = one.get(start..start + size)?;
                Some(((element * known.size as usize + start) as u64, part))
            })
        });
        return parts.collect();
    }
    match pointee {
        "size_t" | "unsigned long long" | "cuuint64_t" | "int" | "unsigned int" | "float"
        | "cuuint32_t" | "char" | "unsigned char" => all(),
        _ if enumeration(pointee).is_some() => all(),
        _ => Vec::new(),
    }
}

/// Writes bytes of the recording to rows of the program's memory: address, length.
pub(crate) fn write_rows(
    trace: &Trace,
    snapshot: &Snapshot<'_>,
    rows: &[(u64, u64)],
) -> Result<(), MissingBytes> {
    let bytes = trace.resolve(snapshot.bytes);
    let bytes = bytes.map_err(|damage| MissingBytes(damage.what.clone()))?;
    let mut rest = &*bytes;
    for &(address, length) in rows {
        let (row, behind) = rest.split_at(rest.len().min(length as usize));
        rest = behind;
        if !row.is_empty() && !memory::write(address, row) {
            return Err(MissingBytes(format!(
                "the program's memory at {address:#x} cannot be written"
            )));
        }
    }
    Ok(())
}

/// The addresses in a recorded call that may have to be found in the program: of host memory that it
/// changes or reads, and in values that it returns.
pub(crate) fn addresses(call: &Call<'_>, each: &mut dyn FnMut(u64)) {
    let Some(function) = cutape_registry::function(&call.signature.name) else {
        return;
    };
    for (start, _) in written_by(function, call) {
        each(start);
    }
    for (_, rows) in rows_of_ranges(call, 1) {
        rows.iter().for_each(|&(start, _)| each(start));
    }
    if call.has_notes() {
        for note in call.notes() {
            if let Note::HostChanged(note, _) | Note::HostSeen(note, _) = note {
                each(note.address);
            }
        }
    }
    for snapshot in call.leave.iter().flat_map(|leave| leave.snapshots()) {
        let param = function.params.get(usize::from(snapshot.parameter));
        let (Some(param), Some(bytes)) = (param, snapshot.bytes.inline()) else {
            continue;
        };
        for (_, part) in values(param, call, bytes) {
            for word in part.as_chunks::<8>().0 {
                each(u64::from_le_bytes(*word));
            }
        }
    }
}
