//! Memory Management: memset in one and two dimensions, done when the call returns.

use cutape_driver::types::CUDA_MEMSET_NODE_PARAMS_v2;

use crate::call::answer::{Answer, invalid_if};
use crate::call::argument::Stream;
use crate::call::entry::entries;
use crate::state::lock;
use crate::work::{memset, node};

entries! {
    cuMemsetD8: linear::<u8>;
    cuMemsetD16: linear::<u16>;
    cuMemsetD32: linear::<u32>;
    cuMemsetD8Async: linear_on::<u8>;
    cuMemsetD16Async: linear_on::<u16>;
    cuMemsetD32Async: linear_on::<u32>;
    cuMemsetD2D8: plane::<u8>;
    cuMemsetD2D16: plane::<u16>;
    cuMemsetD2D32: plane::<u32>;
    cuMemsetD2D8Async: plane_on::<u8>;
    cuMemsetD2D16Async: plane_on::<u16>;
    cuMemsetD2D32Async: plane_on::<u32>;
}

/// A memset without its context.
type Fill = CUDA_MEMSET_NODE_PARAMS_v2;

/// Sizes are in elements of type `T`.
fn fill<T: Into<u32>>(dst: u64, pitch: usize, value: T, width: usize, height: usize) -> Fill {
    Fill {
        dst,
        pitch,
        value: value.into(),
        elementSize: size_of::<T>() as u32,
        width,
        height,
        ctx: std::ptr::null_mut(),
    }
}

fn linear<T: Into<u32>>(to: u64, value: T, count: usize) -> Answer {
    set(None, fill(to, count, value, count, 1))
}

fn linear_on<T: Into<u32>>(to: u64, value: T, count: usize, stream: Stream) -> Answer {
    set(Some(stream), fill(to, count, value, count, 1))
}

fn plane<T: Into<u32>>(to: u64, pitch: usize, value: T, width: usize, height: usize) -> Answer {
    set(None, fill(to, pitch, value, width, height))
}

fn plane_on<T: Into<u32>>(
    to: u64,
    pitch: usize,
    value: T,
    width: usize,
    height: usize,
    stream: Stream,
) -> Answer {
    set(Some(stream), fill(to, pitch, value, width, height))
}

fn set(stream: Option<Stream>, mut fill: Fill) -> Answer {
    let mut state = lock();
    fill.ctx = state.current()? as *mut _;
    if let Some(stream) = stream {
        state.check_stream(stream)?;
    }
    // The address must be aligned to the element; measured INVALID_VALUE for cuMemsetD32.
    let is_aligned = fill.dst.is_multiple_of(u64::from(fill.elementSize));
    invalid_if(!is_aligned)?;
    let site = match stream {
        Some(stream) => state.capture_of(stream)?,
        None => None,
    };
    if let Some(site) = site {
        let work = node::memset(&state, fill)?;
        return state.add_captured(site, work);
    }
    memset::apply(&memset::rows(&state, &fill)?, &fill);
    Ok(())
}
