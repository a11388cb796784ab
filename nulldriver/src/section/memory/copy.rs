//! Memory Management: copies.

use cutape_driver::types::{CUDA_MEMCPY2D, CUDA_MEMCPY3D, CUDA_MEMCPY3D_PEER};

use crate::call::answer::{Answer, INVALID_CONTEXT, invalid_if, require};
use crate::call::argument::{ASYNC, In, SYNC, Site, Stream, arguments};
use crate::call::entry::entries;
use crate::object::memory::Place;
use crate::state::{State, lock};
use crate::work::batch::{MAX_COUNT, read_starts};
use crate::work::copy::Row::{self, Any, Array, Device};
use crate::work::copy::{self, DEVICE, HOST, UNIFIED, moves, sides, volume_moves};
use crate::work::node;

entries! {
    cuMemcpy: |to: u64, from: u64, size: u64, site: Site<SYNC>|
        linear(site, Any(to), Any(from), size);
    cuMemcpyHtoD: |to: u64, from: u64, size: u64, site: Site<SYNC>|
        linear(site, Device(to), Any(from), size);
    cuMemcpyDtoH: |to: u64, from: u64, size: u64, site: Site<SYNC>|
        linear(site, Any(to), Device(from), size);
    cuMemcpyDtoD: |to: u64, from: u64, size: u64, site: Site<SYNC>|
        linear(site, Device(to), Device(from), size);
    cuMemcpyAsync: |to: u64, from: u64, size: u64, site: Site<ASYNC>|
        linear(site, Any(to), Any(from), size);
    cuMemcpyHtoDAsync: |to: u64, from: u64, size: u64, site: Site<ASYNC>|
        linear(site, Device(to), Any(from), size);
    cuMemcpyDtoHAsync: |to: u64, from: u64, size: u64, site: Site<ASYNC>|
        linear(site, Any(to), Device(from), size);
    cuMemcpyDtoDAsync: |to: u64, from: u64, size: u64, site: Site<ASYNC>|
        linear(site, Device(to), Device(from), size);
    cuMemcpyPeer: |sides: PeerSides, size: u64, site: Site<SYNC>| {
        sides.check()?;
        linear(site, Device(sides.to), Device(sides.from), size)
    };
    cuMemcpyPeerAsync: |sides: PeerSides, size: u64, site: Site<ASYNC>| {
        sides.check()?;
        linear(site, Device(sides.to), Device(sides.from), size)
    };
    cuMemcpy2D: plane::<SYNC>;
    cuMemcpy2DUnaligned: plane::<SYNC>;
    cuMemcpy2DAsync: plane::<ASYNC>;
    cuMemcpy3D: |copy: In<CUDA_MEMCPY3D>, site: Site<SYNC>| volume(site, || copy.get());
    cuMemcpy3DAsync: |copy: In<CUDA_MEMCPY3D>, site: Site<ASYNC>| volume(site, || copy.get());
    cuMemcpy3DPeer: volume_peer::<SYNC>;
    cuMemcpy3DPeerAsync: volume_peer::<ASYNC>;
    cuMemcpyBatchAsync: batch;
    [symbol] cuMemcpyBatchAsync:
        |lists: Lists, starts: Starts, _fail: u64, stream: Stream|
        batch(lists, starts, stream);
}

/// Address and `CUmemorytype` of one side of a linear copy beside the other side.
fn place_of(side: Row, other: Row) -> (u64, u32) {
    match (side, other) {
        (Device(address), _) => (address, DEVICE),
        (Any(address) | Array(address), Device(_)) => (address, HOST),
        (Any(address) | Array(address), _) => (address, UNIFIED),
    }
}

arguments! {
    /// Both sides of a copy between contexts.
    struct PeerSides {
        to: u64,
        to_context: u64,
        from: u64,
        from_context: u64,
    }
}

impl PeerSides {
    fn check(&self) -> Answer {
        let state = lock();
        state.current()?;
        check_contexts(&state, [self.to_context, self.from_context])
    }
}

fn check_contexts(state: &State, contexts: [u64; 2]) -> Answer {
    let mut contexts = contexts.iter();
    let is_alive = contexts.all(|context| state.contexts.contains_key(context));
    require(is_alive, INVALID_CONTEXT)
}

fn linear<const IS_ASYNC: bool>(site: Site<IS_ASYNC>, to: Row, from: Row, size: u64) -> Answer {
    let mut state = lock();
    let captured = state.site_of(IS_ASYNC.then_some(site.0))?;
    let context = state.current()?;
    if let Some(captured) = captured {
        let mut params = CUDA_MEMCPY3D::default();
        (params.srcDevice, params.srcMemoryType.0) = place_of(from, to);
        (params.dstDevice, params.dstMemoryType.0) = place_of(to, from);
        params.srcHost = params.srcDevice as *const _;
        params.dstHost = params.dstDevice as *mut _;
        (params.WidthInBytes, params.Height, params.Depth) = (size as usize, 1, 1);
        let work = node::copy(&state, params, context)?;
        return state.add_captured(captured, work);
    }
    if size == 0 {
        return Ok(());
    }
    let target = to.segments(&state, size)?;
    let moves = vec![(target, from.segments(&state, size)?)];
    let places = (to.place(&state), from.place(&state));
    copy::enqueue(state, site, moves, places)
}

fn volume<const IS_ASYNC: bool>(
    site: Site<IS_ASYNC>,
    copy: impl FnOnce() -> Answer<CUDA_MEMCPY3D>,
) -> Answer {
    let mut state = lock();
    let captured = state.site_of(IS_ASYNC.then_some(site.0))?;
    let context = state.current()?;
    let copy = copy()?;
    if let Some(captured) = captured {
        let work = node::copy(&state, copy, context)?;
        return state.add_captured(captured, work);
    }
    let moves = volume_moves(&state, &copy)?;
    let (to, from, _) = sides(&copy);
    let places = (to.place(&state), from.place(&state));
    copy::enqueue(state, site, moves, places)
}

fn plane<const IS_ASYNC: bool>(copy: In<CUDA_MEMCPY2D>, site: Site<IS_ASYNC>) -> Answer {
    volume(site, || copy.get().map(node::widen_copy))
}

fn volume_peer<const IS_ASYNC: bool>(copy: In<CUDA_MEMCPY3D_PEER>, site: Site<IS_ASYNC>) -> Answer {
    let state = lock();
    state.current()?;
    if IS_ASYNC {
        state.check_uncaptured(site.0)?;
    }
    let copy = copy.get()?;
    check_contexts(&state, [copy.srcContext as u64, copy.dstContext as u64])?;
    let (to, from, extent) = sides(&node::widen_peer(copy));
    let moves = moves(&state, to, from, extent)?;
    let places = (to.place(&state), from.place(&state));
    copy::enqueue(state, site, moves, places)
}

arguments! {
    /// The copies of a batch.
    struct Lists {
        to: In<u64>,
        from: In<u64>,
        sizes: In<u64>,
        count: usize,
    }
}

arguments! {
    /// Where in a batch each of its attributes begins to hold.
    struct Starts {
        attributes: In<u64>,
        indices: In<u64>,
        count: usize,
    }
}

/// Copies in any order; each must have attributes, which change nothing here.
fn batch(lists: Lists, starts: Starts, stream: Stream) -> Answer {
    let state = lock();
    state.current()?;
    state.check_uncaptured(stream)?;
    let count = lists.count;
    let has_no_attributes = starts.attributes.is_null() || starts.indices.is_null();
    // The default stream is refused (cuMemcpyBatchAsync).
    let is_refused = count > MAX_COUNT || has_no_attributes || stream.is_default();
    invalid_if(is_refused)?;
    read_starts(starts.indices, starts.count, count)?;
    let sides = lists
        .to
        .list(count)?
        .into_iter()
        .zip(lists.from.list(count)?);
    let mut moves = Vec::with_capacity(count);
    // Pageable memory on any side decides for the whole batch.
    let (mut to_place, mut from_place) = (Place::Device, Place::Device);
    for ((to, from), size) in sides.zip(lists.sizes.list(count)?) {
        invalid_if(size == 0)?;
        moves.push((state.any_range(to, size)?, state.any_range(from, size)?));
        for (place, address) in [(&mut to_place, to), (&mut from_place, from)] {
            let own = state.place_at(address);
            if own == Place::Pageable || *place == Place::Device {
                *place = own;
            }
        }
    }
    copy::enqueue(state, Site::<ASYNC>(stream), moves, (to_place, from_place))
}
