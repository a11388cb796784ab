//! Memory Management: memset in one and two dimensions.

use cutape_driver::types::CUDA_MEMSET_NODE_PARAMS_v2;

use crate::call::answer::{Answer, invalid_if};
use crate::call::argument::{ASYNC, SYNC, Site};
use crate::call::entry::entries;
use crate::object::memory::Place;
use crate::state::lock;
use crate::work::{memset, node, schedule};

entries! {
    cuMemsetD8: linear::<u8, SYNC>;
    cuMemsetD16: linear::<u16, SYNC>;
    cuMemsetD32: linear::<u32, SYNC>;
    cuMemsetD8Async: linear::<u8, ASYNC>;
    cuMemsetD16Async: linear::<u16, ASYNC>;
    cuMemsetD32Async: linear::<u32, ASYNC>;
    cuMemsetD2D8: plane::<u8, SYNC>;
    cuMemsetD2D16: plane::<u16, SYNC>;
    cuMemsetD2D32: plane::<u32, SYNC>;
    cuMemsetD2D8Async: plane::<u8, ASYNC>;
    cuMemsetD2D16Async: plane::<u16, ASYNC>;
    cuMemsetD2D32Async: plane::<u32, ASYNC>;
}

fn linear<T: Into<u32>, const IS_ASYNC: bool>(
    to: u64,
    value: T,
    count: usize,
    site: Site<IS_ASYNC>,
) -> Answer {
    plane(to, count, value, count, 1, site)
}

/// Sizes are in elements of type `T`, the pitch is in bytes.
fn plane<T: Into<u32>, const IS_ASYNC: bool>(
    dst: u64,
    pitch: usize,
    value: T,
    width: usize,
    height: usize,
    Site(stream): Site<IS_ASYNC>,
) -> Answer {
    let mut state = lock();
    let fill = CUDA_MEMSET_NODE_PARAMS_v2 {
        dst,
        pitch,
        value: value.into(),
        elementSize: size_of::<T>() as u32,
        width,
        height,
        ctx: state.current()? as *mut _,
    };
    if IS_ASYNC {
        state.check_stream(stream)?;
    }
    // The address must be aligned to the element; measured INVALID_VALUE for cuMemsetD32.
    let is_aligned = fill.dst.is_multiple_of(u64::from(fill.elementSize));
    invalid_if(!is_aligned)?;
    if IS_ASYNC && let Some(captured) = state.capture_of(stream)? {
        let work = node::memset(&state, fill)?;
        return state.add_captured(captured, work);
    }
    let work = memset::action(memset::rows(&state, &fill)?, &fill);
    let ticket = state.enqueue(stream, work)?;
    // Only memory of the device is set after a synchronous call has returned ("API
    // synchronization behavior").
    if !IS_ASYNC && state.place_at(dst) != Place::Device {
        schedule::wait(state, &[ticket]);
    }
    Ok(())
}
