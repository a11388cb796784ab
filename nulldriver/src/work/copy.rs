//! Copies with pitches: checked as a whole, then done row by row.

use cutape_driver::types::CUDA_MEMCPY3D;
use cutape_play::CallId;

use crate::call::answer::{Answer, INVALID_VALUE, invalid_if};
use crate::call::argument::Site;
use crate::object::device::MAX_PITCH;
use crate::object::memory::{Place, Segment, move_bytes};
use crate::player;
use crate::settings::{self, Schedule};
use crate::state::{Action, Locked, State};
use crate::work::kernel::read;
use crate::work::schedule;

// CUmemorytype.
pub(crate) const HOST: u32 = 1;
pub(crate) const DEVICE: u32 = 2;
pub(crate) const ARRAY: u32 = 3;
pub(crate) const UNIFIED: u32 = 4;

/// One side of a copy of rows and planes.
#[derive(Clone, Copy, Default)]
pub(crate) struct Pitched {
    /// `CUmemorytype`.
    pub(crate) memory: u32,
    pub(crate) host: u64,
    pub(crate) device: u64,
    pub(crate) array: u64,
    pub(crate) x: u64,
    pub(crate) y: u64,
    pub(crate) z: u64,
    pub(crate) pitch: u64,
    pub(crate) height: u64,
}

/// Bytes of a row, rows of a plane, planes.
pub(crate) type Extent = [u64; 3];

/// Memory that is written, and the memory that is read for it.
pub(crate) type Moves = Vec<(Vec<Segment>, Vec<Segment>)>;

/// Destination, source and extent of a three-dimensional copy.
pub(crate) fn sides(copy: &CUDA_MEMCPY3D) -> (Pitched, Pitched, Extent) {
    let to = Pitched {
        memory: copy.dstMemoryType.0,
        host: copy.dstHost as u64,
        device: copy.dstDevice,
        array: copy.dstArray as u64,
        x: copy.dstXInBytes as u64,
        y: copy.dstY as u64,
        z: copy.dstZ as u64,
        pitch: copy.dstPitch as u64,
        height: copy.dstHeight as u64,
    };
    let from = Pitched {
        memory: copy.srcMemoryType.0,
        host: copy.srcHost as u64,
        device: copy.srcDevice,
        array: copy.srcArray as u64,
        x: copy.srcXInBytes as u64,
        y: copy.srcY as u64,
        z: copy.srcZ as u64,
        pitch: copy.srcPitch as u64,
        height: copy.srcHeight as u64,
    };
    let extent = [copy.WidthInBytes, copy.Height, copy.Depth];
    (to, from, extent.map(|length| length as u64))
}

/// Memory without gaps: a row, or one side of a linear copy.
#[derive(Clone, Copy)]
pub(crate) enum Row {
    Device(u64),
    /// The host side of a host copy, or either side of a unified one.
    Any(u64),
    /// Bytes of an array, checked already.
    Array(u64),
}

impl Row {
    pub(crate) fn segments(self, state: &State, size: u64) -> Answer<Vec<Segment>> {
        match self {
            Row::Device(address) => state.device_range(address, size),
            Row::Any(address) => state.any_range(address, size),
            Row::Array(bytes) => Ok(vec![Segment::own(bytes, size)]),
        }
    }
}

impl Row {
    pub(crate) fn place(self, state: &State) -> Place {
        match self {
            Row::Device(address) | Row::Any(address) => state.place_at(address),
            Row::Array(_) => Place::Device,
        }
    }
}

impl Pitched {
    /// What kind of memory it is.
    pub(crate) fn place(&self, state: &State) -> Place {
        match self.memory {
            HOST => state.place_at(self.host),
            ARRAY => Place::Device,
            _ => state.place_at(self.device),
        }
    }

    /// For a side that is an array: takes place and layout from it, and checks that the box lies in
    /// it.
    fn resolve_array(&mut self, state: &State, [width, height, depth]: Extent) -> Answer {
        if self.memory != ARRAY {
            return Ok(());
        }
        let layout = state.arrays.find(self.array)?.layout();
        let fits = |start: u64, length: u64, limit: u64| {
            start.checked_add(length).is_some_and(|end| end <= limit)
        };
        let is_inside = fits(self.x, width, layout.row)
            && fits(self.y, height, layout.rows)
            && fits(self.z, depth, layout.planes);
        invalid_if(!is_inside)?;
        (self.device, self.pitch, self.height) = (layout.base, layout.row, layout.rows);
        Ok(())
    }

    /// Resolves defaults and checks the side against the extent of the copy.
    fn check(&mut self, state: &State, extent: Extent) -> Answer {
        let [width, height, depth] = extent;
        self.resolve_array(state, extent)?;
        // A pitch or height of 0 means tightly packed.
        if self.pitch == 0 {
            self.pitch = width;
        }
        if self.height == 0 {
            self.height = height;
        }
        let exceeds = |start: u64, length, limit| {
            let end: Option<u64> = start.checked_add(length);
            end.is_none_or(|end| end > limit)
        };
        let is_too_wide = height.saturating_mul(depth) > 1 && exceeds(self.x, width, self.pitch);
        let is_too_high = depth > 1 && exceeds(self.y, height, self.height);
        invalid_if(self.pitch > MAX_PITCH || is_too_wide || is_too_high)
    }

    /// The address of a row, checked for overflow.
    fn row(&self, row: u64, plane: u64) -> Answer<Row> {
        let offset = || {
            let rows = self.z.checked_add(plane)?.checked_mul(self.height)?;
            let rows = rows.checked_add(self.y.checked_add(row)?)?;
            rows.checked_mul(self.pitch)?.checked_add(self.x)
        };
        let (kind, base): (fn(u64) -> Row, u64) = match self.memory {
            HOST => (Row::Any, self.host),
            DEVICE => (Row::Device, self.device),
            UNIFIED => (Row::Any, self.device),
            ARRAY => (Row::Array, self.device),
            _ => return Err(INVALID_VALUE),
        };
        let address = offset().and_then(|offset| base.checked_add(offset));
        Ok(kind(address.ok_or(INVALID_VALUE)?))
    }
}

/// What a copy moves, checked.
pub(crate) fn moves(
    state: &State,
    mut to: Pitched,
    mut from: Pitched,
    extent: Extent,
) -> Answer<Moves> {
    state.current()?;
    to.check(state, extent)?;
    from.check(state, extent)?;
    let [width, height, depth] = extent;
    let mut moves = Vec::new();
    if width == 0 {
        return Ok(moves);
    }
    for plane in 0..depth {
        for row in 0..height {
            let (target, source) = (to.row(row, plane)?, from.row(row, plane)?);
            moves.push((
                target.segments(state, width)?,
                source.segments(state, width)?,
            ));
        }
    }
    Ok(moves)
}

/// What a three-dimensional copy moves, checked.
pub(crate) fn volume_moves(state: &State, copy: &CUDA_MEMCPY3D) -> Answer<Moves> {
    let has_reserved = !copy.reserved0.is_null() || !copy.reserved1.is_null();
    invalid_if(copy.srcLOD != 0 || copy.dstLOD != 0 || has_reserved)?;
    let (to, from, extent) = sides(copy);
    moves(state, to, from, extent)
}

/// The places of both sides of a copy: destination, source.
pub(crate) type Places = (Place, Place);

/// Enqueues a copy and waits as long as the manual says ("API synchronization behavior"):
/// synchronous copies for everything but device to device, asynchronous ones where host memory is
/// copied to host memory or to pageable memory. Pageable memory is read before the call returns;
/// a synchronous call waits for the stream first.
pub(crate) fn enqueue<const IS_ASYNC: bool>(
    mut state: Locked,
    Site(stream): Site<IS_ASYNC>,
    moves: Moves,
    (to, from): Places,
) -> Answer {
    let call = player::call();
    let is_busy = state.queue.len() > 0 || settings::get().schedule != Schedule::Eager;
    if is_busy && from == Place::Pageable && !to.is_host() {
        if !IS_ASYNC {
            let before = state.enqueue(stream, Action::Nothing)?;
            state = schedule::wait_locked(state, &[before]);
        }
        let staged: Vec<Vec<u8>> = moves.iter().map(|(_, source)| read(source)).collect();
        let work = move |_: &mut State| {
            for ((target, _), bytes) in moves.iter().zip(&staged) {
                write(target, &[Segment::of(bytes)], call);
            }
        };
        return state
            .enqueue(stream, Action::Run(Box::new(work)))
            .map(|_| ());
    }
    let ticket = state.enqueue(stream, Action::Run(Box::new(move |_| apply(&moves, call))))?;
    let is_on_device = to == Place::Device && from == Place::Device;
    let has_waited = to == Place::Pageable || to.is_host() && from.is_host();
    if has_waited || !IS_ASYNC && !is_on_device {
        schedule::wait(state, &[ticket]);
    }
    Ok(())
}

/// Does what was checked, for a call that is played or none.
pub(crate) fn apply(moves: &Moves, call: Option<CallId>) {
    for (target, source) in moves {
        write(target, source, call);
    }
}

/// Memory of the program gets the recorded bytes.
fn write(target: &[Segment], source: &[Segment], call: Option<CallId>) {
    if let (Some(call), Some(to)) = (call, target.first())
        && to.is_shared
        && player::deliver(call, to.bytes)
    {
        return;
    }
    move_bytes(target, source);
    player::wrote(target, call);
}
