//! Memory Management: memset in one and two dimensions, done when the call returns.

use cutape_driver::types::CUDA_MEMSET_NODE_PARAMS_v2;

use crate::call::answer::{Answer, invalid_if};
use crate::call::argument::{ASYNC, Extra, SYNC, Stream};
use crate::call::entry::entries;
use crate::state::lock;
use crate::work::{memset, node};

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
    stream: Extra<Stream, IS_ASYNC>,
) -> Answer {
    plane(to, count, value, count, 1, stream)
}

/// Sizes are in elements of type `T`, the pitch is in bytes.
fn plane<T: Into<u32>, const IS_ASYNC: bool>(
    dst: u64,
    pitch: usize,
    value: T,
    width: usize,
    height: usize,
    Extra(stream): Extra<Stream, IS_ASYNC>,
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
    if let Some(stream) = stream {
        state.check_stream(stream)?;
    }
    // The address must be aligned to the element; measured INVALID_VALUE for cuMemsetD32.
    let is_aligned = fill.dst.is_multiple_of(u64::from(fill.elementSize));
    invalid_if(!is_aligned)?;
    let site = stream.map(|stream| state.capture_of(stream)).transpose()?;
    if let Some(site) = site.flatten() {
        let work = node::memset(&state, fill)?;
        return state.add_captured(site, work);
    }
    memset::apply(&memset::rows(&state, &fill)?, &fill);
    Ok(())
}
