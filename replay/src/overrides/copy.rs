//! Copies described by a struct, and copies whose direction the addresses tell.

use cutape_format::layout::field;
use cutape_registry::layout::{find_field, offset_of, size_of};
use cutape_registry::{CopyOp, CopyShape, Family, Kind, Meaning};

use crate::api::INVALID_VALUE;
use crate::api::buffer::{Buffer, set_word, word};
use crate::calls::frame::Presets;
use crate::compare::payload::{Content, Payload};
use crate::compare::readbacks::Target;
use crate::objects::skip::{Skip, skip};
use crate::place::address::Found;
use crate::plan::private_memory::has_host_bytes;
use crate::player::{Job, Played, Player};
use crate::process::pages::check_available;

// CUmemorytype.
const HOST: u64 = 1;
const DEVICE: u64 = 2;
const ARRAY: u64 = 3;
const UNIFIED: u64 = 4;

/// Longest host side of one copy.
pub(super) const LONGEST: u64 = 64 << 30;
/// Most host rows of one copy.
pub(super) const MOST_ROWS: u64 = 1 << 26;

/// Offsets of one side's members in the struct; z, height and context are not in the 2D one.
#[derive(Clone, Copy, Debug)]
struct Side {
    x: usize,
    y: usize,
    z: Option<usize>,
    memory_type: usize,
    host: usize,
    device: usize,
    array: usize,
    context: Option<usize>,
    pitch: usize,
    height: Option<usize>,
}

/// The offsets of the members of CUDA_MEMCPY2D, CUDA_MEMCPY3D or CUDA_MEMCPY3D_PEER.
#[derive(Clone, Copy, Debug)]
struct Shape {
    size: usize,
    source: Side,
    target: Side,
    width: usize,
    rows: usize,
    depth: Option<usize>,
}

/// The offset of a member that the 2D struct, or one that names no contexts, lacks.
const fn optional(structure: &str, member: &str) -> Option<usize> {
    match find_field(structure, member) {
        Some(field) => Some(field.offset as usize),
        None => None,
    }
}

macro_rules! side {
    ($struct:literal, $end:literal) => {
        Side {
            x: offset_of($struct, concat!($end, "XInBytes")),
            y: offset_of($struct, concat!($end, "Y")),
            z: optional($struct, concat!($end, "Z")),
            memory_type: offset_of($struct, concat!($end, "MemoryType")),
            host: offset_of($struct, concat!($end, "Host")),
            device: offset_of($struct, concat!($end, "Device")),
            array: offset_of($struct, concat!($end, "Array")),
            context: optional($struct, concat!($end, "Context")),
            pitch: offset_of($struct, concat!($end, "Pitch")),
            height: optional($struct, concat!($end, "Height")),
        }
    };
}

macro_rules! shape {
    ($struct:literal) => {
        Shape {
            size: size_of($struct),
            source: side!($struct, "src"),
            target: side!($struct, "dst"),
            width: offset_of($struct, "WidthInBytes"),
            rows: offset_of($struct, "Height"),
            depth: optional($struct, "Depth"),
        }
    };
}

const PLANE: Shape = shape!("CUDA_MEMCPY2D");
const VOLUME: Shape = shape!("CUDA_MEMCPY3D");
const PEER_VOLUME: Shape = shape!("CUDA_MEMCPY3D_PEER");

/// Width, rows, depth.
fn extent(shape: Shape, words: &[u8]) -> (u64, u64, u64) {
    let depth = shape.depth.map_or(1, |at| word(words, at));
    (word(words, shape.width), word(words, shape.rows), depth)
}

/// Where one row of a side in linear memory lies: row `y` of slice `z` of the copy.
fn row_at(side: Side, words: &[u8], base: u64, extent: (u64, u64, u64), y: u64, z: u64) -> u64 {
    let (width, rows, _) = extent;
    let at = |member: Option<usize>| member.map_or(0, |at| word(words, at));
    // A pitch or height of zero means: as wide, as high as the copy.
    let pitch = match word(words, side.pitch) {
        0 => width,
        pitch => pitch,
    };
    let height = match side.height {
        Some(member) if word(words, member) != 0 => word(words, member),
        _ => rows,
    };
    let slice = at(side.z).wrapping_add(z).wrapping_mul(height);
    let row = slice.wrapping_add(word(words, side.y)).wrapping_add(y);
    let offset = row.wrapping_mul(pitch).wrapping_add(word(words, side.x));
    base.wrapping_add(offset)
}

/// All rows of a side, in the order in which they are recorded: address, length.
fn rows_at(side: Side, words: &[u8], base: u64, extent: (u64, u64, u64)) -> Vec<(u64, usize)> {
    let (width, rows, depth) = extent;
    (0..depth)
        .flat_map(|z| (0..rows).map(move |y| (y, z)))
        .map(|(y, z)| (row_at(side, words, base, extent, y, z), width as usize))
        .collect()
}

/// The address of a side in linear memory, and whether its type is host memory; `None` for arrays.
fn address_of(side: Side, words: &[u8]) -> Option<(u64, bool)> {
    match word(words, side.memory_type) & 0xffff_ffff {
        HOST => Some((word(words, side.host), true)),
        DEVICE | UNIFIED => Some((word(words, side.device), false)),
        _ => None,
    }
}

/// cuMemcpy2D, cuMemcpy3D and their like.
pub(crate) fn described(job: &mut Job<'_, '_>) -> Played {
    let shape = match job.function.family {
        Family::Copy(CopyOp::Described(CopyShape::Plane)) => PLANE,
        Family::Copy(CopyOp::Described(CopyShape::PeerVolume)) => PEER_VOLUME,
        _ => VOLUME,
    };
    let words = job.input(0, shape.size as u64)?;
    let Some(mut words) = words else {
        return job.plain();
    };
    if words.len() < shape.size {
        return skip("the trace holds less of its description than it reads");
    }
    let extent = extent(shape, &words);
    let total = extent.0.saturating_mul(extent.1).saturating_mul(extent.2);
    let mut presets = Presets::default();
    let mut target = None;
    let mut freed = false;
    for (side, is_source) in [(shape.source, true), (shape.target, false)] {
        if let Some(context) = side.context {
            let live = job.live_handle(Kind::Context, word(&words, context))?;
            set_word(&mut words, context, live);
        }
        if word(&words, side.memory_type) & 0xffff_ffff == ARRAY {
            let live = job.live_handle(Kind::Array, word(&words, side.array))?;
            set_word(&mut words, side.array, live);
            continue;
        }
        let Some((address, host)) = address_of(side, &words) else {
            // Refused by the driver, which looks at no memory for it.
            continue;
        };
        let host = host || is_host(job, address, is_source);
        if !host || address == 0 || total == 0 {
            if !host && total != 0 {
                let first = row_at(side, &words, address, extent, 0, 0);
                let last = row_at(side, &words, address, extent, extent.1 - 1, extent.2 - 1);
                freed |= job.is_freed(first, extent.0) || job.is_freed(last, extent.0);
            }
            let (at, live) = match host {
                true => (side.host, 0),
                false => (side.device, job.live_address(address)?),
            };
            if total != 0 || live == 0 {
                set_word(&mut words, at, live);
            }
            continue;
        }
        if total > LONGEST || extent.1.saturating_mul(extent.2) > MOST_ROWS {
            return skip("more host memory in one copy than replay provides");
        }
        let at = match word(&words, side.memory_type) & 0xffff_ffff {
            HOST => side.host,
            _ => side.device,
        };
        let rows = rows_at(side, &words, address, extent);
        let bytes = match is_source {
            true => Some(source_bytes(job, total)?),
            false => None,
        };
        let host = host_rows(job, &rows, bytes.as_deref(), &mut presets)?;
        match host {
            HostRows::Placed(_, moved) => set_word(&mut words, at, address.wrapping_add(moved)),
            HostRows::Lent(buffer, _) => {
                set_word(&mut words, at, buffer);
                for member in [Some(side.x), Some(side.y), side.z].into_iter().flatten() {
                    set_word(&mut words, member, 0);
                }
                // The driver refuses a pitch of less than a row.
                let is_refused = (1..extent.0).contains(&word(&words, side.pitch));
                if !is_refused {
                    set_word(&mut words, side.pitch, extent.0);
                }
                if let Some(height) = side.height {
                    set_word(&mut words, height, extent.1);
                }
            }
        }
        if !is_source {
            target = Some(Target {
                pieces: host.pieces(),
                rows,
            });
        }
    }
    presets.point(0usize, Buffer::of(&words));
    finish(job, presets, freed, target)
}

/// Whether an address is one of device memory, as far as the replay knows.
fn is_device(player: &Player<'_>, address: u64) -> bool {
    match player.ranges.find(address) {
        Found::Live(range, _) | Found::Freed(range) => !range.is_host_memory(),
        Found::Unknown => player.placement.reserves(address, 1),
    }
}

/// Puts live addresses and handles into the CUDA_MEMCPY3D of a graph's node. Its host memory lives
/// as long as the graph; each launch fills it.
pub(crate) fn node_live(job: &mut Job<'_, '_>, words: &mut [u8]) -> Result<(), Skip> {
    let shape = VOLUME;
    let extent = extent(shape, words);
    let total = extent.0.saturating_mul(extent.1).saturating_mul(extent.2);
    if total > LONGEST || extent.1.saturating_mul(extent.2) > MOST_ROWS {
        return skip("more memory in one copy than replay provides");
    }
    for side in [shape.source, shape.target] {
        let kind = word(words, side.memory_type) & 0xffff_ffff;
        let [host, device, array] = [side.host, side.device, side.array].map(|at| word(words, at));
        for at in [side.host, side.device, side.array] {
            set_word(words, at, 0);
        }
        let is_host = kind == HOST || kind == UNIFIED && !is_device(job, device);
        match kind {
            ARRAY => {
                let live = job.live_handle(Kind::Array, array)?;
                set_word(words, side.array, live);
            }
            HOST | DEVICE | UNIFIED if is_host => {
                let (at, address) = match kind {
                    HOST => (side.host, host),
                    _ => (side.device, device),
                };
                if address == 0 || total == 0 {
                    continue;
                }
                let rows = rows_at(side, words, address, extent);
                let live = job.graph_rows(&rows)?;
                let moved = rows.first().zip(live.first());
                let shift = moved.map_or(0, |(row, live)| live.0.wrapping_sub(row.0));
                set_word(words, at, address.wrapping_add(shift));
            }
            DEVICE | UNIFIED => {
                let live = job.live_address(device)?;
                set_word(words, side.device, live);
            }
            // Refused by the driver, which looks at no memory for it.
            _ => {}
        }
    }
    Ok(())
}

/// The numbers of a CUDA_MEMCPY3D that the driver returned, which are compared as they are.
pub(crate) fn node_numbers(words: &[u8]) -> Vec<std::ops::Range<usize>> {
    let shape = VOLUME;
    let mut ranges: Vec<_> = std::iter::once(shape.width..shape.size).collect();
    for side in [shape.source, shape.target] {
        ranges.push(side.x..side.x + 24);
        ranges.push(side.memory_type..side.memory_type + 4);
        // An array has no pitch of its own: these members mean nothing.
        if word(words, side.memory_type) & 0xffff_ffff != ARRAY {
            ranges.push(side.pitch..side.pitch + 8);
            ranges.extend(side.height.map(|at| at..at + 8));
        }
    }
    ranges
}

/// The offsets of device memory and arrays in a CUDA_MEMCPY3D that the driver returned, and whether
/// the copy uses each of them; unused members may hold anything.
pub(crate) fn node_memory(words: &[u8]) -> Vec<(usize, Meaning, bool)> {
    let shape = VOLUME;
    let mut members = Vec::new();
    for side in [shape.source, shape.target] {
        let kind = word(words, side.memory_type) & 0xffff_ffff;
        members.push((side.device, Meaning::Address, kind == DEVICE));
        members.push((side.array, Meaning::Handle(Kind::Array), kind == ARRAY));
    }
    members
}

/// Issues a copy, unless it named freed memory; compares the host bytes that it brought, or waits
/// for their arrival.
fn finish(
    job: &mut Job<'_, '_>,
    presets: Presets,
    named_freed: bool,
    target: Option<Target>,
) -> Played {
    let mut frame = job.marshal(&presets.args)?;
    frame.adopt(presets);
    if named_freed && job.call.result() == Some(INVALID_VALUE) {
        return job.answer(frame, INVALID_VALUE);
    }
    let result = job.issue(&frame)?;
    // What is captured brings its bytes with each launch of the graph.
    let is_captured = job.current.is_captured;
    if job.call.succeeded()
        && result == 0
        && !is_captured
        && let Some(target) = target
    {
        job.save_bytes(&target.pieces);
        match job.returned(0, field::HOST_BYTES) {
            Some(expected) => {
                job.wait_if_placed(target.address());
                job.compare_bytes(0, &expected, &target.pieces, None);
            }
            None if job.traits.is_asynchronous => {
                let readbacks = &mut job.player.readbacks;
                readbacks.expect(job.call, job.function, vec![target]);
            }
            None => job.report.bytes_not_compared += target.length() as u64,
        }
    }
    job.conclude(frame, result)
}

/// Whether an address that the driver looks at is host memory of the program.
pub(super) fn is_host(job: &Job<'_, '_>, address: u64, is_source: bool) -> bool {
    match job.ranges.find(address) {
        Found::Live(range, _) | Found::Freed(range) => range.is_host_memory(),
        Found::Unknown if job.placement.reserves(address, 1) => false,
        Found::Unknown if is_source => has_host_bytes(job.call),
        Found::Unknown => job.call.succeeded(),
    }
}

/// Where rows of host memory are at replay.
pub(super) enum HostRows {
    /// Each of them, and how far from where it was.
    Placed(Vec<(u64, usize)>, u64),
    /// Without gaps in memory of our own: address, bytes.
    Lent(u64, usize),
}

impl HostRows {
    pub(super) fn start(&self) -> u64 {
        match self {
            Self::Placed(rows, _) => rows.first().map_or(0, |row| row.0),
            Self::Lent(address, _) => *address,
        }
    }

    pub(super) fn pieces(&self) -> Vec<(u64, usize)> {
        match self {
            Self::Placed(rows, _) => rows.clone(),
            &Self::Lent(address, length) => vec![(address, length)],
        }
    }
}

/// Finds where rows of host memory are, or lends memory for them, and puts the bytes there that the
/// copy reads, if it does.
pub(super) fn host_rows(
    job: &mut Job<'_, '_>,
    rows: &[(u64, usize)],
    bytes: Option<&[u8]>,
    presets: &mut Presets,
) -> Result<HostRows, Skip> {
    let live = |&(row, length)| Some((job.live_host(row, length as u64)?, length));
    let placed = match job.current.is_captured {
        true => Some(job.graph_rows(rows)?),
        false => rows.iter().map(live).collect::<Option<Vec<_>>>(),
    };
    let Some(placed) = placed else {
        let length = rows.iter().map(|row| row.1).sum();
        check_available(length as u64).map_err(Skip::because)?;
        let buffer = bytes.map_or_else(|| Buffer::zeroed(length), Buffer::of);
        return Ok(HostRows::Lent(presets.lend(buffer), length));
    };
    let mut rest = bytes.unwrap_or_default();
    for (&(recorded, _), &(live, length)) in rows.iter().zip(&placed) {
        let (part, behind) = rest.split_at(length.min(rest.len()));
        job.store_source(recorded, live, part);
        rest = behind;
        if bytes.is_some() && !job.current.is_captured {
            presets
                .reads
                .push((live, live.saturating_add(length as u64)));
        }
    }
    let first = rows.first().zip(placed.first());
    let moved = first.map_or(0, |(row, live)| live.0.wrapping_sub(row.0));
    Ok(HostRows::Placed(placed, moved))
}

/// The bytes that a copy reads from host memory, rows without gaps.
pub(super) fn source_bytes<'t>(job: &mut Job<'_, 't>, total: u64) -> Result<Content<'t>, Skip> {
    if total == 0 {
        return Ok(Vec::new().into());
    }
    if let Some(given) = job.given_bytes(total) {
        return Ok(given.to_vec().into());
    }
    let snapshot = job
        .call
        .snapshots()
        .find(|snapshot| snapshot.field == field::HOST_BYTES);
    match snapshot.map(|snapshot| job.payload(&snapshot)) {
        Some(Payload::Here(bytes)) if bytes.len() as u64 >= total => {
            job.look_for_stale(&bytes);
            Ok(bytes)
        }
        Some(Payload::Here(_)) => skip("the trace holds fewer host bytes than it reads"),
        Some(Payload::Left(_, hash)) => {
            job.bytes_are_missing(hash);
            Ok(vec![0; total as usize].into())
        }
        Some(Payload::Unreadable) | None => {
            skip("the trace does not have the host memory that it reads")
        }
    }
}

/// cuMemcpy, cuMemcpyAsync.
pub(crate) fn unified(job: &mut Job<'_, '_>) -> Played {
    let Family::Copy(CopyOp::Unified(transfer)) = job.function.family else {
        return job.plain();
    };
    let length = job.call.argument(usize::from(transfer.bytes));
    let mut presets = Presets::default();
    let mut target = None;
    let mut freed = false;
    for (position, is_source) in [(transfer.source, true), (transfer.target, false)] {
        let address = job.call.argument(usize::from(position));
        if address == 0 || length == 0 || !is_host(job, address, is_source) {
            freed |= job.is_freed(address, length);
            continue;
        }
        if length > LONGEST {
            return skip("more host memory in one copy than replay provides");
        }
        let bytes = match is_source {
            true => Some(source_bytes(job, length)?),
            false => None,
        };
        let rows = vec![(address, length as usize)];
        let host = host_rows(job, &rows, bytes.as_deref(), &mut presets)?;
        presets.set(position, host.start());
        if !is_source {
            target = Some(Target {
                pieces: host.pieces(),
                rows,
            });
        }
    }
    finish(job, presets, freed, target)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_lie_a_pitch_apart() {
        let mut words = vec![0; PLANE.size];
        set_word(&mut words, PLANE.source.x, 3);
        set_word(&mut words, PLANE.source.y, 1);
        set_word(&mut words, PLANE.source.pitch, 100);
        let rows = rows_at(PLANE.source, &words, 0x1000, (10, 2, 1));
        assert_eq!(rows, [(0x1000 + 103, 10), (0x1000 + 203, 10)]);
        let deep = VOLUME;
        let mut words = vec![0; deep.size];
        set_word(&mut words, deep.target.height.unwrap(), 5);
        let rows = rows_at(deep.target, &words, 0, (10, 1, 2));
        assert_eq!(rows, [(0, 10), (50, 10)], "a pitch of zero is the width");
    }
}
