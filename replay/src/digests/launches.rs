//! Digests that the replay itself takes behind launches, for several replays to be compared with
//! each other.
//!
//! Behind a launch the device memory is digested that the kernel's parameters point into; behind a
//! graph launch, what the parameters of any kernel in a graph have pointed into. A launch that is
//! captured writes nothing. With [`DigestedLaunches::BeforeAndAfter`] the same memory is digested
//! before the launch too.

use std::collections::BTreeSet;

use cutape_registry::{Family, Kind, MemoryOp};

use crate::compare::digest_kernel::{Awaited, Prepared};
use crate::digests;
use crate::options::DigestedLaunches;
use crate::place::address::{Found, Range};
use crate::player::{Job, Player};

/// Of longer memory, what follows an address is digested.
const LONG: u64 = 64 << 20;
/// Starts of parts of long memory are multiples of this.
const PART: u64 = 256;
/// Pieces of the memory of a launch, if it is digested in pieces; and of one part of it.
const PIECES: usize = 1 << 15;
const PIECES_OF_PART: usize = 1 << 10;
/// Bytes of the shortest piece.
const PIECE: u64 = 16;

/// Before a call goes to the driver: prepares the context of a launch. Not behind it, because
/// loading a module may wait for kernels that wait for a later call.
pub(crate) fn before(job: &mut Job<'_, '_>) {
    if !are_wanted(job) || !job.traits.is_launch {
        return;
    }
    job.launch_digests.words.clear();
    prepare(job);
    if !matches!(job.function.family, Family::Launch(_)) {
        digest_before(job);
    }
}

fn prepare(job: &mut Job<'_, '_>) {
    if job.captures.any_open() || !job.call.succeeded() {
        return;
    }
    let context = job.api.current_context().unwrap_or(0);
    if context == 0 || job.digests.of(context).is_some() || job.launch_digests.is_refused(context) {
        return;
    }
    match job.player.while_lent(|api| api.prepare_digests(context)) {
        Ok(prepared) => job.digests.insert(None, prepared),
        Err(_) => job.launch_digests.refuse(context),
    }
}

/// The parameters of a kernel that is launched, or becomes a node of a graph.
#[inline]
pub(crate) fn parameters(job: &mut Job<'_, '_>, packed: &[u8]) {
    if job.options.launches == DigestedLaunches::None {
        return;
    }
    let is_launch = job.traits.is_launch && !job.current.is_captured;
    let state = &mut **job.player;
    let ranges = &state.ranges;
    let (words, _) = packed.as_chunks::<8>();
    let words = words.iter().map(|word| u64::from_le_bytes(*word));
    let words = words.filter(|&word| matches!(ranges.find(word), Found::Live(..)));
    let launches = &mut state.launch_digests;
    match is_launch {
        true => launches.words.extend(words),
        false => launches.graph_words.extend(words),
    }
    if is_launch && job.call.succeeded() {
        digest_before(job);
    }
}

/// Digests the memory of a launch that is about to be issued.
fn digest_before(job: &mut Job<'_, '_>) {
    if job.options.launches != DigestedLaunches::BeforeAndAfter {
        return;
    }
    job.launch_digests.current.0.clear();
    // What hinders digests is noted after the launch.
    let Ok((prepared, parts)) = parts(job) else {
        return;
    };
    let Some(stream) = job.uncaptured_stream() else {
        return;
    };
    // What a launch reads is ordered before it in its stream, also where that was not followed yet.
    let followed = job.player.while_lent(|api| api.follow(prepared, stream));
    if followed.is_err() {
        return;
    }
    let launch = job.call.index;
    let launches = &mut job.launch_digests;
    let numbers = parts
        .iter()
        .map(|(range, part)| launches.add_memory(launch, range, *part));
    let numbers: Vec<usize> = numbers.collect();
    let ranges: Vec<_> = parts.iter().map(live).collect();
    let awaited = numbers.iter().map(|&number| Awaited::Memory(number, true));
    digests::enqueue(job.player, prepared, (&ranges, awaited.collect()));
    // A stream that cannot wait cannot take the launch either.
    let _ = job.player.while_lent(|api| api.hold_back(prepared, stream));
    let first = numbers.first().copied().unwrap_or(0);
    job.launch_digests.current = (ranges, first);
}

/// After a call, which was given to the driver if `is_issued`.
pub(crate) fn after(job: &mut Job<'_, '_>, is_issued: bool) {
    if job.options.launches == DigestedLaunches::None {
        return;
    }
    let is_due = job.traits.is_launch && job.call.succeeded() && !job.current.is_captured;
    if !is_due || !are_wanted(job) {
        return;
    }
    if let DigestedLaunches::One(launch) = job.options.launches
        && launch != job.call.index
    {
        return;
    }
    let digested = match is_issued {
        true => digest(job),
        false => Err("they were not re-issued"),
    };
    if let Err(why) = digested {
        let launch = job.call.index;
        job.launch_digests.leave_out(launch, why);
    }
}

/// Whether the replay takes digests of its own: the recorder's are taken where it has them.
fn are_wanted(player: &Player<'_>) -> bool {
    match player.options.launches {
        DigestedLaunches::None => false,
        DigestedLaunches::All => !player.plan.has_launch_digests,
        DigestedLaunches::BeforeAndAfter | DigestedLaunches::One(_) => true,
    }
}

fn digest(job: &mut Job<'_, '_>) -> Result<(), &'static str> {
    let (prepared, parts) = parts(job)?;
    match job.options.launches {
        DigestedLaunches::One(_) => in_pieces(job, prepared, &parts),
        DigestedLaunches::BeforeAndAfter => again(job, prepared)?,
        _ => whole(job, prepared, &parts),
    }
    Ok(())
}

/// What the launch can reach, and what its context has for digests.
fn parts(job: &Job<'_, '_>) -> Result<(Prepared, Vec<Part>), &'static str> {
    if !job.is_compared() {
        return Err("the selection leaves them out");
    }
    if job.lease.is_some() {
        return Err("calls of different threads overlap (--threads)");
    }
    if job.captures.any_open() {
        return Err("a stream captured meanwhile");
    }
    if !job.launch_digests.has_room() {
        return Err("there were 1048576 launches before them");
    }
    let context = job.api.current_context().unwrap_or(0);
    if job.digests.of(context).is_none() {
        return Err("the driver refused to prepare their context");
    }
    let Some(prepared) = job.digests.ordered(context) else {
        return Err("streams wait for values in memory");
    };
    let is_graph = !matches!(job.function.family, Family::Launch(_));
    let words: BTreeSet<u64> = match is_graph {
        true => job.launch_digests.graph_words.clone(),
        false => job.launch_digests.words.iter().copied().collect(),
    };
    let parts = reached(job, words, context);
    if parts.is_empty() {
        return Err(match is_graph {
            true => "the kernels in graphs have no parameter that points into device memory",
            false => "they have no parameter that points into device memory",
        });
    }
    Ok((prepared, parts))
}

/// A part of device memory: the memory, and the part's first byte and length as recorded.
type Part = (Range, (u64, u64));

fn live(part: &Part) -> (u64, u64) {
    let (range, (start, length)) = part;
    (range.live + (start - range.start), *length)
}

fn whole(job: &mut Job<'_, '_>, prepared: Prepared, parts: &[Part]) {
    let launch = job.call.index;
    let ranges: Vec<_> = parts.iter().map(live).collect();
    let awaited = parts.iter().map(|part| Awaited::OfLaunch(launch, part.1));
    let awaited = awaited.collect();
    digests::enqueue(job.player, prepared, (&ranges, awaited));
}

/// Digests what was digested before the launch.
fn again(job: &mut Job<'_, '_>, prepared: Prepared) -> Result<(), &'static str> {
    let (ranges, first) = std::mem::take(&mut job.launch_digests.current);
    if ranges.is_empty() {
        return Err("their memory was not digested before them");
    }
    let awaited = (first..).take(ranges.len());
    let awaited = awaited.map(|number| Awaited::Memory(number, false));
    digests::enqueue(job.player, prepared, (&ranges, awaited.collect()));
    Ok(())
}

fn in_pieces(job: &mut Job<'_, '_>, prepared: Prepared, parts: &[Part]) {
    let most = (PIECES / parts.len()).clamp(1, PIECES_OF_PART) as u64;
    let (mut ranges, mut awaited) = (Vec::new(), Vec::new());
    for part in parts {
        let (start, length) = live(part);
        let piece = length.div_ceil(most).next_power_of_two().max(PIECE);
        let memory = job.launch_digests.add_pieces(&part.0, part.1, piece);
        for (number, offset) in (0..length).step_by(piece as usize).enumerate() {
            ranges.push((start + offset, piece.min(length - offset)));
            awaited.push(Awaited::Piece(memory, number));
        }
    }
    digests::enqueue(job.player, prepared, (&ranges, awaited));
}

/// The parts of device memory of a live context that these words, as recorded, point into. Parts of
/// the same memory that overlap are one.
fn reached(player: &Player<'_>, words: impl IntoIterator<Item = u64>, context: u64) -> Vec<Part> {
    let mut parts: Vec<Part> = Vec::new();
    let device = player.api.current_device().ok();
    for word in words {
        let Found::Live(range, offset) = player.ranges.find(word) else {
            continue;
        };
        let (range, offset) = match range.kind {
            Kind::Memory if !range.is_managed() && range.context == context => {
                (range.clone(), offset)
            }
            Kind::Reservation => match mapped(player, range, word, device) {
                Some(range) => {
                    let offset = word - range.start;
                    (range, offset)
                }
                None => continue,
            },
            _ => continue,
        };
        if !is_of_current_device(player, &range) {
            continue;
        }
        let first = match range.length <= LONG {
            true => 0,
            false => offset / PART * PART,
        };
        let end = first.saturating_add(LONG).min(range.length);
        let (start, end) = (range.start + first, range.start + end);
        match parts.last_mut() {
            Some((known, part)) if known.start == range.start && start <= part.0 + part.1 => {
                part.1 = part.1.max(end - part.0);
            }
            _ => parts.push((range, (start, end - start))),
        }
    }
    parts
}

/// The mapped memory in a reservation that an address lies in, if a live device may use it.
fn mapped(
    player: &Player<'_>,
    reservation: &Range,
    address: u64,
    device: Option<i32>,
) -> Option<Range> {
    let (bytes, mapping) = player.mapped.mappings.find(address)?;
    let ordinal = |recorded: i32| player.machine.devices.ordinal(recorded);
    let mut usable = mapping.writers().filter_map(ordinal);
    let made_by = cutape_registry::function(mapping.site.function)?;
    usable.any(|usable| Some(usable) == device).then(|| Range {
        start: bytes.start,
        length: bytes.end - bytes.start,
        live: reservation.live + (bytes.start - reservation.start),
        kind: Kind::Memory,
        made: mapping.site.index,
        made_by,
        ..reservation.clone()
    })
}

/// Memory of a pool may be that of another device.
fn is_of_current_device(player: &Player<'_>, range: &Range) -> bool {
    range.made_by.family != Family::Memory(MemoryOp::AllocateAsync)
        || player.api.is_of_current_device(range.live)
}
