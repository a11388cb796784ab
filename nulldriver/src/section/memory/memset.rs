//! Memory Management: memset in one and two dimensions, done when the call returns.

use std::marker::PhantomData;

use cutape_driver::types::CUDA_MEMSET_NODE_PARAMS_v2;

use crate::call::answer::{Answer, invalid_if};
use crate::call::argument::{Argument, Call, Stream};
use crate::call::entry::entries;
use crate::state::lock;
use crate::work::{memset, node};

entries! {
    cuMemsetD8: |fill: Linear<u8>| set(None, fill.0);
    cuMemsetD16: |fill: Linear<u16>| set(None, fill.0);
    cuMemsetD32: |fill: Linear<u32>| set(None, fill.0);
    cuMemsetD8Async: |fill: Linear<u8>, stream: Stream| set(Some(stream), fill.0);
    cuMemsetD16Async: |fill: Linear<u16>, stream: Stream| set(Some(stream), fill.0);
    cuMemsetD32Async: |fill: Linear<u32>, stream: Stream| set(Some(stream), fill.0);
    cuMemsetD2D8: |fill: Plane<u8>| set(None, fill.0);
    cuMemsetD2D16: |fill: Plane<u16>| set(None, fill.0);
    cuMemsetD2D32: |fill: Plane<u32>| set(None, fill.0);
    cuMemsetD2D8Async: |fill: Plane<u8>, stream: Stream| set(Some(stream), fill.0);
    cuMemsetD2D16Async: |fill: Plane<u16>, stream: Stream| set(Some(stream), fill.0);
    cuMemsetD2D32Async: |fill: Plane<u32>, stream: Stream| set(Some(stream), fill.0);
}

/// A memset without its context.
type Fill = CUDA_MEMSET_NODE_PARAMS_v2;

/// Destination, value and number of elements of type `T`.
struct Linear<T>(Fill, PhantomData<T>);

impl<T: Argument + Into<u32>> Argument for Linear<T> {
    const WORDS: usize = 3;

    fn read(call: &Call, index: usize) -> Self {
        let count = usize::read(call, index + 2);
        let fill = Fill {
            dst: u64::read(call, index),
            pitch: count,
            value: T::read(call, index + 1).into(),
            elementSize: size_of::<T>() as u32,
            width: count,
            height: 1,
            ctx: std::ptr::null_mut(),
        };
        Linear(fill, PhantomData)
    }
}

/// Destination, pitch, value, width and height in elements of type `T`.
struct Plane<T>(Fill, PhantomData<T>);

impl<T: Argument + Into<u32>> Argument for Plane<T> {
    const WORDS: usize = 5;

    fn read(call: &Call, index: usize) -> Self {
        let fill = Fill {
            dst: u64::read(call, index),
            pitch: usize::read(call, index + 1),
            value: T::read(call, index + 2).into(),
            elementSize: size_of::<T>() as u32,
            width: usize::read(call, index + 3),
            height: usize::read(call, index + 4),
            ctx: std::ptr::null_mut(),
        };
        Plane(fill, PhantomData)
    }
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
